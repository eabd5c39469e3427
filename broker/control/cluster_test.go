package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// apply is a user's apply of a queue, which is taken.
func (f *fleet) apply(name string, spec QueueSpec) {
	f.t.Helper()
	res := f.user(Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &spec})
	f.check(res.Err == nil, "apply: %v", res.Err)
}

// verb is an operator's word about a node, which is taken.
func (f *fleet) verb(v Verb, name string) {
	f.t.Helper()
	res := f.user(Mutation{Verb: v, Kind: KindNode, Name: name})
	f.check(res.Err == nil, "%s %s: %v", v, name, res.Err)
}

// is asserts where a queue is.
func (f *fleet) is(name, want string) {
	f.t.Helper()
	got := f.placed(name)
	f.check(got == want, "%s is %q, want %q: %+v", name, got, want, f.truth.queues[name])
}

// puts publishes so many messages, each of which has to be confirmed.
func (f *fleet) puts(name string, n int) {
	f.t.Helper()
	for range n {
		f.check(f.put(name), "%s takes nothing: %s", name, f.placed(name))
	}
}

// keeps asserts that whoever serves a queue has so many messages.
func (f *fleet) keeps(name string, n int) {
	f.t.Helper()
	q, _ := f.truth.Queue(name)
	f.check(f.stored(q.Metadata.UID) >= n, "%s keeps %d of %d", name, f.stored(q.Metadata.UID), n)
}

// TestGrowAndShrink: 1→3 and 3→1 and other factors, with messages (T-34, X-1, X-5, B-229.8).
func TestGrowAndShrink(t *testing.T) {
	f := newFleet(t, 5, 0)
	n := 0
	for _, factor := range []int{1, 3, 1, 5, 3, 5, 1, 3} {
		f.apply("a", QueueSpec{Replicas: factor})
		f.settle("apply")
		q, _ := f.truth.Queue("a")
		f.check(len(q.Status.Placement) == factor && q.Status.Phase == Ready &&
			q.Status.ObservedGeneration == q.Metadata.Generation, "factor %d: %s", factor, f.placed("a"))
		n += 3
		f.puts("a", 3)
		f.keeps("a", n)
	}
	on := 0
	for _, m := range f.nodes {
		on += len(m.groups)
	}
	f.check(on == 3 && len(f.truth.retired) == 0, "%d replicas on disks, %+v", on, f.truth.retired)
	if !strings.HasPrefix(f.placed("a"), "Ready ") {
		t.Error(f.placed("a"))
	}
}

// TestChangesWithFaults lets every call of a life with all kinds of changes err, before and after its effect, lose
// its entry, and kill the node that makes it: whoever comes goes on from there (T-20, T-21, T-24, T-34).
func TestChangesWithFaults(t *testing.T) {
	clean := changes(t, 0, 0)
	if clean < 60 {
		t.Fatalf("only %d calls", clean)
	}
	for fault := range faultsEnd {
		for at := 1; at <= clean; at++ {
			if testing.Short() && at%7 != 0 {
				continue
			}
			changes(t, at, fault)
		}
	}
}

