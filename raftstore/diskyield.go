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
// it stays.
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
	if better := disk < own || stalled && disk <= max(own, DiskSlow); next == 0 || !better {
		return
	}
	r.wake()
	r.yielded = max(r.now, 1)
	r.guard(func() { r.node.TransferLeader(uint64(next)) })
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
	voters, room, full := 0, 0, 0
	for _, m := range r.conf.members {
		if m.Learner {
			continue
		}
		voters++
		_, up := r.host.epochOf(m.Node)
		switch d := r.host.DiskOf(m.Node); {
		case m.Replica == r.rid:
			room++
		case d&DiskNoRoom != 0:
			full++
		case up:
			room++
		}
	}
	if full == 0 || room > voters/2 {
		return nil
	}
	return fmt.Errorf("raftstore: group %d: %d of %d voters have no room, and the others are too few: %w", uint64(r.id),
		full, voters, ErrDiskFull)
}

// uncrowded refuses messages that could not be kept.
func (r *replica) uncrowded() error {
	if why := r.crowded.Load(); why != nil {
		return *why
	}
	return nil
}
