package raftstore

import (
	"errors"
	"sync"
	"sync/atomic"

	"weida/fsync"
	"weida/wal"
)

// scrubber reads again, one group after the other, what the logs of a node hold on its disk: so many bytes a tick, on
// a worker, and a whole pass at most every so often. No round waits for it.
type scrubber struct {
	host    *Host
	perTick int64
	every   int64 // ticks
	found   atomic.Uint64
	mended  atomic.Uint64

	mu sync.Mutex
	// guarded by mu
	running bool  // a worker reads
	credit  int64 // bytes that may be read
	now     int64 // ticks
	begins  int64 // tick at which the next pass may begin
	inPass  bool
	left    []*seat    // of this pass; the first is under way
	scrub   *wal.Scrub // of the first; the worker's while it runs
	bytes   uint64
	passes  uint64
	ended   int64 // tick at which the last whole pass ended
	closed  bool
}

const (
	// ScrubBytesDefault is that of HostOptions: bytes a second.
	ScrubBytesDefault = 8 << 20
	// ScrubEveryDefault is that of HostOptions: ticks.
	ScrubEveryDefault = 24 * 3600 * ticksPerSecond

	scrubBeginsTicks = 60 * 10 // after how many ticks of a node's life the first pass begins, at most
)

// seatScrub is how far a group's scrub is, guarded by seat.mu.
type seatScrub struct {
	pass  uint64 // begun last
	done  uint64 // ended last, whole
	ended int64  // tick of that
	bytes uint64
}

// ScrubStats says how far the scrub of a node's disk is. Groups that are gone are counted.
type ScrubStats struct {
	Bytes  uint64 // read again
	Passes uint64 // over all groups
	// SincePass is how many ticks ago the last one ended, -1 if none did.
	SincePass int64
	Found     uint64 // damages
	Mended    uint64
	Open      int // of the groups that are here
}

func (s *scrubber) init(h *Host) {
	s.host, s.perTick, s.every = h, max(h.o.ScrubBytes/ticksPerSecond, 1), int64(h.o.ScrubEvery)
	s.begins = min(s.every, scrubBeginsTicks)
}

// tick lets time pass, and has a worker go on.
func (s *scrubber) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	s.credit = min(s.credit+s.perTick, s.perTick) // what was not used is not saved up
	if s.host.o.ScrubOff || s.running || s.closed || s.credit <= 0 {
		return
	}
	if !s.inPass && !s.beginLocked() {
		return
	}
	s.running = true
	s.host.pool.submit(s.run)
}

// beginLocked begins a pass if it is time.
func (s *scrubber) beginLocked() bool {
	if s.now < s.begins {
		return false
	}
	s.left = s.host.seats()
	s.inPass = len(s.left) > 0
	s.begins = s.now + s.every
	return s.inPass
}

// run reads on, as far as the tick's bytes go; a worker does it.
func (s *scrubber) run() {
	for {
		s.mu.Lock()
		if s.credit <= 0 || len(s.left) == 0 || s.closed {
			s.stopLocked()
			s.mu.Unlock()
			return
		}
		o, credit := s.left[0], s.credit
		s.mu.Unlock()
		if s.scrub == nil {
			o.mu.Lock()
			o.scrub.pass++
			o.mu.Unlock()
			s.scrub = o.log.NewScrub(o.hurt)
		}
		n, done, err := s.scrub.Step(credit)
		if err != nil {
			s.scrub.Close()
			if !errors.Is(err, fsync.ErrClosed) {
				s.host.o.Event(Event{Kind: JobFailed, Group: o.id, Err: err})
			}
		}
		s.read(o, n, done && err == nil, done || err != nil)
	}
}

// read counts what was read of a group; over says that its scrub is over, whole that it came to the end.
func (s *scrubber) read(o *seat, n int64, whole, over bool) {
	s.mu.Lock()
	s.credit -= n
	s.bytes += uint64(n)
	now := s.now
	if over {
		s.scrub = nil
		s.left[0] = nil
		s.left = s.left[1:]
	}
	s.mu.Unlock()
	o.mu.Lock()
	o.scrub.bytes += uint64(n)
	if whole {
		o.scrub.done, o.scrub.ended = o.scrub.pass, now
	}
	news := whole && o.status.Damage.Open > 0 // it may be over; an idle group is not woken for nothing
	o.mu.Unlock()
	if news {
		o.shard.enqueue(o.as)
	}
}

// stopLocked ends what a worker does for now.
func (s *scrubber) stopLocked() {
	s.running = false
	if s.closed && s.scrub != nil {
		s.scrub.Close()
		s.scrub = nil
	}
	if s.inPass && len(s.left) == 0 {
		s.inPass, s.left = false, nil
		s.passes++
		s.ended = s.now
	}
}

// close ends it; what a worker does is over when the pool is.
func (s *scrubber) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if !s.running {
		s.stopLocked()
	}
}

// Scrub says how far the scrub of this node's disk is. Any goroutine.
func (h *Host) Scrub() ScrubStats {
	s := &h.scrub
	st := ScrubStats{Found: s.found.Load(), Mended: s.mended.Load()}
	for _, o := range h.seats() {
		o.mu.Lock()
		st.Open += o.status.Damage.Open
		o.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Bytes, st.Passes, st.SincePass = s.bytes, s.passes, -1
	if s.passes > 0 {
		st.SincePass = s.now - s.ended
	}
	return st
}

// seats are the groups that are open, in order.
func (h *Host) seats() (list []*seat) {
	h.mu.RLock()
	for _, m := range h.groups {
		if m != nil {
			list = append(list, m.common())
		}
	}
	h.mu.RUnlock()
	sortSeats(list)
	return list
}

// since is how many ticks ago a tick was.
func (s *scrubber) since(tick int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now - tick
}
