package raftstore

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// peers is what a replica knows of the other members: where they are, and, if it leads, what they said in this
// leadership.
type peers struct {
	list map[ReplicaID]*peer
	// routes are the nodes of senders that no configuration here names yet: a replica that was away long may be told of
	// its group by members it has never heard of.
	routes    map[ReplicaID]NodeID
	misplaced uint64 // messages whose sender is not on the node that sent them
}

// peer is one member, as its leader sees it.
type peer struct {
	acked uint64 // epoch of its node at its last answer to an append; 0: none in this leadership
	heard int64  // tick of its last answer; -1: none
	// heardAt and caughtUp are on the clock of the host, which goes on while the group is quiet.
	heardAt  int64
	caughtUp int64 // the last moment whose end of the log it is known to hold, by an answer; -1: none
	// end is where the log ended at endAt: once it holds that, it was caught up then.
	end   Index
	endAt int64
	// sent is the last entry of an append that was sent at sentAt and not answered yet; 0: none. took is when one was
	// sent that it has answered since.
	sent   Index
	sentAt int64
	took   int64
	lives  bool // its node was up when the group became quiet: until it wakes, that stands for answers
	probed bool // it answered a heartbeat in this round: what raft sends it now may be a probe
}

// routesMax bounds the senders that no configuration names.
const routesMax = 64

// reset begins a term: nobody has said anything in it.
func (p *peers) reset() { p.list = nil }

func (p *peers) of(id ReplicaID) *peer {
	one := p.list[id]
	if one == nil {
		if p.list == nil {
			p.list = make(map[ReplicaID]*peer)
		}
		one = &peer{heard: -1, caughtUp: -1}
		p.list[id] = one
	}
	return one
}

// heard notes an answer of a member.
func (r *replica) heardOf(l *letter, toAppend bool) {
	id := ReplicaID(l.m.GetFrom())
	if _, ok := r.conf.find(id); !ok {
		return
	}
	one := r.peers.of(id)
	one.heard, one.heardAt = r.now, r.host.clock.Load()
	if toAppend {
		one.acked = l.epoch
		one.takes(Index(l.m.GetIndex()))
	} else {
		one.probed = true
	}
}

// An append that a member has taken is as good as a heartbeat: it came, and was given to its raft. So none is sent in
// an interval in which there was one. That it was sent is not enough: one that waits at the member's gate for a body
// keeps no election away.

// sends notes an append that goes out.
func (p *peer) sends(last Index, now int64) {
	if p.sent == 0 {
		p.sent, p.sentAt = last, now
	}
}

// takes notes the answer to one.
func (p *peer) takes(upTo Index) {
	if p.sent != 0 && upTo >= p.sent {
		p.sent, p.took = 0, p.sentAt
	}
}

// tookSince reports whether it has taken an append that was sent after a tick.
func (p *peer) tookSince(tick int64) bool { return p != nil && p.took != 0 && p.took > tick }

func (p *peers) unprobe() {
	for _, one := range p.list {
		one.probed = false
	}
}

// nodeOf says where a replica is.
func (r *replica) nodeOf(id ReplicaID) (NodeID, bool) {
	if m, ok := r.conf.find(id); ok {
		return m.Node, true
	}
	for _, c := range slices.Backward(r.changes) {
		for _, m := range c.members {
			if m.Replica == id {
				return m.Node, true
			}
		}
	}
	n, ok := r.peers.routes[id]
	return n, ok
}

// placed reports whether a message of a replica may come from a node (T-42). Whoever is in no configuration known here
// is taken at its word, and held to it.
func (r *replica) placed(id ReplicaID, from NodeID) bool {
	if n, ok := r.nodeOf(id); ok {
		return n == from
	}
	if len(r.peers.routes) >= routesMax {
		r.peers.routes = nil
	}
	if r.peers.routes == nil {
		r.peers.routes = make(map[ReplicaID]NodeID)
	}
	r.peers.routes[id] = from
	return true
}

// others calls fn for every other node that has a member, in the order of the replicas, and for those of a change that
// is in the log; once each.
func (r *replica) others(fn func(NodeID)) {
	known := r.conf.members
	for i, m := range known {
		if m.Replica != r.rid && m.Node != r.host.o.Node && !hasNode(known[:i], m.Node) {
			fn(m.Node)
		}
	}
	for _, c := range r.changes {
		for i, m := range c.members {
			if m.Node != r.host.o.Node && !hasNode(known, m.Node) && !hasNode(c.members[:i], m.Node) {
				fn(m.Node)
			}
		}
	}
}

func hasNode(list []Member, n NodeID) bool {
	return slices.ContainsFunc(list, func(m Member) bool { return m.Node == n })
}

// unreachable tells raft that a node could not be reached: what was sent there may be lost.
func (r *replica) unreachable(n NodeID) {
	if r.soft.RaftState != raft.StateLeader || r.halted != nil {
		return
	}
	for _, m := range r.conf.members {
		if m.Node == n && m.Replica != r.rid {
			r.guard(func() { r.node.ReportUnreachable(uint64(m.Replica)) })
		}
	}
}

// progress calls fn for every member that raft tracks.
func (r *replica) progress(fn func(ReplicaID, *tracker.Progress)) {
	r.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { fn(ReplicaID(id), &pr) })
}

// reached notes how far a member is. Under a load that never pauses it is at the end of the log at no moment; it was
// caught up at every moment whose log it holds. One that is silent is nowhere.
func (p *peer) reached(match, last Index, now int64) {
	switch {
	case p.heard < 0:
		return
	case match >= last:
		p.caughtUp = p.heardAt
	case p.end != 0 && match >= p.end && !off.caughtUp:
		p.caughtUp = max(p.caughtUp, p.endAt)
	case p.end != 0:
		return
	}
	p.end, p.endAt = last, now
}

// heldBy is Marks.Held: the leader's own flushed entries, and of the other voters what raft knows to match, if it was
// said in the present incarnation of their node (W7): a node that came back has to say it again.
func (r *replica) heldBy() (held [MaxVoters]Index) {
	if !r.leads() || !r.conf.votes(r.rid) {
		return held
	}
	var match [2*MaxVoters + 1]Index
	var on [len(match)]NodeID
	n := 0
	last := r.log.Last().Index
	r.progress(func(id ReplicaID, pr *tracker.Progress) {
		m, ok := r.conf.find(id)
		if id == r.rid || !ok {
			return
		}
		one := r.peers.of(id)
		one.reached(Index(pr.Match), last, r.host.clock.Load())
		if !r.conf.votes(id) || n == len(match) {
			return
		}
		if epoch, up := r.host.epochOf(m.Node); off.incarnation || up && epoch == one.acked {
			k := slices.Index(on[:n], m.Node) // while one takes the other's place there
			if k < 0 {
				k = n
				n++
			}
			on[k], match[k] = m.Node, max(match[k], Index(pr.Match))
		}
	})
	slices.Sort(match[:n])
	held[0] = r.marks.Flushed
	for k := 1; k < MaxVoters && k <= n; k++ {
		held[k] = min(held[0], match[n-k])
	}
	return held
}
