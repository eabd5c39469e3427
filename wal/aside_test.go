package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"weida/fsync/faultfs"
	"weida/segment"
)

// setAsides sets two replicas of a group aside: one that has a log, and one of which nothing is left, and makes
// others in their places. Acks: 1 the first lies aside, 2 another log is in its place, 3 the second one too.
func setAsides() everyOp {
	return everyOp{
		setup: func(b *bench) error {
			s, err := b.openAt(benchDir)
			if err != nil {
				return err
			}
			l, err := s.OpenLog(3)
			if err != nil {
				return err
			}
			return errors.Join(l.SetHardState(stateOf(41)), s.Close())
		},
		act: func(b *bench) error {
			s, err := b.openAt(benchDir)
			if err != nil {
				return err
			}
			for i, a := range []Aside{{3, 41}, {4, 42}} {
				if err := s.SetAside(a); err != nil {
					return err
				}
				b.ack(1 + 2*i)
				l, err := s.OpenLog(a.Group)
				if err != nil {
					return err
				}
				if err := errors.Join(l.SetHardState(stateOf(50+i)), l.Close()); err != nil {
					return err
				}
				b.ack(2 + i)
				if err := s.SetAside(a); err != nil { // it is done
					return err
				}
			}
			return nil
		},
		check: checkAsides,
	}
}

func checkAsides(b *bench) error {
	s, err := b.openAt(benchDir)
	if err != nil {
		return err
	}
	list, err := s.Groups()
	if err != nil {
		return err
	}
	first := s.IsAside(Aside{3, 41})
	switch {
	case b.acked >= 1 && !first:
		return errors.New("the first does not lie aside")
	case b.acked >= 3 && !s.IsAside(Aside{4, 42}):
		return errors.New("the second does not lie aside")
	case b.acked >= 2 && !slices.Contains(list, 3):
		return errors.New("what took its place is gone")
	}
	if !first { // it is where it was
		l, err := s.OpenLog(3)
		if err != nil {
			return err
		}
		if l.HardState() != stateOf(41) {
			return fmt.Errorf("what is where it was has %+v", l.HardState())
		}
		return s.Close()
	}
	h, err := loadHardState(b.fs, s.AsidePath(Aside{3, 41}), 3)
	if err != nil || h.State() != stateOf(41) {
		return fmt.Errorf("what lies aside: %+v, %w", h, err)
	}
	if !slices.Contains(list, 3) {
		return s.Close()
	}
	l, err := s.OpenLog(3)
	if err != nil {
		return err
	}
	if h := l.HardState(); h != stateOf(50) && (b.acked >= 2 || h != HardState{}) {
		return fmt.Errorf("what took its place has %+v", h)
	}
	return s.Close()
}

// TestSetAsideCrashAtEveryCall: whatever ends it, the replica's files are where they were or lie aside, whole, and
// once they lie aside nothing brings them back.
func TestSetAsideCrashAtEveryCall(t *testing.T) {
	if err := setAsides().run(t); err != nil {
		t.Fatal(err)
	}
}

func TestSetAsideNeedsItsFlush(t *testing.T) {
	setAsides().mustFail(t, func(f *faultfs.FS) { f.IgnoreDirSync(groupsName); f.IgnoreSyncFS() })
}

// TestAsidesStay: nothing that a store does later touches them, and they are no groups.
func TestAsidesStay(t *testing.T) {
	b := newDisk(t)
	s := mustOpenAt(t, b, benchDir)
	l, err := s.OpenLog(5)
	must(t, err)
	if err := s.SetAside(Aside{5, 7}); !errors.Is(err, ErrOpen) {
		t.Fatalf("while it is open: %v", err)
	}
	must(t, l.Close())
	must(t, s.SetAside(Aside{5, 7}))
	must(t, s.SetAside(Aside{5, 9}))
	must(t, s.RemoveLog(5))
	must(t, s.Close())
	b = nextLife(t, b, cutNone)
	var events []Event
	s = mustOpenAt(t, b, benchDir, &events)
	if list := s.Asides(); !slices.Equal(list, []Aside{{5, 7}, {5, 9}}) || len(events) > 0 {
		t.Fatalf("%v, %+v", list, events)
	}
	if list, err := s.Groups(); err != nil || len(list) > 0 {
		t.Fatal(list, err)
	}
	if names := namesIn(t, b.fs, s.AsidePath(Aside{5, 7})); !slices.Contains(names, manifestName) {
		t.Fatal(names)
	}
	must(t, s.Close())
	in, err := InspectStore(b.fs, benchDir)
	if err != nil || len(in.Asides) != 2 || len(in.Left) > 0 {
		t.Fatalf("%+v, %v", in, err)
	}
	for _, name := range []string{"5.lost-", "5.lost-x", "5.lost-07", "05.lost-7", ".lost-7", "5.lost-7.gone", "5"} {
		if a, ok := parseAsideName(filepath.Base(name)); ok {
			t.Errorf("%s is taken for %+v", name, a)
		}
	}
	if a, ok := parseAsideName(asideName(Aside{segment.GroupID(1) << 63, 1 << 63})); !ok || a.Replica != 1<<63 {
		t.Error("a name that is not read back")
	}
}
