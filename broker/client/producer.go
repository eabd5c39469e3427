package client

import (
	"context"
	"sync"
	"time"

	"weida/broker/wire"
)

// ProducerOptions say how to publish. Want is required.
type ProducerOptions struct {
	Want wire.Want // required
	// ID is the producer id, at most 64 bytes, bound to the identity that uses it first. With one the
	// queue knows a message that it has by its sequence and never stores it twice, so that everything
	// unanswered is sent again when a connection is lost. Without, sequences count from 1 and are
	// forgotten with the producer, and what a lost connection leaves unanswered is indeterminate.
	// A program that starts again sends first, in order and with their Seq, the messages that it is in doubt
	// about: the first message that is sent gives up what is older.
	ID string
	// Window is how many messages may lie between the oldest without an answer and the newest, both
	// counted; 1024 if zero, never more than the broker allows.
	Window int
	// WindowBytes bounds the bytes of their inline bodies; 16 MiB if zero, never more than the broker allows.
	WindowBytes int64
	// Patience is how long a lost connection is tried to be made again, from when something waits for
	// it. If zero it is 30 s with an ID, and without one the producer ends with its connection. Below
	// zero it does so in any case.
	// Opening the first one takes as long at most, and 30 s if this is zero.
	Patience time.Duration
}

const (
	windowDefault      = 1024
	windowMax          = 1 << 16
	windowBytesDefault = 16 << 20
)

func (o *ProducerOptions) defaults() {
	if o.Window <= 0 {
		o.Window = windowDefault
	}
	if o.WindowBytes <= 0 {
		o.WindowBytes = windowBytesDefault
	}
	if o.Patience == 0 && o.ID != "" {
		o.Patience = patienceDefault
	}
}

// Producer publishes to one queue.
type Producer struct {
	c     *Client
	queue string
	o     ProducerOptions
	offer wire.Evidence
	life  context.Context // ends when nothing is waited for any more
	end   context.CancelFunc
	ended sync.WaitGroup

	order chan struct{} // holds one token: who has it may send
	small []byte        // owned by who has the token
	piece []byte        // likewise

	highest uint64 // owned by run; highest sequence that is known to be in the queue

	mu      sync.Mutex
	moved   *sync.Cond   // of mu: window, closing, err or a large body's turn changed
	work    *sync.Cond   // of mu: there may be something to write, or nothing will be any more
	window  window       // guarded by mu
	s       *session     // guarded by mu; the stream in use, or nil
	streams uint64       // guarded by mu; number of streams so far
	closing bool         // guarded by mu
	left    error        // guarded by mu; why messages became indeterminate since the last Flush
	err     error        // guarded by mu; why nothing is sent any more
	frame   wire.Publish // guarded by mu; memory of the one that is written
}

// Producer opens a stream to a queue. Errors: *wire.Error with wire.UnknownQueue, wire.NotOffered or
// wire.NoLevel (the want), wire.ProducerOwned or wire.TooManyProducers (the id), or another code;
// *endpoint.UnreachableError; *ProtocolError; ctx's.
func (c *Client) Producer(ctx context.Context, queue string, o ProducerOptions) (*Producer, error) {
	if err := o.Want.Validate(); err != nil {
		return nil, &wire.Error{Code: wire.NoLevel, Detail: err.Error()}
	}
	if err := checkNames(queue, o.ID); err != nil {
		return nil, err
	}
	opening := openingPatience(o.Patience)
	o.defaults()
	p := &Producer{c: c, queue: queue, o: o, order: make(chan struct{}, 1)}
	first, err := c.begin(ctx, queue, opening, p.opening())
	if err != nil {
		return nil, err
	}
	if err := checkOpened(first); err != nil {
		return nil, err
	}
	p.offer = first.answer.Offer
	messages := min(uint64(o.Window), first.answer.InFlight, windowMax)
	bytes := min(uint64(o.WindowBytes), first.answer.InFlightSize)
	p.window = newWindow(int(messages), int64(bytes), max(first.answer.Next, 1))
	p.moved, p.work = sync.NewCond(&p.mu), sync.NewCond(&p.mu)
	p.life, p.end = context.WithCancel(context.Background())
	p.enter(first)
	p.ended.Go(p.run)
	return p, nil
}

func (p *Producer) opening() *wire.OpenProducer {
	return &wire.OpenProducer{Queue: p.queue, Producer: p.o.ID, Want: p.o.Want}
}

// checkOpened refuses a stream on which nothing could ever be sent.
func checkOpened(o *opened) error {
	if o.answer.InFlight == 0 || o.answer.InFlightSize == 0 {
		o.finish()
		return broke("it lets no message be under way")
	}
	return nil
}

// Offer is the strongest evidence the queue gives.
func (p *Producer) Offer() wire.Evidence { return p.offer }

// Next is the sequence of the next message that names none: for a producer with an id one above all that
// the queue has seen of it, or that were sent since.
func (p *Producer) Next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.next
}

// Publish sends one message and waits for its result. When ctx ends first the result is indeterminate; the
// message still goes its way. The error is Send's.
func (p *Producer) Publish(ctx context.Context, m Message) (Result, error) {
	done := make(chan Result, 1)
	start := time.Now()
	seq, err := p.send(ctx, m, func(r Result) { done <- r })
	if err != nil {
		return Result{}, err
	}
	select {
	case r := <-done:
		return r, nil
	case <-ctx.Done():
		return Result{
			Seq: seq, Outcome: Indeterminate, Latency: time.Since(start),
			Err: &wire.Error{Code: wire.ConnectionLost, Detail: "Nobody waited for the answer: " + ctx.Err().Error()},
		}, nil
	}
}

// wait waits, with mu held, until ready holds, nothing is sent any more or ctx ends.
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
	p.work.Broadcast()
	p.mu.Unlock()
}

// Flush waits until everything sent so far has its result and its done has returned. An error is ctx's, or
// why messages became indeterminate since the last Flush: *LostError, *ProtocolError, *wire.Error.
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
	left := p.left
	if p.err == nil {
		p.left = nil
	}
	return left
}

// Close waits for what is unanswered, as long as ctx allows, and ends the stream. What is then still
// unanswered is indeterminate. Its error is Flush's.
func (p *Producer) Close(ctx context.Context) error {
	err := p.Flush(ctx)
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.wakeAll()
	stop := context.AfterFunc(ctx, p.end)
	p.ended.Wait()
	stop()
	p.end()
	return err
}
