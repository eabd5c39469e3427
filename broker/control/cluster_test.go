package control

import (
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
