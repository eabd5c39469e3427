package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// nodes adds nodes to a registry that has number 1, and makes them members; it returns their numbers.
func (r *registry) nodes(n int) []uint64 {
	r.Helper()
	numbers := []uint64{1}
	for i := 2; i <= n; i++ {
		name := fmt.Sprint("n", i)
		key := fmt.Sprint("f", i)
		res := r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: name, Node: &NodeSpec{Fingerprint: key}})
		if res.Err != nil {
			r.Fatal(res.Err)
		}
		numbers = append(numbers, res.Node.Number())
		reg := r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: key}, Disk: "d" + key, At: 1}})
		if reg.Err != nil {
			r.Fatal(reg.Err)
		}
	}
	r.cluster()
	return numbers
}

// cluster brings the control group to what is wanted, with every node there.
func (r *registry) cluster() {
	r.Helper()
	for range 20 {
		c := r.s.Cluster()
		var made []uint64
		for _, p := range c.Replicas {
			if !p.Made {
				made = append(made, p.Replica)
			}
		}
		want := r.s.controlWanted(anywhere)
		place, _ := r.s.differs(c.Replicas, want)
		switch {
		case len(made) > 0:
			r.do(Command{Observe: &Observe{Kind: KindCluster, Made: made}})
		case c.Step != Steady:
			r.do(Command{Reached: &Reached{Kind: KindCluster, Epoch: c.Epoch}})
		case place:
			r.do(Command{Place: &Place{Kind: KindCluster, Epoch: c.Epoch, Want: want}})
		default:
			return
		}
	}
	r.Fatal("the control group does not come to rest")
}

func (r *registry) reach(uid uint64) Queue {
	r.Helper()
	q, _ := r.s.QueueOf(uid)
	return r.must(r.do(Command{Reached: &Reached{KindQueue, uid, q.Status.Epoch}}))
}

// ids are the raft ids of a placement.
func ids(q Queue) (list []uint64) {
	for _, p := range q.Status.Placement {
		list = append(list, p.Replica)
	}
	return list
}

// TestSteps takes a queue through one change, entry by entry (T-34, X-1, X-5).
func TestSteps(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(4)
	uid := r.must(r.apply("a", QueueSpec{})).Metadata.UID
	q := r.must(r.place(uid, n[0]))
	if p := q.Status.Placement[0]; !p.Owner || p.Replica != r.last*ReplicasPerEntry || q.Status.Founders != nil {
		t.Fatalf("%+v", q.Status)
	}
	first := ids(q)[0]
	r.must(r.observe(uid, 1, Status{ObservedGeneration: 1, Phase: Ready}))

	// 1→3: the owner becomes a group of one, and learners come.
	r.must(r.apply("a", QueueSpec{Replicas: 3}))
	q = r.must(r.place(uid, n[0], n[1], n[2]))
	for i, p := range q.Status.Placement {
		if p.Owner || p.Learner != (i > 0) || p.Lead != (i == 0) || i > 0 && p.Next != Rises || q.Status.Step != Adding {
			t.Errorf("adding: %+v", p)
		}
	}
	if got := Members(q.Status.Step, q.Status.Placement); len(got) != 3 || !got[1].Learner {
		t.Errorf("%+v", got)
	}
	q = r.reach(uid)
	if got := Members(q.Status.Step, q.Status.Placement); q.Status.Step != Switching || got[1].Learner || got[2].Learner {
		t.Errorf("%s: %+v", q.Status.Step, got)
	}
	// Nothing is decided while it is switched, and nothing ends it but that it is done.
	_ = r.refused(r.place(uid, n[0]), Conflict)
	q = r.reach(uid)
	if q.Status.Step != Steady || ids(q)[0] != first || len(r.s.retired) != 0 {
		t.Errorf("%+v", q.Status)
	}
	_ = r.refused(r.do(Command{Reached: &Reached{KindQueue, uid, q.Status.Epoch}}), Conflict)

	// A move: one more learns, and one leaves.
	q = r.must(r.place(uid, n[0], n[1], n[3]))
	if got := Members(q.Status.Step, q.Status.Placement); len(got) != 4 {
		t.Errorf("%+v", got)
	}
	r.reach(uid)
	q = r.reach(uid)
	gone := r.s.RetiredOf(uid)
	if len(ids(q)) != 3 || len(gone) != 1 || gone[0].Replica.Number != n[2] {
		t.Errorf("%+v, %+v", q.Status, gone)
	}

	// What is on a disk that is not there any more is nobody's.
	r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f3"}, Disk: "new", At: 1}})
	if gone := r.s.RetiredOf(uid); len(gone) != 0 || r.s.retiredCount != 0 {
		t.Errorf("%+v", gone)
	}

	// 3→1: the others are retired, and the survivor owns.
	r.must(r.apply("a", QueueSpec{Replicas: 1}))
	q = r.must(r.place(uid, n[1]))
	if q.Status.Step != Adding { // whoever leads says when the survivor is ready
		t.Errorf("%+v", q.Status)
	}
	r.reach(uid)
	q = r.reach(uid)
	if p := q.Status.Placement; len(p) != 1 || !p[0].Owner || p[0].Number != n[1] || len(r.s.RetiredOf(uid)) != 2 {
		t.Errorf("%+v, %+v", q.Status, r.s.RetiredOf(uid))
	}
}

