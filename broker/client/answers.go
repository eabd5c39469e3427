package client

import (
	"errors"
	"io"
	"time"

	"weida/broker/wire"
)

// answerBatch is how many messages are answered under one lock.
const answerBatch = 256

// answers takes answers until the stream ends, and says why it did.
func (p *Producer) answers(s *session) error {
	for {
		f, err := s.reader.Next()
		if err != nil {
			return p.readEnded(s, err)
		}
		switch f := f.(type) {
		case *wire.EvidenceFrame:
			err = p.evidence(s, f)
		case *wire.Refused:
			err = p.finish(s, f.Seq, 1, func(_ uint64, u *unanswered) Result { return refused(f, u) })
		case *wire.Below:
			r := Result{
				Outcome: BelowRequest, Evidence: f.Evidence, Committed: true, Offset: f.Offset,
				Term: f.Term, Err: &wire.Error{Code: f.Code, Detail: f.Detail},
			}
			err = p.finish(s, f.Seq, 1, func(uint64, *unanswered) Result { return r })
		case *wire.Indeterminate:
			r := Result{Outcome: Indeterminate, Err: &wire.Error{Code: f.Code, Detail: f.Detail}}
			err = p.finish(s, f.Seq, 1, func(uint64, *unanswered) Result { return r })
		case *wire.ErrorFrame:
			err = &wire.Error{Code: f.Code, Detail: f.Detail}
		case *wire.Redirect:
			err = f.AsError()
		default:
			err = broke("it sent %v to a producer", f.Type())
		}
		if err != nil {
			return err
		}
	}
}

// readEnded says why the stream brings no more answers. A stream that this side closed just ends.
func (p *Producer) readEnded(s *session, err error) error {
	switch {
	case p.life.Err() != nil:
		return ErrClosed
	case !errors.Is(err, io.EOF):
		return s.link.lost(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return ErrClosed
	}
	return s.link.lost(errors.New("the broker ended the stream"))
}

// refused is definite only for a message that no time before may have stored: a broker refuses before it looks
// whether it has the message.
func refused(f *wire.Refused, u *unanswered) Result {
	detail := f.Detail
	if u.large != nil && u.large.cause != nil && f.Code == wire.BodyBroken {
		detail = bodyCause(u.large.cause)
	}
	if u.doubt != wire.OK {
		return Result{Outcome: Indeterminate, Err: &wire.Error{
			Code: u.doubt,
			Detail: "It was sent again and that was refused with " + f.Code.String() + " (" + detail +
				"), which says nothing of the first time",
		}}
	}
	return Result{Outcome: Refused, Err: &wire.Error{Code: f.Code, Detail: detail}}
}

// evidence answers a range. What does not cover the message's want is not success, whatever the broker
// calls it.
func (p *Producer) evidence(s *session, f *wire.EvidenceFrame) error {
	committed := f.Evidence.Replicas > 0
	short := false
	err := p.finish(s, f.First, f.Count, func(seq uint64, u *unanswered) Result {
		r := Result{Outcome: OK, Evidence: f.Evidence, Committed: committed, Term: f.Term}
		if committed {
			r.Offset = f.Offset + (seq - f.First)
		}
		if f.Evidence.Covers(u.want) {
			return r
		}
		short = true
		r.Outcome = BelowRequest
		r.Err = &wire.Error{
			Code:   wire.Malformed,
			Detail: "the broker confirmed " + f.Evidence.String() + " where " + u.want.String() + " was asked",
		}
		if !committed {
			r.Outcome = Indeterminate // accepted is no place in the queue
		}
		return r
	})
	if err == nil && short {
		err = broke("it confirmed less than was asked")
	}
	return err
}

// finish answers count messages from first on, in order; an error if one of them was not written to the
// stream, or waits for no answer. Their places in the window are free when their done has returned.
func (p *Producer) finish(s *session, first, count uint64, result func(uint64, *unanswered) Result) error {
	for count > 0 {
		n := min(count, answerBatch)
		p.mu.Lock()
		for k := range n {
			u := p.window.get(first + k)
			if u == nil || u.stream != s.number {
				n = k
				break
			}
			u.tellBulk()
			s.flying--
			s.flyingSize -= int64(len(u.body))
		}
		p.mu.Unlock()
		p.tell(first, n, result)
		p.mu.Lock()
		for k := range n {
			p.window.release(first + k)
		}
		p.window.trim()
		p.moved.Broadcast()
		if p.window.queuedCount > 0 { // which may wait for room on the stream
			p.work.Signal()
		}
		p.mu.Unlock()
		if n < min(count, answerBatch) {
			return broke("it answered sequence %d, which waits for no answer", first+n)
		}
		first, count = first+n, count-n
	}
	return nil
}

// tell calls done for n messages from first on, whose slots are nobody else's until they are released.
func (p *Producer) tell(first, n uint64, result func(uint64, *unanswered) Result) {
	now := time.Now()
	for k := range n {
		u := p.window.at(first + k)
		r := result(first+k, u)
		r.Seq, r.Latency = first+k, now.Sub(u.start)
		u.held = p.o.ID != "" && !r.Committed && r.Outcome != OK
		if r.Outcome == Indeterminate {
			u.doubt = r.Err.Code
		}
		if r.Committed {
			p.highest = max(p.highest, r.Seq)
		}
		u.done(r)
	}
}

// tellUnder answers one message, with mu held but for the call of done.
func (p *Producer) tellUnder(seq uint64, u *unanswered, r Result) {
	u.tellBulk()
	p.mu.Unlock()
	p.tell(seq, 1, func(uint64, *unanswered) Result { return r })
	p.mu.Lock()
	p.window.release(seq)
	p.window.trim()
	p.moved.Broadcast()
}

// tellBulk lets Send go, with the producer's mu held: nothing is changed of a body that has its answer.
func (u *unanswered) tellBulk() {
	if u.large != nil {
		u.large.told = true
	}
}
