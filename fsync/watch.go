package fsync

import "time"

// watch looks at the round every LateAfter while any call of it runs.
func (r *round) watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.f.o.LateAfter, r.tick)
}

func (r *round) unwatch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil && !r.activeLocked() {
		r.timer.Stop()
	}
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
// lets the others go on without those that keep them waiting.
func (r *round) tick() {
	f := r.f
	now := f.o.Now()
	rescue := f.rescueAfter()
	r.mu.Lock()
	if !r.activeLocked() || f.Err() != nil {
		r.mu.Unlock()
		return
	}
	events, stalled := r.slowLocked(now)
	replaced := r.leaveLocked(now)
	help := r.whole && !r.workers && f.o.Strategy == Auto && now.Sub(r.began) >= rescue
	r.timer.Reset(f.o.LateAfter)
	r.signalLocked()
	r.mu.Unlock()

	for _, e := range events {
		f.emit(e)
	}
	if stalled != "" {
		f.fail(NewError("flush", stalled, ErrStalled))
		return
	}
	if help {
		r.startWorkers() // what each file says of itself counts as well
	}
	for range replaced {
		r.spawn(r.worker)
	}
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
		if p.state == partRunning && !p.left && now.Sub(p.since) >= f.o.LateAfter {
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
