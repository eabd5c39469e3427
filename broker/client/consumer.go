package client

import (
	"context"
	"iter"
	"sync"
	"time"

	"weida/broker/wire"
)

// ConsumerOptions say how to consume. The zero value is an ephemeral subscription.
type ConsumerOptions struct {
	// Subscription is a durable id, at most 64 bytes; empty is a subscription that ends with the consumer.
	Subscription string
	// Credit is how many deliveries may be under way; 256 if zero. It is granted again as deliveries are taken.
	Credit int
	// Limit ends the deliveries after so many; no limit if zero.
	Limit uint64
	// Patience is how long a lost connection is tried to be made again. If zero it is 30 s with a
	// Subscription, and without one the consumer ends with its connection. Below zero it does so in any case.
	// Opening the first one takes as long at most, and 30 s if this is zero.
	Patience time.Duration
}

const (
	defaultCredit = 256
	// closePatience is how long Close waits for the broker to end the stream.
	closePatience = 5 * time.Second
	// settlingMax is how many settles may be without an answer; a settle more waits.
	settlingMax = 1024
	// staleMax is how many settles without effect are kept for Flush; of more, the latest.
	staleMax = 1024
)

func (o *ConsumerOptions) defaults() {
	if o.Credit <= 0 {
		o.Credit = defaultCredit
	}
	switch {
	case o.Subscription == "":
		o.Patience = -1 // the subscription ended with the connection
	case o.Patience == 0:
		o.Patience = patienceDefault
	}
}

// Consumer receives from one queue.
type Consumer struct {
	c     *Client
	queue string
	o     ConsumerOptions
	life  context.Context // ends with Close
	end   context.CancelFunc
	ended sync.WaitGroup

	mu       sync.Mutex
	moved    *sync.Cond  // of mu
	a        *attachment // guarded by mu; the stream in use, or nil
	ready    []*Delivery // guarded by mu; at most what was granted
	current  *Delivery   // guarded by mu; the last one handed over
	handed   uint64      // guarded by mu; deliveries handed over
	settling []settle    // guarded by mu; settles without an answer, in order
	stale    []Stale     // guarded by mu
	err      error       // guarded by mu; why nothing comes any more
	closing  bool        // guarded by mu
}

// Stale is a settle without effect, or, with wire.ConnectionLost, one that may have had it. A message that
// was not settled is delivered again.
type Stale struct {
	Offset, Attempt uint64
	Err             *wire.Error
}

// settle names a delivery whose settle waits for its answer.
type settle struct{ offset, attempt uint64 }

// Consumer opens a stream to a queue. Errors: *wire.Error with wire.UnknownQueue,
// wire.TooManySubs, or another code; *endpoint.UnreachableError; *ProtocolError; ctx's.
func (c *Client) Consumer(ctx context.Context, queue string, o ConsumerOptions) (*Consumer, error) {
	if err := checkNames(queue, o.Subscription); err != nil {
		return nil, err
	}
	opening := openingPatience(o.Patience)
	o.defaults()
	k := &Consumer{c: c, queue: queue, o: o}
	first, err := c.begin(ctx, queue, opening, k.opening())
	if err != nil {
		return nil, err
	}
	k.moved = sync.NewCond(&k.mu)
	k.life, k.end = context.WithCancel(context.Background())
	k.attach(first)
	k.ended.Go(k.run)
	return k, nil
}

func (k *Consumer) opening() *wire.OpenConsumer {
	return &wire.OpenConsumer{Queue: k.queue, Subscription: k.o.Subscription}
}

// Deliveries yields messages until the limit is reached, ctx ends or the consumer does; only the last
// comes with an error: *wire.Error, such as wire.Superseded or wire.QueueDeleted, *LostError,
// *ProtocolError, ErrClosed. One goroutine at a time may iterate, and a large body has to be read before
// the next delivery is asked for.
func (k *Consumer) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		stop := context.AfterFunc(ctx, k.wakeAll)
		defer stop()
		for {
			d, err := k.next(ctx)
			if d == nil && err == nil {
				return
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// next waits for a delivery; nil and no error at the limit or at ctx's end.
func (k *Consumer) next(ctx context.Context) (*Delivery, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.discardUnder()
	for {
		switch {
		case k.o.Limit > 0 && k.handed >= k.o.Limit || ctx.Err() != nil:
			return nil, nil
		case k.closing:
			return nil, ErrClosed
		case len(k.ready) > 0:
			d := k.ready[0]
			k.ready[0] = nil
			if k.ready = k.ready[1:]; len(k.ready) == 0 {
				k.ready = nil
			}
			k.current = d
			k.handed++
			d.on.taken++
			k.grantUnder(d.on)
			return d, nil
		case k.err != nil:
			return nil, k.err
		}
		k.moved.Wait()
	}
}

// discardUnder ends, with mu held, the body of the delivery handed over last.
func (k *Consumer) discardUnder() {
	if k.current != nil {
		k.current.discard()
		k.current = nil
	}
}

func (k *Consumer) wakeAll() {
	k.mu.Lock()
	k.moved.Broadcast()
	k.mu.Unlock()
}

// wait waits, with mu held, until ready holds, the consumer has ended or ctx ends.
func (k *Consumer) wait(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	stop := context.AfterFunc(ctx, k.wakeAll)
	defer stop()
	for !ready() {
		if k.err != nil {
			return k.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.moved.Wait()
	}
	return nil
}

// settle queues a settle as soon as there is room for one more.
func (k *Consumer) settle(ctx context.Context, d *Delivery, v wire.Verb) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.wait(ctx, func() bool { return len(k.settling) < settlingMax || k.closing || k.err != nil || k.a != d.on })
	switch {
	case err != nil:
		return err
	case k.closing:
		return ErrClosed
	case k.err != nil:
		return k.err
	case k.a != d.on:
		return &wire.Error{Code: wire.StaleSettle, Detail: "The connection that it came on was lost"}
	}
	k.settling = append(k.settling, settle{d.Offset, d.Attempt})
	d.on.frame = wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: v}
	d.on.buf = wire.Append(d.on.buf, &d.on.frame)
	k.moved.Broadcast()
	return nil
}

// Flush waits until every settle so far is answered: what was accepted will not return. The settles
// without effect are handed over, the last 1024 of them. The error is ctx's, or why the consumer ended before.
func (k *Consumer) Flush(ctx context.Context) ([]Stale, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.wait(ctx, func() bool { return len(k.settling) == 0 })
	stale := k.stale
	k.stale = nil
	return stale, err
}

// staleUnder keeps, with mu held, a settle for Flush.
func (k *Consumer) staleUnder(s settle, err *wire.Error) {
	if len(k.stale) == staleMax {
		k.stale = append(k.stale[:0], k.stale[1:]...)
	}
	k.stale = append(k.stale, Stale{s.offset, s.attempt, err})
}

// Close ends the stream; what is unsettled goes back to the queue. It waits a few seconds at most for
// the broker to take note.
func (k *Consumer) Close() {
	k.mu.Lock()
	k.closing = true
	a := k.a
	k.clearUnder()
	k.mu.Unlock()
	k.wakeAll()
	k.end()
	if a != nil {
		if err := a.stream.SetDeadline(time.Now().Add(closePatience)); err != nil {
			abandon(a.stream)
		}
	}
	k.ended.Wait()
}

// clearUnder gives up, with mu held, what was not handed over, and the body of what was.
func (k *Consumer) clearUnder() {
	for _, d := range k.ready {
		d.discard()
	}
	k.ready = nil
	k.discardUnder()
}
