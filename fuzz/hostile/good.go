package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

const (
	goodQueue = "good"
	goodSize  = 256 // bytes of a message
	// goodErrors bounds the errors that are kept of a client that should have none.
	goodErrors = 20
)

// good is the well-behaved client: one connection, one producer, one consumer, for the whole run.
type good struct {
	node     *node
	interval time.Duration
	client   *client.Client
	producer *client.Producer
	consumer *client.Consumer
	began    time.Time // when message 0 was meant to be sent
	stop     context.CancelFunc
	sending  sync.WaitGroup
	taking   sync.WaitGroup
	arrived  chan struct{} // holds one: something was delivered

	mu        sync.Mutex
	published []time.Duration // guarded by mu; by message, from its intended start to its evidence; 0: none yet
	delivered []time.Duration // guarded by mu; likewise, to its delivery
	missing   int             // guarded by mu; messages that were sent and not delivered
	errs      []error         // guarded by mu
}

func newGood(ctx context.Context, n *node, rate int) (*good, error) {
	c, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	g := &good{node: n, interval: time.Second / time.Duration(rate), client: c, arrived: make(chan struct{}, 1)}
	// Without an id and patience of its own it ends with its connection: nothing is hidden by trying again.
	if g.producer, err = c.Producer(ctx, goodQueue, client.ProducerOptions{Want: wire.Stored(wire.Flushed)}); err != nil {
		return nil, err
	}
	g.consumer, err = c.Consumer(ctx, goodQueue, client.ConsumerOptions{Subscription: "good", Patience: -1})
	if err != nil {
		return nil, err
	}
	ctx, g.stop = context.WithCancel(ctx)
	g.began = time.Now()
	g.sending.Go(func() { g.send(ctx) })
	g.taking.Go(g.take)
	return g, nil
}

// send publishes each message when it is due, whatever became of those before it.
func (g *good) send(ctx context.Context) {
	body := make([]byte, goodSize)
	for k := 0; ; k++ {
		due := g.began.Add(time.Duration(k) * g.interval)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return
		}
		g.mu.Lock()
		g.published = append(g.published, 0)
		g.delivered = append(g.delivered, 0)
		g.missing++
		g.mu.Unlock()
		binary.BigEndian.PutUint64(body, uint64(k))
		err := g.producer.Send(context.Background(), client.Message{Bytes: body}, func(r client.Result) {
			if r.Outcome != client.OK {
				g.fail(fmt.Errorf("message %d: %s: %w", k, r.Outcome, r.Err))
			}
			g.note(&g.published, k, time.Since(due))
		})
		if err != nil {
			g.fail(fmt.Errorf("message %d: %w", k, err))
			return
		}
	}
}

func (g *good) note(list *[]time.Duration, k int, took time.Duration) {
	g.mu.Lock()
	(*list)[k] = max(took, 1)
	g.mu.Unlock()
}

// take accepts every delivery until the consumer is closed.
func (g *good) take() {
	for d, err := range g.consumer.Deliveries(context.Background()) {
		if errors.Is(err, client.ErrClosed) {
			return
		}
		if err != nil {
			g.fail(fmt.Errorf("consume: %w", err))
			return
		}
		if err := g.delivery(d); err != nil {
			g.fail(fmt.Errorf("delivery of offset %d: %w", d.Offset, err))
		}
	}
}

func (g *good) delivery(d *client.Delivery) error {
	body, err := io.ReadAll(d.Body())
	if err != nil {
		return err
	}
	if len(body) != goodSize || d.Attempt != 1 {
		return fmt.Errorf("%d bytes at attempt %d", len(body), d.Attempt)
	}
	k := binary.BigEndian.Uint64(body)
	took := time.Since(g.began.Add(time.Duration(k) * g.interval))
	g.mu.Lock()
	switch {
	case k >= uint64(len(g.delivered)):
		err = fmt.Errorf("message %d was never sent", k)
	case g.delivered[k] != 0:
		err = fmt.Errorf("message %d came twice", k)
	default:
		g.delivered[k] = max(took, 1)
		g.missing--
	}
	g.mu.Unlock()
	select {
	case g.arrived <- struct{}{}:
	default:
	}
	if err != nil {
		return err
	}
	return d.Accept(context.Background())
}

func (g *good) fail(err error) {
	g.mu.Lock()
	if len(g.errs) < goodErrors {
		g.errs = append(g.errs, err)
	}
	g.mu.Unlock()
}

// errors are what went wrong so far.
func (g *good) errors() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.errs)
}

// end stops publishing, waits for every answer and delivery, and leaves.
func (g *good) end(ctx context.Context) error {
	g.stop()
	g.sending.Wait()
	err := g.producer.Close(ctx)
	for left := g.left(); left > 0; left = g.left() {
		select {
		case <-g.arrived:
			continue
		case <-ctx.Done():
			g.fail(fmt.Errorf("%d messages were not delivered", left))
		}
		break
	}
	if stale, ferr := g.consumer.Flush(ctx); ferr != nil || len(stale) > 0 {
		g.fail(errors.Join(fmt.Errorf("%d settles had no effect", len(stale)), ferr))
	}
	g.consumer.Close()
	g.taking.Wait()
	g.client.Close()
	return err
}

func (g *good) left() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.missing
}

// times are what messages took.
type times struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Most  time.Duration `json:"max_ns"`
}

// samples are what the messages took that were meant to be sent within a window.
type samples struct{ published, delivered []time.Duration }

// within looks up a window. It is for when everything has its answer.
func (g *good) within(w window) (s samples) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := max(0, int((w.from.Sub(g.began)+g.interval-1)/g.interval))
	to := min(len(g.published), int((w.to.Sub(g.began)+g.interval-1)/g.interval))
	if from >= to {
		return s
	}
	return samples{slices.Clone(g.published[from:to]), slices.Clone(g.delivered[from:to])}
}

func quantiles(list []time.Duration) times {
	if len(list) == 0 {
		return times{}
	}
	s := slices.Sorted(slices.Values(list))
	at := func(q float64) time.Duration { return s[min(len(s)-1, int(q*float64(len(s))))] }
	return times{Count: len(s), P50: at(0.5), P99: at(0.99), Most: s[len(s)-1]}
}

// newcomer is a client that comes now: it connects and leaves. Where there should be a place for it, it comes again
// when a handshake took too long, as on a slow machine.
func (g *good) newcomer(ctx context.Context, place bool) error {
	ctx, cancel := context.WithTimeout(ctx, g.node.answer)
	defer cancel()
	dial := func() (*endpoint.Conn, error) {
		return endpoint.Dial(ctx, g.node.listen, endpoint.DialOptions{Identity: g.node.good, Trust: g.node.trust})
	}
	conn, err := dial()
	for late := net.Error(nil); place && errors.As(err, &late) && late.Timeout() && ctx.Err() == nil; {
		conn, err = dial()
	}
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}
