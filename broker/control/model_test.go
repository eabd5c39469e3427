package control

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is the registry as a plain map: what the State has to agree with.
type model struct {
	version uint64
	all     map[string]*modelResource // by kind and name
}

type modelResource struct {
	kind      Kind
	meta      Metadata
	queue     QueueSpec
	connector ConnectorSpec
	status    Status
}

// apply does a command and says whether it changed something, or why it is refused.
func (m *model) apply(index uint64, c Command) (changed bool, why Reason) {
	m.version = index
	if c.Mutation != nil {
		return m.mutate(c.Mutation)
	}
	var kind Kind
	var uid uint64
	if c.Observe != nil {
		kind, uid = c.Observe.Kind, c.Observe.UID
	} else {
		kind, uid = c.Remove.Kind, c.Remove.UID
	}
	for key, x := range m.all {
		if x.meta.UID != uid || x.kind != kind {
			continue
		}
		if c.Observe != nil {
			return m.observe(x, c.Observe)
		}
		if x.meta.DeletionTimestamp == 0 {
			return false, Invalid
		}
		delete(m.all, key)
		return true, ""
	}
	return false, NotFound
}

func (m *model) mutate(c *Mutation) (changed bool, why Reason) {
	key := string(c.Kind) + " " + c.Name
	x := m.all[key]
	if c.Name == "" || c.Queue != nil && (c.Queue.Replicas == 2 || c.Queue.Replicas > 1 && c.Queue.Durability == Written) {
		return false, Invalid
	}
	switch {
	case x == nil && c.Verb == Delete:
		return false, NotFound
	case x != nil && c.Verb == Create:
		return false, Exists
	}
	stands := uint64(0)
	if x != nil {
		stands = x.meta.ResourceVersion
	}
	if c.Expected != nil && *c.Expected != stands {
		return false, Conflict
	}
	switch {
	case c.Verb == Delete:
		return m.delete(x, c), ""
	case x == nil:
		x = &modelResource{kind: c.Kind, meta: Metadata{
			Name: c.Name, UID: m.version, Generation: 1, ResourceVersion: m.version, CreationTimestamp: c.At,
		}}
		x.take(c)
		x.status = Status{Phase: Pending, Conditions: []Condition{{Type: "Placement", Reason: "NotPlaced"}}}
		m.all[key] = x
		return true, ""
	case x.meta.DeletionTimestamp != 0:
		return false, Removing
	}
	before := *x
	x.take(c)
	if reflect.DeepEqual(before, *x) {
		return false, ""
	}
	x.meta.Generation++
	x.meta.ResourceVersion = m.version
	return true, ""
}

// take takes over a spec, with what was left out filled in.
func (x *modelResource) take(c *Mutation) {
	if c.Queue != nil {
		x.queue = *c.Queue
		if x.queue.Replicas == 0 {
			x.queue.Replicas = 1
		}
		if x.queue.Durability == "" {
			x.queue.Durability = "flushed"
		}
		if x.queue.DrainDeadline == 0 {
			x.queue.DrainDeadline = Duration(5 * time.Minute)
		}
	}
	if c.Connector != nil {
		x.connector = *c.Connector
	}
}

func (m *model) delete(x *modelResource, c *Mutation) bool {
	drain := Duration(5 * time.Minute)
	if x.kind == KindQueue {
		drain = x.queue.DrainDeadline
	}
	if c.Drain != nil {
		drain = *c.Drain
	}
	until := c.At + time.Duration(drain).Milliseconds()
	if x.meta.DeletionTimestamp == 0 {
		x.meta.DeletionTimestamp, x.meta.DrainUntil = c.At, until
		x.status.Phase, x.status.Conditions = Deleting, []Condition{{Type: "Removal", Reason: "Draining"}}
		if x.kind == KindConnector {
			x.status.Conditions[0].Reason = "Stopping"
		}
	} else {
		if c.Drain == nil {
			return false
		}
		if until < x.meta.DeletionTimestamp {
			until = x.meta.DeletionTimestamp
		}
		if until >= x.meta.DrainUntil {
			return false
		}
		x.meta.DrainUntil = until
	}
	x.meta.ResourceVersion = m.version
	return true
}

func (m *model) observe(x *modelResource, c *Observe) (changed bool, why Reason) {
	deleting := x.meta.DeletionTimestamp != 0
	st := c.Status
	switch {
	case st.ObservedGeneration > c.Generation, c.Generation > x.meta.Generation:
		return false, Invalid
	case st.ObservedGeneration < x.status.ObservedGeneration:
		return false, Conflict
	case deleting && st.Phase != Deleting:
		return false, Removing
	case !deleting && (st.Phase == Deleting || st.Destroying):
		return false, Invalid
	case x.status.Destroying && !st.Destroying:
		return false, Conflict
	case reflect.DeepEqual(wordless(st), x.status):
		return false, ""
	}
	x.status = wordless(st)
	x.meta.ResourceVersion = m.version
	return true, ""
}

// wordless drops the texts of conditions; the model does not know them.
func wordless(s Status) Status {
	s = s.clone()
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	return s
}

