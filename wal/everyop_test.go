package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// everyOp runs one operation of this package and ends it at every file-system call in every way a
// crash or a fault can, and asks after each whether what stands on the disk is right. The log has a
// suite of its own; this one is for the small files and the store.
type everyOp struct {
	setup func(*bench) error // what is there before, in order and flushed
	act   func(*bench) error // the operation; it says with ack what it has promised so far
	check func(*bench) error // after the restart
	// skew changes the file system under act: to show that a flush carries weight, it is left out.
	skew func(*faultfs.FS)
	// retry says that act may be called again after a full disk, and must then succeed.
	retry bool
}

// bench is one life of a process.
type bench struct {
	fs    fsync.FS
	disk  *memfs.FS
	fl    *fsync.Flusher
	acked int // what act has promised; carried over to the life after the crash
	boot  segment.Boot
}

func (b *bench) ack(n int) { b.acked = max(b.acked, n) }

const benchDir = "/data"

// newBench begins a life on a disk.
func newBench(fs fsync.FS, disk *memfs.FS, s fsync.Strategy) (*bench, error) {
	if err := fsync.MkdirAll(fs, benchDir); err != nil {
		return nil, err
	}
	root, err := fs.OpenDir(benchDir)
	if err != nil {
		return nil, err
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root, Strategy: s})
	return &bench{fs: fs, disk: disk, fl: fl, boot: disk.BootID()}, nil
}

// after is what ends a life.
type after struct {
	name string
	end  func(*memfs.FS)
}

func afters(seed uint64) []after {
	list := []after{
		{"kill", func(m *memfs.FS) { m.Kill() }},
		{"cut/none", func(m *memfs.FS) { m.PowerCut(memfs.KeepNone, nil) }},
		{"cut/all", func(m *memfs.FS) { m.PowerCut(memfs.KeepAll, nil) }},
	}
	for i := range uint64(4) {
		list = append(list, after{fmt.Sprintf("cut/random %d", seed+i), func(m *memfs.FS) {
			m.PowerCut(memfs.KeepRandom, rand.New(rand.NewPCG(seed+i, 1)))
		}})
	}
	return list
}

// run returns the first wrong outcome.
func (e everyOp) run(t *testing.T) error {
	t.Helper()
	for _, s := range []fsync.Strategy{fsync.Files, fsync.Whole} {
		disk := memfs.New()
		b, err := newBench(disk, disk, s)
		if err == nil && e.setup != nil {
			err = e.setup(b)
		}
		if err != nil {
			t.Fatalf("setup: %v", err)
		}
		if e.setup != nil {
			b.disk.Kill()
		}
		ops, err := e.whole(disk.Clone(), s)
		if err != nil {
			return err
		}
		for n := 1; n <= ops; n++ {
			if err := e.crashAt(disk, s, n); err != nil {
				return err
			}
		}
		if err := e.faults(disk, s); err != nil {
			return err
		}
	}
	return nil
}

// live begins a life in which act runs, on a copy of disk.
func (e everyOp) live(disk *memfs.FS, s fsync.Strategy, arm func(*faultfs.FS)) (*bench, *faultfs.FS, error) {
	f := faultfs.New(disk)
	b, err := newBench(f, disk, s)
	if err != nil {
		return nil, nil, err
	}
	counted := faultfs.New(disk)
	counted.Count(faultfs.Changes...)
	if e.skew != nil {
		e.skew(counted)
	}
	arm(counted)
	root, err := counted.OpenDir(benchDir)
	if err != nil {
		return nil, nil, err
	}
	b.fs, b.fl = counted, fsync.NewFlusher(fsync.Options{Root: root, Strategy: s})
	return b, counted, nil
}

// whole runs act to its end, crashes behind it and counts its calls.
func (e everyOp) whole(disk *memfs.FS, s fsync.Strategy) (int, error) {
	b, f, err := e.live(disk, s, func(*faultfs.FS) {})
	if err == nil {
		err = e.act(b)
	}
	if err != nil {
		return 0, fmt.Errorf("act: %w", err)
	}
	ops := f.Ops()
	for _, a := range afters(1) {
		if err := e.judge(b, s, a); err != nil {
			return 0, fmt.Errorf("strategy %d, done, %s: %w", s, a.name, err)
		}
	}
	return ops, nil
}

