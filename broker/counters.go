package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/admin"
	"weida/broker/peer"
	"weida/broker/wire"
	"weida/fsync"
)

// counters of a node since it was opened. The zero value is ready.
type counters struct {
	connections   atomic.Uint64
	accepted      atomic.Uint64 // messages answered, by evidence
	written       atomic.Uint64
	flushed       atomic.Uint64
	replicated    atomic.Uint64
	below         atomic.Uint64
	indeterminate atomic.Uint64
	delivered     atomic.Uint64
	settled       atomic.Uint64
	bodyBytes     atomic.Int64 // of large bodies under way

	mu       sync.Mutex
	refusals map[wire.Code]uint64 // guarded by mu
}

func (c *counters) refused(code wire.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusals == nil {
		c.refusals = make(map[wire.Code]uint64)
	}
	c.refusals[code]++
}

func (c *counters) confirmed(e wire.Evidence, n uint64) {
	switch {
	case e.Replicas == 0:
		c.accepted.Add(n)
	case e.Replicas > 1:
		c.replicated.Add(n)
	case e.Persistence == wire.Flushed:
		c.flushed.Add(n)
	default:
		c.written.Add(n)
	}
}

// Counters implements admin.Node.
func (n *Node) Counters() admin.Counters {
	c := &n.counters
	n.mu.Lock()
	open := len(n.conns)
	n.mu.Unlock()
	out := admin.Counters{
		Connections: open, ConnectionsTotal: c.connections.Load(),
		Refusals: make(map[string]uint64),
		Published: map[string]uint64{
			wire.Accepted().String():           c.accepted.Load(),
			wire.Stored(wire.Written).String(): c.written.Load(),
			wire.Stored(wire.Flushed).String(): c.flushed.Load(),
			"replicated:flushed":               c.replicated.Load(), // whatever the number
			"below_request":                    c.below.Load(),
		},
		Indeterminate: c.indeterminate.Load(), Delivered: c.delivered.Load(), Settled: c.settled.Load(),
		BodyBytes: uint64(max(0, c.bodyBytes.Load())),
	}
	c.mu.Lock()
	for code, k := range c.refusals {
		out.Refusals[code.String()] = k
	}
	c.mu.Unlock()
	s := n.flusher.Stats()
	out.FlushRounds = s.FilesRounds + s.WholeRounds + s.AloneRounds
	out.FlushFiles = s.RoundFiles.Sum
	out.FlushErrors = s.Errors
	out.FlushSeconds = seconds(s.RoundTime)
	out.Disk = admin.DiskOf(n.host.Disk())
	out.Consensus = admin.ConsensusSettings{
		Election: n.c.Consensus.Election.Seconds(), Heartbeat: n.c.Consensus.Heartbeat.Seconds(),
		Streams: n.c.Consensus.Streams,
	}
	sc := n.host.Scrub()
	out.Scrub = admin.ScrubCounters{
		Bytes: sc.Bytes, Passes: sc.Passes, PassAge: -1, Found: sc.Found, Mended: sc.Mended, Open: sc.Open,
	}
	if sc.SincePass >= 0 {
		out.Scrub.PassAge = (time.Duration(sc.SincePass) * tickTime).Seconds()
	}
	out.Damaged, out.SetAside = n.damages.counts()
	out.LyingAside = len(n.store.Asides())
	if n.cluster != nil {
		for _, l := range n.cluster.links.Stats() {
			out.Links = append(out.Links, linkCounters(l))
		}
	}
	return out
}

func linkCounters(l peer.Stats) admin.LinkCounters {
	return admin.LinkCounters{
		Peer: uint64(l.Node), Up: l.Up, RoundTrip: l.RTT.Seconds(), RaftBytes: l.RaftWire, PayloadBytes: l.PayloadWire,
		Sent: l.Sent.Exchanges, Received: l.Received.Exchanges, UnderWay: l.Flying, Saturated: l.Saturated,
		Gaps: l.Gaps, Dials: l.Dials,
		Dropped: map[string]uint64{
			"down": l.Drops.Down, "full": l.Drops.Full, "payload_full": l.Drops.Payload, "too_large": l.Drops.TooLarge,
			"failed": l.Drops.Failed, "late": l.Drops.Late, "busy": l.Drops.Busy,
		},
	}
}

// seconds turns the flusher's histogram of durations, whose bucket i lies below 64 µs << i, into one in seconds.
func seconds(h fsync.Histogram) admin.Histogram {
	out := admin.Histogram{Count: h.Count, Sum: float64(h.Sum) / 1e9}
	var below uint64
	for i := range len(h.Buckets) - 1 { // the last one has no limit
		below += h.Buckets[i]
		out.Bounds = append(out.Bounds, float64(uint64(64)<<i)/1e6)
		out.Counts = append(out.Counts, below)
	}
	return out
}
