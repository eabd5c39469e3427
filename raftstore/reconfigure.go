package raftstore

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// askedChange is a change that was asked for and is not in the log yet; guarded by seat.mu.
type askedChange struct{ change *Change }

// Reconfigure implements Group. What it returns is judged by the last round; on the shard the change is judged again,
// and one that has become impossible meanwhile is not begun: Status then shows no difference.
func (r *replica) Reconfigure(c Change) error {
	if err := r.in.refusal(); err != nil {
		return err
	}
	if r.lead.Load() == nil {
		return r.notLeader()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &r.status
	if st.Replication == nil {
		return r.notLeader()
	}
	begin, err := r.judge(&c, st)
	if err != nil || !begin {
		return err
	}
	c.Members = slices.Clone(c.Members)
	r.asked.change = &c
	r.shard.enqueue(r)
	return nil
}

// judge says whether a change may begin, and whether there is anything to change. seat.mu is held.
func (r *replica) judge(c *Change, st *Status) (begin bool, err error) {
	refuse := func(format string, args ...any) (bool, error) {
		return false, &ChangeError{Group: r.id, Reason: fmt.Sprintf(format, args...)}
	}
	rep := st.Replication
	if (len(c.Members) == 0) == (c.TransferTo == 0) {
		return refuse("a change names either the members wanted, at least one, or the voter that is to lead")
	}
	if c.TransferTo != 0 {
		i := slices.IndexFunc(rep.Committed, func(m Member) bool { return m.Replica == c.TransferTo })
		switch {
		case i < 0:
			return refuse("replica %d is not one of its members", uint64(c.TransferTo))
		case rep.Committed[i].Learner:
			return refuse("replica %d is a learner and can't lead; promote it first", uint64(c.TransferTo))
		case c.TransferTo == r.rid:
			return false, nil
		}
		if _, up := r.host.epochOf(rep.Committed[i].Node); !up {
			return refuse("node %d, which holds replica %d, can't be reached", uint64(rep.Committed[i].Node),
				uint64(c.TransferTo))
		}
		to := rep.Committed[i].Node
		if disk := r.host.DiskOf(to); disk > r.host.DiskOf(r.host.o.Node) && !off.wander {
			return refuse("the disk of node %d, which holds replica %d, is %s, and it would hand the leadership over again",
				uint64(to), uint64(c.TransferTo), disk)
		}
		return true, nil
	}
	if err := checkMembers(c.Members); err != nil {
		return refuse("%s", strings.TrimPrefix(err.Error(), errMembers.Error()+": "))
	}
	if voters(c.Members) == 2 {
		return refuse("two voters are refused: the loss of either would stop the group; use one, or three and more")
	}
	if pendingIn(st) || r.asked.change != nil {
		return false, fmt.Errorf("raftstore: group %d: %w", uint64(r.id), ErrChangePending)
	}
	for _, m := range c.Members {
		if reason := r.unfit(m, st); reason != "" {
			return refuse("%s", reason)
		}
	}
	same := newConfig(0, c.Members)
	return !slices.Equal(same.members, rep.Current), nil
}

// unfit is why a member may not be in the configuration wanted.
func (r *replica) unfit(m Member, st *Status) string {
	rep := st.Replication
	for _, old := range rep.Current {
		if old.Replica != m.Replica {
			continue
		}
		if old.Node != m.Node {
			return fmt.Sprintf("replica %d is on node %d and can't be moved to node %d; make a new replica there",
				uint64(m.Replica), uint64(old.Node), uint64(m.Node))
		}
		if !old.Learner {
			return ""
		}
	}
	if m.Learner {
		return ""
	}
	for _, p := range rep.Progress {
		if p.Replica != m.Replica {
			continue
		}
		recent := p.CaughtUpTicks >= 0 && p.CaughtUpTicks <= int64(r.host.o.ElectionTicks)
		if recent || p.Match >= st.Marks.Committed {
			return ""
		}
		return fmt.Sprintf("replica %d on node %d is not caught up: it holds entry %d of %d; wait until it is",
			uint64(m.Replica), uint64(m.Node), uint64(p.Match), uint64(st.Marks.Written))
	}
	return fmt.Sprintf("replica %d on node %d is to vote and holds nothing yet; add it as a learner first, and promote "+
		"it when it is caught up", uint64(m.Replica), uint64(m.Node))
}

// pendingIn reports whether a change is under way.
func pendingIn(st *Status) bool {
	rep := st.Replication
	return rep.Joint || !slices.Equal(rep.Committed, rep.Current)
}

func voters(list []Member) (n int) {
	for _, m := range list {
		if !m.Learner {
			n++
		}
	}
	return n
}

// takeAsked begins the change that was asked for, if it still can be.
func (r *replica) takeAsked() {
	r.mu.Lock()
	c := r.asked.change
	r.mu.Unlock()
	if c == nil {
		return
	}
	r.wake()
	if r.begins(c) {
		r.active()
	}
	r.ready()
	r.mu.Lock()
	r.asked.change = nil
	r.mu.Unlock()
}

func (r *replica) begins(c *Change) bool {
	if !r.leads() || r.halted != nil {
		return false
	}
	if c.TransferTo != 0 {
		return r.guard(func() { r.node.TransferLeader(uint64(c.TransferTo)) })
	}
	if r.conf.joint() || len(r.changes) > 0 || len(r.held) > 0 {
		return false
	}
	if err := r.log.Reserve(changeBytes); err != nil {
		r.notReserved(err)
		return false
	}
	r.ready()
	cc := changeTo(r.conf, c.Members)
	return r.guard(func() { _ = r.node.ProposeConfChange(cc) }) // refused: Status shows it
}

// leaveJoint ends a joint step, whoever began it. Only a leader that stays does it: one that goes would leave behind
// voters that do not know that the step is over, and need its vote, while it may not be elected any more and its log
// may be longer than theirs. So it hands over first.
func (r *replica) leaveJoint() {
	if !r.conf.joint() || !r.leads() || len(r.changes) > 0 || len(r.held) > 0 || r.halted != nil {
		return
	}
	if !slices.Contains(r.conf.state.Voters, r.rid) && !off.handOver {
		if next := r.successor(); next != 0 && !r.transferring() {
			r.guard(func() { r.node.TransferLeader(uint64(next)) })
		}
		return
	}
	if err := r.log.Reserve(changeBytes); err != nil {
		r.notReserved(err)
		return
	}
	r.guard(func() { _ = r.node.ProposeConfChange(&raftpb.ConfChangeV2{}) }) // tried again
	r.ready()
}

// tellKnown tells whoever wants to be elected which configuration is applied here. One that does not know that the
// joint step is over needs the votes of those who went, and these, whose logs may be longer, neither vote for it nor
// stand for election: only they can tell it.
func (r *replica) tellKnown(l *letter) {
	if r.conf.term == 0 || r.soft.RaftState == raft.StateLeader || off.known {
		return
	}
	q := quiet{
		known: true, from: r.rid, to: ReplicaID(l.m.GetFrom()), term: r.conf.term, commit: r.conf.index,
	}
	r.send(l.from, func(dst []byte) []byte { return appendQuiet(dst, q) })
}

// takeKnown takes another member's word that an entry is committed, if it is the one that stands here. Raft hears it as
// from a leader, whom it forgets again.
func (r *replica) takeKnown(l *letter) {
	q := l.quiet
	if q.to != r.rid || !r.placed(q.from, l.from) {
		r.peers.misplaced++
		return
	}
	r.ready()
	if r.halted != nil || r.soft.Lead != raft.None || q.commit <= r.commit || q.commit > r.log.Last().Index {
		return
	}
	if t, err := r.log.Term(q.commit); err != nil || t != q.term {
		return
	}
	r.mute = true
	r.step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(q.from)), To: new(uint64(r.rid)), Term: new(uint64(r.term)),
		Commit: new(uint64(q.commit)),
	})
	r.guard(func() { _ = r.node.ForgetLeader() }) // it leads nothing
	r.ready()
	r.mute = false
}

