package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// registry applies mutations one index after the other.
type registry struct {
	*testing.T
	s    *State
	last uint64
}

// newRegistry has one node, number 1.
func newRegistry(t *testing.T) *registry {
	r := &registry{T: t, s: new(State), last: 10}
	res := r.s.Apply(r.last, Command{Register: &Register{
		NodeSpec: NodeSpec{Fingerprint: "f"}, Name: "n1", Disk: "d", At: 1,
	}})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	return r
}

// place decides on nodes, the first of which is to lead.
func (r *registry) place(uid uint64, nodes ...uint64) Result {
	r.Helper()
	o := r.s.objectOf(uid)
	c := &Place{Kind: o.kind(), UID: uid, Generation: o.meta.Generation, Epoch: o.status.Epoch}
	for i, n := range nodes {
		c.Want = append(c.Want, Spot{Number: n, Lead: i == 0})
	}
	return r.do(Command{Place: c})
}

func (r *registry) do(c Command) Result {
	r.Helper()
	r.last += 3
	before := r.s.Snapshot()
	res := r.s.Apply(r.last, c)
	if r.s.Version() != r.last {
		r.Fatalf("version %d after entry %d", r.s.Version(), r.last)
	}
	if !res.Changed {
		// Nothing but the version moved.
		old, err := Restore(before)
		if err != nil {
			r.Fatal(err)
		}
		old.version = r.last
		if d := cmp.Diff(old.Snapshot(), r.s.Snapshot()); d != "" {
			r.Fatalf("%+v changed something: %s", c, d)
		}
	}
	if res.Err != nil && res.Changed {
		r.Fatalf("refused and changed: %v", res.Err)
	}
	return res
}

func (r *registry) mutate(m Mutation) Result {
	r.Helper()
	if m.At == 0 {
		m.At = 1_000
	}
	return r.do(Command{Mutation: &m})
}

func (r *registry) apply(name string, s QueueSpec) Result {
	r.Helper()
	return r.mutate(Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &s})
}

func (r *registry) create(name string, s QueueSpec) Result {
	r.Helper()
	return r.mutate(Mutation{Verb: Create, Kind: KindQueue, Name: name, Queue: &s})
}

func (r *registry) delete(name string) Result {
	r.Helper()
	return r.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: name})
}

func (r *registry) observe(uid, gen uint64, st Status) Result {
	r.Helper()
	o := r.s.objectOf(uid)
	epoch := uint64(0)
	if o.status != nil {
		epoch = o.status.Epoch
	}
	return r.do(Command{Observe: &Observe{Kind: KindQueue, UID: uid, Generation: gen, Epoch: epoch, Status: st}})
}

// must is the queue of a result that is no refusal.
func (r *registry) must(res Result) Queue {
	r.Helper()
	if res.Err != nil {
		r.Fatalf("refused: %v", res.Err)
	}
	return *res.Queue
}

// refused asserts a refusal and returns it.
func (r *registry) refused(res Result, want Reason) *Error {
	r.Helper()
	if res.Err == nil || res.Err.Reason != want {
		r.Fatalf("want a refusal for %s, got %+v", want, res)
	}
	return res.Err
}

func expect(v uint64) *uint64 { return &v }

func limited(n uint64) QueueSpec { return QueueSpec{Limits: QueueLimits{Messages: n}} }

// TestVersionIsIndex: T-12, T-14, T-22.
func TestVersionIsIndex(t *testing.T) {
	r := newRegistry(t)
	q := r.must(r.apply("a", limited(1)))
	want := Metadata{Name: "a", UID: r.last, Generation: 1, ResourceVersion: r.last, CreationTimestamp: 1_000}
	if q.Metadata != want {
		t.Errorf("%+v", q.Metadata)
	}
	q = r.must(r.apply("a", limited(2)))
	want.Generation, want.ResourceVersion = 2, r.last
	if q.Metadata != want {
		t.Errorf("%+v", q.Metadata)
	}
	// A status is no change of the spec; a refusal is no change at all.
	q = r.must(r.observe(q.Metadata.UID, 2, Status{ObservedGeneration: 2, Phase: Ready}))
	want.ResourceVersion = r.last
	_ = r.refused(r.create("a", limited(9)), Exists)
	if got, _ := r.s.Queue("a"); got.Metadata != want || q.Metadata != want {
		t.Errorf("%+v", got.Metadata)
	}
	// Back to a spec of before is a change too.
	if q = r.must(r.apply("a", limited(1))); q.Metadata.Generation != 3 {
		t.Errorf("%+v", q.Metadata)
	}
}

