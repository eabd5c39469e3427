package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/client"
	"weida/fuzz/powercut"
)

// trouble is what happens to the other queue. Its traffic is the same whether it is in trouble or not, so that what
// phases differ by is the trouble.
type trouble interface {
	play(ctx context.Context, pair int, d time.Duration) error // returns when the phase is over
	over(ctx context.Context) error                            // returns when the trouble is
	end() error
}

func (b *besideRun) newTrouble(ctx context.Context) (trouble, error) {
	switch b.o.what {
	case "damaged":
		return newDamaged(ctx, b)
	case "failing":
		return &failing{b: b, traffic: b.startTraffic(ctx, b.o.pairs)}, nil
	case "stalled":
		return &stalled{b: b, traffic: b.startTraffic(ctx, 1)}, nil
	case "large":
		return &large{b: b}, nil
	}
	return &calm{traffic: b.startTraffic(ctx, 1)}, nil
}

// traffic is what the other queues do all the time: a message each trafficEvery. It takes what comes.
type traffic struct {
	cancel    context.CancelFunc
	running   sync.WaitGroup
	confirmed []atomic.Int64 // by queue
}

const trafficEvery = 10 * time.Millisecond

// mark is in all messages of a queue, and nowhere else.
func mark(queue string) []byte { return []byte("a message of the troubled queue " + queue) }

// startTraffic begins to publish to the n queues behind the one that is watched.
func (b *besideRun) startTraffic(ctx context.Context, n int) *traffic {
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{cancel: cancel, confirmed: make([]atomic.Int64, n)}
	for i := range n {
		t.running.Go(func() { b.publish(ctx, queueName(i+1), &t.confirmed[i]) })
	}
	return t
}

func (t *traffic) stop() {
	t.cancel()
	t.running.Wait()
}

// publish publishes until ctx ends, with a new producer when one has ended.
func (b *besideRun) publish(ctx context.Context, queue string, confirmed *atomic.Int64) {
	body := bytes.Repeat(mark(queue), 8)
	done := func(r client.Result) {
		if r.Outcome == client.OK {
			confirmed.Add(1)
		}
	}
	for ctx.Err() == nil {
		p, err := b.other.Producer(ctx, queue, client.ProducerOptions{Want: wantOf(b.o.replicas), Patience: -1})
		for err == nil {
			if err = pause(ctx, trafficEvery); err == nil {
				err = p.Send(ctx, client.Message{Bytes: body}, done)
			}
		}
		if p != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
			_ = p.Close(closing) // it is in trouble, and that is no news
			cancel()
		}
		_ = pause(ctx, trafficEvery) // ends with ctx, as the loop does
	}
}

// calm is no trouble.
type calm struct{ traffic *traffic }

func (t *calm) play(ctx context.Context, _ int, d time.Duration) error { return pause(ctx, d) }
func (t *calm) over(context.Context) error                             { return nil }
func (t *calm) end() error                                             { t.traffic.stop(); return nil }

// failing is a queue whose blocks cannot be written back, another one each time.
type failing struct {
	b       *besideRun
	traffic *traffic
}

func (t *failing) play(ctx context.Context, pair int, d time.Duration) error {
	node, _, err := t.b.leads(queueName(0))
	if err != nil {
		return err
	}
	t.b.disks.list[node].FailWrites(powercut.Fault{Pattern: mark(queueName(pair + 1))})
	if err := pause(ctx, d); err != nil {
		return err
	}
	if n := t.b.disks.list[node].Stats().Failed; n <= pair {
		return fmt.Errorf("%d writes failed, which is no trouble", n)
	}
	return nil
}

func (t *failing) over(context.Context) error { t.b.disks.heal(); return nil }

func (t *failing) end() error { t.traffic.stop(); return nil }

// stalled is a queue whose blocks do not reach the disk.
type stalled struct {
	b       *besideRun
	traffic *traffic
}

func (t *stalled) play(ctx context.Context, _ int, d time.Duration) error {
	node, _, err := t.b.leads(queueName(0))
	if err != nil {
		return err
	}
	t.b.disks.list[node].HoldWrites(mark(queueName(1)))
	defer t.b.disks.heal()
	const flushed = time.Second // of what was written before
	if err := pause(ctx, min(flushed, d/2)); err != nil {
		return err
	}
	before := t.traffic.confirmed[0].Load()
	if err := pause(ctx, d-min(flushed, d/2)); err != nil {
		return err
	}
	if n := t.traffic.confirmed[0].Load() - before; n > 0 && t.b.o.replicas == 1 {
		return fmt.Errorf("%d messages were confirmed meanwhile, so nothing stood still", n)
	}
	return nil
}

// over waits until the queue takes messages again.
func (t *stalled) over(ctx context.Context) error {
	const most = 30 * time.Second
	before, began := t.traffic.confirmed[0].Load(), time.Now()
	for t.traffic.confirmed[0].Load() == before {
		if time.Since(began) > most {
			return fmt.Errorf("the queue takes no messages %v after its blocks reach the disk again", most)
		}
		if err := pause(ctx, trafficEvery); err != nil {
			return err
		}
	}
	return nil
}

func (t *stalled) end() error {
	t.b.disks.heal()
	t.traffic.stop()
	return nil
}

// large is a queue through which a large body goes.
type large struct{ b *besideRun }

func (t *large) play(ctx context.Context, _ int, _ time.Duration) error {
	queue := queueName(1)
	p, err := t.b.other.Producer(ctx, queue, client.ProducerOptions{Want: wantOf(t.b.o.replicas)})
	if err != nil {
		return err
	}
	body := io.LimitReader(endless{}, t.b.o.body)
	r, err := p.Publish(ctx, client.Message{Body: body, Length: t.b.o.body})
	if err != nil || r.Outcome != client.OK {
		return fmt.Errorf("%s: %w", r.Outcome, r.Err)
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	k, err := t.b.other.Consumer(ctx, queue, client.ConsumerOptions{Limit: 1})
	if err != nil {
		return err
	}
	defer k.Close()
	for d, err := range k.Deliveries(ctx) {
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, d.Body()); err != nil {
			return err
		}
		if err := d.Accept(ctx); err != nil {
			return err
		}
	}
	_, err = k.Flush(ctx)
	return err
}

func (t *large) over(context.Context) error { return nil }
func (t *large) end() error                 { return nil }

// endless is a body that compresses to little and is made at no cost.
type endless struct{}

var endlessText = []byte(strings.Repeat("0123456789abcdef", 4<<10))

// Read implements io.Reader.
func (endless) Read(b []byte) (int, error) { return copy(b, endlessText), nil }
