package raftstore

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync"
	"weida/wal"
)

// This file holds what a round does to one replica, in the order of the steps.

// advance is step 2: what is durable by now is said.
func (r *replica) advance() {
	r.takeHard()
	r.supply.takeCommit()
	if !r.takeUp() {
		return
	}
	if f := r.log.Flushed().Index; f > r.marks.Flushed {
		r.stuck = false
		r.marks.Flushed = f
	}
	r.releaseAnswers()
	r.noting = r.noting && r.log.FlushedEnd().Less(r.noted)
	r.settle()
}

// writeAll is steps 3 and 4: letters, time and proposals go into raft, and what raft wants stored is written.
func (r *replica) writeAll(p *plan, budget int) (cost int) {
	if why := r.refusal(); why != nil {
		r.goodbye()
		r.failConfirms(why)
		r.mail.close()
		r.supply.close()
		r.loseHeld(why)
		r.refuseAll(why)
		return 0
	}
	if r.supply.frozen() {
		r.letters, r.ticks = r.mail.take(r.letters), 0
		return 0
	}
	r.retryHeld()
	r.supply.take()
	r.mendAll()
	r.letters = r.mail.take(r.letters)
	for i := range r.letters {
		if r.halted == nil {
			cost += r.receive(&r.letters[i])
		}
	}
	if r.task == noTask {
		r.stuck = false
	}
	cost += r.again()
	r.giveTicks()
	r.yield()
	r.ready()
	r.crowd()
	r.impatience()
	r.takeAsked()
	r.takeConfirms()
	r.leaveJoint()
	if r.halted == nil {
		cost += r.proposeAll(p, min(budget-cost, roundBytesGroup))
	}
	r.releaseAnswers() // what waits for nothing more
	r.ready()
	r.peers.unprobe()
	r.supply.expect()
	if cost > 0 {
		r.active()
	}
	return cost
}

// active says that the replica is not idle.
func (r *replica) active() { r.rest, r.parked = 0, false }

// receive gives raft one letter, if this replica can keep what it says.
func (r *replica) receive(l *letter) (cost int) {
	if l.refused != 0 {
		r.unreachable(l.from)
		return 0
	}
	if l.m == nil {
		if l.quiet.known {
			r.takeKnown(l)
		} else {
			r.hush(l)
		}
		return 0
	}
	from := ReplicaID(l.m.GetFrom())
	if ReplicaID(l.m.GetTo()) != r.rid || !r.placed(from, l.from) {
		r.peers.misplaced++
		return 0
	}
	r.wake()
	switch l.m.GetType() {
	case raftpb.MsgApp:
		if r.supply.install != nil {
			return 0 // a snapshot takes the place of what it would be appended to
		}
		return r.offer(*l)
	case raftpb.MsgAppResp, raftpb.MsgHeartbeatResp:
		r.heardOf(l, l.m.GetType() == raftpb.MsgAppResp)
	case raftpb.MsgHeartbeat:
		if r.forgot(l.m) {
			r.halt(ErrForgot)
			return 0
		}
	case raftpb.MsgVote, raftpb.MsgPreVote:
		r.tellKnown(l)
	default:
	}
	r.step(l.m)
	return 0
}

// forgot says that a leader goes by more than this log has: a heartbeat commits what its replica confirmed in the same
// term, and no more. Raft would panic, and the node with it.
func (r *replica) forgot(m *raftpb.Message) bool {
	last := r.log.Last().Index
	if n := len(r.held); n > 0 {
		last = max(last, r.held[n-1].last)
	}
	return Term(m.GetTerm()) >= r.term && Index(m.GetCommit()) > last && !off.forgot
}

// giveTicks lets time pass. A replica that was not served for long takes no more than two ticks at once: its own delay
// is no silence of the leader.
func (r *replica) giveTicks() {
	n := r.ticks
	if r.ticks = 0; n == 0 {
		return
	}
	r.gate.now += n
	r.gate.room.ticked(n)
	r.supply.ticked(n)
	r.hard.full = false
	r.blocked = false
	r.asideIfDamaged()
	if r.hushed = r.hushed || r.removed; r.hushed {
		return
	}
	r.campaignSoon(n)
	if r.halted != nil || r.calm(n) {
		return
	}
	for range min(n, 2) {
		if r.halted == nil {
			r.guard(r.node.Tick)
		}
	}
}

