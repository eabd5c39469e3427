package main

import (
	"fmt"

	"weida/broker/client"
	"weida/broker/wire"
)

// This file is what a model makes of publishing.

func (m *model) sent(e sent) {
	q := m.known(e.place)
	msg := q.messages[e.Message]
	if msg == nil {
		if e.Again {
			panic(fmt.Sprintf("bug: kill: message %d is sent again, and nobody remembers it", e.Message))
		}
		m.most = max(m.most, e.Message+1)
		msg = &message{sent: e, first: m.now}
		q.messages[e.Message] = msg
		m.counts.messages++
		q.possible++
		m.index(q, msg)
	} else {
		m.counts.again++
		if !msg.located || msg.over {
			q.possible++ // it may have been counted out
		}
	}
	q.sends++
	msg.sends++
	msg.open++
	msg.life = m.life
	msg.last, msg.sendsBefore, msg.possibleBefore = m.now, q.sends, q.possible
	m.tell(msg, "sent, wants %v", e.Want)
}

// index files a new message under its producer, or under its stream.
func (m *model) index(q *queue, msg *message) {
	if msg.Producer == "" {
		q.streams[msg.Stream] = append(q.streams[msg.Stream], msg)
		return
	}
	if q.sequences[msg.Producer] == nil {
		q.sequences[msg.Producer] = make(map[uint64]*message)
	}
	if q.sequences[msg.Producer][msg.Seq] != nil {
		panic("bug: kill: two messages of one sequence")
	}
	q.sequences[msg.Producer][msg.Seq] = msg
	p := q.producer(msg.Producer)
	p.sent = max(p.sent, msg.Seq)
}

func (q *queue) producer(id string) *producing {
	if q.producers[id] == nil {
		q.producers[id] = new(producing)
	}
	return q.producers[id]
}

func (m *model) answered(e answered) {
	q := m.known(e.place)
	msg := q.messages[e.Message]
	if msg == nil || msg.open == 0 {
		m.violate("ANSWER", nil, "message %d of queue %s has an answer that nobody waits for", e.Message, e.Queue)
		return
	}
	msg.open--
	m.tell(msg, "answered %s %v %v offset %d term %d", e.Outcome, e.Code, e.Evidence, e.Offset, e.Term)
	switch client.Outcome(e.Outcome) {
	case client.OK:
		m.confirmed(q, msg, e)
	case client.Refused:
		m.counts.refused++
		msg.refusals++
		m.refused(q, msg, e.Code)
		if msg.refusedOnly() {
			q.possible -= min(q.possible, 1)
		}
	case client.Indeterminate:
		m.counts.unknown++
		if why := m.unexpected(q, e.Code); why != "" {
			m.against(msg, "UNEXPECTED", "its outcome is unknown because of %v: %s", e.Code, why)
		}
	case client.BelowRequest:
		m.against(msg, "EVIDENCE", "a queue of one replica answered below the request")
	default:
		m.against(msg, "EVIDENCE", "outcome %q", e.Outcome)
	}
}

// confirmed judges the broker's word that it has the message.
func (m *model) confirmed(q *queue, msg *message, e answered) {
	switch {
	case !e.Evidence.Covers(msg.Want):
		m.against(msg, "EVIDENCE", "%v was asked and %v answered as a success", msg.Want, e.Evidence)
		return
	case e.Evidence.Level() == "accepted":
		m.counts.accepted++
		msg.accepted = true
		return
	case e.Evidence.Level() != "stored" || !e.Committed:
		m.against(msg, "EVIDENCE", "a queue of one replica answered %v, committed %v", e.Evidence, e.Committed)
		return
	}
	if q.specs[0].Durability == "written" && len(q.specs) == 1 && msg.Want.Persistence == wire.Flushed {
		m.against(msg, "EVIDENCE", "a queue that offers written confirmed flushed")
	}
	if e.Evidence.Persistence == wire.Flushed {
		m.counts.flushed++
	} else {
		m.counts.written++
	}
	if m.life > msg.life {
		m.counts.crossed++
	}
	switch {
	case q.shut > 0 && msg.last > q.shut:
		m.against(msg, "TAKEN WHILE DELETED", "the deletion was confirmed before the node was killed, and the message "+
			"sent after that")
	case q.tooLarge(msg):
		m.against(msg, "LIMIT", "it is larger than any limit that was in force: %+v", q.specs)
	}
	if msg.Producer != "" {
		p := q.producer(msg.Producer)
		p.confirmed = max(p.confirmed, msg.Seq)
	}
	if m.locate(q, msg, e.Offset, e.Term) {
		msg.confirmed = true
	}
}

