package history

import (
	"cmp"
	"slices"
)

// This file is what a checker makes of looks at a whole queue, and of what is missing there.

// audit takes everything that is in a queue.
func (c *Checker) audit(e *Audit) {
	c.report.Counted.Audits++
	q := c.queue(e.Queue)
	present := make(map[*message]bool, len(e.Messages))
	next := uint64(0)
	for i := range e.Messages {
		s := &e.Messages[i]
		c.judged(Offsets)
		if s.Offset < next {
			c.breach(Offsets, nil, "queue %s (uid %d) shows offset %d behind offset %d", q.Name, q.UID, s.Offset, next-1)
		}
		next = s.Offset + 1
		if m := c.sight(q, s, "shows"); m != nil {
			present[m] = true
			c.returned(q, m)
		}
	}
	c.missing(q, present)
	if e.Books != nil {
		c.books(q, e, next)
		q.base = *e.Books
	}
	q.since = settles{began: c.line.T}
	q.audited, q.final = c.line.T, e.Final
	if e.Final && len(e.Messages) > 0 {
		c.judged(Liveness)
		first := q.find(&e.Messages[0].Message)
		if first != nil {
			c.breach(Liveness, first.shown(), "%v and %d more were not delivered, though consumers asked until nothing came",
				first, len(e.Messages)-1)
		}
	}
}

// returned judges a message that an audit shows.
func (c *Checker) returned(q *queue, m *message) {
	c.judged(Settles)
	switch {
	case m.gone != nil && len(m.places) < 2 && !c.mayUnsettle(m, m.gone.asked):
		c.breach(Settles, m.shown(m.gone.mark, m.gone.settled), "%v: attempt %d was settled with %s, which was confirmed, "+
			"and it is in the queue", m, m.gone.attempt, m.gone.verb)
	case m.missed != nil && !m.lost && !c.mayRewind(q, q.audited):
		c.breach(Settles, m.shown(*m.missed), "%v had left the queue when all was quiet, and is in it again", m)
	}
	m.missed = nil
	if m.confirmed && m.gone == nil {
		q.live[m] = true
	}
}

// missing judges the messages that an audit does not show.
func (c *Checker) missing(q *queue, present map[*message]bool) {
	c.tally(Loss).Judged += len(q.live)
	var absent []*message
	for m := range q.live {
		if !present[m] {
			absent = append(absent, m)
		}
	}
	for _, m := range inPlace(absent) {
		if !q.removable(m) {
			c.loss(m)
		}
		here := c.here()
		m.missed = &here
		delete(q.live, m)
	}
	for m := range present { // what was under way when they were seen last has had its effect or none
		for _, d := range m.tries {
			d.perhaps = 0
		}
	}
}

// inPlace sorts messages by their first places.
func inPlace(list []*message) []*message {
	slices.SortFunc(list, func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.where().offset, b.where().offset), cmp.Compare(a.began, b.began))
	})
	return list
}

// where is a message's first place, or none.
func (m *message) where() (p place) {
	if len(m.places) > 0 {
		p = m.places[0]
	}
	return p
}

// loss judges a message that is not there, and that nobody took out.
func (c *Checker) loss(m *message) {
	if m.lost {
		return
	}
	m.lost, m.allowed = true, c.mayLose(m.proofs)
	delete(m.queue.live, m)
	where := m.where()
	if !m.allowed {
		c.breach(Loss, m.shown(m.sighted), "%v was confirmed (written on %d, flushed on %d) at %v of term %d, and is not "+
			"there", m, m.written.n, m.flushed.n, where, where.term)
		return
	}
	if m.written.n > 1 {
		c.judged(Silence)
		if !m.queue.toldOf(m) {
			c.breach(Silence, m.shown(m.sighted), "%v was confirmed at %v, is not there, and nobody was told; the faults "+
				"since may have cost it", m, where)
		}
	}
}

// books judges a queue's own counts.
func (c *Checker) books(q *queue, e *Audit, next uint64) {
	b, w := e.Books, &q.since
	c.judged(Counts)
	wrong := func(format string, args ...any) {
		c.breach(Counts, nil, "queue %s (uid %d): "+format, append([]any{q.Name, q.UID}, args...)...)
	}
	if b.In != b.Ready+b.Unsettled+b.Accepted+b.Rejected+b.Purged {
		wrong("what came in is not what is in and what went out: %+v", *b)
	}
	if n := uint64(len(e.Messages)); n != b.Ready+b.Unsettled {
		wrong("it shows %d messages and counts %d", n, b.Ready+b.Unsettled)
	}
	if next > b.In {
		wrong("it shows offset %d and counts %d that came in", next-1, b.In)
	}
	if q.audited == 0 && !q.born || c.mayRewind(q, w.began) {
		return // what there was before is not known
	}
	for _, r := range []struct {
		name        string
		before, now uint64
		span
	}{
		{"accepted", q.base.Accepted, b.Accepted, w.accepted},
		{"rejected", q.base.Rejected, b.Rejected, w.rejected},
		{"released", q.base.Released, b.Released, w.released},
		{"purged", q.base.Purged, b.Purged, w.purged},
	} {
		switch {
		case r.now < r.before+r.certain:
			wrong("%d were counted as %s before, %d more were confirmed, and now it counts %d", r.before, r.name, r.certain,
				r.now)
		case r.now-r.before-r.certain > r.perhaps:
			wrong("%d were counted as %s before, %d more were confirmed and %d perhaps, and now it counts %d", r.before,
				r.name, r.certain, r.perhaps, r.now)
		}
	}
	if q.born && b.In > uint64(q.located+q.room) {
		wrong("%d came in, %d were seen, and %d more may have been sent", b.In, q.located, q.room)
	}
}
