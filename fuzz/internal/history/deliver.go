package history

// This file is what a checker makes of consuming.

// deliver takes a delivery.
func (c *Checker) deliver(e *Deliver) {
	n := &c.report.Counted
	if n.Delivered++; e.Attempt > 1 {
		n.Redelivered++
	}
	q := c.queue(e.Queue)
	m := c.sight(q, &e.Stored, "delivers")
	if m == nil {
		return
	}
	c.judged(Settles)
	switch {
	case m.gone != nil && e.Attempt > m.gone.attempt && e.Term == m.gone.term && !c.mayUnsettle(m, m.gone.asked):
		c.breach(Settles, m.shown(m.gone.mark, m.gone.settled), "%v: attempt %d was settled with %s, which was confirmed, "+
			"and attempt %d is delivered", m, m.gone.attempt, m.gone.verb, e.Attempt)
	case m.missed != nil && !m.lost && !c.mayRewind(q, q.audited):
		c.breach(Settles, m.shown(*m.missed), "%v had left the queue when all was quiet, and is delivered", m)
	}
	c.attempt(m, e)
	c.inOrder(q, e)
	c.record(q, m.began, op{kind: opDeliver, m: m, fate: Done, offset: e.Offset, attempt: e.Attempt})
}

// attempt judges that no attempt is delivered twice.
func (c *Checker) attempt(m *message, e *Deliver) {
	c.judged(Attempts)
	if e.Attempt == 0 {
		c.breach(Attempts, m.shown(), "%v is delivered as attempt 0", m)
	}
	for _, d := range m.tries {
		if d.attempt != e.Attempt || d.term != e.Term || m.Producer == "" && len(m.places) > 1 {
			continue
		}
		if !c.mayRewind(m.queue, d.t) {
			c.breach(Attempts, m.shown(d.mark), "%v is delivered twice as attempt %d", m, e.Attempt)
		}
		d.t, d.mark = c.line.T, c.here()
		return
	}
	m.tries = append(m.tries, &delivery{attempt: e.Attempt, term: e.Term, t: c.line.T, mark: c.here()})
}

// inOrder judges the order within a session. A queue that forgot what it had shown gives its offsets again, in a higher
// term.
func (c *Checker) inOrder(q *queue, e *Deliver) {
	if e.Attempt != 1 {
		return
	}
	c.judged(DeliveryOrder)
	last, ok := q.sessions[e.Session]
	if ok && last.offset >= e.Offset && (last.term >= e.Term || !c.mayRewind(q, last.t)) {
		c.breach(DeliveryOrder, []mark{last.mark}, "queue %s (uid %d), session %s: offset %d is delivered first behind "+
			"offset %d", q.Name, q.UID, e.Session, e.Offset, last.offset)
	}
	q.sessions[e.Session] = first{e.Offset, e.Term, c.line.T, c.here()}
}

// settle takes that a delivery is about to be settled.
func (c *Checker) settle(e *Settle) {
	q, p := c.queue(e.Queue), &pending{}
	defer c.begin(e.Ref, p)
	m := q.offsets[e.Offset]
	if m != nil {
		for _, d := range m.tries {
			if d.attempt == e.Attempt && d.term == e.Term {
				p.settle, p.of, p.offset, p.verb = d, m, e.Offset, e.Verb
				if e.Verb != Release {
					d.perhaps++
				}
				*q.span(e.Verb) = span{q.span(e.Verb).certain, q.span(e.Verb).perhaps + 1}
				return
			}
		}
	}
	if c.Broken() == 0 { // else the delivery may have been a contradiction
		c.breach(Form, nil, "offset %d attempt %d of queue %s is settled, and was not delivered", e.Offset, e.Attempt, q.Name)
	}
}

func (q *queue) span(v Verb) *span {
	switch v {
	case Accept:
		return &q.since.accepted
	case Reject:
		return &q.since.rejected
	case Release:
	}
	return &q.since.released
}

// settled takes how that ended.
func (c *Checker) settled(e *Settled) {
	p := c.end(e.Ref)
	if p == nil || p.settle == nil {
		return
	}
	m, d := p.of, p.settle
	q, removes := m.queue, p.verb != Release
	s := q.span(p.verb)
	if e.Fate != Refused {
		p.record(c, q, op{
			kind: opSettle, m: m, fate: e.Fate, offset: p.offset, attempt: d.attempt, verb: p.verb,
		})
	}
	switch e.Fate {
	case Done:
		c.report.Counted.Settled++
		s.certain, s.perhaps = s.certain+1, s.perhaps-min(s.perhaps, 1)
		if removes {
			d.asked, d.verb = p.t, p.verb
			d.perhaps -= min(d.perhaps, 1)
			c.removed(m, d)
		}
	case Refused:
		s.perhaps -= min(s.perhaps, 1)
		if removes {
			d.perhaps -= min(d.perhaps, 1)
		}
	case Unknown: // as it is
	}
}

// removed notes that a settle took a message out.
func (c *Checker) removed(m *message, d *delivery) {
	c.judged(OneHolder)
	c.judged(Settles)
	for _, other := range m.tries {
		if other.term != d.term || other == d || m.Producer == "" && len(m.places) > 1 {
			continue
		}
		// Either of the two may be the one that was forgotten: answers need not come in the order of what they tell.
		if other.took && !c.mayUnsettle(m, other.asked) && !c.mayUnsettle(m, d.asked) {
			c.breach(OneHolder, m.shown(other.settled, d.mark), "%v: attempts %d and %d both took it out", m, other.attempt,
				d.attempt)
		}
		if other.attempt > d.attempt && !c.mayRewind(m.queue, other.t) && !c.mayUnsettle(m, d.asked) {
			c.breach(Settles, m.shown(other.mark, d.mark), "%v: the settle of attempt %d is confirmed, and attempt %d was "+
				"delivered", m, d.attempt, other.attempt)
		}
	}
	d.took, d.settled = true, c.here()
	if m.gone == nil {
		m.gone = d
	}
	delete(m.queue.live, m)
}
