package main

import (
	"fmt"

	"weida/broker/wire"
	"weida/fuzz/internal/label"
)

// event is one line of a run's history. What a client asks for is noted before it is asked, what it is told after
// it was told, in one order for the whole run.
type event interface{}

// place names a queue: its name and which of the queues that had it.
type place struct {
	Queue string
	UID   uint64
}

// sent: a message is handed to a client, for the first time or again.
type sent struct {
	place
	Message  int
	Again    bool   // it was sent before
	Producer string // "" without an id
	Stream   int    // of a producer without an id: which of its streams
	Strict   bool   // the stream is one connection: what it stores has no gaps
	Seq      uint64 // of one with an id
	Length   int
	Sum      uint64
	Want     wire.Want
}

// answered: what became of one sending.
type answered struct {
	place
	Message   int
	Outcome   string // client.Outcome
	Code      wire.Code
	Evidence  wire.Evidence
	Committed bool
	Offset    uint64
	Term      uint64
}

// givenUp: a message is never sent again.
type givenUp struct {
	place
	Message int
}

// opened: a queue told a producer which sequence comes next.
type opened struct {
	place
	Producer string
	Next     uint64
}

// content is a message as the queue showed it.
type content struct {
	Offset   uint64
	Attempt  uint64
	Term     uint64
	Producer string
	Seq      uint64
	Length   int
	Sum      uint64
	Label    *label.Label // nil if it has none
}

// delivered: a consumer got a message.
type delivered struct {
	place
	content
}

// settling: a consumer is about to settle a delivery.
type settling struct {
	place
	Offset  uint64
	Attempt uint64
	Verb    wire.Verb
}

// fate is what somebody who asked for something knows of it.
type fate uint8

const (
	unknown fate = iota // perhaps done
	done
	refused // certainly not done
)

func (f fate) String() string { return [...]string{"unknown", "done", "refused"}[f] }

// settled: how that ended.
type settled struct {
	place
	Offset  uint64
	Attempt uint64
	Fate    fate
	Owner   bool // nobody else uses the subscription, and the connection stood: there is no reason to refuse
}

// purging and purged: a purge.
type purging struct {
	place
	Op int
}

type purged struct {
	place
	Op          int
	Fate        fate
	Count, Left uint64
}

// trouble: an error that a client got where it did not ask for evidence or a settle.
type trouble struct {
	place
	Doing string
	Code  wire.Code // 0: Text is not one of the broker's errors
	Text  string
}

// spec is what a run varies of a queue's spec.
type spec struct {
	Durability                    string
	Messages, Bytes, MessageBytes uint64
}

// resource is a queue as the registry showed it.
type resource struct {
	UID, Generation, Version, Observed uint64
	Spec                               spec
	Deleting                           bool
	DrainUntil                         int64
	Destroying                         bool
	Phase                              string
}

// mutating and mutated: a change of a resource.
type mutating struct {
	Op       int
	Queue    string
	Verb     string // apply, create, delete
	Spec     spec
	Expected *uint64
}

type mutated struct {
	Op    int
	Queue string
	Fate  fate
	Code  wire.Code // if refused
	Now   *resource // nil: there is none, or nobody said
}

// looked: the registry showed a resource, or that there is none.
type looked struct {
	Queue   string
	Version uint64    // of the registry, if a list was asked for
	Now     *resource // nil: there is none
}

// killed and started: the node's lives.
type killed struct{ Life int }

type started struct{ Life int }

// books are a queue's own counts.
type books struct {
	In, Ready, Unsettled, Accepted, Rejected, Purged, Released uint64
}

// audited: everything that is in a queue while nobody does anything.
type audited struct {
	place
	Messages []content
	Books    books
	Final    bool // everything was consumed before
}

func line(e event) string { return fmt.Sprintf("%T%+v", e, e) }
