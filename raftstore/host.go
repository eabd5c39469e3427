package raftstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Host runs the groups of one node on its shards. Methods may be called from any goroutine; Step and
// Start exclude each other.
type Host struct {
	o      HostOptions
	shards []*shard
	pool   pool
	nodes  nodes
	beats  beats
	far    far
	disk   disk
	clock  atomic.Int64 // ticks, also those that no group was awake for
	scrub  scrubber

	mu sync.RWMutex
	// guarded by mu
	groups       map[GroupID]member // nil while a group is being opened
	started      bool
	stopping     bool
	snapshotting bool // a group holds the node's one place for a snapshot
	// closeErrs are of logs that could not be closed in order and were not opened again.
	closeErrs map[GroupID]error

	stop chan struct{} // ends the shards and the ticker
	done sync.WaitGroup
}

// NewHost returns a host without groups. Nothing runs before Start; without Start it is stepped.
func NewHost(o HostOptions) *Host {
	h := &Host{o: o.withDefaults(), groups: make(map[GroupID]member), stop: make(chan struct{})}
	h.pool.limit, h.disk.looks.limit, h.disk.host = h.o.JobWorkers, 1, h
	h.far.init(&h.o)
	h.far.dock.written = h.disk.spend
	h.scrub.init(h)
	for i := range h.o.Shards {
		h.shards = append(h.shards, newShard(h, i))
	}
	return h
}

// Step does one round of every shard and then the slow jobs that they began, all on the caller's
// goroutine and in a fixed order. It returns false if there was nothing to do. A flush is not part of
// it: the flusher is stepped by itself.
func (h *Host) Step() bool {
	h.disk.looks.runInline() // work for others only if it found something
	worked := false
	for _, s := range h.shards {
		worked = s.round() || worked
	}
	worked = h.pool.runInline() || worked
	return h.far.pool.runInline() || worked
}

// Tick lets time pass by one tick (100 ms by convention): replicas hear of it, and groups that did nothing
// for a while give their descriptors back. Heartbeats of the ticks before are sent. It never blocks, and
// its cost does not grow with the number of idle groups. Start calls it by itself.
func (h *Host) Tick() {
	h.clock.Add(1)
	h.disk.tick()
	if h.o.Transport != nil {
		h.sayDisk(true)
		h.far.tick()
	}
	h.scrub.tick()
	for _, s := range h.shards {
		s.tick()
	}
}

// Failed is closed when the node's storage failed as a whole: the process must end, with a status of
// its own, for nothing more will be flushed.
func (h *Host) Failed() <-chan struct{} { return h.o.Store.Flusher().Failed() }

// Err is why the storage failed, nil if it did not.
func (h *Host) Err() error { return h.o.Store.Flusher().Err() }

// Stop stops all groups (as Group.Stop) and ends what Start began. The store stays open. It returns
// the errors of logs that could not be flushed and closed in order; what they are worth is known when
// they are opened again.
func (h *Host) Stop() error {
	h.mu.Lock()
	h.stopping = true
	var open []*seat
	for _, m := range h.groups {
		if m != nil {
			open = append(open, m.common())
		}
	}
	h.mu.Unlock()
	sortSeats(open)
	for _, o := range open {
		o.beginStop()
	}
	for _, o := range open {
		o.Stop()
	}
	h.far.close()
	h.scrub.close()
	h.mu.Lock()
	started := h.started
	h.started = false
	h.mu.Unlock()
	if started {
		close(h.stop)
		h.done.Wait()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, g := range slices.Sorted(maps.Keys(h.closeErrs)) {
		errs = append(errs, h.closeErrs[g])
	}
	return errors.Join(errs...)
}

// reserve takes a group's place before it is opened.
func (h *Host) reserve(g GroupID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return ErrStopped
	}
	if _, ok := h.groups[g]; ok {
		return ErrOpen
	}
	h.groups[g] = nil
	delete(h.closeErrs, g) // what its log is worth is seen now
	return nil
}

// admit hands an opened group to its shard.
func (h *Host) admit(m member) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := m.common().id
	if h.stopping {
		delete(h.groups, g)
		return ErrStopped
	}
	h.groups[g] = m
	return nil
}

// forget gives a group's place back once its log is closed.
func (h *Host) forget(g GroupID, closeErr error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.groups, g)
	if closeErr != nil {
		if h.closeErrs == nil {
			h.closeErrs = make(map[GroupID]error)
		}
		h.closeErrs[g] = fmt.Errorf("raftstore: close group %d: %w", uint64(g), closeErr)
	}
}

// takeSnapshotSlot reserves the node's one place for a snapshot.
func (h *Host) takeSnapshotSlot() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.snapshotting {
		return false
	}
	h.snapshotting = true
	return true
}

func (h *Host) freeSnapshotSlot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.snapshotting {
		panic("bug: raftstore: snapshot slot freed twice")
	}
	h.snapshotting = false
}

func (h *Host) shardOf(g GroupID) *shard { return h.shards[uint64(g)%uint64(len(h.shards))] }