// TestStaleDecisions: of two that were made on one epoch, or on another spec, one is refused; so is what was found
// or reached in an epoch that is over.
func TestStaleDecisions(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(3)
	uid := r.must(r.apply("a", QueueSpec{})).Metadata.UID
	two := func(number uint64) Command {
		return Command{Place: &Place{KindQueue, uid, 1, 0, []Spot{{Number: number, Lead: true}}, false}}
	}
	r.must(r.do(two(n[0])))
	if err := r.refused(r.do(two(n[1])), Conflict); !strings.Contains(err.Message, "epoch 1") {
		t.Error(err)
	}
	if res := r.place(uid, n[0]); res.Err != nil || res.Changed {
		t.Errorf("the same again: %+v", res)
	}
	late := &Place{KindQueue, uid, 1, 1, []Spot{{Number: n[1], Lead: true}}, false}
	r.must(r.apply("a", limited(1)))
	_ = r.refused(r.do(Command{Place: late}), Conflict)

	old := Status{ObservedGeneration: 1, Phase: Ready}
	_ = r.refused(r.do(Command{Observe: &Observe{Kind: KindQueue, UID: uid, Generation: 1, Status: old}}), Conflict)
	r.must(r.observe(uid, 1, old))
	r.must(r.apply("a", QueueSpec{Replicas: 3}))
	epoch := r.must(r.place(uid, n...)).Status.Epoch
	_ = r.refused(r.do(Command{Reached: &Reached{KindQueue, uid, epoch - 1}}), Conflict)
	r.reach(uid)
	_ = r.refused(r.do(Command{Reached: &Reached{KindQueue, uid, epoch}}), Conflict)

	// The switching is stuck if one that rises is lost, and only in its epoch.
	stuck := func(epoch uint64) Command { return Command{Stuck: &Stuck{KindQueue, uid, epoch}} }
	_ = r.refused(r.do(stuck(epoch+1)), Conflict)
	r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f3"}, Disk: "new", At: 1}})
	_ = r.refused(r.do(stuck(epoch)), Conflict)
	if q := r.must(r.do(stuck(epoch + 1))); q.Status.Step != Adding || q.Status.Epoch != epoch+2 {
		t.Errorf("%+v", q.Status)
	}
	// What took the place of a deletion cannot be moved.
	r.must(r.delete("a"))
	_ = r.refused(r.place(uid, n[0]), Removing)
}

