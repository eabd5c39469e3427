package client

import (
	"bytes"
	"context"
	"errors"
	"io"

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
	proved   *proved     // of large
	small    smallBody   // without large
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
		d.proved = newProved(d.large, d.Length, d.Digest)
	} else {
		d.small = smallBody{left: bytes.Clone(f.Body), digest: f.Digest}
	}
	return d
}

// Body gives the message's bytes, once. The last of them are given only if the whole has its digest,
// else the error is a *DigestError.
func (d *Delivery) Body() io.Reader {
	if d.large != nil {
		return d.proved
	}
	return &d.small
}

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

// smallBody is a body that came with its delivery. It is looked at before its first byte is given.
type smallBody struct {
	left   []byte
	digest [16]byte
	proved bool
	err    error // stays
}

func (b *smallBody) Read(p []byte) (int, error) {
	if !b.proved {
		b.proved = true
		if xxh3.Hash128(b.left).Bytes() != b.digest {
			b.err = &DigestError{int64(len(b.left))}
		}
	}
	switch {
	case b.err != nil:
		return 0, b.err
	case len(b.left) == 0:
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// WriteTo saves io.Copy its buffer.
func (b *smallBody) WriteTo(w io.Writer) (int64, error) {
	if _, err := b.Read(nil); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return 0, err
	}
	n, err := w.Write(b.left)
	b.left = b.left[n:]
	return int64(n), err
}
