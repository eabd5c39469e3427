package fsync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

func TestMarkWaitsForTheCall(t *testing.T) {
	eachStrategy(t, func(t *testing.T, o fsync.Options, op faultfs.Op) {
		r := newRig(t, o)
		g := r.group("a")
		gate := r.fs.Gate(faultfs.Match{Op: op})
		r.Start()
		g.request()
		<-gate.Entered()
		g.flushed(0)
		if !g.Busy(g.file) {
			t.Fatal("a file in a round is not busy")
		}
		gate.Open()
		g.until(1)
		if g.Busy(g.file) {
			t.Fatal("a flushed file is busy")
		}
		r.ok(r.Close())
	})
}

// What is written while a flush runs belongs to the next one.
func TestSnapshotComesBeforeTheCall(t *testing.T) {
	eachStrategy(t, func(t *testing.T, o fsync.Options, op faultfs.Op) {
		r := newRig(t, o)
		g := r.group("a")
		gate := r.fs.Gate(faultfs.Match{Op: op})
		g.request()
		stepped := make(chan bool)
		go func() { stepped <- r.Step() }()
		<-gate.Entered()
		g.request() // the file is dirty again, at mark 2
		gate.Open()
		if !<-stepped {
			t.Fatal("no round")
		}
		g.flushed(1)
		if !g.Busy(g.file) {
			t.Fatal("the file is free, but has unflushed bytes")
		}
		if !r.Step() {
			t.Fatal("the second request was lost")
		}
		g.flushed(2)
		if r.Step() {
			t.Fatal("a round for nothing")
		}
	})
}

// A second flush of a file that failed once would succeed, and the bytes would still be gone.
func TestFirstFailureIsFinal(t *testing.T) {
	r := newRig(t, fsync.Options{Strategy: fsync.Files})
	a, b := r.group("a"), r.group("b")
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: "a"}, 1, 1, syscall.EIO)
	a.request()
	b.request()
	stepAll(r)
	a.poisoned()
	first := a.Err()
	if fe, ok := errors.AsType[*fsync.Error](first); !ok || fe.Op != "fdatasync" || fe.Path != "/a" {
		t.Errorf("the error does not say which call failed: %v", first)
	}
	if !errors.Is(first, syscall.EIO) {
		t.Errorf("the error hides the system's: %v", first)
	}
	b.flushed(1)
	for range 3 {
		a.request()
		b.request()
		stepAll(r)
	}
	a.flushed(0)
	b.flushed(4)
	if again := a.Err(); again.Error() != first.Error() {
		t.Errorf("the error changed to %v", again)
	}
	if n := r.calls(faultfs.OpSync, "/a"); n != 1 {
		t.Errorf("the file was flushed %d times, the failure included", n)
	}
	if n := r.seen(fsync.EventTargetPoisoned); n != 1 {
		t.Errorf("%d events of one poisoned target", n)
	}
	r.ok(r.Flusher.Err())
}

// A target with several files advances only when all of them are flushed.
func TestEveryFileOfATargetCounts(t *testing.T) {
	for _, broken := range []string{"a", "second", "dir"} {
		r := newRig(t, fsync.Options{Strategy: fsync.Files})
		g := r.group("a")
		second, err := r.fs.Create("/second")
		r.ok(err)
		r.ok(r.fs.Mkdir("/dir"))
		dir, err := r.fs.OpenDir("/dir")
		r.ok(err)
		r.fs.Fail(faultfs.Match{Path: broken, Op: faultfs.OpSync}, 1, 1, syscall.EIO)
		r.fs.Fail(faultfs.Match{Path: broken, Op: faultfs.OpSyncDir}, 1, 1, syscall.EIO)
		g.Dirty(second)
		g.Dirty(dir)
		g.request()
		stepAll(r)
		g.poisoned()
		g.flushed(0)
	}
}

