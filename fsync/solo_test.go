package fsync_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
)

// A round of one file runs on the loop's own goroutine. When the disk holds that, another goroutine goes
// on, and Close still waits for what was requested before.
func TestCloseWaitsForTheLoopThatWasReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		a, b := r.group("a"), r.group("b")
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "a"})
		r.Start()
		a.request()
		<-gate.Entered()
		b.request()
		b.until(1)
		closed := make(chan error)
		go func() { closed <- r.Close() }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("Close did not wait for a flush that was requested before it: %v", err)
		default:
		}
		gate.Open()
		r.ok(<-closed)
		a.flushed(1)
	})
}

// Two loops are stuck one after the other, the third serves the rest; what the stuck flushes say in the
// end still counts.
func TestReplacedLoopsReportTheirFlushes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := auto()
		o.Strategy = fsync.Files
		r := newRig(t, o)
		a, b, c := r.group("a"), r.group("b"), r.group("c")
		holdA := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "a"})
		holdB := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "b"})
		r.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: "b"}, 1, 1, syscall.EIO)
		r.Start()
		a.request()
		<-holdA.Entered()
		b.request()
		<-holdB.Entered()
		c.request()
		c.until(1)
		for mark := uint64(2); mark < 10; mark++ {
			c.request()
			c.until(mark)
		}
		holdB.Open()
		<-b.wake
		b.poisoned()
		b.flushed(0)
		holdA.Open()
		a.until(1)
		c.request()
		c.until(10)
		r.ok(r.Close())
	})
}

// A flush that hangs on the loop's goroutine ends the node like any other, and Close does not wait.
func TestCloseLeavesAStuckLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		a := r.group("a")
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "a"})
		r.Start()
		a.request()
		<-gate.Entered()
		closed := make(chan error)
		go func() { closed <- r.Close() }()
		if err := <-closed; !errors.Is(err, fsync.ErrStalled) {
			t.Fatalf("Close: %v", err)
		}
		gate.Open()
		synctest.Wait()
		a.flushed(0)
	})
}

// The watcher's one timer runs on from round to round, and each round is looked at in its own time.
func TestEachRoundIsWatchedFromItsBeginning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, auto())
		a, b, c := r.group("a"), r.group("b"), r.group("c")
		r.Start()
		a.request() // sets the timer
		a.until(1)
		time.Sleep(37 * time.Millisecond)
		gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "b"})
		b.request()
		<-gate.Entered()
		began := time.Now()
		c.request()
		c.until(1)
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("c waited %v", waited)
		}
		gate.Open()
		b.until(1)
		time.Sleep(time.Second) // nothing runs: the timer stops
		hold := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: "a"})
		a.request()
		<-hold.Entered()
		began = time.Now()
		c.request()
		c.until(2)
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("c waited %v after a pause", waited)
		}
		hold.Open()
		a.until(2)
		r.ok(r.Close())
	})
}