// TestNeverOpened: a queue that nobody could put anything in begins anew where its owner's disk is lost, and begins
// as a group of one where it grows before it was opened. One with messages stays (T-19, T-32).
func TestNeverOpened(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(3)
	uid := r.must(r.apply("a", QueueSpec{Replicas: 3})).Metadata.UID
	r.must(r.apply("a", QueueSpec{}))
	r.must(r.place(uid, n[1]))
	r.must(r.apply("a", QueueSpec{Replicas: 3}))
	q := r.must(r.place(uid, n[1], n[0], n[2]))
	if want := []Founder{{ids(q)[0], n[1]}}; !slices.Equal(q.Status.Founders, want) {
		t.Errorf("%+v", q.Status.Founders)
	}
	r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f2"}, Disk: "new", At: 1}})
	old := ids(q)
	q = r.must(r.place(uid, n[0], n[1], n[2]))
	if q.Status.Step != Steady || len(q.Status.Founders) != 3 || slices.ContainsFunc(ids(q), func(id uint64) bool {
		return slices.Contains(old, id)
	}) {
		t.Errorf("%+v", q.Status)
	}
	if gone := r.s.RetiredOf(uid); len(gone) != 2 { // the learners; the disk of the third is nobody's
		t.Errorf("%+v", gone)
	}

	uid = r.must(r.apply("b", QueueSpec{})).Metadata.UID
	r.must(r.place(uid, n[1]))
	r.must(r.observe(uid, 1, Status{ObservedGeneration: 1, Phase: Ready}))
	r.do(Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "f2"}, Disk: "newer", At: 1}})
	if err := r.refused(r.place(uid, n[0]), Conflict); !strings.Contains(err.Message, `disk "new"`) {
		t.Error(err)
	}
}

