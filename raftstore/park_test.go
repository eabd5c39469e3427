package raftstore

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
)

// openFiles counts what the process holds open, the locks aside.
func openFiles(r *rig) (n int) {
	for _, c := range r.fs.Trace() {
		switch c.Op {
		case faultfs.OpCreate, faultfs.OpOpen, faultfs.OpOpenDir, faultfs.OpLock:
			n++
		case faultfs.OpClose:
			n--
		}
	}
	return n
}

// Idle groups give their descriptors back and are in no list; a tick costs them nothing, and the next
// proposal finds everything as before.
func TestPark(t *testing.T) {
	r := newRig(t)
	before := openFiles(r)
	var all []*kv
	for g := range GroupID(20) {
		m := newKV(t, fmt.Sprint("g", g+1))
		r.open(g+1, m)
		all = append(all, m)
	}
	for _, m := range all[:15] { // five never get a message
		m.must(put("k", "v"))
	}
	r.settle()
	for range defaultParkTicks + 10 {
		r.host.Tick()
		r.settle()
	}
	for _, s := range r.host.shards {
		if len(s.awake) != 0 || len(s.flushing) != 0 || s.awoken {
			t.Fatalf("shard %d: %d awake, %d flushing", s.id, len(s.awake), len(s.flushing))
		}
	}
	if n := openFiles(r); n != before {
		t.Fatalf("%d files are open, %d before the groups", n, before)
	}
	r.host.Tick()
	if r.host.Step() {
		t.Fatal("a tick is work for parked groups")
	}
	for _, m := range all {
		m.must(put("again", "w"))
	}
	r.settle()
	for i, m := range all {
		if m.read("again") != "w" || i < 15 && m.read("k") != "v" {
			t.Fatal("body differs")
		}
		if m.now().Flushed != m.now().Written {
			t.Fatalf("marks %+v", m.now())
		}
		m.complete()
	}
	for range defaultParkTicks + 10 {
		r.host.Tick()
		r.settle()
	}
	if n := openFiles(r); n != before {
		t.Fatalf("%d files are open after the second park, %d before", n, before)
	}
	r.stop()
}

// A flush that fails while a group is being parked poisons it like any other.
func TestPoisonWhileParking(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("x"))
	r.settle()
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: groupFiles(1)}, 1, -1, syscall.EIO)
	for range defaultParkTicks + 10 {
		r.host.Tick()
		r.settle()
	}
	if !errors.Is(m.halted, fsync.ErrPoisoned) {
		t.Fatalf("halted with %v", m.halted)
	}
	if m.now().Flushed != 1 {
		t.Fatalf("marks %+v", m.now())
	}
}

// A group with work is not parked, however many ticks come.
func TestBusyGroupIsNotParked(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("x"))
	r.run() // written, not flushed
	for range 3 * defaultParkTicks {
		r.host.Tick()
		r.run()
	}
	if len(r.host.shardOf(1).awake) != 1 {
		t.Fatal("parked with a flush outstanding")
	}
	r.settle()
	r.stop()
}

// While a worker closes the log, or does anything else with it, ticks leave it alone.
func TestClosingGroupIsNotParked(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	g := r.open(1, m)
	m.must(note("x"))
	r.settle()
	g.(*owner).beginStop()
	s := r.host.shardOf(1)
	s.round() // hands the closing to a worker, which has not begun
	before := r.fs.Ops()
	for range 3 * defaultParkTicks {
		r.host.Tick()
		s.round()
	}
	if n := r.fs.Ops(); n != before {
		t.Fatalf("%d calls on a log that a worker has", n-before)
	}
	g.Stop()
	m.complete()
	r.stop()
}
