package wal

import (
	"bytes"
	"errors"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

// The log comes back after a stop in order, a kill and a power cut (D-1, D-3).
func TestAppendReadReopen(t *testing.T) {
	smallSegments(t, 8<<10)
	fs := memfs.New()
	o := lifeOptions{segBytes: 8 << 10}
	l := mustLife(t, fs, o)
	for i := segment.Index(1); i <= 100; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 300)))
		if i%7 == 0 {
			must(t, l.flush())
		}
	}
	if got := l.log.Flushed().Index; got != 98 {
		t.Fatalf("flushed %d, want 98", got)
	}
	must(t, l.jobs())
	checkEntries(t, l.log)
	if !l.event(EventSegmentSealed) {
		t.Fatal("nothing was sealed")
	}
	for _, clean := range []bool{true, false} {
		if clean {
			must(t, l.store.Close())
		} else {
			fs.Kill()
		}
		l = mustLife(t, fs, o)
		if l.log.Last() != (Mark{1, 100}) || l.log.Flushed() != (Mark{1, 100}) || l.log.First() != 1 {
			t.Fatalf("clean %v: recovered %+v", clean, l.log.Recovered())
		}
		checkEntries(t, l.log)
	}
	must(t, l.append(oneEntry(101, 2, 1, 10)))
	must(t, l.flush())
	fs.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, fs, o)
	if l.log.Last() != (Mark{2, 101}) {
		t.Fatalf("recovered %+v", l.log.Recovered())
	}
	checkEntries(t, l.log)
}

// What is opened is flushed, and says so: also where the last batch is in a sealed segment, and the open one is empty
// (checked in every openLife).
func TestEndOfASealedLog(t *testing.T) {
	smallSegments(t, 8<<10)
	fs := memfs.New()
	o := lifeOptions{segBytes: 8 << 10}
	l := mustLife(t, fs, o)
	empty := 0
	for i := segment.Index(1); i <= 60; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 1200)))
		must(t, l.flush())
		if err := l.log.Reserve(6 << 10); err != nil && !errors.Is(err, ErrNotReady) { // most of a segment: it rolls
			t.Fatal(err)
		}
		must(t, l.jobs())
		fs.Kill()
		l = mustLife(t, fs, o)
		if open := l.log.man.Segments; open[len(open)-1].State != segSealed && l.log.cur != nil &&
			l.log.cur.end == segment.FirstBatch {
			empty++
		}
	}
	if empty == 0 {
		t.Error("no segment was open and empty")
	}
}

// A truncation removes a suffix, across segments and openings, and leaves no hole (W-6).
func TestTruncate(t *testing.T) {
	smallSegments(t, 8<<10)
	fs := memfs.New()
	o := lifeOptions{segBytes: 8 << 10}
	l := mustLife(t, fs, o)
	for i := segment.Index(1); i <= 60; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 300)))
	}
	must(t, l.flush())
	a := oneEntry(20, 3, 1, 50)
	a.Truncate = 20
	must(t, l.append(a))
	if l.log.Flushed() != (Mark{1, 19}) {
		t.Fatalf("flushed %+v after the truncation", l.log.Flushed())
	}
	for i := segment.Index(21); i <= 30; i++ {
		must(t, l.append(oneEntry(i, 3, uint64(i), 300)))
	}
	b := oneEntry(25, 4, 1, 50)
	b.Truncate = 25
	must(t, l.append(b))
	must(t, l.jobs())
	check := func() {
		t.Helper()
		checkEntries(t, l.log)
		for i, want := range map[segment.Index]segment.Term{19: 1, 20: 3, 24: 3, 25: 4} {
			if got, err := l.log.Term(i); err != nil || got != want {
				t.Fatalf("Term(%d) = %d, %v; want %d", i, got, err, want)
			}
		}
		if _, err := l.log.Entries(1, 27, 1); !errors.Is(err, ErrAbsent) {
			t.Fatalf("void entry: %v", err)
		}
	}
	check()
	// Bodies of void entries stay.
	c := commitOf(segment.BodyRef{Term: 1, Seq: 40}, 300, false)
	if got := readAll(t, l.log, c); !bytes.Equal(got, payload(c.Ref, 300)) {
		t.Fatal("the body of a void entry is another")
	}
	fs.Kill()
	l = mustLife(t, fs, o)
	check()
	must(t, l.store.Close())
	l = mustLife(t, fs, o)
	check()
}

