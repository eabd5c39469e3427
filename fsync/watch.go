package fsync

import (
	"slices"
	"sync"
	"time"
)

// watcher looks at every round each LateAfter while any call of it runs. It has one timer for all,
// which runs on when a round ends in time: to set one for each round and to stop it costs as much as
// everything else that is done for a round of one file.
type watcher struct {
	mu     sync.Mutex
	rounds []*round
	timer  *time.Timer // nil before the first round
	armed  bool
}

// watch begins to look at the round.
func (r *round) watch() {
	f := r.f
	w := &f.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	r.due = r.began.Add(f.o.LateAfter)
	w.rounds = append(w.rounds, r)
	switch {
	case w.armed:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(f.o.LateAfter, f.look)
	default:
		w.timer.Reset(f.o.LateAfter)
	}
	w.armed = true
}

// unwatch ends that unless a call of the round still runs.
func (r *round) unwatch() {
	r.mu.Lock()
	active := r.activeLocked()
	r.mu.Unlock()
	if !active {
		r.f.watcher.forget(r)
	}
}

func (w *watcher) forget(r *round) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.rounds, r); i >= 0 {
		w.rounds = slices.Delete(w.rounds, i, i+1)
	}
}

// look looks at the rounds that are due and sets the timer for the next.
func (f *Flusher) look() {
	w := &f.watcher
	now := f.o.Now()
	var due []*round
	w.mu.Lock()
	for _, r := range w.rounds {
		if !now.Before(r.due) {
			r.due = now.Add(f.o.LateAfter)
			due = append(due, r)
		}
	}
	w.mu.Unlock()
	for _, r := range due {
		if !r.tick(now) {
			w.forget(r)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed = len(w.rounds) > 0; !w.armed {
		return
	}
	next := w.rounds[0].due
	for _, r := range w.rounds[1:] {
		if r.due.Before(next) {
			next = r.due
		}
	}
	w.timer.Reset(next.Sub(now))
}

// activeLocked reports whether a call of the round may still be running.
func (r *round) activeLocked() bool {
	if r.open > 0 || r.left > 0 || r.whole {
		return true
	}
	for i := range r.parts {
		if r.parts[i].worker {
			return true
		}
	}
	return false
}

// tick tells of slow calls while they are stuck, ends the node when one is stuck for too long, and
// lets the others go on without those that keep them waiting. It returns false when there is nothing
// more to look at.
func (r *round) tick(now time.Time) (active bool) {
	f := r.f
	rescue := f.rescueAfter()
	r.mu.Lock()
	if !r.activeLocked() || f.Err() != nil {
		r.mu.Unlock()
		return false
	}
	events, stalled := r.slowLocked(now)
	replaced := r.leaveLocked(now)
	help := r.whole && !r.workers && f.o.Strategy == Auto && now.Sub(r.began) >= rescue
	r.signalLocked()
	r.mu.Unlock()

	for _, e := range events {
		f.emit(e)
	}
	if stalled != "" {
		f.fail(NewError("flush", stalled, ErrStalled))
		return false
	}
	if help {
		r.startWorkers() // what each file says of itself counts as well
	}
	r.replace(replaced)
	return true
}

// slowLocked collects reports of calls that have been running for SlowAfter, each once, and names one
// that has been running for StallAfter.
func (r *round) slowLocked(now time.Time) (events []Event, stalled string) {
	o := &r.f.o
	if took := now.Sub(r.began); r.whole && took >= o.SlowAfter {
		path := pathOf(o.Root)
		if !r.wholeTold {
			r.wholeTold = true
			events = append(events, Event{Kind: EventFlushSlow, Path: path, Took: took})
		}
		if took >= o.StallAfter {
			stalled = path
		}
	}
	for i := range r.parts {
		p := &r.parts[i]
		took := now.Sub(p.since)
		if !p.worker || took < o.SlowAfter {
			continue
		}
		path := ""
		if p.at != nil {
			path = pathOf(p.at)
		}
		if !p.told {
			p.told = true
			events = append(events, Event{Kind: EventFlushSlow, Target: p.t.name, Path: path, Took: took})
		}
		if took >= o.StallAfter {
			stalled = p.t.name
		}
	}
	return events, stalled
}

// leaveLocked takes parts that have been running for LateAfter out of the round if others wait for
// them, and returns how many workers that costs.
func (r *round) leaveLocked(now time.Time) (left int) {
	f := r.f
	if r.apart || r.hold {
		return 0
	}
	var slow []*part
	for i := range r.parts {
		p := &r.parts[i]
		// A flush that has ended costs nobody a worker, though its target has not been told yet.
		if p.state == partRunning && p.worker && !p.left && now.Sub(p.since) >= f.o.LateAfter {
			slow = append(slow, p)
		}
	}
	if len(slow) == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(slow) == len(r.parts) && len(f.waiting) == 0 || !f.roomForLateLocked(len(slow), len(r.parts)) {
		return 0
	}
	for _, p := range slow {
		p.left = true
		f.apart++
		f.markLateLocked(p.t)
	}
	if r.solo {
		f.jobs.Add(1) // the loop that is stuck, a job from now on
	}
	r.open -= len(slow)
	r.left += len(slow)
	return len(slow)
}

// roomForLateLocked reports whether n slow targets of a round of total are few enough to be slow
// themselves; if many are, it is the disk.
func (f *Flusher) roomForLateLocked(n, total int) bool {
	return n <= max(1, total/8) && f.late+n <= lateMax
}

func (f *Flusher) markLateLocked(t *Target) {
	t.quick = 0
	if !t.late && t.slot >= 0 {
		t.late = true
		f.late++
	}
}

// returned ends a flush that a round had left.
func (f *Flusher) returned() {
	f.mu.Lock()
	f.apart--
	f.mu.Unlock()
	f.poke()
}

func (f *Flusher) isLate(t *Target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.late
}

// rescueAfter is how long SyncFS may take before the files of its round are flushed one by one too.
func (f *Flusher) rescueAfter() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.o.LateAfter, 4*f.wholeUsual)
}

// judgeLate learns from a round which targets are to be flushed alone, and no longer.
func (f *Flusher) judgeLate(r *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	var slow []*Target
	for i := range r.parts {
		p := &r.parts[i]
		switch {
		case p.left || p.worker || p.took == 0 && !r.apart:
		case p.took >= f.o.LateAfter:
			slow = append(slow, p.t)
		case p.t.late:
			if p.t.quick++; p.t.quick >= quickMin {
				p.t.late = false
				f.late--
			}
		}
	}
	for _, t := range slow {
		if t.late || f.roomForLateLocked(len(slow), len(r.parts)) {
			f.markLateLocked(t)
		}
	}
}
