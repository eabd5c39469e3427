package control

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill sets every field of a value to something that is not its zero, so that a field which an encoding
// forgets is found.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(value, n)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1_000_003)
	case reflect.Uint64:
		v.SetUint(uint64(*n) * 1_000_003)
	default:
		panic(v.Kind().String())
	}
}

func filled[T any]() *T {
	var v T
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n)
	return &v
}

// commands is one of each kind, with and without everything.
func commands() []Command {
	observe := filled[Observe]()
	observe.Status.Placement, observe.Status.Founders = nil, nil
	observe.Status.Epoch, observe.Status.Step = 0, Steady
	old := &Observe{Kind: KindQueue, UID: 7, Generation: 1, Status: Status{
		Phase: Ready, Placement: []Replica{{Node: "n", Disk: "d", Owner: true}}, Conditions: []Condition{{"t", "r", "m"}},
	}}
	return []Command{
		{Mutation: filled[Mutation]()},
		{Observe: observe},
		{Remove: filled[Remove]()},
		{Found: filled[Found]()},
		{Register: filled[Register]()},
		{Place: filled[Place]()},
		{Reached: filled[Reached]()},
		{Gone: filled[Gone]()},
		{Lost: filled[Lost]()},
		{Stuck: filled[Stuck]()},
		{Rules: 1, Observe: old},
		{Rules: 1, Remove: &Remove{Kind: KindQueue, UID: 7}},
		{Rules: 1, Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &QueueSpec{Replicas: 3}, At: 1}},
		{Register: &Register{}},
		{Found: &Found{}},
		{Place: &Place{}},
		{Mutation: &Mutation{}},
		{Observe: &Observe{}},
		{Remove: &Remove{}},
		{Mutation: &Mutation{Queue: &QueueSpec{Replicas: -5, DrainDeadline: -1 << 63}, At: -1}},
		{Mutation: &Mutation{Connector: &ConnectorSpec{}}},
	}
}

// TestCommandsSurvive: every field of every command, and no prefix and nothing longer is one.
func TestCommandsSurvive(t *testing.T) {
	for _, c := range commands() {
		b := c.Append([]byte("before"))[len("before"):]
		back, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, back); d != "" {
			t.Error(d)
		}
		for n := range b {
			if _, err := Decode(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are a command", n, len(b))
			}
		}
		if _, err := Decode(append(b, 0)); err == nil {
			t.Error("bytes are left over")
		}
	}
}