// A file that failed under one target is no better under another one.
func TestFailedFileStaysFailed(t *testing.T) {
	eachStrategy(t, func(t *testing.T, o fsync.Options, _ faultfs.Op) {
		r := newRig(t, o)
		g := r.group("a")
		r.ok(r.disk.FailWriteback("/a"))
		g.request()
		stepAll(r)
		g.poisoned()
		if err := r.Flush("again", g.file); !errors.Is(err, fsync.ErrPoisoned) {
			t.Fatalf("flushed all the same: %v", err)
		}
	})
}

// sharedWaker belongs to several groups, as a shard does.
type sharedWaker struct {
	groups []*group
	wakes  int
	marks  []uint64 // at the last wake
}

func (w *sharedWaker) Wake() {
	w.wakes++
	w.marks = nil
	for _, g := range w.groups {
		w.marks = append(w.marks, g.Flushed())
	}
}

func TestOneWakePerRoundAfterTheMarks(t *testing.T) {
	eachStrategy(t, func(t *testing.T, o fsync.Options, _ faultfs.Op) {
		r := newRig(t, o)
		w := &sharedWaker{groups: r.groups(5)}
		for _, g := range w.groups {
			g.Target = r.NewTarget(g.name, w)
			g.request()
		}
		r.Step()
		if w.wakes != 1 || fmt.Sprint(w.marks) != "[1 1 1 1 1]" {
			t.Fatalf("%d wakes, the last saw %v", w.wakes, w.marks)
		}
		w.groups[3].request()
		r.Step()
		if w.wakes != 2 || fmt.Sprint(w.marks) != "[1 1 1 2 1]" {
			t.Fatalf("%d wakes, the last saw %v", w.wakes, w.marks)
		}
	})
}

func TestPoisonWakes(t *testing.T) {
	eachStrategy(t, func(t *testing.T, o fsync.Options, _ faultfs.Op) {
		r := newRig(t, o)
		g := r.group("a")
		r.ok(r.disk.FailWriteback("/a"))
		r.Start()
		g.request()
		for g.Err() == nil {
			<-g.wake
		}
		g.poisoned()
		g.flushed(0)
		r.ok(r.Close())
	})
}

func TestRequestsBecomeOneRound(t *testing.T) {
	r := newRig(t, fsync.Options{Strategy: fsync.Files})
	g := r.group("a")
	for range 10 {
		g.request()
	}
	if !r.Step() || r.Step() {
		t.Fatal("not one round")
	}
	g.flushed(10)
	if n := r.calls(faultfs.OpSync, ""); n != 1 {
		t.Fatalf("%d calls", n)
	}
	g.Request(10) // nothing dirty: no call, and no harm
	r.Step()
	g.flushed(10)
	if n := r.calls(faultfs.OpSync, ""); n != 1 {
		t.Fatalf("%d calls", n)
	}
}

func TestMarksMustRise(t *testing.T) {
	r := newRig(t, fsync.Options{})
	g := r.group("a")
	g.Request(2)
	defer func() {
		if recover() == nil {
			t.Error("a falling mark was taken")
		}
	}()
	g.Request(1)
}

// failsOnce is a file whose first flush fails without a trace on the file system, as when the device
// refuses to empty its cache.
type failsOnce struct {
	fsync.File
	failed bool
}

func (f *failsOnce) Sync() error {
	if !f.failed {
		f.failed = true
		return syscall.EIO
	}
	return f.File.Sync()
}

// Not even a SyncFS that succeeds makes up for a failed flush.
func TestSyncFSDoesNotHeal(t *testing.T) {
	r := newRig(t, fsync.Options{})
	list := r.groups(4)
	f := &failsOnce{File: list[0].file}
	list[0].file = f
	list[0].request()
	r.Step() // one file: by itself
	list[0].poisoned()
	again := r.NewTarget("again", nil)
	again.Dirty(f)
	again.Request(1)
	for _, g := range list[1:] {
		g.request()
	}
	r.Step()
	if n := r.calls(faultfs.OpSyncFS, ""); n != 1 {
		t.Fatalf("%d SyncFS", n)
	}
	list[1].flushed(1)
	if err := again.Err(); again.Flushed() != 0 || !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("flushed to %d: %v", again.Flushed(), err)
	}
}

