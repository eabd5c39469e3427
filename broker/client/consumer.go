package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

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

const defaultCredit = 256

// Consumer receives from one queue.
type Consumer struct {
	c      *Client
	queue  string
	credit uint64
	limit  uint64 // absolute, 0 is none
	stream *quic.Stream
	reader *wire.Reader
	ended  sync.WaitGroup

	frames chan *Delivery

	mu        sync.Mutex
	moved     *sync.Cond // of mu
	buf       []byte     // guarded by mu; frames to write
	granted   uint64     // guarded by mu; absolute
	taken     uint64     // guarded by mu; absolute number of deliveries taken
	settling  int        // guarded by mu; settles without an answer
	stale     []Stale    // guarded by mu
	err       error      // guarded by mu
	closing   bool       // guarded by mu
	discarded context.CancelFunc
	life      context.Context
}

// Stale is a settle that the broker refused.
type Stale struct {
	Offset, Attempt uint64
	Err             *wire.Error
}

// Delivery is one message, unsettled until it is settled.
type Delivery struct {
	Queue   string
	Offset  uint64
	Attempt uint64 // from 1
	Term    uint64
	Length  int64
	Digest  [16]byte

	consumer *Consumer
	body     io.Reader
}

// Consumer opens a stream to a queue.
func (c *Client) Consumer(ctx context.Context, queue string, o ConsumerOptions) (*Consumer, error) {
	if len(queue) > wire.QueueMax || len(o.Subscription) > wire.IDMax {
		return nil, &wire.Error{Code: wire.UnknownQueue, Detail: fmt.Sprintf(
			"A queue name has at most %d bytes, a subscription id %d", wire.QueueMax, wire.IDMax)}
	}
	if o.Credit <= 0 {
		o.Credit = defaultCredit
	}
	stream, r, opened, err := c.open(ctx, &wire.OpenConsumer{Queue: queue, Subscription: o.Subscription})
	if err != nil {
		return nil, err
	}
	k := &Consumer{c: c, queue: queue, credit: uint64(o.Credit), stream: stream, reader: r,
		frames: make(chan *Delivery, o.Credit), taken: opened.Delivered, granted: opened.Limit}
	if o.Limit > 0 {
		k.limit = opened.Delivered + o.Limit
	}
	k.moved = sync.NewCond(&k.mu)
	k.life, k.discarded = context.WithCancel(context.Background())
	k.mu.Lock()
	k.grantLocked()
	k.mu.Unlock()
	k.ended.Go(k.write)
	k.ended.Go(k.read)
	return k, nil
}

// grantLocked raises the limit once half of the credit is used up.
func (k *Consumer) grantLocked() {
	want := k.taken + k.credit
	if k.limit > 0 {
		want = min(want, k.limit)
	}
	if want > k.granted && (want-k.granted)*2 >= k.credit || want == k.limit && want > k.granted {
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
	err := k.deliveries()
	k.mu.Lock()
	k.err = err
	k.moved.Broadcast()
	k.mu.Unlock()
	close(k.frames)
}

func (k *Consumer) deliveries() error {
	for {
		f, err := k.reader.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("client: the broker ended the stream")
			}
			return k.c.lost(err)
		}
		switch f := f.(type) {
		case *wire.Deliver:
			d, err := k.delivery(f)
			if err != nil {
				return err
			}
			select {
			case k.frames <- d:
			case <-k.life.Done():
				return k.life.Err()
			}
		case *wire.Settled:
			k.mu.Lock()
			k.settling--
			if f.Code != wire.OK {
				k.stale = append(k.stale, Stale{f.Offset, f.Attempt, &wire.Error{Code: f.Code}})
			}
			k.moved.Broadcast()
			k.mu.Unlock()
		case *wire.ErrorFrame:
			return &wire.Error{Code: f.Code, Detail: f.Detail}
		default:
			return fmt.Errorf("client: the broker sent %v to a consumer", f.Type())
		}
	}
}

