package wire

import (
	"fmt"
	"strconv"
)

// Code is a number of the one error table. Numbers are never reused; 0 is "no error".
type Code uint64

// Retry says when the same request may be sent again.
type Retry string

// The retry classes.
const (
	RetryNow   Retry = "same node now"
	RetryLater Retry = "same node later"
	RetryOther Retry = "other node"
	RetryFix   Retry = "fix the request"
	RetryNever Retry = "never"
)

// The codes.
const (
	OK               Code = 0
	UnknownQueue     Code = 1001
	TooLarge         Code = 1002
	NotOffered       Code = 1003
	NoLevel          Code = 1004
	InFlightExceeded Code = 1005
	BadSequence      Code = 1006
	SequenceRetired  Code = 1007
	UnknownProducer  Code = 1008
	TooManyProducers Code = 1009
	ProducerOwned    Code = 1010
	QueueFull        Code = 1011
	QueueClosing     Code = 1012
	SequenceTooFar   Code = 1013
	NotReached       Code = 1014
	Malformed        Code = 1101
	BodyMismatch     Code = 1102
	BodyBroken       Code = 1103
	NotAllowed       Code = 1201
	DiskFull         Code = 2001
	ReadOnly         Code = 2002
	Overloaded       Code = 2003
	Stopping         Code = 2004
	StoreFailed      Code = 2005
	StoreRefused     Code = 2006
	NotReady         Code = 2007
	NoQuorum         Code = 2008
	LedElsewhere     Code = 2009
	LeaderChanged    Code = 2010
	ForwardBroken    Code = 2011
	Uncommitted      Code = 2012
	StaleSettle      Code = 3001
	Superseded       Code = 3002
	BodyDamaged      Code = 3003
	TooManySubs      Code = 3004
	QueueDeleted     Code = 3005
	Unsubscribed     Code = 3006
	ConnectionLost   Code = 4001
	Untrusted        Code = 4002

	Conflict              Code = 5001
	AlreadyExists         Code = 5002
	InvalidResource       Code = 5003
	NoSuchResource        Code = 5004
	BeingDeleted          Code = 5005
	RegistryFull          Code = 5006
	NotCommitted          Code = 5007
	MutationIndeterminate Code = 5008
	BadRequest            Code = 5009
	WatchCompacted        Code = 5010
	ChangePending         Code = 5011
	Unsafe                Code = 5012
	NoGroup               Code = 5013
	NotLeader             Code = 5014
)

// Info is one row of the table.
type Info struct {
	Code    Code
	Name    string
	Meaning string // what happened
	Effect  string // what it means for the data
	Remedy  string // what to do
	Retry   Retry
}

const notStored = "The message was not stored."

