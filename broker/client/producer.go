package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

	"weida/broker/wire"
)

// Message is what is published. Body is read exactly once.
type Message struct {
	Body   io.Reader
	Length int64     // of the body in bytes; below 0 means "until its end", which has to come within wire.InlineMax
	Want   wire.Want // zero: the producer's
}

// Outcome is how a publish ended.
type Outcome string

// The outcomes.
const (
	OK            Outcome = "ok"
	Refused       Outcome = "refused"       // definitely not stored
	BelowRequest  Outcome = "below_request" // stored, with less than was asked
	Indeterminate Outcome = "indeterminate" // nobody knows
)

// Result is the end of one publish.
type Result struct {
	Seq       uint64
	Outcome   Outcome
	Evidence  wire.Evidence // with ok and below_request
	Committed bool          // Offset and Term are known
	Offset    uint64
	Term      uint64
	Err       *wire.Error // unless ok
	Latency   time.Duration
}

// ProducerOptions say how to publish. Want is required.
type ProducerOptions struct {
	Want wire.Want
	// Window is how many messages may be unanswered; what the broker allows if zero, never more.
	Window int
	// WindowBytes bounds the bytes of their inline bodies, likewise.
	WindowBytes int64
}

// Producer publishes to one queue.
type Producer struct {
	c      *Client
	want   wire.Want
	window int
	bytes  int64
	opened wire.Opened
	stream *quic.Stream
	ended  sync.WaitGroup

	mu      sync.Mutex
	moved   *sync.Cond // of mu: window, buf or err changed
	buf     []byte     // guarded by mu; frames to write
	closing bool       // guarded by mu
	err     error      // guarded by mu; the stream failed
	seq     uint64     // guarded by mu; of the last message
	waiting map[uint64]*unanswered
	size    int64 // guarded by mu; inline bytes unanswered

	order chan struct{} // holds one token: who has it may send
}

type unanswered struct {
	start time.Time
	size  int64
	done  func(Result)
}

// Producer opens a stream to a queue. *wire.Error if the queue does not exist or cannot offer the want.
func (c *Client) Producer(ctx context.Context, queue string, o ProducerOptions) (*Producer, error) {
	if err := o.Want.Validate(); err != nil {
		return nil, &wire.Error{Code: wire.NoLevel, Detail: err.Error()}
	}
	if len(queue) > wire.QueueMax {
		return nil, &wire.Error{Code: wire.UnknownQueue, Detail: fmt.Sprintf("A name has at most %d bytes", wire.QueueMax)}
	}
	stream, r, opened, err := c.open(ctx, &wire.OpenProducer{Queue: queue, Want: o.Want})
	if err != nil {
		return nil, err
	}
	p := &Producer{c: c, want: o.Want, opened: *opened, stream: stream, waiting: make(map[uint64]*unanswered),
		window: int(opened.InFlight), bytes: int64(opened.InFlightSize), order: make(chan struct{}, 1)}
	if o.Window > 0 {
		p.window = min(p.window, o.Window)
	}
	if o.WindowBytes > 0 {
		p.bytes = min(p.bytes, o.WindowBytes)
	}
	p.moved = sync.NewCond(&p.mu)
	p.ended.Go(p.write)
	p.ended.Go(func() { p.read(r) })
	return p, nil
}

// Offer is the strongest evidence the queue gives.
func (p *Producer) Offer() wire.Evidence { return p.opened.Offer }

// Publish sends one message and waits for its end.
func (p *Producer) Publish(ctx context.Context, m Message) (Result, error) {
	done := make(chan Result, 1)
	if err := p.Send(ctx, m, func(r Result) { done <- r }); err != nil {
		return Result{}, err
	}
	select {
	case r := <-done:
		return r, nil
	case <-ctx.Done():
		return Result{Outcome: Indeterminate, Err: &wire.Error{Code: wire.ConnectionLost, Detail: ctx.Err().Error()}}, nil
	}
}

// Send takes one message and waits only for a place in the window; a large body is sent before it
// returns. On an error nothing was taken and done will not be called.
func (p *Producer) Send(ctx context.Context, m Message, done func(Result)) error {
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
	return p.enqueue(ctx, &wire.Publish{Want: m.Want, Body: body}, done)
}

