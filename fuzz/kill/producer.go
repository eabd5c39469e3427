package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/label"
)

// producer publishes to the queues of one name, session after session.
type producer struct {
	r    *run
	slot *slot
	rng  *rand.Rand
	id   string // "" without one

	uid  uint64 // of the queue that what follows is about
	next uint64 // sequence

	mu   sync.Mutex
	open []*outgoing // guarded by mu; with an id: what may be sent again, in order of sequence
}

// outgoing is a message with an id's sequence.
type outgoing struct {
	sent
	state fate // done: it is confirmed
	busy  bool // a sending has no answer
}

const (
	// keptMax is how many messages of a producer may be sent again. It is well below what a queue remembers.
	keptMax = 300
	// backlogMax is how many messages a queue may hold before its producers wait for consumers.
	backlogMax = 300
	// drainMax is how long answers that are on their way from a dead node are waited for.
	drainMax = 10 * time.Millisecond
	// patience is how long a session that outlives the node waits for the next life.
	patience = 20 * time.Second
	// calm is how long such a session may still take when everybody is to come to an end.
	calm = 400 * time.Millisecond
)

// work publishes until the run is over.
func (p *producer) work() {
	for {
		s, ok := p.r.gate.enter()
		if !ok {
			return
		}
		if t := p.slot.join(); t != nil {
			if t.leaving.Err() == nil {
				p.session(s, t)
			}
			p.slot.quit()
		}
		p.r.gate.leave()
		pause(s.quiet, p.rng, 10*time.Millisecond)
	}
}

// pause waits for a random time, or until ctx ends.
func pause(ctx context.Context, rng *rand.Rand, most time.Duration) {
	select {
	case <-ctx.Done():
		// A tight loop would be no better.
		time.Sleep(time.Millisecond)
	case <-time.After(time.Duration(rng.Int64N(int64(most)))):
	}
}

// session is one producer of the client library, from its opening to its end.
func (p *producer) session(s session, t *tenant) {
	if p.uid != t.UID { // of a new queue, which knows nothing of the old one's producers
		p.uid, p.next, p.open = t.UID, 1, nil
	}
	spans := p.rng.IntN(3) == 0
	ends := []context.Context{s.quiet, t.leaving}
	o := client.ProducerOptions{Want: wire.Stored(wire.Written), ID: p.id, Patience: -1}
	if o.Window = 1 + p.rng.IntN(100); p.rng.IntN(4) == 0 {
		o.Window = 0 // the default, which is a thousand
	}
	if spans {
		o.Patience = patience
	} else {
		ends = append(ends, s.life)
	}
	ctx, cancel := either(ends...)
	defer cancel()
	c, err := p.r.dial(ctx)
	if err != nil {
		p.r.odd(t.place, "connect to publish", err)
		return
	}
	prod, err := c.Producer(ctx, t.Queue, o)
	if err != nil {
		c.Close()
		p.r.odd(t.place, "open a producer", err)
		return
	}
	if p.id != "" {
		p.r.note(opened{t.place, p.id, prod.Next()})
	}
	err = p.publish(ctx, t, prod, !spans)
	p.finish(s, c, prod, spans)
	p.r.odd(t.place, "publish", err)
}

// finish ends a session so that everything has an outcome.
func (p *producer) finish(s session, c *client.Client, prod *client.Producer, spans bool) {
	most := calm
	if !spans && s.life.Err() != nil {
		most = drainMax
	}
	ctx, cancel := context.WithTimeout(s.run, most)
	if !spans { // the node may be killed meanwhile
		stop := context.AfterFunc(s.life, func() { time.AfterFunc(drainMax, cancel) })
		defer stop()
	}
	_ = prod.Flush(ctx) // every message has its result
	cancel()
	c.Close()
	ctx, cancel = context.WithTimeout(context.Background(), workMax)
	defer cancel()
	_ = prod.Close(ctx) // as above
}

// publish sends until ctx ends, now and then everything again that may be.
func (p *producer) publish(ctx context.Context, t *tenant, prod *client.Producer, strict bool) error {
	stream := p.r.stream()
	if p.id != "" {
		if err := p.again(ctx, prod); err != nil {
			return err
		}
		p.next = max(p.next, prod.Next())
	}
	for left := p.rng.IntN(600); left > 0 && ctx.Err() == nil; left-- {
		if p.r.backlog(t.UID) > backlogMax || !p.room() {
			pause(ctx, p.rng, 5*time.Millisecond)
			continue
		}
		o := p.make(t, stream, strict)
		if err := p.send(ctx, prod, o); err != nil {
			return err
		}
		if p.rng.IntN(20) == 0 {
			pause(ctx, p.rng, 10*time.Millisecond)
		}
	}
	return nil
}

