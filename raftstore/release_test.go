package raftstore

import (
	"slices"
	"testing"
)

// Only what was released before a snapshot's view was taken goes when the snapshot is committed.
func TestReleasesAreCut(t *testing.T) {
	var r releases
	var gone []uint64
	release := func(b BodyRef) { gone = append(gone, uint64(b.Term)*100+b.Seq) }
	add := func(t Term, seqs ...uint64) {
		for _, s := range seqs {
			r.add(BodyRef{Term: t, Seq: s})
		}
	}
	add(1, 1, 2, 3, 7)
	add(2, 8)
	if len(r.runs) != 3 {
		t.Fatalf("%d runs, want 3", len(r.runs))
	}
	r.seal()
	add(2, 9, 10) // behind the view: not part of the run that 2.8 ends
	r.drop(release)
	if want := []uint64{101, 102, 103, 107, 208}; !slices.Equal(gone, want) {
		t.Fatalf("released %v, want %v", gone, want)
	}
	if !r.any() {
		t.Fatal("the rest is lost")
	}
	gone = nil
	r.drop(release) // nothing was sealed
	if len(gone) != 0 {
		t.Fatalf("released %v without a view", gone)
	}
	r.seal()
	add(2, 11)
	r.seal() // the first view's snapshot failed: the next covers more
	r.drop(release)
	if want := []uint64{209, 210, 211}; !slices.Equal(gone, want) || r.any() {
		t.Fatalf("released %v, want %v", gone, want)
	}
}
