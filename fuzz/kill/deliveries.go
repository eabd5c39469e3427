package main

import (
	"fmt"

	"weida/broker/wire"
)

// This file is what a model makes of consuming and purging.

// identify finds the message that a queue shows, or says why it is none.
func (m *model) identify(q *queue, c content) (*message, string, string) {
	l := c.Label
	switch {
	case l != nil && l.UID != q.UID:
		return nil, "SHARED", fmt.Sprintf("it was sent to queue %s uid %d", l.Queue, l.UID)
	case l != nil && q.messages[l.Message] != nil:
		return q.messages[l.Message], "", ""
	case l != nil && l.Message < m.most:
		return nil, "BACK", fmt.Sprintf("it is message %d, which was gone, or never taken", l.Message)
	case l != nil:
		return nil, "INVENTED", "nobody sent it"
	}
	if c.Producer != "" {
		if msg := q.sequences[c.Producer][c.Seq]; msg != nil {
			return msg, "", ""
		}
		if p := q.producers[c.Producer]; p != nil && c.Seq <= p.sent {
			return nil, "BACK", "its sequence was gone, or never taken"
		}
	}
	if msg := q.offsets[c.Offset]; msg != nil {
		return msg, "", "" // and it is not what it was
	}
	return nil, "INVENTED", "nobody sent such bytes"
}

// show judges a message that a queue showed, and returns it if it is one.
func (m *model) show(q *queue, c content, how string) *message {
	msg, kind, why := m.identify(q, c)
	if msg == nil {
		var history []string
		if at := q.offsets[c.Offset]; at != nil {
			history = at.lines
			why += fmt.Sprintf("; the offset was that of %v", at)
		}
		m.violate(kind, history, "queue %s uid %d %s offset %d attempt %d term %d, %d bytes of %q sequence %d: %s",
			q.Queue, q.UID, how, c.Offset, c.Attempt, c.Term, c.Length, c.Producer, c.Seq, why)
		return nil
	}
	m.tell(msg, "%s offset %d attempt %d term %d", how, c.Offset, c.Attempt, c.Term)
	switch {
	case c.Length != msg.Length || c.Sum != msg.Sum:
		m.against(msg, "CHANGED", "%d bytes with hash %x were sent, and offset %d holds %d with %x", msg.Length, msg.Sum,
			c.Offset, c.Length, c.Sum)
		return nil
	case c.Producer != msg.Producer || c.Seq != msg.Seq && msg.Producer != "":
		m.against(msg, "CHANGED", "it is shown as sequence %d of producer %q", c.Seq, c.Producer)
		return nil
	case msg.refusedOnly():
		m.against(msg, "REFUSED BUT STORED", "it is at offset %d", c.Offset)
		return nil
	}
	if !m.locate(q, msg, c.Offset, c.Term) {
		return nil
	}
	switch {
	case msg.over:
		m.against(msg, "BACK", "an audit did not find it, and it is at offset %d", c.Offset)
	case msg.gone:
		m.back(msg, c)
	}
	if !msg.seen && !msg.confirmed && !msg.accepted && msg.open == 0 {
		m.counts.found++
	}
	msg.seen = true
	if msg.Producer != "" {
		p := q.producer(msg.Producer)
		p.confirmed = max(p.confirmed, msg.Seq)
	}
	return msg
}

// back judges a message that is shown though a settle of it was confirmed. What a consumer got before may be handed
// over late.
func (m *model) back(msg *message, c content) {
	for _, a := range msg.attempts {
		if a.removal == done && c.Attempt > a.n {
			m.against(msg, "BACK", "attempt %d was settled, which was confirmed, and it is shown as of attempt %d", a.n,
				c.Attempt)
			return
		}
	}
}

func (m *message) attempt(n uint64) *attempt {
	for _, a := range m.attempts {
		if a.n == n {
			return a
		}
	}
	return nil
}

func (m *model) delivered(e delivered) {
	q := m.known(e.place)
	m.counts.deliveries++
	if e.Attempt > 1 {
		m.counts.redeliveries++
	}
	msg := m.show(q, e.content, "delivered")
	if msg == nil {
		return
	}
	switch {
	case e.Attempt == 0:
		m.against(msg, "ATTEMPT", "it was delivered as attempt 0")
	case msg.attempt(e.Attempt) != nil:
		m.against(msg, "ATTEMPT", "it was delivered twice as attempt %d", e.Attempt)
	case e.Attempt < msg.floor:
		m.against(msg, "ATTEMPT", "it was delivered as attempt %d, and there had been %d", e.Attempt, msg.floor-1)
	default:
		msg.attempts = append(msg.attempts, &attempt{n: e.Attempt, removal: refused})
	}
}

