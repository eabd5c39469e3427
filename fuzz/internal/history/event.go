package history

import (
	"weida/broker/client"
	"weida/broker/wire"
	"weida/segment"
)

// Time is nanoseconds of the machine's monotonic clock: comparable between processes of one machine and one boot.
type Time int64

// Line is one event of a history.
type Line struct {
	T      Time
	Client string // whose file it is in
	Event  Event
	Source Source // where it was read; zero for one that was not
}

// Event is one of the types of this file.
type Event interface{ name() string }

// Queue names a queue: its name, and which of the queues that had it.
type Queue struct {
	Name string `json:"queue"`
	UID  uint64 `json:"uid"`
}

// Message is who sent a message and what is in it. With a producer id, producer and sequence say which one it is;
// without one, its bytes do, which must then be unlike those of every other message.
type Message struct {
	Producer string `json:"producer,omitempty"`
	Seq      uint64 `json:"seq,omitempty"` // 0 without a producer id
	Length   int64  `json:"length"`        // of the body in bytes
	Digest   Digest `json:"digest"`
}

// Publish: a message is about to be handed to a client, for the first time or again. Answer says how that ended.
type Publish struct {
	Ref uint64 `json:"ref"` // of this client's calls
	Queue
	Message
	// Stream groups messages without a producer id that are stored in the order of their sending, if at all; "" for none.
	Stream string   `json:"stream,omitempty"`
	Want   Evidence `json:"want"`
}

// Answer: a publish ended.
type Answer struct {
	Ref      uint64         `json:"ref"`
	Outcome  client.Outcome `json:"outcome"`
	Evidence Evidence       `json:"evidence,omitzero"`
	// Offset and Term are known if Committed.
	Committed bool      `json:"committed,omitempty"`
	Offset    uint64    `json:"offset"`
	Term      uint64    `json:"term"`
	Code      wire.Code `json:"code,omitempty"` // of what is not ok
}

// Deliver: a consumer has a message, whole.
type Deliver struct {
	Queue
	Subscription string `json:"subscription"`
	Session      string `json:"session"` // one attachment of one consumer; no other has the same
	Stored
	Attempt uint64 `json:"attempt"` // 1 is the first
}

// Stored is a message at its place in a queue.
type Stored struct {
	Offset uint64 `json:"offset"`
	Term   uint64 `json:"term"` // of its entry
	Message
}

// Settle: a consumer is about to settle a delivery. Settled says how that ended.
type Settle struct {
	Ref uint64 `json:"ref"`
	Queue
	Offset  uint64 `json:"offset"`
	Term    uint64 `json:"term"`
	Attempt uint64 `json:"attempt"`
	Verb    Verb   `json:"verb"`
}

// Settled: a settle was confirmed (done), refused (it has and will have no effect), or nobody knows.
type Settled struct {
	Ref  uint64 `json:"ref"`
	Fate Fate   `json:"fate"`
}

// Purge and Purged: everything in a queue that is not under delivery is to be taken out.
type Purge struct {
	Ref uint64 `json:"ref"`
	Queue
}

// Purged ends a Purge.
type Purged struct {
	Ref   uint64 `json:"ref"`
	Fate  Fate   `json:"fate"`
	Count uint64 `json:"count"` // if done
}

// Change: a queue is about to be made, changed or deleted. Changed says how that ended.
type Change struct {
	Ref  uint64 `json:"ref"`
	Name string `json:"queue"`
	Do   Do     `json:"do"`
	// Replicas and Durability are those that are wanted, of a queue that is made or changed.
	Replicas   int    `json:"replicas,omitempty"`
	Durability string `json:"durability,omitempty"`
}

// Changed ends a Change. UID is that of the queue that was made, changed or deleted, if done.
type Changed struct {
	Ref  uint64 `json:"ref"`
	Fate Fate   `json:"fate"`
	UID  uint64 `json:"uid,omitempty"`
}