// Codes is the table, in order of code. Callers must not change it.
var Codes = []Info{
	{
		UnknownQueue, "unknown_queue", "There is no queue of that name.", "Nothing was stored or changed.",
		"Check the name, or make the queue first: publishing and subscribing never make one.", RetryFix,
	},
	{
		TooLarge, "too_large", "The message is larger than the queue takes; its body was not read.", notStored,
		"Send a smaller message, or raise the queue's message size.", RetryFix,
	},
	{
		NotOffered, "not_offered", "The queue cannot give the evidence that was asked for, on one of the two axes.",
		notStored, "Ask for evidence within the offer named in the detail; it is never weakened for you.", RetryFix,
	},
	{
		NoLevel, "no_level", "Stored was asked for without a level.", notStored,
		"Ask for stored:written or stored:flushed.", RetryFix,
	},
	{
		InFlightExceeded, "in_flight_exceeded", "More messages or bytes are unanswered than the stream may have.",
		notStored, "Wait for answers before sending more; the client library does so.", RetryNow,
	},
	{
		BadSequence, "bad_sequence", "A sequence does not rise within its stream.", notStored,
		"Number messages from 1 without going back.", RetryFix,
	},
	{
		SequenceRetired, "sequence_retired", "The sequence is below the producer's lowest unresolved one.", notStored,
		"It was resolved or passed over before: what is below is no longer remembered. Go on above the highest sequence " +
			"used; whoever opens the queue with the id is told the next one.",
		RetryNever,
	},
	{
		UnknownProducer, "unknown_producer", "The queue does not know the producer: it was retired.", notStored,
		"Open the queue again with the producer's id; what was under way is then not recognized as sent before.", RetryFix,
	},
	{
		TooManyProducers, "too_many_producers", "The queue has as many producers with an id as it may have.",
		"Nothing was changed.", "Retire one that is not used any more, or publish without an id.", RetryFix,
	},
	{
		ProducerOwned, "producer_owned", "The producer's id belongs to another identity, which used it first.",
		"Nothing was changed.", "Use an id of your own.", RetryFix,
	},
	{
		QueueFull, "queue_full", "The queue holds as many messages or bytes as it may.", notStored,
		"Consume or purge messages, or raise the queue's limits. What was confirmed is never dropped to make room.",
		RetryLater,
	},
	{
		QueueClosing, "queue_closing", "The queue is being deleted and takes no messages.", notStored,
		"Publish to another queue, or make it again when it is gone.", RetryFix,
	},
	{
		SequenceTooFar, "sequence_too_far", "The sequence is further above the producer's lowest unresolved one than the " +
			"queue remembers.", notStored, "Wait for answers, and name the lowest unresolved sequence with each message.",
		RetryFix,
	},
	{
		NotReached, "not_reached", "Fewer replicas than asked held the message when its time was up.",
		"The message is in the queue, with the evidence that is attached.",
		"Bring the missing replicas back, or ask for fewer. Sent again with its producer id and sequence, it is answered " +
			"with the evidence reached by then, and there is no second copy.", RetryLater,
	},
	{
		Malformed, "malformed", "A frame could not be read; the stream is closed.",
		"Messages of this stream without an answer are indeterminate.",
		"Use a client of the same protocol version; report it if you do.", RetryNever,
	},
	{
		BodyMismatch, "body_mismatch", "A large body's length or digest is not what was announced.", notStored,
		"Send it again from the start.", RetryNow,
	},
	{
		BodyBroken, "body_broken", "A large body's stream ended before its end.", notStored,
		"Send it again from the start.", RetryNow,
	},
	{
		NotAllowed, "not_allowed", "This identity may not do that.", "Nothing was changed.",
		"Add its fingerprint to the node file's trust list with a role that may.", RetryFix,
	},
	{
		DiskFull, "disk_full", "The node's disk has no room.", notStored,
		"Free space on the node; it takes messages and settles again by itself. Reading goes on.", RetryLater,
	},
	{
		ReadOnly, "read_only", "The queue takes no messages on this node: a flush of its log failed, or it is damaged.",
		"The message was not stored. Evidence given before stands.",
		"Look at the node's log for the file, mend the disk, and restart the node.", RetryLater,
	},
	{
		Overloaded, "overloaded", "The queue's inbox or the node's memory for bodies is full.", notStored,
		"Try again after a pause.", RetryLater,
	},
	{Stopping, "stopping", "The node is stopping.", notStored, "Try again when it is back.", RetryLater},
	{
		StoreFailed, "store_failed", "The node's storage failed while the message was under way.",
		"The message may or may not be in the queue.",
		"Mend the storage and read the queue, or send it again and expect a second copy.", RetryLater,
	},
	{
		StoreRefused, "store_refused", "The node's storage failed before the message was written.", notStored,
		"Look at the node's log for the file and mend the storage, then send it again.", RetryLater,
	},
	{
		NotReady, "not_ready", "The queue is not served here: it is being made, it cannot be opened, or this node is behind.",
		notStored,
		"`weida describe queue NAME` shows what stands in the way; try again when its phase is Ready.", RetryLater,
	},
	{
		NoQuorum, "no_quorum", "The queue has no leader that could commit: too few of its replicas reach each other.",
		"Nothing was stored or changed.",
		"Bring nodes back until more than half of the queue's replicas run; other queues are not affected.", RetryLater,
	},
	{
		LedElsewhere, "led_elsewhere", "Another node leads the queue.", "This node stored and changed nothing.",
		"Ask the node that the redirect names; the client library does so. With --single the node asks it for you.",
		RetryOther,
	},
	{
		LeaderChanged, "leader_changed", "The queue's leadership moved while the message was under way.",
		"The message may or may not be in the queue.",
		"Send it again; without a producer id a second copy is possible.", RetryOther,
	},
	{
		ForwardBroken, "forward_broken", "The node that forwards the stream lost its way to the queue's leader.",
		"What has no answer may or may not have been done.",
		"Open the stream again; the client library does so. Without a producer id a second copy is possible.", RetryLater,
	},
	{
		Uncommitted, "uncommitted", "Too few of the queue's replicas have room on their disks for what its leader wrote.",
		"It is on the leader's disk and not committed: it is done when there is room, or lost if the leader is.",
		"Free space on the nodes that `weida status` names as full. Sent again with its producer id and sequence, a " +
			"message has no second copy; without an id expect one.", RetryLater,
	},
	{
		StaleSettle, "stale_settle", "The delivery named is not the one that is open.",
		"Nothing was changed: the message was settled before, or was offered again under a later attempt.",
		"Settle the latest delivery of the message.", RetryNever,
	},
	{
		Superseded, "superseded", "Another consumer attached with the same subscription.",
		"Unsettled messages went to the other consumer.", "Use a subscription of your own.", RetryFix,
	},
	{
		BodyDamaged, "body_damaged", "The message's body on disk is damaged.",
		"Nothing of it was shown as whole, and nothing was deleted; the queue goes on with the others. A replica gets it " +
			"from another one.",
		"Release the message: with several replicas it comes whole. With one, look at the node's log for the file; " +
			"restore it from a copy, or reject the message.", RetryNever,
	},
	{
		TooManySubs, "too_many_subscriptions", "The queue has as many subscriptions as it may have.",
		"Nothing was changed.", "Use one that exists, or one that ends with its stream.", RetryFix,
	},
	{
		QueueDeleted, "queue_deleted", "The queue was deleted.", "What was not settled went with it.",
		"Use another queue, or make it again: it begins empty.", RetryFix,
	},
	{
		Unsubscribed, "unsubscribed", "The subscription was ended, by an unsubscribe.",
		"What it had not settled went back to the queue.", "Attach again: that makes a new subscription.", RetryFix,
	},
	{
		ConnectionLost, "connection_lost", "The connection ended before the answer came.",
		"The message may or may not be in the queue.",
		"Send it again; without a producer id a second copy is possible.", RetryNow,
	},
	{
		Untrusted, "untrusted", "A redirect named a node whose key this client does not trust.",
		"Nothing was sent to it.",
		"If the node is one of yours, add its fingerprint to the nodes of the context.", RetryFix,
	},
	{
		Conflict, "conflict", "The resource changed since the version that was expected.", "Nothing was changed.",
		"Look at the resource as it stands, and ask again with its version.", RetryFix,
	},
	{
		AlreadyExists, "already_exists", "There is a resource of that kind and name.", "Nothing was changed.",
		"Use apply to change it, or another name.", RetryFix,
	},
	{
		InvalidResource, "invalid_resource", "The resource is not one this version can make true.", "Nothing was changed.",
		"Correct the field that the detail names.", RetryFix,
	},
	{
		NoSuchResource, "no_such_resource", "There is no resource of that kind and name.", "Nothing was read or changed.",
		"List the resources; names are compared byte for byte.", RetryFix,
	},
	{
		BeingDeleted, "being_deleted", "The resource is being deleted and cannot be changed.", "Nothing was changed.",
		"Wait until it is gone, then make it again: it begins empty.", RetryLater,
	},
	{
		RegistryFull, "registry_full", "There are as many resources of that kind as there may be.", "Nothing was changed.",
		"Delete one that is not used any more.", RetryFix,
	},
	{
		NotCommitted, "not_committed", "The change could not be committed.", "Nothing was changed.",
		"See the detail for the reason; queues that exist go on meanwhile.", RetryLater,
	},
	{
		MutationIndeterminate, "mutation_indeterminate", "The answer to the change did not come in time.",
		"It may or may not have been made.", "Look at the resource; asking for the same again is safe with apply and delete.",
		RetryNow,
	},
	{
		BadRequest, "bad_request", "The admin request is not one that a node answers.", "Nothing was changed.",
		"Correct what the detail names.", RetryFix,
	},
	{
		WatchCompacted, "watch_compacted", "The changes behind that version are not held any more.", "Nothing was changed.",
		"List the resources again, and watch from the list's resourceVersion.", RetryFix,
	},
	{
		ChangePending, "change_pending", "A change of membership is under way.", "Nothing was changed.",
		"Try again when the current voters are the committed ones: `weida quorum describe` shows both.", RetryLater,
	},
	{
		Unsafe, "unsafe", "It would leave a group without a majority, or it cannot be shown that it would not.",
		"Nothing was changed.", "See the detail for the groups, and for what would be needed.", RetryLater,
	},
	{
		NoGroup, "no_group", "The queue has one replica: an owner, and no consensus group.", "Nothing was changed.",
		"Look at it with `weida describe queue NAME`; give it 3 replicas if it is to have a group.", RetryFix,
	},
	{
		NotLeader, "not_leader", "This node does not lead the group.", "Nothing was changed.",
		"Ask the leader, which the detail names if it is known.", RetryOther,
	},
}

