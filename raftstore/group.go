package raftstore

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"weida/segment"
	"weida/wal"
)

// Names that everything above uses without importing what is below.
type (
	// GroupID, Term, Index, BodyRef and Digest are segment's.
	GroupID = segment.GroupID
	Term    = segment.Term
	Index   = segment.Index
	BodyRef = segment.BodyRef
	Digest  = segment.Digest
)

// Group is one ordered, durable log of commands with bodies: a one-replica queue, a replicated
// queue and the control group look the same from above. All methods may be called from any
// goroutine and none waits for a disk or a peer, but those of readers and writers.
type Group interface {
	// Propose hands a batch to the group. It never blocks and takes ownership of the batch and its
	// buffers until Batch.Free. Exactly one answer follows for a batch that was taken: Machine.Appended or
	// Machine.Dropped. On an error nothing was taken: ErrFull, ErrTooLarge, ErrBody, ErrReadOnly, ErrStopped,
	// *NotLeaderError.
	Propose(*Batch) error
	// NewBody starts a body of n bytes in a file of its own (n > segment.InlineMax) and gives it its
	// ref now; the bytes are written off the shard. Finish or Abort ends it.
	NewBody(n int64) (BodyWriter, error)
	// OpenBody opens a body named by an applied item. Bytes are verified before they are returned.
	OpenBody(segment.Commit) (BodyReader, error)
	// Release says that a body is settled: its space may be taken back once a snapshot covers it.
	// Called by the machine, on the shard, once per body.
	Release(BodyRef)
	// Reconfigure asks the leader for a change of membership or of leadership; that it was done shows in
	// Status. Nothing was begun on an error: ErrNoGroup (a group with one owner), *NotLeaderError,
	// ErrChangePending (one at a time, W-51), *ChangeError.
	Reconfigure(Change) error
	// Status is a consistent picture, never older than the last round.
	Status() Status
	// Stop ends the group on this node. Batches without an answer are Dropped with Indeterminate if
	// they may have been written, Refused otherwise. Returns when the machine will not be called again.
	Stop()
}

// Machine is what a group drives: a deterministic state machine and the sessions around it. It is
// called on the group's shard, one call at a time, and never blocks.
type Machine interface {
	// Appended answers a proposal: its items are entry (term, index), written here. It is committed when
	// Marks.Committed reaches the index in this term.
	Appended(tag uint64, t Term, i Index)
	// Dropped answers a proposal that did not get an entry, or lost it.
	Dropped(tag uint64, o Outcome)
	// Apply gives a committed entry, in index order, each exactly once per life (after Restore, from the
	// snapshot's index on). Items alias buffers that are valid during the call only.
	Apply(t Term, i Index, items []Item)
	// Moved says that watermarks rose; at most once per round, after the round's Apply calls. Status says so by then.
	Moved(Marks)
	// Role says who leads now. Leading starts only after this term's first entry is applied. Status says so by then.
	Role(Role, Term, Leader)
	// Snapshot returns the state as of the last Apply, as a stream that stays consistent while Apply goes on.
	Snapshot() Source
	// Restore replaces the state by a snapshot's.
	Restore(Source) error
}

// Item is one command with at most one body.
type Item struct {
	Command []byte
	// HasBody says that the item carries a body. In a proposal it is Inline (at most segment.InlineMax bytes)
	// or a finished Large body; when applied, Body names it.
	HasBody bool
	Inline  []byte
	Large   BodyWriter
	Body    segment.Commit
}

// Batch is what one proposal carries: its items become neighbours in one entry, in order.
type Batch struct {
	Tag   uint64 // chosen by the proposer, echoed in the answer
	Items []Item
	// Alone asks for an entry of its own: without it, batches that wait together may be one entry.
	Alone bool
	// Free is called once, on the shard, when the group no longer reads the batch's buffers; may be nil.
	Free func()
}

// carries reports whether a batch brings bodies.
func (b *Batch) carries() bool {
	return slices.ContainsFunc(b.Items, func(it Item) bool { return it.HasBody })
}

// Marks are a group's watermarks, in the order they are reached: an entry at or below one has that
// property. In a one-replica group committed = written. In a replicated group an entry may be committed before it is
// flushed here, and Written and Flushed fall where another leader's entries replace what was not committed; Held falls
// when a node is gone, until it is back and has said again what it holds.
type Marks struct {
	Term      Term
	Written   Index
	Flushed   Index // written and flushed on this node
	Committed Index
	Applied   Index
	// Held is known to the leader of a replicated group and zero elsewhere: Held[n-1] is the index up to which n
	// voters, the leader included, hold every entry and its bodies, flushed. It never rises along n.
	Held [MaxVoters]Index
}

// HeldBy is on how many replicas the entry at i is flushed with its bodies: the n of Replicated(n, flushed).
func (m *Marks) HeldBy(i Index) int {
	n := 0
	for n < MaxVoters && m.Held[n] >= i && i > 0 {
		n++
	}
	return n
}

// Outcome is how a proposal ended without evidence.
type Outcome struct {
	Kind OutcomeKind
	Err  error
}

// OutcomeKind says what is known about a message that has no evidence.
type OutcomeKind uint8

