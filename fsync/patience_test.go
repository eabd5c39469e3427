package fsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
)

// sleepy is a file whose flush takes a millisecond.
type sleepy struct{ fsync.File }

func (s sleepy) Sync() error {
	time.Sleep(time.Millisecond)
	return s.File.Sync()
}

// used is a rig whose Flusher knows how long flushes take.
func used(t *testing.T, n int) (*rig, []*group) {
	t.Helper()
	r := newRig(t, auto())
	list := r.groups(n)
	for _, g := range list {
		g.file = sleepy{g.file}
	}
	r.Start()
	for range 20 {
		for _, g := range list {
			g.request()
			g.until(g.mark)
		}
	}
	return r, list
}

// Once it is known how long flushes take, a stuck file does not hold others for much longer than that.
func TestStuckFileHoldsOthersAsLongAsFlushesTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, list := used(t, 2)
		a, b := list[0], list[1]
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g0"})
		a.request()
		<-gate.Entered()
		began := time.Now()
		b.request()
		b.until(b.mark)
		if waited := time.Since(began); waited > 20*time.Millisecond {
			t.Errorf("b waited %v", waited)
		}
		gate.Open()
		a.until(a.mark)
		r.ok(r.Close())
	})
}

// So it is when all are flushed by one SyncFS, which waits for the stuck file.
func TestStuckSyncFSHoldsOthersAsLongAsItTakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, list := used(t, 6)
		together := func() { // all in one round, behind one of a single file
			hold := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g5"})
			list[5].request()
			<-hold.Entered()
			for _, g := range list {
				g.request()
			}
			hold.Open()
		}
		before := r.Stats().WholeRounds
		for range 20 {
			together()
			for _, g := range list {
				g.until(g.mark)
			}
		}
		if n := r.Stats().WholeRounds - before; n != 20 {
			t.Fatalf("%d rounds of one SyncFS", n)
		}
		all := r.fs.Gate(faultfs.Match{Op: faultfs.OpSyncFS})
		one := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g0"})
		began := time.Now()
		together()
		<-all.Entered()
		for _, g := range list[1:] {
			g.until(g.mark)
		}
		if waited := time.Since(began); waited > 30*time.Millisecond {
			t.Errorf("the others waited %v", waited)
		}
		all.Open()
		one.Open()
		list[0].until(list[0].mark)
		r.ok(r.Close())
	})
}

// A file that is slow again and again is flushed alone, and holds nobody any more.
func TestSlowFileIsFlushedAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, list := used(t, 2)
		a, b := list[0], list[1]
		stuck := func() (waited time.Duration) {
			gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "g0"})
			a.request()
			<-gate.Entered()
			began := time.Now()
			for range 3 {
				b.request()
				b.until(b.mark)
			}
			waited = time.Since(began)
			time.Sleep(50 * time.Millisecond)
			gate.Open()
			a.until(a.mark)
			synctest.Wait()
			return waited
		}
		stuck()
		if n := r.Stats().Late; n != 1 {
			t.Fatalf("%d late targets", n)
		}
		for range 10 {
			if waited := stuck(); waited > 5*time.Millisecond {
				t.Errorf("b waited %v for a file that is known to be slow", waited)
			}
		}
		r.ok(r.Close())
	})
}

// A disk that has a bad moment makes nobody late: who left the round comes back into it.
func TestBadMomentMakesNobodyLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, list := used(t, 3)
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync})
		list[0].request()
		<-gate.Entered()
		list[1].request()
		time.Sleep(15 * time.Millisecond) // the first leaves the round
		synctest.Wait()
		list[2].request()
		time.Sleep(50 * time.Millisecond)
		gate.Open()
		for _, g := range list {
			g.until(g.mark)
		}
		synctest.Wait()
		if s := r.Stats(); s.Late != 0 || s.AloneRounds != 0 {
			t.Errorf("%+v", s)
		}
		r.ok(r.Close())
	})
}