// Lookup returns a code's row.
func Lookup(c Code) (Info, bool) {
	for _, i := range Codes {
		if i.Code == c {
			return i, true
		}
	}
	return Info{}, false
}

func (c Code) String() string {
	if c == OK {
		return "ok"
	}
	if i, ok := Lookup(c); ok {
		return i.Name
	}
	return fmt.Sprintf("code %d", uint64(c))
}

// Error is a code with what was particular to the case.
type Error struct {
	Code   Code
	Detail string
	To     *Redirect // of LedElsewhere, if the node is known
}

// Frame is e as a frame that ends a stream: a Redirect if it leads somewhere.
func (e *Error) Frame() Frame {
	if e.To != nil {
		return e.To
	}
	return &ErrorFrame{Code: e.Code, Detail: e.Detail[:min(len(e.Detail), DetailMax)]}
}

// AsError is the redirect as the error of a request.
func (f *Redirect) AsError() *Error {
	detail := "A replica of it is at " + f.Addr()
	if f.Term > 0 {
		detail = "Its leader in term " + strconv.FormatUint(f.Term, 10) + " is at " + f.Addr()
	}
	return &Error{Code: LedElsewhere, Detail: detail, To: f}
}

func (e *Error) Error() string {
	i, ok := Lookup(e.Code)
	if !ok {
		return fmt.Sprintf("%s [E%d]", e.Detail, uint64(e.Code))
	}
	s := i.Meaning
	if e.Detail != "" {
		s += " " + e.Detail + "."
	}
	return fmt.Sprintf("%s %s %s [E%d: weida explain E%d]", s, i.Effect, i.Remedy, uint64(e.Code), uint64(e.Code))
}

// Retry returns the code's retry class.
func (e *Error) Retry() Retry {
	i, _ := Lookup(e.Code)
	return i.Retry
}

func (d *dec) codeOrOK() Code {
	return Code(d.uint())
}

// code takes an error's code; one that this build does not know is shown as its number.
func (d *dec) code() Code {
	c := d.codeOrOK()
	if d.err == nil && c == OK {
		d.fail("an error without a code")
	}
	return c
}
