package wal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// faultKind is what goes wrong once.
type faultKind struct {
	name  string
	err   error
	short int // bytes written before the error; -1: the call has no effect
}

var faultKinds = []faultKind{
	{"EIO", syscall.EIO, -1},
	{"ENOSPC", syscall.ENOSPC, -1},
	{"short write and ENOSPC", syscall.ENOSPC, 100},
	{"long short write and ENOSPC", syscall.ENOSPC, 5000},
	{"short write and EIO", syscall.EIO, 100},
}

func (k faultKind) inject(f *faultfs.FS, n int) {
	if k.short < 0 {
		f.Fail(faultfs.Match{}, n, 1, k.err)
		return
	}
	f.ShortWrite(faultfs.Match{}, n, k.short, k.err)
}

// TestFaultEverywhere lets the n-th call of a script fail, for every n, in every way: the script goes
// on where it may, and afterwards a kill and a power cut must bring back what they must
// (field case 56: redpanda 13611, redpanda 7407).
func TestFaultEverywhere(t *testing.T) {
	hurry(t)
	smallSegments(t, 16<<10)
	for _, kind := range faultKinds {
		t.Run(kind.name, func(t *testing.T) {
			seed := seedOf(t)
			calls, err := faultRun(seed, kind, 0, false)
			must(t, err)
			if kind.short >= 0 {
				calls /= 4 // about as many are writes
			}
			stride := 1
			if !full() {
				stride = max(1, calls/40)
			}
			for n := 1 + int(seed)%stride; n <= calls; n += stride {
				_, err := faultRun(seed, kind, n, false)
				must(t, err)
			}
		})
	}
}

// faultRun runs the script with one fault and returns how many calls it made. brief crashes it in two
// ways only.
func faultRun(seed uint64, kind faultKind, n int, brief bool) (calls int, err error) {
	strategy := []fsync.Strategy{fsync.Auto, fsync.Files, fsync.Whole}[n%3]
	w := newWorld(memfs.New(), lifeOptions{seed: seed, strategy: strategy, segBytes: 16 << 10})
	fault := faultfs.New(w.mem)
	if n > 0 {
		kind.inject(fault, n)
	}
	w.fs = fault
	where := func() string {
		for _, c := range fault.Trace() {
			if c.N == n && kind.short < 0 {
				return fmt.Sprintf("seed %d, fault at call %v", seed, c)
			}
		}
		return fmt.Sprintf("seed %d, fault at write %d", seed, n)
	}
	if err := w.runWithFaults(script + "aJfcspz"); err != nil {
		return 0, fmt.Errorf("%s: %w", where(), err)
	}
	crashes := []crashKind{killed, powerRandom, powerNone, powerAll}
	if brief {
		crashes = crashes[:2]
	}
	for _, crash := range crashes {
		if crash == killed && n > 0 && directoryFlush(fault, n) {
			continue // after one has failed, file systems take no more writes until the next mount
		}
		if err := w.crashAfterFault(kind, crash, seed); err != nil {
			return 0, fmt.Errorf("%s, then %v: %w", where(), crash, err)
		}
	}
	return fault.Ops(), nil
}

// directoryFlush reports whether call n was the flush of a directory.
func directoryFlush(fault *faultfs.FS, n int) bool {
	for _, c := range fault.Trace() {
		if c.N == n {
			return c.Op == faultfs.OpSyncDir
		}
	}
	return false
}

// crashAfterFault crashes a copy of the disk and checks what comes back.
func (w *world) crashAfterFault(kind faultKind, crash crashKind, seed uint64) error {
	disk := w.mem.Clone()
	lo, hi := w.bounds(true) // after a failed flush only what was flushed before is sure
	if errors.Is(kind.err, errNoSpace) && w.failure() == nil {
		lo, _ = w.bounds(crash != killed)
	}
	crash.crash(disk, newRand(seed))
	l, k, err := w.recoverAndCheck(disk, disk, lo, hi, seed+9)
	if errors.Is(err, errIO) { // a lost write-back is reported once
		disk.Kill()
		l, k, err = w.recoverAndCheck(disk, disk, lo, hi, seed+9)
	}
	if err != nil {
		return err
	}
	return w.goOn(l, disk, k, seed+10)
}

