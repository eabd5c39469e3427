package wal

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

func stateOf(n int) HardState {
	return HardState{Term: segment.Term(n), Vote: uint64(n)*7 + 1}
}

// firstState makes the file as the making of a group does.
func firstState(b *bench) error {
	f, err := b.fs.Create(under(hardStateName))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(firstHardState(fileGroup), 0)
	return errors.Join(err, f.Sync(), f.Close(), syncDirs(b.fs, benchDir))
}

func mustLoadState(t *testing.T, fs fsync.FS) *hardStateFile {
	t.Helper()
	h, err := loadHardState(fs, benchDir, fileGroup)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// benchState is a disk whose hard state has been set n times.
func benchState(t *testing.T, n int) *bench {
	t.Helper()
	b := newDisk(t)
	if err := firstState(b); err != nil {
		t.Fatal(err)
	}
	h := mustLoadState(t, b.fs)
	for i := 1; i <= n; i++ {
		if err := h.Set(b.fs, b.fl, stateOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestHardStateRoundTrip(t *testing.T) {
	b := newDisk(t)
	if _, err := loadHardState(b.fs, benchDir, fileGroup); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatalf("absent: %v", err)
	}
	for n := range 5 {
		b := benchState(t, n)
		h := mustLoadState(t, b.fs)
		want := stateOf(n)
		if n == 0 {
			want = HardState{}
		}
		if h.State() != want || h.repaired {
			t.Fatalf("set %d times: %+v, repaired %v", n, h.State(), h.repaired)
		}
		if _, err := loadHardState(b.fs, benchDir, fileGroup+1); !isCorrupt(err) {
			t.Fatalf("another group's hard state was taken: %v", err)
		}
	}
}

// setStates sets the hard state four times.
func setStates() everyOp {
	return everyOp{
		setup: firstState,
		retry: true,
		act: func(b *bench) error {
			h, err := loadHardState(b.fs, benchDir, fileGroup)
			if err != nil {
				return err
			}
			for n := b.acked + 1; n <= 4; n++ {
				if err := h.Set(b.fs, b.fl, stateOf(n)); err != nil {
					if !harmless(err) && !errors.Is(h.Set(b.fs, b.fl, stateOf(n)), errors.Unwrap(err)) {
						return fmt.Errorf("set again after %w", err)
					}
					return err
				}
				b.ack(n)
			}
			return nil
		},
		check: func(b *bench) error {
			h, err := loadHardState(b.fs, benchDir, fileGroup)
			if err != nil {
				return err
			}
			n := int(h.State().Term)
			if n < b.acked || n > b.acked+1 || n > 0 && h.State() != stateOf(n) {
				return fmt.Errorf("state %+v after version %d was flushed", h.State(), b.acked)
			}
			if h.repaired {
				if err := h.repair(b.fs, b.fl); err != nil {
					return err
				}
				if again, err := loadHardState(b.fs, benchDir, fileGroup); err != nil || again.repaired ||
					again.State() != h.State() {
					return fmt.Errorf("after the repair: %+v, %w", again, err)
				}
			}
			return h.Set(b.fs, b.fl, stateOf(9))
		},
	}
}

func TestHardStateCrashAndFaultAtEveryCall(t *testing.T) {
	if err := setStates().run(t); err != nil {
		t.Fatal(err)
	}
}

func TestHardStateNeedsItsFlush(t *testing.T) {
	setStates().mustFail(t, func(f *faultfs.FS) { f.IgnoreSync(hardStateName); f.IgnoreSyncFS() })
}

// TestHardStateOneBit flips a bit in every byte, with the newest version in either slot.
func TestHardStateOneBit(t *testing.T) {
	for _, sets := range []int{3, 4} {
		b := benchState(t, sets)
		path := under(hardStateName)
		for off := range int64(hardStateBytes) {
			flip(t, b.disk, path, off)
			h, err := loadHardState(b.fs, benchDir, fileGroup)
			if err != nil || !h.repaired || h.State() != stateOf(sets) {
				t.Fatalf("byte %d: %+v, %v", off, h, err)
			}
			flip(t, b.disk, path, off)
		}
		flip(t, b.disk, path, 100) // behind the record
		h := mustLoadState(t, b.fs)
		if err := h.repair(b.fs, b.fl); err != nil {
			t.Fatal(err)
		}
		if again := mustLoadState(t, b.fs); again.repaired || again.State() != stateOf(sets) {
			t.Fatalf("after the repair: %+v", again)
		}
	}
}

// slotOf returns the positions of the copies of the slot that holds the version set n times ago.
func slotOf(sets, ago int) [2]int64 {
	pos := slotPos(uint64(1 + sets - ago))
	return [2]int64{pos, pos + blockBytes}
}

// TestHardStateNewestSlotRotten: both copies of the newest version are damaged, the older one is whole.
// Going back could give a vote twice.
func TestHardStateNewestSlotRotten(t *testing.T) {
	for off := range int64(segment.HeaderSize + hardStateLen) {
		b := benchState(t, 4)
		for _, pos := range slotOf(4, 0) {
			flip(t, b.disk, under(hardStateName), pos+off)
		}
		if h, err := loadHardState(b.fs, benchDir, fileGroup); !isCorrupt(err) {
			t.Fatalf("byte %d: %+v, %v", off, h, err)
		}
	}
	b := benchState(t, 4)
	if err := b.disk.Corrupt(under(hardStateName), slotOf(4, 0)[0], slotBytes, func(p []byte) { clear(p) }); err != nil {
		t.Fatal(err)
	}
	_, err := loadHardState(b.fs, benchDir, fileGroup)
	if !isCorrupt(err) {
		t.Fatalf("zeros: %v", err)
	}
	mustSay(t, err, under(hardStateName), "at byte 8192", "restore the whole directory")
}

// TestHardStateTornSlot: both copies were being written when the power went, and the disk tore them at
// any byte. The version before stands.
func TestHardStateTornSlot(t *testing.T) {
	b := benchState(t, 4)
	path := under(hardStateName)
	whole, err := b.disk.Bytes(path)
	if err != nil {
		t.Fatal(err)
	}
	next := appendSlot(nil, fileGroup, 6, stateOf(5))
	at := slotPos(6)
	const last = segment.HeaderSize + hardStateLen
	for cut := 1; cut < last; cut++ {
		for _, endFirst := range []bool{false, true} {
			err := b.disk.Corrupt(path, at, slotBytes, func(p []byte) {
				copy(p, whole[at:at+slotBytes])
				for _, c := range []int{0, blockBytes} {
					if endFirst {
						copy(p[c+cut:c+blockBytes], next[c+cut:])
					} else {
						copy(p[c:c+cut], next[c:])
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			h, err := loadHardState(b.fs, benchDir, fileGroup)
			if err != nil {
				// A splice that shows no trace of one version at its end is not told from rot.
				if seq := segment.HeaderSize; cut > seq && cut <= last-8 {
					t.Fatalf("cut at %d, end first %v: %v", cut, endFirst, err)
				}
				continue
			}
			if n := h.State(); n != stateOf(4) && n != stateOf(5) || n == stateOf(5) && !endFirst && cut <= last-8 {
				t.Fatalf("cut at %d, end first %v: %+v", cut, endFirst, h.State())
			}
		}
	}
}

// TestHardStateLostWrite: a slot shows an older version than it must.
func TestHardStateLostWrite(t *testing.T) {
	b := benchState(t, 3)
	path := under(hardStateName)
	old, err := b.disk.Bytes(path)
	if err != nil {
		t.Fatal(err)
	}
	h := mustLoadState(t, b.fs)
	for n := 4; n <= 7; n++ {
		if err := h.Set(b.fs, b.fl, stateOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	at := slotOf(7, 0)[0]
	if err := b.disk.Corrupt(path, at, slotBytes, func(p []byte) { copy(p, old[at:]) }); err != nil {
		t.Fatal(err)
	}
	if h, err := loadHardState(b.fs, benchDir, fileGroup); !isCorrupt(err) {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestHardStateOtherVersion(t *testing.T) {
	for _, blocks := range [][]int64{{0, 1, 2, 3}, {2, 3}, {3}} {
		b := benchState(t, 4)
		for _, n := range blocks {
			otherVersion(t, b.disk, under(hardStateName), n*blockBytes)
		}
		_, err := loadHardState(b.fs, benchDir, fileGroup)
		if !isVersion(err) {
			t.Fatalf("blocks %v: %v", blocks, err)
		}
	}
}

// TestHardStatePoisonIsFinal: after a failed flush no later Set is believed.
func TestHardStatePoisonIsFinal(t *testing.T) {
	b := benchState(t, 2)
	h := mustLoadState(t, b.fs)
	f := faultfs.New(b.disk)
	f.Fail(faultfs.Match{Op: faultfs.OpSync, Path: hardStateName}, 1, 1, errBroken)
	first := h.Set(f, b.fl, stateOf(3))
	if !errors.Is(first, fsync.ErrPoisoned) {
		t.Fatal(first)
	}
	if again := h.Set(f, b.fl, stateOf(4)); again == nil || again.Error() != first.Error() {
		t.Fatalf("set after a failed flush: %v", again)
	}
	if h.State() != stateOf(2) {
		t.Fatalf("%+v", h.State())
	}
	b.disk.PowerCut(memfs.KeepNone, nil)
	if s := mustLoadState(t, b.disk).State(); s != stateOf(2) {
		t.Fatalf("%+v", s)
	}
}