func changes(t *testing.T, at int, fault fault) int {
	f := newFleet(t, 3, 1)
	f.at, f.fault = at, fault
	kept := 0
	step := func(what, want string, do func()) {
		t.Helper()
		do()
		f.settle(what)
		if f.placed("a") != want {
			f.check(false, "%s: a is %q, want %q\n%+v", what, f.placed("a"), want, f.truth.queues["a"])
		}
		if want == "absent" {
			return
		}
		f.keeps("a", kept)
		f.puts("a", 2)
		kept += 2
	}
	f.settle("beginning")
	step("made", "Ready k1!*", func() { f.apply("a", QueueSpec{}) })
	step("grown", "Ready k1* k2 k3", func() { f.apply("a", QueueSpec{Replicas: 3}) })
	step("a node more", "Ready k1* k2 k3", func() {
		res := f.user(Mutation{Verb: NodeAdd, Kind: KindNode, Name: "n4", Node: &NodeSpec{Fingerprint: "k4"}})
		f.check(res.Err == nil, "%v", res.Err)
		f.nodes[3].boot()
	})
	f.check(f.truth.nodes["n4"].Status.State == NodeMember, "%+v", f.truth.nodes["n4"])
	step("drained", "Ready k1* k3 k4", func() { f.verb(NodeDrain, "n2") })
	step("shrunk", "Ready k1!*", func() { f.apply("a", QueueSpec{}) })
	step("moved", "Ready k3!*", func() { f.verb(NodeDrain, "n1") })
	step("removed", "Ready k3!*", func() { f.verb(NodeRemove, "n1") })
	f.check(f.truth.nodes["n1"] == nil, "%+v", f.truth.nodes["n1"])
	step("deleted", "absent", func() {
		f.check(f.user(Mutation{Verb: Delete, Kind: KindQueue, Name: "a"}).Err == nil, "not deleted")
	})
	for _, n := range f.nodes[1:] {
		f.check(len(n.groups) == 0 && len(n.aside) == 0, "%s has %+v", n.o.Name, n.groups)
	}
	f.check(len(f.truth.retired) == 0, "retired: %+v", f.truth.retired)
	return f.calls
}

// lead is where a queue is to be led.
func (f *fleet) lead(name string) string {
	for _, p := range f.truth.queues[name].Status.Placement {
		if p.Lead {
			return p.Node
		}
	}
	return ""
}

// TestLostReplicaIsReplaced: a replica whose directory is gone, and one whose disk is, never come back under their
// ids; others take their places, on the same nodes if there are no more.
func TestLostReplicaIsReplaced(t *testing.T) {
	f := newFleet(t, 3, 0)
	f.apply("a", QueueSpec{Replicas: 3})
	f.settle("made")
	f.puts("a", 3)
	q, _ := f.truth.Queue("a")
	before := ids(q)
	n := f.nodes[1]
	n.die()
	delete(n.groups, q.Metadata.UID)
	n.boot()
	f.settle("a directory is lost")
	q, _ = f.truth.Queue("a")
	f.check(q.Status.Phase == Ready && len(ids(q)) == 3 && !slices.Equal(ids(q), before), "%+v", q.Status)
	f.check(len(n.aside) == 0 && n.groups[q.Metadata.UID] != nil, "%+v", n)

	// One whose storage has failed is set aside until the new one is a member, and then goes.
	uid := q.Metadata.UID
	n.poisoned = n.groups[uid].replica
	n.r.Wake(uid)
	aside := false
	for range 60 {
		f.round()
		aside = aside || n.aside[n.poisoned]
	}
	f.settle("storage fails")
	f.check(aside && len(n.aside) == 0 && n.groups[uid].replica != n.poisoned, "%v, %+v", aside, n)
	f.is("a", "Ready k1* k3 k2")

	n.die()
	n.wipe()
	n.boot()
	f.settle("a disk is lost")
	q, _ = f.truth.Queue("a")
	f.check(q.Status.Phase == Ready && len(q.Status.Placement) == 3, "%+v", q.Status)
	f.keeps("a", 3)
	c := f.truth.Cluster()
	f.check(len(c.Replicas) == 3 && c.Step == Steady && c.Replicas[2].Disk == "d2'", "%+v", c)
}

// TestMajorityLost: a queue without a majority of its disks stays as it is, says so, and can be deleted; others do
// not notice (T-31, T-53).
func TestMajorityLost(t *testing.T) {
	f := newFleet(t, 5, 0)
	f.apply("a", QueueSpec{Replicas: 3, Placement: PlacementSpec{Nodes: []string{"n1", "n2", "n3"}}})
	f.apply("b", QueueSpec{Replicas: 3, Placement: PlacementSpec{Nodes: []string{"n1", "n4", "n5"}}})
	f.settle("made")
	for _, n := range f.nodes[1:3] {
		n.die()
		n.wipe()
		n.boot()
		f.settle("a disk is lost")
		if n == f.nodes[1] { // it is replaced; take the disk of that one too, and at once
			f.nodes[1].die()
			f.nodes[1].wipe()
		}
	}
	f.nodes[1].boot()
	f.settle("two disks are lost")
	q, _ := f.truth.Queue("a")
	f.check(q.Status.Phase == Degraded && q.Status.Conditions[0].Reason == "MajorityLost", "%+v", q.Status)
	f.puts("b", 1)
	zero := Duration(0)
	f.user(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Drain: &zero})
	f.settle("deleted")
	f.is("a", "absent")
}

