package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// watchedMin is the smallest body of the queue that is watched: it carries the message's number.
const watchedMin = 8

// watched is the traffic of one queue at a fixed rate, from one end of a run to the other. It keeps what each message
// took from when it was to be sent, until it was confirmed and until it was delivered, so that a phase of the run is
// charged with all messages that were due in it, however late their answers came.
type watched struct {
	producer *client.Producer
	consumer *client.Consumer
	pace     *pacer
	body     []byte
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc // of the pacer
	last     atomic.Int64       // so many messages are sent, at most
	sender   sync.WaitGroup
	taker    sync.WaitGroup

	mu        sync.Mutex
	confirmed []time.Duration // guarded by mu; by number of the message, -1 without an answer yet
	delivered []time.Duration // guarded by mu; likewise
	sent      int             // guarded by mu
	got       int             // guarded by mu; different messages
	failed    error           // guarded by mu
	all       chan struct{}   // closed when the sender has ended and every message was delivered
	ended     bool            // guarded by mu; the sender has
}

// watch begins to publish and to consume.
func watch(ctx context.Context, c *client.Client, queue string, o besideOptions) (*watched, error) {
	w := &watched{body: make([]byte, o.bytes), all: make(chan struct{})}
	var err error
	w.producer, err = c.Producer(ctx, queue, client.ProducerOptions{Want: o.wanted, ID: "watched", Patience: time.Minute})
	if err != nil {
		return nil, err
	}
	w.consumer, err = c.Consumer(ctx, queue, client.ConsumerOptions{Subscription: "watched", Patience: time.Minute})
	if err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	sending, stop := context.WithCancel(ctx)
	w.stop = stop
	w.last.Store(math.MaxInt64)
	w.pace = newPacer(o.rate, 1)
	go w.pace.run(sending)
	w.sender.Go(func() { w.fail(w.send(ctx)) })
	w.taker.Go(func() { w.fail(w.take(ctx)) })
	return w, nil
}

// fail notes the first error and ends everything.
func (w *watched) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.failed == nil {
		w.failed = err
		w.cancel(err)
	}
}

func (w *watched) send(ctx context.Context) error {
	for k := int64(0); k < w.last.Load() && w.pace.await(ctx, 0, k); k++ {
		binary.LittleEndian.PutUint64(w.body, uint64(k))
		w.mu.Lock()
		w.sent++
		w.confirmed, w.delivered = append(w.confirmed, -1), append(w.delivered, -1)
		w.mu.Unlock()
		m := client.Message{Body: bytes.NewReader(w.body), Length: int64(len(w.body))}
		if err := w.producer.Send(ctx, m, w.done); err != nil {
			return fmt.Errorf("message %d of the queue that is watched: %w", k, err)
		}
	}
	return nil
}

func (w *watched) done(r client.Result) {
	if r.Outcome != client.OK {
		w.fail(fmt.Errorf("message %d of the queue that is watched: %s: %w", r.Seq, r.Outcome, r.Err))
		return
	}
	k := int64(r.Seq) - 1
	took := time.Since(w.pace.due(0, k))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.confirmed[k] = took
}

func (w *watched) take(ctx context.Context) error {
	for d, err := range w.consumer.Deliveries(ctx) {
		if err != nil {
			return fmt.Errorf("a delivery of the queue that is watched: %w", err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil || len(b) < watchedMin {
			return fmt.Errorf("message at offset %d of the queue that is watched: %d bytes: %w", d.Offset, len(b), err)
		}
		k := int64(binary.LittleEndian.Uint64(b))
		took := time.Since(w.pace.due(0, k))
		if err := d.Accept(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		if w.delivered[k] < 0 {
			w.delivered[k] = took
			w.got++
		}
		all := w.ended && w.got == w.sent
		w.mu.Unlock()
		if all {
			close(w.all)
			return nil
		}
	}
	return ctx.Err()
}

// end sends what is due by now, and waits until all that was sent was confirmed and delivered.
func (w *watched) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	w.last.Store(w.number(time.Now()))
	w.sender.Wait()
	w.stop()
	err := w.producer.Flush(ctx)
	w.mu.Lock()
	w.ended = true
	over := w.got == w.sent
	w.mu.Unlock()
	if err == nil && !over {
		select {
		case <-w.all:
		case <-ctx.Done():
			err = errors.New("not everything that was confirmed was delivered within a minute")
		}
	}
	w.cancel(nil)
	w.taker.Wait()
	w.consumer.Close()
	w.mu.Lock()
	failed := w.failed
	w.mu.Unlock()
	if errors.Is(failed, context.Canceled) {
		failed = nil // that is how the taker ends
	}
	return errors.Join(failed, err, w.producer.Close(ctx))
}

// between is what the messages took that were due in a stretch of the run, in their order.
func (w *watched) between(from, to time.Time) (confirmed, delivered []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, b := min(w.number(from), int64(w.sent)), min(w.number(to), int64(w.sent))
	return w.confirmed[a:b:b], w.delivered[a:b:b]
}

// number is that of the first message that is due at t or later.
func (w *watched) number(t time.Time) int64 {
	return max(0, int64((t.Sub(w.pace.began)+w.pace.every-1)/w.pace.every))
}

// wantOf is what is asked for where it does not matter.
func wantOf(replicas int) wire.Want {
	if replicas > 1 {
		return wire.Want(wire.Replicated(2, wire.Flushed))
	}
	return wire.Want(wire.Stored(wire.Flushed))
}
