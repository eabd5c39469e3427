package raftstore

import (
	"fmt"
	"sync"

	"weida/segment"
	"weida/wal"
)

// member is a group on a shard, as a round sees it: an *owner or a *replica. The methods are called by
// the shard, in the order of a round's steps.
type member interface {
	common() *seat
	advance()                                // 2. takes up what finished since the last round
	writeAll(p *plan, budget int) (cost int) // 3. and 4.
	wrote() bool                             // 5. something was appended whose flush is to be asked for
	apply(p *plan)                           // 6.
	moved()                                  // 7.
	beginTask()                              // 8.
	canWrite() bool                          // there is work for another round
	news(n NodeID) bool                      // a node came or went; true if that is work for this round
	ticked(n int) bool                       // before a round in which time passed; true if the group takes part in it
	tick(n int) bool                         // after it; false if no more ticks matter
	onHalt()                                 // the group turned read-only
	shrink()                                 // gives idle memory back
	lookAt() (now int64, alone bool)         // the time, and that there is no other replica to get something from
	wrapSnapshot(src Source) Source          // what is written as a snapshot; WriteTo runs on a worker
	maySnapshot() bool                       // a snapshot may be begun: none is arriving
	snapshotOver()                           // it is committed, or given up
	snapshotTaken()                          // the snapshot at seat.snap.mark is flushed and named
}

// seat is what every group on a shard has, whoever decides for it: its log, its machine, its inbox, the
// slow work and the snapshots.
type seat struct {
	as      member // this group
	host    *Host
	shard   *shard
	id      GroupID
	log     *wal.Log
	machine Machine
	in      inbox
	stopped chan struct{} // closed when the machine will not be called again

	queued  bool // in the shard's list of groups with work; guarded by shard.mu
	stopReq bool // guarded by shard.mu

	mu sync.Mutex
	// guarded by mu
	status Status // without Store and Inbox
	ended  taskEnd
	hurts  []hurt
	scrub  seatScrub

	// owned by the shard goroutine
	pending  []proposal // taken from the inbox, not answered, oldest at next
	next     int
	written  []proposal // answered in this round, freed at its end
	marks    Marks
	told     Marks    // what the machine knows
	last     wal.Mark // applied
	stuck    bool     // the log said ErrNotReady: wait for its job
	jobTold  bool     // that jobs fail
	full     bool     // the last append met a full disk
	short    error    // why messages are not taken for want of room, nil if they are
	halted   error
	task     taskKind
	stopping bool
	gone     bool // the log is closed
	finished bool
	closeErr error
	inRound  bool // in the shard's round list
	seated   bool // in the shard's list of all, at place
	place    int
	flushing bool // in the shard's flushing list
	expects  bool // a flush of what is no entry would be news
	awake    bool // in the shard's awake list
	idle     int  // ticks without work
	snap     snapshotState
	releases releases
	mends    mends
	noted    segment.Position // up to there the log is to be flushed, besides its entries
	noting   bool             // as of the last time that the log was asked, it is not
}

func (o *seat) common() *seat { return o }

// sit gives a group its place; until its inbox is opened, proposals are refused.
func (o *seat) sit(as member, h *Host, g GroupID, log *wal.Log, m Machine) {
	o.as, o.host, o.shard, o.id, o.log, o.machine = as, h, h.shardOf(g), g, log, m
	o.stopped = make(chan struct{})
	o.in.close(errOpening)
	log.SetWaker(o.shard)
}

// check is what Propose may refuse about a batch on the caller's goroutine. It computes the digests of inline
// bodies and what the batch costs.
func (o *seat) check(b *Batch) (p proposal, err error) {
	p.batch = b
	for i := range b.Items {
		it := &b.Items[i]
		switch {
		case !it.HasBody:
			if it.Large != nil || len(it.Inline) != 0 {
				panic("bug: raftstore: an item without HasBody carries a body")
			}
		case it.Large != nil:
			w, ok := it.Large.(*bodyWriter)
			if !ok || w.group != o {
				return p, fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrBody)
			}
		case len(it.Inline) > segment.InlineMax:
			return p, fmt.Errorf("raftstore: group %d: inline body of %d bytes: %w", uint64(o.id), len(it.Inline), ErrTooLarge)
		}
		p.size += itemSize(it)
	}
	if p.size > MaxBatchBytes {
		return p, fmt.Errorf("raftstore: group %d: batch of %d bytes: %w", uint64(o.id), p.size, ErrTooLarge)
	}
	for i := range b.Items {
		it := &b.Items[i]
		if it.HasBody && it.Large == nil {
			it.Body = segment.Commit{Length: int64(len(it.Inline)), Digest: segment.DigestOf(it.Inline)}
		}
	}
	return p, nil
}

// take puts a checked proposal into the inbox.
func (o *seat) take(p proposal) error {
	if err := claimBodies(p.batch.Items); err != nil {
		return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), err)
	}
	if err := o.in.put(p, o.host.o.InboxMessages, o.host.o.InboxBytes); err != nil {
		freeBodies(p.batch.Items)
		return err
	}
	o.shard.enqueue(o.as)
	return nil
}

// OpenBody implements Group.
func (o *seat) OpenBody(c segment.Commit) (BodyReader, error) {
	r, err := o.log.OpenBody(c)
	if err != nil {
		return nil, fmt.Errorf("raftstore: group %d: body %v: %w", uint64(o.id), c.Ref, o.readDamage(c, err))
	}
	if c.Large {
		return watchedBody{r, o}, nil
	}
	return r, nil
}

// Status implements Group.
func (o *seat) Status() Status {
	o.mu.Lock()
	st := o.status
	scrub := o.scrub
	o.mu.Unlock()
	st.Damage.Scrubbed, st.Damage.Passes, st.Damage.SincePass = scrub.bytes, scrub.done, -1
	if scrub.done > 0 {
		st.Damage.SincePass = o.host.scrub.since(scrub.ended)
	}
	if st.Replication != nil {
		st.Replication = st.Replication.aged(o.host.clock.Load())
	}
	st.Inbox = o.in.waiting()
	st.Store = o.log.Stats()
	return st
}

// Stop implements Group. It must not be called from the machine.
func (o *seat) Stop() {
	o.beginStop()
	o.host.drive(o.stopped)
	<-o.stopped
}

func (o *seat) beginStop() {
	o.in.close(fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrStopped))
	o.shard.requestStop(o.as)
}

// publish makes the round's outcome visible to Status.
func (o *seat) publish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status.Marks = o.marks
	o.status.First = o.log.First()
	o.status.ReadOnly = o.halted
	was := o.status.Damaged
	o.status.Damage, o.status.Damaged = o.damage(o.as.lookAt())
	if err := o.status.Damaged; err != nil && was == nil && !o.mends.failed {
		o.mends.failed = true
		o.host.o.Event(Event{Kind: DamageStays, Group: o.id, Err: err})
	}
	switch {
	case o.halted != nil:
	case o.short != nil:
		o.status.ReadOnly = o.short
	case o.full:
		o.status.ReadOnly = ErrDiskFull
	}
}
