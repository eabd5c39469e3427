package control

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// follow applies changes to a copy of what a list showed.
type follow struct {
	version uint64
	have    map[uint64]string // by uid: the resource as JSON-like text
}

func shown(c *Change) string {
	switch {
	case c.Queue != nil:
		return fmt.Sprintf("%+v", *c.Queue)
	case c.Connector != nil:
		return fmt.Sprintf("%+v", *c.Connector)
	}
	return fmt.Sprintf("%+v", *c.Node)
}

func listed(s *State) *follow {
	f := &follow{s.Version(), map[uint64]string{}}
	for _, q := range s.Queues() {
		f.have[q.Metadata.UID] = fmt.Sprintf("%+v", q)
	}
	for _, c := range s.Connectors() {
		f.have[c.Metadata.UID] = fmt.Sprintf("%+v", c)
	}
	for _, n := range s.Nodes() {
		f.have[n.Number()] = fmt.Sprintf("%+v", n)
	}
	return f
}

// take applies changes; it says what is wrong with them.
func (f *follow) take(list []Change) string {
	more := false
	for i := range list {
		c := &list[i]
		_, known := f.have[c.UID]
		switch {
		case c.Version < f.version || c.Version == f.version && !more:
			return fmt.Sprintf("version %d after %d", c.Version, f.version)
		case more && c.Version != f.version:
			return "an entry's changes are parted"
		case (c.Event == Added) == known:
			return fmt.Sprintf("%s of %d, known %v", c.Event, c.UID, known)
		case c.Event == Deleted:
			delete(f.have, c.UID)
		default:
			f.have[c.UID] = shown(c)
		}
		f.version, more = c.Version, c.More
	}
	if more {
		return "ends within an entry"
	}
	return ""
}

// TestWatch: from any version on, every later change comes exactly once and in order, and leads to what a list
// shows then; what is not held any more is refused (B-229.3).
func TestWatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWild()
		from := listed(w.s)
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			w.step(t)
			if rapid.IntRange(0, 5).Draw(t, "look") > 0 {
				continue
			}
			for {
				list, ok := w.s.Changes(from.version, rapid.IntRange(1, 5).Draw(t, "most"))
				if !ok {
					t.Fatalf("not held from %d on", from.version)
				}
				if len(list) == 0 {
					break
				}
				if why := from.take(list); why != "" {
					t.Fatal(why)
				}
			}
			now := listed(w.s)
			if fmt.Sprint(from.have) != fmt.Sprint(now.have) {
				t.Fatalf("watched\n%v\nlisted\n%v", from.have, now.have)
			}
		}
		back, err := Restore(w.s.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := back.Changes(w.s.Version()-1, 9); ok {
			t.Error("a new life knows changes of the one before")
		}
		if list, ok := back.Changes(w.s.Version(), 9); !ok || len(list) != 0 || back.Oldest() != w.s.Version() {
			t.Error(list, ok)
		}
	})
}

// TestHistoryIsBounded: the oldest go, whole entries at a time.
func TestHistoryIsBounded(t *testing.T) {
	s := new(State)
	index := uint64(0)
	for i := range 2*HistoryMax + 7 {
		index += 2
		s.Apply(index, Command{Mutation: &Mutation{
			Verb: Apply, Kind: KindQueue, Name: "a", At: 1, Queue: &QueueSpec{Limits: QueueLimits{Messages: uint64(i) + 1}},
		}})
	}
	oldest := s.Oldest()
	if want := index - 2*HistoryMax; oldest != want || len(s.history.list) != HistoryMax {
		t.Errorf("oldest %d, want %d", oldest, want)
	}
	if _, ok := s.Changes(oldest-1, 10); ok {
		t.Error("what is gone is not refused")
	}
	list, ok := s.Changes(oldest, 2*HistoryMax)
	if !ok || len(list) != HistoryMax || list[0].Version != oldest+2 || list[HistoryMax-1].Version != index {
		t.Errorf("%d changes", len(list))
	}
	if list, ok := s.Changes(index, 10); !ok || len(list) != 0 {
		t.Error(list, ok)
	}
	if list, ok := s.Changes(index-3, 1); !ok || len(list) != 1 || list[0].Version != index-2 {
		t.Error(list, ok)
	}
}

