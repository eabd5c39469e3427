package wal

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weida/segment"
)

// modelSet is a set of refs as a map.
type modelSet map[segment.BodyRef]bool

// sorted returns the refs in order.
func (m modelSet) sorted() []segment.BodyRef { return sortedRefs(m) }

// refBase is where the refs of the tests lie: around a place where the upper half of a sequence changes.
const refBase = 1<<32 - 6

func drawRef(t *rapid.T) segment.BodyRef {
	return segment.BodyRef{
		Term: segment.Term(rapid.IntRange(1, 3).Draw(t, "term")), Seq: refBase + rapid.Uint64Range(0, 12).Draw(t, "seq"),
	}
}

// drawSet makes a set and its model by random steps.
func drawSet(t *rapid.T) (s refSet, want modelSet) {
	want = modelSet{}
	for range rapid.IntRange(0, 60).Draw(t, "steps") {
		r := drawRef(t)
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0:
			s.remove(r)
			delete(want, r)
		case 1:
			s.dropBelow(2)
			maps.DeleteFunc(want, func(r segment.BodyRef, _ bool) bool { return r.Term < 2 })
		default:
			s.add(r)
			want[r] = true
		}
	}
	return s, want
}

// refsOf lists the refs of runs.
func refsOf(runs []refRun) (list []segment.BodyRef) {
	for _, r := range runs {
		for seq := r.from; seq < r.to; seq++ {
			list = append(list, segment.BodyRef{Term: r.term, Seq: seq})
		}
	}
	return list
}

// TestRefSet compares a set of refs with a map.
func TestRefSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, want := drawSet(t)
		for term := segment.Term(1); term <= 3; term++ {
			for seq := range uint64(13) {
				r := segment.BodyRef{Term: term, Seq: refBase + seq}
				if s.has(r) != want[r] {
					t.Fatalf("has(%v) = %v", r, s.has(r))
				}
				hi := segment.BodyRef{Term: term, Seq: r.Seq + 2}
				meets := want[r] || want[segment.BodyRef{Term: term, Seq: r.Seq + 1}] || want[hi]
				if s.meets(r, hi) != meets {
					t.Fatalf("meets(%v, %v) = %v", r, hi, !meets)
				}
				var next []segment.BodyRef
				if got, ok := s.next(r); ok {
					next = append(next, got)
				}
				i, _ := slices.BinarySearchFunc(want.sorted(), r, compareRefs)
				if rest := want.sorted()[i:]; !slices.Equal(next, rest[:min(1, len(rest))]) {
					t.Fatalf("next(%v) = %v, of %v", r, next, rest)
				}
			}
		}
		if s.empty() != (len(want) == 0) {
			t.Fatalf("empty() = %v", s.empty())
		}
		var runs []refRun
		s.each(func(r refRun) bool { runs = append(runs, r); return true })
		if got := refsOf(runs); !slices.Equal(got, want.sorted()) {
			t.Fatalf("the runs hold %v, want %v", got, want.sorted())
		}
		for i := range runs[min(1, len(runs)):] {
			if a, b := runs[i], runs[i+1]; a.term == b.term && a.to == b.from && a.to != 1<<32 {
				t.Fatalf("the runs %v and %v are one", a, b)
			}
		}
		if n := rapid.IntRange(0, 20).Draw(t, "n"); !slices.Equal(s.first(n), want.sorted()[:min(n, len(want))]) {
			t.Fatalf("first(%d) = %v", n, s.first(n))
		}
	})
}

func compareRefs(a, b segment.BodyRef) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

// TestRefSetCommon compares what two sets have in common with two maps.
func TestRefSetCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, wantA := drawSet(t)
		b, wantB := drawSet(t)
		maps.DeleteFunc(wantA, func(r segment.BodyRef, _ bool) bool { return !wantB[r] })
		if got := refsOf(a.common(&b)); !slices.Equal(got, wantA.sorted()) {
			t.Fatalf("in common are %v, want %v", got, wantA.sorted())
		}
	})
}
