package wal

import (
	"errors"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

// TestReserveHolds fills a disk after Reserve: what was reserved is taken, in one append or in several,
// and what was not is refused. (T-58, D-3)
func TestReserveHolds(t *testing.T) {
	for _, pieces := range []int{1, 3} {
		fs := memfs.New()
		l := mustLife(t, fs, lifeOptions{seed: 1})
		must(t, l.append(oneEntry(1, 1, 1, 300)))
		var list []*Append
		var n int64
		for i := range pieces {
			a := oneEntry(segment.Index(2+i), 1, uint64(2+i), 20_000)
			list, n = append(list, a), n+a.Size()
		}
		must(t, l.log.Reserve(n))
		fs.SetCapacity(fs.Used())
		for _, a := range list {
			must(t, l.log.Append(a))
		}
		i := l.log.Last().Index + 1
		if err := l.log.Append(oneEntry(i, 1, uint64(i), 60_000)); !errors.Is(err, fsync.ErrDiskFull) {
			t.Fatalf("an append that was not reserved on a full disk: %v", err)
		}
		if err := l.log.Reserve(60_000); !errors.Is(err, fsync.ErrDiskFull) {
			t.Fatalf("Reserve on a full disk: %v", err)
		}
		fs.SetCapacity(0)
		must(t, l.log.Reserve(60_000))
		checkEntries(t, l.log)
		must(t, l.store.Close())
	}
}

// TestReserveRolls reserves at the end of a segment: ErrNotReady until the next one is made, and then
// the append needs nothing more.
func TestReserveRolls(t *testing.T) {
	smallSegments(t, 32<<10)
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{seed: 1, segBytes: 32 << 10})
	a := oneEntry(1, 1, 1, 12_000)
	if err := l.log.Reserve(a.Size()); !errors.Is(err, ErrNotReady) {
		t.Fatalf("Reserve without a segment: %v", err)
	}
	rolls := 0
	for i := segment.Index(1); i <= 12; i++ {
		a := oneEntry(i, 1, uint64(i), 12_000)
		err := l.log.Reserve(a.Size())
		if errors.Is(err, ErrNotReady) {
			rolls++
			must(t, l.jobs())
			err = l.log.Reserve(a.Size())
		}
		must(t, err)
		fs.SetCapacity(fs.Used())
		must(t, l.log.Append(a))
		fs.SetCapacity(0)
	}
	if rolls < 5 {
		t.Fatalf("only %d rolls", rolls)
	}
	if err := l.log.Reserve(segment.BatchMax + 1); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("Reserve of more than a batch and a segment hold: %v", err)
	}
	checkEntries(t, l.log)
	must(t, l.store.Close())
}

// TestAppendSize compares Size with what a batch takes.
func TestAppendSize(t *testing.T) {
	l := mustLife(t, memfs.New(), lifeOptions{seed: 1})
	must(t, l.append(oneEntry(1, 1, 1, 300)))
	body := func(seq uint64, n int) Body {
		ref := segment.BodyRef{Term: 1, Seq: seq}
		return Body{ref, payload(ref, n)}
	}
	for _, a := range []*Append{
		{},
		oneEntry(2, 1, 2, 1),
		{Bodies: []Body{body(3, 0), body(4, 7), body(5, 8), body(6, 9)}},
		{Voids: []Void{{segment.BodyRef{Term: 1, Seq: 9}, 1}}},
		{Truncate: 2, Entries: []segment.Entry{{Index: 2, Term: 2}, {Index: 3, Term: 2, Type: segment.EntryConfChangeV2}}},
	} {
		before := l.log.End()
		must(t, l.append(a))
		if took := l.log.End().Pos - before.Pos; took != a.Size() {
			t.Errorf("%+v takes %d bytes, Size says %d", a, took, a.Size())
		}
	}
	must(t, l.store.Close())
}

// TestFlushedEnd follows an append without entries to the disk: Flushed cannot name it, FlushedEnd does.
func TestFlushedEnd(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{seed: 1})
	must(t, l.append(oneEntry(1, 1, 1, 300)))
	must(t, l.flush())
	ref := segment.BodyRef{Term: 1, Seq: 2}
	must(t, l.append(&Append{Bodies: []Body{{ref, payload(ref, 100)}}}))
	if end := l.log.End(); !l.log.FlushedEnd().Less(end) {
		t.Fatalf("the log ends at %v and is said to be flushed to %v", end, l.log.FlushedEnd())
	}
	must(t, l.flush())
	if end := l.log.End(); l.log.FlushedEnd() != end {
		t.Fatalf("the log ends at %v and is flushed to %v", end, l.log.FlushedEnd())
	}
	fs.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, fs, lifeOptions{seed: 2})
	if !l.log.Retain(ref) {
		t.Fatal("a body whose flush was confirmed is gone")
	}
	must(t, l.store.Close())
}

// TestOpenRef asks for bodies by ref alone, inline and large, appended and not, before and after a
// restart. (W-13)
func TestOpenRef(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{seed: 1})
	ref := func(seq uint64) segment.BodyRef { return segment.BodyRef{Term: 1, Seq: seq} }
	small, empty := commitOf(ref(1), 300, false), commitOf(ref(2), 0, false)
	large, apart := commitOf(ref(3), 150_000, true), commitOf(ref(4), 80_000, true)
	write := func(c segment.Commit) *BodyFile {
		f, err := l.log.NewBody(c.Ref, c.Length)
		must(t, err)
		_, err = f.Write(payload(c.Ref, int(c.Length)))
		must(t, err)
		must(t, f.Finish(c.Digest))
		return f
	}
	f := write(large)
	if _, err := l.log.BodyInfo(large.Ref); !errors.Is(err, ErrAbsent) {
		t.Fatalf("a body that no append has taken: %v", err)
	}
	data := segment.AppendData(nil, []segment.Commit{small, empty, large}, nil)
	must(t, l.append(&Append{
		Bodies:  []Body{{small.Ref, payload(small.Ref, 300)}, {empty.Ref, nil}},
		Large:   []*BodyFile{f},
		Entries: []segment.Entry{{Index: 1, Term: 1, Data: data}},
	}))
	must(t, l.append(&Append{Large: []*BodyFile{write(apart)}})) // as it comes before a snapshot
	must(t, l.flush())
	for range 2 {
		for _, want := range []segment.Commit{small, empty, large, apart} {
			got, err := l.log.BodyInfo(want.Ref)
			must(t, err)
			if got != want {
				t.Errorf("body %v is %+v, want %+v", want.Ref, got, want)
			}
			r, err := l.log.OpenRef(want.Ref)
			must(t, err)
			b := make([]byte, want.Length+1)
			n := 0
			for n < len(b) {
				k, err := r.Read(b[n:])
				n += k
				if err != nil {
					break
				}
			}
			if int64(n) != want.Length || string(b[:n]) != string(payload(want.Ref, n)) {
				t.Errorf("body %v: another content", want.Ref)
			}
			must(t, r.Close())
		}
		if _, err := l.log.OpenRef(ref(9)); !errors.Is(err, ErrAbsent) {
			t.Fatalf("a body that never came: %v", err)
		}
		fs.PowerCut(memfs.KeepNone, nil)
		l = mustLife(t, fs, lifeOptions{seed: 2})
	}
	must(t, l.store.Close())
}
