package raftstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// groupFiles matches the files of one group.
func groupFiles(g GroupID) string {
	return filepath.Join(rigDir, "groups", fmt.Sprint(uint64(g)), "*")
}

// A full disk refuses what it concerns, says so once, and admission resumes by itself.
func TestDiskFullResumes(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	kept := m.must(put("kept", "before"))
	r.settle()
	m.appended(kept)

	r.disk.SetCapacity(r.disk.Used() + 8<<10)
	body := strings.Repeat("x", segment.InlineMax)
	var full []uint64
	for i := range 20 {
		full = append(full, m.must(put(fmt.Sprint("k", i), body)))
		r.settle()
	}
	last := full[len(full)-1]
	m.refused(last, ErrDiskFull)
	if st := m.group.Status(); !errors.Is(st.ReadOnly, ErrDiskFull) {
		t.Fatalf("status %+v", st)
	}
	if m.read("kept") != "before" {
		t.Fatal("reads must go on")
	}
	before := m.now()

	r.disk.SetCapacity(0)
	tag := m.must(put("after", body))
	r.settle()
	if m.appended(tag) != before.Written+1 {
		t.Fatalf("entry %d after %d", m.answers[tag].index, before.Written)
	}
	if st := m.group.Status(); st.ReadOnly != nil {
		t.Fatalf("status %+v", st)
	}
	if r.told(DiskFull) != 1 || r.told(DiskFullOver) != 1 {
		t.Fatalf("events %+v", r.events)
	}
	m.complete()
	want := m.applied
	r.kill()
	again := newKV(t, "a again")
	r.open(1, again)
	if strings.Join(again.applied, " ") != strings.Join(want, " ") {
		t.Fatalf("applied %q, want %q", again.applied, want)
	}
	r.stop()
}

// The same where the log can't even make its first segment: the job fails, not the append.
func TestDiskFullAtFirstSegment(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	r.settle()
	r.disk.SetCapacity(r.disk.Used())
	first := m.must(note("1"))
	r.settle()
	m.refused(first, ErrDiskFull)
	second := m.must(note("2"))
	r.settle()
	m.refused(second, ErrDiskFull)
	r.disk.SetCapacity(0)
	third := m.must(note("3"))
	r.settle()
	if m.appended(third) != 1 {
		t.Fatal("the first entry has index 1")
	}
	m.complete()
	r.stop()
}

// A failed flush poisons its group alone (T-30): evidence given stands, nothing more is taken, the
// others go on, and the log opens again.
func TestPoisonIsLocal(t *testing.T) {
	r := newRig(t)
	a, b := newKV(t, "a"), newKV(t, "b")
	r.open(1, a)
	r.open(2, b)
	flushed := a.must(put("k", "flushed"))
	b.must(note("x"))
	r.settle()

	r.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: groupFiles(1)}, 1, -1, syscall.EIO)
	written := a.must(put("w", "written"))
	r.run()
	waits := b.must(note("y"))
	r.settle()
	a.appended(flushed)
	a.appended(written)
	if a.now().Written != 2 || a.now().Flushed != 1 || a.now().Applied != 2 {
		t.Fatalf("marks %+v", a.now())
	}
	if !errors.Is(a.halted, ErrReadOnly) || !errors.Is(a.halted, fsync.ErrPoisoned) {
		t.Fatalf("halted with %v", a.halted)
	}
	if st := a.group.Status(); !errors.Is(st.ReadOnly, ErrReadOnly) {
		t.Fatalf("status %+v", st)
	}
	if _, err := a.propose(note("late")); !errors.Is(err, ErrReadOnly) || !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("propose: %v", err)
	}
	if a.read("k") != "flushed" {
		t.Fatal("reads must go on")
	}
	if b.appended(waits); b.now().Flushed != 2 {
		t.Fatalf("the other group's marks %+v", b.now())
	}
	if r.told(GroupReadOnly) != 1 {
		t.Fatalf("events %+v", r.events)
	}
	if r.host.Err() != nil {
		t.Fatalf("the node failed: %v", r.host.Err())
	}
	a.complete()

	if err := r.host.Stop(); err == nil {
		t.Fatal("a poisoned log closes with an error")
	}
	b.complete()
	r.powerCut(memfs.KeepAll, rand.New(rand.NewPCG(1, 1))) // the node starts anew, its cache is gone
	again := newKV(t, "a again")
	r.open(1, again)
	if again.read("k") != "flushed" {
		t.Fatal("flushed data is lost")
	}
	tag := again.must(note("goes on"))
	r.settle()
	again.appended(tag)
	r.stop()
}

// A failed write leaves its own proposals indeterminate and refuses the others.
func TestFailedWriteIsIndeterminate(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("x"))
	r.settle()
	r.fs.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: groupFiles(1)}, 1, -1, syscall.EIO)
	body := strings.Repeat("x", segment.InlineMax)
	var tags []uint64
	for range 6 { // two entries
		tags = append(tags, m.must(put("k", body)))
	}
	r.settle()
	for i, tag := range tags {
		if i >= 3 {
			m.refused(tag, ErrReadOnly)
		} else if a := m.answers[tag]; a.outcome.Kind != Indeterminate || !errors.Is(a.outcome.Err, ErrReadOnly) {
			t.Errorf("proposal %d: %+v", i, a)
		}
	}
	m.complete()
	if m.halted == nil {
		t.Fatal("not halted")
	}
}

// The node's failure is told; it is not a group's affair.
func TestNodeFailureIsSurfaced(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("x"))
	r.settle()
	select {
	case <-r.host.Failed():
		t.Fatal("failed without a fault")
	default:
	}
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSync}, 1, -1, syscall.EROFS)
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSyncFS}, 1, -1, syscall.EROFS)
	m.must(note("y"))
	r.settle()
	<-r.host.Failed()
	if r.host.Err() == nil {
		t.Fatal("no reason")
	}
	if m.now().Flushed != 1 {
		t.Fatalf("marks %+v", m.now())
	}
	if err := r.host.Stop(); err == nil {
		t.Fatal("stopped in order on storage that failed")
	}
	m.complete()
}

// A damaged log is refused with the place of the damage; the other groups open (T-30).
func TestCorruptLogIsLocal(t *testing.T) {
	r := newRig(t)
	a, b := newKV(t, "a"), newKV(t, "b")
	r.open(1, a)
	r.open(2, b)
	a.must(put("k", "a body to be damaged"))
	b.must(put("k", "whole"))
	r.settle()
	r.stop()
	seg := filepath.Join(rigDir, "groups", "1", "00000001.seg")
	if err := r.disk.FlipBit(seg, segment.FirstBatch+300, 3); err != nil {
		t.Fatal(err)
	}
	r.boot()
	_, err := r.host.OpenOwner(1, newKV(t, "a again"), OwnerOptions{})
	if ce, ok := errors.AsType[*segment.CorruptError](err); !ok || ce.Path != seg {
		t.Fatalf("opened with %v", err)
	}
	again := newKV(t, "b again")
	r.open(2, again)
	if again.read("k") != "whole" {
		t.Fatal("body differs")
	}
	r.stop()
}
