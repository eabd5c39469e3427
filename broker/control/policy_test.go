package control

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPlacementsAreEven: whatever number of queues of whatever factors on whatever number of nodes, no node has two
// replicas of one, none is without a leader, and a new one goes to nodes that have the fewest.
func TestPlacementsAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 3, 4, 5, 7}).Draw(t, "nodes")
		b, err := Genesis(seeds(n))
		if err != nil {
			t.Fatal(err)
		}
		s := NewState()
		index := uint64(GenesisIndex + 1)
		s.Apply(index, b.Command(1))
		for i := range n {
			index++
			s.Apply(index, Command{Register: &Register{
				NodeSpec: NodeSpec{Fingerprint: fmt.Sprintf("f%02d", i+1)}, Disk: fmt.Sprint("d", i), At: 1,
			}})
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "queues") {
			factor := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "factor")
			m := Mutation{Verb: Create, Kind: KindQueue, Name: fmt.Sprint(i), Queue: &QueueSpec{Replicas: factor}, At: 1}
			s.Prepare(&m, anywhere, nil)
			if (len(m.Want) == factor) != (factor <= n) {
				t.Fatalf("%d replicas on %d nodes: %+v", factor, n, m.Want)
			}
			index++
			q := s.Apply(index, Command{Mutation: &m}).Queue
			if fits, why := s.fits(q); fits != (factor <= n) || fits != (why == nil) {
				t.Fatalf("%+v, %+v", q.Status, why)
			}
			if d := spreadOf(s); d > 1 {
				t.Fatalf("replicas differ by %d: %v", d, s.loads)
			}
		}
		even(t, s, index)
	})
}

// even moves leaderships until balance is content, and asserts that it comes to an end, evenly wherever that can be.
func even(t *rapid.T, s *State, index uint64) {
	r := NewLeaderReconciler(&node{}, Options{})
	for range 1000 {
		out := r.balance(s)
		if out.command == nil {
			hops := s.hops(anywhere)
			for _, x := range s.nodesByNumber() {
				for _, y := range s.nodesByNumber() {
					d := s.LoadOf(x.Number()).Leads - s.LoadOf(y.Number()).Leads
					if hops[hop{x.Number(), y.Number()}] != nil && d > 2 {
						t.Fatalf("content with %v", s.loads)
					}
				}
			}
			return
		}
		index++
		if res := s.Apply(index, *out.command); res.Err != nil || !res.Changed {
			t.Fatalf("%+v", res)
		}
	}
	t.Fatal("leaderships move for ever")
}

// spreadOf is by how many replicas the nodes differ.
func spreadOf(s *State) int {
	var counts []int
	for _, n := range s.nodesByNumber() {
		counts = append(counts, s.LoadOf(n.Number()).Replicas)
	}
	return slices.Max(counts) - slices.Min(counts)
}
