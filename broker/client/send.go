package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

	"weida/broker/wire"
)

// Send takes one message and waits only for a place in the window; a small body is copied, and a large
// one is sent, before it returns. On an error nothing was taken and done will not be called; else done
// is called exactly once.
func (p *Producer) Send(ctx context.Context, m Message, done func(Result)) error {
	if !m.Want.IsZero() {
		if err := m.Want.Validate(); err != nil {
			return &wire.Error{Code: wire.NoLevel, Detail: err.Error()}
		}
	}
	if done == nil {
		done = func(Result) {}
	}
	select {
	case p.order <- struct{}{}:
		defer func() { <-p.order }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.Length > wire.InlineMax {
		return p.sendLarge(ctx, m, done)
	}
	body, err := readSmall(m)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	seq, err := p.waitRoom(ctx, m.Seq, int64(len(body)))
	if err != nil {
		return err
	}
	p.enqueue(&wire.Publish{Seq: seq, Want: m.Want, Body: body}, done)
	return nil
}

func readSmall(m Message) ([]byte, error) {
	if m.Length == 0 {
		return nil, nil
	}
	if m.Length > 0 {
		b := make([]byte, m.Length)
		if _, err := io.ReadFull(m.Body, b); err != nil {
			return nil, fmt.Errorf("client: read the message's body: %w", noEOF(err))
		}
		return b, nil
	}
	b, err := io.ReadAll(io.LimitReader(m.Body, wire.InlineMax+1))
	if err != nil {
		return nil, fmt.Errorf("client: read the message's body: %w", err)
	}
	if len(b) > wire.InlineMax {
		return nil, fmt.Errorf("client: a body above %d bytes needs its length to be given", wire.InlineMax)
	}
	return b, nil
}

// waitRoom waits, with mu held, until the window has a place for seq, or for the next sequence if that is 0.
// Only the holder of the order token adds to the window, so the place stays.
func (p *Producer) waitRoom(ctx context.Context, seq uint64, size int64) (uint64, error) {
	if seq == 0 {
		seq = p.window.next
	}
	if refused := p.window.refusal(seq); refused != nil {
		return 0, refused
	}
	err := p.wait(ctx, func() bool { return p.closing || p.err != nil || p.window.room(seq, size) })
	switch {
	case err != nil:
		return 0, err
	case p.err != nil:
		return 0, p.err
	case p.closing:
		return 0, errClosed
	}
	return seq, nil
}

// enqueue takes the message in, with mu held and room in the window.
func (p *Producer) enqueue(f *wire.Publish, done func(Result)) {
	want := f.Want
	if want.IsZero() {
		want = p.want
	}
	p.window.add(f.Seq, unanswered{start: time.Now(), size: int64(len(f.Body)), want: want, done: done})
	f.Low = p.window.low
	if len(p.buf) == 0 {
		p.moved.Broadcast()
	}
	p.buf = wire.Append(p.buf, f)
}

// pieceSize is the memory for a large body under way, in bytes.
const pieceSize = 256 << 10

// sendLarge opens the body's stream only when its frame is sure to follow: a stream that no frame names
// would hold its place at the broker for ever.
func (p *Producer) sendLarge(ctx context.Context, m Message, done func(Result)) error {
	p.mu.Lock()
	seq, err := p.waitRoom(ctx, m.Seq, 0)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	to, err := p.c.conn.OpenUniStreamSync(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return p.c.lost(err)
	}
	f := &wire.Publish{Seq: seq, Want: m.Want, Large: true, Stream: uint64(to.StreamID()), Length: uint64(m.Length)}
	p.mu.Lock()
	if p.err != nil {
		err = p.err
		p.mu.Unlock()
		to.CancelWrite(0)
		return err
	}
	p.enqueue(f, done)
	p.sending = to
	p.mu.Unlock()

	stop := context.AfterFunc(ctx, func() { to.CancelWrite(0) })
	defer stop()
	err = p.copyOut(to, m.Body, m.Length)
	if ctx.Err() != nil {
		err = &readFailed{ctx.Err()}
	}
	p.mu.Lock()
	p.sending = nil
	p.mu.Unlock()
	if err != nil {
		p.broken(seq, err)
		to.CancelWrite(0) // the broker answers for it: refused, because it is not whole
	}
	return nil
}

// readFailed is a body that could not be read, or was not to be sent any further, on this side.
type readFailed struct{ error }

func (e *readFailed) Unwrap() error { return e.error }

// broken keeps why a body was not sent whole, for its answer.
func (p *Producer) broken(seq uint64, err error) {
	var local *readFailed
	if !errors.As(err, &local) {
		return // the broker did not want it and says why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.window.get(seq); u != nil {
		u.cause = local.error
	}
}

func (p *Producer) copyOut(to *quic.SendStream, body io.Reader, length int64) error {
	if _, err := to.Write(wire.Append(nil, &wire.BodyHead{Length: uint64(length)})); err != nil {
		return err
	}
	if p.piece == nil {
		p.piece = make([]byte, pieceSize)
	}
	h := xxh3.New128()
	for left := length; left > 0; {
		b := p.piece[:min(left, pieceSize)]
		if _, err := io.ReadFull(body, b); err != nil {
			return &readFailed{noEOF(err)}
		}
		_, _ = h.Write(b) // a hash never fails
		if _, err := to.Write(b); err != nil {
			return err
		}
		left -= int64(len(b))
	}
	sum := h.Sum128().Bytes()
	if _, err := to.Write(sum[:]); err != nil {
		return err
	}
	return to.Close()
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
