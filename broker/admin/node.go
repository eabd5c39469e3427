package admin

import (
	"context"

	"weida/broker/control"
)

// Node is what the handlers need of a broker node. All methods may be called from any goroutine; only
// Mutate and Purge wait.
type Node interface {
	// Mutate proposes a mutation and waits for its entry. A refusal is in the result; an error is a
	// *wire.Error: not done (stopping, read only, disk full), or indeterminate.
	Mutate(ctx context.Context, m control.Mutation) (control.Result, error)
	// Registry is the committed registry as of now.
	Registry() Registry
	// Live is what this node knows of a queue's run time, by uid; false if it does not serve it.
	Live(uid uint64) (Live, bool)
	// Health is the node's own judgement.
	Health() Health
	// Counters are the node's counters since it started.
	Counters() Counters
}

// Registry is a copy of all resources, sorted by name. Version is the control log's last applied index.
type Registry struct {
	Version    uint64
	Queues     []control.Queue
	Connectors []control.Connector
}

// Live is a queue as it runs. Every message is counted once: In = Ready + Unsettled + the outs.
type Live struct {
	Leader string // name of the node
	Term   uint64

	In, Ready, Unsettled       uint64
	Accepted, Rejected, Purged uint64 // out, by reason
	Released                   uint64 // came back
	Bytes                      uint64 // of bodies, ready and unsettled
	DiskBytes                  uint64 // of the queue's directory
	Subscriptions, Consumers   int
	Producers                  int
	Trouble                    string // why it takes no messages, "" if it does
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

// Counters of a node. Durations are in nanoseconds.
type Counters struct {
	Connections      int
	ConnectionsTotal uint64
	Refusals         map[string]uint64 // by name of the code
	Published        map[string]uint64 // by level of evidence: messages answered
	Indeterminate    uint64
	Delivered        uint64
	Settled          uint64
	BodyBytes        uint64 // in flight, of large bodies

	FlushRounds  uint64
	FlushFiles   uint64 // files made durable in these rounds
	FlushErrors  uint64
	FlushSeconds Histogram
}

// Histogram is a histogram with upper bounds in rising order and the count below each; Count is of all.
type Histogram struct {
	Bounds []float64 // seconds
	Counts []uint64  // cumulative, as long as Bounds
	Count  uint64
	Sum    float64 // seconds
}