// A trim removes a prefix only, keeps what is live, and survives a crash (W-8).
func TestLargeTrimSnapshotPark(t *testing.T) {
	smallSegments(t, 8<<10)
	fs := memfs.New()
	o := lifeOptions{segBytes: 8 << 10}
	l := mustLife(t, fs, o)
	ref := segment.BodyRef{Term: 1, Seq: 1000}
	const n = 200_000
	f, err := l.log.NewBody(ref, n)
	must(t, err)
	_, err = f.Write(payload(ref, n))
	must(t, err)
	c := commitOf(ref, n, true)
	must(t, f.Finish(c.Digest))
	must(t, l.append(&Append{
		Large:   []*BodyFile{f},
		Entries: []segment.Entry{{Index: 1, Term: 1, Data: segment.AppendData(nil, []segment.Commit{c}, nil)}},
	}))
	l.log.Retain(ref)
	for i := segment.Index(2); i <= 100; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 300)))
		l.log.Retain(segment.BodyRef{Term: 1, Seq: uint64(i)})
	}
	must(t, l.flush())
	must(t, l.jobs())
	w, err := l.log.NewSnapshot(Mark{1, 80})
	must(t, err)
	_, err = w.Write([]byte("state"))
	must(t, err)
	must(t, w.Commit())
	before := l.log.Stats()
	l.log.Trim()
	must(t, l.jobs())
	if got := l.log.Stats(); got.Segments != before.Segments {
		t.Fatalf("live bodies were trimmed: %+v", got)
	}
	l.log.Release(ref)
	for i := uint64(2); i <= 80; i++ {
		l.log.Release(segment.BodyRef{Term: 1, Seq: i})
	}
	l.log.Trim()
	must(t, l.jobs())
	after := l.log.Stats()
	if after.Segments >= before.Segments || after.LargeBytes != 0 || l.log.First() < 50 || l.log.First() > 81 {
		t.Fatalf("after the trim: %+v, first %d", after, l.log.First())
	}
	if _, err := l.log.OpenBody(c); !errors.Is(err, ErrAbsent) {
		t.Fatalf("trimmed body: %v", err)
	}
	if _, err := l.log.Entries(1, 3, 1); !errors.Is(err, ErrTrimmed) {
		t.Fatalf("trimmed entry: %v", err)
	}
	checkEntries(t, l.log)
	for range 10 {
		if err = l.log.Park(); err == nil {
			break
		}
		for l.fl.Step() {
		}
	}
	must(t, err)
	checkEntries(t, l.log)
	first := l.log.First()
	fs.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, fs, o)
	if l.log.First() != first || l.log.Recovered().Snapshot != (Mark{1, 80}) || l.log.Recovered().Commit < 80 {
		t.Fatalf("recovered %+v", l.log.Recovered())
	}
	checkEntries(t, l.log)
}

// An idle log says which of its entries are committed, also the last one, for which no later batch does (B-230.2).
func TestParkedLogKnowsWhatIsCommitted(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{})
	park := func() {
		t.Helper()
		var err error
		for range 10 {
			if err = l.log.Park(); err == nil {
				return
			}
			for l.fl.Step() {
			}
		}
		t.Fatal(err)
	}
	for i := segment.Index(1); i <= 3; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 10)))
		l.log.Committed(i - 1)
	}
	park()
	l.log.Committed(3) // it was parked already
	park()
	fs.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, fs, lifeOptions{})
	if got := l.log.Recovered(); got.Commit != 3 {
		t.Fatalf("recovered %+v", got)
	}
}

