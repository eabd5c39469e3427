package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// ledger is what is known of one queue's messages.
type ledger struct {
	t     *testing.T
	queue string
	// early is a queue that shows messages before they are flushed, on a disk whose power is cut: what was delivered and
	// not confirmed may be taken back, and its offset be another message's under a higher term.
	early bool

	mu      sync.Mutex
	sent    map[string][]*message // guarded by mu; by producer, in the order of sending
	offsets map[uint64]*message   // guarded by mu
	wrong   []string              // guarded by mu
	again   int                   // guarded by mu; deliveries beyond the first
	moved   chan struct{}         // guarded by mu; closed when something was noted
}

// message is one of them.
type message struct {
	producer string
	n        int // counts the producer's messages, from 0
	size     int // of its body, in bytes
	want     wire.Want
	result   client.Result // of its last sending
	resent   bool          // by the test, after a refusal
	located  bool          // offset and term are known
	offset   uint64
	term     uint64
	attempt  uint64 // of its last delivery
	asked    bool   // its settle was sent
	settled  bool   // and confirmed

	confirmed bool // that it is there
}

func (m *message) String() string { return fmt.Sprintf("message %d of producer %s", m.n, m.producer) }

// wrongMax bounds what is kept of what is wrong: one mistake makes many.
const wrongMax = 10

func newLedger(t *testing.T, queue string) *ledger {
	return &ledger{
		t: t, queue: queue, sent: make(map[string][]*message), offsets: make(map[uint64]*message),
		moved: make(chan struct{}),
	}
}

// body makes a message's bytes: who it is, and what follows from that.
func (l *ledger) body(m *message) []byte {
	b := fmt.Appendf(nil, "queue %s producer %s message %d size %d\n", l.queue, m.producer, m.n, m.size)
	for i := len(b); i < m.size; i++ {
		b = append(b, byte(i*31+m.n*7))
	}
	return b
}

// violate notes what must not be, with mu held.
func (l *ledger) violate(format string, args ...any) {
	if len(l.wrong) < wrongMax {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violate(format, args...)
	l.tell()
}

// tell wakes those who wait, with mu held.
func (l *ledger) tell() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// next is a new message of a producer.
func (l *ledger) next(producer string, size int, want wire.Want) *message {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &message{producer: producer, n: len(l.sent[producer]), size: size, want: want}
	l.sent[producer] = append(l.sent[producer], m)
	return m
}

// answered notes a publish's end.
func (l *ledger) answered(m *message, res client.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tell()
	m.result = res
	covers := res.Evidence.Covers(m.want)
	switch {
	case res.Outcome == client.OK && !covers:
		l.violate("%v asked for %v and got %v as a success", m, m.want, res.Evidence)
	case res.Outcome == client.BelowRequest && covers:
		l.violate("%v asked for %v and got %v as too little", m, m.want, res.Evidence)
	}
	if res.Committed {
		l.locate(m, res.Offset, res.Term)
		m.confirmed = true
	}
}

// locate notes, with mu held, where a message is.
func (l *ledger) locate(m *message, offset, term uint64) {
	if m.located && (m.offset != offset || m.term != term) {
		l.takeBack(m, term)
	}
	if other := l.offsets[offset]; other != nil && other != m {
		l.takeBack(other, term)
	}
	other := l.offsets[offset]
	switch {
	case other != nil && other != m:
		l.violate("offset %d is %v, and now %v", offset, other, m)
	case m.located && (m.offset != offset || m.term != term):
		l.violate("%v is at offset %d of term %d, and now at %d of %d", m, m.offset, m.term, offset, term)
	}
	m.located, m.offset, m.term = true, offset, term
	l.offsets[offset] = m
}

// takeBack forgets, with mu held, where a message was if a power cut may have taken it from there before this term.
func (l *ledger) takeBack(m *message, term uint64) {
	if l.early && m.located && !m.confirmed && m.term < term {
		delete(l.offsets, m.offset)
		m.located, m.attempt, m.asked = false, 0, false
	}
}

// seen finds the message that a body says it is; nil, and a violation, if nobody sent it so.
func (l *ledger) seen(offset, term uint64, body []byte) *message {
	var queue, producer string
	var n, size int
	_, err := fmt.Sscanf(string(body[:min(len(body), 256)]), "queue %s producer %s message %d size %d\n", &queue,
		&producer, &n, &size)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil || queue != l.queue || n >= len(l.sent[producer]):
		l.violate("offset %d holds what nobody sent: %.80q", offset, body)
		return nil
	case !bytes.Equal(body, l.body(l.sent[producer][n])):
		l.violate("offset %d holds something else than %v", offset, l.sent[producer][n])
		return nil
	}
	m := l.sent[producer][n]
	l.locate(m, offset, term)
	return m
}

