package wal

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

// TestAppendRefusals: what does not fit or names a body that is not here is refused, typed, and nothing
// of it is written (3e).
func TestAppendRefusals(t *testing.T) {
	l := mustLife(t, memfs.New(), lifeOptions{})
	must(t, l.append(oneEntry(1, 1, 1, 10)))
	end := l.log.lastSeg
	big := &Append{}
	for i := range uint64(5) {
		ref := segment.BodyRef{Term: 1, Seq: 10 + i}
		big.Bodies = append(big.Bodies, Body{ref, payload(ref, 60_000)})
	}
	lost := oneEntry(2, 1, 2, 10)
	lost.Bodies = nil
	c := commitOf(segment.BodyRef{Term: 1, Seq: 3}, 70_000, true)
	data := segment.AppendData(nil, []segment.Commit{c}, nil)
	noFile := &Append{Entries: []segment.Entry{{Index: 2, Term: 1, Data: data}}}
	long := &Append{Bodies: []Body{{segment.BodyRef{Term: 1, Seq: 4}, make([]byte, segment.InlineMax+1)}}}
	for _, tt := range []struct {
		name string
		a    *Append
		want error
	}{
		{"batch too large", big, ErrTooLarge},
		{"body too large", long, ErrTooLarge},
		{"body absent", lost, ErrAbsent},
		{"body file absent", noFile, ErrAbsent},
	} {
		if err := l.log.Append(tt.a); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if l.log.lastSeg != end || l.log.Last().Index != 1 {
		t.Fatalf("a refused append moved the log to %v", l.log.lastSeg)
	}
	must(t, l.append(oneEntry(2, 1, 2, 10)))
}

// TestDiskFullAndOn: a full disk refuses what does not fit, keeps what is there, and needs no restart.
func TestDiskFullAndOn(t *testing.T) {
	mem := memfs.New()
	l := mustLife(t, mem, lifeOptions{})
	mem.SetCapacity(mem.Used() + 60_000)
	i := segment.Index(1)
	var err error
	for ; err == nil && i < 1000; i++ {
		err = l.append(oneEntry(i, 1, uint64(i), 3000))
	}
	i--
	if !errors.Is(err, fsync.ErrDiskFull) || errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("the full disk says: %v", err)
	}
	for _, part := range []string{"not stored", "free some space"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not say %q: %v", part, err)
		}
	}
	if !l.event(EventDiskFull) {
		t.Error("no event tells of it")
	}
	checkEntries(t, l.log)
	mem.SetCapacity(0)
	must(t, l.append(oneEntry(i, 1, uint64(i), 3000)))
	must(t, l.flush())
	mem.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, mem, lifeOptions{})
	if l.log.Last().Index != i {
		t.Fatalf("the log ends with %d, want %d", l.log.Last().Index, i)
	}
	checkEntries(t, l.log)
}

// TestStrangersAreMovedAside: files that no manifest names are moved to quarantine and reported, and
// neither used nor deleted; a segment that was dropped and came back is removed.
func TestStrangersAreMovedAside(t *testing.T) {
	mem := memfs.New()
	l := mustLife(t, mem, lifeOptions{})
	must(t, l.append(oneEntry(1, 1, 1, 10)))
	must(t, l.store.Close())
	write := func(name string, b []byte) {
		f, err := mem.Create(filepath.Join(testDir, name))
		must(t, err)
		_, err = f.WriteAt(b, 0)
		must(t, joinClose(err, f))
	}
	write("notes.txt", []byte("mine"))
	write(segmentName(9), make([]byte, 4096)) // a creation that got no further
	write(snapshotName(7), []byte("half"))
	l = mustLife(t, mem, lifeOptions{})
	checkEntries(t, l.log)
	list, err := mem.List("/node/data/quarantine")
	must(t, err)
	if len(list) != 3 {
		t.Fatalf("quarantine holds %v", list)
	}
	n := 0
	for _, e := range l.events {
		if e.Kind == EventQuarantined {
			n++
		}
	}
	if n != 3 {
		t.Fatalf("%d of 3 files were reported: %v", n, l.events)
	}
}

// TestStaleManifest: a segment with batches that the manifest does not name means that the manifest is
// older than the log.
func TestStaleManifest(t *testing.T) {
	smallSegments(t, 4<<10)
	mem := memfs.New()
	o := lifeOptions{segBytes: 4 << 10}
	l := mustLife(t, mem, o)
	must(t, l.appendRange(1, 3, 1))
	old, err := mem.Bytes(filepath.Join(testDir, manifestName))
	must(t, err)
	must(t, l.appendRange(3, 30, 1))
	must(t, l.flush())
	must(t, l.store.Close())
	must(t, mem.Remove(filepath.Join(testDir, manifestName)))
	f, err := mem.Create(filepath.Join(testDir, manifestName))
	must(t, err)
	_, err = f.WriteAt(old, 0)
	must(t, joinClose(err, f))
	o.boot = mem.BootID()
	_, err = openLife(mem, o)
	if !isCorrupt(err) || !strings.Contains(err.Error(), "older than the log") {
		t.Fatalf("opening says: %v", err)
	}
}
