package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

	"weida/broker/wire"
)

// pieceSize is the memory for a large body under way, in bytes.
const pieceSize = 256 << 10

// bulk is a large body to be sent. Send copies it to its stream while it waits; what is sent again after
// that is copied by the writer.
type bulk struct {
	body   io.Reader
	length int64
	seeker io.Seeker // or nil
	start  int64     // where the body stands in seeker

	attended bool             // guarded by Producer.mu; Send waits for its turn
	turn     *quic.SendStream // guarded by Producer.mu; what Send is to copy to, until it has done so
	begun    bool             // guarded by Producer.mu; read from
	whole    bool             // guarded by Producer.mu; a stream was given everything
	cause    error            // guarded by Producer.mu; why it will never be whole
	told     bool             // guarded by Producer.mu; it has its answer, and nothing here changes any more
}

func (p *Producer) newBulk(m *Message) *bulk {
	b := &bulk{body: m.Body, length: m.Length, attended: true}
	if p.o.ID == "" {
		return b
	}
	if s, ok := m.Body.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			b.seeker, b.start = s, at
		}
	}
	return b
}

// sendLarge waits for a place in the window, and then for the writer to come to it and open the body's
// stream, so that the body's frame is sure to be written: a stream that no frame names would hold its
// place at the broker for ever.
func (p *Producer) sendLarge(ctx context.Context, m Message, done func(Result)) (uint64, error) {
	b := p.newBulk(&m)
	start := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	seq, err := p.waitRoom(ctx, m.Seq, 0)
	if err != nil {
		return 0, err
	}
	u := p.window.add(seq, start, nil, done)
	u.want, u.within, u.large = p.wanted(&m), m.within(), b
	p.work.Signal()
	defer context.AfterFunc(ctx, p.wakeAll)()
	for b.attended && !b.told {
		switch {
		case b.turn != nil:
			p.attendUnder(ctx, b)
		case ctx.Err() != nil:
			b.cause = ctx.Err()
			b.attended = false
		default:
			p.moved.Wait()
		}
	}
	if b.turn != nil { // its answer came first
		b.turn.CancelWrite(0)
		b.turn = nil
		p.work.Broadcast()
	}
	return seq, nil
}

// attendUnder is Send's turn to copy; mu is held before and after.
func (p *Producer) attendUnder(ctx context.Context, b *bulk) {
	to := b.turn
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { to.CancelWrite(0) })
	err := p.copyOut(to, b, &p.piece)
	stop()
	if ctx.Err() != nil && err != nil {
		err = &readFailed{ctx.Err()}
	}
	p.mu.Lock()
	b.turn = nil
	p.work.Broadcast()
	var local *readFailed
	var unwanted *quic.StreamError
	switch {
	case b.told:
	case errors.As(err, &local):
		b.cause = local.error
		b.attended = false
	case err == nil, errors.As(err, &unwanted) && unwanted.Remote: // the broker says why it does not want it
		b.attended = false
	}
	// else the stream failed; another may take its place
}

// writeLarge writes a large message's frame, and sees to its body; false if the stream failed.
func (p *Producer) writeLarge(s *session, seq uint64) bool {
	to, err := s.link.conn.OpenUniStreamSync(s.life)
	if err != nil {
		s.endReading()
		return false
	}
	p.mu.Lock()
	u := p.window.get(seq)
	for !s.over && u != nil && u.large.turn != nil { // of the stream before
		p.work.Wait()
	}
	if s.over {
		p.mu.Unlock()
		to.CancelWrite(0)
		return false
	}
	b := u.large
	p.frame = wire.Publish{
		Seq: seq, Low: p.window.low, Within: u.within, Large: true, Stream: uint64(to.StreamID()), Length: uint64(b.length),
	}
	out := p.appendUnder(s, nil, u)
	s.body = to
	p.mu.Unlock()
	defer p.endBody(s, to)
	if _, err := s.stream.Write(out); err != nil {
		to.CancelWrite(0)
		s.endReading()
		return false
	}
	p.mu.Lock()
	if b.told { // Send is gone, and nobody wants the body
		p.mu.Unlock()
		to.CancelWrite(0)
		return true
	}
	if b.attended && b.cause == nil {
		b.turn = to
		p.moved.Broadcast()
		for b.turn != nil && !s.over {
			p.work.Wait()
		}
		p.mu.Unlock()
		return true
	}
	p.mu.Unlock()
	p.resendBody(s, to, b)
	return true
}

func (p *Producer) endBody(s *session, to *quic.SendStream) {
	p.mu.Lock()
	s.body = nil
	failed := s.over
	p.mu.Unlock()
	if failed {
		to.CancelWrite(0)
	}
}

// resendBody copies a body that nobody attends.
func (p *Producer) resendBody(s *session, to *quic.SendStream, b *bulk) {
	err := p.copyOut(to, b, &s.piece)
	var local *readFailed
	if errors.As(err, &local) {
		p.mu.Lock()
		if !b.told {
			b.cause = local.error
		}
		p.mu.Unlock()
	}
}

// readFailed is a body that could not be read, or was not to be sent any further, on this side.
type readFailed struct{ error }

func (e *readFailed) Unwrap() error { return e.error }

// copyOut copies the body from its beginning. On an error the stream is cancelled: the broker answers
// for a body that is not whole.
func (p *Producer) copyOut(to *quic.SendStream, b *bulk, memory *[]byte) (err error) {
	defer func() {
		if err != nil {
			to.CancelWrite(0)
		}
	}()
	if err := p.rewind(b); err != nil {
		return &readFailed{err}
	}
	if _, err := to.Write(wire.Append(nil, &wire.BodyHead{Length: uint64(b.length)})); err != nil {
		return err
	}
	if *memory == nil {
		*memory = make([]byte, pieceSize)
	}
	h := xxh3.New128()
	for left := b.length; left > 0; {
		piece := (*memory)[:min(left, pieceSize)]
		if _, err := io.ReadFull(b.body, piece); err != nil {
			return &readFailed{noEOF(err)}
		}
		_, _ = h.Write(piece) // a hash never fails
		if _, err := to.Write(piece); err != nil {
			return err
		}
		left -= int64(len(piece))
	}
	p.mu.Lock()
	b.whole = true // the broker may store it from here on
	p.mu.Unlock()
	sum := h.Sum128().Bytes()
	if _, err := to.Write(sum[:]); err != nil {
		return err
	}
	return to.Close()
}

// rewind brings the body to its beginning.
func (p *Producer) rewind(b *bulk) error {
	p.mu.Lock()
	begun, cause := b.begun, b.cause
	b.begun = true
	p.mu.Unlock()
	switch {
	case cause != nil:
		return cause
	case begun && b.seeker == nil:
		return errors.New("it cannot be read twice")
	case begun:
		_, err := b.seeker.Seek(b.start, io.SeekStart)
		return err
	}
	return nil
}

func bodyCause(err error) string { return "It ended on the sender's side: " + err.Error() }