// delivered notes a delivery.
func (l *ledger) delivered(d *client.Delivery, body []byte) *message {
	m := l.seen(d.Offset, d.Term, body)
	if m == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.settled:
		l.violate("%v came again after its settle was confirmed", m)
	case d.Attempt <= m.attempt && l.early: // a cut took the attempt, which was written when it was shown
		l.again++
	case d.Attempt <= m.attempt:
		l.violate("%v came with attempt %d after attempt %d", m, d.Attempt, m.attempt)
	case m.attempt > 0:
		l.again++
	}
	m.attempt = d.Attempt
	return m
}

// accepts notes that a message's settle is sent.
func (l *ledger) accepts(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.asked = true
	l.tell()
}

// settled notes what came of a delivery's settle.
func (l *ledger) settled(m *message, d *client.Delivery, confirmed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if confirmed && (m.offset != d.Offset || m.term != d.Term) {
		l.violate("%v was settled at offset %d of term %d, which was confirmed, and is now at %d of %d", m, d.Offset,
			d.Term, m.offset, m.term)
	}
	m.settled = m.settled || confirmed
	l.tell()
}

// tally counts messages: sent, answered, confirmed in the queue, accepted by a consumer, and that confirmed.
type tally struct{ sent, answered, confirmed, accepted, settled int }

func (l *ledger) tally() (c tally, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.sent {
		for _, m := range list {
			c.sent++
			if m.result.Outcome != "" {
				c.answered++
			}
			if m.result.Committed {
				c.confirmed++
			}
			if m.asked {
				c.accepted++
			}
			if m.settled {
				c.settled++
			}
		}
	}
	return c, l.moved
}

// judge fails the test for what is wrong so far, and for what is wrong with what is in the queue at the end.
func (l *ledger) judge(present []*message) tally {
	l.t.Helper()
	l.mu.Lock()
	there := make(map[*message]int)
	for _, m := range present {
		there[m]++
	}
	for _, list := range l.sent {
		l.judgeProducer(list, there)
	}
	for i := 1; i < len(present); i++ {
		if present[i].offset <= present[i-1].offset {
			l.violate("%v is shown behind %v", present[i], present[i-1])
		}
	}
	for _, w := range l.wrong {
		l.t.Errorf("queue %s: %s", l.queue, w)
	}
	l.mu.Unlock()
	c, _ := l.tally()
	return c
}

// judgeProducer judges, with mu held, one producer's messages.
func (l *ledger) judgeProducer(list []*message, there map[*message]int) {
	var last *message
	for _, m := range list {
		n := there[m]
		switch {
		case n > 1:
			l.violate("%v is in the queue %d times", m, n)
		case n == 1 && m.settled:
			l.violate("%v is in the queue after its settle was confirmed", m)
		case n == 0 && m.result.Committed && !m.asked:
			l.violate("%v was confirmed with %v at offset %d of term %d and is gone", m, m.result.Evidence, m.offset, m.term)
		case n == 1 && m.result.Outcome == client.Refused:
			l.violate("%v was refused and is in the queue", m)
		}
		if !m.located || m.resent {
			continue
		}
		if last != nil && last.offset >= m.offset {
			l.violate("%v is at offset %d, and %v, sent before it, at %d", m, m.offset, last, last.offset)
		}
		last = m
	}
}

// confirmed are the messages that were, by offset.
func (l *ledger) confirmed() (list []*message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.offsets {
		if m.result.Committed {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(a.offset, b.offset) })
	return list
}

// left counts what is confirmed and was not delivered for good.
func (l *ledger) left() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.offsets {
		if m.result.Committed && !m.asked {
			n++
		}
	}
	return n
}