func (k *Consumer) delivery(f *wire.Deliver) (*Delivery, error) {
	d := &Delivery{Queue: k.queue, Offset: f.Offset, Attempt: f.Attempt, Term: f.Term, Digest: f.Digest, consumer: k}
	if !f.Large {
		d.Length = int64(len(f.Body))
		d.body = &proved{r: bytes.NewReader(bytes.Clone(f.Body)), left: d.Length, want: f.Digest, h: xxh3.New128()}
		return d, nil
	}
	d.Length = int64(f.Length)
	stream, err := k.c.in.Take(k.life, f.Stream)
	if err != nil {
		return nil, k.c.lost(err)
	}
	r := wire.NewReader(stream)
	head, err := r.Next()
	if h, ok := head.(*wire.BodyHead); err != nil || !ok || h.Length != f.Length {
		return nil, fmt.Errorf("client: the body of offset %d does not begin as announced", f.Offset)
	}
	d.body = &proved{r: r.Rest(), left: d.Length, want: f.Digest, h: xxh3.New128()}
	return d, nil
}

// DigestError is a body that is not what its digest says.
type DigestError struct{ Length int64 }

func (e *DigestError) Error() string {
	return fmt.Sprintf("client: a body of %d bytes does not have its digest; do not use it; release the delivery", e.Length)
}

// proved gives a body's bytes and, at its end, io.EOF only if they have the digest.
type proved struct {
	r    io.Reader
	left int64
	size int64
	want [16]byte
	h    *xxh3.Hasher128
}

func (p *proved) Read(b []byte) (int, error) {
	if p.left == 0 {
		if p.h.Sum128().Bytes() != p.want {
			return 0, &DigestError{p.size}
		}
		return 0, io.EOF
	}
	n, err := p.r.Read(b[:min(int64(len(b)), p.left)])
	_, _ = p.h.Write(b[:n]) // a hash never fails
	p.left -= int64(n)
	p.size += int64(n)
	if err != nil && p.left > 0 {
		return n, fmt.Errorf("client: a body ended %d bytes early: %w", p.left, noEOF(err))
	}
	return n, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Deliveries yields messages until ctx ends, the Limit is reached or the stream fails; only the last
// ends with an error. A large body has to be read before the next delivery comes.
func (k *Consumer) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		for {
			k.mu.Lock()
			done := k.limit > 0 && k.taken >= k.limit
			k.mu.Unlock()
			if done {
				return
			}
			select {
			case d, ok := <-k.frames:
				if !ok {
					yield(nil, k.failure())
					return
				}
				k.mu.Lock()
				k.taken++
				k.grantLocked()
				k.mu.Unlock()
				if !yield(d, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (k *Consumer) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Body gives the message's bytes, once.
func (d *Delivery) Body() io.Reader { return d.body }

// Accept says that the message is done with; it takes effect when the broker has written that down (Flush).
func (d *Delivery) Accept(ctx context.Context) error { return d.settle(ctx, wire.Accept) }

// Release gives the message back: it is offered again, with the next attempt.
func (d *Delivery) Release(ctx context.Context) error { return d.settle(ctx, wire.Release) }

// Reject takes the message out of the queue without having been done with.
func (d *Delivery) Reject(ctx context.Context) error { return d.settle(ctx, wire.Reject) }

const settlingMax = 1024

func (d *Delivery) settle(ctx context.Context, v wire.Verb) error {
	k := d.consumer
	return k.wait(ctx, func() bool { return k.settling < settlingMax }, func() {
		k.settling++
		k.buf = wire.Append(k.buf, &wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: v})
		k.moved.Broadcast()
	})
}

// wait runs then, with mu held, as soon as ready holds.
func (k *Consumer) wait(ctx context.Context, ready func() bool, then func()) error {
	stop := context.AfterFunc(ctx, func() { k.mu.Lock(); k.moved.Broadcast(); k.mu.Unlock() })
	defer stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	for !ready() {
		if k.err != nil {
			return k.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.moved.Wait()
	}
	if then != nil {
		if k.err != nil {
			return k.err
		}
		then()
	}
	return nil
}

// Flush waits until every settle so far is answered: what was accepted will not return. The settles
// that were refused are handed over.
func (k *Consumer) Flush(ctx context.Context) ([]Stale, error) {
	err := k.wait(ctx, func() bool { return k.settling <= 0 }, nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	stale := k.stale
	k.stale = nil
	return stale, err
}

// Close ends the stream; what is unsettled goes back to the queue.
func (k *Consumer) Close() {
	k.mu.Lock()
	k.closing = true
	k.moved.Broadcast()
	k.mu.Unlock()
	k.discarded()
	k.stream.CancelRead(0)
	k.ended.Wait()
}
