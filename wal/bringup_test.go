package wal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

// TestBringUp brings up an empty replica: the bodies that a snapshot needs come first, over several
// segments, then the snapshot, far ahead. Nothing of it goes while the state is restored in pieces, and
// all of it is there behind a power cut at each stage. (W-10, W-13)
func TestBringUp(t *testing.T) {
	if err := bringUpEmpty(t); err != nil {
		t.Fatal(err)
	}
	off.restoreFirst = true
	defer func() { off.restoreFirst = false }()
	if bringUpEmpty(t) == nil {
		t.Fatal("a trim before the state was restored took nothing of it")
	}
}

func bringUpEmpty(t *testing.T) error {
	smallSegments(t, 16<<10)
	disk, o := memfs.New(), lifeOptions{seed: 1, segBytes: 16 << 10}
	l := mustLife(t, disk, o)
	l.log.Trim() // an empty state was restored
	l.log.DropUnnamed(40)
	var live []segment.Commit
	for seq := range uint64(100) {
		c := commitOf(segment.BodyRef{Term: 1 + segment.Term(seq/20), Seq: seq}, 500, false)
		live = append(live, c)
		must(t, l.append(&Append{Bodies: []Body{{c.Ref, payload(c.Ref, 500)}}}))
	}
	large := commitOf(segment.BodyRef{Term: 3, Seq: 1000}, 90_000, true)
	f, err := l.log.NewBody(large.Ref, large.Length)
	must(t, err)
	_, err = f.Write(payload(large.Ref, 90_000))
	must(t, err)
	must(t, f.Finish(large.Digest))
	must(t, l.append(&Append{Large: []*BodyFile{f}}))
	live = append(live, large)
	for _, c := range live {
		if !l.log.Retain(c.Ref) {
			t.Fatalf("body %v was appended and is not here", c.Ref)
		}
	}
	must(t, l.flush())
	must(t, l.jobs())
	o.seed++
	if err := bodiesThere(t, disk, o, live); err != nil {
		return err
	}
	m := Mark{50, 1 << 30}
	w, err := l.log.NewSnapshot(m)
	must(t, err)
	must(t, w.Commit())
	must(t, l.log.Advance())
	must(t, l.jobs())
	l.log.ReleaseAll()
	l.log.DropUnnamed(41)
	for _, c := range live { // in pieces: rounds go on in between
		must(t, l.jobs())
		if !l.log.Retain(c.Ref) {
			return errors.New("a body that the snapshot holds was dropped before it was retained")
		}
	}
	l.log.Trim()
	must(t, l.jobs())
	must(t, l.append(oneEntry(m.Index+1, m.Term, 5000, 100)))
	must(t, l.flush())
	must(t, l.jobs())
	if err := bodiesThere(t, disk, o, live); err != nil {
		return err
	}
	for _, c := range live {
		l.log.Release(c.Ref)
	}
	l.log.Trim()
	must(t, l.jobs())
	if st := l.log.Stats(); st.Segments > 2 || st.LargeBytes > 0 {
		t.Errorf("bodies that no entry names stay when all are settled: %+v", st)
	}
	return l.store.Close()
}

// bodiesThere reads bodies from a copy of the disk, after a power cut and an opening.
func bodiesThere(t *testing.T, disk *memfs.FS, o lifeOptions, list []segment.Commit) error {
	disk = disk.Clone()
	disk.PowerCut(memfs.KeepNone, nil)
	l := mustLife(t, disk, o)
	for _, c := range list {
		info, err := l.log.BodyInfo(c.Ref)
		if err != nil {
			return err
		}
		if info != c || !bytes.Equal(readAll(t, l.log, c), payload(c.Ref, int(c.Length))) {
			t.Errorf("body %v is another: %+v", c.Ref, info)
		}
	}
	return l.store.Close()
}

// TestRetainTwice: a body stays until it is released as often as it was retained, also when it is copied
// or appended again in between.
func TestRetainTwice(t *testing.T) {
	s := newShop(t, 16<<10)
	s.take(1, 300, 1)
	ref := segment.BodyRef{Term: 1, Seq: 1}
	s.log.Retain(ref)
	for range 3 {
		s.take(100, 300, 0)
		s.settle()
		must(t, s.append(&Append{Bodies: []Body{{ref, payload(ref, 300)}}}))
	}
	s.log.Release(ref)
	s.take(100, 300, 0)
	s.settle()
	s.check()
	s.release(ref)
	s.take(100, 300, 0)
	s.settle()
	if _, err := s.log.OpenRef(ref); !errors.Is(err, ErrAbsent) {
		t.Errorf("released as often as retained: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("released more often than retained, and nobody noticed")
		}
		must(t, s.store.Close())
	}()
	must(t, s.append(&Append{Bodies: []Body{{ref, payload(ref, 300)}}}))
	s.log.Release(ref)
}

