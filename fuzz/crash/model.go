package main

import (
	"crypto/sha256"
	"fmt"
	"sort"
)

// digest names a body. Every body that is sent is unique, so it names a message too.
type digest [32]byte

func digestOf(body []byte) digest { return sha256.Sum256(body) }

// state is what the publisher knows about a message.
type state uint8

const (
	unknown state = iota // sent, or about to be: no answer came
	confirmed
	refused
)

func (s state) String() string { return [...]string{"no answer", "confirmed", "refused"}[s] }

// message is one that was handed to a publisher.
type message struct {
	stream, line int // which publisher, and its place among what that one sent
	state        state
	offset       uint64 // once confirmed
	term         uint64
	flushed      bool
	seen         bool // found in the queue by a check
}

func (m *message) String() string { return fmt.Sprintf("message %d of publisher %d", m.line, m.stream) }

// model is what the history allows the queue to hold.
type model struct {
	bodies    map[digest]*message
	offsets   map[uint64]*message // confirmed at base or above
	streams   map[int][]*message  // since the last complete check
	base      uint64              // first offset that may still be there
	maybeGone map[uint64]bool     // delivered to a consumer that died before its accept was answered
	term      uint64              // greatest seen
	counts    counts
}

// counts are for the live line and the summary.
type counts struct {
	written, flushed     int // confirmed, by what the answer said
	refused, open, found int // without an answer; of these, found stored
}

// delivery is one message as a consumer got it.
type delivery struct {
	offset, term uint64
	body         digest
}

func newModel() *model {
	return &model{
		bodies: make(map[digest]*message), offsets: make(map[uint64]*message), streams: make(map[int][]*message),
		maybeGone: make(map[uint64]bool),
	}
}

// send notes a message before it is handed to its publisher.
func (m *model) send(stream int, body []byte) *message {
	d := digestOf(body)
	if m.bodies[d] != nil {
		panic("bug: crash: a body was sent twice")
	}
	msg := &message{stream: stream, line: len(m.streams[stream])}
	m.bodies[d] = msg
	m.streams[stream] = append(m.streams[stream], msg)
	m.counts.open++
	return msg
}

// confirm notes the node's word that msg is stored at an offset.
func (m *model) confirm(msg *message, offset, term uint64, flushed bool) error {
	if other := m.offsets[offset]; other != nil {
		return fmt.Errorf("LOST: offset %d was confirmed for %v, and then for %v", offset, other, msg)
	}
	if offset < m.base {
		return fmt.Errorf("LOST: offset %d was confirmed for %v, and for a message that was settled", offset, msg)
	}
	msg.state, msg.offset, msg.term, msg.flushed = confirmed, offset, term, flushed
	m.offsets[offset] = msg
	m.counts.open--
	if flushed {
		m.counts.flushed++
	} else {
		m.counts.written++
	}
	return nil
}

// refuse notes the node's word that msg is not stored.
func (m *model) refuse(msg *message) {
	msg.state = refused
	m.counts.open--
	m.counts.refused++
}

// check compares what a consumer was given, in order, with what the queue must and may hold below end. It returns the
// first contradiction.
func (m *model) check(got []delivery, end uint64) error {
	next := m.base
	for _, d := range got {
		for ; next < d.offset; next++ {
			if err := m.absent(next); err != nil {
				return err
			}
		}
		if d.offset != next {
			return fmt.Errorf("offset %d was delivered after %d", d.offset, next-1)
		}
		if d.offset >= end {
			return fmt.Errorf("offset %d was delivered, though the newest message was confirmed at %d", d.offset, end-1)
		}
		if err := m.present(d); err != nil {
			return err
		}
		next++
	}
	for ; next < end; next++ {
		if err := m.absent(next); err != nil {
			return err
		}
	}
	for offset, msg := range m.offsets {
		if offset >= end {
			return fmt.Errorf("LOST: %v was confirmed at offset %d, the queue ends at %d", msg, offset, end)
		}
	}
	return nil
}

// absent judges an offset that was not delivered.
func (m *model) absent(offset uint64) error {
	if m.maybeGone[offset] {
		return nil
	}
	if msg := m.offsets[offset]; msg != nil {
		return fmt.Errorf("LOST: %v was confirmed at offset %d and is not there", msg, offset)
	}
	return fmt.Errorf("offset %d was not delivered: offsets are dense", offset)
}

// present judges one delivery.
func (m *model) present(d delivery) error {
	msg := m.bodies[d.body]
	expected := m.offsets[d.offset]
	switch {
	case msg == nil && expected != nil:
		return fmt.Errorf("CHANGED: offset %d was confirmed for %v and holds bytes that nobody sent", d.offset, expected)
	case msg == nil:
		return fmt.Errorf("INVENTED: offset %d holds bytes that nobody sent", d.offset)
	case msg.state == refused:
		return fmt.Errorf("REFUSED BUT STORED: offset %d holds %v", d.offset, msg)
	case expected != nil && expected != msg:
		return fmt.Errorf("CHANGED: offset %d was confirmed for %v and holds %v", d.offset, expected, msg)
	case msg.state == confirmed && msg.offset != d.offset:
		return fmt.Errorf("MOVED: %v was confirmed at offset %d and is at %d", msg, msg.offset, d.offset)
	case msg.seen && msg.offset != d.offset:
		return fmt.Errorf("TWICE: %v is at offsets %d and %d", msg, msg.offset, d.offset)
	case msg.state == confirmed && msg.term != d.term:
		return fmt.Errorf("%v was confirmed in term %d and is delivered as of term %d", msg, msg.term, d.term)
	}
	if msg.state == unknown && !msg.seen {
		m.counts.found++
	}
	msg.seen, msg.offset, msg.term = true, d.offset, d.term
	m.term = max(m.term, d.term)
	return nil
}

// order judges each publisher's messages once a complete check has marked what is stored: they lie in the order of
// sending, and what was sent before a stored one is stored too, unless it was refused.
func (m *model) order() error {
	ids := make([]int, 0, len(m.streams))
	for id := range m.streams {
		ids = append(ids, id)
	}
	sort.Ints(ids)
	for _, id := range ids {
		var missing, last *message
		for _, msg := range m.streams[id] {
			switch {
			case !msg.seen && msg.state == refused:
			case !msg.seen:
				missing = msg
			case missing != nil:
				return fmt.Errorf("GAP: %v is stored, %v was sent before it and is not", msg, missing)
			case last != nil && last.offset >= msg.offset:
				return fmt.Errorf("ORDER: %v is at offset %d, %v at %d", last, last.offset, msg, msg.offset)
			default:
				last = msg
			}
		}
	}
	return nil
}

// settled notes that everything below limit was accepted and that the node answered that it was.
func (m *model) settled(limit uint64) {
	m.base = limit
	clear(m.offsets)
	clear(m.maybeGone)
	clear(m.streams)
	clear(m.bodies)
}

// interrupted notes deliveries whose accepts may or may not have been taken. What was delivered has to be
// right even so.
func (m *model) interrupted(got []delivery) error {
	for _, d := range got {
		if err := m.present(d); err != nil {
			return err
		}
		m.maybeGone[d.offset] = true
	}
	return nil
}
