package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func seeds(n int) []Seed {
	var list []Seed
	for i := range n {
		list = append(list, Seed{Name: fmt.Sprint("n", n-i), Fingerprint: fmt.Sprintf("f%02d", n-i), Address: "a:1"})
	}
	return list
}

// TestGenesis: the same beginning whatever the order of the seeds, with numbers in order of the fingerprints; two
// seeds are refused with the reason (T-37).
func TestGenesis(t *testing.T) {
	for n, voters := range map[int]int{1: 1, 3: 3, 4: 3, 5: 5, 6: 5, 7: 5, 64: 5} {
		list := seeds(n)
		a, err := Genesis(list)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(list)
		b, err := Genesis(list)
		if err != nil || a.ClusterID != b.ClusterID || !slices.Equal(a.Members, b.Members) {
			t.Errorf("%d seeds: another order, another cluster: %v", n, err)
		}
		votes := 0
		for i, m := range a.Members {
			if m.Number != uint64(i+1) || m.Replica != m.Number || m.Node != fmt.Sprintf("f%02d", i+1) {
				t.Errorf("%+v", m)
			}
			if !m.Learner {
				votes++
			}
		}
		if votes != voters {
			t.Errorf("%d seeds: %d voters, want %d", n, votes, voters)
		}
		s := NewState()
		res := s.Apply(GenesisIndex+1, a.Command(1))
		if res.Err != nil || len(s.Nodes()) != n || s.Cluster().ID != fmt.Sprintf("%x", a.ClusterID) {
			t.Errorf("%+v", res)
		}
		for i, node := range s.Nodes() {
			if node.Number() != uint64(i+1) || node.Status.State != NodeMember || node.Status.Voter == a.Members[i].Learner {
				t.Errorf("%+v", node)
			}
		}
		if res := s.Apply(GenesisIndex+2, b.Command(2)); res.Err == nil || res.Err.Reason != Exists {
			t.Errorf("founded twice: %+v", res)
		}
	}
	other, err := Genesis(seeds(3)[:1])
	one, err2 := Genesis(seeds(1))
	if err != nil || err2 != nil || other.ClusterID == one.ClusterID {
		t.Error("two clusters have one id")
	}
	twice := append(seeds(3), Seed{Name: "x", Fingerprint: "f01"})
	named := append(seeds(3), Seed{Name: "n1", Fingerprint: "g"})
	for says, list := range map[string][]Seed{
		"two nodes": seeds(2), "one node": nil, "at most 64": seeds(65), "named twice": twice, "called \"n1\"": named,
		"fingerprint": append(seeds(3), Seed{}),
	} {
		if _, err := Genesis(list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestTwoAreNeverCounted: a second node joins and waits; with the third both become members and voters in one step
// (X-5, T-37). From three none can be removed, from four one can.
func TestTwoAreNeverCounted(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(2)
	two, _ := r.s.NodeOf(n[1])
	if two.Status.State != NodeJoining || two.Status.Voter || len(r.s.Cluster().Replicas) != 2 {
		t.Errorf("%+v, %+v", two, r.s.Cluster())
	}
	res := r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: "n3", Node: &NodeSpec{Fingerprint: "f3"}})
	three := res.Node.Number()
	r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f3"}, Disk: "d3", At: 1}})
	seen := map[int]bool{}
	for range 10 {
		c := r.s.Cluster()
		voters := 0
		for _, p := range Members(c.Step, c.Replicas) {
			if !p.Learner {
				voters++
			}
		}
		seen[voters] = true
		want := r.s.controlWanted(anywhere)
		if place, _ := r.s.differs(c.Replicas, want); c.Step == Steady && place {
			r.do(Command{Place: &Place{Kind: KindCluster, Epoch: c.Epoch, Want: want}})
		} else if c.Step != Steady {
			r.do(Command{Reached: &Reached{Kind: KindCluster, Epoch: c.Epoch}})
		}
	}
	if !seen[1] || !seen[3] || seen[2] {
		t.Errorf("numbers of voters: %v", seen)
	}
	for _, number := range []uint64{1, n[1], three} {
		if node, _ := r.s.NodeOf(number); node.Status.State != NodeMember || !node.Status.Voter {
			t.Errorf("%+v", node)
		}
		node, _ := r.s.NodeOf(number)
		res := r.mutate(Mutation{Verb: NodeRemove, Kind: KindNode, Name: node.Metadata.Name})
		if err := r.refused(res, Unsafe); !strings.Contains(err.Message, "three and more") {
			t.Error(err)
		}
	}
	res = r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: "n4", Node: &NodeSpec{Fingerprint: "f4"}})
	_ = r.refused(r.mutate(Mutation{Verb: NodeRemove, Kind: KindNode, Name: "n2"}), Unsafe) // it has only joined
	r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f4"}, Disk: "d4", At: 1}})
	r.cluster()
	if res := r.mutate(Mutation{Verb: NodeRemove, Kind: KindNode, Name: "n2"}); res.Err != nil || !res.Changed {
		t.Fatalf("%+v", res)
	}
	_ = r.refused(r.do(Command{Remove: &Remove{Kind: KindNode, UID: n[1]}}), Conflict) // it is in the control group
	r.cluster()
	if res := r.do(Command{Remove: &Remove{Kind: KindNode, UID: n[1]}}); res.Err != nil || !res.Removed {
		t.Fatalf("%+v", res)
	}
	// The key may come again, as another node.
	_ = r.refused(r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f2"}, Disk: "d", At: 1}}), Conflict)
	_ = r.refused(r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f2"}, Disk: "df2", At: 1}}), NotFound)
	res = r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: "n2", Node: &NodeSpec{Fingerprint: "f2"}})
	if res.Err != nil || res.Node.Number() != r.last {
		t.Errorf("%+v", res)
	}
}