func (m *model) settling(e settling) {
	q := m.known(e.place)
	msg := q.offsets[e.Offset]
	if msg == nil || msg.attempt(e.Attempt) == nil {
		return // the delivery was a contradiction
	}
	m.tell(msg, "attempt %d: settle with %v", e.Attempt, verbName(e.Verb))
	a := msg.attempt(e.Attempt)
	a.verb = int(e.Verb)
}

func verbName(v wire.Verb) string {
	return map[wire.Verb]string{wire.Accept: "accept", wire.Release: "release", wire.Reject: "reject"}[v]
}

func (m *model) settled(e settled) {
	q := m.known(e.place)
	msg := q.offsets[e.Offset]
	if msg == nil || msg.attempt(e.Attempt) == nil {
		return // the delivery was a contradiction
	}
	m.tell(msg, "attempt %d: settle is %v", e.Attempt, e.Fate)
	a := msg.attempt(e.Attempt)
	removes := wire.Verb(a.verb) != wire.Release
	switch e.Fate {
	case done:
		m.settledFor(q, msg, a, removes)
	case unknown:
		m.counts.settlesUnknown++
		w := &q.since
		*map[wire.Verb]*uint64{
			wire.Accept: &w.maybeAccepted, wire.Reject: &w.maybeRejected, wire.Release: &w.maybeReleased,
		}[wire.Verb(a.verb)]++
		if removes && a.removal == refused {
			a.removal = unknown
		}
	case refused:
		if e.Owner && !q.leaving {
			m.against(msg, "UNEXPECTED", "the settle of attempt %d was refused, and nobody else had the subscription", a.n)
		}
	}
}

// settledFor notes a confirmed settle.
func (m *model) settledFor(q *queue, msg *message, a *attempt, removes bool) {
	switch wire.Verb(a.verb) {
	case wire.Accept:
		m.counts.accepts++
		q.since.accepted++
	case wire.Reject:
		m.counts.rejects++
		q.since.rejected++
	case wire.Release:
		m.counts.releases++
		q.since.released++
	}
	for _, other := range msg.attempts {
		switch {
		case removes && other != a && other.removal == done:
			m.against(msg, "SETTLED TWICE", "attempts %d and %d both took it out", other.n, a.n)
		case removes && other.n > a.n:
			m.against(msg, "BACK", "attempt %d was settled, which was confirmed, and attempt %d was delivered", a.n, other.n)
		}
	}
	if removes && !msg.gone {
		msg.gone, a.removal = true, done
		q.backlog--
		q.possible -= min(q.possible, 1)
	}
}

// removable says that an operation may have taken the message out, or did.
func (q *queue) removable(msg *message) bool {
	for _, a := range msg.attempts {
		if a.removal != refused {
			return true
		}
	}
	for _, p := range q.purges {
		if p.fate != refused && msg.first < p.ended {
			return true
		}
	}
	return false
}

// purge is a purge that may have had an effect.
type purge struct {
	began, ended uint64 // events
	bound        uint64 // everything below this offset was in the queue before it began
	fate         fate
	left         uint64
}

func (m *model) purging(e purging) {
	q := m.known(e.place)
	p := &purge{began: m.now, ended: ^uint64(0), bound: q.base.In}
	for offset, msg := range q.offsets {
		if msg.confirmed || msg.seen {
			p.bound = max(p.bound, offset+1)
		}
	}
	q.purges[e.Op] = p
	m.tellQueue(q, "purge %d of everything below offset %d, and perhaps more", e.Op, p.bound)
}

func (m *model) purged(e purged) {
	q := m.known(e.place)
	p := q.purges[e.Op]
	if p == nil {
		panic("bug: kill: the end of a purge that nobody began")
	}
	m.tellQueue(q, "purge %d is %v: %d out, %d left", e.Op, e.Fate, e.Count, e.Left)
	p.ended, p.fate, p.left = m.now, e.Fate, e.Left
	switch e.Fate {
	case done:
		m.counts.purges++
		m.counts.purged += int(e.Count)
		q.since.purged += e.Count
		q.possible -= min(q.possible, e.Count)
		q.backlog -= int(e.Count)
	case unknown:
		q.since.maybePurged = ^uint64(0) // of everything there was
	case refused: // nothing was changed
	}
}
