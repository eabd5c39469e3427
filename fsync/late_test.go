package fsync_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
)

func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func auto() fsync.Options { return fsync.Options{Now: time.Now} }

// T-30: one group's flush is stuck, the others go on, under the disk's own rules.
func TestStuckFileLeavesTheRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		list := r.groups(6)
		a, b := list[0], list[1]
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g0"})
		r.Start()
		a.request()
		<-gate.Entered()
		began := time.Now()
		b.request()
		b.until(1)
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("b waited %v", waited)
		}
		a.flushed(0)
		a.request() // must not be flushed while the first flush runs
		before := r.calls(faultfs.OpSyncFS, "")
		began = time.Now()
		for _, g := range list[1:] {
			g.request()
		}
		for _, g := range list[1:] {
			g.until(g.mark)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the others waited %v", waited)
		}
		if r.calls(faultfs.OpSyncFS, "") != before {
			t.Error("SyncFS was called, it would wait for the stuck file")
		}
		if n := r.calls(faultfs.OpSync, "/g0"); n != 1 {
			t.Errorf("%d flushes of the stuck file at once", n)
		}
		gate.Open()
		a.until(2)
		for mark := uint64(3); r.Stats().Late > 0; mark++ { // in time again and again
			if mark > 20 {
				t.Fatal("it never came back into the shared rounds")
			}
			a.request()
			a.until(mark)
			synctest.Wait()
		}
		hold := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g1"})
		b.request()
		<-hold.Entered()
		for _, g := range list { // gather behind that round
			g.request()
		}
		hold.Open()
		for _, g := range list {
			g.until(g.mark)
		}
		if r.calls(faultfs.OpSyncFS, "") == before {
			t.Error("no shared round ever since")
		}
		r.ok(r.Close())
	})
}

// A stuck SyncFS holds nobody whose own file is flushed.
func TestStuckSyncFSGetsCompany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		list := r.groups(10)
		all := r.fs.Gate(faultfs.Match{Op: faultfs.OpSyncFS})
		one := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g0"})
		began := time.Now()
		for _, g := range list {
			g.request()
		}
		r.Start()
		<-all.Entered()
		for _, g := range list[1:] {
			for g.Flushed() < 1 {
				time.Sleep(time.Millisecond)
			}
		}
		if waited := time.Since(began); waited > 150*time.Millisecond {
			t.Errorf("the others waited %v", waited)
		}
		for round := range 3 {
			for _, g := range list[1:] {
				g.request()
			}
			for _, g := range list[1:] {
				g.until(uint64(2 + round))
			}
		}
		if waited := time.Since(began); waited > 250*time.Millisecond {
			t.Errorf("the others waited %v", waited)
		}
		list[0].flushed(0)
		all.Open() // proof enough, though its own flush is still stuck
		list[0].until(1)
		one.Open()
		r.ok(r.Close())
	})
}

// The company does not weaken attribution: an error of the stuck SyncFS that nobody accounts for
// fails the node, though all have been flushed by then.
func TestStuckSyncFSMayStillFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		list := r.groups(10)
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSyncFS})
		r.fs.Fail(faultfs.Match{Op: faultfs.OpSyncFS}, 1, 1, errors.New("lost"))
		for _, g := range list {
			g.request()
		}
		r.Start()
		for _, g := range list {
			g.until(1)
		}
		r.ok(r.Flusher.Err())
		gate.Open()
		<-r.Failed()
		if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrUnclaimed) {
			t.Fatalf("the node's error is %v", err)
		}
		if err := r.Close(); err == nil {
			t.Fatal("Close hides the failure")
		}
	})
}

// Many slow targets are a slow disk: they stay together.
func TestSlowDiskSplitsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := auto()
		o.Strategy = fsync.Files
		r := newRig(t, o)
		list := r.groups(7)
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync})
		for _, g := range list[1:] {
			g.request()
		}
		r.Start()
		<-gate.Entered()
		list[0].request() // somebody waits
		time.Sleep(500 * time.Millisecond)
		gate.Open()
		for _, g := range list {
			g.until(1)
		}
		synctest.Wait()
		if s := r.Stats(); s.Late != 0 || s.FilesRounds != 2 {
			t.Errorf("%+v", s)
		}
		r.ok(r.Close())
	})
}

// A flush is reported while it is stuck, once, and ends the node at the limit.
func TestSlowThenStalled(t *testing.T) {
	eachStrategy(t, func(t *testing.T, o fsync.Options, op faultfs.Op) {
		bubble(t, func(t *testing.T) {
			o.Now = time.Now
			r := newRig(t, o)
			g := r.group("a")
			gate := r.fs.Gate(faultfs.Match{Op: op})
			r.Start()
			g.request()
			<-gate.Entered()
			time.Sleep(900 * time.Millisecond)
			synctest.Wait()
			if n := r.seen(fsync.EventFlushSlow); n != 0 {
				t.Fatalf("%d reports after 0.9 s", n)
			}
			time.Sleep(23 * time.Second)
			synctest.Wait()
			if n := r.seen(fsync.EventFlushSlow); n != 1 {
				t.Fatalf("%d reports after 24 s", n)
			}
			e := r.events[0]
			if e.Took < time.Second || op == faultfs.OpSync && (e.Target != "a" || e.Path != "/a") {
				t.Fatalf("%+v", e)
			}
			r.ok(r.Flusher.Err())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrStalled) {
				t.Fatalf("after 26 s: %v", err)
			}
			if err := r.Close(); !errors.Is(err, fsync.ErrStalled) { // without waiting
				t.Fatal(err)
			}
			gate.Open()
			synctest.Wait()
			g.flushed(0) // too late
		})
	})
}

// A flush alone on its goroutine is watched like any other.
func TestLateTargetStalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		a, b := r.group("a"), r.group("b")
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "a"})
		r.Start()
		a.request()
		<-gate.Entered()
		b.request()
		b.until(1)
		<-r.Failed()
		if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrStalled) {
			t.Fatal(err)
		}
		gate.Open()
		if err := r.Close(); err == nil {
			t.Fatal("Close hides the failure")
		}
	})
}

// slowFile is a file whose flush takes a time by the test's clock.
type slowFile struct {
	fsync.File
	clock *clock
	takes time.Duration
	order *[]string
	name  string
}

func (s *slowFile) Sync() error {
	s.clock.add(s.takes)
	*s.order = append(*s.order, s.name)
	return s.File.Sync()
}

// Stepped, a target with a slow history is flushed after the others have been woken.
func TestSteppedLateTargetComesLast(t *testing.T) {
	r := newRig(t, fsync.Options{Strategy: fsync.Files})
	list := r.groups(3)
	var order []string
	slow := &slowFile{list[0].file, r.clock, time.Second, &order, "slow"}
	list[0].file = slow
	for i, g := range list[1:] {
		g.file = &slowFile{g.file, r.clock, 0, &order, []string{"b", "c"}[i]}
	}
	round := func(want ...string) {
		t.Helper()
		order = nil
		for _, g := range list {
			g.request()
		}
		r.Step()
		for i := range want {
			if len(order) != len(want) || order[i] != want[i] {
				t.Fatalf("flushed in the order %q, want %q", order, want)
			}
		}
		for _, g := range list {
			g.flushed(g.mark)
		}
	}
	round("slow", "b", "c")
	round("b", "c", "slow")
	slow.takes = 0
	for range 8 {
		round("b", "c", "slow")
	}
	round("slow", "b", "c")
}