// Fault: something is about to be done to nodes. FaultDone says that it is over or, of what cannot be over, that it was
// done: a power cut that is under way may cost what is sent now.
type Fault struct {
	Ref    uint64    `json:"ref"`
	Fault  FaultKind `json:"fault"`
	Nodes  []string  `json:"nodes,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// FaultDone ends a Fault.
type FaultDone struct {
	Ref uint64 `json:"ref"`
}

// Boot: a node has started.
type Boot struct {
	Node        string `json:"node"`
	Incarnation uint64 `json:"incarnation"`
	BootID      string `json:"bootId,omitempty"`
}

// Lost: users were told that messages from an offset up to another, exclusive, are lost.
type Lost struct {
	Queue
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Audit: everything that is in a queue, looked at while nobody publishes to it, consumes from it or changes it, and
// after all of that had its answer. T is when the look ended.
type Audit struct {
	Queue
	Messages []Stored `json:"messages"` // by rising offset
	Books    *Books   `json:"books,omitempty"`
	// Final: consumers had asked until nothing came any more, before this look.
	Final bool `json:"final,omitempty"`
}

// Books are a queue's own counts.
type Books struct {
	In        uint64 `json:"in"` // messages that ever came in: the offset of the next one
	Ready     uint64 `json:"ready"`
	Unsettled uint64 `json:"unsettled"`
	Accepted  uint64 `json:"accepted"`
	Rejected  uint64 `json:"rejected"`
	Purged    uint64 `json:"purged"`
	Released  uint64 `json:"released"`
}

// Dump begins what the disk of one node holds of one group: the messages that are in the queue at the snapshot that the
// log goes on from, then one Entry for each entry of the log in order, then DumpEnd.
type Dump struct {
	Node  string `json:"node"`
	Group uint64 `json:"group"` // the uid of its queue
	// At says in which way the disk came to be as it is.
	At DumpAt `json:"at"`
	// Taken is when: what was confirmed before has to be there. 0 is the time of the line.
	Taken Time   `json:"taken,omitempty"`
	Base  uint64 `json:"base"` // index of the snapshot; 0 without one
	Next  uint64 `json:"next"` // offset of the first message that is not in the snapshot
	Held  []Run  `json:"held,omitempty"`
	// Quiet: nothing was under way when the node stopped, and the replicas had been told to be equal.
	Quiet bool `json:"quiet,omitempty"`
}

// Run is a run of messages that a snapshot has in the queue: Count offsets from Offset on.
type Run struct {
	Offset uint64 `json:"offset"`
	Count  uint64 `json:"count"`
}

// Entry is one entry of a node's log.
type Entry struct {
	Node  string   `json:"node"`
	Group uint64   `json:"group"`
	Index uint64   `json:"index"`
	Term  uint64   `json:"term"`
	Sum   Digest   `json:"sum"` // of its type and data: replicas have the same bytes
	Adds  []Stored `json:"adds,omitempty"`
	// Missing are offsets of Adds whose bodies are not there, whole, and have no tombstone.
	Missing []uint64 `json:"missing,omitempty"`
}

// DumpEnd ends a Dump.
type DumpEnd struct {
	Node     string `json:"node"`
	Group    uint64 `json:"group"`
	Last     uint64 `json:"last"` // index of the last entry
	LastTerm uint64 `json:"lastTerm"`
	Commit   uint64 `json:"commit"`         // committed for certain; what is behind may be, too
	Next     uint64 `json:"next"`           // offset of the next message, if all entries are
	State    Digest `json:"state,omitzero"` // of the queue's state after all entries; 0 if it is not known
}

// Healed: all faults are over and every node runs. What comes after is judged for liveness.
type Healed struct{}

// Health is what the cluster says of itself: whatever is wrong, in words. The last one after Healed counts.
type Health struct {
	Wrong []string `json:"wrong,omitempty"`
}

// Digest is that of a body, or of anything else that is compared.
type Digest segment.Digest

// Evidence is what was asked or answered, in JSON as text: replicated:2:flushed.
type Evidence struct{ wire.Evidence }

func (*Publish) name() string   { return "publish" }
func (*Answer) name() string    { return "answer" }
func (*Deliver) name() string   { return "deliver" }
func (*Settle) name() string    { return "settle" }
func (*Settled) name() string   { return "settled" }
func (*Purge) name() string     { return "purge" }
func (*Purged) name() string    { return "purged" }
func (*Change) name() string    { return "change" }
func (*Changed) name() string   { return "changed" }
func (*Fault) name() string     { return "fault" }
func (*FaultDone) name() string { return "fault.done" }
func (*Boot) name() string      { return "boot" }
func (*Lost) name() string      { return "lost" }
func (*Audit) name() string     { return "audit" }
func (*Dump) name() string      { return "dump" }
func (*Entry) name() string     { return "entry" }
func (*DumpEnd) name() string   { return "dump.end" }
func (*Healed) name() string    { return "healed" }
func (*Health) name() string    { return "health" }