// TestNewIsPendingWithReason: T-13, T-23.
func TestNewIsPendingWithReason(t *testing.T) {
	r := newRegistry(t)
	q := r.must(r.apply("a", QueueSpec{}))
	if q.Status.Phase != Pending || q.Status.ObservedGeneration != 0 || q.Status.Conditions[0].Reason != "NotPlaced" {
		t.Errorf("%+v", q.Status)
	}
}

// TestOneOfTwoWins: two with the same expected version (T-15), for all verbs.
func TestOneOfTwoWins(t *testing.T) {
	r := newRegistry(t)
	v := r.must(r.apply("a", limited(1))).Metadata.ResourceVersion
	two := func(n uint64) Mutation {
		s := limited(n)
		return Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &s, Expected: &v}
	}
	won := r.must(r.mutate(two(2)))
	res := r.mutate(two(3))
	err := r.refused(res, Conflict)
	now := won.Metadata.ResourceVersion
	if err.Now != now || err.Expected != v || res.Queue.Spec.Limits.Messages != 2 {
		t.Errorf("%+v, %+v", err, res.Queue)
	}
	for _, version := range []uint64{v, now} {
		if !strings.Contains(err.Error(), fmt.Sprint(version)) {
			t.Errorf("%q does not name %d", err.Error(), version)
		}
	}
	// Also with the spec that stands, and with "there is none".
	m := two(2)
	_ = r.refused(r.mutate(m), Conflict)
	m.Expected = expect(0)
	_ = r.refused(r.mutate(m), Conflict)
	m.Expected = expect(now)
	if res := r.mutate(m); res.Err != nil || res.Changed {
		t.Errorf("%+v", res)
	}
	// Delete.
	_ = r.refused(r.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Expected: &v}), Conflict)
	r.must(r.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Expected: &now}))
	// Where there is none.
	for _, verb := range []Verb{Apply, Create} {
		m := Mutation{Verb: verb, Kind: KindQueue, Name: "x" + string(verb), Queue: &QueueSpec{}, Expected: &v}
		if err := r.refused(r.mutate(m), Conflict); err.Now != 0 || err.Expected != v {
			t.Errorf("%+v", err)
		}
		m.Expected = expect(0)
		r.must(r.mutate(m))
	}
}

// TestApplyAgain: 1000 times the same, also with its defaults written out, changes nothing (T-16, T-17).
func TestApplyAgain(t *testing.T) {
	r := newRegistry(t)
	q := r.must(r.apply("a", QueueSpec{}))
	for i := range 1000 {
		spec := QueueSpec{}
		if i%2 == 1 {
			spec = q.Spec
			spec.Placement.Nodes = []string{}
		}
		res := r.apply("a", spec)
		if res.Err != nil || res.Changed {
			t.Fatalf("%+v", res)
		}
		if d := cmp.Diff(q, *res.Queue); d != "" {
			t.Fatal(d)
		}
	}
}

// TestDefaultsAreShown: get shows what counts.
func TestDefaultsAreShown(t *testing.T) {
	r := newRegistry(t)
	want := QueueSpec{Replicas: 1, Durability: Flushed, DrainDeadline: Duration(5 * time.Minute)}
	if d := cmp.Diff(want, r.must(r.apply("a", QueueSpec{})).Spec); d != "" {
		t.Error(d)
	}
}

// TestCreate is refused where the name is taken, also by one that is being deleted (T-18).
func TestCreate(t *testing.T) {
	r := newRegistry(t)
	r.must(r.create("a", limited(1)))
	_ = r.refused(r.create("a", limited(2)), Exists)
	_ = r.refused(r.create("a", limited(1)), Exists)
	if q, _ := r.s.Queue("a"); q.Spec.Limits.Messages != 1 {
		t.Errorf("%+v", q.Spec)
	}
	r.must(r.delete("a"))
	if err := r.refused(r.create("a", limited(1)), Exists); !strings.Contains(err.Message, "being deleted") {
		t.Error(err)
	}
	// Another kind has names of its own.
	spec := connectorSpec()
	if res := r.mutate(Mutation{Verb: Create, Kind: KindConnector, Name: "a", Connector: &spec}); res.Err != nil {
		t.Error(res.Err)
	}
	if len(r.s.Queues()) != 1 || len(r.s.Connectors()) != 1 {
		t.Error("two kinds do not share a name")
	}
}

