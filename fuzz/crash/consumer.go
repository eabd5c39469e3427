package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// consumer consumes from the queues of one name, session after session.
type consumer struct {
	r    *run
	slot *slot
	rng  *rand.Rand
	id   string // of its subscription; "" is another one in every session
}

// work consumes until ctx ends.
func (k *consumer) work(ctx context.Context) {
	for ctx.Err() == nil {
		if q := k.slot.join(); q != nil {
			k.session(ctx, q)
			k.slot.quit()
		}
		nap(ctx, time.Duration(k.rng.IntN(300))*time.Millisecond)
	}
}

// taking is one life of a program that consumes.
type taking struct {
	*consumer
	q       *queue
	name    string // in the history
	sub     *client.Consumer
	pending []*delivery // settled since the last flush
	plain   bool        // everything is accepted
}

// delivery is a message that came.
type delivery struct {
	*client.Delivery
	ref  uint64 // in the history
	verb history.Verb
}

func (k *consumer) session(ctx context.Context, q *queue) {
	ctx, cancel := either(ctx, q.leaving)
	defer cancel()
	life, end := context.WithTimeout(ctx, time.Second+time.Duration(k.rng.IntN(20_000))*time.Millisecond)
	defer end()
	c, err := k.r.dial(life, k.rng)
	if err != nil {
		return
	}
	defer c.Close()
	o := client.ConsumerOptions{Subscription: k.id, Credit: 1 + k.rng.IntN(100), Patience: patience}
	if k.id == "" {
		o.Patience = 0
	}
	sub, err := c.Consumer(life, k.slot.name, o)
	if err != nil {
		return
	}
	x := &taking{consumer: k, q: q, name: k.r.history.session(), sub: sub}
	x.take(life)
	ctx, cancel = context.WithTimeout(context.Background(), calm)
	defer cancel()
	if k.rng.IntN(3) == 0 {
		c.Close() // the program crashes
	}
	_ = x.flush(ctx) // what has no answer is noted so
	sub.Close()
}

// take takes messages until ctx ends or the consumer does.
func (x *taking) take(ctx context.Context) {
	rounds := 1 + x.rng.IntN(40)
	for d, err := range x.sub.Deliveries(ctx) {
		if err != nil || !x.one(ctx, d) {
			return
		}
		if len(x.pending) >= rounds {
			if err := x.flush(ctx); err != nil {
				return
			}
		}
	}
}

// one takes a message and settles it, or not; false if the session is over.
func (x *taking) one(ctx context.Context, d *client.Delivery) bool {
	body, err := io.ReadAll(d.Body())
	var digest *client.DigestError
	switch {
	case errors.As(err, &digest):
		x.r.wrong("%v offset %d: %v", x.q, d.Offset, err)
		return false
	case err != nil:
		return !errors.Is(err, client.ErrClosed)
	}
	y := &delivery{Delivery: d, verb: history.Accept}
	x.r.history.delivered(x, y, history.DigestOf(body))
	if !x.plain {
		switch v := x.rng.IntN(100); {
		case v < 3:
			return true // it stays unsettled until the session ends
		case v < 10:
			y.verb = history.Release
		case v < 14:
			y.verb = history.Reject
		}
	}
	x.r.history.settles(x, y)
	switch y.verb {
	case history.Release:
		err = d.Release(ctx)
	case history.Reject:
		err = d.Reject(ctx)
	default:
		err = d.Accept(ctx)
	}
	if err != nil { // it was not sent
		x.r.history.settled(x, y, history.Refused)
		var coded *wire.Error
		return errors.As(err, &coded) && coded.Code == wire.StaleSettle // its connection is gone, and there is another
	}
	x.pending = append(x.pending, y)
	return true
}

// flush waits for the answers to settles and notes them.
func (x *taking) flush(ctx context.Context) error {
	stale, err := x.sub.Flush(ctx)
	type key struct{ offset, attempt uint64 }
	bad := make(map[key]*wire.Error)
	for _, s := range stale {
		bad[key{s.Offset, s.Attempt}] = s.Err
	}
	for _, y := range x.pending {
		how := history.Done
		switch why := bad[key{y.Offset, y.Attempt}]; {
		case why != nil && why.Code == wire.StaleSettle:
			how = history.Refused
		case why != nil || err != nil:
			how = history.Unknown
		}
		x.r.history.settled(x, y, how)
	}
	x.pending = x.pending[:0]
	return err
}
