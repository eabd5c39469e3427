package raftstore

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// This file is what a replica does about disks that ail: it does not lead where another one could do so better, and
// as a leader takes no messages that too few could keep.

// yieldTicks is after how many election timeouts a leader tries again to hand over: raft gives an attempt up after one.
const yieldTicks = 2

// yield hands the leadership over to a voter that is being kept up and whose disk does better: from a disk that has no
// room, or flushes slowly; and from one that has stalled to any that is not known to be worse, for a leader whose
// flushes do not end applies nothing, while its heartbeats keep everybody else from leading. Where no disk does better
// it stays; and so it does with what is kept for commands, where the other one could take messages no more than it can,
// for want of others with room.
func (r *replica) yield() {
	election := int64(r.host.o.ElectionTicks)
	if r.answers.stalled(r.now - election*2/3) {
		r.host.disk.late.Store(true)
	}
	if r.soft.RaftState != raft.StateLeader || r.halted != nil {
		return
	}
	own := r.host.DiskOf(r.host.o.Node)
	stalled := r.leads() && r.answers.stalled(r.now-election) && !off.yield
	if !stalled && (own == 0 || off.ailing) || r.yielded != 0 && r.now-r.yielded < yieldTicks*election ||
		r.transferring() {
		return
	}
	next, disk := r.heir(func(pr *tracker.Progress) bool { return pr.State == tracker.StateReplicate })
	better := disk < own && (disk&DiskSlow < own&DiskSlow || r.host.disk.isOut() || r.roomElsewhere())
	if next == 0 || !better && !(stalled && disk <= max(own, DiskSlow)) {
		return
	}
	r.wake()
	r.yielded = max(r.now, 1)
	r.guard(func() { r.node.TransferLeader(uint64(next)) })
}

// roomElsewhere says whether most of the voters have room without this one.
func (r *replica) roomElsewhere() bool {
	if off.stays {
		return true
	}
	room, _, voters := r.rooms()
	return room > voters/2
}

// rooms counts the other voters that have room, as far as is known, those that have none, and all voters.
func (r *replica) rooms() (room, full, voters int) {
	for _, m := range r.conf.members {
		if m.Learner {
			continue
		}
		voters++
		if m.Replica == r.rid {
			continue
		}
		_, up := r.host.epochOf(m.Node)
		switch {
		case r.host.DiskOf(m.Node)&DiskNoRoom != 0:
			full++
		case up:
			room++
		}
	}
	return room, full, voters
}

// crowd judges whether messages can be kept: by this leader, or by whom it hands over to, and by most of the voters.
func (r *replica) crowd() {
	why := r.crowding()
	if (r.short != nil) == (why != nil) {
		return
	}
	if r.short = why; why != nil {
		r.crowded.Store(&why)
	} else {
		r.crowded.Store(nil)
	}
}

func (r *replica) crowding() error {
	if r.soft.RaftState != raft.StateLeader || off.crowded || !r.host.diskAils() {
		return nil
	}
	if r.host.disk.isLow() && !r.transferring() {
		return fmt.Errorf("raftstore: group %d: %w", uint64(r.id), ErrDiskFull)
	}
	room, full, voters := r.rooms()
	if m, ok := r.conf.find(r.rid); ok && !m.Learner {
		room++
	}
	if full == 0 || room > voters/2 {
		return nil
	}
	return fmt.Errorf("raftstore: group %d: %d of %d voters have no room, and the others are too few: %w", uint64(r.id),
		full, voters, ErrDiskFull)
}

// overdue is what a leader that takes no messages has not committed, of those that it took before it knew.
type overdue struct {
	last  Index // 0: nothing
	since int64 // tick
}

// OverdueTicks is for how long an entry waits, at a leader that knows that too few have room for it, before those who
// wait for it are told: time in which others are given room as a rule.
const OverdueTicks = 50

// impatience tells the machine of entries that have waited too long for room on other disks. They may be committed
// yet.
func (r *replica) impatience() {
	if r.short == nil || r.commit >= r.marks.Written {
		r.late = overdue{}
		return
	}
	switch {
	case r.late.last <= r.commit:
	case r.now-r.late.since < OverdueTicks || off.overdue:
		return
	default:
		if m, ok := r.machine.(Waiter); ok {
			m.Overdue(r.late.last, r.uncommitted())
		}
	}
	r.late = overdue{last: r.marks.Written, since: r.now}
}

// uncommitted is what they are told. It is nothing of a refusal: these entries were written.
func (r *replica) uncommitted() error {
	_, full, voters := r.rooms()
	if r.host.disk.isLow() {
		full++
	}
	return fmt.Errorf("raftstore: group %d: %d of %d voters have no room: %w", uint64(r.id), full, voters, ErrUncommitted)
}

// uncrowded refuses messages that could not be kept.
func (r *replica) uncrowded() error {
	if why := r.crowded.Load(); why != nil {
		return *why
	}
	return nil
}
