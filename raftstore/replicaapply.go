package raftstore

import (
	"fmt"
	"io"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/wal"
)

// wrote reports whether this round appended something.
func (r *replica) wrote() bool { return r.appends }

// apply is step 6: committed entries, in order, and then raft hears of it.
func (r *replica) apply(p *plan) {
	if len(r.applies) == 0 || r.halted != nil {
		return
	}
	r.tellRole()
	for i, m := range r.applies {
		r.applies[i] = nil
		for _, e := range m.GetEntries() {
			if r.applyOne(p, e); r.halted != nil {
				return
			}
		}
		for _, resp := range m.GetResponses() {
			r.step(resp)
		}
	}
	r.applies = r.applies[:0]
	r.store.applied(r.last.Index)
	r.active()
}

// applyOne gives one committed entry to the machine.
func (r *replica) applyOne(p *plan, e *raftpb.Entry) {
	t, i := Term(e.GetTerm()), Index(e.GetIndex())
	if t > r.last.Term {
		r.log.DropUnnamed(t)
		r.supply.committed(t)
	}
	if e.GetType() == raftpb.EntryNormal {
		if err := r.applyRead(p, t, i, e.GetData()); err != nil {
			r.halt(fmt.Errorf("entry %d: %w", uint64(i), err))
			return
		}
	} else {
		r.applyChange(t, i, e.GetData())
	}
	if r.halted == nil && r.soft.RaftState == raft.StateLeader && (t == r.term || off.firstEntry) && !r.leads() {
		r.lead.Store(&refs{term: r.term})
	}
}

// applyChange makes a change of configuration count.
func (r *replica) applyChange(t Term, i Index, data []byte) {
	c, err := parseChange(data)
	if err != nil {
		r.halt(fmt.Errorf("entry %d: %w", uint64(i), err))
		return
	}
	var state *raftpb.ConfState
	if !r.guard(func() { state = r.node.ApplyConfChange(c.raft) }) {
		return
	}
	r.conf = r.conf.next(i, state, c.members)
	r.conf.term = t
	r.store.now = r.conf
	for len(r.changes) > 0 && r.changes[0].index <= i {
		r.changes = r.changes[1:]
	}
	_, in := r.conf.find(r.rid)
	r.removed = !in
	r.last = wal.Mark{Term: t, Index: i}
	r.machine.Apply(t, i, nil)
	r.marks.Applied = i
	r.settled = r.conf.joint() || off.settle
}

// settle has it written down and flushed that the change which ended a joint step is committed. Who is left out of the
// configuration is discarded once Status says that it is over; a replica that had forgotten it in a crash could then
// ask nobody any more.
func (r *replica) settle() {
	if r.settled || r.halted != nil {
		return
	}
	r.log.Committed(min(r.commit, r.log.Last().Index))
	if err := r.log.Append(&wal.Append{}); err != nil {
		return // no room, or a job first: tried again with the next round
	}
	r.settled, r.noting, r.noted = true, true, r.log.End()
	r.log.RequestFlush()
	r.shard.awaitFlush(r)
}

// unsettled says that the end of the last joint step may still be forgotten.
func (r *replica) unsettled() bool { return !r.settled || r.noting }

// role is what this replica is now, and who leads.
func (r *replica) role() roleTold {
	now := roleTold{role: Follower, term: r.term}
	switch {
	case r.leads():
		now.role, now.leader = LeaderRole, Leader{Replica: r.rid, Node: r.host.o.Node}
		return now
	case r.soft.RaftState != raft.StateFollower: // a leader that may not serve yet too
		now.role = Candidate
		return now
	}
	if m, ok := r.conf.find(r.rid); ok && m.Learner {
		now.role = Learner
	}
	if id := ReplicaID(r.soft.Lead); id != 0 {
		if n, ok := r.nodeOf(id); ok {
			now.leader = Leader{Replica: id, Node: n}
		}
	}
	return now
}

// tellRole tells the machine if that changed. Status says it first: whoever the machine wakes may look there.
func (r *replica) tellRole() {
	if r.halted != nil {
		return
	}
	now := r.role()
	if now == r.toldTo {
		return
	}
	r.toldTo = now
	r.who.Store(&NotLeaderError{Group: r.id, Leader: now.leader, Term: now.term})
	r.publishReplication()
	r.machine.Role(now.role, now.term, now.leader)
}

