package fsync

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// poisonsMax poisoned targets within poisonWindow are no longer their own misfortune.
	poisonsMax   = 3
	poisonWindow = 10 * time.Second
	// lateMax bounds the targets that are flushed alone; more are a slow disk, not slow targets.
	lateMax = 8
	// quickMin flushes in time in a row bring a late target back into the shared rounds.
	quickMin = 8
	// patienceTimes what a flush usually takes, and at least patienceMin, is what others wait for one; it is
	// known after usualMin flushes.
	patienceTimes = 8
	patienceMin   = 10 * time.Millisecond
	usualMin      = 16
	// overtakenMin rounds in time while a target is flushed by itself say that the target is slow.
	overtakenMin = 2
)

// Flusher makes the files of many targets durable in shared rounds. See the package comment for what
// it promises. NewFlusher makes one, stepped; Start gives it goroutines of its own.
type Flusher struct {
	o        Options
	failed   chan struct{}
	kick     chan struct{} // something waits, or Close was called; capacity 1
	loopDone chan struct{}
	jobs     sync.WaitGroup // goroutines that flush
	step     sync.Mutex     // held for a stepped round
	asking   sync.RWMutex   // held for writing while a bulk writer's file is asked
	closing  atomic.Bool
	reports  atomic.Uint64 // of lost writes, by SyncFS
	bulkSum  atomic.Int64  // bytes written by bulk writers whose write-back has not started

	eventMu sync.Mutex
	watcher watcher

	mu      sync.Mutex
	started bool
	closed  bool
	err     error
	targets []*Target
	waiting []*Target
	spare   []*Target // buffer for the next waiting
	bulks   []*Bulk
	bad     map[Syncer]error // first failure; a later success of the same Syncer proves nothing
	poisons []time.Time      // within poisonWindow
	// poisonSeq counts what explains an error report of SyncFS; up to explained the reports are in.
	poisonSeq, explained uint64
	late                 int // targets flushed alone
	apart                int // flushes running that no shared round waits for
	wholeBusy            bool
	wholeUsual           time.Duration // smoothed time of a SyncFS
	usual                time.Duration // smoothed time of the flush of one target by itself
	flushes              uint64        // in it
	inTime               uint64        // shared rounds in which somebody was flushed in time
	stats                Stats
}

// NewFlusher returns a stepped Flusher: nothing happens but in Step and Flush. It owns o.Root.
func NewFlusher(o Options) *Flusher {
	if o.Root == nil && o.Strategy != Files {
		panic("bug: fsync: Flusher without Root")
	}
	return &Flusher{
		o:        o.withDefaults(),
		failed:   make(chan struct{}),
		kick:     make(chan struct{}, 1),
		loopDone: make(chan struct{}),
		bad:      map[Syncer]error{},
	}
}

// Start runs rounds on goroutines of the Flusher's own from now on; Step must not be called any more.
func (f *Flusher) Start() {
	f.step.Lock() // let a stepped round end
	defer f.step.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.closed {
		panic("bug: fsync: Flusher.Start after Start or Close")
	}
	f.started = true
	go f.loop()
}

// loop runs the shared rounds. Only one goroutine does: when it is stuck in a round of one part that
// the others must not wait for, another one goes on in its place.
func (f *Flusher) loop() {
	for {
		more, left := f.sharedRound()
		if left {
			return
		}
		if more {
			continue
		}
		f.mu.Lock()
		end := f.err != nil || f.closed && len(f.waiting) == 0 && f.apart == 0
		f.mu.Unlock()
		if end {
			close(f.loopDone)
			return
		}
		select {
		case <-f.kick:
		case <-f.failed:
		}
	}
}

// Step runs one whole round on the caller's goroutine and returns false if nothing waited. Targets
// that are flushed alone come after the others.
func (f *Flusher) Step() bool {
	f.step.Lock()
	defer f.step.Unlock()
	if f.isStarted() {
		panic("bug: fsync: Flusher.Step after Start")
	}
	return f.steppedRound()
}

func (f *Flusher) isStarted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.started
}

// Flush makes s durable and returns when it is, or why it never will be. It takes part in the next
// round as a target of its own. For jobs off the shards and for recovery; in stepped mode it steps.
func (f *Flusher) Flush(name string, s ...Syncer) error {
	t := f.NewTarget(name, nil)
	defer t.Close()
	done := make(chan struct{})
	t.done = done
	for _, one := range s {
		t.Dirty(one)
	}
	t.Request(1)
	if t.refused.Load() {
		return t.Err()
	}
	if err := f.await(done); err != nil {
		return err
	}
	if t.Flushed() == 1 {
		return nil
	}
	if err := t.Err(); err != nil {
		return err
	}
	return f.Err()
}

// await returns when done is closed or the node has failed.
func (f *Flusher) await(done chan struct{}) error {
	for {
		f.step.Lock()
		if f.isStarted() {
			f.step.Unlock()
			break
		}
		select {
		case <-done:
			f.step.Unlock()
			return nil
		default:
		}
		more := f.steppedRound()
		f.step.Unlock()
		if err := f.Err(); err != nil {
			return err
		}
		if !more {
			break
		}
	}
	select {
	case <-done:
		return nil
	case <-f.failed:
		return f.Err()
	}
}