// TestOldLog replays a log of a build with one node, byte by byte, judged by its rules; then the node registers,
// and what is there is on it (version 1 of commands).
func TestOldLog(t *testing.T) {
	s := NewState()
	index := uint64(1)
	enter := func(c Command) Result {
		t.Helper()
		c.Rules = 1
		b := c.Append(nil)
		if b[0] != 1 {
			t.Fatalf("%x", b)
		}
		back, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		index++
		return s.Apply(index, back)
	}
	apply := func(name string, spec QueueSpec) Result {
		return enter(Command{Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &spec, At: 1}})
	}
	observe := func(uid uint64, disk string, st Status) {
		t.Helper()
		st.Placement = []Replica{{Node: "key", Disk: disk, Owner: true}}
		if res := enter(Command{Observe: &Observe{Kind: KindQueue, UID: uid, Generation: 1, Status: st}}); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	ready := Status{ObservedGeneration: 1, Phase: Ready}
	here := apply("here", QueueSpec{}).Queue.Metadata.UID
	observe(here, "d1", ready)
	there := apply("there", QueueSpec{Durability: Written}).Queue.Metadata.UID
	observe(there, "d0", ready)
	fresh := apply("fresh", QueueSpec{}).Queue.Metadata.UID
	if res := apply("three", QueueSpec{Replicas: 3}); res.Err == nil || res.Err.Reason != Invalid {
		t.Errorf("what was refused is taken: %+v", res)
	}
	gone := apply("gone", QueueSpec{}).Queue.Metadata.UID
	observe(gone, "d1", ready)
	enter(Command{Mutation: &Mutation{Verb: Delete, Kind: KindQueue, Name: "gone", At: 1}})
	observe(gone, "d1", Status{ObservedGeneration: 1, Phase: Deleting, Destroying: true})
	if res := enter(Command{Remove: &Remove{Kind: KindQueue, UID: gone}}); res.Err != nil || !res.Changed {
		t.Errorf("%+v", res)
	}
	if _, err := Decode([]byte{1, numberRegister}); err == nil {
		t.Error("an old build wrote what it did not know")
	}

	index++
	me := NodeSpec{Fingerprint: "key"}
	res := s.Apply(index, Command{Register: &Register{NodeSpec: me, Name: "n1", Disk: "d1", At: 1}})
	if res.Err != nil || res.Node.Number() != 1 {
		t.Fatalf("%+v", res)
	}
	for uid, want := range map[uint64]Replica{
		here:  {Replica: here * 8, Number: 1, Node: "key", Disk: "d1", Owner: true, Lead: true, Made: true},
		there: {Replica: there * 8, Number: 1, Node: "key", Disk: "d0", Owner: true, Lead: true, Made: true},
		fresh: {Replica: fresh * 8, Number: 1, Node: "key", Disk: "d1", Owner: true, Lead: true},
	} {
		q, _ := s.QueueOf(uid)
		if p := q.Status.Placement; len(p) != 1 || p[0] != want || q.Status.Epoch != 1 {
			t.Errorf("%s: %+v", q.Metadata.Name, q.Status)
		}
	}
	n := &node{s: s, now: 1_000_000}
	n.r = NewReconciler(n, Options{Node: "key", Name: "n1", Disk: "d1"})
	n.r.Load(s)
	n.r.Lead(s)
	n.settle()
	for name, want := range map[string]Phase{"here": Ready, "there": Degraded, "fresh": Ready} {
		if q, _ := s.Queue(name); q.Status.Phase != want {
			t.Errorf("%s: %+v", name, q.Status)
		}
	}
}

// TestOldSnapshot is one that a build with one node has written.
func TestOldSnapshot(t *testing.T) {
	b, err := hex.DecodeString("0105" + // version 1, of entry 5
		"01" + "0161" + "020104" + "02" + "00" + "00" + "02" + "07666c7573686564" + "000000" + "00" + "00" + "80e0a596bb11" +
		"01" + "055265616479" + "00" + "01" + "036b6579" + "026431" + "01" + "00" + // one queue, ready on a disk
		"00")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Restore(b)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := s.Queue("a")
	want := []Replica{{Node: "key", Disk: "d1", Owner: true}}
	if s.Version() != 5 || !slices.Equal(q.Status.Placement, want) {
		t.Errorf("%+v", q)
	}
	res := s.Apply(6, Command{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "key"}, Disk: "d1", At: 1}})
	if q, _ = s.Queue("a"); res.Err != nil || q.Status.Placement[0].Number != 1 || !q.Status.Placement[0].Made {
		t.Errorf("%+v, %+v", res, q.Status)
	}
}