// successor is the other voter of the configuration, or of that to come, that has most of those who answer, whose disks
// do best and whose nodes are up; 0 if there is none.
func (r *replica) successor() ReplicaID {
	best, _ := r.heir(func(*tracker.Progress) bool { return true })
	return best
}

// heir is the successor among those that may, and what ails its disk.
func (r *replica) heir(may func(*tracker.Progress) bool) (best ReplicaID, disk DiskState) {
	most, answers := Index(0), false
	r.progress(func(id ReplicaID, pr *tracker.Progress) {
		m, ok := r.conf.find(id)
		if !ok || id == r.rid || !slices.Contains(r.conf.state.Voters, id) || !may(pr) {
			return
		}
		if _, up := r.host.epochOf(m.Node); !up {
			return
		}
		one, d := r.peers.of(id), r.host.DiskOf(m.Node)
		lately := one.heard >= 0 && r.now-one.heard <= int64(r.host.o.ElectionTicks)
		better := lately && !answers
		if lately == answers {
			better = d < disk || d == disk && Index(pr.Match) > most
		}
		if best == 0 || better {
			best, disk, most, answers = id, d, Index(pr.Match), lately
		}
	})
	return best, disk
}

// changeBytes is more than a change of configuration takes in the log.
const changeBytes = 8 << 10

