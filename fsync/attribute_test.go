package fsync_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
)

func whole() fsync.Options { return fsync.Options{Strategy: fsync.Whole} }

// After an error of SyncFS the file that lost writes is found, its target is poisoned, and the others
// advance on the word of their own files.
func TestErrorIsAttributed(t *testing.T) {
	for _, started := range []bool{false, true} {
		r := newRig(t, whole())
		list := r.groups(4)
		r.ok(r.disk.FailWriteback("/g2"))
		for _, g := range list {
			g.request()
		}
		if started {
			r.Start()
			for _, g := range list {
				for g.Flushed() < 1 && g.Err() == nil {
					<-g.wake
				}
			}
		} else {
			stepAll(r)
		}
		for i, g := range list {
			if i == 2 {
				g.poisoned()
				g.flushed(0)
				continue
			}
			g.healthy()
			g.flushed(1)
			if n := r.calls(faultfs.OpSync, g.name); n != 1 {
				t.Errorf("%s advanced after %d flushes of its own", g.name, n)
			}
		}
		r.ok(r.Flusher.Err())
		if n := r.calls(faultfs.OpSyncFS, ""); n != 1 {
			t.Errorf("SyncFS was asked %d times", n)
		}
		for i, g := range list { // and the next round is an ordinary one
			if i != 2 {
				g.request()
			}
		}
		if started {
			for i, g := range list {
				if i != 2 {
					g.until(2)
				}
			}
			r.ok(r.Close())
		} else {
			stepAll(r)
			list[0].flushed(2)
		}
		r.ok(r.Flusher.Err())
	}
}

// If nobody accounts for the lost writes, nobody may count on his own.
func TestUnclaimedErrorFailsTheNode(t *testing.T) {
	for _, started := range []bool{false, true} {
		r := newRig(t, whole())
		list := r.groups(4)
		r.fs.Fail(faultfs.Match{Op: faultfs.OpSyncFS}, 1, 1, syscall.EIO)
		for _, g := range list {
			g.request()
		}
		if started {
			r.Start()
		} else {
			stepAll(r)
		}
		<-r.Failed()
		if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrUnclaimed) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("the node's error is %v", err)
		}
		for _, g := range list {
			g.healthy() // it is the node's failure, not theirs
			g.request()
		}
		if err := r.Flush("x", list[0].file); !errors.Is(err, fsync.ErrUnclaimed) {
			t.Fatalf("Flush after the failure: %v", err)
		}
		if err := r.Close(); !errors.Is(err, fsync.ErrUnclaimed) {
			t.Fatalf("Close after the failure: %v", err)
		}
		for _, g := range list {
			g.flushed(0)
		}
		if n := r.seen(fsync.EventNodeFailed); n != 1 {
			t.Errorf("%d events of the node's failure", n)
		}
	}
}

// A file that was closed with unflushed bytes and evicted is told by SyncFS only.
func TestLossOfAnEvictedFileFailsTheNode(t *testing.T) {
	r := newRig(t, whole())
	list := r.groups(3)
	lost := r.group("lost")
	r.ok(r.disk.FailWriteback("/lost"))
	lost.write()
	r.ok(lost.file.StartWrite(0, 1))
	r.ok(lost.file.Close())
	r.ok(r.disk.Evict("/lost"))
	lost.Target.Close()
	for _, g := range list {
		g.request()
	}
	stepAll(r)
	if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrUnclaimed) {
		t.Fatalf("the node's error is %v", err)
	}
	list[0].flushed(0)
}

// SyncFS writes everybody's dirty bytes, so it may report what a target outside the round lost.
func TestClaimFromOutsideTheRound(t *testing.T) {
	r := newRig(t, whole())
	list := r.groups(4)
	r.ok(r.disk.FailWriteback("/g3"))
	list[3].write() // dirty, not requested
	for _, g := range list[:3] {
		g.request()
	}
	stepAll(r)
	r.ok(r.Flusher.Err())
	list[3].poisoned()
	<-list[3].wake // its owner is told, though it was in no round
	for _, g := range list[:3] {
		g.flushed(1)
	}
}

func TestClaimOfABulkWriter(t *testing.T) {
	r := newRig(t, whole())
	g := r.group("a")
	f, err := r.fs.Create("/body")
	r.ok(err)
	b := r.NewBulk()
	_, err = f.WriteAt([]byte("x"), 0)
	r.ok(err)
	r.ok(b.Wrote(f, 0, 1))
	r.ok(r.disk.FailWriteback("/body"))
	g.request()
	stepAll(r)
	r.ok(r.Flusher.Err())
	g.flushed(1)
	if err := b.Wrote(f, 1, 1); !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("the writer goes on: %v", err)
	}
	b.Done()
	// The file's own second answer would be nil.
	if err := r.Flush("body", f); !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("the file was flushed: %v", err)
	}
}