// The outcomes: definitely not stored, or unknown.
const (
	Refused OutcomeKind = iota + 1
	Indeterminate
)

// Role is a replica's part in its group.
type Role uint8

// The roles. A one-replica group's node is its Owner.
const (
	Follower Role = iota
	Candidate
	LeaderRole
	Owner
	Learner
)

// Leader names who leads; the zero value is "unknown".
type Leader struct {
	Replica ReplicaID // 0 in a group with one owner
	Node    NodeID
}

// Change is a change of membership, or of leadership: one of the two.
type Change struct {
	// Members is the whole configuration wanted. One joint step leads there, whatever the difference.
	Members []Member
	// TransferTo is the voter that is to lead.
	TransferTo ReplicaID
}

// Status is a group's state for people and health checks.
type Status struct {
	Group GroupID
	Role  Role
	Marks Marks
	First Index // oldest entry still in the log
	// ReadOnly is why the group takes no proposals (poisoned, corrupt, disk full), nil if it does.
	ReadOnly error
	// Damage is what of the group's disk is not what was written there, and how far it is mended.
	Damage Damage
	// Damaged is why the group could not mend itself and this replica has to be made anew, nil while there is hope. It
	// may go on serving what is whole.
	Damaged error
	Store   wal.Stats
	Inbox   int // proposals waiting
	// Replication is nil in a group with one owner.
	Replication *Replication
}

// Replication is what a replica knows of its group. It is never changed once it is given out.
type Replication struct {
	Self   ReplicaID
	Leader Leader
	// Committed are the members of the newest configuration entry at or below the commit index; Current includes
	// a change that is under way. Joint says that the change is between its two steps.
	Committed []Member
	Current   []Member
	Joint     bool
	// Progress is known to the leader: one row per member of Current, itself included.
	Progress []Progress
	Quiesced bool
	// WaitingForBodies counts entries that came and wait for a body.
	WaitingForBodies int

	at int64 // of the host's clock, when it was published
}

// Progress is how far a member is, as the leader knows it.
type Progress struct {
	Member
	Match Index  // it holds everything up to here, flushed
	State string // raft's word: probe, replicate, snapshot
	// HeardTicks and CaughtUpTicks count ticks since its last answer, and since it was last at the end of the log; -1 is
	// never in this leadership. While the group is quiesced they stand for the liveness of its node.
	HeardTicks    int64
	CaughtUpTicks int64
	Disk          DiskState // what ails its node's disk

	lives bool // these ticks do not grow: the liveness of its node stands for them, or it is the leader itself
}

// BodyWriter receives a large body. One goroutine at a time.
type BodyWriter interface {
	io.Writer
	Ref() BodyRef
	// Finish says the body is complete; digest must be that of the bytes written, and the length must be
	// the one announced, else the body is void. The bytes are written, not flushed, when it returns.
	Finish(digest Digest) error
	// Abort gives the body up and removes its file.
	Abort()
}

// BodyReader reads a body from its start. One goroutine at a time.
type BodyReader interface {
	io.ReadCloser
	io.WriterTo
	Length() int64
}

// Source is a snapshot's content.
type Source interface {
	io.WriterTo
}

// Conditions of Group, tested with errors.Is.
var (
	// ErrFull means the group's bounded inbox has no place: nothing was stored; try again later.
	ErrFull = errors.New("the group's inbox is full; nothing was stored; try again")
	// ErrDiskFull means nothing was stored for want of space; reads and settles go on.
	ErrDiskFull = errors.New("disk full, nothing was stored; free space on the node, admission resumes by itself")
	// ErrUncommitted means the leader wrote it and too few have room to commit it: it may be committed yet.
	ErrUncommitted = errors.New("it is written by the leader and not committed, and may be committed yet; free space")
	// ErrReadOnly means the group takes no proposals on this node; Status says why.
	ErrReadOnly = errors.New("the group is read-only on this node")
	// ErrStopped means the group was stopped.
	ErrStopped = errors.New("the group is stopped on this node")
	// ErrChangePending means that a change of membership is under way: nothing was begun; try again when
	// Status shows Current equal to Committed.
	ErrChangePending = errors.New("a change of membership is under way; nothing was begun; try again when it is done")
	// ErrNoGroup means a one-replica queue was asked something only a consensus group has.
	ErrNoGroup = errors.New("a one-replica queue has an owner and no consensus group")
)

// NotLeaderError refuses a proposal at a replica that does not lead.
type NotLeaderError struct {
	Group  GroupID
	Leader Leader
	Term   Term
}

func (e *NotLeaderError) Error() string {
	if e.Leader.Node == 0 {
		return fmt.Sprintf("group %d has no leader that this node knows of in term %d; nothing was stored here; try again",
			uint64(e.Group), uint64(e.Term))
	}
	return fmt.Sprintf("group %d is led by node %d in term %d, not by this node; nothing was stored here",
		uint64(e.Group), uint64(e.Leader.Node), uint64(e.Term))
}

// ChangeError refuses a change of membership that will never be possible, with the reason.
type ChangeError struct {
	Group  GroupID
	Reason string
}

func (e *ChangeError) Error() string {
	return fmt.Sprintf("group %d: %s; nothing was changed", uint64(e.Group), e.Reason)
}
