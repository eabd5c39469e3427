package raftstore

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/wal"
)

// Bugs that TestCrash found, as scripts of their own, so that they stay fixed.

func cut(m *kv) bool { return m.group.(*owner).log.Recovered().Cut != nil }

// halfFull is a group whose next segment is about to be made or, if made, is ready.
func halfFull(t *testing.T) (*rig, *kv) {
	r := &rig{t: t, disk: memfs.New(), opts: HostOptions{Shards: 1}, wal: wal.Options{SegmentBytes: 512 << 10}}
	r.boot()
	m := newKV(t, "a")
	r.open(1, m)
	for range 5 {
		m.must(put("k", strings.Repeat("x", 50<<10)))
		r.settle()
	}
	return r, m
}

// After a crash cut the log goes on in the segment that the cut made, not in one that was made ahead of
// it and that the cut has ended: there, flushed entries were lost at the next open.
func TestGoesOnBehindACut(t *testing.T) {
	r, m := halfFull(t)
	m.must(put("k", strings.Repeat("x", 50<<10)))
	r.settle()
	if n := m.group.Status().Store.Segments; n != 2 {
		t.Fatalf("%d segments, want one in use and one ready", n)
	}
	m.must(put("torn", strings.Repeat("y", 50<<10)))
	r.fs.Count(faultfs.OpWrite)
	r.fs.DieDuring(r.fs.Ops()+1, 3)
	r.run()
	r.kill()

	m = newKV(t, "a, cut")
	r.open(1, m)
	if !cut(m) {
		t.Fatal("nothing was cut")
	}
	r.kill() // before the jobs that would seal what was cut

	m = newKV(t, "a, after the cut")
	r.open(1, m)
	m.must(put("kept", "flushed behind the cut"))
	r.settle()
	if m.now().Flushed != m.now().Written {
		t.Fatalf("marks %+v", m.now())
	}
	r.kill()

	m = newKV(t, "a, at last")
	r.open(1, m)
	if m.read("kept") != "flushed behind the cut" {
		t.Fatal("body differs")
	}
	r.stop()
}

// A crash cut makes a segment before unknown files are moved aside, so it must not take the number of
// one whose making was interrupted: the group did not open.
func TestCutBesideAnUnfinishedSegment(t *testing.T) {
	r, m := halfFull(t)
	m.must(put("torn", strings.Repeat("y", 50<<10))) // now it is half full
	r.fs.Fail(faultfs.Match{Op: faultfs.OpAllocate, Path: "00000002.seg"}, 1, -1, faultfs.ErrDied)
	r.run()
	if !slices.Contains(r.disk.Files(), rigDir+"/groups/1/00000002.seg") {
		t.Fatalf("no segment was begun: %v", r.disk.Files())
	}
	disk, both := r.disk, 0
	for seed := range uint64(60) {
		r.disk = disk.Clone()
		r.disk.PowerCut(memfs.KeepRandom, rand.New(rand.NewPCG(seed, 1)))
		begun := slices.Contains(r.disk.Files(), rigDir+"/groups/1/00000002.seg")
		r.boot()
		m := newKV(t, "a again")
		r.open(1, m)
		if begun && cut(m) {
			both++
		}
		tag := m.must(note("goes on"))
		r.settle()
		m.appended(tag)
		r.stop()
	}
	if both == 0 {
		t.Fatal("no run had a torn batch and an unfinished segment")
	}
}
