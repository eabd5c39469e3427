package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/wire"
)

// Message is what is published. Body is read exactly once.
type Message struct {
	Body   io.Reader
	Length int64     // of the body in bytes; below 0 means "until its end", which has to come within wire.InlineMax
	Want   wire.Want // zero: the producer's
	// Seq is the message's sequence; 0 is the producer's next. A sequence that was sent is sent again
	// under the same number only if it was refused or indeterminate.
	Seq uint64
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
	Want wire.Want // required
	// ID is the producer id, at most 64 bytes, bound to the identity that uses it first. With one the
	// queue knows a message that it has by its sequence and never stores it twice. Without, sequences
	// count from 1 and are forgotten with the producer.
	ID string
	// Window is how many messages may lie between the oldest without an answer and the newest, both
	// counted; 1024 if zero, never more than the broker allows.
	Window int
	// WindowBytes bounds the bytes of their inline bodies; 16 MiB if zero, never more than the broker allows.
	WindowBytes int64
}

const (
	windowDefault      = 1024
	windowMax          = 1 << 16
	windowBytesDefault = 16 << 20
	// answerPatience is how long the broker may take to end a stream that this side cannot use any more.
	answerPatience = 5 * time.Second
)

// errClosed is what a closed Producer or Consumer says.
var errClosed = errors.New("client: it is closed")

// Producer publishes to one queue.
type Producer struct {
	c      *Client
	id     string
	want   wire.Want
	opened wire.Opened
	stream *quic.Stream
	ended  sync.WaitGroup

	order chan struct{}           // holds one token: who has it may send
	piece []byte                  // owned by who has the token
	batch [answerBatch]unanswered // owned by the reader

	mu      sync.Mutex
	moved   *sync.Cond       // of mu: window, buf, closing or err changed
	window  window           // guarded by mu
	buf     []byte           // guarded by mu; frames to write
	sending *quic.SendStream // guarded by mu; of a large body
	closing bool             // guarded by mu
	err     error            // guarded by mu; why the stream is of no more use
	lost    bool             // guarded by mu; err made messages indeterminate
}

// Producer opens a stream to a queue. *wire.Error if the queue does not exist or cannot offer the want, or
// if the id is another identity's.
func (c *Client) Producer(ctx context.Context, queue string, o ProducerOptions) (*Producer, error) {
	if err := o.Want.Validate(); err != nil {
		return nil, &wire.Error{Code: wire.NoLevel, Detail: err.Error()}
	}
	if err := checkNames(queue, o.ID); err != nil {
		return nil, err
	}
	if o.Window <= 0 {
		o.Window = windowDefault
	}
	if o.WindowBytes <= 0 {
		o.WindowBytes = windowBytesDefault
	}
	stream, r, opened, err := c.open(ctx, &wire.OpenProducer{Queue: queue, Producer: o.ID, Want: o.Want})
	if err != nil {
		return nil, err
	}
	if opened.InFlight == 0 || opened.InFlightSize == 0 {
		abandon(stream)
		return nil, broke("it lets no message be under way")
	}
	messages := min(uint64(o.Window), opened.InFlight, windowMax)
	bytes := min(uint64(o.WindowBytes), opened.InFlightSize)
	p := &Producer{
		c: c, id: o.ID, want: o.Want, opened: *opened, stream: stream, order: make(chan struct{}, 1),
		window: newWindow(int(messages), int64(bytes), max(opened.Next, 1)),
	}
	p.moved = sync.NewCond(&p.mu)
	p.ended.Go(p.write)
	p.ended.Go(func() { p.read(r) })
	return p, nil
}

// Offer is the strongest evidence the queue gives.
func (p *Producer) Offer() wire.Evidence { return p.opened.Offer }

// Next is the sequence of the next message that names none: for a producer with an id one above all that
// the queue has seen of it, or that were sent since.
func (p *Producer) Next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.next
}

// Publish sends one message and waits for its end. When ctx ends first the message is indeterminate.
func (p *Producer) Publish(ctx context.Context, m Message) (Result, error) {
	done := make(chan Result, 1)
	start := time.Now()
	if err := p.Send(ctx, m, func(r Result) { done <- r }); err != nil {
		return Result{}, err
	}
	select {
	case r := <-done:
		return r, nil
	case <-ctx.Done():
		return Result{
			Outcome: Indeterminate, Latency: time.Since(start),
			Err: &wire.Error{Code: wire.ConnectionLost, Detail: "Nobody waited for the answer: " + ctx.Err().Error()},
		}, nil
	}
}

// wait waits, with mu held, until ready holds, the stream has failed or ctx ends.
func (p *Producer) wait(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	stop := context.AfterFunc(ctx, p.wakeAll)
	defer stop()
	for !ready() {
		if p.err != nil {
			return p.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.moved.Wait()
	}
	return nil
}

func (p *Producer) wakeAll() {
	p.mu.Lock()
	p.moved.Broadcast()
	p.mu.Unlock()
}

// Flush waits until everything sent so far is answered and its done has returned. An error is ctx's, or
// that of the stream if it left messages indeterminate.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.window.high
	stop := context.AfterFunc(ctx, p.wakeAll)
	defer stop()
	for p.window.busy(limit) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.moved.Wait()
	}
	if p.lost {
		return p.err
	}
	return nil
}

// Close waits for what is unanswered, as long as ctx allows, and ends the stream. Its error is Flush's.
func (p *Producer) Close(ctx context.Context) error {
	err := p.Flush(ctx)
	p.mu.Lock()
	p.closing = true
	p.moved.Broadcast()
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { abandon(p.stream) })
	p.ended.Wait()
	stop()
	return err
}

// write moves frames from the buffer to the stream.
func (p *Producer) write() {
	var spare []byte
	for {
		p.mu.Lock()
		for len(p.buf) == 0 && !p.closing && p.err == nil {
			p.moved.Wait()
		}
		out, failed := p.buf, p.err != nil
		p.buf = spare[:0]
		p.mu.Unlock()
		if failed {
			abandon(p.stream)
			return
		}
		if len(out) == 0 {
			if err := p.stream.Close(); err != nil {
				p.endReading()
			}
			return
		}
		if _, err := p.stream.Write(out); err != nil {
			p.endReading()
			return
		}
		spare = out
	}
}

// endReading gives the broker a while to answer what it read before the stream failed. The reader then
// answers for the rest.
func (p *Producer) endReading() {
	if err := p.stream.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
		p.stream.CancelRead(0)
	}
}
