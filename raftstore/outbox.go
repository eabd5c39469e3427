package raftstore

import (
	"cmp"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// outbox is what a shard says to the other nodes in one round: one exchange per node.
type outbox struct {
	list []*outgoing // by node
	buf  []byte      // the frames' data
}

// outgoing is what goes to one node.
type outgoing struct {
	to      NodeID
	raft    []Frame
	payload []Frame
}

// waitingMax bounds the messages that wait for a hard state; what is more is lost.
const waitingMax = 1024

// outboxBytesKept is how large the buffer may be that a shard keeps from round to round.
const outboxBytesKept = 1 << 20

func (o *outbox) to(n NodeID) *outgoing {
	i, ok := slices.BinarySearchFunc(o.list, n, func(g *outgoing, n NodeID) int { return cmp.Compare(g.to, n) })
	if !ok {
		o.list = slices.Insert(o.list, i, &outgoing{to: n})
	}
	return o.list[i]
}

// add appends a frame's data to the buffer.
func (o *outbox) add(data func(dst []byte) []byte) []byte {
	start := len(o.buf)
	o.buf = data(o.buf)
	return o.buf[start:len(o.buf):len(o.buf)]
}

// send hands everything to the transport, bodies before the entries that name them.
func (o *outbox) send(t Transport, shard int) {
	for _, g := range o.list {
		if len(g.payload) > 0 {
			t.Payload(g.to, shard, g.payload)
		}
		if len(g.raft) > 0 {
			t.Raft(g.to, shard, g.raft)
		}
		clear(g.payload)
		clear(g.raft)
		g.payload, g.raft = g.payload[:0], g.raft[:0]
	}
	if o.buf = o.buf[:0]; cap(o.buf) > outboxBytesKept {
		o.buf = nil
	}
}

// post sends a message of raft's to a peer, as soon as the hard state that it may depend on is durable.
func (r *replica) post(m *raftpb.Message) {
	if !r.hard.durable() && !off.hardWait {
		if len(r.waiting) < waitingMax {
			r.waiting = append(r.waiting, m)
		}
		return
	}
	to, ok := r.nodeOf(ReplicaID(m.GetTo()))
	if !ok || to == r.host.o.Node || r.commitOnly(m) || r.mute && m.GetType() == raftpb.MsgHeartbeatResp {
		return
	}
	switch {
	case m.GetType() == raftpb.MsgSnap:
		r.sendSnapshot(to, m)
	case m.GetType() == raftpb.MsgHeartbeat && len(m.GetContext()) == 0: // with one somebody waits
		if !r.peers.list[ReplicaID(m.GetTo())].tookSince(r.now - int64(r.host.o.HeartbeatTicks)) {
			r.host.beats.add(to, r.id, m)
		}
	default:
		if list := m.GetEntries(); len(list) > 0 {
			r.peers.of(ReplicaID(m.GetTo())).sends(Index(list[len(list)-1].GetIndex()), r.now)
		}
		r.send(to, func(dst []byte) []byte { return appendMessage(dst, m) })
	}
}

// send sends to another node; on this one there is nobody else, whatever the configuration says of a replica before it.
func (r *replica) send(to NodeID, data func(dst []byte) []byte) {
	if to == r.host.o.Node {
		return
	}
	o := &r.shard.out
	g := o.to(to)
	g.raft = append(g.raft, Frame{Group: r.id, Data: o.add(data)})
}

// commitOnly reports whether an append says nothing but how far is committed, to a member that is being sent
// everything anyhow: the next append or heartbeat says it too. After an answer to a heartbeat an empty append is how
// raft finds out that one was lost. That a change of configuration is committed is said at once: who does not know it
// needs the votes of those who may soon be gone.
func (r *replica) commitOnly(m *raftpb.Message) bool {
	if off.commitOnly || len(r.changes) > 0 || m.GetType() != raftpb.MsgApp || len(m.GetEntries()) > 0 {
		return false
	}
	id := ReplicaID(m.GetTo())
	if one := r.peers.list[id]; one == nil || one.probed || r.soft.RaftState != raft.StateLeader {
		return false
	}
	streams := false
	r.progress(func(other ReplicaID, pr *tracker.Progress) {
		streams = streams || other == id && pr.State == tracker.StateReplicate
	})
	return streams
}

// pushBodies sends the inline bodies of a proposal to every other member, once written here.
func (r *replica) pushBodies(items []Item) {
	o := &r.shard.out
	for i := range items {
		it := &items[i]
		if !it.HasBody || it.Large != nil {
			continue
		}
		var data []byte
		r.others(func(n NodeID) {
			if data == nil {
				data = o.add(func(dst []byte) []byte { return appendBodyFrame(dst, it.Body.Ref, it.Body.Digest, it.Inline) })
			}
			g := o.to(n)
			g.payload = append(g.payload, Frame{Group: r.id, Data: data})
		})
	}
}

// beats collects the heartbeats of all groups until the next tick sends them, one frame per node.
type beats struct {
	mu sync.Mutex
	// guarded by mu
	list []*beatsTo // by node
}

type beatsTo struct {
	node NodeID
	data []byte
}

func (b *beats) add(to NodeID, g GroupID, m *raftpb.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.to(to)
	if len(t.data) < beatFrameMax-64 {
		t.data = appendBeat(t.data, g, m)
	}
}

// send sends what was collected, with what ails this node's disk; to each node of also, even if nothing was collected
// for it.
func (b *beats) send(t Transport, disk DiskState, also []NodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range also {
		if to := b.to(n); len(to.data) == 0 {
			to.data = beatHead(to.data, disk)
		}
	}
	for _, to := range b.list {
		if len(to.data) > 0 {
			to.data[beatHeadBytes-1] = byte(disk)
			t.Beat(to.node, to.data)
			to.data = to.data[:0]
		}
	}
}

// to is what goes to a node. mu is held.
func (b *beats) to(n NodeID) *beatsTo {
	i, ok := slices.BinarySearchFunc(b.list, n, func(t *beatsTo, n NodeID) int { return cmp.Compare(t.node, n) })
	if !ok {
		b.list = slices.Insert(b.list, i, &beatsTo{node: n})
	}
	return b.list[i]
}
