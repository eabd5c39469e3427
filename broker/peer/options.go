package peer

import (
	"context"
	"math/rand/v2"
	"time"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// The bounds of a link unless Options say otherwise, and those that nobody changes.
const (
	// PendingBytesDefault bounds the frames that wait for an exchange to a node, in bytes.
	PendingBytesDefault = 8 << 20
	// PayloadBytesDefault bounds what waits on the payload stream of one shard to a node, in bytes.
	PayloadBytesDefault = 4 << 20
	// GapWaitDefault is how long a frame waits for an earlier one of its group: one heartbeat.
	GapWaitDefault = 200 * time.Millisecond

	// RaftFrameMax bounds Frame.Data of Transport.Raft, in bytes.
	RaftFrameMax = 4 << 20
	// BeatMax bounds one frame of heartbeats, in bytes.
	BeatMax = 1 << 20
	// StreamsMax is how many transfers of Transport.Stream are on their way to a node; others wait for a place.
	StreamsMax = 32
)

// Node is another node, as the members of the cluster are known here.
type Node struct {
	ID          raftstore.NodeID     // required
	Fingerprint endpoint.Fingerprint // required
	// Addresses are host:port; they are tried in turn.
	Addresses []string
	// Disk is the disk that the node is known to have; zero takes the first one that shows itself.
	Disk [16]byte
	// Incarnation is the lowest that is believed: one that was registered; zero believes any.
	Incarnation uint64
	// Nonce is the one that was registered with Incarnation; zero believes any.
	Nonce [16]byte
}

// Options say who this node is, how far its links go, and what they are driven by.
type Options struct {
	// Cluster is the cluster's id; required.
	Cluster [16]byte
	// Node is this node's number in it; required.
	Node raftstore.NodeID
	// Fingerprint is that of the listener's identity; required.
	Fingerprint endpoint.Fingerprint
	// Disk is the id of the data directory; required.
	Disk [16]byte
	// Incarnation rises at every start of the node; required.
	Incarnation uint64
	// Nonce is random for each incarnation; required.
	Nonce [16]byte
	// Follows says whether this incarnation comes after, or is, another one of the same disk. nil compares the numbers,
	// and the nonces of the same number.
	Follows func(incarnation uint64, nonce [16]byte) bool

	// RaftStreams is raft_streams_max: how many exchanges are on their way to a node, and from it; 1024 if zero.
	RaftStreams int
	// PendingBytes bounds the frames that wait for an exchange to a node; 8 MiB if zero.
	PendingBytes int
	// PayloadBytes bounds what waits on the payload stream of one shard to a node; 4 MiB if zero.
	PayloadBytes int
	// GapWait is how long a frame waits for an earlier one of its group; 200 ms if zero.
	GapWait time.Duration
	// Clock is for gaps and pauses; nil is the machine's.
	Clock Clock
	// Rand returns numbers in [0, 1) that spread pauses; nil is the machine's. Any goroutine.
	Rand func() float64
	// Serve answers the calls of other nodes, each on a goroutine of its own; an error is the refusal that the caller
	// gets. ctx ends with the link. nil refuses all.
	Serve func(ctx context.Context, from raftstore.NodeID, request []byte) ([]byte, error)
	// Event receives what an operator should know; nil drops it. It must not block or call the links.
	Event func(Event)

	hooks hooks
}

// hooks let tests hold up what runs.
type hooks struct {
	// exchange is called before an exchange is read, with how many came before it on its connection.
	exchange func(nth int)
	// parsed is called when an exchange was read and before its frames are handed over.
	parsed func()
	// groups is how many groups have numbers on a connection; groupsMax if zero.
	groups int
}

// Clock tells the time and wakes.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once in d, on another goroutine, unless it is stopped before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type machineClock struct{}

// Now is the machine's time.
func (machineClock) Now() time.Time { return time.Now() }

// AfterFunc is a timer of the machine's.
func (machineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

func (o Options) withDefaults() Options {
	if o.Node == 0 || o.Incarnation == 0 {
		panic("bug: peer: Options without Node or Incarnation")
	}
	setDefault(&o.RaftStreams, endpoint.RaftStreamsDefault)
	setDefault(&o.PendingBytes, PendingBytesDefault)
	setDefault(&o.PayloadBytes, PayloadBytesDefault)
	setDefault(&o.GapWait, GapWaitDefault)
	o.PayloadBytes = max(o.PayloadBytes, raftstore.PayloadFrameMax+payloadHead)
	if o.Clock == nil {
		o.Clock = machineClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	if o.Follows == nil {
		own, drawn := o.Incarnation, o.Nonce
		o.Follows = func(n uint64, nonce [16]byte) bool { return n < own || n == own && nonce == drawn }
	}
	return o
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v < 0 {
		panic("bug: peer: negative option")
	}
	if *v == 0 {
		*v = def
	}
}

// Event is something that an operator should know.
type Event struct {
	Kind EventKind
	Node raftstore.NodeID // 0 if it is not known
	Err  error            // why, for all but Up
}

// EventKind says what happened.
type EventKind uint8

// What may happen to a link.
const (
	Up          EventKind = iota + 1 // both connections stand
	Down                             // one of them ended
	Refused                          // a node was turned away, or turned this one away: *RefusedError
	Unreachable                      // no connection came about; told once until the reason changes
	Displaced                        // this process is not the node's: *DisplacedError; it has to end
)

func (k EventKind) String() string {
	switch k {
	case Up:
		return "up"
	case Down:
		return "down"
	case Refused:
		return "refused"
	case Unreachable:
		return "unreachable"
	case Displaced:
		return "displaced"
	}
	return "unknown"
}
