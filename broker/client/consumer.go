package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/wire"
)

// ConsumerOptions say how to consume. The zero value is an ephemeral subscription.
type ConsumerOptions struct {
	// Subscription is a durable id; empty is a subscription that ends with the consumer.
	Subscription string
	// Credit is how many deliveries may be under way; 256 if zero. It is granted again as deliveries are taken.
	Credit int
	// Limit stops granting after so many deliveries; no limit if zero.
	Limit uint64
}

const (
	defaultCredit = 256
	// closePatience is how long Close waits for the broker to end the stream.
	closePatience = 5 * time.Second
	// settlingMax is how many settles may be without an answer; a settle more waits.
	settlingMax = 1024
	// staleMax is how many refused settles are kept for Flush; of more, the latest.
	staleMax = 1024
)

// Consumer receives from one queue.
type Consumer struct {
	c      *Client
	queue  string
	credit uint64
	limit  uint64 // absolute, 0 is none
	stream *quic.Stream
	reader *wire.Reader
	ended  sync.WaitGroup
	origin *origin // of large bodies; its life ends with the connection, or with Close
	end    context.CancelFunc

	mu       sync.Mutex
	moved    *sync.Cond  // of mu
	ready    []*Delivery // guarded by mu; at most what was granted
	current  *Delivery   // guarded by mu; the last one handed over
	buf      []byte      // guarded by mu; frames to write
	granted  uint64      // guarded by mu; absolute
	received uint64      // guarded by mu; absolute number of deliveries that came
	taken    uint64      // guarded by mu; absolute number of deliveries handed over
	settling int         // guarded by mu; settles without an answer
	stale    []Stale     // guarded by mu
	err      error       // guarded by mu; why the stream is of no more use
	closing  bool        // guarded by mu
}

// Stale is a settle that the broker refused.
type Stale struct {
	Offset, Attempt uint64
	Err             *wire.Error
}

// Consumer opens a stream to a queue. *wire.Error if the queue does not exist.
func (c *Client) Consumer(ctx context.Context, queue string, o ConsumerOptions) (*Consumer, error) {
	if err := checkNames(queue, o.Subscription); err != nil {
		return nil, err
	}
	if o.Credit <= 0 {
		o.Credit = defaultCredit
	}
	stream, r, opened, err := c.open(ctx, &wire.OpenConsumer{Queue: queue, Subscription: o.Subscription})
	if err != nil {
		return nil, err
	}
	k := &Consumer{
		c: c, queue: queue, credit: uint64(o.Credit), stream: stream, reader: r,
		received: opened.Delivered, taken: opened.Delivered, granted: max(opened.Limit, opened.Delivered),
	}
	if o.Limit > 0 {
		k.limit = opened.Delivered + o.Limit
	}
	k.moved = sync.NewCond(&k.mu)
	life, end := context.WithCancel(c.conn.Context())
	k.end = end
	k.origin = &origin{bodies: &c.bodies, life: life, lost: k.bodyLost}
	k.grantLocked() // not shared yet
	k.ended.Go(k.write)
	k.ended.Go(k.read)
	return k, nil
}

// grantLocked raises the limit once half of the credit is used up. The limit is absolute: an earlier
// consumer of the subscription may have granted more than this one would.
func (k *Consumer) grantLocked() {
	want := k.taken + k.credit
	if k.limit > 0 {
		want = min(want, k.limit)
	}
	if want > k.granted && ((want-k.granted)*2 >= k.credit || want == k.limit) {
		k.granted = want
		k.buf = wire.Append(k.buf, &wire.Credit{Limit: want})
		k.moved.Broadcast()
	}
}

func (k *Consumer) write() {
	var spare []byte
	for {
		k.mu.Lock()
		for len(k.buf) == 0 && !k.closing && k.err == nil {
			k.moved.Wait()
		}
		out := k.buf
		k.buf = spare[:0]
		k.mu.Unlock()
		if len(out) == 0 {
			_ = k.stream.Close() // after an error there is nothing to end
			return
		}
		if _, err := k.stream.Write(out); err != nil {
			return // the reader learns of it, too
		}
		spare = out
	}
}

func (k *Consumer) read() {
	err := k.frames()
	k.mu.Lock()
	k.err = err
	k.moved.Broadcast()
	k.mu.Unlock()
	abandon(k.stream)
}