// TestNobodyServes: a queue that nobody leads is deleted all the same when its deadline is over.
func TestNobodyServes(t *testing.T) {
	f := newFleet(t, 5, 0)
	f.apply("a", QueueSpec{Replicas: 3, Placement: PlacementSpec{Nodes: []string{"n3", "n4", "n5"}}})
	f.settle("made")
	uid := f.truth.queues["a"].Metadata.UID
	f.down = f.nodes[3:]
	for _, n := range f.down {
		n.die()
	}
	zero := Duration(0)
	f.user(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Drain: &zero})
	f.settle("deleted")
	f.is("a", "absent")
	f.check(len(f.truth.RetiredOf(uid)) == 2 && f.truth.GroupRetired(uid), "%+v", f.truth.retired)
	// Made again under its name while two hold the old one: they share nothing with it (T-19).
	f.apply("a", QueueSpec{Replicas: 3, Placement: PlacementSpec{Nodes: []string{"n1", "n2", "n4"}}})
	f.settle("made again")
	f.puts("a", 1)
	f.down = nil
	for _, n := range f.nodes[3:] {
		n.boot()
	}
	f.settle("back")
	old := f.nodes[3].groups[uid] != nil || f.nodes[4].groups[uid] != nil
	f.check(len(f.truth.retired) == 0 && !old, "%+v", f.truth.retired)
	f.puts("a", 1)
	f.keeps("a", 2)
}

// TestServesWithoutControl: every replica is opened from the node's own copy, with no control quorum, also after a
// cold start of all (X-6, T-48, T-50, B-230.2).
func TestServesWithoutControl(t *testing.T) {
	f := newFleet(t, 3, 0)
	f.apply("a", QueueSpec{Replicas: 3})
	f.apply("b", QueueSpec{})
	spec := connectorSpec()
	f.user(Mutation{Verb: Apply, Kind: KindConnector, Name: "x", Connector: &spec})
	f.settle("made")
	f.puts("a", 1)
	f.noQuorum = true
	for _, n := range f.nodes {
		n.die()
	}
	for _, n := range f.nodes {
		n.boot()
	}
	length := len(f.log)
	for range 100 {
		f.round()
	}
	f.puts("a", 3)
	f.puts("b", 3)
	running := 0
	for _, n := range f.nodes {
		running += len(n.runs)
	}
	f.check(len(f.log) == length && running == 1, "%d entries, %d connectors", len(f.log)-length, running)
}

// TestBackFromAdding: what cannot be ended any more goes back to where the queue is.
func TestBackFromAdding(t *testing.T) {
	f := newFleet(t, 5, 0)
	f.apply("a", QueueSpec{Placement: PlacementSpec{Nodes: []string{"n1"}}})
	f.settle("made")
	f.down = f.nodes[4:]
	f.nodes[4].die()
	f.apply("a", QueueSpec{Replicas: 5})
	f.settle("n5 is away")
	f.check(f.truth.queues["a"].Status.Step == Adding, "%s", f.placed("a"))
	f.verb(NodeRemove, "n5")
	f.settle("n5 is to go")
	q, _ := f.truth.Queue("a")
	f.is("a", "Degraded k1!*")
	f.check(q.Status.Conditions[0].Reason == "NotEnoughNodes", "%+v", q.Status)
	f.check(f.truth.nodes["n5"] == nil, "n5 stays: %+v", f.truth.nodes["n5"])
	f.apply("a", QueueSpec{Replicas: 3})
	f.settle("three")
	f.check(len(f.truth.queues["a"].Status.Placement) == 3, "%s", f.placed("a"))
}