// moved is step 7.
func (r *replica) moved() {
	if r.halted != nil { // in this round, maybe
		r.failConfirms(r.halted)
		r.loseHeld(r.halted)
		r.refuseAll(r.halted)
	}
	if r.halted == nil && !r.closed() {
		r.tellRole()
		r.marks.Term = r.term
		r.marks.Written = r.log.Last().Index
		r.marks.Flushed = min(r.log.Flushed().Index, r.marks.Written)
		r.marks.Committed = max(r.marks.Committed, min(r.commit, r.marks.Written))
		r.marks.Held = r.heldBy()
		r.supply.aim()
	}
	r.publish()
	r.publishReplication()
	if r.marks != r.told {
		r.checkMarks()
		r.told = r.marks
		r.machine.Moved(r.marks)
	}
	r.appends = false
	r.tellConfirmed()
	r.freeWritten()
}

// checkMarks asserts what every proof of evidence rests on. Written and Flushed fall where a new leader's log takes
// the place of a suffix, which is never committed.
func (r *replica) checkMarks() {
	now, before := &r.marks, &r.told
	switch {
	case now.Flushed > now.Written, now.Committed > now.Written, now.Applied > now.Committed:
		panic(fmt.Sprintf("bug: raftstore: marks out of order: %+v", *now))
	case now.Committed < before.Committed, now.Applied < before.Applied, now.Term < before.Term:
		panic(fmt.Sprintf("bug: raftstore: a mark fell: %+v after %+v", *now, *before))
	}
	for n := 1; n < MaxVoters; n++ {
		if now.Held[n] > now.Held[n-1] {
			panic(fmt.Sprintf("bug: raftstore: more replicas hold more: %+v", *now))
		}
	}
}

// beginTask is step 8. The hard state goes before everything else, and closing waits for it.
func (r *replica) beginTask() {
	if r.supply.beginCommit() {
		return
	}
	r.beginHard()
	r.supply.beginFetch()
	if r.stopping && r.hard.running != 0 {
		return
	}
	if r.stopping && r.task == noTask && !r.gone && r.halted == nil {
		// As before parking: who stops in order and starts alone knows what was committed.
		r.log.Committed(min(r.commit, r.log.Last().Index))
	}
	r.seat.beginTask()
}

// tick counts idle time. A replica needs ticks until it is quiet.
func (r *replica) tick(n int) bool {
	if r.gone || r.halted != nil {
		return false
	}
	r.rest += n
	busy := r.task != noTask || r.supply.busy() || r.hard.running != 0 || r.stopping || r.flushing ||
		r.next < len(r.pending) || len(r.held) > 0 || len(r.answers.list) > 0 || r.mending()
	if !busy && !r.parked && r.rest > r.host.o.ParkTicks {
		// A node that starts where nobody can be asked knows then what the last entries say.
		r.log.Committed(min(r.commit, r.log.Last().Index))
		r.parked = r.park()
	}
	return !r.hushed || !r.parked || busy
}

// ticked is called before a round in which time passed; it reports whether the replica takes part.
func (r *replica) ticked(n int) bool {
	r.now += int64(n)
	if r.hushed && !r.mending() {
		return false
	}
	r.ticks += n
	return r.inRound || !r.tickAlone()
}

// snapshots: what stands before the machine's bytes.
type replicaSource struct {
	head snapshotHead
	src  Source
}

// WriteTo implements Source.
func (s replicaSource) WriteTo(w io.Writer) (int64, error) { return writeSnapshot(w, &s.head, s.src) }

func (r *replica) wrapSnapshot(src Source) Source {
	r.snapConf = r.conf
	return replicaSource{head: r.conf.head(), src: src}
}

func (r *replica) maySnapshot() bool { return r.supply.landing.ownBegins() }
func (r *replica) snapshotOver()     { r.supply.landing.ownEnds() }

func (r *replica) snapshotTaken() { r.store.snap, r.store.conf = r.snap.mark, r.snapConf }
