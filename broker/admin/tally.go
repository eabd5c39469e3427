package admin

import "sync"

// flows are what went through a queue.
type flows struct{ in, accepted, rejected, purged, released uint64 }

func flowsOf(l Live) flows { return flows{l.In, l.Accepted, l.Rejected, l.Purged, l.Released} }

// tally adds up the flows of all queues so that the sum never falls. The plain sum of what the queues count would fall
// when one is deleted, and whoever reads a counter takes a fall for a restart and counts everything again.
//
// A queue that stood before the first look begins there: what went through it before is of another run of the node. A
// queue made later begins at nothing.
type tally struct {
	mu    sync.Mutex
	since uint64 // version of the registry at the first look; 0 before it
	last  map[uint64]flows
	sum   flows
}

// add takes a look at all queues and returns the sums as of now.
func (t *tally) add(n Node, reg *Registry) (Sums, flows) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since == 0 {
		t.since = reg.Version
	}
	s := newSums()
	last := make(map[uint64]flows, len(t.last))
	for i := range reg.Queues {
		q := &reg.Queues[i]
		s.phase(q.Status.Phase)
		uid := q.Metadata.UID
		before, seen := t.last[uid]
		l, ok := n.Live(uid)
		if !ok {
			if seen {
				last[uid] = before
			}
			continue
		}
		s.add(l)
		now := flowsOf(l)
		if !seen && uid <= t.since {
			before = now
		}
		t.sum.add(before, now)
		last[uid] = now
	}
	t.last = last
	return s, t.sum
}

// add adds the way from before to now. A count that fell belongs to a log that lost its tail: nothing went through.
func (f *flows) add(before, now flows) {
	rise := func(to *uint64, a, b uint64) {
		if b > a {
			*to += b - a
		}
	}
	rise(&f.in, before.in, now.in)
	rise(&f.accepted, before.accepted, now.accepted)
	rise(&f.rejected, before.rejected, now.rejected)
	rise(&f.purged, before.purged, now.purged)
	rise(&f.released, before.released, now.released)
}