// The same failure is reported twice: by the file, then by SyncFS. The second report is explained.
func TestReportOfAKnownFailureIsExplained(t *testing.T) {
	r := newRig(t, fsync.Options{}) // Auto: one file is flushed by itself
	list := r.groups(4)
	r.ok(r.disk.FailWriteback("/g0"))
	list[0].request()
	stepAll(r)
	list[0].poisoned()
	for _, g := range list[1:] {
		g.request()
	}
	stepAll(r) // the first SyncFS after it
	r.ok(r.Flusher.Err())
	for _, g := range list[1:] {
		g.flushed(1)
	}
	// It is explained once. A later report must find another culprit.
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSyncFS}, 1, 1, syscall.EIO)
	for _, g := range list[1:] {
		g.request()
	}
	stepAll(r)
	if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrUnclaimed) {
		t.Fatalf("the node's error is %v", err)
	}
}

// What a poisoned target wrote since is lost too, and is no reason to stop the node: not while its
// file is open, and not when it has been closed. T-30.
func TestPoisonedTargetAccountsForLaterLosses(t *testing.T) {
	for _, closed := range []bool{false, true} {
		r := newRig(t, whole())
		list := r.groups(3)
		round := func(want uint64) {
			t.Helper()
			for _, g := range list[1:] {
				g.request()
			}
			stepAll(r)
			r.ok(r.Flusher.Err())
			list[1].flushed(want)
			list[2].flushed(want)
		}
		r.ok(r.disk.FailWriteback("/g0"))
		list[0].request()
		round(1)
		list[0].poisoned()
		round(2) // nothing is left of the first report
		r.ok(r.disk.FailWriteback("/g0"))
		list[0].write() // before its owner has noticed
		if closed {
			list[0].Target.Close()
			r.ok(list[0].file.Close())
		}
		round(3)
		round(4)
	}
}

func TestReadOnlyFileSystemFailsTheNode(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpSync, faultfs.OpSyncFS} {
		o := fsync.Options{Strategy: fsync.Files}
		if op == faultfs.OpSyncFS {
			o = whole()
		}
		r := newRig(t, o)
		list := r.groups(2)
		r.fs.Fail(faultfs.Match{Op: op}, 1, 1, syscall.EROFS)
		r.ok(r.disk.FailWriteback("/g0")) // no excuse
		for _, g := range list {
			g.request()
		}
		stepAll(r)
		if err := r.Flusher.Err(); !errors.Is(err, fsync.ErrReadOnlyFS) {
			t.Fatalf("%s: the node's error is %v", op, err)
		}
		list[1].flushed(0)
	}
}

// Three targets within ten seconds are the disk's failure; over a longer time they are their own.
func TestSeveralPoisonedTargetsFailTheNode(t *testing.T) {
	for _, pause := range []time.Duration{4 * time.Second, 6 * time.Second} {
		r := newRig(t, fsync.Options{Strategy: fsync.Files})
		list := r.groups(4)
		r.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: "g[012]"}, 1, -1, syscall.EIO)
		for i, g := range list[:3] {
			r.ok(r.Flusher.Err())
			g.request()
			stepAll(r)
			g.poisoned()
			if i < 2 {
				r.clock.add(pause)
			}
		}
		if failed := r.Flusher.Err() != nil; failed != (pause < 5*time.Second) {
			t.Errorf("%v apart: the node's error is %v", pause, r.Flusher.Err())
		}
	}
}

// Bytes that were written but not yet made Dirty when SyncFS reported their loss: the next SyncFS says
// nothing of them, so the file has to speak for itself.
func TestLossBeforeDirtyIsFound(t *testing.T) {
	r := newRig(t, whole())
	list := r.groups(4)
	r.ok(r.disk.FailWriteback("/g0"))
	r.ok(r.disk.FailWriteback("/g1"))
	_, err := list[0].file.WriteAt([]byte{1}, 0)
	r.ok(err)
	for _, g := range list[1:] {
		g.request()
	}
	r.Step() // g1 accounts for the report
	list[1].poisoned()
	list[2].flushed(1)
	list[0].Dirty(list[0].file)
	list[0].Request(1)
	list[2].request()
	r.Step()
	list[0].poisoned()
	list[0].flushed(0)
	list[2].flushed(2)
	n := r.calls(faultfs.OpSync, "/g2")
	list[2].request() // proved once, it rests on SyncFS again
	r.Step()
	list[2].flushed(3)
	if r.calls(faultfs.OpSync, "/g2") != n {
		t.Error("the file is flushed by itself for ever")
	}
	r.ok(r.Flusher.Err())
}

// The file of an earlier round is asked even if nothing of it is Dirty now.
func TestClaimOfBytesNotYetDirty(t *testing.T) {
	r := newRig(t, whole())
	list := r.groups(3)
	list[0].request()
	r.Step()
	list[0].flushed(1)
	r.ok(r.disk.FailWriteback("/g0"))
	_, err := list[0].file.WriteAt([]byte{2}, 0)
	r.ok(err)
	for _, g := range list[1:] {
		g.request()
	}
	r.Step()
	r.ok(r.Flusher.Err())
	list[0].poisoned()
	list[1].flushed(1)
}
