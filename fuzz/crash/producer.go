package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
	"weida/fuzz/internal/label"
)

// producer publishes to the queues of one name, session after session. One with an id sends again what an earlier
// session left in doubt, or gives it up.
type producer struct {
	r    *run
	slot *slot
	rng  *rand.Rand
	id   string        // "" without one
	pace time.Duration // from one message to the next

	uid    uint64 // of the queue that what follows is about
	next   uint64 // sequence
	stream int64  // without an id: which one

	mu   sync.Mutex
	open []*message // guarded by mu; with an id: what may be sent again, by sequence
}

// message is one that was given to a client.
type message struct {
	history.Message
	queue  *queue
	stream string // of a producer without an id
	label  label.Label
	want   wire.Want
	busy   bool // a sending is under way
}

const (
	// openMax is how many messages in doubt a producer remembers; a queue remembers more.
	openMax = 200
	// backlogMax is how many messages a queue may hold before its producers wait for consumers.
	backlogMax = 400
	// patience is how long a client tries to have another connection.
	patience = 20 * time.Second
	// calm is how long a session may take to end in order.
	calm = 2 * time.Second
)

// work publishes until ctx ends.
func (p *producer) work(ctx context.Context) {
	for ctx.Err() == nil {
		if q := p.slot.join(); q != nil {
			p.session(ctx, q)
			p.slot.quit()
		}
		nap(ctx, time.Duration(p.rng.IntN(300))*time.Millisecond)
	}
}

// nap waits, or until ctx ends.
func nap(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// either is a context that ends with the first of two.
func either(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(a)
	stop := context.AfterFunc(b, cancel)
	return ctx, func() { stop(); cancel() }
}

// session is one life of a program that publishes.
func (p *producer) session(ctx context.Context, q *queue) {
	p.stream = p.r.history.sessions.Add(1)
	p.mu.Lock()
	if p.uid != q.uid || p.rng.IntN(4) == 0 { // of a new queue, which knows nothing of the old one's, or given up
		p.open = nil
	}
	if p.uid != q.uid {
		p.uid, p.next = q.uid, 1
	}
	p.mu.Unlock()
	ctx, cancel := either(ctx, q.leaving)
	defer cancel()
	life, end := context.WithTimeout(ctx, time.Second+time.Duration(p.rng.IntN(20_000))*time.Millisecond)
	defer end()
	c, err := p.r.dial(life, p.rng)
	if err != nil {
		return
	}
	defer c.Close()
	o := client.ProducerOptions{Want: wire.Stored(wire.Flushed), Window: 1 + p.rng.IntN(60), Patience: patience}
	if p.id != "" {
		o.ID = p.id
	}
	prod, err := c.Producer(life, p.slot.name, o)
	if err != nil {
		return
	}
	p.publish(life, q, prod)
	if ctx.Err() == nil && p.rng.IntN(2) == 0 {
		c.Close() // the program crashes
	}
	ctx, cancel = context.WithTimeout(context.Background(), calm)
	defer cancel()
	_ = prod.Close(ctx) // every message has its result
}

// publish sends until ctx ends.
func (p *producer) publish(ctx context.Context, q *queue, prod *client.Producer) {
	if p.id != "" {
		if !p.again(ctx, prod) {
			return
		}
		p.next = max(p.next, prod.Next()) // what was given up may still come: its sequence is not used again
	} else {
		p.next = 1
	}
	for ctx.Err() == nil {
		nap(ctx, p.pace/2+time.Duration(p.rng.Int64N(int64(p.pace))))
		if p.r.history.backlog(q) > backlogMax || !p.room() || !q.takes() {
			continue
		}
		if !p.send(ctx, prod, p.make(q)) {
			return
		}
	}
}

// room says whether few enough messages are in doubt, and gives the oldest up that nothing is known of.
func (p *producer) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) >= openMax && !p.open[0].busy {
		p.open = p.open[1:]
	}
	return len(p.open) < openMax
}

// make decides on a new message.
func (p *producer) make(q *queue) *message {
	length := label.Room + p.rng.IntN(600)
	switch p.rng.IntN(100) {
	case 0:
		length = 64<<10 + p.rng.IntN(64<<10) // beside the log
	case 1, 2, 3:
		length += p.rng.IntN(16 << 10)
	}
	m := p.r.message(q, p.id, p.next, length)
	m.want = q.want(p.rng)
	if p.id == "" {
		m.stream = fmt.Sprintf("stream %d of queue %d", p.stream, q.uid)
	}
	p.next++
	return m
}

// message makes a message of a producer, "" for none, which is unlike all others of the run.
func (r *run) message(q *queue, producer string, seq uint64, length int) *message {
	l := label.Label{
		Run: r.o.seed, Queue: q.slot.name, UID: q.uid, Producer: producer, Seq: seq, Message: r.number(), Length: length,
	}
	m := &message{queue: q, label: l}
	if m.Producer, m.Seq = producer, seq; producer == "" {
		m.label.Producer, m.Seq = "-", 0
	}
	m.Length, m.Digest = int64(length), history.DigestOf(m.label.Body())
	return m
}

// send hands one message to the client; false if the session is over.
func (p *producer) send(ctx context.Context, prod *client.Producer, m *message) bool {
	p.mu.Lock()
	if p.id != "" && !slices.Contains(p.open, m) {
		p.open = append(p.open, m)
	}
	m.busy = true
	p.mu.Unlock()
	ref := p.r.history.sent(m)
	body := m.label.Body()
	out := client.Message{Body: bytes.NewReader(body), Length: int64(len(body)), Want: m.want, Within: time.Second}
	if p.id != "" {
		out.Seq = m.Seq
	}
	err := prod.Send(ctx, out, func(res client.Result) { p.answered(m, ref, res) })
	if err == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.busy = false
	p.r.history.refused(ref, err) // nothing was taken
	return false
}

// answered notes what became of a sending.
func (p *producer) answered(m *message, ref uint64, res client.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.busy = false
	p.r.history.answered(m, ref, res)
	if res.Committed || res.Outcome == client.OK {
		p.open = slices.DeleteFunc(p.open, func(x *message) bool { return x == m })
	}
}

// again sends once more what is in doubt, in order; false if the session is over.
func (p *producer) again(ctx context.Context, prod *client.Producer) bool {
	p.mu.Lock()
	list := slices.Clone(p.open)
	p.mu.Unlock()
	slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, m := range list {
		if !p.send(ctx, prod, m) {
			return false
		}
	}
	return true
}