// TestSnapshotsSideBySide writes the group's own snapshot beside one that arrives: they do not touch each
// other's files, and two of one index are refused.
func TestSnapshotsSideBySide(t *testing.T) {
	l := mustLife(t, memfs.New(), lifeOptions{seed: 1})
	for i := segment.Index(1); i <= 5; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 100)))
	}
	must(t, l.flush())
	arriving, err := l.log.NewSnapshot(Mark{2, 9})
	must(t, err)
	own, err := l.log.NewSnapshot(Mark{1, 5})
	must(t, err)
	for _, i := range []segment.Index{9, 5} {
		if _, err := l.log.NewSnapshot(Mark{3, i}); err == nil {
			t.Errorf("a second snapshot at index %d was begun", i)
		}
	}
	_, err = arriving.Write(snapshotContent(Mark{2, 9}))
	must(t, err)
	_, err = own.Write(snapshotContent(Mark{1, 5}))
	must(t, err)
	must(t, own.Commit())
	must(t, l.log.Advance())
	must(t, checkSnapshotContent(l.log, Mark{1, 5}))
	must(t, arriving.Abort())
	again, err := l.log.NewSnapshot(Mark{2, 9})
	must(t, err)
	late, err := l.log.NewSnapshot(Mark{1, 7})
	must(t, err)
	_, err = again.Write(snapshotContent(Mark{2, 9}))
	must(t, err)
	must(t, again.Commit())
	must(t, l.log.Advance())
	must(t, checkSnapshotContent(l.log, Mark{2, 9}))
	if err := late.Commit(); !errors.Is(err, ErrSurpassed) {
		t.Errorf("a snapshot was committed before the newest: %v", err)
	}
	must(t, l.log.Advance())
	if names := strings.Join(namesIn(t, l.log.fs, l.log.dir), " "); strings.Contains(names, snapshotName(7)) {
		t.Errorf("it left its file: %s", names)
	}
	if l.log.Last() != (Mark{2, 9}) {
		t.Errorf("the log goes on behind %+v", l.log.Last())
	}
	must(t, l.store.Close())
}

// TestUnprovedLarge: what a crash left of a large body is no body, whatever names it, until it has come
// again. (W-13)
func TestUnprovedLarge(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{seed: 1})
	must(t, l.append(oneEntry(1, 1, 1, 100)))
	must(t, l.flush())
	c := commitOf(segment.BodyRef{Term: 1, Seq: 2}, 90_000, true)
	f, err := l.log.NewBody(c.Ref, c.Length)
	must(t, err)
	_, err = f.Write(payload(c.Ref, 70_000))
	must(t, err)
	fs.PowerCut(memfs.KeepAll, nil)
	l = mustLife(t, fs, lifeOptions{seed: 2})
	data := segment.AppendData(nil, []segment.Commit{c}, nil)
	a := &Append{Entries: []segment.Entry{{Index: 2, Term: 1, Data: data}}}
	if err := l.append(a); !errors.Is(err, ErrAbsent) {
		t.Fatalf("an entry names a large body of which a part is here: %v", err)
	}
	if ok, err := l.log.Holds(c); ok || err != nil {
		t.Fatalf("a part of a large body is held to be the body: %v", err)
	}
	if _, err := l.log.OpenRef(c.Ref); !errors.Is(err, ErrAbsent) {
		t.Fatalf("a part of a large body was opened: %v", err)
	}
	f, err = l.log.NewBody(c.Ref, c.Length)
	must(t, err)
	_, err = f.Write(payload(c.Ref, 90_000))
	must(t, err)
	must(t, f.Finish(c.Digest))
	a.Large = []*BodyFile{f}
	must(t, l.append(a))
	must(t, l.flush())
	fs.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, fs, lifeOptions{seed: 3})
	checkEntries(t, l.log)
	must(t, l.store.Close())
}

// TestTombstoneBesideAPart: where a tombstone stands for a large body, what a crash left of its file is no damage, to
// whoever reads it, to a scrub or to an opening, though an entry names it.
func TestTombstoneBesideAPart(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{seed: 1})
	must(t, l.append(oneEntry(1, 1, 1, 100)))
	must(t, l.flush())
	c := commitOf(segment.BodyRef{Term: 1, Seq: 2}, 90_000, true)
	f, err := l.log.NewBody(c.Ref, c.Length)
	must(t, err)
	_, err = f.Write(payload(c.Ref, 70_000))
	must(t, err)
	fs.PowerCut(memfs.KeepAll, nil)
	l = mustLife(t, fs, lifeOptions{seed: 2})
	data := segment.AppendData(nil, []segment.Commit{c}, nil)
	must(t, l.append(&Append{
		Voids: []Void{{c.Ref, 1}}, Entries: []segment.Entry{{Index: 2, Term: 1, Data: data}},
	}))
	must(t, l.flush())
	for life := range uint64(2) {
		if life > 0 {
			fs.PowerCut(memfs.KeepNone, nil)
			l = mustLife(t, fs, lifeOptions{seed: 2 + life})
		}
		if _, err := l.log.OpenBody(c); !errors.Is(err, ErrAbsent) {
			t.Errorf("life %d: a part of a settled body: %v", life, err)
		}
		if _, err := l.log.OpenRef(c.Ref); !errors.Is(err, ErrAbsent) {
			t.Errorf("life %d: a part of a settled body by its ref: %v", life, err)
		}
		if ok, err := l.log.Holds(c); !ok || err != nil {
			t.Errorf("life %d: the tombstone is not here: %v", life, err)
		}
		if list, _ := scrubAll(t, l.log, 1<<20); len(list) > 0 {
			t.Errorf("life %d: a scrub finds %v", life, list)
		}
	}
	must(t, l.store.Close())
}
