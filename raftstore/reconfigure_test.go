package raftstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync/memfs"
	"weida/wal"
)

// ids are the replicas in a list of members, learners with a minus.
func ids(list []Member) (out []int) {
	for _, m := range list {
		id := int(m.Replica)
		if m.Learner {
			id = -id
		}
		out = append(out, id)
	}
	return out
}

func (c *cluster) replication(n *node) *Replication { return n.kvs[1].group.Status().Replication }

// config fails unless a node knows these configurations.
func (c *cluster) config(n *node, committed, current []int, joint bool) {
	c.t.Helper()
	rep := c.replication(n)
	if !slices.Equal(ids(rep.Committed), committed) || !slices.Equal(ids(rep.Current), current) || rep.Joint != joint {
		c.t.Errorf("node %d: committed %v, current %v, joint %v; want %v, %v, %v", n.id,
			ids(rep.Committed), ids(rep.Current), rep.Joint, committed, current, joint)
	}
}

func (c *cluster) reconfigure(n *node, list []Member) {
	c.t.Helper()
	if err := n.kvs[1].group.Reconfigure(Change{Members: list}); err != nil {
		c.t.Fatal(err)
	}
}

// grown is a group that began with one replica on node 1 and has learners, caught up, on nodes 2 and 3.
func grown(t *testing.T, seed uint64) (c *cluster, lead *node) {
	c = newCluster(t, 3, seed)
	c.openAll(1, 1)
	lead = c.leader(1)
	for i := range 5 {
		lead.kvs[1].must(put(fmt.Sprint("k", i), "body"))
	}
	c.settle()
	for _, n := range c.nodes[1:] {
		c.open(n, 1, &Genesis{})
	}
	list := members(3)
	list[1].Learner, list[2].Learner = true, true
	c.reconfigure(lead, list)
	c.tick(40)
	return c, lead
}

// A group of one grows to three: learners are brought up by a snapshot, and one joint step makes both of them voters
// . Then it shrinks to one again, and replaces a member.
func TestGrowAndShrink(t *testing.T) {
	c, lead := grown(t, 21)
	c.config(lead, []int{11, -12, -13}, []int{11, -12, -13}, false)
	c.same(1, true)
	if m := c.node(2).kvs[1]; m.role != Learner {
		t.Errorf("node 2 is %v", m.role)
	}
	if now := lead.kvs[1].now(); now.HeldBy(now.Written) != 1 {
		t.Errorf("learners count: %+v", now)
	}
	c.reconfigure(lead, members(3))
	c.settle()
	c.tick(4)
	for _, n := range c.nodes {
		c.config(n, []int{11, 12, 13}, []int{11, 12, 13}, false)
	}
	tag := lead.kvs[1].must(put("k", "three"))
	c.settle()
	if now := lead.kvs[1].now(); now.HeldBy(lead.kvs[1].appended(tag)) != 3 {
		t.Errorf("three voters: %+v", now)
	}
	c.crash(lead, true, memfs.KeepNone)
	next := c.leader(1)
	next.kvs[1].must(note("without the first"))
	c.start(lead)
	c.open(lead, 1, nil)
	c.tick(10)
	c.same(1, true)
	c.reconfigure(next, []Member{{Replica: replicaOn(next.id), Node: next.id}})
	c.settle()
	c.tick(4)
	c.config(next, []int{int(replicaOn(next.id))}, []int{int(replicaOn(next.id))}, false)
	for _, n := range c.rest(next) {
		c.crash(n, false, 0)
	}
	tag = next.kvs[1].must(note("alone"))
	c.settle()
	c.tick(40)
	if now := next.kvs[1].now(); now.Applied < next.kvs[1].appended(tag) || next.kvs[1].role != LeaderRole {
		t.Errorf("alone: %+v", now)
	}
}

