package admin

import "sync"

// stalls remembers since when each group's commit index stands still while something waits: a group whose writes do not
// commit is not healthy, whatever else it says of itself.
type stalls struct {
	mu    sync.Mutex
	since map[uint64]still
}

// still is a group that stood still when it was looked at last.
type still struct {
	committed uint64
	from      int64 // milliseconds since 1970
}

// note takes a look at all groups of a node at a moment, and writes into each for how long it has stood still.
func (s *stalls) note(f *Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := make(map[uint64]still)
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Waiting == 0 {
			continue
		}
		was, seen := s.since[g.ID]
		if !seen || was.committed != g.Committed || was.from > f.At {
			was = still{g.Committed, f.At}
		}
		since[g.ID] = was
		g.StalledMS = max(g.StalledMS, f.At-was.from)
	}
	s.since = since
}
