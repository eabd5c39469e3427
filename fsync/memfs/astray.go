package memfs

import (
	"maps"
	"slices"
)

// strays are sectors that were under way when the power went, as they were last written. A disk that loses its way
// writes one where another of them belongs, of the same file or of another one, instead of or beside its own place.
// What was flushed stays as it is, also where only a part of a sector was.
type strays struct {
	list []sector
	seen map[*inode]bool
	hits int // sectors that got what belongs elsewhere
}

// strayOnce of so many sectors under way gets what belongs elsewhere.
const strayOnce = 2

// gather takes what is under way in a file or below a directory. The order does not depend on maps.
func (s *strays) gather(n *inode) {
	if s.seen[n] {
		return
	}
	s.seen[n] = true
	if n.dir != nil {
		for _, name := range slices.Sorted(maps.Keys(n.dir.cur)) {
			s.gather(n.dir.cur[name])
		}
		return
	}
	for _, i := range slices.Sorted(slices.Values(n.dirty)) {
		for k := range sectors {
			if n.state[i].dirty&(1<<k) != 0 {
				s.list = append(s.list, sector(sectorOf(n.cur[i], k)))
			}
		}
	}
}

// stray is what sector k, which is under way, gets instead of one of its versions, if it does; was is what of its block
// was flushed.
func (c *cut) stray(was *block, k int) ([]byte, bool) {
	s := c.strays
	if s == nil || len(s.list) == 0 || c.rng.IntN(strayOnce) > 0 || sector(sectorOf(was, k)) != (sector{}) {
		return nil, false
	}
	s.hits++
	return s.list[c.rng.IntN(len(s.list))][:], true
}

// Astray counts the sectors that power cuts put where others belong, over the life of the disk.
func (m *FS) Astray() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.astray
}