// A change that is under way is in Current and not in Committed; a second one is refused meanwhile (W-51, Q-15, Q-20).
// One that a new leader rolls back was never in Committed.
func TestPendingChange(t *testing.T) {
	c := newCluster(t, 4, 22)
	c.openAll(1, 3)
	lead := c.leader(1)
	c.tick(4)
	c.open(c.node(4), 1, &Genesis{})
	for _, n := range c.rest(lead) {
		c.cut[[2]NodeID{lead.id, n.id}] = true
	}
	with := append(members(3), Member{Replica: 14, Node: 4, Learner: true})
	c.reconfigure(lead, with)
	c.pump(func(*node) bool { return true })
	c.config(lead, []int{11, 12, 13}, []int{11, 12, 13, -14}, false)
	if err := lead.kvs[1].group.Reconfigure(Change{Members: members(3)}); !errors.Is(err, ErrChangePending) {
		t.Errorf("a second change: %v", err)
	}
	for range 40 {
		c.tickAll()
		c.pump(func(*node) bool { return true })
		for _, n := range c.nodes[:3] {
			if list := ids(c.replication(n).Committed); !slices.Equal(list, []int{11, 12, 13}) {
				t.Fatalf("node %d has %v committed", n.id, list)
			}
		}
	}
	next := c.leads(1)
	if next == nil || next == lead {
		t.Fatalf("no other leader: %v", next)
	}
	next.kvs[1].must(note("x"))
	clear(c.cut)
	c.tick(30)
	for _, n := range c.nodes[:3] {
		c.config(n, []int{11, 12, 13}, []int{11, 12, 13}, false)
	}
	c.same(1, false)
	c.crash(lead, true, memfs.KeepNone)
	c.start(lead)
	c.open(lead, 1, nil)
	c.config(lead, []int{11, 12, 13}, []int{11, 12, 13}, false)
}

// A restart finds both configurations again: the change that is in the log and not committed, and the one before.
func TestPendingChangeSurvives(t *testing.T) {
	c := newCluster(t, 4, 23)
	c.openAll(1, 3)
	lead := c.leader(1)
	c.tick(4)
	for _, n := range c.rest(lead) {
		c.cut[[2]NodeID{lead.id, n.id}] = true
	}
	c.reconfigure(lead, append(members(3), Member{Replica: 14, Node: 4, Learner: true}))
	c.pump(func(*node) bool { return true })
	c.crash(lead, true, memfs.KeepNone)
	c.start(lead)
	c.open(lead, 1, nil)
	c.config(lead, []int{11, 12, 13}, []int{11, 12, 13, -14}, false)
}

