package fsync

import (
	"slices"
	"sync"
	"time"
)

// watcher looks at every round, as often as others have waited for it as long as they should (patience),
// while any call of it runs. It has one timer for all, which runs on when a round ends in time: to set
// one for each round and to stop it costs as much as everything else that is done for a round of one file.
type watcher struct {
	mu     sync.Mutex
	rounds []*round
	timer  *time.Timer // nil before the first round
	armed  bool
	at     time.Time // when the timer rings, if armed
}

// watch begins to look at the round.
func (r *round) watch() {
	f := r.f
	patience := f.patience()
	w := &f.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	r.due = r.began.Add(patience)
	w.rounds = append(w.rounds, r)
	switch {
	case w.armed && !r.due.Before(w.at):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(patience, f.look)
	default:
		w.timer.Reset(patience)
	}
	w.armed, w.at = true, r.due
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
	now, patience := f.o.Now(), f.patience()
	var due []*round
	w.mu.Lock()
	for _, r := range w.rounds {
		if !now.Before(r.due) {
			r.due = now.Add(patience)
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
	w.at = next
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

// leaveLocked takes parts out of the round for which others wait longer than they should, and returns
// how many workers that costs. Whether it is the file that is slow, or the disk had a bad moment, shows
// when they come back (judgeLeft).
func (r *round) leaveLocked(now time.Time) (left int) {
	f := r.f
	if r.apart || r.hold {
		return 0
	}
	patience := f.patience()
	var slow []*part
	for i := range r.parts {
		p := &r.parts[i]
		// A flush that has ended costs nobody a worker, though its target has not been told yet.
		if p.state == partRunning && p.worker && !p.left && now.Sub(p.since) >= patience {
			slow = append(slow, p)
		}
	}
	if len(slow) == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(slow) == len(r.parts) && len(f.waiting) == 0 || !roomFor(len(slow), len(r.parts), f.apart) {
		return 0
	}
	for _, p := range slow {
		p.left, p.leftAt = true, f.inTime
		f.apart++
	}
	if r.solo {
		f.jobs.Add(1) // the loop that is stuck, a job from now on
	}
	r.open -= len(slow)
	r.left += len(slow)
	return len(slow)
}

// roomFor reports whether n slow targets of a round of total, beside so many others, are few enough to
// be slow themselves; if many are, it is the disk.
func roomFor(n, total, others int) bool {
	return n <= max(1, total/8) && others+n <= lateMax
}

func (f *Flusher) markLateLocked(t *Target) {
	t.quick = 0
	if !t.late && t.slot >= 0 {
		t.late = true
		f.late++
	}
}

// judgeLeft marks the target of a part that its round had left as late if others were flushed in time
// meanwhile: it is slow itself.
func (f *Flusher) judgeLeft(p *part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inTime >= p.leftAt+overtakenMin && f.late < lateMax {
		f.markLateLocked(p.t)
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

// patience is how long a target's flush may keep a round that others wait for: many times what flushes
// take, LateAfter as long as that is not known, and at most.
func (f *Flusher) patience() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.patienceLocked()
}

func (f *Flusher) patienceLocked() time.Duration {
	if f.flushes < usualMin {
		return f.o.LateAfter
	}
	return min(f.o.LateAfter, max(patienceMin, patienceTimes*f.usual))
}

// rescueAfter is how long SyncFS may take before the files of its round are flushed one by one too.
func (f *Flusher) rescueAfter() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := max(f.o.LateAfter, 4*f.wholeUsual)
	if f.stats.WholeRounds < usualMin {
		return most
	}
	return min(most, max(patienceMin, patienceTimes*f.wholeUsual))
}

// judgeLate learns from a round which targets are to be flushed alone, and no longer.
func (f *Flusher) judgeLate(r *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	var slow []*Target
	patience, inTime := f.patienceLocked(), false
	for i := range r.parts {
		p := &r.parts[i]
		inTime = inTime || !p.left && !r.apart
		switch {
		case p.left || p.worker || p.took == 0 && !r.apart:
			continue
		case p.took >= f.o.LateAfter, p.t.late && p.took >= patience:
			slow = append(slow, p.t)
		case p.t.late:
			if p.t.quick++; p.t.quick >= quickMin {
				p.t.late = false
				f.late--
			}
		}
		f.learnLocked(p.took)
	}
	if inTime {
		f.inTime++
	}
	for _, t := range slow {
		if t.late || roomFor(len(slow), len(r.parts), f.late) {
			f.markLateLocked(t)
		}
	}
}

// learnLocked takes what the flush of one target took into what is usual.
func (f *Flusher) learnLocked(took time.Duration) {
	f.flushes++
	f.usual += (min(took, f.o.LateAfter) - f.usual) / 8
}
