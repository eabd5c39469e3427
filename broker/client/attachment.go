package client

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"

	"weida/broker/wire"
)

// attachment is one stream of a consumer.
type attachment struct {
	*opened
	origin *origin // of large bodies; its life ends with the stream, or with Close
	end    context.CancelFunc

	buf      []byte      // guarded by Consumer.mu; frames to write
	frame    wire.Settle // guarded by Consumer.mu; memory of the one that is encoded
	limit    uint64      // absolute; of what the consumer wants at all
	granted  uint64      // guarded by Consumer.mu; absolute
	received uint64      // guarded by Consumer.mu; absolute number of deliveries that came
	taken    uint64      // guarded by Consumer.mu; absolute number of deliveries handed over
	over     bool        // guarded by Consumer.mu; nothing is read any more
}

// attach makes a stream the one in use, and grants credit on it from where the subscription stands.
func (k *Consumer) attach(o *opened) {
	delivered := o.answer.Delivered
	a := &attachment{opened: o, received: delivered, taken: delivered, granted: max(o.answer.Limit, delivered)}
	life, end := context.WithCancel(o.link.conn.Context())
	a.end = end
	a.origin = &origin{bodies: &o.link.bodies, life: life, lost: func(err error) error { return k.bodyLost(a, err) }}
	k.mu.Lock()
	defer k.mu.Unlock()
	a.limit = math.MaxUint64
	if k.o.Limit > 0 {
		a.limit = delivered + k.o.Limit - k.handed
	}
	if k.closing {
		abandon(o.stream)
	}
	k.a = a
	k.grantUnder(a)
}

// grantUnder raises, with mu held, the limit once half of the credit is used up. The limit is absolute: an
// earlier consumer of the subscription may have granted more than this one would.
func (k *Consumer) grantUnder(a *attachment) {
	credit := uint64(k.o.Credit)
	want := min(a.taken+credit, a.limit)
	if want > a.granted && ((want-a.granted)*2 >= credit || want == a.limit) {
		a.granted = want
		a.buf = wire.Append(a.buf, &wire.Credit{Limit: want})
		k.moved.Broadcast()
	}
}

// run serves one stream after another until one ends that is not to be replaced.
func (k *Consumer) run() {
	for {
		a := k.a
		was := k.serve(a)
		if !k.detached(a, was) {
			k.fail(was)
			return
		}
		o, err := k.c.openAgain(k.life, k.queue, k.o.Patience, a.link, was, k.opening())
		if err != nil {
			k.fail(err)
			return
		}
		k.attach(o)
	}
}

// serve writes and reads until the stream ends, and says why it did.
func (k *Consumer) serve(a *attachment) error {
	var writer sync.WaitGroup
	writer.Go(func() { k.write(a) })
	stop := context.AfterFunc(k.life, a.end)
	err := k.frames(a)
	stop()
	a.end()
	k.mu.Lock()
	a.over = true
	k.moved.Broadcast()
	k.mu.Unlock()
	abandon(a.stream)
	writer.Wait()
	a.link.finish()
	return err
}

// detached takes stock of the stream that ended, and says whether another is to take its place. The queue
// has taken back what was not settled: it is delivered again.
func (k *Consumer) detached(a *attachment, was error) bool {
	var lost *LostError
	if isStopping(was) {
		k.c.leave(a.link)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing || k.o.Patience <= 0 || !isStopping(was) && !moved(was) && !errors.As(was, &lost) {
		return false
	}
	k.a = nil
	k.clearUnder()
	for _, s := range k.settling {
		k.staleUnder(s, &wire.Error{Code: wire.ConnectionLost, Detail: causeOf(was)})
	}
	k.settling = nil
	k.moved.Broadcast()
	return true
}

func (k *Consumer) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	k.moved.Broadcast()
	k.end()
}

func (k *Consumer) write(a *attachment) {
	var spare []byte
	for {
		k.mu.Lock()
		for len(a.buf) == 0 && !k.closing && !a.over {
			k.moved.Wait()
		}
		out := a.buf
		a.buf = spare[:0]
		k.mu.Unlock()
		if len(out) == 0 {
			_ = a.stream.Close() // after an error there is nothing to end
			return
		}
		if _, err := a.stream.Write(out); err != nil {
			return // the reader learns of it, too
		}
		spare = out
	}
}

// frames takes what the broker sends until the stream ends.
func (k *Consumer) frames(a *attachment) error {
	for {
		f, err := a.reader.Next()
		if err != nil {
			return k.readEnded(a, err)
		}
		switch f := f.(type) {
		case *wire.Deliver:
			err = k.deliver(a, f)
		case *wire.Settled:
			err = k.settled(f)
		case *wire.ErrorFrame:
			err = &wire.Error{Code: f.Code, Detail: f.Detail}
		case *wire.Redirect:
			err = f.AsError()
		default:
			err = broke("it sent %v to a consumer", f.Type())
		}
		if err != nil {
			return err
		}
	}
}

func (k *Consumer) readEnded(a *attachment, err error) error {
	k.mu.Lock()
	closing := k.closing
	k.mu.Unlock()
	switch {
	case closing:
		return ErrClosed
	case errors.Is(err, io.EOF):
		return a.link.lost(errors.New("the broker ended the stream"))
	}
	return a.link.lost(err)
}

func (k *Consumer) deliver(a *attachment, f *wire.Deliver) error {
	d := newDelivery(k.queue, f, a.origin)
	d.consumer, d.on = k, a
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		d.discard()
		return nil
	}
	if a.received == a.granted {
		d.discard()
		return broke("it delivered more than it was given credit for")
	}
	a.received++
	k.ready = append(k.ready, d)
	k.moved.Broadcast()
	return nil
}

func (k *Consumer) settled(f *wire.Settled) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(k.settling, settle{f.Offset, f.Attempt})
	if i < 0 {
		return broke("it answered a settle of offset %d, which was not sent", f.Offset)
	}
	if f.Code != wire.OK {
		k.staleUnder(k.settling[i], &wire.Error{Code: f.Code})
	}
	if i > 0 {
		copy(k.settling[1:i+1], k.settling[:i])
	}
	if k.settling = k.settling[1:]; len(k.settling) == 0 {
		k.settling = nil
	}
	k.moved.Broadcast()
	return nil
}

// bodyLost says why a body's stream did not come.
func (k *Consumer) bodyLost(a *attachment, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return ErrBodyGone
	}
	return a.link.lost(err)
}
