package peer

import (
	"sync/atomic"
	"time"

	"weida/raftstore"
)

// Traffic is what went one way, in a link's life.
type Traffic struct {
	Exchanges  uint64 // on the raft connection
	RaftFrames uint64
	RaftBytes  uint64 // of exchanges
	Beats      uint64
	BeatBytes  uint64

	PayloadFrames uint64
	PayloadBytes  uint64 // of payload frames
	Streams       uint64 // long transfers that were begun
	StreamBytes   uint64
}

// Drops counts frames that were not delivered, by reason.
type Drops struct {
	Down     uint64 // there was no connection
	Full     uint64 // too much waited on the raft connection: the oldest goes
	Payload  uint64 // too much waited on the payload stream of the shard: the newest goes
	TooLarge uint64 // above the bound of a frame
	Failed   uint64 // their exchange was not taken in time, or the connection ended
	Late     uint64 // they came after their gap had counted as lost
	Busy     uint64 // exchanges refused: more was being read than may be
}

// Stats is one link, now.
type Stats struct {
	Node        raftstore.NodeID
	Up          bool
	Incarnation uint64        // of the other side; the last that was seen
	RTT         time.Duration // of the raft connection; 0 if it is down
	Sent        Traffic
	Received    Traffic
	Drops       Drops
	Gaps        uint64 // numbers of a group that counted as lost
	Replaced    uint64 // heartbeat frames that a newer one overtook
	Saturated   uint64 // calls that found all exchanges on their way and were merged into later ones
	Flying      int    // exchanges on their way
	Pending     int    // bytes that wait for an exchange
	Dials       uint64 // attempts to make the connections
	Refused     uint64 // handshakes that failed for a reason that does not pass by itself
	// RaftWire and PayloadWire are the bytes of both directions as QUIC counts them, with what belongs to packets.
	RaftWire, PayloadWire uint64
}

// traffic counts one direction.
type traffic struct {
	exchanges, raftFrames, raftBytes, beats, beatBytes atomic.Uint64
	payloadFrames, payloadBytes, streams, streamBytes  atomic.Uint64
}

func (t *traffic) read() Traffic {
	return Traffic{
		Exchanges: t.exchanges.Load(), RaftFrames: t.raftFrames.Load(), RaftBytes: t.raftBytes.Load(),
		Beats: t.beats.Load(), BeatBytes: t.beatBytes.Load(),
		PayloadFrames: t.payloadFrames.Load(), PayloadBytes: t.payloadBytes.Load(),
		Streams: t.streams.Load(), StreamBytes: t.streamBytes.Load(),
	}
}

// counters are those of a link; they outlive its connections.
type counters struct {
	sent, received traffic

	down, full, payload, tooLarge, failed, late, busy atomic.Uint64
	gaps, replaced, saturated, dials, refused         atomic.Uint64
	wire                                              [kinds]atomic.Uint64 // of connections that have ended
}

// Stats returns a picture of every link, in the order of the nodes' numbers.
func (l *Links) Stats() []Stats {
	links := l.all()
	list := make([]Stats, 0, len(links))
	for _, k := range links {
		list = append(list, k.stats())
	}
	return list
}

func (k *link) stats() Stats {
	c := &k.count
	s := Stats{
		Node: k.id, Sent: c.sent.read(), Received: c.received.read(),
		Drops: Drops{
			Down: c.down.Load(), Full: c.full.Load(), Payload: c.payload.Load(), TooLarge: c.tooLarge.Load(),
			Failed: c.failed.Load(), Late: c.late.Load(), Busy: c.busy.Load(),
		},
		Gaps: c.gaps.Load(), Replaced: c.replaced.Load(), Saturated: c.saturated.Load(),
		Dials: c.dials.Load(), Refused: c.refused.Load(),
		RaftWire: c.wire[kindRaft].Load(), PayloadWire: c.wire[kindPayload].Load(),
	}
	k.mu.Lock()
	s.Incarnation = k.seen.incarnation
	k.mu.Unlock()
	p := k.pair.Load()
	if p == nil {
		return s
	}
	s.Up = true
	raft := p.conn[kindRaft].ConnectionStats()
	body := p.conn[kindPayload].ConnectionStats()
	s.RTT = raft.SmoothedRTT
	s.RaftWire += raft.BytesSent + raft.BytesReceived
	s.PayloadWire += body.BytesSent + body.BytesReceived
	s.Flying, s.Pending = p.exchanges.load()
	return s
}
