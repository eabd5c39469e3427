package broker

import (
	"fmt"
	"time"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// Consensus holds the numbers of replicated groups that are a node's own: one setting for all of its groups, the same
// on every node of a cluster; a queue has no other (T-54, T-55, B-231). Zero values take the defaults.
type Consensus struct {
	// Election is for how long nothing is heard of a leader before another replica calls an election, up to twice that;
	// 1.5 s if zero. From three heartbeats to a minute, in steps of 100 ms.
	Election time.Duration
	// Heartbeat is after how long a leader is heard again at the latest; 200 ms if zero. In steps of 100 ms.
	Heartbeat time.Duration
	// Streams bounds the exchanges that are under way with another node, and from it; 1024 if zero, from 16 to 65,536.
	// Beyond it frames are merged and the oldest are dropped, as if the network had lost them.
	Streams int
}

const (
	electionMax = time.Minute
	streamsLow  = 16
	streamsHigh = 1 << 16
)

// withDefaults fills in what is not given, and says what cannot be.
func (c Consensus) withDefaults() (Consensus, error) {
	if c.Election == 0 {
		c.Election = raftstore.ElectionTicksDefault * raftstore.TickEvery
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = raftstore.HeartbeatTicksDefault * raftstore.TickEvery
	}
	if c.Streams == 0 {
		c.Streams = endpoint.RaftStreamsDefault
	}
	refuse := func(format string, args ...any) (Consensus, error) {
		return c, fmt.Errorf("consensus: "+format+"; nothing was started or changed", args...)
	}
	for _, d := range []time.Duration{c.Election, c.Heartbeat} {
		if d <= 0 || d%raftstore.TickEvery != 0 {
			return refuse("%v is not a multiple of %v: time passes for groups in ticks of that", d, raftstore.TickEvery)
		}
	}
	switch {
	case c.Election < 3*c.Heartbeat:
		return refuse("an election after %v with a heartbeat every %v: one that is late or lost would depose a leader; "+
			"give it three heartbeats or more", c.Election, c.Heartbeat)
	case c.Election > electionMax:
		return refuse("an election after %v: queues would have no leader for that long; at most %v", c.Election, electionMax)
	case c.Streams < streamsLow || c.Streams > streamsHigh:
		return refuse("%d streams: from %d to %d", c.Streams, streamsLow, streamsHigh)
	}
	return c, nil
}

func ticks(d time.Duration) int { return int(d / raftstore.TickEvery) }
