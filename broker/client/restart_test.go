package client_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// A real node that stops and starts again under a producer with an id and a durable consumer: every
// message is stored once and confirmed, and comes; what comes twice says so by its attempt.
func TestNodeRestarts(t *testing.T) {
	const n, restarts = 4000, 3
	h := newHome(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := h.client().Producer(ctx, "demo", client.ProducerOptions{Want: written, ID: "p1", Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	k, err := h.client().Consumer(ctx, "demo", client.ConsumerOptions{
		Subscription: "s", Credit: 100, Patience: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int64
	published, phases := make(chan error, 1), make(chan bool, restarts)
	go func() {
		for i := range n {
			if i > 0 && i%(n/(restarts+1)) == 0 {
				phases <- true
			}
			err := p.Send(ctx, message(fmt.Sprint(i)), func(r client.Result) {
				if r.Outcome != client.OK || r.Offset != uint64(i) || r.Seq != uint64(i+1) {
					t.Errorf("message %d: %+v", i, r)
				}
				answered.Add(1)
			})
			if err != nil {
				published <- err
				return
			}
		}
		published <- p.Close(ctx)
	}()
	consumed := make(chan error, 1)
	go func() { consumed <- consume(ctx, k, n) }()
	for range restarts {
		<-phases
		h.stop()
		h.start()
	}
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	if err := <-consumed; err != nil {
		t.Fatal(err)
	}
	k.Close()
	if answered.Load() != n {
		t.Errorf("%d of %d have a result", answered.Load(), n)
	}
}

// consume accepts messages until it has seen n.
func consume(ctx context.Context, k *client.Consumer, n int) error {
	seen := make(map[uint64]uint64) // attempts by offset
	for d, err := range k.Deliveries(ctx) {
		if err != nil {
			return err
		}
		body, err := io.ReadAll(d.Body())
		if err != nil {
			return err
		}
		if string(body) != fmt.Sprint(d.Offset) || d.Producer != "p1" || d.Seq != d.Offset+1 {
			return fmt.Errorf("offset %d is %q, %d of %q", d.Offset, body, d.Seq, d.Producer)
		}
		if last := seen[d.Offset]; d.Attempt <= last {
			return fmt.Errorf("offset %d came with attempt %d after %d", d.Offset, d.Attempt, last)
		}
		seen[d.Offset] = d.Attempt
		_ = d.Accept(ctx) // on a stream that was lost it is stale, and the message comes again
		if len(seen) == n {
			return nil
		}
	}
	return ctx.Err()
}

// Peek, Purge, Unsubscribe and Retire on a real node; a producer's sequences go on until it is retired.
func TestManageRealQueue(t *testing.T) {
	c := newHome(t).client()
	ctx := t.Context()
	publish := func(next uint64, bodies ...string) {
		t.Helper()
		p, err := c.Producer(ctx, "demo", client.ProducerOptions{Want: written, ID: "p1"})
		if err != nil {
			t.Fatal(err)
		}
		if p.Next() != next {
			t.Errorf("the next sequence is %d, want %d", p.Next(), next)
		}
		for _, b := range bodies {
			if r, err := p.Publish(ctx, client.Message{Bytes: []byte(b)}); err != nil || r.Outcome != client.OK {
				t.Fatal(r, err)
			}
		}
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	peek := func() (got []string) {
		t.Helper()
		for d, err := range c.Peek(ctx, "demo", client.PeekOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(d.Body())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d %s %s/%d", d.Offset, body, d.Producer, d.Seq))
		}
		return got
	}
	publish(1, "a", "b")
	publish(3, "c")
	if got := fmt.Sprint(peek()); got != "[0 a p1/1 1 b p1/2 2 c p1/3]" {
		t.Error(got)
	}
	k, err := c.Consumer(ctx, "demo", client.ConsumerOptions{Subscription: "s", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range k.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if done, err := c.Purge(ctx, "demo"); err != nil || done != (client.Purged{Count: 2, Left: 1}) {
		t.Error(done, err)
	}
	if err := c.Unsubscribe(ctx, "demo", "s"); err != nil {
		t.Error(err)
	}
	k.Close()
	if got := fmt.Sprint(peek()); got != "[0 a p1/1]" {
		t.Error(got)
	}
	if err := c.Retire(ctx, "demo", "p1"); err != nil {
		t.Error(err)
	}
	publish(1, "d")
	_, err = c.Purge(ctx, "nope")
	refusedWith(t, err, wire.UnknownQueue)
}
