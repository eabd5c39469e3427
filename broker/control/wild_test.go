package control

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// wild is a registry that anybody may say anything to: commands with a fair chance to be taken, by nobody's plan.
type wild struct {
	s, twin *State
	index   uint64
	seen    map[uint64]bool // ids of replicas that were given out
	numbers map[uint64]bool // of nodes that were removed
}

func newWild() *wild {
	w := &wild{s: NewState(), twin: NewState(), index: GenesisIndex, seen: map[uint64]bool{}, numbers: map[uint64]bool{}}
	b, err := Genesis(seeds(3))
	if err != nil {
		panic(err)
	}
	w.apply(b.Command(1))
	return w
}

func (w *wild) apply(c Command) Result {
	w.index++
	back, err := Decode(c.Append(nil))
	if err != nil {
		panic(err)
	}
	w.twin.Apply(w.index, c)
	return w.s.Apply(w.index, back)
}

// step says one thing.
func (w *wild) step(t *rapid.T) Result { return w.apply(w.draw(t)) }

func (w *wild) draw(t *rapid.T) Command {
	name := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "name")
	q := w.s.queues[name]
	kind := KindQueue
	var uid, epoch, gen uint64
	var rows []Replica
	if q != nil {
		uid, epoch, gen, rows = q.Metadata.UID, q.Status.Epoch, q.Metadata.Generation, q.Status.Placement
	}
	if rapid.IntRange(0, 3).Draw(t, "cluster") == 0 {
		kind, uid, epoch, gen, rows = KindCluster, 0, w.s.cluster.Epoch, 0, w.s.cluster.Replicas
	}
	epoch -= min(epoch, drawSmall(t, 9)/9)
	replica := uint64(0)
	if len(rows) > 0 {
		replica = rows[rapid.IntRange(0, len(rows)-1).Draw(t, "replica")].Replica
	}
	switch rapid.SampledFrom([]string{
		"mutate", "mutate", "node", "register", "place", "place", "place", "reached", "reached", "observe", "gone", "gone",
		"lost", "stuck", "remove",
	}).Draw(t, "command") {
	case "node":
		return Command{Mutation: w.node(t)}
	case "register":
		n := drawSmall(t, 5) + 1
		return Command{Register: &Register{
			NodeSpec: NodeSpec{Fingerprint: fmt.Sprintf("f%02d", n)}, Disk: fmt.Sprint("d", n, "-", drawSmall(t, 4)/4),
			Incarnation: drawSmall(t, 2), At: 1, Nonce: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "nonce"),
		}}
	case "place":
		return Command{Place: &Place{kind, uid, gen, epoch, w.spots(t, kind), rapid.Bool().Draw(t, "anew")}}
	case "reached":
		return Command{Reached: &Reached{kind, uid, epoch}}
	case "stuck":
		return Command{Stuck: &Stuck{kind, uid, epoch}}
	case "gone":
		for _, id := range slices.Sorted(maps.Keys(w.s.retired)) {
			r := w.s.retired[id][0]
			return Command{Gone: &Gone{r.Kind, r.UID, r.Replica.Replica}}
		}
		return Command{Gone: &Gone{KindQueue, uid, replica}}
	case "lost":
		return Command{Lost: &Lost{KindQueue, uid, replica, "Poisoned"}}
	case "remove":
		if q == nil || drawSmall(t, 1) == 0 {
			nodes := w.s.Nodes()
			return Command{Remove: &Remove{KindNode, nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "n")].Number(), 0}}
		}
		return Command{Remove: &Remove{KindQueue, q.Metadata.UID, replica}}
	case "observe":
		deleting := q != nil && q.Metadata.DeletionTimestamp != 0
		st := Status{Phase: Ready, ObservedGeneration: gen}
		if deleting {
			st.Phase, st.Destroying = Deleting, drawSmall(t, 1) == 0
		}
		return Command{Observe: &Observe{kind, uid, gen, epoch, st, []uint64{replica}}}
	}
	m := &Mutation{Verb: Apply, Kind: KindQueue, Name: name, At: 1, Queue: &QueueSpec{
		Replicas: rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "replicas"),
	}}
	if drawSmall(t, 4) == 0 {
		m.Verb, m.Queue = Delete, nil
	}
	return Command{Mutation: m}
}

func (w *wild) node(t *rapid.T) *Mutation {
	n := drawSmall(t, 5) + 1
	m := &Mutation{Kind: KindNode, Name: fmt.Sprint("n", n), At: 1}
	m.Verb = rapid.SampledFrom([]Verb{NodeAdd, NodeAdd, NodeDrain, NodeUndrain, NodeRemove}).Draw(t, "verb")
	if m.Verb == NodeAdd {
		m.Node = &NodeSpec{Fingerprint: fmt.Sprintf("f%02d", n)}
	}
	return m
}