const (
	errIO      = syscall.EIO
	errNoSpace = syscall.ENOSPC
)

// runWithFaults runs a script whose steps may fail. A log that is poisoned, or a node whose storage
// failed, ends it; after an error at opening or closing the machine starts anew.
func (w *world) runWithFaults(steps string) error {
	if err := w.start(); err != nil {
		if err := w.startAnew(); err != nil {
			return err
		}
	}
	for i := range len(steps) {
		err := w.step(steps[i])
		switch {
		case err == nil:
		case w.log.isClosed():
			if err := w.startAnew(); err != nil {
				return err
			}
		case w.failure() != nil:
			return nil
		}
	}
	return nil
}

// startAnew starts the machine again after an error at opening or closing.
func (w *world) startAnew() error {
	w.mem.PowerCut(memfs.KeepAll, nil)
	l, k, err := w.recoverAndCheck(w.mem, w.mem, w.sure, w.acked, w.o.seed+1000)
	if err != nil {
		return fmt.Errorf("the store does not open again: %w", err)
	}
	w.adopt(l, k)
	w.mem.Kill()
	return w.start()
}

// failure says why the process has to end, nil if it goes on.
func (w *world) failure() error { return errors.Join(w.log.failure(), w.fl.Err()) }

// TestFaultInRecovery lets the n-th call of a recovery fail, for every n, after a kill and after power
// cuts at several places of the script: opening may fail, but whatever it did, the next one brings back
// what must be there.
func TestFaultInRecovery(t *testing.T) {
	hurry(t)
	smallSegments(t, 16<<10)
	seed := seedOf(t)
	places := []int{45}
	if secondCrash() == 1 {
		places = []int{10, 20, 30, 45, 60, len(script)}
	}
	for _, steps := range places {
		w := newWorld(memfs.New(), lifeOptions{seed: seed, segBytes: 16 << 10})
		must(t, runScript(w, script[:steps]))
		for _, crash := range []crashKind{killed, powerRandom, powerAll} {
			for _, kind := range faultKinds[:3] {
				n := 1
				for more := true; more; n++ {
					var err error
					if more, err = w.faultyRecovery(crash, kind, n); err != nil {
						t.Fatalf("seed %d, %d steps, %v, %s at call %d: %v", seed, steps, crash, kind.name, n, err)
					}
				}
				if n < 10 {
					t.Fatalf("only %d calls could fail", n)
				}
			}
		}
	}
}

// faultyRecovery recovers a crashed copy of the disk with a fault at call n, and again without one.
// more is false if there is no such call.
func (w *world) faultyRecovery(crash crashKind, kind faultKind, n int) (more bool, err error) {
	disk := w.mem.Clone()
	lo, hi := w.bounds(crash != killed)
	crash.crash(disk, newRand(w.o.seed))
	fault := faultfs.New(disk)
	kind.inject(fault, n)
	_, _, err = w.recoverAndCheck(fault, disk, lo, hi, w.o.seed+3)
	if err != nil && !errors.Is(err, kind.err) {
		return false, fmt.Errorf("recovery with the fault: %w", err)
	}
	more = err != nil || fault.Ops() >= n
	disk.PowerCut(memfs.KeepAll, nil) // a failed flush may have lost what was not flushed before
	l, k, err := w.recoverAndCheck(disk, disk, min(lo, w.sure), hi, w.o.seed+4)
	if err == nil {
		err = w.goOn(l, disk, k, w.o.seed+5)
	}
	return more && kind.short < 0 || more && n < 40, err
}
