package wal

import (
	"errors"
	iofs "io/fs"
	"path/filepath"
	"testing"

	"weida/fsync/memfs"
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
		must(t, l.log.Rewrite([]Body{{Ref: ref, Payload: payload(ref, 300)}}))
		must(t, l.flush())
		checkEntries(t, l.log)
		if now := l.log.Stats(); now.LiveBodies != before.LiveBodies {
			t.Fatalf("entry %d: %d live bodies, there were %d", i, now.LiveBodies, before.LiveBodies)
		}
		list, _ := scrubAll(t, l.log, 1<<20)
		if len(list) != 1 || list[0].Needed && list[0].Kind != DamagedFraming { // the open segment is not left yet
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
	must(t, l.log.Rewrite([]Body{{Ref: ref, Payload: payload(ref, 300)}}))
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
	must(t, l.log.Rewrite(again))
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

// A damaged large body is replaced by one that came again: the damaged file is put aside, and nothing of the rest
// changes.
func TestReplaceLarge(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	c := commitOf(segment.BodyRef{Term: 1, Seq: 5000}, 150_000, true)
	path := filepath.Join(testDir, bodyName(c.Ref))
	must(t, disk.FlipBit(path, 100_000, 3))
	found, _ := scrubAll(t, l.log, 1<<20)
	if len(found) != 1 || found[0].Kind != DamagedLarge || found[0].Index != 2 || !found[0].Needed {
		t.Fatalf("%+v", found)
	}
	if _, err := l.log.NewBody(c.Ref, c.Length); !errors.Is(err, iofs.ErrExist) {
		t.Fatal(err)
	}
	before := l.log.Stats()
	for range 2 { // the first one is given up
		if !l.log.MarkDamaged(c.Ref) {
			t.Fatal("it is not here")
		}
		f, err := l.log.NewBody(c.Ref, c.Length)
		must(t, err)
		_, err = f.Write(payload(c.Ref, int(c.Length)))
		must(t, err)
		if f.Digest() != c.Digest && len(found) > 0 {
			found = nil
			must(t, f.Abort())
			continue
		}
		must(t, f.Finish(c.Digest))
		must(t, l.log.Replace(f))
	}
	must(t, l.flush())
	if found, _ := scrubAll(t, l.log, 1<<20); len(found) > 0 || l.log.Stats() != before || !l.event(EventQuarantined) {
		t.Fatalf("%+v; %+v, before it was %+v", found, l.log.Stats(), before)
	}
	checkEntries(t, l.log)
	disk.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, disk, lifeOptions{segBytes: 4 << 10, seed: 2})
	checkEntries(t, l.log)
	must(t, l.store.Close())
}

// Manifest and hard state are written anew from memory, however much of them is damaged.
func TestMendSmall(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	must(t, l.log.SetHardState(HardState{Term: 9, Vote: 4}))
	for _, off := range []int64{20, blockBytes + 20, 2*blockBytes + 20, 3*blockBytes + 20} {
		must(t, disk.FlipBit(filepath.Join(testDir, hardStateName), off, 1))
	}
	for _, off := range []int64{20, blockBytes + 20} {
		must(t, disk.FlipBit(filepath.Join(testDir, manifestName), off, 1))
	}
	if found, _ := scrubAll(t, l.log, 1<<20); len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	l.log.MendSmall()
	must(t, l.jobs())
	if found, _ := scrubAll(t, l.log, 1<<20); len(found) != 0 {
		t.Fatalf("%+v", found)
	}
	disk.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, disk, lifeOptions{segBytes: 4 << 10, seed: 2})
	if l.log.HardState() != (HardState{Term: 9, Vote: 4}) {
		t.Fatalf("%+v", l.log.HardState())
	}
	checkEntries(t, l.log)
	must(t, l.store.Close())
}