// TestCommandBytes fixes the form that is on disk, that of older builds too.
func TestCommandBytes(t *testing.T) {
	drain, version := Duration(1e9), uint64(300)
	apply := &Mutation{Verb: Apply, Kind: KindQueue, Name: "a", At: 8, Expected: &version, Queue: &QueueSpec{
		Replicas: 1, Durability: Flushed, Limits: QueueLimits{Messages: 10, Bytes: 20}, DrainDeadline: Duration(3e11),
	}}
	rest := "05" + "6170706c79" + "055175657565" + "0161" + "10" + "0207666c75736865640a14000000" + "80e0a596bb11" + "ac02"
	for want, c := range map[string]Command{
		"0201" + "05" + rest: {Mutation: apply},
		"0101" + "05" + rest: {Rules: 1, Mutation: apply},
		"0201080664656c65746505517565756501" + "61" + "02" + "80a8d6b907": {
			Mutation: &Mutation{Verb: Delete, Kind: KindQueue, Name: "a", At: 1, Drain: &drain},
		},
		"0102055175657565070101055265616479000101" + "6e" + "0164" + "01" + "00": {
			Rules: 1,
			Observe: &Observe{Kind: KindQueue, UID: 7, Generation: 1, Status: Status{
				ObservedGeneration: 1, Phase: Ready, Placement: []Replica{{Node: "n", Disk: "d", Owner: true}},
			}},
		},
		"0202055175657565070103" + "01055265616479" + "00" + "00" + "0109": {
			Observe: &Observe{Kind: KindQueue, UID: 7, Generation: 1, Epoch: 3, Made: []uint64{9}, Status: Status{
				ObservedGeneration: 1, Phase: Ready,
			}},
		},
		"0103055175657565" + "07":            {Rules: 1, Remove: &Remove{Kind: KindQueue, UID: 7}},
		"0203055175657565" + "0738":          {Remove: &Remove{KindQueue, 7, 56}},
		"020402" + "01" + "016e016602613a00": {Found: &Found{[]Seed{{"n", "f", "a:", ""}}, 1}},
		"0205" + "016602613a00" + "016e" + "0164" + "0302": {
			Register: &Register{NodeSpec: NodeSpec{"f", "a:", ""}, Name: "n", Disk: "d", Incarnation: 3, At: 1},
		},
		"020c" + "016602613a00" + "016e" + "0164" + "0302" + "0178" + "0177": {Register: &Register{
			NodeSpec: NodeSpec{"f", "a:", ""}, Name: "n", Disk: "d", Incarnation: 3, At: 1, Nonce: "x", After: "w",
		}},
		"0206055175657565" + "070102" + "02" + "010001" + "020100": {
			Place: &Place{KindQueue, 7, 1, 2, []Spot{{1, false, true}, {2, true, false}}, false},
		},
		"0207055175657565" + "0702":              {Reached: &Reached{KindQueue, 7, 2}},
		"020a055175657565" + "0702":              {Stuck: &Stuck{KindQueue, 7, 2}},
		"0208055175657565" + "0738":              {Gone: &Gone{KindQueue, 7, 56}},
		"0209" + "0738" + "03426164":             {Lost: &Lost{"", 7, 56, "Bad"}},
		"020d055175657565" + "0738" + "03426164": {Lost: &Lost{KindQueue, 7, 56, "Bad"}},
	} {
		if got := hex.EncodeToString(c.Append(nil)); got != want {
			t.Errorf("%+v\n got %s\nwant %s", c, got, want)
		}
	}
}

