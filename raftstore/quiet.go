package raftstore

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// This file holds quiescence: a group that has nothing to do is not ticked, sends nothing and costs nothing.
//
//	leader                                              follower
//	idle for quietAfter ticks, everything committed,
//	every member that is up has it all  ──▶ quiet{term, last} ──▶ equal?  yes: not ticked any more
//	not ticked any more                 ◀── MsgHeartbeatResp ◀──────────  no: the answer wakes the leader
//
// Any message of raft's, a proposal or a change wakes a replica. So does the news that a node came or went: what
// the heartbeats of a group would have noticed, the two nodes notice for all their groups. When the node of a leader
// is gone its followers forget it, for they would not vote while they believe in it; the first voter that is up
// campaigns, a few ticks later in one group than in the next, and the others tick.

const (
	// quietAfter is after how many election timeouts without work a group becomes quiet.
	quietAfter = 1
	// quietCalm is for how many ticks the leader is silent before: heartbeats leave with the next tick, and are answered.
	quietCalm = 2
	// eagerTicks is after how many ticks the first member of a new group calls an election again: the others may be about
	// to open it.
	eagerTicks = 2
	// quietSpread is over how many ticks the elections are spread that the loss of one node calls for.
	quietSpread = 5
)

// mayHush reports whether a leader can let its group be quiet: nothing is under way, and every member whose node is up
// has everything, as it said in the present incarnation.
func (r *replica) mayHush() bool {
	last := r.log.Last()
	busy := !r.leads() || r.conf.joint() || len(r.changes) > 0 || r.next < len(r.pending) || len(r.held) > 0 ||
		len(r.answers.list) > 0 || len(r.waiting) > 0 || !r.hard.durable() || r.snap.wanted ||
		len(r.confirms.waiting) > 0
	if busy || r.commit != last.Index || r.last.Index != last.Index || r.rest < quietAfter*r.host.o.ElectionTicks {
		return false
	}
	voters, up := 0, 0
	all := true
	r.progress(func(id ReplicaID, pr *tracker.Progress) {
		m, ok := r.conf.find(id)
		if !ok {
			return
		}
		epoch, alive := r.host.epochOf(m.Node)
		alive = alive || id == r.rid
		if !m.Learner {
			voters++
		}
		if !alive {
			return
		}
		if !m.Learner {
			up++
		}
		one := r.peers.of(id)
		same := id == r.rid || one.acked == epoch && pr.State == tracker.StateReplicate && one.heard >= 0 &&
			r.now-one.heard <= int64(r.host.o.ElectionTicks)
		all = all && same && Index(pr.Match) == last.Index
	})
	return all && up > voters/2 && !r.transferring()
}

// transferring reports whether the leadership is on its way to another voter.
func (r *replica) transferring() bool { return r.node.BasicStatus().LeadTransferee != raft.None }

// hushAll says to every other member that the group is quiet, and is quiet.
func (r *replica) hushAll() {
	last := r.log.Last()
	for _, m := range r.conf.members {
		if m.Replica == r.rid {
			continue
		}
		one := r.peers.of(m.Replica)
		_, one.lives = r.host.epochOf(m.Node)
		q := quiet{from: r.rid, to: m.Replica, term: r.term, commit: last.Index}
		r.send(m.Node, func(dst []byte) []byte { return appendQuiet(dst, q) })
	}
	r.hushed = true
}

// hush takes the leader's word that the group is quiet, if this replica has all that the leader has. It is stepped as
// the heartbeat that it is; the answer is sent only if the replica goes on ticking, and then it wakes the leader.
func (r *replica) hush(l *letter) {
	q := l.quiet
	if q.to != r.rid || !r.placed(q.from, l.from) {
		r.peers.misplaced++
		return
	}
	last := r.log.Last().Index
	equal := q.term == r.term && ReplicaID(r.soft.Lead) == q.from && last == q.commit && len(r.answers.list) == 0 &&
		len(r.held) == 0 && len(r.waiting) == 0 && r.hard.durable() && len(r.gate.waiting) == 0
	equal = equal || off.quietEqual
	r.mute = equal
	commit := q.commit
	if last < commit {
		commit = 0
	}
	r.step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(q.from)), To: new(uint64(r.rid)), Term: new(uint64(q.term)),
		Commit: new(uint64(commit)),
	})
	r.ready()
	r.mute = false
	r.hushed = equal && r.halted == nil
}

// wake ends the quiet.
func (r *replica) wake() {
	if !r.hushed {
		return
	}
	r.hushed, r.rest = false, 0
	for _, one := range r.peers.list {
		if one.lives && one.heard >= 0 {
			one.heardAt = r.host.clock.Load()
			one.caughtUp = one.heardAt
		}
		one.lives = false
	}
}

// news says that a node came or went; or, of this node itself, that the disk of some node is another one. It reports
// whether the replica has something to do.
func (r *replica) news(n NodeID) bool {
	if r.halted != nil || r.gone {
		return false
	}
	if n == r.host.o.Node { // the disk of some node is another one
		if r.soft.RaftState == raft.StateLeader {
			r.wake()
		}
		return r.soft.RaftState == raft.StateLeader
	}
	if r.soft.RaftState == raft.StateLeader {
		r.unreachable(n)
		r.wake()
		return true
	}
	lead, ok := r.nodeOf(ReplicaID(r.soft.Lead))
	if ok && lead != n || !ok && !r.hushed {
		return false
	}
	r.wake()
	if !off.forgetLeader {
		r.guard(func() { _ = r.node.ForgetLeader() }) // it has none: as well
	}
	if r.firstUp(n) {
		r.campaign = 1 + int(uint64(r.id)%quietSpread)
	}
	return true
}

// firstUp reports whether this replica is the first voter whose node is up, of those whose disks do best, but for a
// node that has just come or gone.
func (r *replica) firstUp(but NodeID) bool {
	first, least := ReplicaID(0), diskStates+1
	for _, m := range r.conf.members {
		if m.Learner || m.Node == but {
			continue
		}
		_, up := r.host.epochOf(m.Node)
		if disk := r.host.DiskOf(m.Node); (up || m.Replica == r.rid) && disk < least {
			first, least = m.Replica, disk
		}
	}
	return first == r.rid
}

// campaignSoon calls the election that the loss of a node called for.
func (r *replica) campaignSoon(n int) {
	if r.campaign == 0 {
		return
	}
	if r.campaign = max(0, r.campaign-n); r.campaign > 0 || r.soft.Lead != raft.None {
		return
	}
	if r.eager && r.now < int64(r.host.o.ElectionTicks) {
		r.campaign = eagerTicks
	}
	r.guard(func() { _ = r.node.Campaign() }) // the election timeout comes anyhow
}

// calm reports whether the group is about to become quiet: then raft is not ticked, so that no heartbeat is on its way
// any more when the word goes out.
func (r *replica) calm(n int) bool {
	if !r.mayHush() {
		r.calmed = 0
		return false
	}
	if r.calmed += n; r.calmed > quietCalm {
		r.calmed = 0
		r.hushAll()
	}
	return true
}
