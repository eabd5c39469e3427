package client

import (
	"errors"
	"io"
	"time"

	"weida/broker/wire"
)

// answerBatch is how many messages are answered under one lock.
const answerBatch = 256

// read takes answers until the stream ends, and then answers what is left.
func (p *Producer) read(r *wire.Reader) {
	err := p.answers(r)
	p.mu.Lock()
	p.err = err
	first, limit := p.window.low, p.window.high
	if p.sending != nil {
		p.sending.CancelWrite(0) // nobody reads it any more
	}
	p.moved.Broadcast()
	p.mu.Unlock()
	p.stream.CancelRead(0)

	lost := Result{Outcome: Indeterminate, Err: &wire.Error{Code: wire.ConnectionLost, Detail: causeOf(err)}}
	if ended := new(wire.Error); errors.As(err, &ended) && ended.Code == wire.Stopping {
		lost = Result{Outcome: Refused, Err: ended} // a broker that stops has answered all that it read
	}
	for seq := first; seq < limit; seq++ {
		p.mu.Lock()
		waits := p.window.get(seq) != nil
		p.lost = p.lost || waits && lost.Outcome == Indeterminate
		p.mu.Unlock()
		if waits {
			if err := p.finish(seq, 1, func(uint64, *unanswered) Result { return lost }); err != nil {
				panic("bug: client: " + err.Error())
			}
		}
	}
}

// causeOf is what an indeterminate message is told of the end of its stream. A code's own text would
// speak of a message that was refused, and this one was not.
func causeOf(err error) string {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return "The broker ended the stream with " + refused.Code.String() + ": " + refused.Detail
	}
	return err.Error()
}

func (p *Producer) answers(r *wire.Reader) error {
	for {
		f, err := r.Next()
		if err != nil {
			return p.readEnded(err)
		}
		switch f := f.(type) {
		case *wire.EvidenceFrame:
			err = p.evidence(f)
		case *wire.Refused:
			err = p.finish(f.Seq, 1, func(_ uint64, u *unanswered) Result { return refused(f, u) })
		case *wire.Below:
			r := Result{
				Outcome: BelowRequest, Evidence: f.Evidence, Committed: true, Offset: f.Offset,
				Term: f.Term, Err: &wire.Error{Code: f.Code, Detail: f.Detail},
			}
			err = p.finish(f.Seq, 1, func(uint64, *unanswered) Result { return r })
		case *wire.Indeterminate:
			r := Result{Outcome: Indeterminate, Err: &wire.Error{Code: f.Code, Detail: f.Detail}}
			err = p.finish(f.Seq, 1, func(uint64, *unanswered) Result { return r })
		case *wire.ErrorFrame:
			err = &wire.Error{Code: f.Code, Detail: f.Detail}
		default:
			err = broke("it sent %v to a producer", f.Type())
		}
		if err != nil {
			return err
		}
	}
}

// readEnded says why the stream brings no more answers. A stream that this side closed just ends.
func (p *Producer) readEnded(err error) error {
	if !errors.Is(err, io.EOF) {
		return p.c.lost(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return errClosed
	}
	return p.c.lost(errors.New("the broker ended the stream"))
}

func refused(f *wire.Refused, u *unanswered) Result {
	detail := f.Detail
	if u.cause != nil && f.Code == wire.BodyBroken {
		detail = "It ended on the sender's side: " + u.cause.Error()
	}
	return Result{Outcome: Refused, Err: &wire.Error{Code: f.Code, Detail: detail}}
}

// evidence answers a range. What does not cover the message's want is not success, whatever the broker
// calls it.
func (p *Producer) evidence(f *wire.EvidenceFrame) error {
	committed := f.Evidence.Replicas > 0
	short := false
	err := p.finish(f.First, f.Count, func(seq uint64, u *unanswered) Result {
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

// finish answers count messages from first on, in order; an error if one of them waits for no answer.
// Their places in the window are free when their done has returned.
func (p *Producer) finish(first, count uint64, result func(uint64, *unanswered) Result) error {
	for count > 0 {
		batch := p.batch[:]
		n := int(min(count, answerBatch))
		p.mu.Lock()
		for k := range n {
			u := p.window.get(first + uint64(k))
			if u == nil {
				n, count = k, 0 // those before it are answered, and it is the last
				break
			}
			batch[k] = *u
			u.place = told
		}
		p.mu.Unlock()
		now := time.Now()
		for k := range n {
			seq, u := first+uint64(k), &batch[k]
			r := result(seq, u)
			r.Seq, r.Latency = seq, now.Sub(u.start)
			u.done(r)
			u.held = p.id != "" && !r.Committed && r.Outcome != OK
		}
		p.mu.Lock()
		for k := range n {
			p.window.release(first+uint64(k), batch[k].held)
		}
		p.window.trim()
		p.moved.Broadcast()
		p.mu.Unlock()
		clear(batch[:n])
		first += uint64(n)
		if count == 0 {
			return broke("it answered sequence %d, which waits for no answer", first)
		}
		count -= uint64(n)
	}
	return nil
}
