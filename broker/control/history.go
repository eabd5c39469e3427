package control

import "slices"

// HistoryMax is how many changes are kept for those who watch.
const HistoryMax = 4096

// Event says what became of a resource.
type Event string

// The events.
const (
	Added    Event = "added"
	Modified Event = "modified"
	Deleted  Event = "deleted"
)

// Change is one resource that an entry of the control log made, changed or took away. The resource is as it
// stands behind the entry; of Deleted, as it stood. It is shared, and not to be changed.
type Change struct {
	Version   uint64
	Event     Event
	Kind      Kind
	Name      string
	UID       uint64
	Queue     *Queue
	Connector *Connector
	Node      *Node
	// More says that the next change is of the same entry: who goes on from this version has to have both.
	More bool
}

// history is the last changes, oldest first. It is memory alone: a new life begins with none.
type history struct {
	list  []Change // a ring once it is full
	first int      // of the oldest
	floor uint64   // version of the newest change that is not held any more
	fresh []Change // of the entry that is being applied
}

// add takes a change of this entry.
func (h *history) add(c Change) { h.fresh = append(h.fresh, c) }

// end closes an entry. Of two changes to one resource the last counts, as what the first one says it became.
func (h *history) end() {
	var list []Change
	for _, c := range h.fresh {
		at := slices.IndexFunc(list, func(o Change) bool { return o.UID == c.UID })
		if at >= 0 {
			if c.Event == Modified {
				c.Event = list[at].Event
			}
			list[at] = c
			continue
		}
		list = append(list, c)
	}
	clear(h.fresh)
	h.fresh = h.fresh[:0]
	for i, c := range list {
		c.More = i < len(list)-1
		h.push(c)
	}
}

func (h *history) push(c Change) {
	if len(h.list) < HistoryMax {
		h.list = append(h.list, c)
		return
	}
	h.floor = h.list[h.first].Version
	h.list[h.first] = c
	h.first = (h.first + 1) % HistoryMax
}

func (h *history) at(i int) *Change { return &h.list[(h.first+i)%len(h.list)] }

// Changes are those behind a version, oldest first and at most so many, but never a part of one entry's. False says
// that some behind it are not held any more: whoever watches lists again (B-229.3).
func (s *State) Changes(after uint64, most int) ([]Change, bool) {
	h := &s.history
	if after < h.floor {
		return nil, false
	}
	// Versions rise along the ring.
	lo, hi := 0, len(h.list)
	for lo < hi {
		if mid := (lo + hi) / 2; h.at(mid).Version <= after {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	var list []Change
	for ; lo < len(h.list); lo++ {
		c := h.at(lo)
		if len(list) >= max(most, 1) && !list[len(list)-1].More {
			break
		}
		list = append(list, *c)
	}
	return list, true
}

// Oldest is the smallest version that Changes answers for.
func (s *State) Oldest() uint64 { return s.history.floor }
