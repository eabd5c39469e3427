package broker

import (
	"fmt"
	"slices"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// The numbers of the broker profile that this package keeps. Those of other packages stand where they
// are kept to; Limits is the table of all.
const (
	messageMaxDefault   = 1 << 30
	inFlightMessagesMax = 1024
	inFlightBytesMax    = 16 << 20
	connectionsMax      = 1024
	// oneKeyMax bounds the connections of one key, from wherever they come.
	oneKeyMax = 256

	// peekMax bounds the messages of one answer to a peek.
	peekMax = 1000
	// settlesMax bounds the settles of one consumer that have no answer yet.
	settlesMax = 2 * queue.UnsettledMax
	// outboxMax is how many bytes of answers may wait, besides those to what is unanswered already.
	outboxMax = 32 << 10

	// leaderPatience is how long a request waits for a queue's leader to be known.
	leaderPatience = 5 * time.Second
	// leaderAgain is how long a change waits to ask again who leads the control group, if nothing is heard of it.
	leaderAgain = 250 * time.Millisecond
	// joinTell is how often a node that joins says that it waits.
	joinTell = 10 * time.Second
	// changesUnderWay is how many changes of the registry wait for their entries at once; the others wait for them.
	changesUnderWay = 64
	// commitPatience is how long a change of the registry may take to be committed, before it is called indeterminate.
	commitPatience = 10 * time.Second
	// wantPatience is how long a message that is committed waits for the replicas it wants, unless it says so itself.
	wantPatience = 5 * time.Second
	// reattachGrace is how long a new leader keeps for a subscription what its consumer had not settled.
	reattachGrace = 10 * time.Second
	// laterAgain is how long a message whose body is damaged waits to be looked for again.
	laterAgain = 250 * time.Millisecond
	// againAfter is how long what had no room in a queue's log waits for another try, if nothing else is written.
	againAfter = time.Second
	// asideRest is how long after one replica of a queue the next one is set aside on the same node.
	asideRest = 10 * time.Minute
	// stopPatience is how long a node that stops waits for answers to be given and read.
	stopPatience = 5 * time.Second
	// stopLinger is how long a session waits for its client to leave once everything is answered.
	stopLinger = time.Second
	// openTimeout is how long a new stream may take to say what it is for.
	openTimeout = 10 * time.Second
	// bodyPace is how many bytes of a large body have to come within bodyStall, unless it ends.
	bodyPace  = 30 << 10
	bodyStall = 30 * time.Second
	// streamPiece is the memory for one large body under way, in bytes.
	streamPiece = 128 << 10
)

// LimitRow is one number of the profile: its default and what happens beyond it.
type LimitRow struct{ Name, Default, Beyond string }

// Limits is the broker profile: one default and one named refusal each. docs/reference/limits.md
// shows it, and a test compares them.
func Limits() []LimitRow { return slices.Concat(queueLimits(), nodeLimits()) }

func queueLimits() []LimitRow {
	return []LimitRow{
		{"messaging port", "UDP 7443 in examples; `dev` takes a free one and keeps it", "address in use"},
		{"admin port", "TCP 7444 in examples, loopback only; the node file names it", "address in use"},
		{"inline body", size(wire.InlineMax), "a larger body travels on a stream of its own and lies in a file of its own"},
		{
			"message size", size(messageMaxDefault) + ", or the queue's `messageBytes`",
			code(wire.TooLarge) + ", before the body is read",
		},
		{
			"in flight per producer", fmt.Sprintf("%d messages and %s", inFlightMessagesMax, size(inFlightBytesMax)),
			code(wire.InFlightExceeded) + "; the client library waits",
		},
		{"producers with an id per queue", fmt.Sprint(queue.ProducersMax), code(wire.TooManyProducers)},
		{
			"sequences remembered per producer", fmt.Sprintf("%d from its lowest unresolved one on", queue.SequencesMax),
			code(wire.SequenceTooFar) + ", " + code(wire.SequenceRetired) + " below",
		},
		{
			"messages and bytes of a queue",
			fmt.Sprintf("none; `limits` of the queue, %d bytes more for each message", queue.MessageCost), code(wire.QueueFull),
		},
		{
			"queue name; producer or subscription id", fmt.Sprintf("%d; %d bytes", wire.QueueMax, wire.IDMax),
			code(wire.InvalidResource) + "; " + code(wire.Malformed),
		},
		{"subscriptions per queue", fmt.Sprint(queue.SubscriptionsMax), code(wire.TooManySubs)},
		{"open deliveries per subscription", fmt.Sprint(queue.UnsettledMax), "no more are made until some are settled"},
		{"messages in one answer to a peek", fmt.Sprint(peekMax), "the client asks again"},
		{"queues; connectors", fmt.Sprintf("%d; %d", control.QueuesMax, control.ConnectorsMax), code(wire.RegistryFull)},
		{"replicas of a queue", fmt.Sprintf("1, or 3 to %d", control.ReplicasMax), code(wire.InvalidResource)},
		{
			"nodes of a cluster; voters of the control group",
			fmt.Sprintf("1, or 3 to %d; 1, 3 or %d", control.NodesMax, control.ControlVotersMax),
			code(wire.InvalidResource) + ", two by name; the other nodes learn",
		},
		{"changes kept for watches", fmt.Sprint(control.HistoryMax), code(wire.WatchCompacted) + ": list again"},
		{"changes of the registry on their way at once", fmt.Sprint(changesUnderWay), "the others wait for them"},
		{
			"time for a change of the registry to be committed", commitPatience.String(),
			code(wire.MutationIndeterminate) + "; " + code(wire.NotCommitted) + " where the control group has no leader for " +
				leaderPatience.String(),
		},
		{
			"time for a queue's leader to be known", leaderPatience.String(),
			code(wire.NoQuorum) + "; other queues are not affected",
		},
		{
			"time for replicas beyond the commit",
			fmt.Sprintf("%v; a message may say up to %v", wantPatience, wire.WithinMax*time.Millisecond),
			code(wire.NotReached) + ", with the evidence reached",
		},
		{
			"time for a consumer to come back under a new leader", reattachGrace.String(),
			"what it had not settled is offered to others",
		},
		{"redirects that are followed for one request", fmt.Sprint(hopsMax), code(wire.LedElsewhere)},
	}
}

func nodeLimits() []LimitRow {
	return []LimitRow{
		{"answers that a client has not read", size(outboxMax), "the node reads no more of its requests"},
		{"stop in order", fmt.Sprintf("%v for answers to be given and read", stopPatience), "the rest is indeterminate"},
		{
			"connections per node; per address, loopback exempt",
			fmt.Sprintf("%d; %d", connectionsMax, endpoint.OneAddressDefault), "refused before any work for TLS",
		},
		{
			"streams, peeks, frames without effect and deliveries given back, per key",
			fmt.Sprintf("1/%d of a processor, as estimated", brakeShare), "the key waits; publishing and settling do not",
		},
		{"connections per key", fmt.Sprint(oneKeyMax), code(wire.Overloaded) + ", and closed; other keys go on"},
		{
			"receive windows of all connections beyond their first", size(endpoint.WindowBudgetDefault),
			"they stay as they are, and their clients are slower",
		},
		{
			"streams per connection", fmt.Sprintf("%d and %d bodies", endpoint.StreamsMax, endpoint.BodyStreamsMax),
			"the client waits",
		},
		{
			"handshake; silent connection; first frame; pace of a large body",
			fmt.Sprintf("%v; %v; %v; %s in %v",
				endpoint.HandshakeIdle, endpoint.IdleMax, openTimeout, size(bodyPace), bodyStall),
			"closed; what had no answer is indeterminate",
		},
		{
			"reading again what is stored, to find damage",
			fmt.Sprintf("%s in a second, all of it at most once in %dh; `scrub` in the node file",
				size(raftstore.ScrubBytesDefault), raftstore.ScrubEveryDefault*tickTime/time.Hour), "it takes longer",
		},
		{
			"damage that a replica mends by itself",
			fmt.Sprintf("%v as leader, %v in all", raftstore.MendGraceTicks*tickTime, raftstore.MendFailTicks*tickTime),
			"the leadership is handed over; the replica is made anew",
		},
		{
			"silence of a leader before an election; between its heartbeats",
			fmt.Sprintf("%v to twice that; %v; `consensus` in the node file, the same on all nodes",
				raftstore.ElectionTicksDefault*tickTime, raftstore.HeartbeatTicksDefault*tickTime),
			"another replica leads; what cannot be set is refused at the start",
		},
		{
			"exchanges of consensus under way with a node",
			fmt.Sprintf("%d; `consensus.streams` in the node file", endpoint.RaftStreamsDefault),
			"merged; the oldest frames are dropped, as if the network had lost them",
		},
		{
			"replicas of one queue that a node gives up", "one in " + asideRest.String(),
			"the next one waits; the queue goes on with the others",
		},
		{
			"room of the disk that is kept from messages",
			fmt.Sprintf("%s, or 1/%d of a smaller file system", size(raftstore.DiskReserveMax), raftstore.DiskReserveShare),
			code(wire.DiskFull) + " where no voter with room can lead; settles and other commands go on",
		},
		{
			"queue's inbox",
			fmt.Sprintf("%d messages and %s", raftstore.InboxMessagesDefault, size(raftstore.InboxBytesDefault)),
			code(wire.Overloaded) + "; the node waits with reading first",
		},
	}
}

func code(c wire.Code) string { return fmt.Sprintf("`E%d` %s", uint64(c), c) }

// size is a number of bytes that is a round one.
func size(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); n >= one && n%one == 0 {
			return fmt.Sprintf("%d %s", n/one, unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
