package wal

import (
	"errors"
	"fmt"
	"path/filepath"
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

// openAt opens a store in this life.
func (b *bench) openAt(dir string, events ...*[]Event) (*Store, error) {
	o := Options{Flusher: b.fl, Boot: b.boot, Rand: newFixedRand(byte(b.acked + 1))}
	if len(events) > 0 {
		var mu sync.Mutex
		o.Event = func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			*events[0] = append(*events[0], e)
		}
	}
	return OpenStore(b.fs, dir, o)
}

func mustOpenAt(t *testing.T, b *bench, dir string, events ...*[]Event) *Store {
	t.Helper()
	s, err := b.openAt(dir, events...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// nextLife ends the life of b and begins another on the same disk.
func nextLife(t *testing.T, b *bench, end func(*memfs.FS)) *bench {
	t.Helper()
	end(b.disk)
	next, err := newBench(b.disk, b.disk, fsync.Files)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func kill(m *memfs.FS) { m.Kill() }

func cutNone(m *memfs.FS) { m.PowerCut(memfs.KeepNone, nil) }

// life of a store as the checks see it.
type storeLife struct {
	id     Identity // of the last open that returned
	opened bool
}

// openClose opens a store twice and closes it once in order. Acks: 1 first open, 2 closed, 3 second open.
func openClose(dir string) everyOp {
	var seen storeLife
	return everyOp{
		act: func(b *bench) error {
			seen = storeLife{}
			s, err := b.openAt(dir)
			if err != nil {
				return err
			}
			seen = storeLife{s.Identity(), true}
			b.ack(1)
			if err := s.Close(); err != nil {
				return err
			}
			b.ack(2)
			if s, err = b.openAt(dir); err != nil {
				return err
			}
			if id := s.Identity(); !id.CleanStop || id.Disk != seen.id.Disk || id.Incarnation <= seen.id.Incarnation {
				return fmt.Errorf("%w: second open: %+v after %+v", errWrong, id, seen.id)
			}
			seen.id = s.Identity()
			b.ack(3)
			return nil
		},
		check: func(b *bench) error {
			s, err := b.openAt(dir)
			if err != nil {
				return err
			}
			id := s.Identity()
			switch {
			case b.acked >= 1 && (id.Disk != seen.id.Disk || id.Incarnation <= seen.id.Incarnation):
				return fmt.Errorf("identity %+v after %+v", id, seen.id)
			case b.acked == 3 && id.CleanStop:
				return errors.New("a crash is called a clean stop")
			case id.Disk == [16]byte{} || id.Incarnation == 0 || id.Nonce == [16]byte{}:
				return fmt.Errorf("identity %+v", id)
			}
			return s.Close()
		},
	}
}

var errWrong = errors.New("wrong")

// TestFirstStartCrashAtEveryCall: whatever ends the first start, the next one completes it, and once a
// store was opened its identity stays. Both where the directory is absent and where it is there.
func TestFirstStartCrashAtEveryCall(t *testing.T) {
	for _, dir := range []string{under("node"), benchDir} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if err := openClose(dir).run(t); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFirstStartNeedsItsFlushes(t *testing.T) {
	for name, pattern := range map[string]string{"new directory": "node.new", "parent": "data"} {
		t.Run(name, func(t *testing.T) {
			openClose(under("node")).mustFail(t, func(f *faultfs.FS) {
				f.IgnoreDirSync(pattern)
				f.IgnoreSyncFS() // which an open after an unclean stop begins with: either of the two does
			})
		})
	}
	t.Run("in place", func(t *testing.T) {
		openClose(benchDir).mustFail(t, func(f *faultfs.FS) { f.IgnoreDirSync("data") })
	})
	for _, name := range []string{"disk.tmp", "incarnation.tmp"} {
		t.Run(name, func(t *testing.T) {
			openClose(benchDir).mustFail(t, func(f *faultfs.FS) { f.IgnoreSync(name); f.IgnoreSyncFS() })
		})
	}
}

// TestGroupsCrashAtEveryCall creates two groups and removes one.
func TestGroupsCrashAtEveryCall(t *testing.T) {
	if err := createRemove().run(t); err != nil {
		t.Fatal(err)
	}
}

func TestGroupsNeedTheirFlushes(t *testing.T) {
	for name, skew := range map[string]func(*faultfs.FS){
		"groups":    func(f *faultfs.FS) { f.IgnoreDirSync(groupsName) },
		"group":     func(f *faultfs.FS) { f.IgnoreDirSync("*.new") },
		"manifest":  func(f *faultfs.FS) { f.IgnoreSync(manifestName) },
		"hardstate": func(f *faultfs.FS) { f.IgnoreSync(hardStateName) },
	} {
		t.Run(name, func(t *testing.T) {
			createRemove().mustFail(t, func(f *faultfs.FS) { skew(f); f.IgnoreSyncFS() })
		})
	}
}

// createRemove: 1 group 3 made, 2 group 4 made, 3 group 3 removed.
func createRemove() everyOp {
	return everyOp{
		setup: func(b *bench) error {
			s, err := b.openAt(benchDir)
			return errors.Join(err, s.Close())
		},
		act: func(b *bench) error {
			s, err := b.openAt(benchDir)
			if err != nil {
				return err
			}
			for i, g := range []segment.GroupID{3, 4} {
				l, err := s.OpenLog(g)
				if err != nil {
					return err
				}
				if err := l.SetHardState(stateOf(int(g))); err != nil {
					return err
				}
				b.ack(i + 1)
				if err := l.Close(); err != nil {
					return err
				}
			}
			if err := s.RemoveLog(3); err != nil {
				return err
			}
			b.ack(3)
			return nil
		},
		check: checkGroups,
	}
}

func checkGroups(b *bench) error {
	s, err := b.openAt(benchDir)
	if err != nil {
		return err
	}
	groups, err := s.Groups()
	if err != nil {
		return err
	}
	switch {
	case b.acked == 1 && !slices.Contains(groups, 3), b.acked >= 2 && !slices.Contains(groups, 4),
		b.acked == 3 && slices.Contains(groups, 3):
		return fmt.Errorf("groups %v after step %d", groups, b.acked)
	}
	for _, g := range groups {
		l, err := s.OpenLog(g)
		if err != nil {
			return err
		}
		h := l.HardState()
		made := b.acked >= int(g)-2
		if h != stateOf(int(g)) && (made || h != (HardState{})) {
			return fmt.Errorf("group %d: hard state %+v after step %d", g, h, b.acked)
		}
	}
	for _, g := range []segment.GroupID{3, 4} { // nothing stands in the way of making them
		if !slices.Contains(groups, g) {
			if _, err := s.OpenLog(g); err != nil {
				return err
			}
		}
	}
	return s.Close()
}

func TestStoreInUse(t *testing.T) {
	b := newDisk(t)
	s := mustOpenAt(t, b, under("node"))
	before := snapshotOf(t, b.disk)
	_, err := b.openAt(under("node"))
	if !errors.Is(err, ErrInUse) || !errors.Is(err, fsync.ErrLocked) {
		t.Fatal(err)
	}
	mustSay(t, err, under("node"), "nothing was touched", "stop the other weida")
	if d := cmp.Diff(before, snapshotOf(t, b.disk)); d != "" {
		t.Fatal(d)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpenAt(t, b, under("node"))
}

// TestForeignDirectory: a directory with other content is refused and not touched.
func TestForeignDirectory(t *testing.T) {
	for _, name := range []string{"thesis.txt", "disk.old", "groups"} {
		b := newDisk(t)
		if name == groupsName {
			must(t, b.fs.Mkdir(under(name)))
			must(t, b.fs.Mkdir(under(name, "7")))
		} else {
			mustWrite(t, b, under(name), "text")
		}
		f := faultfs.New(b.disk)
		f.Count(faultfs.Changes...)
		_, err := OpenStore(f, benchDir, Options{Flusher: b.fl})
		if name == groupsName {
			if !isCorrupt(err) {
				t.Fatalf("%s: %v", name, err)
			}
			mustSay(t, err, under(diskName), "never made anew")
		} else {
			if !errors.Is(err, ErrNotStore) {
				t.Fatalf("%s: %v", name, err)
			}
			mustSay(t, err, benchDir, name, "nothing was touched", "choose an empty or a new directory")
		}
		if f.Ops() != 0 {
			t.Fatalf("%s: touched: %v", name, f.Trace())
		}
	}
}

func mustWrite(t *testing.T, b *bench, path, text string) {
	t.Helper()
	f, err := b.fs.Create(path)
	must(t, err)
	_, err = f.WriteAt([]byte(text), 0)
	must(t, errors.Join(err, f.Sync(), f.Close(), syncDirs(b.fs, filepath.Dir(path))))
}

// TestUnknownFiles: they are moved aside with their content, reported, and never deleted; what is no
// file is reported and stays; what an interrupted operation of ours left goes.
func TestUnknownFiles(t *testing.T) {
	b := newDisk(t)
	s := mustOpenAt(t, b, benchDir)
	must(t, s.Close())
	b = nextLife(t, b, kill)
	mustWrite(t, b, under("notes.txt"), "mine")
	mustWrite(t, b, under(groupsName, "notes.txt"), "mine too")
	mustWrite(t, b, under("node.key"), "key")
	mustWrite(t, b, under("trust.yaml"), "kept")
	mustWrite(t, b, under("disk.tmp"), "left")
	must(t, b.fs.Mkdir(under("lost+found")))
	must(t, b.fs.Mkdir(under("backup")))
	must(t, b.fs.Mkdir(under(groupsName, "007")))
	must(t, b.fs.Mkdir(under(groupsName, "7.new")))
	must(t, b.fs.Mkdir(under(groupsName, "8.gone")))
	mustWrite(t, b, under(groupsName, "8.gone", "manifest"), "old")
	var events []Event
	s, err := OpenStore(b.fs, benchDir, Options{
		Flusher: b.fl, Keep: []string{"trust.yaml"},
		Event: func(e Event) { events = append(events, e) },
	})
	must(t, err)
	must(t, s.Close())
	b = nextLife(t, b, cutNone)
	want := []string{
		lockName, "backup", "clean", "control", "disk", "groups", "incarnation", "lost+found", "node.key",
		"quarantine", "trust.yaml",
	}
	if d := cmp.Diff(want, namesIn(t, b.fs, benchDir)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"007"}, namesIn(t, b.fs, under(groupsName))); d != "" {
		t.Error(d)
	}
	for name, text := range map[string]string{"node-notes.txt-1": "mine", "groups-notes.txt-1": "mine too"} {
		if got, err := b.disk.Bytes(under(quarantineName, name)); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind+" "+strings.TrimPrefix(e.Path, benchDir+"/"))
	}
	slices.Sort(kinds)
	want = []string{
		"left_alone backup", "left_alone groups/007", "quarantined groups/notes.txt", "quarantined notes.txt",
		"removed disk.tmp", "removed groups/7.new", "removed groups/8.gone",
	}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Error(d)
	}
}

// TestRemoveLogLeavesDirectories: a directory that somebody made inside a group's keeps nobody from
// deleting the group, nor the store from opening, and is not touched.
func TestRemoveLogLeavesDirectories(t *testing.T) {
	b := newDisk(t)
	s := mustOpenAt(t, b, benchDir)
	l, err := s.OpenLog(5)
	must(t, err)
	must(t, l.Close())
	must(t, b.fs.Mkdir(under(groupsName, "5", "backup")))
	must(t, s.RemoveLog(5))
	for range 2 {
		var events []Event
		b = nextLife(t, b, kill)
		s = mustOpenAt(t, b, benchDir, &events)
		if ok, err := s.HasLog(5); err != nil || ok {
			t.Fatal(ok, err)
		}
		path := under(groupsName, "5.gone", "backup")
		if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == EventLeftAlone && e.Path == path }) {
			t.Fatalf("%+v", events)
		}
	}
	if l, err = s.OpenLog(5); err != nil {
		t.Fatal(err)
	}
	must(t, l.Close())
	must(t, s.Close())
}