// A snapshot that contradicts the log takes its place.
func TestSnapshotReplacesLog(t *testing.T) {
	for _, mark := range []Mark{{5, 50}, {3, 15}} {
		fs := memfs.New()
		o := lifeOptions{}
		l := mustLife(t, fs, o)
		for i := segment.Index(1); i <= 20; i++ {
			must(t, l.append(oneEntry(i, 1, uint64(i), 30)))
		}
		must(t, l.flush())
		w, err := l.log.NewSnapshot(mark)
		must(t, err)
		must(t, w.Commit())
		must(t, l.log.Advance())
		check := func(last Mark) {
			t.Helper()
			if l.log.Last() != last || l.log.First() != mark.Index+1 || l.log.Flushed().Index > last.Index {
				t.Fatalf("last %+v first %d, want %+v behind %+v", l.log.Last(), l.log.First(), last, mark)
			}
			checkEntries(t, l.log)
		}
		check(mark)
		fs.PowerCut(memfs.KeepNone, nil)
		l = mustLife(t, fs, o)
		check(mark)
		for i := segment.Index(1); i <= 5; i++ {
			must(t, l.append(oneEntry(mark.Index+i, 7, uint64(i), 30)))
		}
		check(Mark{7, mark.Index + 5})
		must(t, l.flush())
		fs.PowerCut(memfs.KeepNone, nil)
		l = mustLife(t, fs, o)
		check(Mark{7, mark.Index + 5})
		must(t, l.store.Close())
		l = mustLife(t, fs, o)
		check(Mark{7, mark.Index + 5})
	}
}

// A log that holds nothing still names its end, and a range that is not empty gives one entry at least
// (W-2, W-7).
func TestEntriesBounds(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{})
	if l.log.Last() != (Mark{}) || l.log.First() != 1 {
		t.Fatalf("an empty log: last %+v, first %d", l.log.Last(), l.log.First())
	}
	must(t, l.append(&Append{Entries: []segment.Entry{{Index: 1, Term: 1}}}))
	must(t, l.appendRange(2, 11, 1))
	for _, tt := range []struct {
		lo, limit segment.Index
		bytes     int64
		want      int
	}{{1, 11, 0, 1}, {1, 11, 1 << 30, 10}, {2, 11, 0, 1}, {5, 5, 9, 0}, {2, 5, 2 * 60, 2}, {10, 11, 0, 1}} {
		list, err := l.log.Entries(tt.lo, tt.limit, tt.bytes)
		must(t, err)
		if len(list) != tt.want || tt.want > 0 && list[0].Index != tt.lo {
			t.Errorf("Entries(%d, %d, %d) gave %d entries, want %d", tt.lo, tt.limit, tt.bytes, len(list), tt.want)
		}
	}
	if _, err := l.log.Term(11); !errors.Is(err, ErrAbsent) {
		t.Errorf("Term(11): %v", err)
	}
}

// A failed flush ends its own log and no other: that one stays readable, the others go on (T-30, T-58).
func TestPoisonIsOneGroups(t *testing.T) {
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{})
	other, err := l.store.OpenLog(testGroup + 1)
	must(t, err)
	sick, well := l.log, &life{fl: l.fl, log: other}
	must(t, l.appendRange(1, 4, 1))
	must(t, l.flush())
	must(t, well.appendRange(1, 4, 1))
	must(t, l.append(oneEntry(4, 1, 4, 10)))
	must(t, fs.FailWriteback("/node/data/groups/7/"+segmentName(1)))
	sick.RequestFlush()
	must(t, well.flush())
	if err := sick.Advance(); !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("the sick log says %v", err)
	}
	if got := other.Flushed(); got != (Mark{1, 3}) {
		t.Fatalf("the other log flushed %+v", got)
	}
	if got := sick.Flushed(); got != (Mark{1, 3}) {
		t.Fatalf("the sick log flushed %+v", got)
	}
	checkEntries(t, sick)
	for _, err := range []error{
		sick.Append(oneEntry(5, 1, 5, 1)), sick.SetHardState(HardState{Term: 9}), sick.Park(), sick.Close(),
	} {
		if !errors.Is(err, fsync.ErrPoisoned) {
			t.Errorf("a poisoned log answers %v", err)
		}
	}
	if !l.event(EventLogPoisoned) {
		t.Error("no event tells of it")
	}
	must(t, well.appendRange(4, 8, 1))
	must(t, well.flush())
	checkEntries(t, other)
}