// ready takes from raft what it wants done, until there is nothing: it is written, and what is to be sent or applied is
// noted.
func (r *replica) ready() {
	for r.halted == nil && r.stirred {
		var rd raft.Ready
		more := false
		r.ask(func() {
			if more = r.node.HasReady(); more {
				rd = r.node.Ready()
			}
		})
		if !more {
			r.stirred = false
			return
		}
		r.takeReady(&rd)
	}
}

func (r *replica) takeReady(rd *raft.Ready) {
	r.confirmed(rd.ReadStates)
	if rd.SoftState != nil {
		r.soft = *rd.SoftState
	}
	if rd.HardState != nil {
		if t := Term(rd.HardState.GetTerm()); t != r.term {
			r.term = t
			r.peers.reset()
		}
		if i := Index(rd.HardState.GetCommit()); i > r.commit {
			r.commit, r.blocked = i, false
		}
		r.hard.set(wal.HardState{Term: r.term, Vote: rd.HardState.GetVote()})
	}
	if lead := r.lead.Load(); lead != nil && (r.soft.RaftState != raft.StateLeader || lead.term != r.term) {
		r.resign()
	}
	for _, m := range rd.Messages {
		switch m.GetType() {
		case raftpb.MsgStorageAppend:
			r.keep(m)
		case raftpb.MsgStorageApply:
			r.applies = append(r.applies, m)
		default:
			r.post(m)
		}
	}
}

// canWrite reports whether the next round has something to do.
func (r *replica) canWrite() bool {
	if r.halted != nil || r.stopping || r.gone || r.supply.frozen() {
		return false
	}
	if r.next < len(r.pending) && !r.stuck && !r.blocked && len(r.held) == 0 {
		return true
	}
	if !r.stirred {
		return false
	}
	more := false
	r.ask(func() { more = r.node.HasReady() })
	return more
}

// proposeAll makes entries of the proposals that wait.
func (r *replica) proposeAll(p *plan, budget int) (cost int) {
	if r.next == len(r.pending) {
		return 0
	}
	r.wake()
	if !r.leads() {
		r.refuseAll(r.notLeader())
		return 0
	}
	for r.next < len(r.pending) && cost < budget && !r.stuck && !r.blocked && len(r.held) == 0 {
		n, ok := r.proposeOne(p)
		if !ok || r.halted != nil || !r.leads() {
			break
		}
		cost += n
	}
	return cost
}

// proposeOne makes one entry. It returns false when no more can be made in this round.
func (r *replica) proposeOne(p *plan) (cost int, ok bool) {
	index := r.log.Last().Index + 1
	lead := r.lead.Load()
	n, size := p.build(&r.seat, lead, index)
	if err := r.log.Reserve(p.app.Size()); err != nil {
		p.discard()
		switch {
		case errors.Is(err, wal.ErrNotReady):
			r.stuck = true
			return 0, false
		case errors.Is(err, fsync.ErrPoisoned):
			r.halt(err)
			return 0, false
		case errors.Is(err, fsync.ErrDiskFull):
			r.diskFull(err)
			if r.yield(); r.transferring() { // whoever leads next has room
				r.blocked = true
				return 0, false
			}
		}
		r.drop(n, Outcome{Kind: Refused, Err: storeError(err)})
		return 0, true
	}
	data := p.app.Entries[0].Data
	var err error
	r.planned = planned{index: index, term: lead.term, app: &p.app, proposals: n, size: size}
	r.guard(func() { err = r.node.Propose(data) })
	p.discard() // raft has its own copy
	if err != nil || r.halted != nil {
		r.planned, r.blocked = planned{}, true
		return 0, false
	}
	r.ready()
	if r.planned.index != 0 && r.halted == nil {
		panic(fmt.Sprintf("bug: raftstore: group %d: raft has no entry %d of a proposal that it took", uint64(r.id), index))
	}
	return size, true
}
