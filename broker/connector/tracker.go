package connector

import (
	"context"
	"sync"

	"weida/broker/client"
	"weida/broker/wire"
)

// flightMax is how many lines may be under way. It is less than the producer's window: there a refused line keeps
// its place, and the lowest sequence that the queue must remember, until the window needs it for another.
const flightMax = 256

// tracker follows the lines under way. Every line at or below confirmed is in the queue.
type tracker struct {
	onDone func(below bool) // called with mu held
	stop   context.CancelCauseFunc

	mu        sync.Mutex
	moved     *sync.Cond
	confirmed uint64             // guarded by mu
	end       int64              // guarded by mu; position behind the confirmed line
	sent      uint64             // guarded by mu
	flight    [flightMax]oneLine // guarded by mu; lines (confirmed, sent], by number modulo its length
	failed    error              // guarded by mu; the first line that did not get its place
}

type oneLine struct {
	end  int64
	done bool
}

func newTracker(confirmed uint64, end int64, stop context.CancelCauseFunc, onDone func(below bool)) *tracker {
	t := &tracker{onDone: onDone, stop: stop, confirmed: confirmed, sent: confirmed, end: end}
	t.moved = sync.NewCond(&t.mu)
	return t
}

// wait waits, with mu held, until ready holds; an error if a line failed or ctx ended.
func (t *tracker) wait(ctx context.Context, ready func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		t.moved.Broadcast()
		t.mu.Unlock()
	})
	defer stop()
	for t.failed == nil && ctx.Err() == nil && !ready() {
		t.moved.Wait()
	}
	if t.failed != nil {
		return t.failed
	}
	return ctx.Err()
}

// enter takes in the next line, which ends before end, once there is room.
func (t *tracker) enter(ctx context.Context, end int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.wait(ctx, func() bool { return t.sent-t.confirmed < flightMax }); err != nil {
		return err
	}
	t.sent++
	t.flight[t.sent%flightMax] = oneLine{end: end}
	return nil
}

// drained waits until every line has its place.
func (t *tracker) drained(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wait(ctx, func() bool { return t.sent == t.confirmed })
}

// at is how far the queue has everything: lines, and the position behind them.
func (t *tracker) at() (uint64, int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.confirmed, t.end, t.failed
}

// result takes the answer for one line. A sequence that is retired was confirmed before: the queue forgets one only
// when it is told that nothing below waits for an answer.
func (t *tracker) result(r client.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	retired := r.Outcome == client.Refused && r.Err.Code == wire.SequenceRetired
	below := r.Outcome == client.BelowRequest
	placed := r.Outcome == client.OK || below || retired
	if !placed || below {
		t.failUnder(&LineError{r.Seq, r.Err})
	}
	if !placed {
		return
	}
	t.flight[r.Seq%flightMax].done = true
	for t.confirmed < t.sent {
		next := &t.flight[(t.confirmed+1)%flightMax]
		if !next.done {
			break
		}
		t.confirmed++
		t.end = next.end
	}
	if !retired {
		t.onDone(below)
	}
	t.moved.Broadcast()
}

func (t *tracker) failUnder(err error) {
	if t.failed == nil {
		t.failed = err
		t.stop(err)
	}
	t.moved.Broadcast()
}
