package fsync

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// syncOne flushes one file. It fails if an earlier flush of it failed, or one at the same time that
// was made to find out who lost writes: only one of two is told.
func (f *Flusher) syncOne(s Syncer) error {
	if err := s.Sync(); err != nil {
		return err
	}
	f.asking.RLock()
	defer f.asking.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Syncs++
	return f.bad[s]
}

// spoil remembers that a flush of s failed, so that no later one counts.
func (f *Flusher) spoil(s Syncer, name string, err error) {
	f.mu.Lock()
	_, again := f.bad[s]
	if !again {
		f.bad[s] = err
		f.stats.Errors++
	}
	f.mu.Unlock()
	if !again {
		f.emit(Event{Kind: EventFlushFailed, Target: name, Path: pathOf(s), Err: err})
	}
	if errors.Is(err, ErrReadOnlyFS) {
		f.fail(err)
	}
}

// poison ends a target for ever and wakes its owner. The first reason stays.
func (f *Flusher) poison(t *Target, cause error) {
	err := fmt.Errorf("fsync: flush %s: %w: %w; what was not confirmed as flushed may be lost, although reads "+
		"may still show it; no more is stored here", t.name, ErrPoisoned, NewError("flush", t.name, cause))
	if !t.poison.CompareAndSwap(nil, &err) {
		return
	}
	now := f.o.Now()
	f.mu.Lock()
	f.stats.Poisoned++
	f.poisonSeq++
	f.poisons = slices.DeleteFunc(f.poisons, func(at time.Time) bool { return now.Sub(at) > poisonWindow })
	f.poisons = append(f.poisons, now)
	many := len(f.poisons) >= poisonsMax
	f.mu.Unlock()
	f.emit(Event{Kind: EventTargetPoisoned, Target: t.name, Err: err})
	// The round's own wake may be over, or the target in no round.
	wakeAll([]*Target{t})
	if many {
		f.fail(fmt.Errorf("%d targets were poisoned within %v, the last: %w", poisonsMax, poisonWindow, cause))
	}
}

// callWhole makes everything on the file system durable with one call.
func (r *round) callWhole() {
	f := r.f
	f.mu.Lock()
	seq := f.poisonSeq
	f.mu.Unlock()
	err := f.o.Root.SyncFS()
	took := f.o.Now().Sub(r.began)

	f.mu.Lock()
	f.wholeBusy = err != nil // until the report is explained
	f.wholeUsual += (took - f.wholeUsual) / 8
	known := f.explained
	f.explained = max(f.explained, seq)
	if err != nil {
		f.stats.Errors++
		f.reports.Add(1)
	}
	f.mu.Unlock()

	r.mu.Lock()
	r.whole = false
	r.hold = err != nil
	r.mu.Unlock()
	if err != nil {
		f.emit(Event{Kind: EventFlushFailed, Path: pathOf(f.o.Root), Took: took, Err: err})
		r.attribute(err, known)
		f.mu.Lock()
		f.wholeBusy = false
		f.mu.Unlock()
		return
	}
	unproved := false
	for i := range r.parts {
		if p := &r.parts[i]; p.unproved {
			unproved = true
		} else {
			r.finish(p, true)
		}
	}
	if unproved {
		r.goOneByOne()
	}
}

// goOneByOne flushes what is left of a round of SyncFS by the files' own calls.
func (r *round) goOneByOne() {
	if r.inline {
		r.worker()
	} else {
		r.startWorkers()
	}
}

// findUnproved marks the parts for which a SyncFS that succeeds is not enough. Called when the
// strategy is chosen, for then no earlier SyncFS can report any more, and before the round runs.
func (r *round) findUnproved() {
	reports := r.f.reports.Load()
	if r.strategy != Whole || reports == 0 {
		return
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.unproved = p.t.unproved(p.syncers, reports)
	}
}

// refuseSpoiled takes out the parts with a file whose flush failed before: SyncFS says nothing about
// bytes that were lost and reported then. Called before the round runs.
func (r *round) refuseSpoiled() {
	f := r.f
	for i := range r.parts {
		p := &r.parts[i]
		f.mu.Lock()
		var err error
		for k := 0; len(f.bad) > 0 && err == nil && k < len(p.syncers); k++ {
			err = f.bad[p.syncers[k]]
		}
		f.mu.Unlock()
		if err != nil {
			f.poison(p.t, err)
			r.finish(p, false)
		}
	}
}

// attribute finds out whose writes were lost. Until somebody accounts for the report no part advances;
// then those do whose own files say that they are safe. SyncFS itself is not asked again: its second
// answer would be nil whatever happened. Targets poisoned after the first known ones account for it.
func (r *round) attribute(report error, known uint64) {
	f := r.f
	if errors.Is(report, ErrReadOnlyFS) {
		f.fail(report)
		r.verdict(false)
		return
	}
	r.goOneByOne()
	// Asking waits for flushes that are running, so what they found out is known after it.
	if f.poisonedSince(known) || r.explainedByParts() || f.askOthers() || f.poisonedSince(known) {
		r.verdict(true)
		return
	}
	f.fail(fmt.Errorf("%w: %w", ErrUnclaimed, report))
	r.verdict(false)
}

// explainedByParts waits until a part of the round has failed or all have been flushed.
func (r *round) explainedByParts() (explained bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		running := false
		for i := range r.parts {
			p := &r.parts[i]
			explained = explained || p.err != nil
			running = running || p.state == partWaiting || p.state == partRunning
		}
		if explained || !running {
			return explained
		}
		r.moved.Wait()
	}
}

func (f *Flusher) poisonedSince(known uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.poisonSeq > known
}

// verdict ends the wait of the parts that SyncFS left in doubt.
func (r *round) verdict(ok bool) {
	r.mu.Lock()
	r.hold = false
	var list []*part
	for i := range r.parts {
		if p := &r.parts[i]; p.state == partHeld || !ok {
			list = append(list, p)
		}
	}
	r.mu.Unlock()
	for _, p := range list {
		r.finish(p, ok)
	}
}

// askOthers flushes everything that may be unflushed of all targets, in a round or not, and of bulk
// writers, to find the file that lost writes. Poisoned targets are asked too: what they wrote since is lost in
// the same way.
func (f *Flusher) askOthers() (found bool) {
	f.mu.Lock()
	targets, bulks := slices.Clone(f.targets), slices.Clone(f.bulks)
	f.mu.Unlock()
	for _, t := range targets {
		found = f.ask(t) || found
	}
	for _, b := range bulks {
		found = b.ask() || found
	}
	return found
}

func (f *Flusher) ask(t *Target) (found bool) {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	poisoned := t.poison.Load() != nil
	for _, s := range t.suspects() {
		err := s.Sync()
		if err == nil || errors.Is(err, os.ErrClosed) && (poisoned || !t.Busy(s)) {
			continue
		}
		found = true
		f.spoil(s, t.name, err)
		f.poison(t, err)
	}
	return found
}

// pathOf is the name of a flush target where it knows one.
func pathOf(s Syncer) string {
	if p, ok := s.(interface{ Path() string }); ok {
		return p.Path()
	}
	return ""
}
