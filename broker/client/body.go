package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

	"weida/broker/wire"
)

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

// proved gives a large body's bytes, the last of them only if all together have the digest.
type proved struct {
	body   *largeBody
	left   int64
	length int64
	want   [16]byte
	h      *xxh3.Hasher128
	err    error // stays
}

func newProved(body *largeBody, length int64, want [16]byte) *proved {
	return &proved{body: body, left: length, length: length, want: want, h: xxh3.New128()}
}

func (p *proved) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.body.Read(b[:min(int64(len(b)), p.left)])
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
	return p.body.trailer(p.want)
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
