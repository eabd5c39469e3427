package wal

import (
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// oldStore is a disk whose store was opened and closed in order, with groups that were used.
func oldStore(t *testing.T, groups ...segment.GroupID) (*bench, Identity) {
	t.Helper()
	b := newDisk(t)
	s := mustOpenAt(t, b, benchDir)
	for _, g := range groups {
		l, err := s.OpenLog(g)
		must(t, err)
		must(t, l.SetHardState(stateOf(int(g))))
	}
	must(t, s.Close())
	return nextLife(t, b, cutNone), s.Identity()
}

func TestIdentityAcrossStarts(t *testing.T) {
	b, first := oldStore(t)
	if first.Incarnation != 1 || first.CleanStop {
		t.Fatalf("%+v", first)
	}
	s := mustOpenAt(t, b, benchDir)
	second := s.Identity()
	if second.Disk != first.Disk || second.Incarnation != 2 || second.Nonce == first.Nonce || !second.CleanStop {
		t.Fatalf("%+v after %+v", second, first)
	}
	b = nextLife(t, b, kill) // not closed
	if third := mustOpenAt(t, b, benchDir).Identity(); third.CleanStop || third.Incarnation != 3 {
		t.Fatalf("%+v", third)
	}
}

// TestFollows: a directory knows the lives it came from, and not those of a copy of it, however often it is opened.
func TestFollows(t *testing.T) {
	old, first := oldStore(t)
	opened := 0
	open := func(b *bench) Identity {
		t.Helper()
		opened++
		b.acked = opened // which the random bytes follow
		s := mustOpenAt(t, b, benchDir)
		must(t, s.Close())
		return s.Identity()
	}
	clone := old.disk.Clone()
	copied, err := newBench(clone, clone, fsync.Files)
	must(t, err)
	registered := open(old)
	now := registered
	for range 3 {
		now = open(nextLife(t, old, cutNone))
	}
	for _, id := range []Identity{first, registered, now} {
		if !now.Follows(id.Incarnation, id.Nonce) {
			t.Errorf("%d does not follow %d", now.Incarnation, id.Incarnation)
		}
	}
	if registered.Follows(now.Incarnation, now.Nonce) || now.Follows(now.Incarnation, first.Nonce) {
		t.Error("an earlier life follows a later one")
	}
	for range 3 {
		back := open(copied)
		if back.Follows(registered.Incarnation, registered.Nonce) || !back.Follows(first.Incarnation, first.Nonce) {
			t.Errorf("life %d of a directory that was put back takes itself for the registered one", back.Incarnation)
		}
		copied = nextLife(t, copied, cutNone)
	}
}

// TestLivesKept: what is remembered is bounded, and what is not remembered is not believed.
func TestLivesKept(t *testing.T) {
	b := newDisk(t)
	id := Identity{Incarnation: 7}
	var lives [][16]byte
	for range LivesKept + 2 {
		must(t, raise(b.fs, benchDir, &id, mrand.NewChaCha8([32]byte{1})))
		lives = append(lives, id.Nonce)
	}
	must(t, writeDisk(b.fs, benchDir, [16]byte{1}))
	got, _, _, err := readIdentity(b.fs, benchDir)
	must(t, err)
	last := id.Incarnation
	if len(got.Before) != LivesKept || !got.Follows(last-LivesKept, lives[1]) || got.Follows(last-LivesKept-1, lives[0]) {
		t.Errorf("%d lives are remembered", len(got.Before))
	}
}

// TestIdentityOneBit flips a bit in every byte of disk and incarnation: the other copy stands in, the
// damage is reported and mended.
func TestIdentityOneBit(t *testing.T) {
	old, id := oldStore(t)
	for _, name := range []string{diskName, incarnationName} {
		size := int64(2 * blockBytes)
		for off := int64(0); off < size; off += 3 {
			disk := old.disk.Clone()
			flip(t, disk, under(name), off)
			b, err := newBench(disk, disk, fsync.Files)
			must(t, err)
			var events []Event
			s := mustOpenAt(t, b, benchDir, &events)
			if s.Identity().Disk != id.Disk || s.Identity().Incarnation != 2 || !s.Identity().CleanStop {
				t.Fatalf("%s, byte %d: %+v", name, off, s.Identity())
			}
			if len(events) != 1 || events[0].Kind != EventCopyRepaired || events[0].Path != under(name) {
				t.Fatalf("%s, byte %d: %+v", name, off, events)
			}
			must(t, s.Abandon())
			if _, _, bad, err := readIdentity(disk, benchDir); err != nil || len(bad) > 0 {
				t.Fatalf("%s, byte %d: not mended: %v, %v", name, off, bad, err)
			}
		}
	}
}

// TestIdentityLost: without a whole copy, or without the file, the store does not open, says what to do
// and changes nothing.
func TestIdentityLost(t *testing.T) {
	old, _ := oldStore(t, 3)
	for _, name := range []string{diskName, incarnationName} {
		for what, spoil := range map[string]func(*memfs.FS) error{
			"rotten": func(m *memfs.FS) error {
				return errors.Join(m.FlipBit(under(name), 60, 1), m.FlipBit(under(name), 60+blockBytes, 1))
			},
			"empty":   func(m *memfs.FS) error { return m.Truncate(under(name), 0) },
			"missing": func(m *memfs.FS) error { return m.Remove(under(name)) },
		} {
			disk := old.disk.Clone()
			must(t, spoil(disk))
			before := snapshotOf(t, disk)
			b, err := newBench(disk, disk, fsync.Files)
			must(t, err)
			if _, err = b.openAt(benchDir); !isCorrupt(err) {
				t.Fatalf("%s %s: %v", name, what, err)
			}
			mustSay(t, err, under(name), "never made anew")
			if d := cmp.Diff(before, snapshotOf(t, disk)); d != "" {
				t.Fatalf("%s %s: %s", name, what, d)
			}
		}
	}
}

func TestIdentityOtherVersion(t *testing.T) {
	for _, name := range []string{diskName, incarnationName, cleanName} {
		b, _ := oldStore(t)
		otherVersion(t, b.disk, under(name), 0)
		otherVersion(t, b.disk, under(name), blockBytes)
		before := snapshotOf(t, b.disk)
		_, err := b.openAt(benchDir)
		if !isVersion(err) {
			t.Fatalf("%s: %v", name, err)
		}
		mustSay(t, err, under(name), "format version 2", "no group was opened")
		if d := cmp.Diff(before, snapshotOf(t, b.disk)); d != "" {
			t.Fatal(d)
		}
	}
}

// TestCleanMarkerProvesOrNothing: damaged in every byte, or of another incarnation or disk, it is never
// believed to say more than it does.
func TestCleanMarkerProvesOrNothing(t *testing.T) {
	old, _ := oldStore(t, 3, 4)
	marker, err := old.disk.Bytes(under(cleanName))
	must(t, err)
	for off := int64(0); off < int64(len(marker)); off += 3 {
		disk := old.disk.Clone()
		flip(t, disk, under(cleanName), off)
		flip(t, disk, under(cleanName), (off+blockBytes)%int64(len(marker)))
		b, err := newBench(disk, disk, fsync.Files)
		must(t, err)
		s, err := b.openAt(benchDir)
		must(t, err)
		if s.Identity().CleanStop && off%blockBytes < segment.HeaderSize+40 {
			t.Fatalf("byte %d: a damaged marker was believed", off)
		}
		if slices.Contains(namesIn(t, disk, benchDir), cleanName) {
			t.Fatal("the marker is still there")
		}
	}
	b, id := oldStore(t)
	old.disk = b.disk.Clone()
	s := mustOpenAt(t, b, benchDir) // incarnation 2, killed
	b = nextLife(t, b, kill)
	must(t, writeClean(b.fs, benchDir, id, nil)) // the marker of incarnation 1 comes back
	if mustOpenAt(t, b, benchDir).Identity().CleanStop {
		t.Fatalf("the marker of incarnation %d was believed after %d", id.Incarnation, s.Identity().Incarnation)
	}
}

// TestCleanMarkerSpeaksForClosedGroups: a group that was not closed in order stays so, however often the
// store is, until it is opened and closed in order itself.
func TestCleanMarkerSpeaksForClosedGroups(t *testing.T) {
	b, _ := oldStore(t, 3, 4)
	s := mustOpenAt(t, b, benchDir)
	for _, g := range []segment.GroupID{3, 4} {
		if !s.cleanStop(g) {
			t.Fatalf("group %d was closed in order", g)
		}
	}
	_, err := s.OpenLog(3)
	must(t, err)
	b = nextLife(t, b, kill) // group 3 was in use, 4 was not
	for n := range 3 {
		s = mustOpenAt(t, b, benchDir)
		if s.cleanStop(3) || s.cleanStop(4) {
			t.Fatalf("start %d after the crash: %v, %v", n, s.cleanStop(3), s.cleanStop(4))
		}
		must(t, s.Close()) // in order, and says nothing about groups that were not opened
		b = nextLife(t, b, cutNone)
	}
	s = mustOpenAt(t, b, benchDir)
	if !s.Identity().CleanStop {
		t.Fatal("the store was closed in order")
	}
	l, err := s.OpenLog(3)
	must(t, err)
	must(t, l.Close())
	must(t, s.Close())
	b = nextLife(t, b, cutNone)
	s = mustOpenAt(t, b, benchDir)
	if !s.cleanStop(3) || s.cleanStop(4) {
		t.Fatalf("group 3 was closed in order, 4 was not: %v, %v", s.cleanStop(3), s.cleanStop(4))
	}
	must(t, s.Close())
}

// TestNoMarkerAfterFailure: a store whose storage failed does not say that it stopped in order.
func TestNoMarkerAfterFailure(t *testing.T) {
	for name, rule := range map[string]faultfs.Match{
		"syncfs": {Op: faultfs.OpSyncFS},
		"marker": {Op: faultfs.OpSync, Path: "clean.tmp"},
	} {
		b, _ := oldStore(t, 3)
		f := faultfs.New(b.disk)
		b.fs = f
		s := mustOpenAt(t, b, benchDir)
		f.Fail(rule, 1, 1, errBroken)
		if err := s.Close(); !errors.Is(err, errBroken) {
			t.Fatalf("%s: %v", name, err)
		}
		b = nextLife(t, b, kill)
		var err error
		if s, err = b.openAt(benchDir); err != nil { // told of the lost write, once
			b = nextLife(t, b, kill)
			s = mustOpenAt(t, b, benchDir)
		}
		if s.Identity().CleanStop {
			t.Fatalf("%s: clean", name)
		}
	}
}

// TestOpenFlushesWhatTheLastProcessLeft: a process dies between renaming its manifest and flushing that;
// the next one acts on what it sees, so that must not go in a power cut.
func TestOpenFlushesWhatTheLastProcessLeft(t *testing.T) {
	for _, skip := range []bool{false, true} {
		b, _ := oldStore(t, 3)
		dir := under(groupsName, "3")
		s := mustOpenAt(t, b, benchDir)
		must(t, s.Abandon())
		f := faultfs.New(b.disk)
		f.IgnoreDirSync("3")
		m, _, err := loadManifest(f, dir, 3)
		must(t, err)
		must(t, saveManifest(f, b.fl, dir, 3, &m))
		seen := m.Seq
		b = nextLife(t, b, kill)
		f = faultfs.New(b.disk)
		if skip {
			f.IgnoreSyncFS()
		}
		b.fs = f
		mustOpenAt(t, b, benchDir)
		m, _, err = loadManifest(f, dir, 3)
		if err != nil || m.Seq != seen {
			t.Fatalf("manifest %d, want %d, %v", m.Seq, seen, err)
		}
		b = nextLife(t, b, cutNone)
		m, _, err = loadManifest(b.fs, dir, 3)
		must(t, err)
		if (m.Seq == seen) == skip {
			t.Fatalf("skipped %v: manifest %d after %d was seen", skip, m.Seq, seen)
		}
	}
}

// TestLogsOfAStore: one open log per group, a damaged one keeps nobody else from opening.
func TestLogsOfAStore(t *testing.T) {
	b, _ := oldStore(t, 3, 10, 4)
	for _, off := range []int64{40, 40 + blockBytes} {
		must(t, b.disk.FlipBit(under(groupsName, "10", manifestName), off, 3))
	}
	s := mustOpenAt(t, b, benchDir)
	groups, err := s.Groups()
	if err != nil || !slices.Equal(groups, []segment.GroupID{3, 4, 10}) {
		t.Fatal(groups, err)
	}
	if ok, err := s.HasLog(10); err != nil || !ok {
		t.Fatal(ok, err)
	}
	l, err := s.OpenLog(3)
	must(t, err)
	if _, err := s.OpenLog(3); !errors.Is(err, ErrOpen) {
		t.Fatalf("opened twice: %v", err)
	}
	if err := s.RemoveLog(3); !errors.Is(err, ErrOpen) {
		t.Fatalf("removed while open: %v", err)
	}
	for range 2 {
		_, err = s.OpenLog(10)
		if !isCorrupt(err) {
			t.Fatal(err)
		}
		mustSay(t, err, "open group 10", under(groupsName, "10", manifestName), "other groups are not affected")
	}
	must(t, l.Close())
	if l, err = s.OpenLog(3); err != nil || l.HardState() != stateOf(3) {
		t.Fatal(err)
	}
	must(t, l.Close())
	must(t, s.RemoveLog(3))
	must(t, s.RemoveLog(3))
	must(t, s.RemoveLog(99))
	if groups, err = s.Groups(); err != nil || !slices.Equal(groups, []segment.GroupID{4, 10}) {
		t.Fatal(groups, err)
	}
	if l, err = s.OpenLog(3); err != nil || l.HardState() != (HardState{}) {
		t.Fatalf("made anew: %v", err)
	}
	must(t, s.Close())
	if _, err := s.OpenLog(4); !errors.Is(err, fsync.ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

// TestLogsOpenSideBySide opens many groups at once on real files.
func TestLogsOpenSideBySide(t *testing.T) {
	fs, dir := fsync.OS(), t.TempDir()
	root, err := fs.OpenDir(dir)
	must(t, err)
	fl := fsync.NewFlusher(fsync.Options{Root: root})
	fl.Start()
	defer func() { must(t, fl.Close()) }()
	for life := range 2 {
		s, err := OpenStore(fs, dir+"/node", Options{Flusher: fl})
		must(t, err)
		if s.Identity().CleanStop != (life == 1) {
			t.Fatalf("life %d: %+v", life, s.Identity())
		}
		var wg sync.WaitGroup
		errs := make(chan error, 64)
		for g := range segment.GroupID(64) {
			wg.Go(func() {
				l, err := s.OpenLog(g + 1)
				if err == nil && life == 1 && l.HardState() != stateOf(int(g)) {
					err = fmt.Errorf("group %d: %+v", g+1, l.HardState())
				}
				if err == nil {
					err = l.SetHardState(stateOf(int(g)))
				}
				errs <- err
			})
		}
		wg.Wait()
		for range cap(errs) {
			must(t, <-errs)
		}
		groups, err := s.Groups()
		if err != nil || len(groups) != 64 {
			t.Fatal(len(groups), err)
		}
		if _, err := OpenStore(fs, dir+"/node", Options{Flusher: fl}); !errors.Is(err, ErrInUse) {
			t.Fatal(err)
		}
		must(t, s.Close())
	}
	sum, err := VerifyStore(fs, dir+"/node", func(f Finding) { t.Errorf("%+v", f) })
	if err != nil || sum.Groups != 64 {
		t.Fatal(sum, err)
	}
	if names := strings.Join(namesIn(t, fs, dir+"/node/groups/7"), " "); names != "hardstate manifest" {
		t.Fatal(names)
	}
}
