package raftstore

import (
	"errors"
	"io"

	"go.etcd.io/raft/v3"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

// This file holds how a replica gets damaged bodies from the others: as it gets those that are missing, by ref, with
// length and digest of the commit record as the proof. Where the entry that names a body is gone, whoever was asked is
// trusted as with the bodies of a snapshot.

// mending reports whether the replica needs time to pass for what it mends.
func (r *replica) mending() bool { return len(r.mends.open) > 0 }

// mendAll is the part of step 3 that mends what is damaged.
func (r *replica) mendAll() {
	r.takeDamage(r.now)
	if len(r.held) == 0 && r.mendLocal() {
		r.appends = true
	}
	r.mendBodies()
}

func (r *replica) lookAt() (now int64, alone bool) { return r.now, r.alone() }

// mendBodies is the part of step 3 that writes bodies again which came for that.
func (r *replica) mendBodies() {
	if !r.mending() || r.halted != nil || off.mend {
		return
	}
	var again []wal.Body
	var of []*mend
	size := int64(segment.BatchOverhead)
	for _, m := range r.mends.open {
		if m.Kind != wal.DamagedBody && m.Kind != wal.DamagedLarge || m.end != (segment.Position{}) {
			continue
		}
		r.askAgain(m)
		it := r.gate.room.items[m.Ref]
		switch {
		case it == nil || !it.arrived():
		case it.settled != 0: // it is released here, too, as soon as what settled it is applied
			r.gate.room.remove(it)
		case it.file != nil:
			f := it.file
			it.file = nil
			r.gate.room.remove(it)
			if err := r.log.Replace(f); err != nil {
				r.halt(err)
				return
			}
			m.end, r.appends = r.log.End(), true
		default:
			if n := segment.SizeOf(refSize + len(it.payload)); size+n <= segment.BatchMax {
				size += n
				again, of = append(again, wal.Body{Ref: m.Ref, Payload: it.payload}), append(of, m)
			}
		}
	}
	if len(again) > 0 {
		r.rewrite(again, of)
	}
}

// rewrite writes bodies again under their refs.
func (r *replica) rewrite(again []wal.Body, of []*mend) {
	err := r.log.Rewrite(again)
	switch {
	case errors.Is(err, wal.ErrNotReady):
		r.stuck = true
		return
	case errors.Is(err, fsync.ErrDiskFull):
		r.diskFull(err)
		return
	case err != nil:
		r.halt(err)
		return
	}
	r.appends = true
	r.noting, r.noted = true, r.log.End()
	for _, m := range of {
		m.end = r.log.End()
		r.gate.room.remove(r.gate.room.items[m.Ref])
	}
	r.log.Trim() // what could not be copied out of a segment may be now
}

// askAgain has a damaged body asked for, as long as it is called again and again.
func (r *replica) askAgain(m *mend) {
	if m.Commit.Ref == (BodyRef{}) && m.Kind == wal.DamagedLarge {
		r.commitOf(m)
		if m.Commit.Ref == (BodyRef{}) {
			return // a reader knows what it has to be, and tells
		}
	}
	if m.Commit.Ref == (BodyRef{}) && !m.looked {
		m.looked = true
		m.Commit, m.Index = r.log.CommitOf(m.Ref)
	}
	if m.Commit.Ref == (BodyRef{}) {
		r.gate.room.want(max(r.last.Index, 1), segment.Commit{Ref: m.Ref})
		return
	}
	i := m.Index
	if i == 0 {
		i = max(r.last.Index, 1)
	}
	r.gate.room.mend(i, m.Commit)
}

// commitOf looks for what a large body has to be in the entry that names it.
func (r *replica) commitOf(m *mend) {
	if m.Index < r.log.First() || m.Index > r.log.Last().Index {
		return
	}
	list, err := r.log.Entries(m.Index, m.Index+1, segment.BatchMax)
	if err != nil || len(list) == 0 || list[0].Type != segment.EntryNormal {
		return
	}
	_ = segment.EachCommit(list[0].Data, func(c segment.Commit) error { // an entry that was checked
		if c.Ref == m.Ref {
			m.Commit = c
		}
		return nil
	})
}

// mend asks at once for a body that stands here and is damaged. What came by itself counts, if it is proved.
func (r *room) mend(i Index, c segment.Commit) {
	it := r.items[c.Ref]
	if it != nil && it.arrived() && !it.proves(c) {
		r.refuse(it)
		it = r.items[c.Ref]
	}
	if it == nil {
		it = &roomItem{ref: c.Ref, came: r.tick}
		r.items[c.Ref] = it
		r.needed.push(it)
	}
	fresh := it.need == nil
	r.claim(it, i, c)
	if fresh {
		it.need.next = r.tick
	}
}

// asideIfDamaged hands the leadership over if this replica could not mend itself within a moment.
func (r *replica) asideIfDamaged() {
	if !r.mending() || r.soft.RaftState != raft.StateLeader || r.now < r.mends.aside || off.mendAside {
		return
	}
	if r.now-r.mends.open[0].since <= MendGraceTicks || r.transferring() {
		return
	}
	r.mends.aside = r.now + mendAsideTicks
	r.wake()
	r.supply.stepAside()
}

// alone reports whether there is no other replica to get something from.
func (r *replica) alone() bool {
	others := 0
	r.others(func(NodeID) { others++ })
	return others == 0
}

// watchedBody is a large body that is being read: damage met on the way is noted.
type watchedBody struct {
	*wal.BodyReader
	seat *seat
}

// Read implements io.Reader.
func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.BodyReader.Read(p)
	return n, b.seat.readDamage(b.Commit(), err)
}

// WriteTo implements io.WriterTo.
func (b watchedBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.BodyReader.WriteTo(w)
	return n, b.seat.readDamage(b.Commit(), err)
}

// damageOf is the damage that an error of reading a body says, if it says one.
func damageOf(c segment.Commit, err error) (d wal.Damage, ok bool) {
	var corrupt *segment.CorruptError
	if !errors.As(err, &corrupt) {
		return d, false
	}
	d = wal.Damage{
		Kind: wal.DamagedBody, Path: corrupt.Path, Pos: corrupt.At.Pos, Segment: corrupt.At.Segment, Ref: c.Ref,
		Needed: true, Err: err,
	}
	if c.Large {
		d.Kind = wal.DamagedLarge
	}
	if c.Length >= 0 {
		d.Commit = c
	}
	return d, true
}

// readDamage notes that a body could not be read because it is damaged, and says so.
func (o *seat) readDamage(c segment.Commit, err error) error {
	d, ok := damageOf(c, err)
	if !ok {
		return err
	}
	o.hurt(d)
	o.mu.Lock()
	defer o.mu.Unlock()
	return &DamagedError{Group: o.id, Ref: c.Ref, Alone: o.status.Replication == nil, Err: err}
}