// TestStrict: one value has one form.
func TestStrict(t *testing.T) {
	for why, b := range map[string]string{
		"empty":           "",
		"another version": "0303055175657565" + "0700",
		"version nought":  "0003055175657565" + "07",
		"too new for one": "0107055175657565" + "0702",
		"no number":       "01",
		"unknown number":  "020e",
		"no nonce":        "020c" + "016602613a00" + "016e" + "0164" + "0302" + "0000",
		"unknown field":   "02014000000000",
		"a node in one":   "01011000000000" + "000000",
		"long number":     "0103055175657565" + "8700",
		"huge number":     "0103055175657565" + "ffffffffffffffffffff01",
		"huge text":       "0103ffffffff0f",
		"half a yes":      "0102055175657565070101055265616479020000",
		"huge list":       "010205517565756507010105526561647900ffffffff0f00",
		"policy twice":    "010102000000000000" + "00" + "02" + "016b00" + "016b00" + "000000",
	} {
		raw, err := hex.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := Decode(raw); err == nil {
			t.Errorf("%s: %+v", why, c)
		} else if !strings.HasPrefix(err.Error(), "control: command") {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// TestResourcesSurviveJSON: every field, by the names that users write (T-9, T-10).
func TestResourcesSurviveJSON(t *testing.T) {
	for _, v := range []any{filled[Queue](), filled[Connector](), filled[Mutation]()} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(b, back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(v, back); d != "" {
			t.Error(d)
		}
	}
}

// sampled is a registry with a bit of everything: the node is number 1 and entry 20.
func sampled(t testing.TB) *State {
	s := new(State)
	cs := connectorSpec()
	drain := Duration(0)
	for i, c := range []Command{
		{Register: &Register{
			NodeSpec: NodeSpec{"f", "a:1", ""}, Name: "n", Disk: "d", Incarnation: 1, At: 1, Nonce: "x",
		}},
		{Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &QueueSpec{}, At: 1}},
		{Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: "b", At: 2, Queue: &QueueSpec{
			Durability: Written, Limits: QueueLimits{1, 1000, 500}, Placement: PlacementSpec{[]string{"n"}, "n"},
			DrainDeadline: 7,
		}}},
		{Mutation: &Mutation{Verb: Apply, Kind: KindConnector, Name: "a", Connector: &cs, At: 3}},
		{Place: &Place{KindQueue, 22, 1, 0, []Spot{{1, false, true}}, false}},
		{Observe: &Observe{Kind: KindQueue, UID: 22, Generation: 1, Epoch: 1, Status: Status{
			ObservedGeneration: 1, Phase: Ready,
		}}},
		{Mutation: &Mutation{Verb: Delete, Kind: KindQueue, Name: "b", At: 4, Drain: &drain}},
		{Observe: &Observe{Kind: KindQueue, UID: 22, Generation: 1, Epoch: 1, Status: Status{
			ObservedGeneration: 1, Phase: Deleting, Destroying: true,
		}}},
		{Mutation: &Mutation{Verb: Delete, Kind: KindConnector, Name: "a", At: 5}},
		{Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: "z", Queue: &QueueSpec{}, At: 6}},
		{Mutation: &Mutation{Verb: NodeAdd, Kind: KindNode, Name: "m", Node: &NodeSpec{"g", "b:1", ""}, At: 6}},
		{Register: &Register{NodeSpec: NodeSpec{"g", "b:1", ""}, Name: "n", Disk: "e", Incarnation: 1, At: 1}},
		{Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: "y", Queue: &QueueSpec{}, At: 6}},
		{Place: &Place{KindQueue, 32, 1, 0, []Spot{{1, false, true}}, false}},
		{Mutation: &Mutation{Verb: Delete, Kind: KindQueue, Name: "y", At: 6}},
		{Observe: &Observe{Kind: KindQueue, UID: 32, Generation: 1, Epoch: 1, Status: Status{
			Phase: Deleting, Destroying: true,
		}}},
		{Remove: &Remove{KindQueue, 32, 0}}, // which leaves something retired
		{Place: &Place{KindQueue, 29, 1, 0, []Spot{{2, false, true}}, false}},
		{Place: &Place{KindQueue, 29, 1, 0, []Spot{{30, false, true}}, false}},
		{Place: &Place{KindQueue, 29, 1, 1, []Spot{{1, false, true}}, false}},
		{Remove: &Remove{KindQueue, 99, 0}},
	} {
		res := s.Apply(uint64(i+20), c)
		wrong := c.Remove != nil && c.Remove.UID == 99 || c.Place != nil && c.Place.Want[0].Number == 2
		if (res.Err != nil) != wrong {
			t.Fatal(i+20, res.Err)
		}
	}
	if len(s.retired) != 1 || s.queues["z"].Status.Step != Adding {
		t.Fatalf("%+v, %+v", s.retired, s.queues["z"].Status)
	}
	return s
}

// TestSnapshotWithoutNonces: one of version 2 is read, and its nodes have none.
func TestSnapshotWithoutNonces(t *testing.T) {
	s := new(State)
	res := s.Apply(20, Command{Register: &Register{
		NodeSpec: NodeSpec{"f", "a:1", ""}, Name: "n", Disk: "disk", Incarnation: 5, At: 1,
	}})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	b := s.Snapshot()
	at := strings.LastIndex(string(b), "disk\x05\x00") + len("disk\x05")
	old := slices.Delete(slices.Clone(b), at, at+1)
	old[0] = 2
	back, err := Restore(old)
	if err != nil {
		t.Fatal(err)
	}
	if string(back.Snapshot()) != string(b) {
		t.Errorf("%x became %x", old, back.Snapshot())
	}
}

// TestSnapshotSurvives whole, and no prefix and nothing longer is one.
func TestSnapshotSurvives(t *testing.T) {
	for _, s := range []*State{new(State), sampled(t)} {
		b := s.Snapshot()
		back, err := Restore(b)
		if err != nil {
			t.Fatal(err)
		}
		s.history, back.history = history{}, history{}
		if d := cmp.Diff(s, back, cmp.AllowUnexported(State{}, named{}, history{}), emptyIsNil); d != "" {
			t.Error(d)
		}
		for n := range b {
			if _, err := Restore(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are a snapshot", n, len(b))
			}
		}
		if _, err := Restore(append(b, 0)); err == nil {
			t.Error("bytes are left over")
		}
	}
}