func readSmall(m Message) ([]byte, error) {
	if m.Length >= 0 {
		b := make([]byte, m.Length)
		if _, err := io.ReadFull(m.Body, b); err != nil {
			return nil, fmt.Errorf("client: read the message's body: %w", err)
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

// enqueue gives the message its sequence, once the window has a place for it.
func (p *Producer) enqueue(ctx context.Context, f *wire.Publish, done func(Result)) error {
	stop := context.AfterFunc(ctx, func() { p.mu.Lock(); p.moved.Broadcast(); p.mu.Unlock() })
	defer stop()
	size := int64(len(f.Body))
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && ctx.Err() == nil && !p.closing &&
		(len(p.waiting) >= p.window || p.size > 0 && p.size+size > p.bytes) {
		p.moved.Wait()
	}
	switch {
	case p.err != nil:
		return p.err
	case ctx.Err() != nil:
		return ctx.Err()
	case p.closing:
		return errors.New("client: the producer is closed")
	}
	p.seq++
	f.Seq = p.seq
	p.waiting[p.seq] = &unanswered{time.Now(), size, done}
	p.size += size
	if len(p.buf) == 0 {
		p.moved.Broadcast()
	}
	p.buf = wire.Append(p.buf, f)
	return nil
}

const piece = 256 << 10

func (p *Producer) sendLarge(ctx context.Context, m Message, done func(Result)) error {
	to, err := p.c.conn.OpenUniStreamSync(ctx)
	if err != nil {
		return p.c.lost(err)
	}
	f := &wire.Publish{Want: m.Want, Large: true, Stream: uint64(to.StreamID()), Length: uint64(m.Length)}
	if err := p.enqueue(ctx, f, done); err != nil {
		to.CancelWrite(0)
		return err
	}
	stop := context.AfterFunc(ctx, func() { to.CancelWrite(0) })
	defer stop()
	if err := copyOut(to, m.Body, m.Length); err != nil {
		to.CancelWrite(0) // the broker answers for it: refused, because it is not whole
		var local *readFailed
		if errors.As(err, &local) {
			return nil
		}
	}
	return nil
}

// readFailed is a body that could not be read here.
type readFailed struct{ error }

func copyOut(to *quic.SendStream, body io.Reader, length int64) error {
	if _, err := to.Write(wire.Append(nil, &wire.BodyHead{Length: uint64(length)})); err != nil {
		return err
	}
	h := xxh3.New128()
	b := make([]byte, piece)
	for left := length; left > 0; {
		n, err := io.ReadFull(body, b[:min(left, piece)])
		if err != nil {
			return &readFailed{err}
		}
		_, _ = h.Write(b[:n]) // a hash never fails
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	sum := h.Sum128().Bytes()
	if _, err := to.Write(sum[:]); err != nil {
		return err
	}
	return to.Close()
}

// write moves frames from the buffer to the stream.
func (p *Producer) write() {
	var spare []byte
	for {
		p.mu.Lock()
		for len(p.buf) == 0 && !p.closing && p.err == nil {
			p.moved.Wait()
		}
		out := p.buf
		p.buf = spare[:0]
		last := p.closing || p.err != nil
		p.mu.Unlock()
		if len(out) > 0 {
			if _, err := p.stream.Write(out); err != nil {
				return // the reader learns of it, too, and answers for all
			}
			spare = out
			continue
		}
		if last {
			_ = p.stream.Close() // after an error there is nothing to end
			return
		}
	}
}

// read takes answers until the stream ends, and then answers what is left.
func (p *Producer) read(r *wire.Reader) {
	err := p.answers(r)
	p.mu.Lock()
	rest := p.waiting
	p.waiting = map[uint64]*unanswered{}
	p.err = err
	p.moved.Broadcast()
	p.mu.Unlock()
	lost := &wire.Error{Code: wire.ConnectionLost, Detail: err.Error()}
	for _, seq := range slices.Sorted(maps.Keys(rest)) {
		u := rest[seq]
		u.done(Result{Seq: seq, Outcome: Indeterminate, Err: lost, Latency: time.Since(u.start)})
	}
}

func (p *Producer) answers(r *wire.Reader) error {
	for {
		f, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the broker ended the stream")
			}
			return p.c.lost(err)
		}
		switch f := f.(type) {
		case *wire.EvidenceFrame:
			p.evidence(f)
		case *wire.Refused:
			p.finish(f.Seq, Result{Outcome: Refused, Err: &wire.Error{Code: f.Code, Detail: f.Detail}})
		case *wire.Below:
			p.finish(f.Seq, Result{Outcome: BelowRequest, Evidence: f.Evidence, Committed: true, Offset: f.Offset,
				Term: f.Term, Err: &wire.Error{Code: f.Code, Detail: f.Detail}})
		case *wire.Indeterminate:
			p.finish(f.Seq, Result{Outcome: Indeterminate, Err: &wire.Error{Code: f.Code, Detail: f.Detail}})
		case *wire.ErrorFrame:
			return &wire.Error{Code: f.Code, Detail: f.Detail}
		default:
			return fmt.Errorf("client: the broker sent %v to a producer", f.Type())
		}
	}
}

func (p *Producer) evidence(f *wire.EvidenceFrame) {
	committed := f.Evidence.Replicas > 0
	for k := range f.Count {
		r := Result{Outcome: OK, Evidence: f.Evidence, Committed: committed, Term: f.Term}
		if committed {
			r.Offset = f.Offset + k
		}
		if !p.finish(f.First+k, r) {
			return // a range beyond what was sent: the rest is no better
		}
	}
}

// finish answers one message; false if it is not waited for.
func (p *Producer) finish(seq uint64, r Result) bool {
	p.mu.Lock()
	u, ok := p.waiting[seq]
	if ok {
		full := len(p.waiting) >= p.window || p.size > p.bytes/2
		delete(p.waiting, seq)
		p.size -= u.size
		if full || len(p.waiting) == 0 {
			p.moved.Broadcast()
		}
	}
	p.mu.Unlock()
	if ok {
		r.Seq, r.Latency = seq, time.Since(u.start)
		u.done(r)
	}
	return ok
}

// Flush waits until everything sent so far is answered.
func (p *Producer) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.mu.Lock(); p.moved.Broadcast(); p.mu.Unlock() })
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 && p.err == nil && ctx.Err() == nil {
		p.moved.Wait()
	}
	if len(p.waiting) > 0 {
		return ctx.Err()
	}
	return nil
}

// Close waits for what is unanswered, as long as ctx allows, and ends the stream.
func (p *Producer) Close(ctx context.Context) error {
	err := p.Flush(ctx)
	p.mu.Lock()
	p.closing = true
	p.moved.Broadcast()
	p.mu.Unlock()
	if err != nil {
		p.stream.CancelRead(0)
		p.stream.CancelWrite(0)
	}
	p.ended.Wait()
	return err
}