func (e everyOp) crashAt(disk *memfs.FS, s fsync.Strategy, n int) error {
	for mode, arm := range map[string]func(*faultfs.FS){
		"before": func(f *faultfs.FS) { f.DieBefore(n) },
		"during": func(f *faultfs.FS) { f.DieDuring(n, 1) },
		"after":  func(f *faultfs.FS) { f.DieAfter(n) },
	} {
		b, f, err := e.live(disk.Clone(), s, arm)
		if err != nil {
			return err
		}
		err = e.act(b)
		if err == nil && mode != "after" && f.Dead() {
			return fmt.Errorf("died %s call %d and nobody noticed", mode, n)
		}
		for _, a := range afters(uint64(n) * 10) {
			if err := e.judge(b, s, a); err != nil {
				trace := f.Trace()
				return fmt.Errorf("strategy %d, died %s call %d (%v), %s: %w", s, mode, n, trace[len(trace)-1], a.name, err)
			}
		}
	}
	return nil
}

// judge ends the life of b as a says and begins another to look at the disk. b can be judged again.
func (e everyOp) judge(b *bench, s fsync.Strategy, a after) error {
	disk := b.disk.Clone()
	a.end(disk)
	next, err := newBench(disk, disk, s)
	if err != nil {
		return err
	}
	next.acked = b.acked
	return e.check(next)
}

// faults makes every call fail once, with a full disk and with a broken one.
func (e everyOp) faults(disk *memfs.FS, s fsync.Strategy) error {
	for _, fault := range []error{fsync.ErrDiskFull, errBroken} {
		for n := 1; ; n++ {
			hit := false
			b, f, err := e.live(disk.Clone(), s, func(f *faultfs.FS) { f.Fail(faultfs.Match{}, n+1, 1, fault) })
			if err != nil {
				return err
			}
			err = e.act(b)
			hit = len(f.Trace()) > n
			where := fmt.Sprintf("strategy %d, fault %q at call %d", s, fault, n)
			if hit {
				where += fmt.Sprintf(" (%v)", f.Trace()[n])
			}
			if err != nil && !errors.Is(err, fault) && !errors.Is(err, fsync.ErrPoisoned) {
				return fmt.Errorf("%s: the error hides its cause: %w", where, err)
			}
			if e.retry && errors.Is(err, fsync.ErrDiskFull) && !errors.Is(err, fsync.ErrPoisoned) {
				if err := e.act(b); err != nil {
					return fmt.Errorf("%s: again: %w", where, err)
				}
			}
			for _, a := range afters(uint64(n) * 10) {
				err := e.judge(b, s, a)
				if _, system := errors.AsType[*fsync.Error](err); system && a.name == "kill" {
					// The kernel tells the next process, once, of a write that the last one lost.
					err = e.judge(b, s, after{a.name, func(m *memfs.FS) { a.end(m); e.lookOnce(m, s) }})
				}
				if err != nil {
					return fmt.Errorf("%s, %s: %w", where, a.name, err)
				}
			}
			if !hit {
				break
			}
		}
	}
	return nil
}

// lookOnce is a life that ends where the kernel reports what an earlier one lost.
func (e everyOp) lookOnce(disk *memfs.FS, s fsync.Strategy) {
	if b, err := newBench(disk, disk, s); err == nil && e.check(b) != nil {
		disk.Kill()
	}
}

var errBroken = errors.New("input/output error")

// mustFail asserts that the suite notices what skew leaves out.
func (e everyOp) mustFail(t *testing.T, skew func(*faultfs.FS)) {
	t.Helper()
	e.skew = skew
	err := e.run(t)
	if err == nil {
		t.Fatal("a flush was left out and nothing failed")
	}
	t.Logf("without it: %v", err)
}

// files lists a disk's files below the data directory with their contents.
func snapshotOf(t *testing.T, disk *memfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range disk.Files() {
		b, err := disk.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(b)
	}
	return all
}

// fixedRand is a source of numbers that differ and are the same in every run.
type fixedRand struct{ r *rand.ChaCha8 }

func newFixedRand(seed byte) *fixedRand { return &fixedRand{rand.NewChaCha8([32]byte{seed})} }

func (f *fixedRand) Read(p []byte) (int, error) { return f.r.Read(p) }

func content(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// tidyNames returns the base names in a directory.
func namesIn(t *testing.T, fs fsync.FS, dir string) []string {
	t.Helper()
	list, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}

func under(dir ...string) string { return filepath.Join(append([]string{benchDir}, dir...)...) }

// mustSay asserts that an error names the file and says what to do.
func mustSay(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q is not in the message: %v", p, err)
		}
	}
}