// What can never be is refused with its reason, and nothing is begun (T-36, T-37).
func TestRefusedChanges(t *testing.T) {
	c, lead := threeNodes(t, 24)
	m3 := members(3)
	with := func(list []Member, more ...Member) []Member { return append(slices.Clone(list), more...) }
	for _, x := range []struct {
		name string
		c    Change
		want string
	}{
		{"nothing", Change{}, "names either"},
		{"both", Change{Members: m3, TransferTo: 12}, "names either"},
		{"two voters", Change{Members: m3[:2]}, "two voters are refused"},
		{"twice", Change{Members: with(m3, m3[0])}, "beside"},
		{"same node", Change{Members: with(m3, Member{Replica: 15, Node: 3})}, "beside"},
		{"moved", Change{Members: with(m3[:2], Member{Replica: 13, Node: 5})}, "can't be moved"},
		{"empty voter", Change{Members: with(m3, Member{Replica: 14, Node: 4})}, "add it as a learner first"},
		{"no voter", Change{Members: []Member{{11, 1, true}}}, "0 voters"},
		{"stranger", Change{TransferTo: 99}, "not one of its members"},
	} {
		err := lead.kvs[1].group.Reconfigure(x.c)
		var refused *ChangeError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
	var not *NotLeaderError
	other := c.rest(lead)[0]
	if err := other.kvs[1].group.Reconfigure(Change{Members: m3}); !errors.As(err, &not) || not.Leader.Node != lead.id {
		t.Errorf("at a follower: %v", err)
	}
	if err := lead.kvs[1].group.Reconfigure(Change{Members: m3}); err != nil {
		t.Errorf("no difference: %v", err)
	}
	c.settle()
	for _, n := range c.nodes {
		c.config(n, []int{11, 12, 13}, []int{11, 12, 13}, false)
	}
}

// A replica that holds too little may not become a voter, and may when it is caught up.
func TestPromotionWaits(t *testing.T) {
	c := newCluster(t, 4, 25)
	c.openAll(1, 3)
	lead := c.leader(1)
	c.tick(4)
	with := append(members(3), Member{Replica: 14, Node: 4, Learner: true})
	c.reconfigure(lead, with)
	c.settle()
	lead.kvs[1].must(note("x"))
	c.settle()
	swap := slices.Clone(with)
	swap[3].Learner = false
	swap = slices.DeleteFunc(swap, func(m Member) bool { return m.Node == c.rest(lead)[0].id })
	var refused *ChangeError
	if err := lead.kvs[1].group.Reconfigure(Change{Members: swap}); !errors.As(err, &refused) {
		t.Fatalf("promoted: %v", err)
	}
	c.open(c.node(4), 1, &Genesis{})
	c.tick(30)
	c.reconfigure(lead, swap)
	c.settle()
	c.tick(6)
	if rep := c.replication(lead); !slices.Contains(ids(rep.Committed), 14) || len(rep.Committed) != 3 || rep.Joint {
		t.Errorf("swapped: %+v", rep)
	}
	tag := lead.kvs[1].must(note("swapped"))
	c.settle()
	if now := lead.kvs[1].now(); now.HeldBy(lead.kvs[1].appended(tag)) != 3 {
		t.Errorf("marks %+v", now)
	}
}

// Leadership moves to the voter that is named, and nothing is lost.
func TestTransfer(t *testing.T) {
	c, lead := threeNodes(t, 26)
	lead.kvs[1].must(put("k", "x"))
	to := c.rest(lead)[1]
	c.settle()
	if err := lead.kvs[1].group.Reconfigure(Change{TransferTo: replicaOn(to.id)}); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.tick(2)
	if n := c.leads(1); n != to {
		t.Errorf("the leader is node %d", n.id)
	}
	to.kvs[1].must(note("after"))
	c.settle()
	c.tick(4)
	c.same(1, true)
	var not *NotLeaderError
	if _, err := lead.kvs[1].propose(note("at the old one")); !errors.As(err, &not) || not.Leader.Node != to.id {
		t.Errorf("at the old leader: %v", err)
	}
	gone := c.rest(to)[0]
	c.crash(gone, false, 0)
	c.settle()
	var refused *ChangeError
	if err := to.kvs[1].group.Reconfigure(Change{TransferTo: replicaOn(gone.id)}); !errors.As(err, &refused) {
		t.Errorf("to a node that is down: %v", err)
	}
}

// A leader that its own change takes the vote from hands over first. If it ended the step itself, the voter that stays
// could be left without knowing it, would still need the vote of the other, and that one's log can be longer: nobody
// could ever lead again.
func TestLeaderHandsOver(t *testing.T) {
	c, lead := grown(t, 27)
	other := c.node(2)
	ended := false
	c.drop = func(p *packet) bool {
		if ended && p.from == lead.id && p.to == other.id {
			return true
		}
		for _, m := range messages(t, p) {
			for _, e := range m.GetEntries() {
				leaves := e.GetType() == raftpb.EntryConfChangeV2 && len(e.GetData()) == 0
				if leaves && p.from == lead.id && p.to == other.id {
					ended = true
					lead.kvs[1].must(note("behind it"))
				}
			}
		}
		return false
	}
	list := members(3)
	list[0].Learner, list[2].Learner = true, true
	c.reconfigure(lead, list)
	c.settle()
	c.tick(10)
	c.crash(lead, false, 0) // it is not needed any more
	c.net, c.drop = nil, nil
	c.tick(60)
	next := c.leader(1)
	if next != other {
		t.Fatalf("node %d leads", next.id)
	}
	tag := next.kvs[1].must(note("after"))
	c.tick(6)
	if now := next.kvs[1].now(); now.Applied < next.kvs[1].appended(tag) {
		t.Errorf("marks %+v", now)
	}
	c.config(next, []int{-11, 12, -13}, []int{-11, 12, -13}, false)
	c.same(1, true)
}

// A replica whose log has not kept how far was committed takes up no configuration from before a change that it has
// acted upon: with another such it would be a majority of what is no configuration any more, and would elect a second
// leader.
func TestNoOldConfiguration(t *testing.T) {
	c, lead := threeNodes(t, 28)
	alone := members(3)
	for i := range alone {
		alone[i].Learner = alone[i].Node != lead.id
	}
	c.reconfigure(lead, alone)
	c.settle()
	c.tick(8)
	for _, n := range c.rest(lead) {
		c.config(n, ids(alone), ids(alone), false)
		c.cut[[2]NodeID{lead.id, n.id}], c.cut[[2]NodeID{n.id, lead.id}] = true, true
		// Everything is in a sealed segment, and the next one is empty: no batch says how far was committed.
		log := c.group(n, 1).log
		round := func() {
			g := c.group(n, 1)
			g.shard.enqueue(g)
			c.settle()
		}
		for errors.Is(log.Reserve(512<<10-400), wal.ErrNotReady) {
			round()
		}
		round()
		c.crash(n, false, 0)
		c.start(n)
		if c.open(n, 1, nil); c.group(n, 1).log.Recovered().Commit > 100 {
			t.Fatalf("node %d: the log has kept that %d is committed", n.id, c.group(n, 1).log.Recovered().Commit)
		}
	}
	c.tick(100)
	for _, n := range c.rest(lead) {
		if m := n.kvs[1]; m.term > lead.kvs[1].term || m.role == LeaderRole {
			t.Errorf("node %d is %v in term %d", n.id, m.role, m.term)
		}
	}
	tag := lead.kvs[1].must(note("alone"))
	c.settle()
	if now := lead.kvs[1].now(); now.Committed < lead.kvs[1].appended(tag) {
		t.Errorf("the leader: %+v", now)
	}
}

// Who is left out is discarded once Status says that the joint step is over: the one that stays has that on its disk,
// for there is nobody left whom it could ask.
func TestEndOfStepIsKept(t *testing.T) {
	c, lead := threeNodes(t, 30)
	alone := []Member{{Replica: replicaOn(lead.id), Node: lead.id}}
	c.reconfigure(lead, alone)
	over := func() bool {
		rep := c.replication(lead)
		return !rep.Joint && len(rep.Committed) == 1
	}
	// Status is looked at before every flush: the power may go the moment it says so.
	for range 10_000 {
		for len(c.net) > 0 {
			c.deliver(0)
		}
		for _, n := range c.nodes {
			n.host.Step()
			if over() {
				break
			}
			n.fl.Step()
		}
		if over() {
			break
		}
	}
	if !over() {
		t.Fatalf("the step does not end: %+v", c.replication(lead))
	}
	for _, n := range c.rest(lead) {
		c.crash(n, true, memfs.KeepNone)
	}
	c.crash(lead, true, memfs.KeepNone)
	c.start(lead)
	m := c.open(lead, 1, nil)
	c.tick(80)
	if c.leads(1) != lead {
		t.Fatalf("nobody leads: %+v", c.replication(lead))
	}
	tag := m.must(note("on"))
	c.settle()
	m.appended(tag)
}

// A replica that the configuration in its log does not name is opened all the same, until it is discarded: who stays
// may not know yet that the change is committed, and need its vote. It calls no election itself.
func TestRemovedReplicaIsOpened(t *testing.T) {
	c, lead := threeNodes(t, 31)
	away := c.rest(lead)[0]
	c.crash(away, false, 0)
	c.start(away)
	x := newKV(t, "x")
	x.replica = true
	if _, err := away.host.OpenReplica(1, x, ReplicaOptions{Self: 99}); err != nil {
		t.Fatal(err)
	}
	term := lead.kvs[1].term
	c.tick(100)
	if c.leads(1) != lead || lead.kvs[1].term != term || x.role != Follower {
		t.Errorf("%v leads in term %d, it was node %d in term %d; the removed one is %v", c.leads(1), lead.kvs[1].term,
			lead.id, term, x.role)
	}
}

// Who stops in order and starts where nobody can be asked has what was committed.
func TestStoppedReplicaKeepsTheCommit(t *testing.T) {
	c, lead := threeNodes(t, 32)
	m := lead.kvs[1]
	m.must(put("k", "last"))
	c.settle()
	at := m.now().Committed
	lead.stop()
	lead.up = false
	for _, n := range c.rest(lead) {
		c.crash(n, false, 0)
	}
	c.start(lead)
	if m := c.open(lead, 1, nil); m.lastI < at {
		t.Errorf("it comes back with entry %d, and %d was committed", m.lastI, at)
	}
}

// The one voter that stays comes back without knowing that the joint step is over, and with a log that is shorter than
// that of those who were to vote no more: it had sent what it had not yet flushed. They tell it, for they neither vote
// for it nor stand for election.
func TestToldOfTheEnd(t *testing.T) {
	defer SwitchOff("settle")() // else it would know
	c, lead := threeNodes(t, 29)
	alone := members(3)
	for i := range alone {
		alone[i].Learner = alone[i].Node != lead.id
	}
	c.reconfigure(lead, alone)
	c.settle()
	c.tick(8)
	lead.kvs[1].must(note("sent and not flushed"))
	c.pump(func(n *node) bool { return n != lead })
	c.crash(lead, true, memfs.KeepNone)
	c.start(lead)
	m := c.open(lead, 1, nil)
	if rep := c.replication(lead); !rep.Joint {
		t.Fatalf("it knows that the step is over: %+v", rep)
	}
	c.tick(80)
	if c.leads(1) != lead {
		t.Fatal("nobody leads")
	}
	tag := m.must(note("on"))
	c.settle()
	c.tick(8)
	if now := m.now(); now.Applied < m.appended(tag) || fmt.Sprint(m.applied) != "[non]" {
		t.Errorf("marks %+v, applied %v", now, m.applied)
	}
	c.same(1, true)
}