func (k *Consumer) frames() error {
	for {
		f, err := k.reader.Next()
		if err != nil {
			return k.readEnded(err)
		}
		switch f := f.(type) {
		case *wire.Deliver:
			err = k.deliver(f)
		case *wire.Settled:
			err = k.settled(f)
		case *wire.ErrorFrame:
			err = &wire.Error{Code: f.Code, Detail: f.Detail}
		default:
			err = broke("it sent %v to a consumer", f.Type())
		}
		if err != nil {
			return err
		}
	}
}

func (k *Consumer) readEnded(err error) error {
	k.mu.Lock()
	closing := k.closing
	k.mu.Unlock()
	switch {
	case closing:
		return errClosed
	case errors.Is(err, io.EOF):
		return k.c.lost(errors.New("the broker ended the stream"))
	}
	return k.c.lost(err)
}

func (k *Consumer) deliver(f *wire.Deliver) error {
	d := newDelivery(k.queue, f, k.origin)
	d.consumer = k
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		d.discard()
		return nil
	}
	if k.received == k.granted {
		d.discard()
		return broke("it delivered more than it was given credit for")
	}
	k.received++
	k.ready = append(k.ready, d)
	k.moved.Broadcast()
	return nil
}

// bodyLost says why a body's stream did not come.
func (k *Consumer) bodyLost(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return ErrBodyGone
	}
	return k.c.lost(err)
}

func (k *Consumer) settled(f *wire.Settled) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.settling == 0 {
		return broke("it answered a settle of offset %d, which was not sent", f.Offset)
	}
	k.settling--
	if f.Code != wire.OK {
		if len(k.stale) == staleMax {
			k.stale = append(k.stale[:0], k.stale[1:]...)
		}
		k.stale = append(k.stale, Stale{f.Offset, f.Attempt, &wire.Error{Code: f.Code}})
	}
	k.moved.Broadcast()
	return nil
}

// Deliveries yields messages until the limit is reached, ctx ends or the stream does; only the last
// comes with an error. One goroutine at a time may iterate, and a large body has to be read before the
// next delivery is asked for.
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
	k.discardLocked()
	for {
		switch {
		case k.limit > 0 && k.taken >= k.limit || ctx.Err() != nil:
			return nil, nil
		case k.closing:
			return nil, errClosed
		case len(k.ready) > 0:
			d := k.ready[0]
			k.ready[0] = nil
			if k.ready = k.ready[1:]; len(k.ready) == 0 {
				k.ready = nil
			}
			k.current = d
			k.taken++
			k.grantLocked()
			return d, nil
		case k.err != nil:
			return nil, k.err
		}
		k.moved.Wait()
	}
}

// discardLocked ends the body of the delivery handed over last.
func (k *Consumer) discardLocked() {
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

// settle queues a settle as soon as there is room for one more.
func (k *Consumer) settle(ctx context.Context, f *wire.Settle) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.wait(ctx, func() bool { return k.settling < settlingMax || k.closing || k.err != nil }); err != nil {
		return err
	}
	switch {
	case k.closing:
		return errClosed
	case k.err != nil:
		return k.err
	}
	k.settling++
	k.buf = wire.Append(k.buf, f)
	k.moved.Broadcast()
	return nil
}

// wait waits, with mu held, until ready holds, the stream has failed or ctx ends.
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

// Flush waits until every settle so far is answered: what was accepted will not return. The settles
// that were refused are handed over, the last 1024 of them.
func (k *Consumer) Flush(ctx context.Context) ([]Stale, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.wait(ctx, func() bool { return k.settling == 0 })
	stale := k.stale
	k.stale = nil
	return stale, err
}

// Close ends the stream; what is unsettled goes back to the queue. It waits a few seconds at most for
// the broker to take note.
func (k *Consumer) Close() {
	k.mu.Lock()
	k.closing = true
	for _, d := range k.ready {
		d.discard()
	}
	k.ready = nil
	k.discardLocked()
	k.moved.Broadcast()
	k.mu.Unlock()
	k.end()
	if err := k.stream.SetDeadline(time.Now().Add(closePatience)); err != nil {
		abandon(k.stream)
	}
	k.ended.Wait()
}