// TestDelete is an intent that stands, and may only end sooner (T-20, W-28).
func TestDelete(t *testing.T) {
	r := newRegistry(t)
	_ = r.refused(r.delete("a"), NotFound)
	q := r.must(r.apply("a", QueueSpec{DrainDeadline: Duration(time.Minute)}))
	r.must(r.place(q.Metadata.UID, 1))
	r.must(r.observe(q.Metadata.UID, 1, Status{ObservedGeneration: 1, Phase: Ready}))
	drain := func(at int64, d time.Duration) Result {
		v := Duration(d)
		return r.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", At: at, Drain: &v})
	}
	q = r.must(r.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", At: 5_000}))
	m := q.Metadata
	if m.DeletionTimestamp != 5_000 || m.DrainUntil != 65_000 || m.ResourceVersion != r.last || m.Generation != 1 {
		t.Errorf("%+v", m)
	}
	st := q.Status
	if st.Phase != Deleting || st.Destroying || st.ObservedGeneration != 1 || len(st.Placement) != 1 {
		t.Errorf("%+v", st)
	}
	_ = r.refused(r.apply("a", limited(3)), Removing)

	for _, res := range []Result{r.delete("a"), drain(5_000, time.Hour), drain(5_000, time.Minute)} {
		if res.Err != nil || res.Changed || res.Queue.Metadata != m {
			t.Errorf("%+v", res)
		}
	}
	m = r.must(drain(6_000, 10*time.Second)).Metadata
	if m.DeletionTimestamp != 5_000 || m.DrainUntil != 16_000 || m.ResourceVersion != r.last {
		t.Errorf("%+v", m)
	}
	// The clock of another node may be behind; draining does not end before it began.
	if m = r.must(drain(1, 0)).Metadata; m.DrainUntil != 5_000 {
		t.Errorf("%+v", m)
	}
	_ = r.refused(r.mutate(Mutation{
		Verb: Delete, Kind: KindQueue, Name: "a", Expected: expect(m.ResourceVersion - 1),
	}), Conflict)
}

// TestDrainIsNotCutShort: a part of a millisecond counts as one.
func TestDrainIsNotCutShort(t *testing.T) {
	r := newRegistry(t)
	r.must(r.apply("a", QueueSpec{DrainDeadline: 1}))
	if q := r.must(r.delete("a")); q.Metadata.DrainUntil != q.Metadata.DeletionTimestamp+1 {
		t.Errorf("%+v", q.Metadata)
	}
}

// TestRecreate: a new id, nothing of the old (T-19).
func TestRecreate(t *testing.T) {
	r := newRegistry(t)
	old := r.must(r.apply("a", limited(1))).Metadata.UID
	r.must(r.apply("a", limited(2)))
	row := r.must(r.place(old, 1)).Status.Placement[0].Replica
	r.must(r.observe(old, 2, Status{ObservedGeneration: 2, Phase: Ready}))
	r.must(r.delete("a"))
	remove := Command{Remove: &Remove{KindQueue, old, row}}
	_ = r.refused(r.do(remove), Conflict) // its data was not given up
	r.must(r.observe(old, 2, Status{ObservedGeneration: 2, Phase: Deleting, Destroying: true}))
	if res := r.do(remove); res.Err != nil || !res.Changed || res.Queue.Metadata.UID != old {
		t.Fatalf("%+v", res)
	}
	if _, ok := r.s.Queue("a"); ok || len(r.s.Queues()) != 0 {
		t.Error("the record stayed")
	}
	q := r.must(r.create("a", limited(2)))
	if q.Metadata.UID != r.last || q.Metadata.Generation != 1 || q.Status.ObservedGeneration != 0 ||
		q.Status.Placement != nil {
		t.Errorf("%+v", q)
	}
	// What was meant for the old one does not reach the new one.
	_ = r.refused(r.observe(old, 1, Status{Phase: Ready}), NotFound)
	_ = r.refused(r.do(remove), NotFound)
	if _, ok := r.s.QueueOf(old); ok {
		t.Error("the old uid finds something")
	}
	if got, ok := r.s.QueueOf(q.Metadata.UID); !ok || got.Metadata != q.Metadata {
		t.Error("the new uid finds nothing")
	}
}

// TestObserve: what controllers may say.
func TestObserve(t *testing.T) {
	r := newRegistry(t)
	uid := r.must(r.apply("a", limited(1))).Metadata.UID
	r.must(r.apply("a", limited(2)))
	ready := Status{ObservedGeneration: 1, Phase: Ready}
	_ = r.refused(r.observe(uid+1, 1, ready), NotFound)
	_ = r.refused(r.do(Command{Observe: &Observe{Kind: KindConnector, UID: uid, Generation: 1, Status: ready}}), NotFound)
	_ = r.refused(r.observe(uid, 3, ready), Invalid)                                       // of a spec to come
	_ = r.refused(r.observe(uid, 1, Status{ObservedGeneration: 2, Phase: Ready}), Invalid) // done before looked at
	_ = r.refused(r.observe(uid, 1, Status{Phase: "Well"}), Invalid)                       //
	_ = r.refused(r.observe(uid, 1, Status{Phase: Deleting}), Invalid)                     // nobody asked for it
	_ = r.refused(r.observe(uid, 1, Status{Phase: Ready, Destroying: true}), Invalid)      //
	r.must(r.observe(uid, 2, ready))                                                       // gen 2 is in work, 1 is done
	if res := r.observe(uid, 2, ready); res.Changed || res.Err != nil {                    // nothing new
		t.Errorf("%+v", res)
	}
	r.must(r.observe(uid, 2, Status{ObservedGeneration: 2, Phase: Ready}))
	_ = r.refused(r.observe(uid, 2, ready), Conflict) // only rises
	q := r.must(r.observe(uid, 2, Status{ObservedGeneration: 2, Phase: Degraded}))
	if q.Spec.Limits.Messages != 2 || q.Metadata.Generation != 2 {
		t.Errorf("a status changed the spec: %+v", q)
	}
	r.must(r.delete("a"))
	_ = r.refused(r.observe(uid, 2, Status{ObservedGeneration: 2, Phase: Ready}), Removing)
	r.must(r.observe(uid, 2, Status{ObservedGeneration: 2, Phase: Deleting, Destroying: true}))
	_ = r.refused(r.observe(uid, 2, Status{ObservedGeneration: 2, Phase: Deleting}), Conflict)
}

// TestStatusIsBounded: what controllers write is bounded too.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, st := range []Status{
		{Conditions: make([]Condition, 17)},
		{Conditions: []Condition{{Message: long}}},
		{Conditions: []Condition{{Type: long}}},
		{Conditions: []Condition{{Reason: long}}},
	} {
		r := newRegistry(t)
		uid := r.must(r.apply("a", QueueSpec{})).Metadata.UID
		st.Phase = Pending
		_ = r.refused(r.observe(uid, 1, st), Invalid)
	}
}