// TestQuarantineLosesNothing: a crash or fault at any call of moving a file aside leaves its content in
// at least one place.
func TestQuarantineLosesNothing(t *testing.T) {
	text := string(content(9000, 1))
	op := everyOp{
		setup: func(b *bench) error {
			s, err := b.openAt(benchDir)
			if err != nil {
				return err
			}
			if _, err := s.OpenLog(5); err != nil {
				return err
			}
			if err := s.Close(); err != nil {
				return err
			}
			f, err := b.fs.Create(under(groupsName, "5", "what"))
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte(text), 0)
			return errors.Join(err, f.Sync(), f.Close(), syncDirs(b.fs, under(groupsName, "5")))
		},
		act: func(b *bench) error {
			err := quarantine(b.fs, under(groupsName, "5"), "what", "unknown", nil)
			if err == nil {
				b.ack(1)
			}
			return err
		},
		check: func(b *bench) error {
			found := 0
			for _, path := range b.disk.Files() {
				p, err := b.disk.Bytes(path)
				if err != nil {
					return err
				}
				if string(p) != text {
					continue
				}
				found++
				if b.acked == 1 && strings.Contains(path, groupsName+"/") {
					return errors.New("it was moved and is back")
				}
			}
			if found == 0 {
				return errors.New("the file is lost")
			}
			return nil
		},
	}
	if err := op.run(t); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{quarantineName, "5"} {
		op.mustFail(t, func(f *faultfs.FS) { f.IgnoreDirSync(pattern) })
	}
	op.mustFail(t, func(f *faultfs.FS) { f.IgnoreSync("*what*") })
}