// TestCurrent is the rule by which a copy of the registry that is behind is known by a group's members.
func TestCurrent(t *testing.T) {
	const version = 10
	rows := []Replica{{Replica: 1}, {Replica: 2, Next: Leaves}, {Replica: 3}, {Replica: 80, Learner: true, Next: Rises}}
	have := func(voters []uint64, learners ...uint64) (list []Member) {
		for _, id := range voters {
			list = append(list, Member{Replica: id})
		}
		for _, id := range learners {
			list = append(list, Member{Replica: id, Learner: true})
		}
		return list
	}
	v := []uint64{1, 2, 3}
	for i, tc := range []struct {
		step Step
		have []Member
		want bool
	}{
		{Adding, have(v), true},
		{Adding, have(v, 80), true},
		{Adding, have(v, 80, 87), true},              // one that was taken back
		{Adding, have(v, 80, 88), false},             // one that comes with a later entry
		{Adding, have([]uint64{1, 3, 80}), false},    // switched already
		{Adding, have([]uint64{1, 3}, 2, 80), false}, //
		{Switching, have(v, 80), true},
		{Switching, have([]uint64{1, 3, 80}), true},
		{Switching, have([]uint64{1, 3}), false}, // one was taken out since
		{Switching, have(v), false},
		{Switching, have([]uint64{1, 3, 80}, 88), false},
		{Switching, have([]uint64{1, 3, 80, 96}), false},
	} {
		if got := current(tc.step, rows, tc.have, version); got != tc.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
	rows = rows[:3]
	rows[1].Next = Stays
	for i, tc := range []struct {
		have []Member
		want bool
	}{
		{have(v), true},
		{have(v, 5), true},
		{have(v, 88), false},
		{have([]uint64{1}), false}, // shrunk since: never made what it was
	} {
		if got := current(Steady, rows, tc.have, version); got != tc.want {
			t.Errorf("steady, case %d: %v", i, got)
		}
	}
}

// TestRisen: nothing is switched before all that rise have caught up, and most of those that will vote.
func TestRisen(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(4)
	uid := r.must(r.apply("a", QueueSpec{Replicas: 3})).Metadata.UID
	r.must(r.place(uid, n[:3]...))
	q := r.must(r.place(uid, n[0], n[1], n[3]))
	rows := q.Status.Placement
	for i, tc := range []struct {
		up   [4]bool
		want bool
	}{
		{[4]bool{true, true, true, true}, true},
		{[4]bool{true, true, false, true}, true},
		{[4]bool{true, false, true, true}, true},
		{[4]bool{true, true, true, false}, false},
		{[4]bool{false, false, true, true}, false},
	} {
		var have []Member
		for j, p := range rows {
			have = append(have, Member{Replica: p.Replica, Learner: p.Learner, CaughtUp: tc.up[j]})
		}
		if got := r.s.risen(rows, have); got != tc.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
}

// TestSpots: what no decision may say.
func TestSpots(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(9)
	uid := r.must(r.apply("a", QueueSpec{})).Metadata.UID
	r.mutate(Mutation{Verb: NodeAdd, Kind: KindNode, Name: "new", Node: &NodeSpec{Fingerprint: "fnew"}})
	fresh := r.last
	for says, nodes := range map[string][]uint64{
		"two replicas":     {n[0], n[1]},
		"no node 9999":     {9999},
		"has not come yet": {fresh},
		"named twice":      {n[0], n[1], n[0]},
		"at most 7":        n[:8],
		"at least one":     {},
	} {
		if err := r.refused(r.place(uid, nodes...), Invalid); !strings.Contains(err.Message, says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	lead := Command{Place: &Place{KindQueue, uid, 1, 0, []Spot{{Number: n[0]}}, false}}
	if err := r.refused(r.do(lead), Invalid); !strings.Contains(err.Message, "lead") {
		t.Error(err)
	}
	_ = r.refused(r.do(Command{Place: &Place{Kind: KindQueue, UID: 5}}), NotFound)
	_ = r.refused(r.do(Command{Reached: &Reached{Kind: KindQueue, UID: 5}}), NotFound)
	_ = r.refused(r.do(Command{Gone: &Gone{Kind: KindQueue, UID: 5}}), NotFound)
	_ = r.refused(r.do(Command{Lost: &Lost{UID: 5}}), NotFound)
	_ = r.refused(r.do(Command{Stuck: &Stuck{Kind: KindQueue, UID: 5}}), NotFound)
}

// TestPrepare: a queue that is made is placed in the same entry, least loaded nodes first, if that still fits; users
// cannot have their own way with it.
func TestPrepare(t *testing.T) {
	r := newRegistry(t)
	r.nodes(4)
	for i := range 8 {
		m := Mutation{Verb: Create, Kind: KindQueue, Name: fmt.Sprint("q", i), Queue: &QueueSpec{Replicas: 3}, At: 1}
		r.s.Prepare(&m, anywhere, nil)
		q := r.must(r.do(Command{Mutation: &m}))
		if len(q.Status.Placement) != 3 || q.Status.Epoch != 1 || len(q.Status.Founders) != 3 ||
			q.Metadata.ResourceVersion != r.last {
			t.Errorf("%+v", q)
		}
	}
	for _, n := range r.s.Nodes() {
		if l := r.s.LoadOf(n.Number()); l.Replicas != 6 || l.Leads != 2 {
			t.Errorf("node %d has %+v", n.Number(), l)
		}
	}
	list, _ := r.s.Changes(r.last-1, 9)
	if len(list) != 1 || list[0].Event != Added || len(list[0].Queue.Status.Placement) != 3 {
		t.Errorf("%+v", list)
	}
	m := Mutation{Verb: Create, Kind: KindQueue, Name: "x", Queue: &QueueSpec{Replicas: 5}, At: 1}
	m.Want = []Spot{{Number: 1}}
	r.s.Prepare(&m, anywhere, nil)
	if m.Want != nil {
		t.Errorf("%+v, for five replicas on four nodes", m.Want)
	}
	for _, want := range [][]Spot{{{Number: 99, Lead: true}}, {{Number: 1}}, {{Number: 1, Lead: true}, {Number: 1}}} {
		m := Mutation{Verb: Apply, Kind: KindQueue, Name: fmt.Sprint("y", r.last), Queue: &QueueSpec{}, Want: want, At: 1}
		if q := r.must(r.do(Command{Mutation: &m})); q.Status.Placement != nil {
			t.Errorf("%+v", q.Status)
		}
	}
}
