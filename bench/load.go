package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"weida/broker/client"
	"weida/broker/wire"
)

// loadSpec is one pass of load on the queues of one node: one producer each.
type loadSpec struct {
	clients []*client.Client // the connections; producers take turns
	queues  int
	want    wire.Want
	body    []byte
	window  int     // unanswered messages per queue
	rate    float64 // messages per second over all queues, offered whatever happens; 0 is a closed loop
	ramp    time.Duration
	measure time.Duration
}

// passFigures are what happened in the measured part of a pass.
type passFigures struct {
	took     time.Duration
	messages int64
	late     int64 // sent more than lateAfter behind their time
	latency  *hdrhistogram.Histogram
}

func (p passFigures) rate() float64 { return float64(p.messages) / p.took.Seconds() }

// Latencies are counted in microseconds, exact to three digits.
const (
	latencyMax    = int64(time.Minute / time.Microsecond)
	latencyDigits = 3
	lateAfter     = time.Millisecond
)

// lane is one producer under load.
type lane struct {
	producer *client.Producer
	spec     *loadSpec
	pace     *pacer
	at       int // its place among the lanes
	cancel   context.CancelCauseFunc

	measuring *atomic.Bool
	answered  atomic.Int64

	// owned by the sender
	late int64
	// owned by the producer's reader until the producer is closed
	latency *hdrhistogram.Histogram
}

// run applies one pass. edge is called at the beginning and at the end of the measured part.
func (s *loadSpec) run(ctx context.Context, edge func() error) (f passFigures, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var measuring atomic.Bool
	lanes := make([]*lane, s.queues)
	defer closeLanes(lanes)
	for i := range lanes {
		p, err := s.clients[i%len(s.clients)].Producer(ctx, queueName(i),
			client.ProducerOptions{Want: s.want, Window: s.window})
		if err != nil {
			return f, err
		}
		lanes[i] = &lane{
			producer: p, spec: s, at: i, cancel: cancel, measuring: &measuring,
			latency: hdrhistogram.New(1, latencyMax, latencyDigits),
		}
	}
	stop, sent := s.begin(ctx, lanes)
	f, err = s.measured(ctx, lanes, &measuring, edge)
	stop()
	sent.Wait()
	if err == nil {
		err = flushLanes(ctx, lanes)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	f.latency = hdrhistogram.New(1, latencyMax, latencyDigits)
	for _, l := range lanes {
		f.latency.Merge(l.latency)
		f.late += l.late
	}
	return f, err
}

// begin starts the senders; stop makes them end.
func (s *loadSpec) begin(ctx context.Context, lanes []*lane) (stop func(), sent *sync.WaitGroup) {
	sending, stop := context.WithCancel(ctx)
	sent = new(sync.WaitGroup)
	if s.rate > 0 {
		pace := newPacer(s.rate, len(lanes))
		for _, l := range lanes {
			l.pace = pace
		}
		sent.Go(func() { pace.run(sending) })
	}
	for _, l := range lanes {
		sent.Go(func() {
			if err := l.send(sending); err != nil && sending.Err() == nil {
				l.cancel(fmt.Errorf("%s: %w", queueName(l.at), err))
			}
		})
	}
	return stop, sent
}

func (s *loadSpec) measured(ctx context.Context, lanes []*lane, measuring *atomic.Bool, edge func() error) (
	f passFigures, err error,
) {
	if err := pause(ctx, s.ramp); err != nil {
		return f, err
	}
	if err := edge(); err != nil {
		return f, err
	}
	began, before := time.Now(), answers(lanes)
	measuring.Store(true)
	if err := pause(ctx, s.measure); err != nil {
		return f, err
	}
	measuring.Store(false)
	f.took, f.messages = time.Since(began), answers(lanes)-before
	return f, edge()
}

func answers(lanes []*lane) (n int64) {
	for _, l := range lanes {
		n += l.answered.Load()
	}
	return n
}

// pause sleeps, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func flushLanes(ctx context.Context, lanes []*lane) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for _, l := range lanes {
		errs = append(errs, l.producer.Flush(ctx))
	}
	return errors.Join(errs...)
}

// closeLanes ends the producers. What it has to say was said by their flush.
func closeLanes(lanes []*lane) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, l := range lanes {
		if l != nil {
			_ = l.producer.Close(ctx)
		}
	}
}

// send publishes until ctx ends. In a closed loop the producer's window is what holds it back.
func (l *lane) send(ctx context.Context) error {
	body := bytes.NewReader(l.spec.body)
	done := l.done
	for k := int64(0); ; k++ {
		if l.pace != nil && !l.pace.await(ctx, l.at, k) {
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		body.Reset(l.spec.body)
		if l.pace != nil && l.measuring.Load() && time.Since(l.pace.due(l.at, k)) > lateAfter {
			l.late++
		}
		m := client.Message{Body: body, Length: int64(len(l.spec.body))}
		if err := l.producer.Send(ctx, m, done); err != nil {
			return err
		}
	}
}

// done is called for each answer, in order of sequence. In an open loop a message's latency begins when it was to be
// sent, so that a broker which stands still is charged for those that could not even be sent.
func (l *lane) done(r client.Result) {
	if r.Outcome != client.OK {
		l.cancel(fmt.Errorf("%s: message %d: %s: %w", queueName(l.at), r.Seq, r.Outcome, r.Err))
		return
	}
	l.answered.Add(1)
	if !l.measuring.Load() {
		return
	}
	took := r.Latency
	if l.pace != nil {
		took = time.Since(l.pace.due(l.at, int64(r.Seq)-1))
	}
	_ = l.latency.RecordValue(min(took.Microseconds(), latencyMax)) // within its bounds
}
