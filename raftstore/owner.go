package raftstore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"weida/segment"
	"weida/wal"
)

// owner is the Group with one replica: no term but its epoch, no vote, no peer (T-3). What is written
// is committed; what is flushed follows.
type owner struct {
	host    *Host
	shard   *shard
	id      GroupID
	log     *wal.Log
	machine Machine
	term    Term          // the epoch: raised and flushed by every open, so refs are never used twice
	seq     atomic.Uint64 // last ref given out in this term, for inline and large bodies alike
	in      inbox
	stopped chan struct{} // closed when the machine will not be called again

	queued  bool // in the shard's list of groups with work; guarded by shard.mu
	stopReq bool // guarded by shard.mu

	mu sync.Mutex
	// guarded by mu
	status   Status // without Store and Inbox
	taskDone bool
	taskErr  error

	// owned by the shard goroutine
	pending  []proposal // taken from the inbox, not answered, oldest at next
	next     int
	written  []proposal  // answered in this round, freed at its end
	entries  []roundData // written in this round, to be applied
	marks    Marks
	told     Marks    // what the machine knows
	last     wal.Mark // applied
	stuck    bool     // the log said ErrNotReady: wait for its job
	jobTold  bool     // that jobs fail
	full     bool     // the last append met a full disk
	halted   error
	task     taskKind
	stopping bool
	gone     bool // the log is closed
	finished bool
	closeErr error
	inRound  bool // in the shard's round list
	flushing bool // in the shard's flushing list
	awake    bool // in the shard's awake list
	idle     int  // ticks without work
	snap     snapshotState
	releases releases
}

// roundData is one entry written in the round.
type roundData struct {
	index Index
	data  []byte
}

// taskKind is what a worker does for the group; at most one at a time.
type taskKind uint8

const (
	noTask taskKind = iota
	logTask
	snapshotTask
	commitTask
	abortTask
	closeTask
)

// Propose implements Group. Digests of inline bodies are computed here, on the caller's goroutine.
func (o *owner) Propose(b *Batch) error {
	p := proposal{batch: b}
	for i := range b.Items {
		it := &b.Items[i]
		switch {
		case !it.HasBody:
			if it.Large != nil || len(it.Inline) != 0 {
				panic("bug: raftstore: an item without HasBody carries a body")
			}
		case it.Large != nil:
			w, ok := it.Large.(*bodyWriter)
			if !ok || w.owner != o {
				return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrBody)
			}
		case len(it.Inline) > segment.InlineMax:
			return fmt.Errorf("raftstore: group %d: inline body of %d bytes: %w", uint64(o.id), len(it.Inline), ErrTooLarge)
		}
		p.size += itemSize(it)
	}
	if p.size > MaxBatchBytes {
		return fmt.Errorf("raftstore: group %d: batch of %d bytes: %w", uint64(o.id), p.size, ErrTooLarge)
	}
	for i := range b.Items {
		it := &b.Items[i]
		if it.HasBody && it.Large == nil {
			it.Body = segment.Commit{Length: int64(len(it.Inline)), Digest: segment.DigestOf(it.Inline)}
		}
	}
	if err := claimBodies(b.Items); err != nil {
		return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), err)
	}
	if err := o.in.put(p, o.host.o.InboxMessages, o.host.o.InboxBytes); err != nil {
		freeBodies(b.Items)
		return err
	}
	o.shard.enqueue(o)
	return nil
}

// NewBody implements Group.
func (o *owner) NewBody(n int64) (BodyWriter, error) {
	if n <= segment.InlineMax {
		panic("bug: raftstore: a body that fits inline in a file of its own")
	}
	if err := o.in.refusal(); err != nil {
		return nil, err
	}
	ref := BodyRef{Term: o.term, Seq: o.seq.Add(1)}
	f, err := o.log.NewBody(ref, n)
	if err != nil {
		return nil, fmt.Errorf("raftstore: group %d: body %v: %w", uint64(o.id), ref, storeError(err))
	}
	return &bodyWriter{owner: o, file: f}, nil
}

// OpenBody implements Group.
func (o *owner) OpenBody(c segment.Commit) (BodyReader, error) {
	r, err := o.log.OpenBody(c)
	if err != nil {
		return nil, fmt.Errorf("raftstore: group %d: body %v: %w", uint64(o.id), c.Ref, err)
	}
	return r, nil
}

// Reconfigure implements Group.
func (o *owner) Reconfigure(Change) error {
	return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrNoGroup)
}

// Status implements Group.
func (o *owner) Status() Status {
	o.mu.Lock()
	st := o.status
	o.mu.Unlock()
	st.Inbox = o.in.waiting()
	st.Store = o.log.Stats()
	return st
}

// Stop implements Group. It must not be called from the machine.
func (o *owner) Stop() {
	o.beginStop()
	o.host.drive(o.stopped)
	<-o.stopped
}

func (o *owner) beginStop() {
	o.in.close(fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrStopped))
	o.shard.requestStop(o)
}

// publish makes the round's outcome visible to Status.
func (o *owner) publish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status.Marks = o.marks
	o.status.First = o.log.First()
	o.status.ReadOnly = o.halted
	if o.halted == nil && o.full {
		o.status.ReadOnly = ErrDiskFull
	}
}
