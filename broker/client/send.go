package client

import (
	"context"
	"time"

	"weida/broker/wire"
)

// Send takes one message and waits only for a place in the window; a small body is copied, and a large
// one is sent, before it returns. On an error nothing was taken and done will not be called; else done
// is called exactly once, with the message's sequence and result.
//
// Errors: *wire.Error for what cannot be sent (wire.NoLevel; wire.BadSequence and wire.SequenceRetired for a
// Seq that was passed); ErrClosed; why the producer ended, such as *LostError; ctx's.
func (p *Producer) Send(ctx context.Context, m Message, done func(Result)) error {
	if done == nil {
		done = func(Result) {}
	}
	_, err := p.send(ctx, m, done)
	return err
}

func (p *Producer) send(ctx context.Context, m Message, done func(Result)) (uint64, error) {
	if !m.Want.IsZero() {
		if err := m.Want.Validate(); err != nil {
			return 0, &wire.Error{Code: wire.NoLevel, Detail: err.Error()}
		}
	}
	select {
	case p.order <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.order }()
	if m.large() {
		return p.sendLarge(ctx, m, done)
	}
	body, err := m.appendBody(p.small[:0])
	p.small = body[:0]
	if err != nil {
		return 0, err
	}
	start := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	seq, err := p.waitRoom(ctx, m.Seq, int64(len(body)))
	if err != nil {
		return 0, err
	}
	u := p.window.add(seq, start, body, done)
	u.want, u.within = p.wanted(&m), m.within()
	p.work.Signal()
	return seq, nil
}

func (p *Producer) wanted(m *Message) wire.Want {
	if m.Want.IsZero() {
		return p.o.Want
	}
	return m.Want
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
		return 0, ErrClosed
	}
	return seq, nil
}

// write moves messages from the window to the stream, as far as the broker lets them be under way.
func (p *Producer) write(s *session) {
	var out []byte
	for {
		p.mu.Lock()
		seq, u := p.nextUnder(s)
		if u == nil {
			p.mu.Unlock()
			if err := s.stream.Close(); err != nil {
				s.endReading()
			}
			return
		}
		if u.large != nil {
			p.mu.Unlock()
			if !p.writeLarge(s, seq) {
				return
			}
			continue
		}
		out = p.gatherUnder(s, out[:0])
		p.mu.Unlock()
		if _, err := s.stream.Write(out); err != nil {
			s.endReading()
			return
		}
	}
}

// nextUnder waits, with mu held, for the message to be written next; nil if none will come.
func (p *Producer) nextUnder(s *session) (uint64, *unanswered) {
	for !s.over {
		seq, u := p.window.head()
		if u != nil && s.takes(u) {
			return seq, u
		}
		if u == nil && p.closing {
			break
		}
		p.work.Wait()
	}
	return 0, nil
}

// takes says whether the broker lets the message be under way beside the others.
func (s *session) takes(u *unanswered) bool {
	return s.flying == 0 || uint64(s.flying) < s.answer.InFlight &&
		uint64(s.flyingSize)+uint64(len(u.body)) <= s.answer.InFlightSize
}

// gatherUnder encodes, with mu held, the small messages at the head.
func (p *Producer) gatherUnder(s *session, out []byte) []byte {
	for len(out) < writeMax {
		seq, u := p.window.head()
		if u == nil || u.large != nil || !s.takes(u) {
			break
		}
		p.frame = wire.Publish{Seq: seq, Low: p.window.low, Within: u.within, Body: u.body}
		out = p.appendUnder(s, out, u)
	}
	return out
}

// appendUnder encodes p.frame, with mu held, for the message at the head, which is then under way.
func (p *Producer) appendUnder(s *session, out []byte, u *unanswered) []byte {
	if u.want != p.o.Want {
		p.frame.Want = u.want
	}
	out = wire.Append(out, &p.frame)
	p.frame.Body = nil
	p.window.pop()
	u.stream = s.number
	s.flying++
	s.flyingSize += int64(len(u.body))
	return out
}

// endReading gives the broker a while to answer what it read before the stream failed. The reader then
// ends.
func (s *session) endReading() {
	if err := s.stream.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
		s.stream.CancelRead(0)
	}
}
