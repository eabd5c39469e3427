package fsync

import (
	"errors"
	"os"
	"sync"
	"time"
)

// round is one pass: what was dirty when it began, made durable.
type round struct {
	f        *Flusher
	strategy Strategy
	began    time.Time
	inline   bool // stepped: everything on the caller's goroutine
	apart    bool // one late target, nobody waits for it
	files    int  // dirty when it began
	solo     bool // one part, flushed by the loop's own goroutine
	done     chan struct{}
	due      time.Time // when the watcher looks at it next; guarded by watcher.mu

	mu        sync.Mutex
	moved     sync.Cond // a part was flushed or finished
	parts     []part
	next      int // first part that no worker has looked at
	open      int // parts that the round waits for
	left      int // parts that it no longer waits for
	workers   bool
	whole     bool // SyncFS is running
	wholeTold bool // reported as slow
	hold      bool // SyncFS failed: nothing advances before the verdict
}

// part is one target's share of a round. Guarded by round.mu but for the first line.
type part struct {
	t       *Target
	syncers []Syncer
	mark    uint64
	// unproved: SyncFS has reported lost writes since the last flush of one of the files by itself. They
	// may be its own, written and not yet Dirty at the time, and SyncFS will not say so again.
	unproved bool

	state  partState
	left   bool
	leftAt uint64 // Flusher.inTime at that moment
	told   bool   // reported as slow
	worker bool   // a worker reads syncers
	since  time.Time
	took   time.Duration
	at     Syncer // being flushed now
	err    error
}

type partState uint8

const (
	partWaiting  partState = iota
	partRunning            // a worker flushes its files one by one
	partHeld               // flushed one by one, waits for the verdict
	partFinished           // its target has been told
)

func newRound(f *Flusher, parts []part, s Strategy) *round {
	r := &round{
		f: f, strategy: s, began: f.o.Now(), parts: parts, open: len(parts), done: make(chan struct{}),
	}
	r.moved.L = &r.mu
	for i := range parts {
		r.files += len(parts[i].syncers)
	}
	return r
}

// steppedRound runs one whole round on the caller's goroutine.
func (f *Flusher) steppedRound() bool {
	shared, alone := f.take()
	if shared != nil {
		shared.inline = true
		shared.run()
		shared.close()
	}
	for _, r := range alone {
		r.inline, r.apart = true, true
		r.run()
		r.close()
	}
	return shared != nil || len(alone) > 0
}

// sharedRound runs one round and returns when nothing of it keeps the next one waiting. left is true
// if another goroutine has become the loop meanwhile; more is false if nothing waited.
func (f *Flusher) sharedRound() (more, left bool) {
	shared, alone := f.take()
	for _, r := range alone {
		f.runApart(r)
	}
	if shared == nil {
		return len(alone) > 0, false
	}
	if shared.strategy == Files && len(shared.parts) == 1 {
		return true, shared.runSolo()
	}
	shared.watch()
	shared.run()
	select {
	case <-shared.done:
		shared.close()
	case <-f.failed:
	}
	return true, false
}

// runSolo flushes the one part of a round on the loop's own goroutine: handing it to another one costs
// about as much as a tenth of the flush. If the flush takes so long that others must not wait for it,
// the watcher lets another goroutine be the loop (replace), and left is true.
func (r *round) runSolo() (left bool) {
	r.solo = true
	r.watch()
	if p := r.takePart(); p != nil && r.flushPart(p) {
		r.f.jobs.Done() // counted when it was left
		return true
	}
	r.close()
	return false
}

// replace lets another goroutine go on with what n stuck ones would have done next.
func (r *round) replace(n int) {
	if r.solo && n > 0 {
		go func() {
			r.close()
			r.f.loop()
		}()
		return
	}
	for range n {
		r.spawn(r.worker)
	}
}

// runApart runs a round that nobody waits for.
func (f *Flusher) runApart(r *round) {
	f.mu.Lock()
	f.apart++
	f.mu.Unlock()
	f.jobs.Add(1)
	r.apart = true
	r.watch()
	r.run()
	go func() {
		defer f.jobs.Done()
		<-r.done
		r.close()
		f.mu.Lock()
		f.apart--
		f.mu.Unlock()
		f.poke()
	}()
}

