package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/label"
)

// consumer consumes from the queues of one name, session after session.
type consumer struct {
	r    *run
	slot *slot
	rng  *rand.Rand
	own  string // a subscription that nobody else uses
}

// work consumes until the run is over.
func (k *consumer) work() {
	for {
		s, ok := k.r.gate.enter()
		if !ok {
			return
		}
		if t := k.slot.join(); t != nil {
			k.session(s, t)
			k.slot.quit()
		}
		k.r.gate.leave()
		pause(s.quiet, k.rng, 10*time.Millisecond)
	}
}

// taking is one consumer of the client library, from its opening to its end.
type taking struct {
	*consumer
	t       *tenant
	c       *client.Client
	k       *client.Consumer
	owner   bool
	pending []settling      // asked for since the last flush
	rounds  int             // settles from one flush to the next
	until   context.Context // ends when no answer will come any more
}

func (k *consumer) session(s session, t *tenant) {
	spans := k.rng.IntN(3) == 0
	ends := []context.Context{s.quiet, t.over}
	o := client.ConsumerOptions{Subscription: k.own, Credit: 1 + k.rng.IntN(200), Patience: -1}
	switch k.rng.IntN(8) {
	case 0:
		o.Subscription = ""
		spans = false
	case 1, 2, 3:
		o.Subscription = "shared"
	}
	if spans {
		o.Patience = patience
	} else {
		ends = append(ends, s.life)
	}
	ctx, cancel := either(ends...)
	defer cancel()
	c, err := k.r.dial(ctx)
	if err != nil {
		k.r.odd(t.place, "connect to consume", err)
		return
	}
	defer c.Close()
	sub, err := c.Consumer(ctx, t.Queue, o)
	if err != nil {
		k.r.odd(t.place, "open a consumer", err)
		return
	}
	x := &taking{consumer: k, t: t, c: c, k: sub, owner: o.Subscription == k.own && !spans, rounds: 1 + k.rng.IntN(60)}
	var done context.CancelFunc
	x.until, done = context.WithTimeout(s.run, workMax)
	defer done()
	defer context.AfterFunc(s.quiet, func() { time.AfterFunc(calm, done) })()
	defer context.AfterFunc(t.over, func() { time.AfterFunc(calm, done) })()
	if !spans {
		defer context.AfterFunc(s.life, func() { time.AfterFunc(drainMax, done) })()
	}
	defer context.AfterFunc(x.until, c.Close)() // nothing waits for a dead node any longer
	err = x.take(ctx)
	x.finish(s)
	k.r.odd(t.place, "consume", err)
}

// take takes messages until ctx ends, the consumer does, or it has had enough.
func (x *taking) take(ctx context.Context) error {
	left := 1 + x.rng.IntN(1500)
	for d, err := range x.k.Deliveries(ctx) {
		if err != nil {
			return err
		}
		if err := x.one(ctx, d); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
		if len(x.pending) >= x.rounds {
			if err := x.flush(x.until); err != nil {
				return err
			}
		}
	}
	return nil
}

// one reads a message and decides what becomes of it.
func (x *taking) one(ctx context.Context, d *client.Delivery) error {
	c, err := read(d)
	if errors.Is(err, client.ErrBodyGone) || err != nil && codeOf(err) == wire.ConnectionLost {
		return nil // the connection ended within it
	}
	if err != nil {
		return err
	}
	x.r.note(delivered{x.t.place, c})
	verb := wire.Accept
	switch v := x.rng.IntN(100); {
	case v < 4:
		return nil // it stays unsettled
	case v < 12:
		verb = wire.Release
	case v < 20:
		verb = wire.Reject
	}
	return x.settle(ctx, d, verb)
}

func read(d *client.Delivery) (content, error) {
	body, err := io.ReadAll(d.Body())
	if err != nil {
		return content{}, err
	}
	if int64(len(body)) != d.Length {
		return content{}, &client.ProtocolError{Cause: fmt.Sprintf("offset %d: %d bytes of %d", d.Offset, len(body),
			d.Length)}
	}
	return content{
		Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Producer: d.Producer, Seq: d.Seq,
		Length: len(body), Sum: xxh3.Hash(body), Label: label.Read(body),
	}, nil
}

func (x *taking) settle(ctx context.Context, d *client.Delivery, verb wire.Verb) error {
	s := settling{x.t.place, d.Offset, d.Attempt, verb}
	x.r.note(s)
	var err error
	switch verb {
	case wire.Accept:
		err = d.Accept(ctx)
	case wire.Release:
		err = d.Release(ctx)
	default:
		err = d.Reject(ctx)
	}
	if err != nil { // it was not sent
		x.r.note(settled{place: s.place, Offset: s.Offset, Attempt: s.Attempt, Fate: refused})
		if ctx.Err() != nil || codeOf(err) == wire.StaleSettle { // the connection that it came on is gone
			return nil
		}
		return err
	}
	x.pending = append(x.pending, s)
	return nil
}

// flush waits for the answers to all settles and notes them.
func (x *taking) flush(ctx context.Context) error {
	stale, err := x.k.Flush(ctx)
	type key struct{ offset, attempt uint64 }
	bad := make(map[key]*wire.Error)
	for _, s := range stale {
		bad[key{s.Offset, s.Attempt}] = s.Err
	}
	for _, s := range x.pending {
		e := settled{place: s.place, Offset: s.Offset, Attempt: s.Attempt, Fate: done, Owner: x.owner}
		switch why := bad[key{s.Offset, s.Attempt}]; {
		case why != nil && why.Code == wire.StaleSettle:
			e.Fate = refused
		case why != nil && why.Code == wire.ConnectionLost, err != nil:
			e.Fate = unknown
		case why != nil:
			return fmt.Errorf("settle offset %d attempt %d: %w", s.Offset, s.Attempt, why)
		}
		x.r.note(e)
	}
	x.pending = x.pending[:0]
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// finish ends in order, or as a process does that ends: what it had settled may or may not be.
func (x *taking) finish(s session) {
	ctx, cancel := context.WithTimeout(x.until, calm)
	defer cancel()
	crash := x.rng.IntN(3) == 0
	if crash {
		cancel()
	}
	_ = x.flush(ctx) // what has no answer is unknown, and said so
	if crash || ctx.Err() != nil || s.life.Err() != nil {
		x.c.Close()
	}
	x.k.Close()
}
