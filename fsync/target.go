package fsync

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Target is one group's log as the Flusher sees it: the files and directories that must be durable
// before a mark counts. What a mark counts is the owner's business; marks only rise.
//
// Dirty, Request and Close are called by the owner, one goroutine at a time; Flushed, Err and Busy
// by any.
type Target struct {
	f     *Flusher
	name  string
	waker Waker

	flushed atomic.Uint64
	poison  atomic.Pointer[error]
	refused atomic.Bool // a request came after Flusher.Close
	// done is closed when the first request is finished; only one-shot targets have it.
	done chan struct{}

	// guarded by Flusher.mu
	slot  int  // in Flusher.targets
	late  bool // flushed alone, so that nobody waits for it
	quick int  // flushes in time since it became late

	// Held while the target's files are flushed, so that of two flushes at once it is
	// certain which one was told of an error.
	syncing sync.Mutex

	mu      sync.Mutex
	dirty   []Syncer // since the last snapshot
	running []Syncer // in a round that has not ended
	recent  []Syncer // in the last round; may be closed by now
	spare   []Syncer // buffer for the next dirty
	want    uint64   // greatest mark requested
	queued  bool     // requested and not yet in a round
	busy    bool     // in a round
	parked  bool     // queued, to be put in line when no longer busy
	// proved holds files flushed by themselves after provedAt reports of SyncFS. Forgetting one costs
	// a flush.
	proved   []Syncer
	provedAt uint64
}

// NewTarget registers a target. The name appears in events and errors. w may be nil.
func (f *Flusher) NewTarget(name string, w Waker) *Target {
	t := &Target{f: f, name: name, waker: w}
	f.mu.Lock()
	defer f.mu.Unlock()
	t.slot = len(f.targets)
	f.targets = append(f.targets, t)
	return t
}

// Dirty says that s has bytes or entries that no flush covers yet; call it after writing them. s
// must stay open while Busy says so and belongs to this target alone. Directories are flush targets
// like files. Calling it again for the same s is free.
func (t *Target) Dirty(s Syncer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.dirty, s) {
		t.dirty = append(t.dirty, s)
	}
}

// Request asks for everything Dirty so far to be flushed; when it is, Flushed returns at least mark.
// Requests that come while a round runs become one. It never blocks. A mark below an earlier one is
// a bug of the caller.
func (t *Target) Request(mark uint64) {
	if t.f.closing.Load() {
		t.refused.Store(true)
		return
	}
	t.mu.Lock()
	if mark < t.want {
		t.mu.Unlock()
		panic(fmt.Sprintf("bug: fsync: %s requests mark %d after %d", t.name, mark, t.want))
	}
	t.want = mark
	enqueue := !t.queued && !t.busy
	t.parked = t.parked || !t.queued && t.busy
	t.queued = true
	t.mu.Unlock()
	if enqueue {
		t.f.enqueue(t)
	}
}

// Flushed returns the greatest mark that is confirmed flushed.
func (t *Target) Flushed() uint64 { return t.flushed.Load() }

// Err says why the target will never advance again, nil while it can. After a failed flush it wraps
// ErrPoisoned and the *Error, and stays the first one. After a request that came too late for
// Flusher.Close it wraps ErrClosed. A failure of the whole node is told by Flusher.Err instead.
func (t *Target) Err() error {
	if p := t.poison.Load(); p != nil {
		return *p
	}
	if t.refused.Load() {
		return fmt.Errorf("fsync: flush %s: %w: the request was not carried out", t.name, ErrClosed)
	}
	return nil
}

// Busy reports whether s is dirty or in a running round: it must not be closed.
func (t *Target) Busy(s Syncer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.dirty, s) || slices.Contains(t.running, s)
}

// Close forgets the target. Call it when nothing is dirty, or after Err.
func (t *Target) Close() {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.slot < 0 {
		return
	}
	last := f.targets[len(f.targets)-1]
	f.targets[t.slot] = last
	last.slot = t.slot
	f.targets = f.targets[:len(f.targets)-1]
	t.slot = -1
	if t.late {
		t.late = false
		f.late--
	}
	if t.poison.Load() != nil {
		// Dirty pages that it leaves behind fail once more, in the next SyncFS, with nobody to ask.
		f.poisonSeq++
	}
}

// snapshot takes what is dirty and the mark it reaches into a round. ok is false if there is nothing
// to do: the target is poisoned, or a round that it left still has it.
func (t *Target) snapshot() (p part, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy {
		t.parked = true
		return part{}, false
	}
	t.queued = false
	if t.poison.Load() != nil {
		return part{}, false
	}
	t.busy = true
	t.running, t.dirty, t.spare = t.dirty, t.spare[:0], nil
	return part{t: t, syncers: t.running, mark: t.want}, true
}

// unproved reports whether any of the files was not flushed by itself since so many reports.
func (t *Target) unproved(files []Syncer, reports uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.provedAt < reports || slices.ContainsFunc(files, func(s Syncer) bool {
		return !slices.Contains(t.proved, s)
	})
}

// recentMax bounds the files of its last round that a target remembers.
const recentMax = 8

// provedMax bounds the files of a target that are known to be proved.
const provedMax = 32

// prove remembers that s was flushed by itself after so many reports.
func (t *Target) prove(s Syncer, reports uint64) {
	if reports == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.provedAt < reports {
		t.proved, t.provedAt = t.proved[:0], reports
	}
	if t.provedAt > reports || slices.Contains(t.proved, s) {
		return
	}
	if len(t.proved) == provedMax {
		t.proved = slices.Delete(t.proved, 0, 1)
	}
	t.proved = append(t.proved, s)
}

// release ends the target's share of a round and says whether it must be put in line again.
// advance is false if the mark was not reached; keep is true while somebody may still read syncers.
func (t *Target) release(p *part, advance, keep bool) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if advance && t.poison.Load() == nil {
		t.flushed.Store(p.mark)
	}
	if len(t.running) > 0 {
		clear(t.recent)
		t.recent = append(t.recent[:0], t.running[:min(len(t.running), recentMax)]...)
	}
	if !keep {
		clear(t.running)
		t.spare = t.running[:0]
	}
	t.running = nil
	t.busy = false
	again, t.parked = t.parked, false
	if t.done != nil {
		close(t.done)
		t.done = nil
	}
	return again
}

// suspects returns a copy of everything dirty or in a round, and of the last round's: what is written
// to those may not have been made Dirty yet.
func (t *Target) suspects() []Syncer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.running)
	for _, list := range [][]Syncer{t.dirty, t.recent} {
		for _, s := range list {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
