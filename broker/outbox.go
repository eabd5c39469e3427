package broker

import (
	"io"
	"sync"

	"weida/broker/wire"
)

// outbox gathers frames from many goroutines and writes them to one stream. What it holds is bounded
// by what its session may have unanswered.
type outbox struct {
	mu       sync.Mutex
	bell     chan struct{}       // holds one: there is something to write, or it was closed
	buf      []byte              // guarded by mu
	evidence *wire.EvidenceFrame // guarded by mu; the last evidence, as long as it can grow
	done     bool                // guarded by mu
}

func newOutbox() *outbox { return &outbox{bell: make(chan struct{}, 1)} }

// add queues a frame. Evidence that continues the one before it joins it.
func (o *outbox) add(f wire.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return
	}
	e, ok := f.(*wire.EvidenceFrame)
	if ok && o.evidence != nil && continues(o.evidence, e) {
		o.evidence.Count += e.Count
		return
	}
	o.closeEvidence()
	if ok {
		o.evidence = e
		return
	}
	o.buf = wire.Append(o.buf, f)
}

// continues says whether b is the next of a's range: sequence and offset rise together.
func continues(a, b *wire.EvidenceFrame) bool {
	if a.First+a.Count != b.First || a.Evidence != b.Evidence {
		return false
	}
	return a.Evidence.Replicas == 0 || a.Term == b.Term && a.Offset+a.Count == b.Offset
}

func (o *outbox) closeEvidence() {
	if o.evidence != nil {
		o.buf = wire.Append(o.buf, o.evidence)
		o.evidence = nil
	}
}

// take appends everything queued so far to dst.
func (o *outbox) take(dst []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeEvidence()
	dst = append(dst, o.buf...)
	o.buf = o.buf[:0]
	return dst
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

// run writes until close, or until the stream fails.
func (o *outbox) run(w io.Writer) error {
	var spare []byte
	for range o.bell {
		o.mu.Lock()
		o.closeEvidence()
		out, done := o.buf, o.done
		o.buf = spare[:0]
		o.mu.Unlock()
		if len(out) > 0 {
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		spare = out
		if done {
			return nil
		}
	}
	return nil
}
