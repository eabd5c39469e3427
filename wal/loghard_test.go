package wal

import (
	"errors"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// TestHardStateJob makes term and vote durable beside another job and the owner's appends.
func TestHardStateJob(t *testing.T) {
	smallSegments(t, 32<<10)
	dir := t.TempDir()
	s := realStore(t, dir)
	s.o.SegmentBytes = 32 << 10
	l, err := s.OpenLog(testGroup)
	must(t, err)
	var hard, job chan error
	var want, done HardState
	for i := segment.Index(1); i <= 600; i++ {
		for l.Append(oneEntry(i, 1, uint64(i), 300)) != nil {
			l.RequestFlush()
			if job = startJob(l, job); job != nil {
				must(t, <-job)
				job = nil
			}
			must(t, l.Advance())
		}
		if hard == nil {
			want = HardState{Term: segment.Term(i), Vote: uint64(i) % 3}
			j := l.HardStateJob(want)
			if j.Kind != JobHardState {
				t.Fatalf("a job of kind %q", j.Kind)
			}
			hard = make(chan error, 1)
			go func(done chan error) { done <- j.Run() }(hard)
		}
		job = startJob(l, job)
		select {
		case err := <-hard:
			must(t, err)
			must(t, l.Advance())
			hard, done = nil, want
		default:
		}
		if got := l.HardState(); got != done && got != want {
			t.Fatalf("hard state %+v, set last %+v, on its way %+v", got, done, want)
		}
	}
	if hard != nil {
		must(t, <-hard)
	}
	if job != nil {
		must(t, <-job)
	}
	must(t, l.Advance())
	if l.HardState() != want {
		t.Fatalf("hard state %+v, want %+v", l.HardState(), want)
	}
	must(t, s.Close())
	l, err = realStore(t, dir).OpenLog(testGroup)
	must(t, err)
	if l.HardState() != want {
		t.Fatalf("hard state %+v after opening, want %+v", l.HardState(), want)
	}
}

// TestHardStateJobFails: a failed flush poisons the log, a full disk does not, and what was not made
// durable is not shown.
func TestHardStateJobFails(t *testing.T) {
	for _, c := range []struct {
		op     faultfs.Op
		err    error
		poison bool
	}{
		{faultfs.OpWrite, syscall.ENOSPC, false},
		{faultfs.OpWrite, syscall.EIO, true},
		{faultfs.OpSync, syscall.EIO, true},
	} {
		fs := faultfs.New(memfs.New())
		l, err := openLife(fs, lifeOptions{seed: 1, strategy: fsync.Files})
		must(t, err)
		must(t, l.log.HardStateJob(HardState{Term: 3, Vote: 1}).Run())
		must(t, l.log.Advance())
		fs.Fail(faultfs.Match{Op: c.op, Path: "*hardstate"}, 1, 1, c.err)
		if err := l.log.HardStateJob(HardState{Term: 4, Vote: 2}).Run(); !errors.Is(err, c.err) {
			t.Fatalf("%v at %v: %v", c.err, c.op, err)
		}
		if err := l.log.Advance(); errors.Is(err, fsync.ErrPoisoned) != c.poison {
			t.Fatalf("%v at %v: %v", c.err, c.op, err)
		}
		if got := l.log.HardState(); got.Term != 3 {
			t.Fatalf("%v at %v: hard state %+v", c.err, c.op, got)
		}
		if c.poison {
			continue
		}
		must(t, l.log.HardStateJob(HardState{Term: 4, Vote: 2}).Run())
		must(t, l.log.Advance())
		must(t, l.store.Close())
	}
}