func TestFlushSteps(t *testing.T) {
	r := newRig(t, fsync.Options{})
	list := r.groups(8)
	var wg sync.WaitGroup
	for _, g := range list {
		wg.Go(func() {
			g.write()
			if err := r.Flush(g.name, g.file); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r.disk.PowerCut(memfs.KeepNone, nil)
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSync}, 1, 1, syscall.EIO)
	err := r.Flush("x", list[0].file)
	if !errors.Is(err, fsync.ErrPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("flush of a failing file: %v", err)
	}
}

func TestCloseServesWhatCameBefore(t *testing.T) {
	for _, started := range []bool{false, true} {
		r := newRig(t, fsync.Options{Strategy: fsync.Files})
		g := r.group("a")
		if started {
			gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpSync})
			r.Start()
			g.request()
			<-gate.Entered()
			g.request() // waits behind the running round
			gate.Open()
		} else {
			g.request()
		}
		want := g.mark
		r.ok(r.Close())
		g.flushed(want)
		g.healthy()
		g.request()
		if err := g.Err(); !errors.Is(err, fsync.ErrClosed) || errors.Is(err, fsync.ErrPoisoned) {
			t.Fatalf("request after Close: %v", err)
		}
		if err := r.Flush("x", g.file); !errors.Is(err, fsync.ErrClosed) {
			t.Fatalf("Flush after Close: %v", err)
		}
		if n := r.calls(faultfs.OpClose, "/"); n != 1 {
			t.Fatalf("Root was closed %d times", n)
		}
		r.ok(r.Close())
	}
}

func TestClosedTargetIsForgotten(t *testing.T) {
	r := newRig(t, fsync.Options{Strategy: fsync.Whole})
	list := r.groups(3)
	list[0].write() // dirty and never requested
	list[0].Target.Close()
	list[0].Target.Close()
	r.ok(list[0].file.Close())
	list[1].request()
	r.ok(r.disk.FailWriteback("/g1"))
	r.Step() // asks everybody; the closed file must not be asked
	list[1].poisoned()
	r.ok(r.Flusher.Err())
}

// Many owners, many rounds, on real files: no mark is lost, no wake is lost.
func TestStressOnRealFiles(t *testing.T) {
	for _, strategy := range []fsync.Strategy{fsync.Auto, fsync.Files, fsync.Whole} {
		dir := t.TempDir()
		fs := fsync.OS()
		root, err := fs.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		f := fsync.NewFlusher(fsync.Options{Root: root, Strategy: strategy})
		f.Start()
		var wg sync.WaitGroup
		for i := range 8 {
			file, err := fs.Create(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { stressOne(t, f, file, i) })
		}
		wg.Wait()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if s := f.Stats(); s.Marks == 0 || s.Errors != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

func stressOne(t *testing.T, f *fsync.Flusher, file fsync.File, i int) {
	g := &group{wake: make(chan struct{}, 1)}
	target := f.NewTarget(fmt.Sprint(i), g)
	rng := rand.New(rand.NewPCG(uint64(i), 0))
	for mark := uint64(1); mark <= 30; mark++ {
		if _, err := file.WriteAt([]byte{byte(mark)}, int64(mark)); err != nil {
			t.Error(err)
			return
		}
		target.Dirty(file)
		target.Request(mark)
		if rng.IntN(3) > 0 {
			continue
		}
		for target.Flushed() < mark && target.Err() == nil {
			<-g.wake
		}
	}
	for target.Flushed() < 30 && target.Err() == nil {
		<-g.wake
	}
	if err := target.Err(); err != nil {
		t.Error(err)
	}
	if target.Busy(file) {
		t.Error("busy after the last mark")
	}
	target.Close()
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