func (w *wild) spots(t *rapid.T, k Kind) (list []Spot) {
	var numbers []uint64
	for _, n := range w.s.nodesByNumber() {
		numbers = append(numbers, n.Number())
	}
	for i, n := range rapid.Permutation(numbers).Draw(t, "nodes")[:rapid.IntRange(1, len(numbers)).Draw(t, "many")] {
		list = append(list, Spot{Number: n, Lead: i == 0 && k == KindQueue, Learner: k == KindCluster && i > 2})
	}
	return list
}

// TestRegistryHolds: whatever is said to a registry, in whatever order: ids are given out once, nothing is switched to
// two voters, a node has no two replicas that are to stay, what is destroyed was retired, and a snapshot is all of it.
func TestRegistryHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWild()
		for range rapid.IntRange(1, 80).Draw(t, "commands") {
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				back, err := Restore(w.s.Snapshot())
				if err != nil {
					t.Fatal(err)
				}
				w.s = back
			}
			c := w.draw(t)
			old, epochs := w.rows(), w.epochs()
			res := w.apply(c)
			if string(w.s.Snapshot()) != string(w.twin.Snapshot()) {
				t.Fatal("two with one history differ")
			}
			if res.Err != nil && (res.Changed || res.Err.Message == "") {
				t.Fatalf("%+v", res)
			}
			w.holds(t, c, old, epochs)
		}
	})
}

func (w *wild) rows() map[uint64][]Replica {
	m := map[uint64][]Replica{0: w.s.cluster.Replicas}
	for _, q := range w.s.queues {
		m[q.Metadata.UID] = q.Status.Placement
	}
	return m
}

func (w *wild) epochs() map[uint64]uint64 {
	m := map[uint64]uint64{0: w.s.cluster.Epoch}
	for _, q := range w.s.queues {
		m[q.Metadata.UID] = q.Status.Epoch
	}
	return m
}

func (w *wild) holds(t *rapid.T, c Command, old map[uint64][]Replica, epochs map[uint64]uint64) {
	loads := map[uint64]Load{}
	steps := map[uint64]Step{0: w.s.cluster.Step}
	for _, q := range w.s.queues {
		steps[q.Metadata.UID] = q.Status.Step
		for _, p := range q.Status.Placement {
			l := loads[p.Number]
			l.Replicas++
			if p.Lead || p.Owner {
				l.Leads++
			}
			loads[p.Number] = l
		}
	}
	if fmt.Sprint(loads) != fmt.Sprint(w.s.loads) && len(loads)+len(w.s.loads) > 0 {
		t.Fatalf("loads %v, counted %v", w.s.loads, loads)
	}
	for uid, rows := range w.rows() {
		voters, stay := 0, map[uint64]int{}
		for _, p := range Members(steps[uid], rows) {
			if !p.Learner {
				voters++
			}
			if p.Next != Leaves {
				stay[p.Number]++
			}
		}
		for number, n := range stay {
			if n > 1 {
				t.Fatalf("%d has %d replicas on node %d: %+v", uid, n, number, rows)
			}
		}
		if steps[uid] == Switching && (voters == 2 || voters == 0) {
			t.Fatalf("%d is switched to %d voters", uid, voters)
		}
		for _, p := range rows {
			known := slices.ContainsFunc(old[uid], func(o Replica) bool { return o.Replica == p.Replica })
			if !known && w.seen[p.Replica] {
				t.Fatalf("replica %d is given out again", p.Replica)
			}
			w.seen[p.Replica] = true
		}
		// What goes is retired, or its data is gone, or its disk.
		for _, o := range old[uid] {
			if uid == 0 || slices.ContainsFunc(rows, func(p Replica) bool { return p.Replica == o.Replica }) {
				continue
			}
			n := w.s.nodeOf(o.Number)
			gone := c.Gone != nil && c.Gone.Replica == o.Replica || n == nil || n.Status.Disk != o.Disk
			if !gone && !slices.ContainsFunc(w.s.retired[uid], func(r Retired) bool { return r.Replica.Replica == o.Replica }) {
				t.Fatalf("replica %d of %d is forgotten", o.Replica, uid)
			}
		}
		if e := w.epochs()[uid]; e < epochs[uid] || e > epochs[uid]+1 {
			t.Fatalf("epoch %d after %d", e, epochs[uid])
		}
	}
}
