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
	ready   []member // groups with work, each at most once
	flushed bool     // the flusher finished a round with one of our logs
	ticks   int      // not yet seen
	news    []NodeID // that came or went
	awoken  bool     // some group is not parked, or is a replica that is not quiet: ticks matter

	// owned by the shard goroutine
	groups   []member // of this round
	flushing []member // wait for a flush
	awake    []member // hold descriptors, or have to be ticked
	members  []member // all
	plan     plan
	out      outbox
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
func (s *shard) enqueue(m member) {
	s.mu.Lock()
	s.enqueueLocked(m)
	s.mu.Unlock()
	s.poke()
}

func (s *shard) enqueueLocked(m member) {
	if g := m.common(); !g.queued {
		g.queued = true
		s.ready = append(s.ready, m)
	}
}

func (s *shard) requestStop(m member) {
	s.mu.Lock()
	m.common().stopReq = true
	s.enqueueLocked(m)
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
	// 2. Take up flush marks and finished jobs.
	for _, m := range s.groups {
		m.advance()
	}
	// 3. and 4. Plan batches, append each with one write, answer its proposals.
	budget, served := roundBytesShard, 0
	for i, m := range s.groups {
		if budget > 0 {
			served = i + 1
		}
		budget -= m.writeAll(&s.plan, budget)
	}
	// 5. Tell the peers. Ask for flushes, after all writes, so that one flush round covers them.
	s.out.send(s.host.o.Transport, s.id)
	for _, m := range s.groups {
		if m.wrote() {
			m.common().log.RequestFlush()
			s.awaitFlush(m)
		}
	}
	// 6. Apply what is committed: in a group with one owner, all that is written.
	for _, m := range s.groups {
		m.apply(&s.plan)
	}
	s.out.send(s.host.o.Transport, s.id) // what followed from applying
	// 7. Say once how far the marks moved, and give the buffers back.
	for _, m := range s.groups {
		m.moved()
	}
	// 8. Begin slow work; groups with work left come again, those for which nothing was left first.
	for _, m := range s.groups {
		m.beginTask()
		m.common().inRound = false
	}
	s.again(s.groups[served:])
	s.again(s.groups[:served])
	s.houseKeep(ticks)
	s.plan.reset()
	return true
}

func (s *shard) again(list []member) {
	for _, m := range list {
		if m.canWrite() {
			s.enqueue(m)
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
	news := s.news
	s.news = nil
	for _, m := range s.groups {
		g := m.common()
		g.queued = false
		g.stopping = g.stopping || g.stopReq
	}
	s.mu.Unlock()
	for _, m := range s.groups {
		g := m.common()
		g.inRound = true
		g.idle = 0
		if !g.seated {
			g.seated, g.place = true, len(s.members)
			s.members = append(s.members, m)
		}
		s.wake(m)
		g.pending = g.in.take(g.pending)
	}
	if flushed {
		for _, m := range s.flushing {
			if m.common().log.FlushEnded() { // not those that wait for the next one
				s.join(m)
			}
		}
	}
	for _, n := range news {
		for _, m := range s.members {
			if m.news(n) {
				s.wake(m)
				s.join(m)
			}
		}
	}
	if ticks > 0 {
		for _, m := range s.awake {
			if m.ticked(ticks) {
				s.join(m)
			}
		}
	}
	return ticks, flushed || ticks > 0 || len(s.groups) > 0
}

// wake puts a group on the list of those that matter to ticks.
func (s *shard) wake(m member) {
	if g := m.common(); !g.awake {
		g.awake = true
		s.awake = append(s.awake, m)
	}
}

// leave takes a group that ended off the list of all.
func (s *shard) leave(g *seat) {
	if !g.seated {
		return
	}
	last := len(s.members) - 1
	s.members[g.place] = s.members[last]
	s.members[g.place].common().place = g.place
	s.members[last] = nil
	s.members = s.members[:last]
	g.seated = false
}

// nodeNews says that a node came or went.
func (s *shard) nodeNews(n NodeID) {
	s.mu.Lock()
	s.news = append(s.news, n)
	s.mu.Unlock()
	s.poke()
}

// join takes a group into the round that did not ask itself.
func (s *shard) join(m member) {
	if g := m.common(); !g.inRound {
		g.inRound = true
		s.groups = append(s.groups, m)
	}
}

func (s *shard) awaitFlush(m member) {
	if g := m.common(); !g.flushing {
		g.flushing = true
		s.flushing = append(s.flushing, m)
	}
}

// houseKeep drops groups from the lists that have no more business there, and counts idle ticks.
func (s *shard) houseKeep(ticks int) {
	s.flushing = keep(s.flushing, func(m member) bool {
		g := m.common()
		g.flushing = g.awaitsFlush()
		return g.flushing
	})
	if ticks > 0 {
		s.awake = keep(s.awake, func(m member) bool {
			g := m.common()
			g.awake = m.tick(ticks)
			return g.awake
		})
	}
	s.mu.Lock()
	s.awoken = len(s.awake) > 0
	s.mu.Unlock()
}

// keep filters list in place.
func keep(list []member, want func(member) bool) []member {
	kept := list[:0]
	for _, m := range list {
		if want(m) {
			kept = append(kept, m)
		}
	}
	clear(list[len(kept):])
	if len(kept) == 0 && cap(kept) > 1024 {
		return nil
	}
	return kept
}
