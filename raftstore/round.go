package raftstore

import (
	"errors"
	"fmt"

	"weida/fsync"
	"weida/wal"
)

// This file holds what a round does to one group, in the order of the steps.

// canWrite reports whether the next round could write pending proposals.
func (o *owner) canWrite() bool { return o.next < len(o.pending) && !o.stuck }

// writeAll is steps 3 and 4: it writes pending proposals until they or the budget are used up, or the
// log needs a job first, and returns what they cost. What can't be written any more is refused.
func (o *owner) writeAll(p *plan, budget int) (used int) {
	if why := o.refusal(); why != nil {
		o.refuseAll(why)
		return 0
	}
	if o.next < len(o.pending) && o.task == noTask {
		o.stuck = false // new work: try again what failed before
	}
	budget = min(budget, roundBytesGroup)
	for o.canWrite() && used < budget {
		size, ok := o.writeOne(p)
		if !ok {
			break
		}
		used += size
	}
	return used
}

// refusal is why the group writes nothing any more, nil if it does.
func (o *seat) refusal() error {
	switch {
	case o.halted != nil:
		return o.halted
	case o.stopping:
		return fmt.Errorf("raftstore: group %d: %w", uint64(o.id), ErrStopped)
	}
	return nil
}

// writeOne writes one entry. It returns false when the group can't go on in this round.
func (o *owner) writeOne(p *plan) (size int, ok bool) {
	index := o.marks.Written + 1
	n, size := p.build(&o.seat, &o.refs, index)
	err := o.log.Append(&p.app)
	switch {
	case err == nil:
		o.accept(p, index, n, size)
		return size, true
	case errors.Is(err, wal.ErrNotReady):
		p.discard()
		o.stuck = true // the refs just given out are passed over
		return 0, false
	case errors.Is(err, fsync.ErrPoisoned):
		// The write itself may have reached the file: nobody knows before the log is read again.
		p.discard()
		o.halt(err)
		o.drop(n, Outcome{Kind: Indeterminate, Err: o.halted})
		o.refuseAll(o.halted)
		return 0, false
	default: // nothing was written, and the log is as it was
		p.discard()
		if errors.Is(err, fsync.ErrDiskFull) {
			o.diskFull(err)
		}
		o.drop(n, Outcome{Kind: Refused, Err: storeError(err)})
		return 0, true
	}
}

// accept answers the n oldest pending proposals: they are entry (term, index), written.
func (o *owner) accept(p *plan, index Index, n, size int) {
	o.host.disk.spend(int64(size))
	o.fullOver()
	o.marks.Written, o.marks.Committed = index, index
	o.entries = append(o.entries, roundData{index: index, data: p.app.Entries[0].Data})
	o.snap.grown += int64(size)
	list := o.pop(n)
	for _, q := range list {
		o.in.answered(q)
		o.machine.Appended(q.batch.Tag, o.term, index)
		o.written = append(o.written, q)
	}
	clear(list)
}

// pop takes the n oldest pending proposals out. The answer is valid until the inbox is
// taken again; clear it after use, so that no batch is kept.
func (o *seat) pop(n int) []proposal {
	list := o.pending[o.next : o.next+n]
	o.next += n
	if o.next == len(o.pending) {
		o.pending, o.next = o.pending[:0], 0
	}
	return list
}

// drop answers the n oldest pending proposals without an entry and gives their buffers back.
func (o *seat) drop(n int, out Outcome) {
	list := o.pop(n)
	for _, q := range list {
		o.dropOne(q, out)
	}
	clear(list)
}

func (o *seat) dropOne(q proposal, out Outcome) {
	o.in.answered(q)
	if out.Kind == Refused {
		freeBodies(q.batch.Items)
	}
	o.machine.Dropped(q.batch.Tag, out)
	q.free()
}

// refuseAll answers everything that waits; nothing of it was written.
func (o *seat) refuseAll(why error) {
	o.pending = o.in.take(o.pending)
	o.drop(len(o.pending)-o.next, Outcome{Kind: Refused, Err: why})
}

// free gives the proposer's buffers back.
func (p proposal) free() {
	if p.batch.Free != nil {
		p.batch.Free()
	}
}

// diskFull notes that there is no room; told once.
func (o *seat) diskFull(err error) {
	o.host.disk.refuse()
	if !o.full {
		o.full = true
		o.host.o.Event(Event{Kind: DiskFull, Group: o.id, Err: err})
	}
}

