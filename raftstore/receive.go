package raftstore

import (
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"
)

var _ Receiver = (*Host)(nil)

// nodes is what a host knows of the other nodes.
type nodes struct {
	mu sync.RWMutex
	// guarded by mu
	list map[NodeID]*nodeState
	// ailing says that the disk of some node ails; written under mu.
	ailing atomic.Bool
}

// nodeState is one other node.
type nodeState struct {
	up          bool
	incarnation uint64
	// epoch rises whenever the node comes or goes: what was said in an earlier one is no evidence (W7).
	epoch uint64
	// disk is what ails its disk, as it said at the tick diskAt.
	disk   DiskState
	diskAt int64
}

// epochOf returns the present epoch of a node, and whether it is up.
func (h *Host) epochOf(n NodeID) (epoch uint64, up bool) {
	h.nodes.mu.RLock()
	defer h.nodes.mu.RUnlock()
	if s := h.nodes.list[n]; s != nil {
		return s.epoch, s.up
	}
	return 0, false
}

// nodesUp are the nodes that are up, in order.
func (h *Host) nodesUp() (list []NodeID) {
	h.nodes.mu.RLock()
	defer h.nodes.mu.RUnlock()
	for n, s := range h.nodes.list {
		if s.up {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// PeerUp implements Receiver.
func (h *Host) PeerUp(n NodeID, incarnation uint64) {
	h.nodes.mu.Lock()
	s := h.nodes.list[n]
	if s == nil {
		s = &nodeState{}
		if h.nodes.list == nil {
			h.nodes.list = make(map[NodeID]*nodeState)
		}
		h.nodes.list[n] = s
	}
	news := !s.up || s.incarnation != incarnation
	if news {
		s.up, s.incarnation, s.disk = true, incarnation, 0
		s.epoch++
	}
	h.nodes.mu.Unlock()
	if news {
		h.tellNews(n)
	}
}

// PeerDown implements Receiver.
func (h *Host) PeerDown(n NodeID) {
	h.nodes.mu.Lock()
	s := h.nodes.list[n]
	news := s != nil && s.up
	if news {
		s.up, s.disk = false, 0
		s.epoch++
	}
	h.nodes.mu.Unlock()
	if news {
		h.far.leave(n)
		h.tellNews(n)
	}
}

// tellNews tells every shard that a node came or went.
func (h *Host) tellNews(n NodeID) {
	for _, s := range h.shards {
		s.nodeNews(n)
	}
}

// served returns the group, and whether it is known here at all: it may be on its way in or out.
func (h *Host) served(g GroupID) (r *replica, known bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	m, known := h.groups[g]
	r, _ = m.(*replica)
	return r, known
}

// ReceiveRaft implements Receiver. Frames are decoded on the caller's goroutine; what no mailbox has room for is
// dropped.
func (h *Host) ReceiveRaft(from NodeID, frames []Frame) (refused []Refusal) {
	epoch, _ := h.epochOf(from)
	for _, f := range frames {
		r, known := h.served(f.Group)
		if r == nil {
			if !known {
				refused = append(refused, h.refusal(f.Group))
			}
			continue
		}
		l := letter{from: from, epoch: epoch}
		var err error
		if len(f.Data) > 0 && (f.Data[0] == quietFrame || f.Data[0] == knownFrame) {
			l.quiet, err = parseQuiet(f.Data)
		} else if l.m, err = parseMessage(f.Data); err == nil {
			l.size = messageSize(l.m)
		}
		if err != nil {
			h.badFrame(from, f.Group, err)
			continue
		}
		if r.mail.put(l) {
			r.shard.enqueue(r)
		}
	}
	return refused
}

// refusal says why a group is not here.
func (h *Host) refusal(g GroupID) Refusal {
	if h.o.Retired != nil && h.o.Retired(g) {
		return Refusal{Group: g, Why: RetiredGroup}
	}
	return Refusal{Group: g, Why: UnknownGroup}
}

// badFrame tells of a frame that can't be read: nothing of it was used.
func (h *Host) badFrame(from NodeID, g GroupID, err error) {
	h.o.Event(Event{Kind: BadFrame, Group: g, Node: from, Err: err})
}

// ReceiveRefusals implements Receiver.
func (h *Host) ReceiveRefusals(from NodeID, list []Refusal) {
	for _, f := range list {
		if r, _ := h.served(f.Group); r != nil && r.mail.put(letter{from: from, refused: f.Why}) {
			r.shard.enqueue(r)
		}
	}
}

// ReceiveBeat implements Receiver.
func (h *Host) ReceiveBeat(from NodeID, data []byte) {
	epoch, _ := h.epochOf(from)
	disk, err := parseBeats(data, func(g GroupID, m *raftpb.Message) {
		if r, _ := h.served(g); r != nil && r.mail.put(letter{from: from, epoch: epoch, m: m}) {
			r.shard.enqueue(r)
		}
	})
	if err != nil {
		h.badFrame(from, 0, err)
		return
	}
	h.hearDisk(from, disk)
}
