package admin

import (
	"context"

	"weida/broker/control"
)

// Node is what the handlers need of a broker node. All methods may be called from any goroutine; only those with a
// context wait.
type Node interface {
	// Mutate proposes a mutation and waits for its entry. A refusal is in the result; an error is a
	// *wire.Error: not done (stopping, read only, disk full), or indeterminate.
	Mutate(ctx context.Context, m control.Mutation) (control.Result, error)
	// Try is the result that a mutation would have as of now; nothing is proposed.
	Try(m control.Mutation) control.Result
	// Registry is the committed registry as of now.
	Registry() Registry
	// Changes are those behind a version, oldest first and at most so many, but never a part of one entry's.
	Changes(after uint64, most int) Changes
	// Moved is closed when the registry may have changed after the call.
	Moved() <-chan struct{}
	// Done is closed when the node takes no more work.
	Done() <-chan struct{}
	// Live is what this node knows of a queue's run time, by uid; false if it does not serve it.
	Live(uid uint64) (Live, bool)
	// Health is the node's own judgement.
	Health() Health
	// Counters are the node's counters since it started.
	Counters() Counters
	// Local is what this node knows of its groups.
	Local() Facts
	// Others asks the other nodes for what they know of theirs; who does not answer before ctx ends says why.
	Others(ctx context.Context) []Facts
	// Transfer asks a group's leader to let another node lead; unless stay is set also one on another node. Errors are
	// of raftstore.Group's Reconfigure, or a *wire.Error.
	Transfer(ctx context.Context, group, to uint64, stay bool) error
}

// Change is one resource that an entry of the control log made, changed or took away.
type Change struct {
	Version uint64
	Type    EventType
	Kind    control.Kind
	Object  any // as it stands behind the entry; of a deletion, as it stood
}

// Changes is a piece of the registry's history.
type Changes struct {
	List []Change
	UpTo uint64 // all changes up to this version are in the list
	Gone bool   // some behind the version that was asked for are not held any more; then there is no list
}

// EventType says what became of a resource, as control.Event does.
type EventType string

// The types of changes, and the two events of a watch that are about none.
const (
	Added    EventType = "added"
	Modified EventType = "modified"
	Deleted  EventType = "deleted"
	Progress EventType = "progress" // everything up to this version was told
	Ended    EventType = "ended"    // the watch ends, the error says why
)

// Registry is a copy of all resources, sorted by name. Version is the control log's last applied index.
type Registry struct {
	Version    uint64
	Nodes      []control.Node
	Queues     []control.Queue
	Connectors []control.Connector
}

// Live is a queue as it runs. Every message is counted once: In = Ready + Unsettled + the outs.
type Live struct {
	Leader string `json:"leader"` // name of the node
	Term   uint64 `json:"term"`

	In        uint64 `json:"in"`
	Ready     uint64 `json:"ready"`
	Unsettled uint64 `json:"unsettled"`
	Accepted  uint64 `json:"accepted"` // out, as the next two
	Rejected  uint64 `json:"rejected"`
	Purged    uint64 `json:"purged"`
	Released  uint64 `json:"released"`  // came back
	Bytes     uint64 `json:"bytes"`     // of bodies, ready and unsettled
	DiskBytes uint64 `json:"diskBytes"` // of the queue's directory

	Subscriptions int    `json:"subscriptions"`
	Consumers     int    `json:"consumers"`
	Producers     int    `json:"producers"`
	Trouble       string `json:"trouble"` // why it takes no messages, "" if it does
}

// Problem is one thing that is not as it should be: what, what it means for the data, what to do.
type Problem struct {
	Object string `json:"object"` // "node", or "queue NAME"
	What   string `json:"what"`
	Effect string `json:"effect"`
	Remedy string `json:"remedy"`
}

// Health is empty where all is well. Alive problems ask for a restart, Ready problems keep traffic away.
type Health struct {
	Alive []Problem
	Ready []Problem
}

// Counters of a node. Durations are in seconds.
type Counters struct {
	Connections      int               `json:"connections"`
	ConnectionsTotal uint64            `json:"connectionsTotal"`
	Refusals         map[string]uint64 `json:"refusals"`  // by name of the code
	Published        map[string]uint64 `json:"published"` // by level of evidence: messages answered
	Indeterminate    uint64            `json:"indeterminate"`
	Delivered        uint64            `json:"delivered"`
	Settled          uint64            `json:"settled"`
	BodyBytes        uint64            `json:"bodyBytes"` // in flight, of large bodies

	FlushRounds  uint64    `json:"flushRounds"`
	FlushFiles   uint64    `json:"flushFiles"` // files made durable in these rounds
	FlushErrors  uint64    `json:"flushErrors"`
	FlushSeconds Histogram `json:"flushSeconds"`

	Disk  Disk          `json:"disk"`
	Scrub ScrubCounters `json:"scrub"`

	Consensus ConsensusSettings `json:"consensus"`

	Damaged    map[string]uint64 `json:"damaged"`    // replicas that were found so here, by reason
	SetAside   uint64            `json:"setAside"`   // of those given up
	LyingAside int               `json:"lyingAside"` // directories of replicas that were given up, now

	Links []LinkCounters `json:"links,omitempty"` // with the other nodes, in the order of their numbers
}

// ConsensusSettings are the numbers of replicated groups that hold for all groups of a node.
type ConsensusSettings struct {
	Election  float64 `json:"election"`  // seconds of silence before an election
	Heartbeat float64 `json:"heartbeat"` // seconds between heartbeats at most
	Streams   int     `json:"streams"`   // exchanges under way with another node at most
}

// ScrubCounters are what the node counts of the damage that it looks for on its disk.
type ScrubCounters struct {
	Bytes   uint64  `json:"bytes"`   // read again
	Passes  uint64  `json:"passes"`  // over everything
	PassAge float64 `json:"passAge"` // seconds since the end of the last one; -1 if none ended
	Found   uint64  `json:"found"`   // bodies, entries and files
	Mended  uint64  `json:"mended"`
	Open    int     `json:"open"` // found and not mended
}

// LinkCounters are what a link with another node counts.
type LinkCounters struct {
	Peer         uint64            `json:"peer"` // its number
	Up           bool              `json:"up"`
	RoundTrip    float64           `json:"roundTrip"` // seconds; 0 while it is down
	RaftBytes    uint64            `json:"raftBytes"` // both ways, as they travel
	PayloadBytes uint64            `json:"payloadBytes"`
	Sent         uint64            `json:"sent"` // exchanges
	Received     uint64            `json:"received"`
	UnderWay     int               `json:"underWay"`  // exchanges without an answer
	Saturated    uint64            `json:"saturated"` // calls that found as many under way as may be
	Gaps         uint64            `json:"gaps"`      // frames that counted as lost
	Dropped      map[string]uint64 `json:"dropped"`   // frames, by reason
	Dials        uint64            `json:"dials"`     // attempts to make the connections
}

// Histogram is a histogram with upper bounds in rising order and the count below each; Count is of all.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // seconds
	Counts []uint64  `json:"counts"` // cumulative, as long as Bounds
	Count  uint64    `json:"count"`
	Sum    float64   `json:"sum"` // seconds
}
