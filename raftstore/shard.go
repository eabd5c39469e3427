package raftstore

import "sync"

// shard owns some groups: all calls to their machines and to the owner's side of their logs come from
// its rounds.
type shard struct {
	host   *Host
	id     int
	signal chan struct{} // one place: there is something to drain

	mu sync.Mutex
	// guarded by mu
	ready   []*owner // groups with work, each at most once
	flushed bool     // the flusher finished a round with one of our logs
	ticks   int      // not yet seen
	awoken  bool     // some group is not parked: ticks matter

	// owned by the shard goroutine
	groups   []*owner // of this round
	flushing []*owner // wait for a flush
	awake    []*owner // hold descriptors
	plan     plan
}

func newShard(h *Host, id int) *shard {
	return &shard{host: h, id: id, signal: make(chan struct{}, 1)}
}

// Wake implements fsync.Waker: marks rose or a log was poisoned. The marks themselves are read in the
// next round, so nothing is lost however many wakes become one.
func (s *shard) Wake() {
	s.mu.Lock()
	s.flushed = true
	s.mu.Unlock()
	s.poke()
}

func (s *shard) poke() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// enqueue says that the group has work.
func (s *shard) enqueue(o *owner) {
	s.mu.Lock()
	s.enqueueLocked(o)
	s.mu.Unlock()
	s.poke()
}

func (s *shard) enqueueLocked(o *owner) {
	if !o.queued {
		o.queued = true
		s.ready = append(s.ready, o)
	}
}

func (s *shard) requestStop(o *owner) {
	s.mu.Lock()
	o.stopReq = true
	s.enqueueLocked(o)
	s.mu.Unlock()
	s.poke()
}

func (s *shard) tick() {
	s.mu.Lock()
	matters := s.awoken
	if matters {
		s.ticks++
	}
	s.mu.Unlock()
	if matters {
		s.poke()
	}
}

// round does one round and reports whether there was anything to do. It never waits for a flush, a
// job or a peer. The steps are those of the picture in the package comment.
func (s *shard) round() bool {
	// 1. Drain: which groups have work, and did a flush or a tick come by.
	ticks, work := s.drain()
	if !work {
		return false
	}
	// 2. to 4. Plan batches, append each with one write, answer its proposals.
	budget, served := roundBytesShard, 0
	for i, o := range s.groups {
		if budget > 0 {
			served = i + 1
		}
		budget -= o.writeAll(&s.plan, budget)
	}
	// 5. Ask for flushes, after all writes, so that one flush round covers them.
	for _, o := range s.groups {
		if len(o.entries) > 0 {
			o.log.RequestFlush()
			s.awaitFlush(o)
		}
	}
	// 6. Take up flush marks and finished jobs.
	for _, o := range s.groups {
		o.advance()
	}
	// 7. Apply what is committed: in a group with one owner, all that is written.
	for _, o := range s.groups {
		o.apply(&s.plan)
	}
	// 8. Say once how far the marks moved, and give the buffers back.
	for _, o := range s.groups {
		o.moved()
	}
	// 9. Begin slow work; groups with work left come again, those for which nothing was left first.
	for _, o := range s.groups {
		o.beginTask()
		o.inRound = false
	}
	s.again(s.groups[served:])
	s.again(s.groups[:served])
	s.houseKeep(ticks)
	s.plan.reset()
	return true
}

func (s *shard) again(list []*owner) {
	for _, o := range list {
		if o.canWrite() {
			s.enqueue(o)
		}
	}
}

// drain fills s.groups in the order in which the groups asked.
func (s *shard) drain() (ticks int, work bool) {
	clear(s.groups)
	s.groups = s.groups[:0]
	s.mu.Lock()
	s.groups, s.ready = s.ready, s.groups
	flushed := s.flushed
	ticks, s.ticks, s.flushed = s.ticks, 0, false
	for _, o := range s.groups {
		o.queued = false
		o.stopping = o.stopping || o.stopReq
	}
	s.mu.Unlock()
	for _, o := range s.groups {
		o.inRound = true
		o.idle = 0
		if !o.awake {
			o.awake = true
			s.awake = append(s.awake, o)
		}
		o.pending = o.in.take(o.pending)
	}
	if flushed {
		for _, o := range s.flushing {
			if !o.inRound {
				o.inRound = true
				s.groups = append(s.groups, o)
			}
		}
	}
	return ticks, flushed || ticks > 0 || len(s.groups) > 0
}

func (s *shard) awaitFlush(o *owner) {
	if !o.flushing {
		o.flushing = true
		s.flushing = append(s.flushing, o)
	}
}

// houseKeep drops groups from the lists that have no more business there, and counts idle ticks.
func (s *shard) houseKeep(ticks int) {
	s.flushing = keep(s.flushing, func(o *owner) bool {
		o.flushing = o.awaitsFlush()
		return o.flushing
	})
	if ticks > 0 {
		s.awake = keep(s.awake, func(o *owner) bool {
			o.awake = o.tick(ticks)
			return o.awake
		})
	}
	s.mu.Lock()
	s.awoken = len(s.awake) > 0
	s.mu.Unlock()
}

// keep filters list in place.
func keep(list []*owner, want func(*owner) bool) []*owner {
	kept := list[:0]
	for _, o := range list {
		if want(o) {
			kept = append(kept, o)
		}
	}
	clear(list[len(kept):])
	if len(kept) == 0 && cap(kept) > 1024 {
		return nil
	}
	return kept
}