// A log leaves the segment in which something is damaged, which is sealed without it and opens again.
func TestLeaveDamagedSegment(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	n := l.log.cur.file.Segment
	must(t, disk.FlipBit(l.log.segPath(n), segment.FirstBatch+20, 1)) // the head of a batch: nothing is lost by it
	list, err := l.log.Entries(22, 23, 1)
	must(t, err)
	path, at := l.find(t, disk, list[0].Data)
	must(t, disk.FlipBit(path, at-24-segment.HeaderSize+20, 0)) // the head of entry 22
	found, _ := scrubAll(t, l.log, 1<<20)
	for _, d := range found {
		framing := d.Kind == DamagedFraming && d.Pos == segment.FirstBatch
		behind := d.Index >= 22 || d.Index == 0 && d.Ref.Seq > 22
		if !framing && (!d.Needed || d.Segment != n || !behind) {
			t.Fatalf("%+v", d)
		}
	}
	ref := segment.BodyRef{Term: 1, Seq: 24}
	if l.log.Leave(n) {
		t.Fatal("it has left it already")
	}
	must(t, l.log.Rewrite([]Body{{Ref: ref, Payload: payload(ref, 300)}}))
	must(t, l.flush())
	must(t, l.jobs())
	if !l.log.Leave(n) {
		t.Fatal("it has not left it")
	}
	if l.log.HasSegment(n, true) {
		t.Fatal("sealed, though entries in it can't be found")
	}
	must(t, writeSnapshotAt(l.log, Mark{1, 24}, 100))
	must(t, l.log.Advance())
	l.log.DropThrough(24)
	must(t, l.jobs())
	for _, i := range []uint64{21, 22, 23} { // they stand behind it
		if ref := (segment.BodyRef{Term: 1, Seq: i}); checkOne(l.log, commitOf(ref, 300, false)) != nil {
			must(t, l.log.Rewrite([]Body{{Ref: ref, Payload: payload(ref, 300)}}))
		}
	}
	must(t, l.flush())
	must(t, l.jobs())
	if !l.log.HasSegment(n, true) {
		t.Fatal("it is not sealed")
	}
	must(t, l.store.Close())
	l = mustLife(t, disk, lifeOptions{segBytes: 4 << 10, seed: 2})
	checkEntries(t, l.log)
	for i := uint64(1); i <= 24; i++ {
		if i != 2 {
			must(t, checkOne(l.log, commitOf(segment.BodyRef{Term: 1, Seq: i}, 300, false)))
		}
	}
	must(t, l.store.Close())
}

// A damaged snapshot is written again where it is, if nothing new happened since; the damaged file is put aside.
func TestRetakeSnapshot(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	path := filepath.Join(testDir, snapshotName(7))
	must(t, disk.FlipBit(path, 1000, 1))
	found, _ := scrubAll(t, l.log, 1<<20)
	if len(found) != 1 || found[0].Kind != DamagedSnapshot || found[0].Index != 7 || !found[0].Needed {
		t.Fatalf("%+v", found)
	}
	if err := writeSnapshotAt(l.log, Mark{1, 7}, 200_000); !errors.Is(err, ErrSurpassed) {
		t.Fatal(err)
	}
	l.log.RetakeSnapshot(7)
	must(t, writeSnapshotAt(l.log, Mark{1, 7}, 200_000))
	must(t, l.log.Advance())
	if err := writeSnapshotAt(l.log, Mark{1, 7}, 200_000); !errors.Is(err, ErrSurpassed) {
		t.Fatal(err)
	}
	if found, _ := scrubAll(t, l.log, 1<<20); len(found) > 0 || !l.event(EventQuarantined) {
		t.Fatalf("%+v", found)
	}
	disk.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, disk, lifeOptions{segBytes: 4 << 10, seed: 2})
	if l.log.Recovered().Snapshot.Index != 7 || l.event(EventSnapshotPassed) {
		t.Fatalf("%+v", l.log.Recovered())
	}
	checkEntries(t, l.log)
	must(t, l.store.Close())
}
