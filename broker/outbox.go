package broker

import (
	"io"
	"sync"

	"weida/broker/wire"
)

// outbox gathers frames from many goroutines and writes them to one stream. Who reads requests calls
// await before each, so that a client that reads no answers is not read on; what the outbox holds is
// bounded by that and by what the session may have unanswered.
type outbox struct {
	mu     sync.Mutex
	bell   chan struct{}      // holds one: there is something to write, or it was closed
	room   *sync.Cond         // of mu: something was written, or nothing will be any more
	buf    []byte             // guarded by mu
	last   wire.EvidenceFrame // guarded by mu; evidence that can grow; empty if there is none
	done   bool               // guarded by mu
	failed bool               // guarded by mu; run has ended
}

func newOutbox() *outbox {
	o := &outbox{bell: make(chan struct{}, 1)}
	o.room = sync.NewCond(&o.mu)
	return o
}

// await returns when there is room for another answer, or when none will be written any more.
func (o *outbox) await() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) >= outboxMax && !o.failed {
		o.room.Wait()
	}
}

// add queues a frame.
func (o *outbox) add(f wire.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done || o.failed {
		return
	}
	o.closeEvidence()
	o.buf = wire.Append(o.buf, f)
}

// evidence queues evidence. What continues the one before it joins it.
func (o *outbox) evidence(f wire.EvidenceFrame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done || o.failed {
		return
	}
	if o.last.Count > 0 && continues(&o.last, &f) {
		o.last.Count += f.Count
		return
	}
	o.closeEvidence()
	o.last = f
}

// continues says whether b is the next of a's range: sequence and offset rise together.
func continues(a, b *wire.EvidenceFrame) bool {
	if a.First+a.Count != b.First || a.Evidence != b.Evidence {
		return false
	}
	return a.Evidence.Replicas == 0 || a.Term == b.Term && a.Offset+a.Count == b.Offset
}

func (o *outbox) closeEvidence() {
	if o.last.Count > 0 {
		o.buf = wire.Append(o.buf, &o.last)
		o.last = wire.EvidenceFrame{}
	}
}

// wake lets the writer take what was added. It never blocks.
func (o *outbox) wake() {
	select {
	case o.bell <- struct{}{}:
	default:
	}
}

// close lets run return once everything added before is written.
func (o *outbox) close() {
	o.mu.Lock()
	o.done = true
	o.mu.Unlock()
	o.wake()
}

// run writes until close, or until the stream fails. Frames are written whole.
func (o *outbox) run(w io.Writer) error {
	defer func() {
		o.mu.Lock()
		o.failed = true
		o.mu.Unlock()
		o.room.Broadcast()
	}()
	var spare []byte
	for range o.bell {
		o.mu.Lock()
		o.closeEvidence()
		out, done := o.buf, o.done
		o.buf = spare[:0]
		o.mu.Unlock()
		o.room.Broadcast()
		if err := write(w, out); err != nil {
			return err
		}
		spare = out
		if done {
			return nil
		}
	}
	return nil
}