var emptyIsNil = cmp.FilterValues(func(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.IsValid() && y.IsValid() && x.Kind() == reflect.Map && y.Kind() == reflect.Map && x.Len() == 0 && y.Len() == 0
}, cmp.Ignore())

// TestRestoreRefuses what no history leads to: nothing is opened, and nothing destroyed, on such a word
// (field cases 4, 5).
func TestRestoreRefuses(t *testing.T) {
	for why, spoil := range map[string]func(s *State, q *Queue){
		"empty name":            func(_ *State, q *Queue) { q.Metadata.Name = "" },
		"bad name":              func(_ *State, q *Queue) { q.Metadata.Name = "a\x00" },
		"order":                 func(_ *State, q *Queue) { q.Metadata.Name = "zz" },
		"twice":                 func(_ *State, q *Queue) { q.Metadata.Name = "z" },
		"no uid":                func(_ *State, q *Queue) { q.Metadata.UID = 0 },
		"uid twice":             func(_ *State, q *Queue) { q.Metadata.UID = 21 },
		"uid of a connector":    func(_ *State, q *Queue) { q.Metadata.UID = 23 },
		"version before uid":    func(_ *State, q *Queue) { q.Metadata.ResourceVersion = 20 },
		"version long before":   func(_ *State, q *Queue) { q.Metadata.UID, q.Metadata.ResourceVersion = 39, 26 },
		"version to come":       func(_ *State, q *Queue) { q.Metadata.ResourceVersion = 99 },
		"log shorter":           func(s *State, _ *Queue) { s.version = 26 },
		"no generation":         func(_ *State, q *Queue) { q.Metadata.Generation, q.Status.ObservedGeneration = 0, 0 },
		"too many generations":  func(_ *State, q *Queue) { q.Metadata.Generation = 7 },
		"observed ahead":        func(_ *State, q *Queue) { q.Status.ObservedGeneration = 2 },
		"never made":            func(_ *State, q *Queue) { q.Metadata.CreationTimestamp = 0 },
		"no deadline":           func(_ *State, q *Queue) { q.Metadata.DrainUntil = 0 },
		"a deadline alone":      func(_ *State, q *Queue) { q.Metadata.DeletionTimestamp = 0; q.Status.Phase = Ready },
		"ends before it begins": func(_ *State, q *Queue) { q.Metadata.DrainUntil = 3 },
		"negative deletion":     func(_ *State, q *Queue) { q.Metadata.DeletionTimestamp = -1 },
		"deleting, and ready":   func(_ *State, q *Queue) { q.Status.Phase = Ready },
		"phase":                 func(_ *State, q *Queue) { q.Status.Phase = "Well" },
		"destroying, not wanted": func(_ *State, q *Queue) {
			q.Metadata.DeletionTimestamp, q.Metadata.DrainUntil, q.Status.Phase = 0, 0, Ready
		},
		"deleting, not wanted": func(_ *State, q *Queue) {
			q.Metadata.DeletionTimestamp, q.Metadata.DrainUntil, q.Status.Destroying = 0, 0, false
		},
		"deleted as it was made": func(_ *State, q *Queue) { q.Metadata.UID = 26; q.Metadata.ResourceVersion = 26 },
		"no replicas":            func(_ *State, q *Queue) { q.Spec.Replicas = 0 },
		"no durability":          func(_ *State, q *Queue) { q.Spec.Durability = "" },
		"no drain deadline":      func(_ *State, q *Queue) { q.Spec.DrainDeadline = 0 },
		"on no node":             func(_ *State, q *Queue) { q.Status.Placement[0].Number = 9 },
		"two owners":             func(_ *State, q *Queue) { q.Status.Placement = slices.Repeat(q.Status.Placement, 2) },
		"unknown step":           func(_ *State, q *Queue) { q.Status.Step = "x" },
		"unknown next":           func(_ *State, q *Queue) { q.Status.Step, q.Status.Placement[0].Next = Switching, "x" },
		"changes at rest":        func(_ *State, q *Queue) { q.Status.Placement[0].Next = Leaves },
		"node's key twice":       func(s *State, _ *Queue) { s.nodes["m"].Spec.Fingerprint = "f" },
		"node's state":           func(s *State, _ *Queue) { s.nodes["m"].Status.State = "x" },
		"node's number":          func(s *State, _ *Queue) { s.nodes["m"].Metadata.UID = 1 },
		"node's name":            func(s *State, _ *Queue) { s.nodes["m"].Metadata.Name = "" },
		"retired nowhere":        func(s *State, _ *Queue) { s.retired[32][0].Replica.Number = 9 },
		"retired nothing":        func(s *State, _ *Queue) { s.retired[32][0].Kind = "x" },
		"cluster nowhere":        func(s *State, _ *Queue) { s.cluster.Replicas[0].Number = 9 },
		"long condition": func(_ *State, q *Queue) {
			q.Status.Conditions = []Condition{{Message: strings.Repeat("x", 2000)}}
		},
	} {
		s := sampled(t)
		spoil(s, s.queues["b"])
		back, err := Restore(s.Snapshot())
		if err == nil || back != nil {
			t.Errorf("%s: taken", why)
		} else if !strings.HasPrefix(err.Error(), "control: snapshot: ") {
			t.Errorf("%s: %v", why, err)
		}
	}
	b := sampled(t).Snapshot()
	b[0]++
	if _, err := Restore(b); err == nil || !strings.Contains(err.Error(), "version 4") {
		t.Error(err)
	}
}

