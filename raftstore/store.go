package raftstore

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

// heldAppend is one of raft's appends, made ready to be written: batches of one write each, in order, and what is said
// when they are durable. Where there is no room it is held back, and all that follow behind it: to raft it is a
// slow disk.
type heldAppend struct {
	batches  []batch
	truncate Index // of the first; 0 for none
	last     Index // of the last entry; 0 if there is none
	answer   owed
	planned  planned    // if the entry is a proposal's
	list     []proposal // taken out of the pending ones, if it is held
}

// batch is one write.
type batch struct {
	app     wal.Append
	entries []*raftpb.Entry
}

// keep writes what raft wants stored.
func (r *replica) keep(m *raftpb.Message) {
	h := heldAppend{answer: owed{hard: r.hard.version, list: m.GetResponses()}}
	if list := m.GetEntries(); len(list) > 0 {
		h.planned, r.planned = r.planned, planned{}
		r.batches(&h, list)
	}
	if len(r.held) == 0 && r.write(&h) {
		return
	}
	if h.planned.index != 0 {
		h.list = slices.Clone(r.pop(h.planned.proposals))
	}
	if r.halted == nil {
		r.held = append(r.held, h)
	} else {
		r.lose(&h, r.halted)
	}
}

// batches cuts entries into writes, each entry behind the bodies that it names.
func (r *replica) batches(h *heldAppend, list []*raftpb.Entry) {
	first := Index(list[0].GetIndex())
	last := r.log.Last().Index
	if n := len(r.held); n > 0 && r.held[n-1].last != 0 {
		last = r.held[n-1].last
	}
	if first <= last {
		h.truncate = first
	}
	h.last = Index(list[len(list)-1].GetIndex())
	b := batch{app: wal.Append{Truncate: h.truncate}}
	for i, e := range list {
		one := wal.Append{Entries: []segment.Entry{fromRaftEntry(e)}}
		if h.planned.index != 0 && Index(e.GetIndex()) == h.planned.index {
			one.Bodies, one.Large = h.planned.app.Bodies, h.planned.app.Large
		} else {
			r.gate.room.give(&one.Entries[0], &one)
		}
		if i > 0 && b.app.Size()+one.Size() > segment.BatchMax {
			h.batches = append(h.batches, b)
			b = batch{}
		}
		b.app.Bodies = append(b.app.Bodies, one.Bodies...)
		b.app.Large = append(b.app.Large, one.Large...)
		b.app.Voids = append(b.app.Voids, one.Voids...)
		b.app.Entries = append(b.app.Entries, one.Entries...)
		b.entries = append(b.entries, e)
	}
	h.batches = append(h.batches, b)
}

// write writes the batches that are left. It returns false if it could not write all of them now.
func (r *replica) write(h *heldAppend) bool {
	for len(h.batches) > 0 {
		b := &h.batches[0]
		b.app.Commit = min(r.commit, b.app.Entries[len(b.app.Entries)-1].Index)
		err := r.log.Append(&b.app)
		switch {
		case err == nil:
			r.wroteBatch(b)
			h.batches = h.batches[1:]
		case errors.Is(err, wal.ErrNotReady):
			r.stuck = true
			return false
		case errors.Is(err, fsync.ErrDiskFull):
			r.diskFull(err)
			return false
		default:
			r.halt(err)
			return false
		}
	}
	if h.truncate != 0 {
		r.answers.truncated(h.truncate, h.last)
	}
	h.answer.need = h.last
	if h.answer.at = r.now; len(h.answer.list) > 0 {
		r.answers.push(h.answer)
	}
	if h.planned.index != 0 {
		r.accept(h)
	}
	return true
}

// wroteBatch takes note of what stands in the log now.
func (r *replica) wroteBatch(b *batch) {
	r.appends = true
	r.host.disk.spend(b.app.Size())
	r.fullOver()
	if t := b.app.Truncate; t != 0 {
		r.truncated(t)
	}
	r.store.wrote(b.entries)
	for i := range b.app.Entries {
		e := &b.app.Entries[i]
		r.snap.grown += int64(len(e.Data))
		if e.Type == segment.EntryConfChangeV2 {
			r.noteChange(e.Index, e.Data)
		}
	}
	for i := range b.app.Bodies {
		r.snap.grown += int64(len(b.app.Bodies[i].Payload))
	}
	r.marks.Written = r.log.Last().Index
	r.marks.Flushed = r.log.Flushed().Index
}

// truncated forgets what was known of entries that another leader's replace.
func (r *replica) truncated(from Index) {
	for n := len(r.changes); n > 0 && r.changes[n-1].index >= from; n-- {
		r.changes = r.changes[:n-1]
	}
	r.store.truncate(from)
}

// noteChange keeps a change of configuration in mind until it is applied or truncated.
func (r *replica) noteChange(i Index, data []byte) {
	c, err := parseChange(data)
	if err != nil {
		panic(fmt.Sprintf("bug: raftstore: the change in entry %d can't be read: %v", uint64(i), err))
	}
	r.changes = append(r.changes, pendingConfig{index: i, members: c.members})
}

// accept answers the proposals: they are entry (term, index), written.
func (r *replica) accept(h *heldAppend) {
	list := h.list
	if list == nil {
		list = r.pop(h.planned.proposals)
		defer clear(list)
	}
	for _, q := range list {
		r.in.answered(q)
		r.machine.Appended(q.batch.Tag, h.planned.term, h.planned.index)
		r.written = append(r.written, q)
		r.pushBodies(q.batch.Items)
	}
}

// retryHeld writes what was held back, as far as there is room now.
func (r *replica) retryHeld() {
	for len(r.held) > 0 && r.write(&r.held[0]) {
		r.held[0] = heldAppend{}
		r.held = r.held[1:]
	}
	if len(r.held) == 0 {
		r.held = nil
	}
}

// loseHeld answers the proposals of what is not written any more.
func (r *replica) loseHeld(why error) {
	for i := range r.held {
		r.lose(&r.held[i], why)
	}
	r.held = nil
}

// lose answers the proposals of one append: others may have the entry.
func (r *replica) lose(h *heldAppend, why error) {
	for _, q := range h.list {
		r.dropOne(q, Outcome{Kind: Indeterminate, Err: why})
	}
}
