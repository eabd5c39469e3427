package fsync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// journal is a target whose marks can be looked for on the disk: mark m is byte m at position m%perFile
// of file m/perFile. A new file makes the directory dirty too.
type journal struct {
	name   string
	target *fsync.Target
	dir    fsync.Dir
	file   fsync.File
	mark   uint64
	old    []fsync.File
}

const perFile = 4

func (j *journal) path(m uint64) string { return fmt.Sprintf("/%s-%d", j.name, m/perFile) }

// write puts one more mark into the file and asks for it. Errors end the story, not the test.
func (j *journal) write(fs fsync.FS) error {
	m := j.mark + 1
	if j.file == nil || m%perFile == 0 {
		f, err := fs.Create(j.path(m))
		if err != nil {
			return err
		}
		if j.file != nil {
			j.old = append(j.old, j.file)
		}
		j.file = f
		j.target.Dirty(j.dir)
	}
	if _, err := j.file.WriteAt([]byte{byte(m)}, int64(m%perFile)); err != nil {
		return err
	}
	j.mark = m
	j.target.Dirty(j.file)
	j.target.Request(m)
	for len(j.old) > 0 && !j.target.Busy(j.old[0]) {
		if err := j.old[0].Close(); err != nil {
			return err
		}
		j.old = j.old[1:]
	}
	return nil
}

// check looks for every flushed mark on the disk. D-3.
func (j *journal) check(disk *memfs.FS) error {
	for m := uint64(1); m <= j.target.Flushed(); m++ {
		p, err := disk.Bytes(j.path(m))
		if err != nil {
			return fmt.Errorf("mark %d of %d flushed: %w", m, j.target.Flushed(), err)
		}
		if at := int(m % perFile); at >= len(p) || p[at] != byte(m) {
			return fmt.Errorf("mark %d of %d flushed: the file holds %v", m, j.target.Flushed(), p)
		}
	}
	return nil
}

// story is one random history of journals and rounds on a disk, under faults that order arranges.
type story struct {
	disk     *memfs.FS
	fs       *faultfs.FS
	flusher  *fsync.Flusher
	journals []*journal
}

func play(seed uint64, strategy fsync.Strategy, order func(*faultfs.FS)) (*story, error) {
	rng := rand.New(rand.NewPCG(seed, 11))
	s := &story{disk: memfs.New()}
	s.fs = faultfs.New(s.disk)
	s.fs.Count(faultfs.Changes...)
	order(s.fs)
	root, err := s.fs.OpenDir("/")
	if err != nil {
		return nil, err
	}
	s.flusher = fsync.NewFlusher(fsync.Options{Root: root, Strategy: strategy})
	for i := range 4 {
		name := string(rune('a' + i))
		dir, err := s.fs.OpenDir("/")
		if err != nil {
			return nil, err
		}
		s.journals = append(s.journals, &journal{name: name, dir: dir, target: s.flusher.NewTarget(name, nil)})
	}
	for range 40 {
		j := s.journals[rng.IntN(len(s.journals))]
		if j.target.Err() != nil {
			continue
		}
		if err := j.write(s.fs); err != nil && !errors.Is(err, faultfs.ErrDied) {
			return nil, err
		}
		if rng.IntN(4) == 0 {
			s.flusher.Step()
		}
		if s.fs.Dead() {
			break
		}
	}
	if !s.fs.Dead() {
		s.flusher.Step()
	}
	return s, nil
}

func (s *story) check(keep memfs.Keep, rng *rand.Rand) error {
	after := s.disk.Clone()
	after.PowerCut(keep, rng)
	for _, j := range s.journals {
		if err := j.check(after); err != nil {
			return fmt.Errorf("journal %s, kept %d: %w", j.name, keep, err)
		}
	}
	return nil
}

func (s *story) marks() (n uint64) {
	for _, j := range s.journals {
		n += j.target.Flushed()
	}
	return n
}

var strategies = []fsync.Strategy{fsync.Auto, fsync.Files, fsync.Whole}

