package history

import (
	"cmp"
	"maps"
	"slices"
)

// This file is what a checker makes of disks.

// group is one group's entries, as the first disk that has them has them.
type group struct {
	queue     *queue // nil: not known
	entries   map[entryID]*entrySum
	committed map[uint64]*entrySum  // by index
	states    map[entryID]*stateSum // by last entry
	dumps     []*dump               // that have ended
}

type entryID struct{ index, term uint64 }

type entrySum struct {
	Entry
	taken Time // when the disk was as it is
	mark
}

type stateSum struct {
	node string
	sum  Digest
	mark
}

type dumpID struct {
	node  string
	group uint64
}

// dump is one disk's part of one group.
type dump struct {
	Dump
	end     DumpEnd
	taken   Time
	mark    mark
	entries []*entrySum // until it ends
	has     map[uint64]Stored
}

func (c *Checker) dump(e *Dump) {
	id := dumpID{e.Node, e.Group}
	c.judged(Form)
	if c.dumps[id] != nil {
		c.breach(Form, nil, "a dump of group %d of %s begins within another", e.Group, e.Node)
	}
	d := &dump{Dump: *e, taken: cmp.Or(e.Taken, c.line.T), mark: c.here(), has: make(map[uint64]Stored)}
	c.dumps[id] = d
	g := c.groups[e.Group]
	if g == nil {
		g = &group{
			entries: make(map[entryID]*entrySum), committed: make(map[uint64]*entrySum), states: make(map[entryID]*stateSum),
		}
		c.groups[e.Group] = g
	}
	g.queue = c.queues[e.Group]
}

func (c *Checker) entry(e *Entry) {
	d := c.dumps[dumpID{e.Node, e.Group}]
	if d == nil {
		c.breach(Form, nil, "an entry of group %d of %s outside of a dump", e.Group, e.Node)
		return
	}
	c.report.Counted.Entries++
	g, sum := c.groups[e.Group], &entrySum{*e, d.taken, c.here()}
	c.judged(Agreement)
	id := entryID{e.Index, e.Term}
	if was := g.entries[id]; was == nil {
		g.entries[id] = sum
	} else if was.Sum != e.Sum {
		c.breach(Agreement, []mark{was.mark}, "group %d: entry %d of term %d differs on %s and %s", e.Group, e.Index, e.Term,
			was.Node, e.Node)
	}
	d.entries = append(d.entries, sum)
	for _, s := range e.Adds {
		if !slices.Contains(e.Missing, s.Offset) {
			d.has[s.Offset] = s
		}
	}
}

func (c *Checker) dumpEnd(e *DumpEnd) {
	id := dumpID{e.Node, e.Group}
	d := c.dumps[id]
	if d == nil {
		c.breach(Form, nil, "a dump of group %d of %s ends, and did not begin", e.Group, e.Node)
		return
	}
	delete(c.dumps, id)
	c.report.Counted.Dumps++
	d.end = *e
	g := c.groups[e.Group]
	g.dumps = append(g.dumps, d)
	for _, s := range d.entries {
		if s.Index > e.Commit {
			break
		}
		c.judged(Agreement)
		was := g.committed[s.Index]
		switch {
		case was == nil || was.Term != s.Term && g.queue != nil && c.mayRewind(g.queue, was.taken):
			g.committed[s.Index] = s // what one replica has written is committed, and may go with the power
		case was.Term != s.Term:
			c.breach(Agreement, []mark{was.mark, s.mark}, "group %d: entry %d is committed of term %d on %s, and of term %d "+
				"on %s", e.Group, s.Index, was.Term, was.Node, s.Term, s.Node)
			continue
		}
		if g.queue == nil {
			continue
		}
		for i := range s.Adds {
			c.sight(g.queue, &s.Adds[i], "of "+e.Node+" holds")
		}
	}
	d.entries = nil
	if e.State == (Digest{}) {
		return
	}
	c.judged(Agreement)
	last := entryID{e.Last, e.LastTerm}
	if was := g.states[last]; was == nil {
		g.states[last] = &stateSum{e.Node, e.State, c.here()}
	} else if was.sum != e.State {
		c.breach(Agreement, []mark{was.mark}, "group %d: the states of %s and %s after entry %d differ", e.Group, was.node,
			e.Node, e.Last)
	}
}

// replicas judges the disks against each other, and against what was confirmed.
func (c *Checker) replicas() {
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		g := c.groups[id]
		c.ends(id, g)
		if g.queue == nil {
			continue
		}
		for _, name := range sortedKeys(g.queue.streams) {
			for _, m := range g.queue.streams[name] {
				c.held(g, m)
			}
		}
	}
	for id, d := range c.dumps {
		c.unjudged("the dump of group %d of %s has no end", id.group, d.Node)
	}
}

// ends judges that the replicas that were stopped while nothing was under way have come equally far.
func (c *Checker) ends(id uint64, g *group) {
	var first *dump
	for _, d := range g.dumps {
		if !d.Quiet {
			continue
		}
		c.judged(Agreement)
		if first == nil {
			first = d
		} else if d.end.Last != first.end.Last || d.end.Next != first.end.Next {
			c.breach(Agreement, []mark{first.mark, d.mark}, "group %d: nothing was under way, and the log of %s ends with "+
				"entry %d and offset %d, and that of %s with entry %d and offset %d", id, first.Node, first.end.Last,
				first.end.Next, d.Node, d.end.Last, d.end.Next)
		}
	}
}

// held judges that as many disks as its evidence says hold a message, of those that were looked at afterwards.
func (c *Checker) held(g *group, m *message) {
	if !m.confirmed || m.lost || len(m.places) == 0 || g.queue.reshaped > m.answered {
		return
	}
	for _, at := range []DumpAt{AtStop, AtKill, AtPowerCut} {
		on, looked := 0, 0
		for _, d := range g.dumps {
			if d.At == at && d.taken >= m.answered {
				looked++
				if d.holds(m, g.queue) {
					on++
				}
			}
		}
		if looked == 0 {
			continue
		}
		on += max(0, g.queue.replicas-looked) // those that nobody looked at
		ok := c.enough(g, m, m.flushed, on+c.struck(m.flushed.since, DiskLost, DiskFault), at, "flushed")
		if ok && at != AtPowerCut { // what is only written is not there after a power cut
			c.enough(g, m, m.written, on+c.struck(m.written.since, DiskLost, DiskFault, PowerCut), at, "written")
		}
	}
}

// enough judges one axis: on so many disks a message is, or was before they were struck.
func (c *Checker) enough(g *group, m *message, want proof, on int, at DumpAt, how string) bool {
	if want.n == 0 {
		return true
	}
	c.judged(Held)
	if on >= want.n {
		return true
	}
	shown := m.shown(m.where().mark)
	for _, d := range g.dumps {
		shown = append(shown, d.mark)
	}
	c.breach(Held, shown, "%v was confirmed as %s on %d, and %d disks hold it (%s)", m, how, want.n, on, at)
	return false
}

// holds says that a disk has a message, or has had it until it was taken out.
func (d *dump) holds(m *message, q *queue) bool {
	p := m.where()
	if s, ok := d.has[p.offset]; ok {
		return s.Term == p.term && s.Message == m.Message
	}
	if p.offset >= d.Next {
		return false
	}
	if q.removable(m) {
		return true
	}
	for _, h := range d.Held {
		if p.offset >= h.Offset && p.offset < h.Offset+h.Count {
			return true
		}
	}
	return false
}
