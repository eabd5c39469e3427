package fsync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weida/fsync"
	"weida/fsync/memfs"
)

// Owners, rounds, rescues and departures at once, with lost write-backs in between: no wake is lost,
// no flushed mark is lost, and only those who lost something are poisoned.
func TestStressWithLosses(t *testing.T) {
	base := rand.Uint64()
	t.Logf("base seed %d", base)
	for i := range runs(t, 20) {
		// A round is late at once, so that everything that is done about it happens all the time.
		o := fsync.Options{Now: time.Now, LateAfter: time.Microsecond, Workers: 3, FewFiles: 1}
		stressWithLosses(t, base+uint64(i), o)
	}
}

func stressWithLosses(t *testing.T, seed uint64, o fsync.Options) {
	t.Helper()
	r := newRig(t, o)
	list := r.groups(12)
	root, err := r.disk.OpenDir("/")
	r.ok(err)
	r.ok(root.Sync())
	r.Start()
	var wg sync.WaitGroup
	for i, g := range list {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for g.mark < 40 && g.Err() == nil {
				if i < 2 && g.mark == 20 { // two targets are still no broken disk
					r.ok(r.disk.FailWriteback(g.name))
				}
				g.request()
				if rng.IntN(3) > 0 {
					continue
				}
				g.settle()
			}
			g.settle()
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	r.disk.PowerCut(memfs.KeepNone, nil)
	for i, g := range list {
		if i >= 2 {
			g.healthy()
			g.flushed(40)
		} else {
			g.poisoned()
		}
		p, err := r.disk.Bytes(g.name)
		r.ok(err)
		if m := g.Flushed(); m > 0 && (len(p) == 0 || uint64(p[0]) < m) {
			t.Fatalf("seed %d: %s is flushed to %d and holds %v", seed, g.name, m, p)
		}
	}
}

// One round over many dirty files of 256 bytes each, by strategy, beside plain fdatasync.
func BenchmarkRound(b *testing.B) {
	for _, n := range []int{1, 16, 128, 1000} {
		b.Run(fmt.Sprintf("files=%d/plain", n), func(b *testing.B) {
			_, files := benchFiles(b, n)
			for b.Loop() {
				appendAll(b, files)
				for _, f := range files {
					if err := f.Sync(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		for s, name := range map[fsync.Strategy]string{fsync.Auto: "auto", fsync.Files: "files", fsync.Whole: "whole"} {
			b.Run(fmt.Sprintf("files=%d/%s", n, name), func(b *testing.B) { benchRounds(b, n, s) })
		}
	}
}

type benchFile struct {
	fsync.File
	off int64
}

func benchFiles(b *testing.B, n int) (root fsync.Dir, files []*benchFile) {
	b.Helper()
	dir := b.TempDir()
	root, err := fsync.OS().OpenDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		f, err := fsync.OS().Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		files = append(files, &benchFile{File: f})
	}
	if err := errors.Join(root.Sync(), root.SyncFS()); err != nil {
		b.Fatal(err)
	}
	return root, files
}

func appendAll(b *testing.B, files []*benchFile) {
	b.Helper()
	p := make([]byte, 256)
	for _, f := range files {
		if _, err := f.WriteAt(p, f.off); err != nil {
			b.Fatal(err)
		}
		f.off += 256
	}
}

func benchRounds(b *testing.B, n int, s fsync.Strategy) {
	root, files := benchFiles(b, n)
	f := fsync.NewFlusher(fsync.Options{Root: root, Strategy: s})
	g := &group{wake: make(chan struct{}, 1)}
	var targets []*fsync.Target
	for range files {
		targets = append(targets, f.NewTarget("x", g))
	}
	f.Start()
	mark := uint64(0)
	for b.Loop() {
		appendAll(b, files)
		mark++
		for i, t := range targets {
			t.Dirty(files[i])
			t.Request(mark)
		}
		for _, t := range targets {
			for t.Flushed() < mark {
				<-g.wake
			}
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}