// locate notes where a message is, or says why it cannot be there.
func (m *model) locate(q *queue, msg *message, offset, term uint64) bool {
	other := q.offsets[offset]
	switch {
	case msg.located && msg.offset != offset:
		m.against(msg, "TWICE", "it is at offset %d, and now at %d", msg.offset, offset)
	case msg.located && msg.term != term:
		m.against(msg, "CHANGED", "it is of term %d, and now of term %d", msg.term, term)
	case other != nil && other != msg:
		m.violate("CHANGED", append(append(other.lines[:len(other.lines):len(other.lines)], "and"), msg.lines...),
			"offset %d holds %v, and now %v", offset, other, msg)
	case !msg.located && offset < q.base.In && msg.sends == 1:
		m.against(msg, "CHANGED", "it is at offset %d, and the queue had come to %d before it was sent", offset, q.base.In)
	default:
		if !msg.located {
			q.backlog++
		}
		msg.over = msg.over || !msg.located && offset < q.base.In // the last audit did not find it
		msg.located, msg.offset, msg.term = true, offset, term
		q.offsets[offset] = msg
		return true
	}
	return false
}

// refused judges whether a refusal has a reason.
func (m *model) refused(q *queue, msg *message, code wire.Code) {
	switch code {
	case wire.QueueFull:
		m.counts.limited++
		most := msg.possibleBefore + (q.sends - msg.sendsBefore)
		if why := q.room(most); why != "" {
			m.against(msg, "LIMIT", "it was refused because the queue is full, %s", why)
		}
	case wire.TooLarge:
		m.counts.limited++
		for _, s := range q.specs {
			if s.MessageBytes > 0 && uint64(msg.Length) > s.MessageBytes {
				return
			}
		}
		m.against(msg, "LIMIT", "it was refused because it is too large, and no limit says so: %+v", q.specs)
	case wire.SequenceRetired:
		if msg.sends == 1 && msg.confirmed {
			panic("bug: kill: one sending with two answers")
		}
		if msg.Producer == "" {
			m.against(msg, "UNEXPECTED", "it has no sequence and was refused as retired")
		}
	default:
		if why := m.unexpected(q, code); why != "" {
			m.against(msg, "UNEXPECTED", "it was refused because of %v: %s", code, why)
		}
	}
}

// room says why a queue that may hold so many messages cannot be full, "" if it can.
func (q *queue) room(most uint64) string {
	limited := false
	for _, s := range q.specs {
		if s.Bytes > 0 || s.Messages > 0 && most >= s.Messages {
			return ""
		}
		limited = limited || s.Messages > 0
	}
	if !limited {
		return "and it has no limit"
	}
	return fmt.Sprintf("and it holds %d messages at most: %+v", most, q.specs)
}

// tooLarge says that every limit that may be in force refuses the message.
func (q *queue) tooLarge(msg *message) bool {
	for _, s := range q.specs {
		if s.MessageBytes == 0 || uint64(msg.Length) <= s.MessageBytes {
			return false
		}
	}
	return true
}

// unexpected says why a code has no reason in this history, "" if it may have one.
func (m *model) unexpected(q *queue, code wire.Code) string {
	switch code {
	case wire.ConnectionLost, wire.Superseded, wire.BodyBroken, wire.Overloaded:
		return ""
	case wire.UnknownQueue, wire.NotReady, wire.QueueClosing, wire.QueueDeleted:
		if q.leaving {
			return ""
		}
		return "nobody asked for the queue's deletion"
	case wire.UnknownProducer:
		if q.leaving {
			return ""
		}
		return "the producer was never retired"
	case wire.OK:
		return "it is not one of the broker's errors"
	default:
		return "nothing in this run is a reason for it"
	}
}

func (m *model) givenUp(e givenUp) {
	q := m.known(e.place)
	msg := q.messages[e.Message]
	if msg == nil {
		return
	}
	msg.finished = true
	if msg.over || msg.refusedOnly() {
		q.forget(msg)
	}
}

// opened judges what a queue knows of a producer.
func (m *model) opened(e opened) {
	q := m.known(e.place)
	p := q.producer(e.Producer)
	m.tellQueue(q, "producer %s goes on with %d", e.Producer, e.Next)
	switch {
	case e.Next <= p.confirmed:
		m.violate("FORGOTTEN", q.lines, "queue %s uid %d: producer %s goes on with %d, and %d was confirmed", q.Queue, q.UID,
			e.Producer, e.Next, p.confirmed)
	case e.Next > p.sent+1:
		m.violate("SHARED", q.lines, "queue %s uid %d: producer %s goes on with %d, and never sent more than %d to it",
			q.Queue, q.UID, e.Producer, e.Next, p.sent)
	}
}
