package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// Delivery is one message, unsettled until it is settled.
type Delivery struct {
	Queue   string
	Offset  uint64
	Attempt uint64 // from 1
	Term    uint64
	Length  int64 // of the body, in bytes
	Digest  [16]byte
	// Producer and Seq are who published it, and as which of its messages; empty and 0 without a producer id.
	Producer string
	Seq      uint64

	consumer *Consumer   // nil: peeked at
	on       *attachment // of consumer; the stream it came on
	large    *largeBody  // or nil
	body     io.Reader
}

// origin is where the bodies of deliveries come from.
type origin struct {
	bodies *endpoint.BodyStreams
	life   context.Context   // ends when no body comes any more
	lost   func(error) error // says why
}

func newDelivery(queue string, f *wire.Deliver, from *origin) *Delivery {
	d := &Delivery{
		Queue: queue, Offset: f.Offset, Attempt: f.Attempt, Term: f.Term, Digest: f.Digest,
		Length: int64(len(f.Body)), Producer: f.Producer, Seq: f.Seq,
	}
	if f.Large {
		d.Length = int64(f.Length)
		d.large = &largeBody{from: from, id: f.Stream, offset: f.Offset, length: f.Length}
		d.body = newProved(d.large, d.Length, d.Digest)
	} else {
		d.body = newProved(bytes.NewReader(bytes.Clone(f.Body)), d.Length, d.Digest)
	}
	return d
}

// Body gives the message's bytes, once. The last of them are given only if the whole has its digest,
// else the error is a *DigestError.
func (d *Delivery) Body() io.Reader { return d.body }

// Accept says that the message is done with; it takes effect when the broker has written that down (Flush).
func (d *Delivery) Accept(ctx context.Context) error { return d.settle(ctx, wire.Accept) }

// Release gives the message back: it is offered again, with the next attempt.
func (d *Delivery) Release(ctx context.Context) error { return d.settle(ctx, wire.Release) }

// Reject takes the message out of the queue without having been done with.
func (d *Delivery) Reject(ctx context.Context) error { return d.settle(ctx, wire.Reject) }

func (d *Delivery) settle(ctx context.Context, v wire.Verb) error {
	if d.consumer == nil {
		return ErrPeeked
	}
	return d.consumer.settle(ctx, d, v)
}

// discard gives a large body's stream back. A small body is memory and stays.
func (d *Delivery) discard() {
	if d.large != nil {
		d.large.discard()
	}
}

// ErrBodyGone is a large body that was not read before the next delivery, or before the consumer closed.
var ErrBodyGone = errors.New("client: a large body is read before the next delivery is asked for; " +
	"the message is still unsettled, release it to have it again")

// largeBody is a body on a stream of its own, which is taken when its first byte is asked for.
type largeBody struct {
	from   *origin
	id     uint64
	offset uint64
	length uint64

	gone   atomic.Bool
	taken  atomic.Bool
	stream atomic.Pointer[quic.ReceiveStream]
	rest   io.Reader // owned by who reads
}

func (b *largeBody) Read(p []byte) (int, error) {
	if b.gone.Load() {
		return 0, ErrBodyGone
	}
	if b.rest == nil {
		if err := b.begin(); err != nil {
			return 0, err
		}
	}
	n, err := b.rest.Read(p)
	if err != nil && b.gone.Load() {
		return n, ErrBodyGone
	}
	return n, err
}

func (b *largeBody) begin() error {
	if b.taken.Swap(true) {
		return ErrBodyGone // discarded at this moment
	}
	stream, err := b.from.bodies.Take(b.from.life, b.id)
	if err != nil {
		return b.from.lost(context.Cause(b.from.life))
	}
	b.stream.Store(stream)
	if b.gone.Load() {
		stream.CancelRead(0)
	}
	r := wire.NewReader(stream)
	head, err := r.Next()
	if err != nil {
		return err
	}
	if h, ok := head.(*wire.BodyHead); !ok || h.Length != b.length {
		stream.CancelRead(0)
		return broke("the body of offset %d does not begin as announced", b.offset)
	}
	b.rest = r.Rest()
	return nil
}

// discard may be called by another goroutine than the reader, and more than once.
func (b *largeBody) discard() {
	if b.gone.Swap(true) {
		return
	}
	if !b.taken.Swap(true) {
		b.from.bodies.Drop(b.id)
	} else if s := b.stream.Load(); s != nil {
		s.CancelRead(0) // after the end it does nothing
	}
}

// DigestError is a body that is not what its digest says.
type DigestError struct{ Length int64 }

func (e *DigestError) Error() string {
	return fmt.Sprintf("client: a body of %d bytes does not have its digest; do not use it; "+
		"release the delivery to have it again", e.Length)
}

// proved gives a body's bytes, the last of them only if all together have the digest.
type proved struct {
	r      io.Reader
	left   int64
	length int64
	want   [16]byte
	h      *xxh3.Hasher128
	err    error // stays
}

func newProved(r io.Reader, length int64, want [16]byte) *proved {
	p := &proved{r: r, left: length, length: length, want: want, h: xxh3.New128()}
	if length == 0 {
		p.err = p.end()
	}
	return p
}

func (p *proved) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.r.Read(b[:min(int64(len(b)), p.left)])
	_, _ = p.h.Write(b[:n]) // a hash never fails
	p.left -= int64(n)
	switch {
	case p.left == 0:
		if p.err = p.end(); !errors.Is(p.err, io.EOF) {
			return 0, p.err
		}
		return n, nil
	case err != nil:
		p.err = fmt.Errorf("client: a body ended %d bytes early: %w", p.left, noEOF(err))
		return n, p.err
	}
	return n, nil
}

// end is io.EOF if the body is what it should be. On its stream the digest follows once more, and has
// to be read so that the stream comes to its end.
func (p *proved) end() error {
	if p.h.Sum128().Bytes() != p.want {
		return &DigestError{p.length}
	}
	if b, ok := p.r.(*largeBody); ok {
		return b.trailer(p.want)
	}
	return io.EOF
}

// trailer reads what follows the body's bytes.
func (b *largeBody) trailer(want [16]byte) error {
	var got [17]byte
	n, err := io.ReadFull(b, got[:])
	switch {
	case n < 16:
		return fmt.Errorf("client: a body's digest did not come: %w", noEOF(err))
	case n == 17:
		return broke("the stream of offset %d goes on behind its body", b.offset)
	case [16]byte(got[:16]) != want:
		return &DigestError{int64(b.length)}
	}
	return io.EOF
}
