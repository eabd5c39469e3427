package wal

import (
	"errors"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

// TestTombstoneOfLargeBody: an entry may stand beside the tombstone of the large body that it names, in one batch,
// and does so after a power cut.
func TestTombstoneOfLargeBody(t *testing.T) {
	disk, o := memfs.New(), lifeOptions{seed: 1}
	l := mustLife(t, disk, o)
	must(t, l.append(oneEntry(1, 1, 1, 100)))
	c := commitOf(segment.BodyRef{Term: 2, Seq: 9}, 90_000, true)
	entry := segment.Entry{Index: 2, Term: 2, Data: segment.AppendData(nil, []segment.Commit{c}, nil)}
	if err := l.append(&Append{Entries: []segment.Entry{entry}}); !errors.Is(err, ErrAbsent) {
		t.Fatalf("an entry without its large body: %v", err)
	}
	must(t, l.append(&Append{Voids: []Void{{c.Ref, 1}}, Entries: []segment.Entry{entry}}))
	must(t, l.flush())
	disk.PowerCut(memfs.KeepNone, nil)
	o.seed++
	l = mustLife(t, disk, o)
	if ok, err := l.log.Holds(c); !ok || err != nil || l.log.Last().Index != 2 {
		t.Fatalf("holds %v, %v, last %+v", ok, err, l.log.Last())
	}
	must(t, l.store.Close())
}

// TestLeftoverIsNoBody: a file that a crash may have left unfinished, and that nothing names, does not stand for
// the body of its ref: an entry can't be appended before the body was written again.
func TestLeftoverIsNoBody(t *testing.T) {
	disk, o := memfs.New(), lifeOptions{seed: 1}
	l := mustLife(t, disk, o)
	must(t, l.append(oneEntry(1, 1, 1, 100)))
	must(t, l.flush())
	c := commitOf(segment.BodyRef{Term: 2, Seq: 9}, 90_000, true)
	f, err := l.log.NewBody(c.Ref, c.Length)
	must(t, err)
	_, err = f.Write(payload(c.Ref, 50_000))
	must(t, err)
	disk.Kill()
	o.seed++
	l = mustLife(t, disk, o)
	if ok, err := l.log.Holds(c); ok || err != nil {
		t.Fatalf("holds what is unfinished, %v", err)
	}
	entry := segment.Entry{Index: 2, Term: 2, Data: segment.AppendData(nil, []segment.Commit{c}, nil)}
	if err := l.append(&Append{Entries: []segment.Entry{entry}}); !errors.Is(err, ErrAbsent) {
		t.Fatalf("an entry beside what is unfinished: %v", err)
	}
	f, err = l.log.NewBody(c.Ref, c.Length)
	must(t, err)
	_, err = f.Write(payload(c.Ref, int(c.Length)))
	must(t, err)
	must(t, f.Finish(c.Digest))
	must(t, l.append(&Append{Large: []*BodyFile{f}, Entries: []segment.Entry{entry}}))
	if ok, err := l.log.Holds(c); !ok || err != nil {
		t.Fatalf("holds %v, %v", ok, err)
	}
	must(t, l.store.Close())
}