// TestRestoreKeepsWhatIsThere: bounds of today do not throw out what was admitted before.
func TestRestoreKeepsWhatIsThere(t *testing.T) {
	s := sampled(t)
	s.queues["a"].Spec.Replicas = 5
	if back, err := Restore(s.Snapshot()); err != nil || back.queues["a"].Spec.Replicas != 5 {
		t.Error(err)
	}
}

// FuzzDecode: whatever is decoded has these bytes and no others, and can be applied.
func FuzzDecode(f *testing.F) {
	for _, c := range commands() {
		f.Add(c.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		if got := c.Append(nil); string(got) != string(b) {
			t.Errorf("%x becomes %x", b, got)
		}
		s := sampled(t)
		before := string(s.Snapshot())
		res := s.Apply(s.Version()+1, c)
		if back, err := Restore(s.Snapshot()); err != nil || string(back.Snapshot()) != string(s.Snapshot()) {
			t.Errorf("%+v leads to a state that is not restored: %v", c, err)
		}
		s.version--
		if !res.Changed && string(s.Snapshot()) != before {
			t.Errorf("%+v changed something", c)
		}
	})
}

// FuzzRestore: whatever is restored has these bytes and no others, and works.
func FuzzRestore(f *testing.F) {
	f.Add(new(State).Snapshot())
	f.Add(sampled(f).Snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(b)
		if err != nil {
			return
		}
		got := s.Snapshot()
		if b[0] == snapshotVersion && string(got) != string(b) {
			t.Errorf("%x becomes %x", b, got)
		}
		// One of an older build becomes one of this build, and stays that.
		if back, err := Restore(got); err != nil || string(back.Snapshot()) != string(got) {
			t.Errorf("%x becomes %x, which is none: %v", b, got, err)
		}
		if have := len(s.queues) + len(s.connectors) + len(s.nodes); len(s.names) != have {
			t.Errorf("%d ids of %d resources", len(s.names), have)
		}
		r := NewReconciler(&node{s: s}, Options{Node: "f", Disk: "d"})
		r.Load(s)
		r.Lead(s)
		r.Step(1, s)
	})
}

// TestAllocationIsBounded: a few bytes that claim to be much cost little.
func TestAllocationIsBounded(t *testing.T) {
	huge := []byte{snapshotVersion, 9, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}
	list := append([]byte{commandVersion, numberObserve, 0, 1, 1, 1, 1, 0, 0}, 0xff, 0xff, 0xff, 0xff, 0x7f)
	for _, f := range []func(){
		func() { _, _ = Restore(huge) },
		func() { _, _ = Decode(list) },
	} {
		if n := testing.AllocsPerRun(10, f); n > 12 {
			t.Errorf("%v allocations", n)
		}
	}
}
