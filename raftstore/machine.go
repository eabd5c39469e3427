package raftstore

import "weida/segment"

// This file holds what a Machine may implement besides.

// Holder is implemented by machines whose state holds bodies. Only their groups are snapshotted and
// trimmed: without knowing what a restored state holds, nothing may be dropped.
type Holder interface {
	// Bodies yields every body the state holds (applied and not yet released), in rising order of refs if
	// it can. Called on the shard, after Restore.
	Bodies(yield func(BodyRef) bool)
}

// Attacher is implemented by machines that need their Group before OpenOwner has returned it: replay
// may already call Release.
type Attacher interface {
	// Attach is called once, before Restore and the first Apply, on the goroutine that opens the group.
	Attach(Group)
}

// Halter is implemented by machines that want to hear at once that their group turned read-only:
// Flushed will not rise any more and every later proposal is refused. What was Appended stands.
type Halter interface {
	// Halted is called once, on the shard. err wraps ErrReadOnly and the reason.
	Halted(err error)
}

// Waiter is implemented by machines that want to hear of entries which wait too long for room on other disks.
type Waiter interface {
	// Overdue is called on the shard of a leader, again and again while it lasts: what was Appended up to last and is
	// not committed has waited for OverdueTicks, and the leader takes no messages for the reason given. It may be
	// committed yet, and is then applied as always. why wraps ErrUncommitted.
	Overdue(last Index, why error)
}

// BodySource is implemented by the Source of machines that hold bodies: a replica that is brought up by a
// snapshot gets these besides.
type BodySource interface {
	Source
	// Bodies yields the inline bodies that the snapshot's state holds, as runs of refs {first.Term, first.Seq},
	// {first.Term, first.Seq+1}, … It may be called on another goroutine than the shard, while Apply goes on.
	Bodies(yield func(first BodyRef, n uint64) bool)
	// LargeBodies yields the bodies in files of their own, with length and digest. As Bodies.
	LargeBodies(yield func(segment.Commit) bool)
}
