package peer

import (
	"errors"
	"fmt"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// Why is the reason for which a connection between nodes is ended; it is also the code that the other side reads.
type Why uint64

// The reasons. The numbers are on the wire and are never used again for something else.
const (
	Stopping        Why = 0  // the node stops, or the link is dialled anew
	Malformed       Why = 1  // it sent what this build cannot read
	NotMember       Why = 2  // its key is not that of a member
	OtherCluster    Why = 3  // it belongs to another cluster
	OtherNode       Why = 4  // it goes by another number than its key has here
	NotHere         Why = 5  // it wants to reach a node of another number
	Itself          Why = 6  // it is this node
	OtherDisk       Why = 7  // it has another disk than the member
	OldIncarnation  Why = 8  // a later incarnation of the node has shown itself
	TwinIncarnation Why = 9  // two processes show the same incarnation
	DialBack        Why = 10 // this side dials: the fingerprint is smaller
	Replaced        Why = 11 // a later attempt of the same node takes its place
	Silent          Why = 12 // it did not say in time who it is
	Busy            Why = 13 // too many at a time say who they are
	Renewed         Why = 14 // the groups' numbers begin anew
	PutBack         Why = 15 // its own data directory is a copy, as it learned from this side
)

// reasons say what each means, and what to do.
var reasons = map[Why]string{
	Stopping:     "it stops, or dials anew; nothing has to be done",
	Malformed:    "it read what it does not understand; run the same version on all nodes",
	NotMember:    "the key is not that of a member; add the node to the cluster first",
	OtherCluster: "the nodes belong to different clusters; correct the addresses, or the data directory",
	OtherNode:    "the node goes by another number than its key has; its data directory is that of another node",
	NotHere:      "another node was wanted there; correct the addresses",
	Itself:       "the node was dialled by itself; correct the addresses",
	OtherDisk:    "the node's disk is not the member's; remove the member and add the node anew",
	OldIncarnation: "a later incarnation of the node was seen: an old process still runs, or its directory was put " +
		"back from a copy; stop the old one, or remove the member and add the node anew",
	TwinIncarnation: "two processes run with one identity; stop the one whose directory is a copy",
	DialBack:        "the other side dials; nothing has to be done",
	Replaced:        "a later connection took its place; nothing has to be done",
	Silent:          "it did not say in time who it is; is the network overloaded?",
	Busy:            "too many connections begin; nothing has to be done",
	Renewed:         "the groups' numbers begin anew; nothing has to be done",
	PutBack: "the data directory of who ended it is a copy from before a later start of the node; stop that process, " +
		"and run the node on its own directory, or remove the member and add the node anew",
}

func (w Why) String() string {
	if s, ok := reasons[w]; ok {
		return s
	}
	return fmt.Sprintf("reason %d, which this version does not know", uint64(w))
}

// RefusedError is a connection between nodes that was ended because of who is at its other end. Nothing was exchanged
// on it that counts.
type RefusedError struct {
	Peer endpoint.Fingerprint // the key that was proved
	Node raftstore.NodeID     // that has it; 0 if none
	Addr string
	Why  Why
	// Remote says that the other side ended it.
	Remote bool
	Err    error // of the network, if it was that
}

// Unwrap returns the network's error.
func (e *RefusedError) Unwrap() error { return e.Err }

func (e *RefusedError) Error() string {
	by := "was refused"
	if e.Remote {
		by = "was refused by it"
	}
	return fmt.Sprintf("peer: the connection with node %d (%v at %s) %s: %v; no message was taken on it",
		e.Node, e.Peer, e.Addr, by, e.Why)
}

// DownError is a node that cannot be reached now. Nothing was sent.
type DownError struct{ Node raftstore.NodeID }

func (e *DownError) Error() string {
	return fmt.Sprintf("peer: node %d cannot be reached now; nothing was sent; it is dialled again by itself", e.Node)
}

// EndedError is a link that the other side ended. What was under way on it may have been taken or not.
type EndedError struct {
	Node raftstore.NodeID
	Why  Why
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("peer: node %d ended the link: %v", e.Node, e.Why)
}

// DisownedBy is the node that does not know this one as a member, if that is what an event's error says.
func DisownedBy(err error) (raftstore.NodeID, bool) {
	var refused *RefusedError
	var ended *EndedError
	switch {
	case errors.As(err, &refused) && refused.Remote && refused.Why == NotMember:
		return refused.Node, true
	case errors.As(err, &ended) && ended.Why == NotMember:
		return ended.Node, true
	}
	return 0, false
}

// StreamRefusedError is what the other side had against a transfer; what it took of it is gone.
type StreamRefusedError struct {
	Node   raftstore.NodeID
	Reason string
}

func (e *StreamRefusedError) Error() string {
	return fmt.Sprintf("peer: node %d did not take a transfer: %s", e.Node, e.Reason)
}

// ErrCancelled is a transfer that was given up here.
var ErrCancelled = errors.New("peer: the transfer was given up")

// formatError is something on a stream that this build cannot read.
type formatError struct{ cause string }

func (e *formatError) Error() string { return "peer: malformed " + e.cause }

func malformed(format string, args ...any) error { return &formatError{fmt.Sprintf(format, args...)} }

// remoteReason is the reason that the other side gave for the end of the connection.
func remoteReason(err error) (Why, bool) {
	var e *quic.ApplicationError
	if !errors.As(err, &e) || !e.Remote {
		return 0, false
	}
	return Why(e.ErrorCode), true
}
