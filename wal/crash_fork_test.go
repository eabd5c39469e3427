package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

// crashKind is how the machine goes down.
type crashKind int

const (
	killed crashKind = iota
	powerNone
	powerRandom
	powerAll
	crashKinds
)

func (k crashKind) String() string {
	return [...]string{"kill -9", "power cut, nothing kept", "power cut, some kept", "power cut, all kept"}[k]
}

func (k crashKind) crash(fs *memfs.FS, rng *rand.Rand) {
	switch k {
	case killed:
		fs.Kill()
	case powerNone:
		fs.PowerCut(memfs.KeepNone, rng)
	case powerRandom:
		fs.PowerCut(memfs.KeepRandom, rng)
	case powerAll:
		fs.PowerCut(memfs.KeepAll, rng)
	}
}

// recoverAndCheck opens the log on a crashed disk and compares it with the model.
func (w *world) recoverAndCheck(fs fsync.FS, mem *memfs.FS, lo, hi int, seed uint64) (*life, int, error) {
	o := w.o
	o.boot, o.seed = mem.BootID(), seed
	l, err := openLife(fs, o)
	if err != nil {
		return nil, 0, fmt.Errorf("open: %w", err)
	}
	k, err := w.find(l.log, lo, hi)
	if err != nil {
		return nil, 0, err
	}
	if l.event(EventSnapshotPassed) {
		return nil, 0, fmt.Errorf("a snapshot was called damaged that is not: %+v", l.events)
	}
	if f := l.log.Flushed(); f != l.log.Last() {
		return nil, 0, fmt.Errorf("flushed %+v after opening, last %+v", f, l.log.Last())
	}
	return l, k, nil
}

// goOn appends to a recovered log, flushes, cuts the power and opens once more: what was recovered
// and what was added must be there.
func (w *world) goOn(l *life, mem *memfs.FS, k int, seed uint64) error {
	last := l.log.Last()
	term := max(l.log.HardState().Term, last.Term, w.term) + 1
	if err := l.append(oneEntry(last.Index+1, term, 1, 700)); err != nil {
		return fmt.Errorf("append after recovery: %w", err)
	}
	if err := l.flush(); err != nil {
		return fmt.Errorf("flush after recovery: %w", err)
	}
	if want := (Mark{term, last.Index + 1}); l.log.Flushed() != want {
		return fmt.Errorf("flushed %+v after recovery, want %+v", l.log.Flushed(), want)
	}
	mem.PowerCut(memfs.KeepNone, nil)
	o := w.o
	o.boot, o.seed = mem.BootID(), seed
	again, err := openLife(mem, o)
	if err != nil {
		return fmt.Errorf("open after recovery and append: %w", err)
	}
	s := w.state(k).copy()
	ref := segment.BodyRef{Term: term, Seq: 1}
	c := commitOf(ref, 700, false)
	data := segment.AppendData(nil, []segment.Commit{c}, fmt.Appendf(nil, "cmd %d.%d", term, last.Index+1))
	s.entries = append(s.entries[:len(s.entries):len(s.entries)],
		&modelEntry{Mark{term, last.Index + 1}, segment.EntryNormal, data, []segment.Commit{c}})
	if err := w.compare(again.log, &s); err != nil {
		return fmt.Errorf("after recovery, append and power cut: %w", err)
	}
	return w.checkRest(again.log, &s)
}

// suite crashes a running script at forks of its disk.
type suite struct {
	w      *world
	rng    *rand.Rand
	second int // every n-th crash is followed by crashes at every call of recovery; 0: never
	forks  int
	opens  int
	fail   func(error) // called for each failure
	stop   bool
}

// fork is the tap of the script's file system.
func (s *suite) fork(op string, mids []mid) {
	s.crashAll(op, nil)
	for i, m := range mids {
		s.crashAll(fmt.Sprintf("%s, page %d of it", op, i+1), m)
	}
}

func (s *suite) crashAll(op string, m mid) {
	if s.stop {
		return
	}
	s.forks++
	for kind := range crashKinds {
		if m != nil && kind == powerNone {
			continue // the same as before the call
		}
		disk := s.w.mem.Clone()
		if m != nil {
			if err := m(disk); err != nil {
				s.report(op, kind, err)
				return
			}
		}
		if err := s.crashOne(disk, kind); err != nil {
			s.report(op, kind, err)
		}
	}
}

func (s *suite) report(op string, kind crashKind, err error) {
	s.fail(fmt.Errorf("crash before %s (%v): %w", op, kind, err))
}