// TestNodeVerbs: what they do, again and out of turn, and what they refuse with the reason.
func TestNodeVerbs(t *testing.T) {
	r := newRegistry(t)
	r.nodes(4)
	verb := func(v Verb, name string) Result {
		t.Helper()
		return r.mutate(Mutation{Verb: v, Kind: KindNode, Name: name})
	}
	add := func(name, key string) Result {
		t.Helper()
		return r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: name, Node: &NodeSpec{Fingerprint: key}})
	}
	state := func(res Result, want NodeState, changed bool) {
		t.Helper()
		if res.Err != nil || res.Changed != changed || res.Node.Status.State != want {
			t.Errorf("%+v, %v", res.Node, res.Err)
		}
	}
	state(verb(NodeDrain, "n2"), NodeDraining, true)
	state(verb(NodeDrain, "f2"), NodeDraining, false) // by its key
	state(verb(NodeUndrain, "n2"), NodeMember, true)
	state(verb(NodeUndrain, "n2"), NodeMember, false)
	if err := r.refused(verb(NodeDrain, "nobody"), NotFound); !strings.Contains(err.Message, "n1, n2, n3, n4") {
		t.Error(err)
	}
	if res := add("n2", "f2"); res.Err != nil || res.Changed {
		t.Errorf("added again: %+v", res)
	}
	_ = r.refused(add("n2", "other"), Exists)
	_ = r.refused(add("other", "f2"), Exists)
	state(add("n5", "f5"), NodeJoining, true)
	_ = r.refused(verb(NodeDrain, "n5"), Invalid)
	stale := r.s.nodes["n3"].Metadata.ResourceVersion - 1
	res := r.mutate(Mutation{Verb: NodeDrain, Kind: KindNode, Name: "n3", Expected: &stale})
	if err := r.refused(res, Conflict); err.Expected != stale || err.Now != stale+1 {
		t.Errorf("%+v", err)
	}
	state(verb(NodeRemove, "n5"), NodeRemoving, true) // it has not come
	state(verb(NodeRemove, "n3"), NodeRemoving, true)
	state(verb(NodeRemove, "n3"), NodeRemoving, false)
	_ = r.refused(verb(NodeUndrain, "n3"), Removing)
	_ = r.refused(add("n3", "f3"), Exists)
	_ = r.refused(r.mutate(Mutation{Verb: Apply, Kind: KindNode, Name: "n1"}), Invalid)
	_ = r.refused(r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: "n9"}), Invalid)
	_ = r.refused(r.mutate(Mutation{Verb: NodeDrain, Kind: KindQueue, Name: "n9"}), Invalid)
}