// room says that few enough messages have an uncertain state; it gives up the oldest that are certain.
func (p *producer) room() bool {
	if p.id == "" {
		return true
	}
	p.mu.Lock()
	var over []*outgoing
	for len(p.open) > keptMax/2 && p.open[0].state == done && !p.open[0].busy {
		over = append(over, p.open[0])
		p.open = p.open[1:]
	}
	fits := len(p.open) < keptMax
	if !fits && !p.open[0].busy { // what is refused or unknown for long is given up
		over = append(over, p.open[0])
		p.open = p.open[1:]
	}
	p.mu.Unlock()
	for _, o := range over {
		p.r.note(givenUp{o.place, o.Message})
	}
	return fits
}

// make decides on a new message.
func (p *producer) make(t *tenant, stream int, strict bool) *outgoing {
	o := &outgoing{sent: sent{place: t.place, Message: p.r.number(), Producer: p.id, Length: p.length(), Want: p.want(t)}}
	if p.id == "" {
		o.Stream, o.Strict = stream, strict
		o.Length = max(o.Length, label.Room)
	} else {
		o.Seq = p.next
		p.next++
	}
	o.Sum = xxh3.Hash(p.label(o).Body())
	return o
}

func (p *producer) label(o *outgoing) label.Label {
	l := label.Label{
		Run: p.r.o.seed, Queue: o.Queue, UID: o.UID, Producer: o.Producer, Seq: o.Seq, Message: o.Message, Length: o.Length,
	}
	if l.Producer == "" {
		l.Producer = "-"
	}
	return l
}

// length is mostly small, sometimes nothing, now and then more than lies in the log itself.
func (p *producer) length() int {
	switch p.rng.IntN(200) {
	case 0:
		return 64<<10 + p.rng.IntN(136<<10)
	case 1, 2:
		return p.rng.IntN(64 << 10)
	case 3, 4, 5, 6:
		return 0
	}
	return p.rng.IntN(600)
}

func (p *producer) want(t *tenant) wire.Want {
	switch p.rng.IntN(10) {
	case 0:
		return wire.Accepted()
	case 1, 2, 3:
		if t.durability == "flushed" {
			return wire.Stored(wire.Flushed)
		}
	}
	return wire.Stored(wire.Written)
}

// send hands one message to the client.
func (p *producer) send(ctx context.Context, prod *client.Producer, o *outgoing) error {
	body := p.label(o).Body()
	p.mu.Lock()
	if p.id != "" {
		if i := slices.Index(p.open, o); i < 0 {
			p.open = append(p.open, o)
		}
		o.busy = true
	}
	p.mu.Unlock()
	p.r.note(o.sent)
	o.Again = true
	m := client.Message{Body: bytes.NewReader(body), Length: int64(len(body)), Want: o.Want, Seq: o.Seq}
	err := prod.Send(ctx, m, func(res client.Result) { p.answered(o, res) })
	if err == nil {
		return nil
	}
	// Nothing was taken: as good as a refusal by the client.
	p.answered(o, client.Result{Outcome: client.Refused, Err: &wire.Error{Code: wire.ConnectionLost}})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *producer) answered(o *outgoing, res client.Result) {
	a := answered{
		place: o.place, Message: o.Message, Outcome: string(res.Outcome), Evidence: res.Evidence,
		Committed: res.Committed, Offset: res.Offset, Term: res.Term,
	}
	if res.Err != nil {
		a.Code = res.Err.Code
	}
	p.r.note(a)
	if p.id == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o.busy = false
	switch {
	case res.Committed:
		o.state = done
	case a.Code == wire.SequenceRetired:
		o.state = done // it cannot be had again
	case o.state != done && res.Outcome == client.Refused:
		o.state = refused
	}
}

// again sends once more, in order, what has no certain answer, and some of what has one: the queue must know it.
func (p *producer) again(ctx context.Context, prod *client.Producer) error {
	p.mu.Lock()
	list := slices.Clone(p.open)
	p.mu.Unlock()
	first := 0
	for first < len(list) && list[first].state == done {
		first++
	}
	first -= min(first, p.rng.IntN(4))
	if p.rng.IntN(4) == 0 {
		first = len(list) - min(len(list), p.rng.IntN(20)) // what is before it is given up by the sequences that follow
	}
	for _, o := range list[:first] {
		if o.state != done {
			o.state = done
		}
	}
	for _, o := range list[first:] {
		if err := p.send(ctx, prod, o); err != nil {
			var coded *wire.Error
			if errors.As(err, &coded) && (coded.Code == wire.SequenceRetired || coded.Code == wire.BadSequence) {
				continue
			}
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}