func (s *suite) crashOne(disk *memfs.FS, kind crashKind) error {
	w := s.w
	lo, hi := w.bounds(kind != killed)
	kind.crash(disk, s.rng)
	seed := s.rng.Uint64()
	var first *memfs.FS
	twice := s.second > 0 && s.rng.IntN(s.second) == 0
	if twice {
		first = disk.Clone()
	}
	s.opens++
	l, k, err := w.recoverAndCheck(w.under(disk), disk, lo, hi, seed)
	if err != nil {
		return err
	}
	if twice {
		if err := s.crashTwice(first, lo, hi, seed); err != nil {
			return err
		}
	}
	if s.rng.IntN(4) == 0 {
		return w.goOn(l, disk, k, seed+1)
	}
	return nil
}

// under puts the world's lies between a process and its disk.
func (w *world) under(disk fsync.FS) fsync.FS {
	if w.lies == nil {
		return disk
	}
	return w.lies(disk)
}

// crashTwice crashes the recovery itself before each of its calls that change the disk.
func (s *suite) crashTwice(disk *memfs.FS, lo, hi int, seed uint64) error {
	w := s.w
	var failed error
	tap := &tapFS{inner: w.under(disk)}
	tap.tap = func(op string, mids []mid) {
		if failed != nil {
			return
		}
		kind := crashKind(s.rng.IntN(int(crashKinds)))
		fork := disk.Clone()
		if len(mids) > 0 && s.rng.IntN(2) == 0 {
			failed = mids[s.rng.IntN(len(mids))](fork)
		}
		kind.crash(fork, s.rng)
		s.opens++
		from := lo
		if kind != killed { // what the first crash left in the cache is lost in the second
			from = min(lo, w.sure)
		}
		if failed == nil {
			_, _, failed = w.recoverAndCheck(w.under(fork), fork, from, hi, seed+2)
		}
		if failed != nil {
			failed = fmt.Errorf("and in recovery before %s (%v): %w", op, kind, failed)
		}
	}
	o := w.o
	o.boot, o.seed = disk.BootID(), seed
	_, err := openLife(tap, o)
	return errors.Join(failed, err)
}

// script is the script of the exhaustive suites: every kind of step, several rolls, trims after each
// kind of snapshot, in an order that makes each recovery rule matter.
const script = "haafaAraHf" + "tacfab" + "lAAJAAJf" + "lafcas" + "JTaaxj" + "vaAfc" + "sTtrafc" + "paabaf" +
	"zaatHfcs" + "TlaiaafaA" + "fcsTJpiatf" + "aczaAafcsTa" +
	"CRafVcBaafcsTDJ" + "aaRCfcVsaBzTaBfTaacsTJ" + "AaafcsTAaafcsTAaf"

func runScript(w *world, steps string) error {
	if err := w.start(); err != nil {
		return err
	}
	for i := range len(steps) {
		if err := w.step(steps[i]); err != nil {
			return fmt.Errorf("step %d (%c): %w", i, steps[i], err)
		}
	}
	return nil
}

var strategies = map[string]fsync.Strategy{"files": fsync.Files, "whole": fsync.Whole, "auto": fsync.Auto}

// TestCrashEverywhere crashes a script before every call that changes the disk and in the middle of
// every write, in every way, with every flush strategy forced; and the recoveries of a part of these
// crashes likewise. WEIDA_FULL=1 crashes every recovery. (D-1, D-2, D-3, W-5, W-6, W-8, W-14)
func TestCrashEverywhere(t *testing.T) {
	hurry(t)
	smallSegments(t, 16<<10)
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			seed := seedOf(t)
			w := newWorld(memfs.New(), lifeOptions{seed: seed, strategy: strategy, segBytes: 16 << 10})
			s := &suite{w: w, rng: newRand(seed + 1), second: secondCrash(), fail: func(err error) { t.Error(err) }}
			w.fs = &tapFS{inner: w.mem, tap: func(op string, mids []mid) {
				s.fork(op, mids)
				if t.Failed() {
					s.stop = true
				}
			}}
			must(t, runScript(w, script))
			s.fork("the end", nil)
			if w.acked < 35 || s.forks < 300 {
				t.Fatalf("only %d states and %d crashes: the script does not do what it should", w.acked, s.forks)
			}
			t.Logf("seed %d: %d states, %d forks, %d recoveries", seed, w.acked, s.forks, s.opens)
		})
	}
}