// TestLives: of two lives of one disk the one that stands is not displaced by one that does not come after it, whatever
// it counts to (matrix 32, 33).
func TestLives(t *testing.T) {
	r := newRegistry(t)
	r.nodes(3)
	reg := func(incarnation uint64, nonce, after string) Result {
		t.Helper()
		return r.do(Command{Register: &Register{
			NodeSpec: NodeSpec{"f2", "b:1", ""}, Disk: "df2", Incarnation: incarnation, At: 1, Nonce: nonce, After: after,
		}})
	}
	stands := func(res Result, incarnation uint64, nonce string) {
		t.Helper()
		if n, _ := r.s.Node("f2"); n.Status.Incarnation != incarnation || n.Status.Nonce != nonce {
			t.Errorf("life %d %q stands, want %d %q: %+v", n.Status.Incarnation, n.Status.Nonce, incarnation, nonce, res.Err)
		}
	}
	stands(reg(7, "x", ""), 7, "x") // nobody had said a nonce
	if res := reg(7, "x", ""); res.Err != nil || res.Changed {
		t.Errorf("%+v", res)
	}
	_ = r.refused(reg(7, "copy", ""), Conflict)
	_ = r.refused(reg(7, "copy", "x"), Conflict)
	_ = r.refused(reg(8, "copy", ""), Conflict)
	_ = r.refused(reg(9, "copy", "w"), Conflict)
	stands(reg(9, "y", "x"), 9, "y")
	_ = r.refused(reg(8, "z", "y"), Conflict)
	stands(r.do(Command{Register: &Register{
		NodeSpec: NodeSpec{"f2", "b:1", ""}, Disk: "other", Incarnation: 1, At: 1, Nonce: "n",
	}}), 1, "n")
}

// TestFoundBeforeRegistered: a node of a cluster says nothing of itself before the cluster's nodes are in the registry:
// a first entry that is a node's own would make it a cluster of its own, which the others are no members of.
func TestFoundBeforeRegistered(t *testing.T) {
	n := &node{s: NewState(), now: 1_000_000_000, hold: true}
	n.r = NewReconciler(n, Options{Node: "b", Disk: "d", Founded: true, Address: "b:1"})
	n.r.Load(n.s)
	n.r.Lead(n.s)
	for range 100 {
		n.settle()
		n.now += 1000
	}
	if len(n.proposals) > 0 {
		t.Fatalf("before there is a node it proposes %+v", n.proposals[0].Register)
	}
	birth, err := Genesis([]Seed{{"a", "a", "a:1", ""}, {"b", "b", "b:1", ""}, {"c", "c", "c:1", ""}})
	if err != nil {
		t.Fatal(err)
	}
	c := birth.Command(1)
	n.last = n.s.Apply(GenesisIndex+1, c)
	n.r.Applied(c, n.last)
	n.settle()
	if n.last.Err != nil || len(n.proposals) == 0 || n.proposals[0].Register == nil {
		t.Fatalf("%v; when it was found it proposes %+v", n.last.Err, n.proposals)
	}
}