// TestLeadersAreBalanced within a tenth, after nodes came and went, by moves of leadership alone; preferred ones
// stay.
func TestLeadersAreBalanced(t *testing.T) {
	f := newFleet(t, 3, 0)
	for i := range 30 {
		f.apply(fmt.Sprint("q", i), QueueSpec{Replicas: 3})
	}
	f.apply("p", QueueSpec{Replicas: 3, Placement: PlacementSpec{PreferredLeader: "n2"}})
	f.settle("made")
	spread := func(want ...int) {
		t.Helper()
		for i, n := range f.nodes {
			have := 0
			for _, g := range f.groups {
				if m := memberOf(g.config, g.leader); m != nil && m.Number == n.number {
					have++
				}
			}
			if n.control() != 0 {
				have--
			}
			planned := f.truth.LoadOf(n.number).Leads
			if d := planned - want[i]; d < -1 || d > 1 || have != planned {
				t.Errorf("%s leads %d, is to lead %d, want about %d", n.o.Name, have, planned, want[i])
			}
		}
	}
	spread(10, 10, 10)
	f.verb(NodeDrain, "n1")
	f.settle("drained")
	spread(0, 15, 15)
	f.verb(NodeUndrain, "n1")
	f.settle("undrained")
	spread(10, 10, 10)
	if f.lead("p") != "k2" {
		t.Error("a preferred leader was moved")
	}
	length := len(f.log)
	f.settle("at rest")
	if len(f.log) != length {
		t.Errorf("%d entries at rest", len(f.log)-length)
	}
}

// TestLostWhileSwitching: a learner whose disk is lost when all is ready to switch to it: that switching cannot be,
// and another replica takes its place.
func TestLostWhileSwitching(t *testing.T) {
	f := newFleet(t, 3, 0)
	f.apply("a", QueueSpec{Placement: PlacementSpec{Nodes: []string{"n1"}}})
	f.settle("made")
	f.puts("a", 2)
	f.apply("a", QueueSpec{Replicas: 3, Placement: PlacementSpec{Nodes: []string{"n1"}}})
	for range 100 {
		if f.truth.queues["a"].Status.Step == Switching {
			break
		}
		f.round()
	}
	q, _ := f.truth.Queue("a")
	f.check(q.Status.Step == Switching && len(f.groups[q.Metadata.UID].config) == 3, "%+v", q.Status)
	if f.groups[q.Metadata.UID].next != nil {
		t.Fatal("it is switched already")
	}
	f.nodes[2].die()
	f.nodes[2].wipe()
	f.nodes[2].boot()
	f.settle("lost")
	f.is("a", "Ready k1* k2 k3")
	f.keeps("a", 2)
	stuck := slices.ContainsFunc(f.log, func(c Command) bool { return c.Stuck != nil })
	f.check(stuck, "it went on without the lost one")
}

// TestConnectorMoves: it is started where it comes when it is stopped where it was, and a node that is to be removed
// has to say so.
func TestConnectorMoves(t *testing.T) {
	f := newFleet(t, 4, 0)
	f.apply("a", QueueSpec{Placement: PlacementSpec{Nodes: []string{"n4"}}})
	spec := connectorSpec()
	spec.Policy = nil
	f.user(Mutation{Verb: Apply, Kind: KindConnector, Name: "x", Connector: &spec})
	f.settle("made")
	c, _ := f.truth.Connector("x")
	uid := c.Metadata.UID
	at := func() (list []string) {
		for _, n := range f.nodes {
			if n.up && n.runs[uid] {
				list = append(list, n.o.Name)
			}
		}
		return list
	}
	first := f.nodes[c.Status.Placement[0].Number-1]
	ready := c.Status.Phase == Ready && c.Status.ObservedGeneration == 1
	if got := at(); len(got) != 1 || got[0] != first.o.Name || !ready {
		t.Fatalf("runs on %v: %+v", got, c)
	}
	f.groups[0].leader = f.groups[0].config[c.Status.Placement[0].Number%3].Replica // another one leads
	first.stalled = true
	f.verb(NodeRemove, first.o.Name)
	for range 60 {
		f.round()
	}
	c, _ = f.truth.Connector("x")
	if got := at(); len(got) != 1 || c.Status.Placement[0].Node == first.o.Node || c.Status.Phase == Ready {
		t.Errorf("runs on %v: %+v", got, c.Status)
	}
	f.check(f.truth.nodes[first.o.Name] != nil, "the node is gone before it has stopped what it ran")
	first.stalled = false
	f.settle("it goes on")
	c, _ = f.truth.Connector("x")
	if got := at(); len(got) != 1 || got[0] == first.o.Name || c.Status.Phase != Ready {
		t.Errorf("runs on %v: %+v", got, c.Status)
	}
	f.check(f.truth.nodes[first.o.Name] == nil, "%+v", f.truth.nodes[first.o.Name])
	f.user(Mutation{Verb: Delete, Kind: KindConnector, Name: "x"})
	f.settle("deleted")
	if got := at(); len(got) != 0 || len(f.truth.Connectors()) != 0 {
		t.Errorf("runs on %v", got)
	}
}

