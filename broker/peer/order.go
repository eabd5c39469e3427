package peer

import (
	"slices"
	"time"

	"weida/raftstore"
)

const (
	// waitBytes and waitFrames bound what waits for gaps on a connection. Beyond it the oldest gap counts as lost.
	waitBytes  = 8 << 20
	waitFrames = 4 << 10
)

// numbered is a frame with its group's number on the connection.
type numbered struct {
	number uint64
	raftstore.Frame
}

// order puts frames that came on different streams into the order of their group's numbers. A frame waits for a gap in
// its own group only. Its caller gives it the time and holds it alone.
type order struct {
	wait  time.Duration // a gap that is older counts as lost
	next  map[raftstore.GroupID]uint64
	rooms map[raftstore.GroupID]*room
	gaps  []gap // the oldest first; those that closed meanwhile are passed over

	bytes, frames int // that wait
	lost, late    uint64
}

// room is where the frames of one group wait, in the order of their numbers.
type room struct {
	frames []waiting
	since  time.Time // of the gap before the first
}

type waiting struct {
	numbered
	at time.Time
}

type gap struct {
	group raftstore.GroupID
	since time.Time
}

func newOrder(wait time.Duration) order {
	return order{
		wait: wait, next: make(map[raftstore.GroupID]uint64), rooms: make(map[raftstore.GroupID]*room),
	}
}

// take appends to out what can be handed over now that f came. What waits is copied: f may lie in a large buffer.
func (o *order) take(out []raftstore.Frame, f numbered, now time.Time) []raftstore.Frame {
	due := o.next[f.Group] + 1
	switch {
	case f.number < due:
		o.late++
		return out
	case f.number == due:
		o.next[f.Group] = due
		return o.follow(append(out, f.Frame), f.Group)
	}
	r := o.rooms[f.Group]
	if r == nil {
		r = &room{since: now}
		o.rooms[f.Group] = r
		o.gaps = append(o.gaps, gap{f.Group, now})
	}
	i, twice := slices.BinarySearchFunc(r.frames, f.number, func(w waiting, n uint64) int {
		switch {
		case w.number < n:
			return -1
		case w.number > n:
			return 1
		}
		return 0
	})
	if twice {
		o.late++
		return out
	}
	f.Data = slices.Clone(f.Data)
	r.frames = slices.Insert(r.frames, i, waiting{f, now})
	o.bytes += len(f.Data)
	o.frames++
	for o.bytes > waitBytes || o.frames > waitFrames {
		out = o.skip(out, o.gaps[0])
	}
	return out
}

// follow appends the frames that waited for the one that was just handed over.
func (o *order) follow(out []raftstore.Frame, group raftstore.GroupID) []raftstore.Frame {
	r := o.rooms[group]
	if r == nil {
		return out
	}
	n := 0
	for n < len(r.frames) && r.frames[n].number == o.next[group]+1 {
		o.next[group]++
		out = append(out, r.frames[n].Frame)
		o.bytes -= len(r.frames[n].Data)
		o.frames--
		n++
	}
	if n == 0 {
		return out
	}
	clear(r.frames[:n])
	r.frames = r.frames[n:]
	if len(r.frames) == 0 {
		delete(o.rooms, group)
		return out
	}
	// Another gap comes to the front; it is as old as what has waited longest for it.
	r.since = r.frames[0].at
	for _, w := range r.frames[1:] {
		if w.at.Before(r.since) {
			r.since = w.at
		}
	}
	i, _ := slices.BinarySearchFunc(o.gaps, r.since, func(g gap, t time.Time) int { return g.since.Compare(t) })
	o.gaps = slices.Insert(o.gaps, i, gap{group, r.since})
	return out
}

// skip takes the gap, which is the first, for lost.
func (o *order) skip(out []raftstore.Frame, g gap) []raftstore.Frame {
	o.gaps = o.gaps[1:]
	r := o.rooms[g.group]
	if r == nil || !r.since.Equal(g.since) {
		return out // it has closed
	}
	first := r.frames[0].number
	o.lost += first - o.next[g.group] - 1
	o.next[g.group] = first - 1
	return o.follow(out, g.group)
}

// expire appends what waited for gaps that are too old.
func (o *order) expire(out []raftstore.Frame, now time.Time) []raftstore.Frame {
	for len(o.gaps) > 0 && now.Sub(o.gaps[0].since) >= o.wait {
		out = o.skip(out, o.gaps[0])
	}
	return out
}

// due says in how long expire has something to do, and whether it will at all.
func (o *order) due(now time.Time) (time.Duration, bool) {
	for len(o.gaps) > 0 {
		g := o.gaps[0]
		if r := o.rooms[g.group]; r != nil && r.since.Equal(g.since) {
			return max(0, g.since.Add(o.wait).Sub(now)), true
		}
		o.gaps = o.gaps[1:]
	}
	return 0, false
}