// The power fails after every operation that changes the disk; no flushed mark is lost.
func TestPowerCutAfterEveryOperation(t *testing.T) {
	base := rand.Uint64()
	t.Logf("base seed %d", base)
	for i := range runs(t, 6) {
		seed := base + uint64(i)
		for _, strategy := range strategies {
			all, err := play(seed, strategy, func(*faultfs.FS) {})
			if err != nil {
				t.Fatal(err)
			}
			if all.marks() == 0 {
				t.Fatalf("seed %d: nothing was flushed", seed)
			}
			for n := 1; n <= all.fs.Ops(); n++ {
				s, err := play(seed, strategy, func(fs *faultfs.FS) { fs.DieAfter(n) })
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(seed, uint64(n)))
				for _, keep := range []memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll} {
					if err := s.check(keep, rng); err != nil {
						t.Fatalf("seed %d, strategy %d, power cut after operation %d: %v", seed, strategy, n, err)
					}
				}
			}
		}
	}
}

// Every flush call fails in turn, once or from then on, and lost write-backs come at any time; no
// flushed mark is lost.
func TestFailureOfEveryFlush(t *testing.T) {
	base := rand.Uint64()
	t.Logf("base seed %d", base)
	poisoned, failed := 0, 0
	for i := range runs(t, 6) {
		seed := base + uint64(i)
		for _, strategy := range strategies {
			for _, op := range []faultfs.Op{faultfs.OpSync, faultfs.OpSyncDir, faultfs.OpSyncFS} {
				for n := 1; n <= 12; n++ {
					for _, count := range []int{1, -1} {
						s, err := play(seed, strategy, func(fs *faultfs.FS) {
							fs.Fail(faultfs.Match{Op: op}, n, count, syscall.EIO)
						})
						if err != nil {
							t.Fatal(err)
						}
						if err := s.check(memfs.KeepNone, nil); err != nil {
							t.Fatalf("seed %d, strategy %d, %s %d fails (%d): %v", seed, strategy, op, n, count, err)
						}
						poisoned += int(s.flusher.Stats().Poisoned)
						if s.flusher.Err() != nil {
							failed++
						}
					}
				}
			}
		}
	}
	if poisoned == 0 || failed == 0 {
		t.Fatalf("%d poisoned targets, %d failed nodes: the faults did not happen", poisoned, failed)
	}
}

// lossy makes write-backs fail at random, whichever call causes them.
func TestLostWriteBacks(t *testing.T) {
	base := rand.Uint64()
	t.Logf("base seed %d", base)
	poisoned := 0
	for i := range runs(t, 300) {
		seed := base + uint64(i)
		for _, strategy := range strategies {
			rng := rand.New(rand.NewPCG(seed, 13))
			s, err := play(seed, strategy, func(*faultfs.FS) {})
			if err != nil {
				t.Fatal(err)
			}
			for range 30 {
				j := s.journals[rng.IntN(len(s.journals))]
				if rng.IntN(8) == 0 {
					if err := s.disk.FailWriteback(j.path(j.mark)); err != nil {
						t.Fatal(err)
					}
				}
				if j.target.Err() == nil {
					if err := j.write(s.fs); err != nil {
						t.Fatal(err)
					}
				}
				if rng.IntN(3) == 0 {
					s.flusher.Step()
				}
			}
			s.flusher.Step()
			if err := s.check(memfs.KeepNone, nil); err != nil {
				t.Fatalf("seed %d, strategy %d: %v", seed, strategy, err)
			}
			if err := s.flusher.Err(); errors.Is(err, fsync.ErrUnclaimed) {
				t.Fatalf("seed %d, strategy %d: every loss had an owner, and yet: %v", seed, strategy, err)
			}
			poisoned += int(s.flusher.Stats().Poisoned)
		}
	}
	if poisoned == 0 {
		t.Fatal("nothing was lost")
	}
}

// Each kind of flush left out loses marks, so the tests above can see it.
func TestSkippedFlushIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name     string
		strategy fsync.Strategy
		skip     func(*faultfs.FS)
	}{
		{"files", fsync.Files, func(fs *faultfs.FS) { fs.IgnoreSync("") }},
		{"one file", fsync.Files, func(fs *faultfs.FS) { fs.IgnoreSync("b-*") }},
		{"directories", fsync.Files, func(fs *faultfs.FS) { fs.IgnoreDirSync("") }},
		{"syncfs", fsync.Whole, func(fs *faultfs.FS) { fs.IgnoreSyncFS() }},
	} {
		s, err := play(1, c.strategy, c.skip)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check(memfs.KeepNone, nil); err == nil {
			t.Errorf("%s: not flushed, and nothing is missing", c.name)
		}
	}
}