// TestRegister: identity is the key, and a replica's is the disk (T-7, Q-17).
func TestRegister(t *testing.T) {
	r := newRegistry(t)
	r.nodes(3)
	reg := func(key, disk, addr string, incarnation uint64) Result {
		t.Helper()
		return r.do(Command{Register: &Register{
			NodeSpec: NodeSpec{key, addr, ""}, Disk: disk, Incarnation: incarnation, At: 1,
		}})
	}
	res := reg("f2", "df2", "b:1", 7)
	if res.Err != nil || res.Node.Spec.Address != "b:1" || res.Node.Status.State != NodeMember {
		t.Errorf("another address is the same node: %+v", res)
	}
	if res := reg("f2", "df2", "b:1", 7); res.Err != nil || res.Changed {
		t.Errorf("%+v", res)
	}
	if res := reg("f2", "df2", "", 7); res.Err != nil || res.Changed || res.Node.Spec.Address != "b:1" {
		t.Errorf("who does not know its address takes it away: %+v", res)
	}
	_ = r.refused(reg("f2", "df2", "b:1", 6), Conflict)
	_ = r.refused(reg("stranger", "x", "b:1", 1), NotFound) // another key at the same address
	_ = r.refused(reg("f3", "df2", "c:1", 1), Conflict)     // a copy of a data directory
	_ = r.refused(reg("f3", "", "c:1", 1), Invalid)
	control := r.s.Cluster().Replicas
	if res := reg("f2", "other", "b:1", 1); res.Err != nil || r.s.good(&control[1]) {
		t.Errorf("%+v", res)
	}
	r.cluster()
	now := r.s.Cluster().Replicas
	if len(now) != 3 || slices.ContainsFunc(now, func(p Replica) bool { return p.Replica == control[1].Replica }) {
		t.Errorf("an empty disk votes under its old id: %+v", now)
	}
}

// TestBegunElsewhere: a queue that was placed on nodes that died before anybody could put anything in begins anew on
// others, as an owner's and as a group's; one that was ready stays bound to its node (T-13, T-32).
func TestBegunElsewhere(t *testing.T) {
	f := newFleet(t, 5, 0)
	f.apply("ready", QueueSpec{Placement: PlacementSpec{Nodes: []string{"n5"}}})
	f.settle("made")
	f.apply("ready", QueueSpec{})
	f.settle("not pinned")
	f.down = f.nodes[3:]
	for _, n := range f.down {
		n.die()
	}
	for _, n := range f.nodes[:3] {
		n.r.WakeAll()
	}
	at := func(numbers ...uint64) (want []Spot) {
		for i, n := range numbers {
			want = append(want, Spot{Number: n, Lead: i == 0})
		}
		return want
	}
	n := func(i int) uint64 { return f.nodes[i-1].number }
	// Who placed them did not know yet.
	for name, want := range map[string][]Spot{"one": at(n(4)), "three": at(n(4), n(5), n(1))} {
		res := f.user(Mutation{
			Verb: Apply, Kind: KindQueue, Name: name, Queue: &QueueSpec{Replicas: len(want)}, Want: want,
		})
		f.check(res.Err == nil, "%v", res.Err)
	}
	f.settle("dead")
	for _, name := range []string{"one", "three"} {
		q, _ := f.truth.Queue(name)
		f.check(q.Status.Phase == Ready && q.Status.Step == Steady, "%s: %+v", name, q.Status)
		f.puts(name, 1)
	}
	q, _ := f.truth.Queue("ready")
	f.check(len(q.Status.Placement) == 1 && q.Status.Placement[0].Number == n(5), "%+v", q.Status)
	f.down = nil
	for _, n := range f.nodes[3:] {
		n.boot()
	}
	f.settle("back")
	f.check(len(f.truth.retired) == 0, "%+v", f.truth.retired)
	for _, name := range []string{"one", "three"} {
		f.puts(name, 1)
		f.keeps(name, 2)
	}
}

// TestReadyAtOnce: whoever serves a queue opens it to its users as soon as it is written down that it is ready, also
// while one of its replicas is away, which is looked at again only when the patience is over.
func TestReadyAtOnce(t *testing.T) {
	f := newFleet(t, 3, 0)
	f.settle("three")
	f.down = f.nodes[2:]
	f.nodes[2].die()
	f.apply("a", QueueSpec{Replicas: 3})
	for began := f.now; !f.put("a"); f.round() {
		f.check(f.now-began < 10_000, "%s takes nothing yet: %s", "a", f.placed("a"))
	}
}