// enqueue puts t in line for the next round.
func (f *Flusher) enqueue(t *Target) {
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.waiting = append(f.waiting, t)
	}
	f.mu.Unlock()
	if closed {
		t.refused.Store(true)
		return
	}
	f.poke()
}

// requeue puts t in line again although Close may have been called: the request came before.
func (f *Flusher) requeue(t *Target) {
	f.mu.Lock()
	f.waiting = append(f.waiting, t)
	f.mu.Unlock()
	f.poke()
}

func (f *Flusher) poke() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Err is non-nil once the storage of the node has failed: a write was lost and no file says whose,
// the file system is read-only, several targets were poisoned within ten seconds, or a flush did not
// come back. It is final: no mark of any target advances any more.
func (f *Flusher) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Failed is closed when Err becomes non-nil.
func (f *Flusher) Failed() <-chan struct{} { return f.failed }

// Close carries out what was requested before, refuses later requests with ErrClosed and closes
// Root. After a failure of the node it does not wait for flushes that may never come back.
func (f *Flusher) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.closing.Store(true)
	started := f.started
	f.mu.Unlock()
	f.poke()
	if started {
		select {
		case <-f.loopDone:
		case <-f.failed: // the loop may be stuck in a flush
		}
	} else {
		f.step.Lock()
		for f.steppedRound() {
		}
		f.step.Unlock()
	}
	err := f.Err()
	if err == nil {
		f.jobs.Wait()
		err = f.Err()
	}
	if f.o.Root != nil {
		err = errors.Join(err, f.o.Root.Close())
	}
	return err
}

// take makes the round that starts now out of all that waits: a shared one, nil if nobody takes
// part, and one for each target that is flushed alone.
func (f *Flusher) take() (shared *round, alone []*round) {
	f.mu.Lock()
	list := f.waiting
	f.waiting, f.spare = f.spare, nil
	failed := f.err != nil
	f.mu.Unlock()
	if failed || len(list) == 0 {
		return nil, nil
	}
	defer f.reuse(list)
	parts := make([]part, 0, len(list))
	for _, t := range list {
		p, ok := t.snapshot()
		switch {
		case !ok:
			f.drop(t)
		case f.isLate(t):
			r := newRound(f, []part{p}, Files)
			r.refuseSpoiled()
			alone = append(alone, r)
		default:
			parts = append(parts, p)
		}
	}
	if len(parts) > 0 {
		shared = newRound(f, parts, f.choose(parts))
		shared.refuseSpoiled()
		shared.findUnproved()
	}
	return shared, alone
}

// reuse makes list the buffer of a later line.
func (f *Flusher) reuse(list []*Target) {
	clear(list)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spare = list[:0]
}

// drop ends the wait of a one-shot target that takes no part in the round.
func (f *Flusher) drop(t *Target) {
	if t.poison.Load() == nil {
		return // busy: it comes back by itself
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done != nil {
		close(t.done)
		t.done = nil
	}
}

// choose picks the strategy of a shared round.
func (f *Flusher) choose(parts []part) Strategy {
	if f.o.Strategy != Auto {
		return f.o.Strategy
	}
	files := 0
	for i := range parts {
		files += len(parts[i].syncers)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// SyncFS also writes what bulk writers left dirty, and waits for the file of a late target.
	if files <= f.o.FewFiles || f.bulkSum.Load() > f.o.BulkDirtyMax || f.apart > 0 || f.wholeBusy {
		return Files
	}
	return Whole
}

// fail ends the node's storage. The first reason stays.
func (f *Flusher) fail(reason error) {
	err := fmt.Errorf("fsync: storage of this node failed: %w; what was confirmed as flushed before stays true, "+
		"nothing more will be confirmed; check the disk and the kernel log, then start the node again", reason)
	f.mu.Lock()
	if f.err != nil {
		f.mu.Unlock()
		return
	}
	f.err = err
	targets := slices.Clone(f.targets)
	f.mu.Unlock()
	f.emit(Event{Kind: EventNodeFailed, Err: err}) // before anybody ends the process
	close(f.failed)
	wakeAll(targets)
}

// wakeAll wakes each distinct Waker of the targets once.
func wakeAll(targets []*Target) {
	if len(targets) == 1 {
		if w := targets[0].waker; w != nil {
			w.Wake()
		}
		return
	}
	woken := make(map[Waker]struct{}, 8)
	for _, t := range targets {
		if t.waker == nil {
			continue
		}
		if _, again := woken[t.waker]; !again {
			woken[t.waker] = struct{}{}
			t.waker.Wake()
		}
	}
}

func (f *Flusher) emit(e Event) {
	if f.o.Event == nil {
		return
	}
	f.eventMu.Lock()
	defer f.eventMu.Unlock()
	f.o.Event(e)
}