// TestRemove takes only what a committed deletion names (T-21).
func TestRemove(t *testing.T) {
	r := newRegistry(t)
	uid := r.must(r.apply("a", QueueSpec{})).Metadata.UID
	_ = r.refused(r.do(Command{Remove: &Remove{KindQueue, uid, 0}}), Invalid)
	r.must(r.delete("a"))
	_ = r.refused(r.do(Command{Remove: &Remove{KindConnector, uid, 0}}), NotFound)
	_ = r.refused(r.do(Command{Remove: &Remove{KindQueue, uid + 1, 0}}), NotFound)
	r.must(r.do(Command{Remove: &Remove{KindQueue, uid, 0}}))
}

// TestBounds fills the registry; what is being deleted counts until it is gone.
func TestBounds(t *testing.T) {
	s := new(State)
	next := uint64(0)
	do := func(m Mutation) Result { next++; m.At = 1; return s.Apply(next, Command{Mutation: &m}) }
	spec := connectorSpec()
	add := func(k Kind, name string) Result {
		m := Mutation{Verb: Apply, Kind: k, Name: name}
		if k == KindQueue {
			m.Queue = &QueueSpec{}
		} else {
			m.Connector = &spec
		}
		return do(m)
	}
	for k, most := range map[Kind]int{KindQueue: QueuesMax, KindConnector: ConnectorsMax} {
		var uid uint64
		for i := range most {
			if res := add(k, fmt.Sprint("r", i)); res.Err != nil {
				t.Fatal(res.Err)
			}
			uid = next
		}
		last := fmt.Sprint("r", most-1)
		if res := add(k, "more"); res.Err == nil || res.Err.Reason != TooMany {
			t.Errorf("%s: %+v", k, res)
		}
		if res := add(k, last); res.Err != nil {
			t.Errorf("%s: what is there can be applied: %v", k, res.Err)
		}
		do(Mutation{Verb: Delete, Kind: k, Name: last})
		if res := add(k, "more"); res.Err == nil || res.Err.Reason != TooMany {
			t.Errorf("%s: %+v", k, res)
		}
		next++
		s.Apply(next, Command{Remove: &Remove{k, uid, 0}})
		if res := add(k, "more"); res.Err != nil {
			t.Errorf("%s: %v", k, res.Err)
		}
	}
	back, err := Restore(s.Snapshot())
	if err != nil || string(back.Snapshot()) != string(s.Snapshot()) {
		t.Errorf("a full registry is not restored: %v", err)
	}
}