// agree compares every resource.
func (m *model) agree(s *State) string {
	var want, got []modelResource
	for _, x := range m.all {
		want = append(want, *x)
	}
	for _, q := range s.Queues() {
		got = append(got, modelResource{KindQueue, q.Metadata, q.Spec, ConnectorSpec{}, wordless(q.Status)})
	}
	for _, c := range s.Connectors() {
		got = append(got, modelResource{KindConnector, c.Metadata, QueueSpec{}, c.Spec, wordless(c.Status)})
	}
	byUID := func(a, b modelResource) int { return int(a.meta.UID) - int(b.meta.UID) }
	slices.SortFunc(want, byUID)
	slices.SortFunc(got, byUID)
	if s.Version() != m.version {
		return fmt.Sprintf("version %d, want %d", s.Version(), m.version)
	}
	return cmp.Diff(want, got, cmp.AllowUnexported(modelResource{}))
}

// TestModel holds the state to a plain map, through random commands, each of which goes through its bytes,
// with snapshot and restore at random points.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{all: map[string]*modelResource{}}
		s := new(State)
		twin := new(State) // never restored
		index := uint64(0)
		for range rapid.IntRange(1, 80).Draw(t, "commands") {
			index += rapid.Uint64Range(1, 3).Draw(t, "gap")
			c := drawCommand(t, m, index)
			back, err := Decode(c.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			changed, why := m.apply(index, c)
			res := s.Apply(index, back)
			twin.Apply(index, c)
			got := Reason("")
			if res.Err != nil {
				got = res.Err.Reason
			}
			if got != why || res.Changed != changed {
				t.Fatalf("%+v: %q, changed %v; want %q, %v", c, got, res.Changed, why, changed)
			}
			if d := m.agree(s); d != "" {
				t.Fatalf("after %+v: %s", c, d)
			}
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				if s, err = Restore(s.Snapshot()); err != nil {
					t.Fatal(err)
				}
			}
			if string(s.Snapshot()) != string(twin.Snapshot()) {
				t.Fatal("two with one history differ")
			}
		}
	})
}

// drawCommand draws one that has a fair chance to be taken.
func drawCommand(t *rapid.T, m *model, index uint64) Command {
	kind := rapid.SampledFrom([]Kind{KindQueue, KindQueue, KindConnector}).Draw(t, "kind")
	name := rapid.SampledFrom([]string{"a", "a", "b", "c/d", ""}).Draw(t, "name")
	x := m.all[string(kind)+" "+name]
	uid, gen, version := index-1, uint64(1), uint64(0)
	if x != nil {
		uid, gen, version = x.meta.UID, x.meta.Generation, x.meta.ResourceVersion
	}
	verbs := []string{"apply", "apply", "create", "delete", "observe", "observe", "remove"}
	switch rapid.SampledFrom(verbs).Draw(t, "verb") {
	case "observe":
		return Command{Observe: &Observe{Kind: kind, UID: uid, Generation: gen + drawSmall(t, 5)/4, Status: Status{
			ObservedGeneration: max(gen, 1) - min(1, gen)*drawSmall(t, 3)/2,
			Phase:              rapid.SampledFrom([]Phase{Pending, Ready, Degraded, Deleting, Deleting}).Draw(t, "phase"),
			Destroying:         drawSmall(t, 3) == 0,
			Conditions:         rapid.SampledFrom([][]Condition{nil, {{"t", "r", ""}}, {{"t", "s", ""}}}).Draw(t, "conditions"),
		}}}
	case "remove":
		return Command{Remove: &Remove{Kind: kind, UID: uid}}
	case "apply":
		return Command{Mutation: drawSpec(t, Mutation{Verb: Apply, Kind: kind, Name: name}, version)}
	case "create":
		return Command{Mutation: drawSpec(t, Mutation{Verb: Create, Kind: kind, Name: name}, version)}
	}
	d := &Mutation{Verb: Delete, Kind: kind, Name: name}
	drawCommon(t, d, version)
	if rapid.Bool().Draw(t, "drain") {
		v := Duration(rapid.Int64Range(0, 100).Draw(t, "seconds")) * Duration(time.Second)
		d.Drain = &v
	}
	return Command{Mutation: d}
}

func drawSmall(t *rapid.T, n uint64) uint64 { return rapid.Uint64Range(0, n).Draw(t, "small") }

func drawCommon(t *rapid.T, m *Mutation, version uint64) {
	m.At = rapid.Int64Range(1, 200_000).Draw(t, "at")
	switch drawSmall(t, 5) {
	case 0:
		v := version + drawSmall(t, 1)
		m.Expected = &v
	case 1:
		m.Expected = &version
	}
}

func drawSpec(t *rapid.T, m Mutation, version uint64) *Mutation {
	drawCommon(t, &m, version)
	if m.Kind == KindConnector {
		s := connectorSpec()
		s.Queue = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
		m.Connector = &s
		return &m
	}
	s := QueueSpec{
		Replicas:      rapid.SampledFrom([]int{0, 0, 1, 3, 2}).Draw(t, "replicas"),
		Durability:    rapid.SampledFrom([]Durability{"", Flushed, Written}).Draw(t, "durability"),
		DrainDeadline: rapid.SampledFrom([]Duration{0, Duration(5 * time.Minute), Duration(time.Second)}).Draw(t, "drain"),
	}
	s.Limits.Messages = drawSmall(t, 1)
	m.Queue = &s
	return &m
}
