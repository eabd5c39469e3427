package raftstore

import (
	"context"
	"fmt"
	"io"
)

// NodeID is a node's number in its cluster: an index of the control log, never used twice. The nodes that
// a cluster begins with are 1, 2, … in the order of their fingerprints. 0 is no node.
type NodeID uint64

// ReplicaID is a replica's raft id: an index of the control log, never used twice, so that a node that
// returns with another disk is another replica. 0 is no replica.
type ReplicaID uint64

// MaxVoters bounds the voters of one group.
const MaxVoters = 7

// Member is one replica of a group: on a node, voting or learning.
type Member struct {
	Replica ReplicaID
	Node    NodeID
	Learner bool
}

// Frame is one message for one group. Its bytes are raftstore's own; a transport looks only at the group.
type Frame struct {
	Group GroupID
	Data  []byte
}

// Transport carries what hosts say to each other. It may lose anything and may deliver twice, but delivers
// nothing changed, and nothing that an earlier incarnation of either side sent. Raft, Beat and Payload are called
// on shards: they never block, and when they return the frames are the caller's again. A node that cannot be
// reached, or whose buffer is full, loses what is sent to it.
type Transport interface {
	// Raft sends the messages of one shard and round to one node: one exchange on the raft connection. Frames of one
	// group are kept in order as long as none is lost.
	Raft(to NodeID, shard int, frames []Frame)
	// Beat sends the heartbeats of all groups of a peer pair, one frame per tick, on a stream of its own. A newer one
	// overtakes and replaces those that wait.
	Beat(to NodeID, data []byte)
	// Payload sends bodies, requests for bodies and their answers on the payload connection, in order per shard. Data of
	// one frame is at most PayloadFrameMax bytes.
	Payload(to NodeID, shard int, frames []Frame)
	// Stream opens a stream of its own on the payload connection for what is long: a large body, a snapshot. It may
	// block until ctx ends and is never called on a shard. Receiver.Stream gets head and then what is written. Close
	// says that it is complete and returns the receiver's answer; Cancel gives it up.
	Stream(ctx context.Context, to NodeID, head []byte) (Stream, error)
}

// Stream is one long transfer on its way out. One goroutine at a time, but for Cancel.
type Stream interface {
	io.Writer
	// Close ends the transfer and returns nil when the receiver has said that it took all of it.
	Close() error
	// Cancel gives the transfer up; the receiver reads an error. It may be called at any moment, more than once.
	Cancel()
}

const (
	// PayloadFrameMax bounds Frame.Data of Transport.Payload: one inline body and its header, in bytes.
	PayloadFrameMax = 128 << 10
	// StreamHeadMax bounds the head of a Stream, in bytes.
	StreamHeadMax = 1 << 10
)

// Receiver is what a transport hands to: a *Host. Any goroutine. Only Stream blocks.
type Receiver interface {
	// ReceiveRaft takes frames of one exchange. The data is the receiver's from then on. What is returned goes back to
	// the sender's ReceiveRefusals: a message for a group that is not here is answered, not dropped in silence (T-42).
	ReceiveRaft(from NodeID, frames []Frame) []Refusal
	// ReceiveRefusals takes the answer to an exchange.
	ReceiveRefusals(from NodeID, list []Refusal)
	// ReceiveBeat takes one frame of heartbeats; data is valid during the call.
	ReceiveBeat(from NodeID, data []byte)
	// ReceivePayload takes frames of the payload connection. The data is the receiver's from then on.
	ReceivePayload(from NodeID, frames []Frame)
	// ReceiveStream takes one long transfer on the caller's goroutine: it reads r to its end, and returns nil when what
	// came is stored. r fails when the sender cancels or is gone.
	ReceiveStream(from NodeID, head []byte, r io.Reader) error
	// PeerUp says that a node can be reached, in the given incarnation. A higher incarnation of a node that was up means
	// that it went down in between.
	PeerUp(node NodeID, incarnation uint64)
	// PeerDown says that a node cannot be reached.
	PeerDown(node NodeID)
}

// Refusal answers a message for a group that is not served here.
type Refusal struct {
	Group GroupID
	Why   RefusalKind
}

// RefusalKind says why a group is not here.
type RefusalKind uint8

// Why a group is not here: never made or not yet, or taken down for good.
const (
	UnknownGroup RefusalKind = iota + 1
	RetiredGroup
)

func (k RefusalKind) String() string {
	switch k {
	case UnknownGroup:
		return "unknown group"
	case RetiredGroup:
		return "retired group"
	}
	return fmt.Sprintf("refusal %d", uint8(k))
}

// ReplicaOptions says how a replica of a group is opened.
type ReplicaOptions struct {
	// Self is this replica's id.
	Self ReplicaID
	// Genesis makes the replica if this node does not have it; nil refuses with ErrNoSuchGroup. It has to be the same
	// on all members of the beginning.
	Genesis *Genesis
}

// Genesis is the beginning of a replicated group: an empty machine, a configuration, and the place behind which the
// log begins. A replica that joins later begins with no Members, and gets all of it from the leader as a snapshot.
// Where the log was an owner's, Members has to be this replica alone: the group goes on behind what the owner wrote,
// and Term and Index are the log's own.
type Genesis struct {
	Term    Term  // at least 1
	Index   Index // at least 1
	Members []Member
}