// TestFactorsAndNodes: a factor above the number of nodes is taken and pending with the reason until they are there
// (T-23); an even one is taken with a warning (T-38), two are refused however they are asked for (T-36).
func TestFactorsAndNodes(t *testing.T) {
	f := newFleet(t, 1, 3)
	f.apply("a", QueueSpec{Replicas: 3})
	f.apply("b", QueueSpec{Replicas: 4})
	f.apply("c", QueueSpec{Replicas: 3, Placement: PlacementSpec{Nodes: []string{"n1", "n9"}}})
	f.settle("one node")
	reason := func(name, want string) {
		t.Helper()
		q, _ := f.truth.Queue(name)
		f.check(len(q.Status.Conditions) == 1 && q.Status.Conditions[0].Reason == want, "%+v", q.Status)
	}
	f.is("a", "Pending")
	reason("a", "NotEnoughNodes")
	reason("c", "NoSuchNode")
	for i, n := range f.nodes[1:] {
		f.user(Mutation{Verb: NodeAdd, Kind: KindNode, Name: n.o.Name, Node: &NodeSpec{Fingerprint: n.o.Node}})
		n.boot()
		f.settle(n.o.Name)
		if i == 0 { // two are no cluster yet
			f.is("a", "Pending")
			reason("a", "NotEnoughNodes")
			f.check(f.truth.nodes["n2"].Status.State == NodeJoining, "%+v", f.truth.nodes["n2"])
		}
	}
	q, _ := f.truth.Queue("a")
	f.check(q.Status.Phase == Ready && len(q.Status.Placement) == 3, "%+v", q)
	q, _ = f.truth.Queue("b")
	f.check(q.Status.Phase == Ready && len(q.Status.Placement) == 4 && q.Status.ObservedGeneration == 1, "%+v", q)
	reason("b", "EvenReplicas")
	for from, name := range map[int]string{4: "b", 3: "a", 1: "d"} {
		if from == 1 {
			f.apply(name, QueueSpec{})
		}
		res := f.user(Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &QueueSpec{Replicas: 2}})
		f.check(res.Err != nil && res.Err.Field == "spec.replicas", "%d→2: %+v", from, res)
		f.check(strings.Contains(res.Err.Message, "tolerate no failure"), "%d→2: %v", from, res.Err)
	}
}

// TestWakeAll: what waits for a node to come back is looked at when it does.
func TestWakeAll(t *testing.T) {
	f := newFleet(t, 5, 0)
	f.apply("a", QueueSpec{Replicas: 3})
	f.settle("made")
	q, _ := f.truth.Queue("a")
	gone := f.nodes[q.Status.Placement[2].Number-1]
	f.down = []*fnode{gone}
	gone.die()
	for _, n := range f.nodes {
		if n.up {
			n.r.WakeAll()
		}
	}
	f.settle("one is away")
	q, _ = f.truth.Queue("a")
	f.check(q.Status.Phase == Degraded && q.Status.Conditions[0].Reason == "ReplicaAbsent", "%+v", q.Status) // T-13
	f.down = nil
	gone.boot()
	for _, n := range f.nodes {
		n.r.WakeAll()
	}
	f.settle("it is back")
	q, _ = f.truth.Queue("a")
	f.check(q.Status.Phase == Ready && len(q.Status.Conditions) == 0, "%+v", q.Status)
	for _, p := range q.Status.Placement {
		f.check(p.Made, "%+v is not known to be made", p)
	}
}
