package wal

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// steps are drawn from these letters; the more often one stands here, the likelier it is.
const letters = "aaaaaaAAbbllxvvVttRCrrrffffjjJcccssiBDTTThHpz"

// TestCrashRandom runs random scripts over several lives, each ended by a crash at a random call, in
// a random way, now and then again in the middle of recovery or with a full disk before it.
// WEIDA_RUNS sets how many, WEIDA_SEED repeats one run.
func TestCrashRandom(t *testing.T) {
	hurry(t)
	smallSegments(t, 16<<10)
	base, runs := seedOf(t), runsOf(t, 400)
	for i := range runs {
		seed := base*1_000_003 + uint64(i)
		if runs == 1 {
			seed = base
		}
		if trail, err := randomRun(seed, fsync.Auto, nil); err != nil {
			t.Fatalf("WEIDA_SEED=%d WEIDA_RUNS=1: %v\nsteps: %s", seed, err, trail)
		}
	}
}

// randomRun is one run; trail is what was done. A strategy other than Auto is forced.
func randomRun(seed uint64, forced fsync.Strategy, lies func(fsync.FS) fsync.FS) (trail string, err error) {
	var done strings.Builder
	rng := newRand(seed)
	o := lifeOptions{
		seed: seed, segBytes: []int64{16 << 10, 24 << 10, 64 << 10}[rng.IntN(3)],
		strategy: []fsync.Strategy{fsync.Auto, fsync.Files, fsync.Whole}[rng.IntN(3)],
	}
	if forced != fsync.Auto {
		o.strategy = forced
	}
	w := newWorld(memfs.New(), o)
	w.lies = lies
	for range 1 + rng.IntN(4) {
		fault := faultfs.New(w.under(w.mem))
		fault.Count(faultfs.Changes...)
		n := 1 + rng.IntN(1<<(2+rng.IntN(8)))
		switch rng.IntN(3) {
		case 0:
			fault.DieBefore(n)
		case 1:
			fault.DieAfter(n)
		case 2:
			fault.DieDuring(n, 1+rng.IntN(8))
		}
		w.fs = fault
		if err := w.liveUntilDeath(&done, fault); err != nil {
			return done.String(), err
		}
		if err := w.comeBack(&done); err != nil {
			return done.String(), err
		}
	}
	return done.String(), nil
}

// liveUntilDeath runs random steps until the process dies or has lived long enough.
func (w *world) liveUntilDeath(done *strings.Builder, fault *faultfs.FS) error {
	err := w.start()
	for range 1 + w.rng.IntN(60) {
		if err != nil {
			break
		}
		c := letters[w.rng.IntN(len(letters))]
		done.WriteByte(c)
		full := w.rng.IntN(24) == 0 && !strings.ContainsRune("zpT", rune(c))
		if full {
			done.WriteByte('!')
			w.mem.SetCapacity(w.mem.Used() + int64(w.rng.IntN(3))*blockBytes)
		}
		err = w.step(c)
		w.mem.SetCapacity(0)
		if full && errors.Is(err, fsync.ErrDiskFull) && !errors.Is(err, fsync.ErrPoisoned) {
			err = w.log.Advance()
		}
	}
	if err != nil && !fault.Dead() {
		return fmt.Errorf("a step failed although nothing was wrong: %w", err)
	}
	return nil
}

// comeBack crashes the machine, recovers, perhaps crashes in between, and makes what came back the
// model's present.

func (w *world) comeBack(done *strings.Builder) error {
	kind := crashKind(w.rng.IntN(int(crashKinds)))
	lo, hi := w.bounds(kind != killed)
	kind.crash(w.mem, w.rng)
	fmt.Fprintf(done, " [%v", kind)
	for range w.rng.IntN(3) {
		fault := faultfs.New(w.under(w.mem))
		fault.Count(faultfs.Changes...)
		fault.DieDuring(1+w.rng.IntN(40), 1)
		o := w.o
		o.boot, o.seed = w.mem.BootID(), w.rng.Uint64()
		_, err := openLife(fault, o)
		if err != nil && !fault.Dead() {
			return fmt.Errorf("recovery: %w", err)
		}
		again := crashKind(w.rng.IntN(int(crashKinds)))
		fmt.Fprintf(done, ", again %v", again)
		if again != killed && err != nil {
			lo = min(lo, w.sure)
		}
		again.crash(w.mem, w.rng)
	}
	done.WriteString("] ")
	l, k, err := w.recoverAndCheck(w.under(w.mem), w.mem, lo, hi, w.rng.Uint64())
	if err != nil {
		return err
	}
	w.adopt(l, k)
	w.mem.Kill()
	return nil
}

// adopt makes a recovered log the model's present.
func (w *world) adopt(l *life, k int) {
	w.states = append(w.states[:min(k, w.acked)+1], func() []modelState {
		if k > w.acked {
			return []modelState{*w.next}
		}
		return nil
	}()...)
	w.acked, w.sure, w.next, w.doubt = k, k, nil, false
	maps.DeleteFunc(w.born, func(_ Mark, born int) bool { return born > k })
	w.note(k)
	got := l.log.Recovered()
	w.snap, w.snapNext, w.hard, w.hardNext = got.Snapshot, got.Snapshot, got.HardState, got.HardState
	w.term = max(w.term, got.HardState.Term, got.Last.Term)
	w.commit = max(min(w.commit, got.Last.Index), w.snap.Index)
	w.loose = nil
}