// fullOver notes that something was written, whatever was refused before.
func (o *seat) fullOver() {
	if o.full {
		o.full = false
		o.host.disk.took()
		o.host.o.Event(Event{Kind: DiskFullOver, Group: o.id})
	}
}

// halt makes the group read-only until it is opened anew. What was answered stands.
func (o *seat) halt(cause error) {
	if o.halted != nil {
		return
	}
	o.halted = readOnly(o.id, cause)
	o.in.close(o.halted)
	o.host.o.Event(Event{Kind: GroupReadOnly, Group: o.id, Err: cause})
	o.as.onHalt()
	if m, ok := o.machine.(Halter); ok {
		m.Halted(o.halted)
	}
}

// wrote reports whether this round appended something.
func (o *owner) wrote() bool { return len(o.entries) > 0 }

func (o *owner) onHalt() {}

func (o *owner) news(n NodeID) bool { return n == o.host.o.Node } // its disk is another one than before
func (o *owner) ticked(int) bool    { return o.givesRoom() }
func (o *owner) shrink()            { o.entries = nil }

// advance is step 2: what finished since the last round.
func (o *owner) advance() {
	if !o.takeUp() {
		return
	}
	if f := o.log.Flushed().Index; f > o.marks.Flushed {
		o.stuck = false
		o.marks.Flushed = f
	}
	o.takeDamage(0)
	if o.mendLocal() {
		o.log.RequestFlush()
		o.shard.awaitFlush(o)
	}
}

func (o *owner) lookAt() (now int64, alone bool) { return 0, true }

// takeUp takes up the finished task and confirmed flushes. It returns false when the log is not to be used any
// more.
func (o *seat) takeUp() bool {
	if kind, err, done := o.takeTask(); done {
		o.stuck = false
		o.finishTask(kind, err)
	}
	if o.closed() || o.halted != nil {
		return false
	}
	if err := o.log.Advance(); err != nil {
		o.halt(err)
		o.refuseAll(o.halted)
		return false
	}
	return true
}

// closed reports whether the log is being closed or is closed: only its worker may touch it.
func (o *seat) closed() bool { return o.task == closeTask || o.gone }

// apply is step 6.
func (o *owner) apply(p *plan) {
	for i, e := range o.entries {
		o.applyEntry(p, o.term, e.index, e.data)
		o.entries[i] = roundData{}
	}
	o.entries = o.entries[:0]
}

// applyEntry gives one committed entry to the machine. The data was written by this build or verified
// by its checksum, so what can't be decoded is a defect.
func (o *seat) applyEntry(p *plan, t Term, i Index, data []byte) {
	if err := o.applyRead(p, t, i, data); err != nil {
		panic("bug: raftstore: an entry just written can't be read: " + err.Error())
	}
}

// applyRead is applyEntry for data that comes from the log.
func (o *seat) applyRead(p *plan, t Term, i Index, data []byte) error {
	if i != o.last.Index+1 {
		panic("bug: raftstore: entries applied out of order")
	}
	items, err := decodeItems(p.items[:0], data)
	p.items = items
	if err != nil {
		return err
	}
	for j := range items {
		if items[j].HasBody {
			o.retain(items[j].Body)
		}
	}
	o.last = wal.Mark{Term: t, Index: i}
	o.machine.Apply(t, i, items)
	o.marks.Applied = i
	return nil
}

// moved is step 7.
func (o *owner) moved() {
	o.short = o.reserveKept()
	o.marks.Term = o.term
	o.publish()
	if o.marks != o.told {
		checkMarks(o.marks, o.told)
		o.told = o.marks
		o.machine.Moved(o.marks)
	}
	o.freeWritten()
}

// freeWritten gives back the buffers of what was answered in this round.
func (o *seat) freeWritten() {
	for i, q := range o.written {
		q.free()
		o.written[i] = proposal{}
	}
	o.written = o.written[:0]
}

// checkMarks asserts what every proof of evidence rests on.
func checkMarks(now, before Marks) {
	switch {
	case now.Flushed > now.Written, now.Committed > now.Written, now.Applied > now.Committed:
		panic("bug: raftstore: marks out of order")
	case now.Written < before.Written, now.Flushed < before.Flushed, now.Applied < before.Applied:
		panic("bug: raftstore: a mark fell")
	}
}