// TestCopies: nothing that goes in or comes out is shared with the state.
func TestCopies(t *testing.T) {
	r := newRegistry(t)
	spec := QueueSpec{Placement: PlacementSpec{Nodes: []string{"n1"}}}
	uid := r.apply("a", spec).Queue.Metadata.UID
	r.must(r.place(uid, 1))
	st := Status{Phase: Pending, Conditions: []Condition{{"t", "r", "m"}}}
	res := r.observe(uid, 1, st)
	cs := connectorSpec()
	res2 := r.mutate(Mutation{Verb: Apply, Kind: KindConnector, Name: "c", Connector: &cs})
	want := r.s.Snapshot()

	spoil := func(q Queue) {
		q.Spec.Placement.Nodes[0], q.Status.Placement[0].Node, q.Status.Conditions[0].Type = "x", "x", "x"
	}
	spec.Placement.Nodes[0], st.Conditions[0].Type = "x", "x"
	spoil(*res.Queue)
	q, _ := r.s.Queue("a")
	spoil(q)
	q, _ = r.s.QueueOf(uid)
	spoil(q)
	spoil(r.s.Queues()[0])
	cs.Policy["k"] = "x"
	res2.Connector.Spec.Policy["k"] = "x"
	r.s.Connectors()[0].Spec.Policy["k"] = "x"
	c, _ := r.s.Connector("c")
	c.Spec.Policy["k"] = "x"
	c.Status.Conditions[0].Type = "x"
	if string(r.s.Snapshot()) != string(want) {
		t.Error("the state is shared with its callers")
	}
}

// TestListsAreSorted by name, of bytes.
func TestListsAreSorted(t *testing.T) {
	r := newRegistry(t)
	spec := connectorSpec()
	for _, name := range []string{"b", "a/b", "ä", "a", "Z", "10", "9"} {
		r.must(r.apply(name, QueueSpec{}))
		r.mutate(Mutation{Verb: Apply, Kind: KindConnector, Name: name, Connector: &spec})
	}
	want := []string{"10", "9", "Z", "a", "a/b", "b", "ä"}
	var queues, connectors []string
	for _, q := range r.s.Queues() {
		queues = append(queues, q.Metadata.Name)
	}
	for _, c := range r.s.Connectors() {
		connectors = append(connectors, c.Metadata.Name)
	}
	if !slices.Equal(queues, want) || !slices.Equal(connectors, want) {
		t.Error(queues, connectors)
	}
}

// TestMisuse: what only a defect does ends the process.
func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(){
		"no command":   func() { new(State).Apply(1, Command{}) },
		"two commands": func() { new(State).Apply(1, Command{Remove: &Remove{}, Observe: &Observe{}}) },
		"index again": func() {
			s := new(State)
			s.Apply(5, Command{Remove: &Remove{}})
			s.Apply(5, Command{Remove: &Remove{}})
		},
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.HasPrefix(p, "bug: control: ") {
					t.Errorf("%s: %v", name, p)
				}
			}()
			f()
		}()
	}
}
