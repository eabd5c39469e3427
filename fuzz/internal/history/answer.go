package history

import (
	"slices"

	"weida/broker/client"
	"weida/broker/wire"
)

// This file is what a checker makes of answers and of places.

// answer takes the end of a sending.
func (c *Checker) answer(e *Answer) {
	p := c.end(e.Ref)
	if p == nil || p.message == nil {
		return
	}
	m, n := p.message, &c.report.Counted
	m.open--
	switch e.Outcome {
	case client.OK:
		n.Confirmed++
		c.judged(Held)
		if !e.Evidence.Covers(p.asked) {
			c.breach(Held, m.shown(p.mark), "%v: %v was asked and %v is called a success", m, p.asked, e.Evidence)
		}
		c.confirmed(p, e)
	case client.BelowRequest:
		n.Below++
		c.confirmed(p, e)
	case client.Refused:
		n.Refused++
		m.queue.reckon(m, func() { m.refused++ })
		c.refusals(m, p.mark)
	case client.Indeterminate:
		n.Unknown++
		p.record(c, m.queue, op{kind: opPublish, m: m, fate: Unknown})
	default:
		c.breach(Form, m.shown(p.mark), "%v ends as %q", m, e.Outcome)
	}
}

// confirmed takes evidence.
func (c *Checker) confirmed(p *pending, e *Answer) {
	m := p.message
	q := m.queue
	if !e.Committed {
		m.accepted++
		p.record(c, q, op{kind: opPublish, m: m, fate: Unknown})
		return
	}
	p.record(c, q, op{kind: opPublish, m: m, fate: Done, offset: e.Offset, term: e.Term})
	q.owned = q.owned || e.Evidence.Level() == "stored"
	if q.deleted != nil && p.t > q.closed {
		c.judged(Linear)
		c.breach(Linear, m.shown(p.mark, *q.deleted), "%v was sent after the queue's deletion, and is in it", m)
		return
	}
	if c.healed > 0 && p.t >= c.healed && q.goesOn == 0 {
		q.goesOn = c.line.T
	}
	own := proofs{written: proof{int(e.Evidence.Replicas), p.t}}
	if e.Evidence.Persistence == wire.Flushed {
		own.flushed = own.written
	}
	// What was known before decides whether it may be somewhere else now.
	outdated := c.locate(m, place{e.Offset, e.Term, c.line.T, c.here()}, c.mayLose(own))
	m.written.raise(own.written)
	m.flushed.raise(own.flushed)
	if !m.confirmed {
		m.confirmed, m.answered, m.proved = true, c.line.T, c.here()
		if m.missed == nil && m.gone == nil {
			q.live[m] = true
		}
	}
	if outdated {
		c.forgotten(m)
	}
}

// raise takes better evidence.
func (x *proof) raise(y proof) {
	if y.n > x.n || y.n == x.n && y.since > x.since {
		*x = y
	}
}

// locate notes where a message is, or says why it cannot be there. old says that what was heard may be of before a
// fault that cost it, and the answer that it is, because its place is another one's since.
func (c *Checker) locate(m *message, here place, old bool) (outdated bool) {
	q, offset, term := m.queue, here.offset, here.term
	c.judged(Offsets)
	c.judged(Duplicates)
	at := slices.IndexFunc(m.places, func(p place) bool { return p.offset == offset })
	other := q.offsets[offset]
	switch {
	case at >= 0 && m.places[at].term == term:
		return false
	case old && len(m.places) > 0 && m.places[0].term > term:
		return false // it has another place since
	case at >= 0 && m.places[at].term < term && c.mayForget(m, m.places[at].at):
		m.places[at] = here
		return false
	case at >= 0:
		c.breach(Offsets, m.shown(m.places[at].mark), "%v is of term %d, and was of term %d", m, term, m.places[at].term)
		return false
	case other != nil && other.placeAt(offset).term > term && old:
		return true
	case other != nil && !c.vacated(other, offset, term):
		c.breach(Offsets, append(m.shown(), other.shown(other.placeAt(offset).mark)...),
			"offset %d is %v of term %d, and was %v of term %d", offset, m, term, other, other.placeAt(offset).term)
		return false
	}
	if len(m.places) > 0 && !c.another(m, here) {
		return false
	}
	q.reckon(m, func() { m.places = append(m.places, here) })
	q.located++
	q.offsets[offset] = m
	return false
}

// vacated takes a message from an offset that another one has, if it may have been lost.
func (c *Checker) vacated(other *message, offset, term uint64) bool {
	was := other.placeAt(offset)
	if was.term >= term || !c.mayForget(other, was.at) {
		return false
	}
	q := other.queue
	q.reckon(other, func() {
		other.places = slices.DeleteFunc(other.places, func(p place) bool { return p.offset == offset })
	})
	q.located--
	c.forgotten(other)
	return true
}

// forgotten takes a message whose place is another one's, as the faults since allow.
func (c *Checker) forgotten(m *message) {
	if m.confirmed && !m.queue.removable(m) {
		c.loss(m)
	}
}

func (m *message) placeAt(offset uint64) (found place) {
	for _, p := range m.places {
		if p.offset == offset {
			return p
		}
	}
	return found
}

// another judges one more place of a message.
func (c *Checker) another(m *message, here place) bool {
	was := m.places[0]
	if m.Producer == "" {
		c.judged(Copies)
		if len(m.places) >= m.sent-m.refused {
			c.breach(Copies, m.shown(was.mark), "%v is at %v and at %v, and %d of its %d sendings may have been stored", m,
				was, here, m.sent-m.refused, m.sent)
			return false
		}
		return true
	}
	if was.term < here.term && c.mayForget(m, was.at) { // the queue forgot it, and took it again
		q := m.queue
		if q.offsets[was.offset] == m {
			delete(q.offsets, was.offset)
		}
		q.reckon(m, func() { m.places = nil })
		q.located--
		return true
	}
	c.breach(Duplicates, m.shown(was.mark), "%v is at %v, and now at %v", m, was, here)
	return false
}

// refusals judges a message that was shown, or refused.
func (c *Checker) refusals(m *message, more mark) {
	if !m.refusedOnly() {
		return
	}
	c.judged(Refusals)
	if m.seen || len(m.places) > 0 {
		c.breach(Refusals, m.shown(m.sighted, more), "%v was refused each time, and is in the queue", m)
	}
}

// sight finds the message that a queue shows, and judges that it is one.
func (c *Checker) sight(q *queue, s *Stored, how string) *message {
	c.judged(Phantom)
	m := q.find(&s.Message)
	if m == nil {
		var shown []mark
		if other := q.offsets[s.Offset]; other != nil {
			shown = other.shown(other.placeAt(s.Offset).mark)
		}
		c.breach(Phantom, shown, "queue %s (uid %d) %s offset %d, %d bytes with digest %v of %q sequence %d, which nobody "+
			"published to it", q.Name, q.UID, how, s.Offset, s.Length, s.Digest, s.Producer, s.Seq)
		return nil
	}
	if m.Message != s.Message {
		c.breach(Phantom, m.shown(), "%v: %d bytes with digest %v were published, and the queue %s %d with %v at offset %d",
			m, m.Length, m.Digest, how, s.Length, s.Digest, s.Offset)
		return nil
	}
	if !m.seen {
		m.seen, m.sighted = true, c.here()
	}
	c.refusals(m, m.sighted)
	c.locate(m, place{s.Offset, s.Term, c.line.T, c.here()}, c.mayRewind(q, m.began))
	return m
}
