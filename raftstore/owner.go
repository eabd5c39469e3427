package raftstore

import (
	"fmt"
	"sync/atomic"

	"weida/segment"
)

// owner is the Group with one replica: no term but its epoch, no vote, no peer (T-3). What is written
// is committed; what is flushed follows.
type owner struct {
	seat
	refs // the term is the epoch: raised and flushed by every open, so refs are never used twice

	// owned by the shard goroutine
	entries []roundData // written in this round, to be applied
}

var _ member = (*owner)(nil)

// refs gives out the body refs of one term, for inline and large bodies alike. Any goroutine.
type refs struct {
	term Term
	seq  atomic.Uint64 // given out last
}

func (r *refs) give() BodyRef { return BodyRef{Term: r.term, Seq: r.seq.Add(1)} }

// roundData is one entry written in the round.
type roundData struct {
	index Index
	data  []byte
}

// Propose implements Group. Digests of inline bodies are computed here, on the caller's goroutine.
func (o *owner) Propose(b *Batch) error {
	p, err := o.check(b)
	if err == nil && b.carries() {
		err = o.reserveKept()
	}
	if err != nil {
		return err
	}
	return o.take(p)
}

// reserveKept refuses messages where what is left of the disk is kept for commands without bodies.
func (o *owner) reserveKept() error {
	if !o.host.disk.isLow() {
		return nil
	}
	return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrDiskFull)
}

// NewBody implements Group.
func (o *owner) NewBody(n int64) (BodyWriter, error) {
	if n <= segment.InlineMax {
		panic("bug: raftstore: a body that fits inline in a file of its own")
	}
	if err := o.in.refusal(); err != nil {
		return nil, err
	}
	if err := o.reserveKept(); err != nil {
		return nil, err
	}
	ref := o.refs.give()
	f, err := o.log.NewBody(ref, n)
	if err != nil {
		return nil, fmt.Errorf("raftstore: group %d: body %v: %w", uint64(o.id), ref, storeError(err))
	}
	f.Account(o.host.disk.spend)
	return &bodyWriter{group: &o.seat, file: f, admits: o.reserveKept}, nil
}

// Reconfigure implements Group.
func (o *owner) Reconfigure(Change) error {
	return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrNoGroup)
}
