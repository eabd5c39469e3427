package wal

import (
	"errors"
	"path/filepath"
	"testing"

	"weida/segment"
)

// A body that is written again, under its ref, is read where it stands now: the damage is needed no more, the segment
// is sealed without it, and the log opens again.
func TestRewrite(t *testing.T) {
	for _, i := range []segment.Index{3, 23, 24} {
		disk, l := newScrubbed(t, 24)
		ref := segment.BodyRef{Term: 1, Seq: uint64(i)}
		path, at := l.find(t, disk, payload(ref, 300))
		must(t, disk.FlipBit(path, at+100, 0))
		before := l.log.Stats()
		must(t, l.log.Rewrite([]Body{{Ref: ref, Payload: payload(ref, 300)}}, nil))
		must(t, l.flush())
		checkEntries(t, l.log)
		if now := l.log.Stats(); now.LiveBodies != before.LiveBodies {
			t.Fatalf("entry %d: %d live bodies, there were %d", i, now.LiveBodies, before.LiveBodies)
		}
		list, _ := scrubAll(t, l.log, 1<<20)
		if len(list) != 1 || list[0].Needed {
			t.Fatalf("entry %d: %+v", i, list)
		}
		must(t, l.grow(25, 60))
		l.log.Release(ref)
		must(t, l.store.Close())
		l = mustLife(t, disk, lifeOptions{segBytes: 4 << 10, seed: 2})
		checkEntries(t, l.log)
		must(t, l.store.Close())
	}
}

// grow appends entries [lo, hi) with a body each, and does what is to be done.
func (l *life) grow(lo, hi segment.Index) error {
	for i := lo; i < hi; i++ {
		if err := errors.Join(l.append(oneEntry(i, 1, uint64(i), 300)), l.flush(), l.jobs()); err != nil {
			return err
		}
		l.log.Retain(segment.BodyRef{Term: 1, Seq: uint64(i)})
	}
	return nil
}

// A segment with a damaged body that is needed is not sealed, for its footer would not know the body; the log goes on,
// and seals it when the body is written again.
func TestFlawedSegmentWaits(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	ref := segment.BodyRef{Term: 1, Seq: 24}
	path, at := l.find(t, disk, payload(ref, 300))
	n, _ := parseSegmentName(filepath.Base(path))
	must(t, disk.FlipBit(path, at+100, 0))
	must(t, l.grow(25, 60))
	if isSealed(t, disk, n) || !l.event(EventPinned) {
		t.Fatal("it is sealed")
	}
	must(t, l.allBut(ref, 59))
	must(t, l.log.Rewrite([]Body{{Ref: ref, Payload: payload(ref, 300)}}, nil))
	must(t, l.flush())
	must(t, l.jobs())
	if !isSealed(t, disk, n) {
		t.Fatal("it is not sealed")
	}
	checkEntries(t, l.log)
	must(t, l.store.Close())
}

// An entry that can't be read is dropped once a snapshot stands for it, though its segment stays.
func TestDropThrough(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	list, err := l.log.Entries(12, 13, 1)
	must(t, err)
	path, at := l.find(t, disk, list[0].Data)
	must(t, disk.FlipBit(path, at+3, 0))
	if _, err := l.log.Entries(10, 15, 1<<20); err != nil {
		t.Fatal("those before it can be read: ", err)
	}
	if _, err := l.log.Entries(12, 15, 1<<20); !isCorrupt(err) {
		t.Fatal(err)
	}
	found, _ := scrubAll(t, l.log, 1<<20)
	if len(found) != 1 || found[0].Kind != DamagedEntry || found[0].Index != 12 || !found[0].Needed {
		t.Fatalf("%+v", found)
	}
	must(t, writeSnapshotAt(l.log, Mark{1, 20}, 100))
	must(t, l.log.Advance())
	l.log.DropThrough(12)
	must(t, l.jobs())
	if l.log.First() != 13 {
		t.Fatalf("the log begins with %d", l.log.First())
	}
	if found, _ = scrubAll(t, l.log, 1<<20); len(found) != 1 || found[0].Needed {
		t.Fatalf("%+v", found)
	}
	checkEntries(t, l.log)
	must(t, l.store.Close())
	l = mustLife(t, disk, lifeOptions{segBytes: 4 << 10, seed: 2})
	checkEntries(t, l.log)
	must(t, l.store.Close())
}

// A segment whose header or footer is damaged goes, with those before it; what is live in them is copied out.
func TestEvict(t *testing.T) {
	disk, l := newScrubbed(t, 40)
	for n, off := range map[segment.Number]int64{2: 20, 3: l.log.segs[2].footer.Pos + 130} {
		path := l.log.segPath(n)
		must(t, disk.FlipBit(path, off, 1))
	}
	found, _ := scrubAll(t, l.log, 1<<20)
	evict := segment.Number(0)
	var again []Body
	for _, d := range found {
		switch {
		case d.Kind == DamagedIndex && d.Needed:
			evict = max(evict, d.Segment)
		case d.Kind == DamagedBody && d.Needed:
			again = append(again, Body{d.Ref, payload(d.Ref, 300)})
		default:
			t.Fatalf("%+v", d)
		}
	}
	if evict != 3 {
		t.Fatalf("%+v", found)
	}
	must(t, l.log.Rewrite(again, nil))
	must(t, writeSnapshotAt(l.log, Mark{1, 38}, 100))
	must(t, l.log.Advance())
	l.log.Evict(evict)
	for range 10 {
		must(t, l.jobs())
		must(t, l.flush())
	}
	if l.log.segs[0].file.Segment <= evict {
		t.Fatalf("segment %d is there", l.log.segs[0].file.Segment)
	}
	if found, _ := scrubAll(t, l.log, 1<<20); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	for i := segment.Index(1); i <= 40; i++ {
		if c := commitOf(segment.BodyRef{Term: 1, Seq: uint64(i)}, 300, false); i != 2 {
			must(t, checkOne(l.log, c))
		}
	}
	must(t, l.store.Close())
}