// run starts the calls of the round; inline, it also ends them.
func (r *round) run() {
	if r.strategy == Whole {
		r.mu.Lock()
		r.whole = true
		r.mu.Unlock()
		r.f.mu.Lock()
		r.f.wholeBusy = true
		r.f.mu.Unlock()
		r.spawn(r.callWhole)
		return
	}
	r.startWorkers()
}

func (r *round) spawn(fn func()) {
	if r.inline {
		fn()
		return
	}
	r.f.jobs.Add(1)
	go func() {
		defer r.f.jobs.Done()
		fn()
	}()
}

// startWorkers flushes the parts one by one, several at a time.
func (r *round) startWorkers() {
	r.mu.Lock()
	started := r.workers
	r.workers = true
	n := min(r.f.o.Workers, r.open)
	r.mu.Unlock()
	if started {
		return
	}
	if r.inline {
		n = min(n, 1)
	}
	for range n {
		r.spawn(r.worker)
	}
}

func (r *round) worker() {
	for {
		p := r.takePart()
		if p == nil || r.flushPart(p) {
			return
		}
	}
}

// takePart returns the next part that nobody flushes yet, nil if there is none.
func (r *round) takePart() *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.next < len(r.parts); r.next++ {
		p := &r.parts[r.next]
		if p.state == partWaiting {
			p.state, p.since, p.worker = partRunning, r.f.o.Now(), true
			r.next++
			return p
		}
	}
	return nil
}

// flushPart flushes the files of one part by themselves. It returns true if the round has left the
// part behind and with it the worker: another one took its place.
func (r *round) flushPart(p *part) (left bool) {
	err := r.syncAll(p)
	r.mu.Lock()
	p.took = r.f.o.Now().Sub(p.since)
	finished := p.state == partFinished // SyncFS came first
	left = p.left
	p.at, p.worker = nil, false
	if !finished {
		p.err = err
		if err == nil && r.hold {
			p.state = partHeld
		}
	}
	held := p.state == partHeld
	r.moved.Broadcast()
	r.mu.Unlock()
	if !finished && !held {
		r.finish(p, err == nil)
	}
	return left
}

// syncAll flushes the files of a part, up to the first error.
func (r *round) syncAll(p *part) error {
	p.t.syncing.Lock()
	defer p.t.syncing.Unlock()
	if p.t.poison.Load() != nil {
		return p.t.Err() // told while it waited here: another flush took the report
	}
	for _, s := range p.syncers {
		r.mu.Lock()
		p.at = s
		r.mu.Unlock()
		reports := r.f.reports.Load()
		err := r.f.syncOne(s)
		if err == nil {
			p.t.prove(s, reports)
			continue
		}
		r.mu.Lock()
		stale := p.state == partFinished && errors.Is(err, os.ErrClosed)
		r.mu.Unlock()
		if stale {
			return nil // covered by SyncFS meanwhile, so the owner was free to close it
		}
		// Before the flushing lock is released: whoever asks the file next hears nothing any more.
		r.f.spoil(s, p.t.name, err)
		r.f.poison(p.t, err)
		return err
	}
	return nil
}

// finish tells the target what became of its part.
func (r *round) finish(p *part, ok bool) {
	r.mu.Lock()
	if p.state == partFinished {
		r.mu.Unlock()
		return
	}
	keep := p.worker
	p.state = partFinished
	left := p.left
	r.moved.Broadcast()
	r.mu.Unlock()

	advance := ok && r.f.Err() == nil
	r.f.count(advance)
	if left {
		r.f.judgeLeft(p) // before it is put in line again
	}
	if p.t.release(p, advance, keep) {
		r.f.requeue(p.t)
	}
	if left {
		r.f.returned()
		wakeAll([]*Target{p.t})
	}

	r.mu.Lock()
	if left {
		r.left--
	} else {
		r.open--
	}
	r.signalLocked()
	r.mu.Unlock()
}

// signalLocked lets the next round begin when nothing more is waited for.
func (r *round) signalLocked() {
	if r.open > 0 {
		return
	}
	select {
	case <-r.done:
	default:
		close(r.done)
	}
}

// close ends the round for those who took part to the end.
func (r *round) close() {
	r.unwatch()
	r.f.countRound(r)
	r.f.judgeLate(r)
	r.mu.Lock()
	targets := make([]*Target, 0, len(r.parts))
	for i := range r.parts {
		if !r.parts[i].left {
			targets = append(targets, r.parts[i].t)
		}
	}
	r.mu.Unlock()
	wakeAll(targets)
}
