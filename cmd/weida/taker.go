package main

import (
	"bufio"
	"context"
	"sync"

	"weida/broker/client"
)

// taker settles deliveries once what was printed of them has left the process. While it flushes and
// settles some, the next ones are printed, so that many share one write.
type taker struct {
	ctx    context.Context
	out    *bufio.Writer
	settle settler

	mu      sync.Mutex
	moved   *sync.Cond         // of mu
	printed []*client.Delivery // guarded by mu, as is out; not flushed yet, at most takerMax
	ending  bool               // guarded by mu
	err     error              // guarded by mu; the first one
	ended   sync.WaitGroup
}

// takerMax bounds the deliveries that are printed and not settled. They hold their bodies.
const takerMax = 256

// newTaker starts one; ctx bounds its settles.
func newTaker(ctx context.Context, out *bufio.Writer, settle settler) *taker {
	t := &taker{ctx: ctx, out: out, settle: settle}
	t.moved = sync.NewCond(&t.mu)
	t.ended.Go(t.run)
	return t
}

// take prints a delivery, and has it settled later on. An error is the first that there was.
func (t *taker) take(d *client.Delivery, print func(*bufio.Writer) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.printed) == takerMax && t.err == nil {
		t.moved.Wait()
	}
	if t.err == nil {
		t.err = print(t.out)
	}
	if t.err == nil {
		t.printed = append(t.printed, d)
	}
	t.moved.Broadcast()
	return t.err
}

// end settles what is left and returns the first error.
func (t *taker) end() error {
	t.mu.Lock()
	t.ending = true
	t.moved.Broadcast()
	t.mu.Unlock()
	t.ended.Wait()
	return t.err // nobody else is there any more
}

func (t *taker) run() {
	for {
		batch := t.flush()
		if len(batch) == 0 {
			return
		}
		for _, d := range batch {
			if err := t.settle(d, t.ctx); err != nil {
				t.fail(err)
				return
			}
		}
	}
}

// flush waits for printed deliveries and flushes them; none is the end.
func (t *taker) flush() []*client.Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.printed) == 0 && !t.ending && t.err == nil {
		t.moved.Wait()
	}
	batch := t.printed
	t.printed = nil
	t.moved.Broadcast()
	// What was printed whole before something failed is settled; what follows stays in the queue.
	if err := t.out.Flush(); err != nil {
		if t.err == nil {
			t.err = err
		}
		return nil
	}
	return batch
}

func (t *taker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.moved.Broadcast()
}