// publishReplication makes what this replica knows of its group visible to Status.
func (r *replica) publishReplication() {
	rep := &Replication{
		Self:             r.rid,
		Leader:           r.toldTo.leader,
		Committed:        r.conf.members,
		Current:          r.conf.target(),
		Joint:            r.conf.joint() || r.unsettled(),
		Quiesced:         r.hushed,
		at:               r.host.clock.Load(),
		WaitingForBodies: r.gate.entries(),
	}
	for _, c := range r.changes {
		switch {
		case c.members == nil:
		case c.index <= r.marks.Committed:
			rep.Committed, rep.Joint = union(r.conf.members, c.members), true
			rep.Current = newConfig(0, c.members).members
		default:
			rep.Current = newConfig(0, c.members).members
		}
	}
	if r.leads() && r.halted == nil {
		rep.Progress = r.progressRows(rep)
	}
	role := r.toldTo.role
	if r.halted != nil {
		role, rep.Leader = Follower, Leader{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Group, r.status.Role, r.status.Replication = r.id, role, rep
}

// aged is what was published, with the ticks since: a group that is quiet publishes nothing, and who is silent is so
// for longer and longer.
func (rep *Replication) aged(now int64) *Replication {
	since := now - rep.at
	if since == 0 || len(rep.Progress) == 0 {
		return rep
	}
	c := *rep
	c.Progress = slices.Clone(rep.Progress)
	for i := range c.Progress {
		p := &c.Progress[i]
		if p.lives {
			continue
		}
		if p.HeardTicks >= 0 {
			p.HeardTicks += since
		}
		if p.CaughtUpTicks >= 0 {
			p.CaughtUpTicks += since
		}
	}
	return &c
}

// union are the members of both lists; who votes in either is a voter.
func union(a, b []Member) []Member {
	list := slices.Clone(a)
	for _, m := range b {
		i := slices.IndexFunc(list, func(o Member) bool { return o.Replica == m.Replica })
		if i < 0 {
			list = append(list, m)
		} else if !m.Learner {
			list[i].Learner = false
		}
	}
	sortMembers(list)
	return list
}

// progressRows is one row per member of Current.
func (r *replica) progressRows(rep *Replication) []Progress {
	rows := make([]Progress, len(rep.Current))
	now := r.host.clock.Load()
	for i, m := range rep.Current {
		rows[i] = Progress{Member: m, HeardTicks: -1, CaughtUpTicks: -1}
		if m.Replica == r.rid {
			rows[i] = Progress{Member: m, Match: r.marks.Flushed, State: "leader", lives: true}
		}
		rows[i].Disk = r.host.DiskOf(m.Node)
	}
	r.progress(func(id ReplicaID, pr *tracker.Progress) {
		i := slices.IndexFunc(rows, func(p Progress) bool { return p.Replica == id })
		if i < 0 || id == r.rid {
			return
		}
		row := &rows[i]
		row.Match = Index(pr.Match)
		row.State = strings.ToLower(strings.TrimPrefix(pr.State.String(), "State"))
		one := r.peers.of(id)
		if one.heard >= 0 {
			row.HeardTicks = now - one.heardAt
		}
		if one.caughtUp >= 0 {
			row.CaughtUpTicks = now - one.caughtUp
		}
		if r.hushed && one.lives {
			row.HeardTicks, row.CaughtUpTicks, row.lives = 0, 0, true
		}
	})
	return rows
}
