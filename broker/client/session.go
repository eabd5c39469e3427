package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/wire"
)

// session is one stream of a producer.
type session struct {
	*opened
	number uint64
	life   context.Context // ends with the reading
	end    context.CancelFunc

	flying     int              // guarded by Producer.mu; messages written and not answered
	flyingSize int64            // guarded by Producer.mu; their inline bytes
	over       bool             // guarded by Producer.mu; nothing is read any more
	piece      []byte           // owned by the writer; memory of large bodies
	body       *quic.SendStream // guarded by Producer.mu; of a large body under way
}

const (
	// answerPatience is how long the broker may take to end a stream that this side cannot use any more.
	answerPatience = 5 * time.Second
	// writeMax is how many bytes are gathered into one write, but for the last message.
	writeMax = 64 << 10
)

// enter makes a stream the one in use. Everything that waits is written to it.
func (p *Producer) enter(o *opened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams++
	s := &session{opened: o, number: p.streams}
	s.life, s.end = context.WithCancel(p.life)
	p.s = s
	p.window.rewrite()
}

// run serves one stream after another until one ends that is not to be replaced.
func (p *Producer) run() {
	for {
		s := p.s
		was := p.serve(s)
		if !p.leave(s, was) || !p.needed() {
			p.fail(was, was)
			return
		}
		o, err := p.c.openAgain(p.life, p.queue, p.o.Patience, s.link, was, p.opening())
		if err == nil {
			err = p.recognized(o)
		}
		if err != nil {
			p.fail(was, err)
			return
		}
		p.enter(o)
	}
}

// serve writes and reads until the stream ends, and says why it did.
func (p *Producer) serve(s *session) error {
	stop := context.AfterFunc(p.life, func() { abandon(s.stream) })
	defer stop()
	var writer sync.WaitGroup
	writer.Go(func() { p.write(s) })
	err := p.answers(s)
	s.end()
	p.mu.Lock()
	s.over = true
	if s.body != nil {
		s.body.CancelWrite(0) // nobody reads it any more
	}
	p.moved.Broadcast()
	p.work.Broadcast()
	p.mu.Unlock()
	abandon(s.stream)
	writer.Wait()
	s.link.finish()
	return err
}

// leave takes stock of the stream that ended, and says whether another is to take its place. What may
// have been stored, and cannot be sent again without the risk of a second copy, ends here.
func (p *Producer) leave(s *session, was error) bool {
	var lost *LostError
	stopping := isStopping(was)
	again := p.o.Patience > 0 && (stopping || moved(was) || errors.As(was, &lost))
	if stopping {
		p.c.leave(s.link)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s = nil
	again = again && !(p.closing && p.window.count == 0) && p.life.Err() == nil
	for seq := p.window.low; seq < p.window.high; seq++ {
		u := p.window.get(seq)
		if u == nil || u.stream != s.number {
			continue
		}
		if u.doubt == wire.OK && !stopping && (u.large == nil || u.large.whole) {
			u.doubt = wire.ConnectionLost
		}
	}
	if again {
		p.finishUnder(func(u *unanswered) bool { return u.stream == s.number && !p.resendable(u) }, was, was)
	}
	return again
}

// resendable says whether a message that was written to a stream may go to the next one.
func (p *Producer) resendable(u *unanswered) bool {
	switch {
	case p.o.ID == "":
		return false
	case u.large != nil:
		return u.large.cause == nil && u.large.seeker != nil
	}
	return true
}

// needed waits until something is worth another connection; false if the producer closes before.
func (p *Producer) needed() bool {
	stop := context.AfterFunc(p.life, p.wakeAll)
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.window.count == 0 && !p.closing && p.life.Err() == nil {
		p.work.Wait()
	}
	return p.window.count > 0 && p.life.Err() == nil
}

// recognized looks whether the queue still knows the producer: to one that has forgotten what it
// stored, everything sent again would be new.
func (p *Producer) recognized(o *opened) error {
	if err := checkOpened(o); err != nil {
		return err
	}
	if p.o.ID != "" && o.answer.Next <= p.highest {
		o.finish()
		return &wire.Error{Code: wire.UnknownProducer, Detail: "It had stored more than it now knows of"}
	}
	return nil
}

// fail ends the producer: everything that waits gets its result.
func (p *Producer) fail(was, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	p.finishUnder(func(*unanswered) bool { return true }, was, err)
	p.moved.Broadcast()
	p.end()
}

// finishUnder answers, with mu held but for the calls of done, the waiting messages of that kind.
func (p *Producer) finishUnder(kind func(*unanswered) bool, was, err error) {
	for seq := p.window.low; seq < p.window.high; seq++ {
		u := p.window.get(seq)
		if u == nil || !kind(u) {
			continue
		}
		r := unfinished(u, was, err)
		if r.Outcome == Indeterminate && p.left == nil {
			p.left = err
		}
		p.tellUnder(seq, u, r)
	}
}

// unfinished is the result of a message without an answer.
func unfinished(u *unanswered, was, err error) Result {
	var stopping *wire.Error
	switch b := u.large; {
	case u.doubt != wire.OK:
	case b != nil && b.cause != nil:
		return Result{Outcome: Refused, Err: &wire.Error{Code: wire.BodyBroken, Detail: bodyCause(b.cause)}}
	case isStopping(was) && errors.As(was, &stopping): // it has answered all that it read
		return Result{Outcome: Refused, Err: stopping}
	case b != nil: // never whole, or in doubt
		return Result{Outcome: Refused, Err: &wire.Error{Code: wire.BodyBroken, Detail: causeOf(err)}}
	}
	code := wire.ConnectionLost
	if moved(was) {
		code = wire.LeaderChanged
	}
	return Result{Outcome: Indeterminate, Err: &wire.Error{Code: code, Detail: causeOf(err)}}
}

// causeOf is what an indeterminate message is told of the end of its stream. A code's own text would
// speak of a message that was refused, and this one was not.
func causeOf(err error) string {
	var lost *LostError
	var refused *wire.Error
	if !errors.As(err, &lost) && errors.As(err, &refused) {
		return "The broker ended the stream with " + refused.Code.String() + ": " + refused.Detail
	}
	return err.Error()
}
