package wal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

// shop is a queue over one log: bodies come in, most are settled at once, some stay.
type shop struct {
	*life
	t     testing.TB
	o     lifeOptions
	disk  *memfs.FS
	next  segment.Index
	live  map[segment.BodyRef]int // length of each body that stays
	taken segment.Index           // of the newest snapshot
}

func newShop(t testing.TB, segBytes int64) *shop {
	t.Helper()
	smallSegments(t, segBytes)
	s := &shop{t: t, disk: memfs.New(), o: lifeOptions{seed: 1, segBytes: segBytes}, next: 1}
	s.live = map[segment.BodyRef]int{}
	s.open()
	return s
}

// open opens the log and restores what the snapshot holds, as an owner does.
func (s *shop) open() {
	s.t.Helper()
	s.o.seed++
	s.life = mustLife(s.t, s.disk, s.o)
	for ref := range s.live {
		if !s.log.Retain(ref) {
			s.t.Fatalf("live body %v is not here after opening", ref)
		}
	}
	s.log.Trim()
}

// take appends n messages of size bytes, of which every stay-th stays; 0 for none.
func (s *shop) take(n, size, stay int) {
	s.t.Helper()
	for i := range n {
		must(s.t, s.append(oneEntry(s.next, 1, uint64(s.next), size)))
		if stay > 0 && i%stay == 0 {
			ref := segment.BodyRef{Term: 1, Seq: uint64(s.next)}
			s.log.Retain(ref)
			s.live[ref] = size
		}
		s.next++
	}
	must(s.t, s.flush())
}

// settle makes a snapshot of everything, trims, and does all slow work.
func (s *shop) settle() {
	s.t.Helper()
	must(s.t, s.jobs())
	m := s.log.Flushed()
	if m.Index > s.taken {
		w, err := s.log.NewSnapshot(m)
		must(s.t, err)
		must(s.t, w.Commit())
		must(s.t, s.log.Advance())
		s.taken = m.Index
	}
	s.log.Trim()
	must(s.t, s.jobs())
}

// release settles a body that stayed.
func (s *shop) release(ref segment.BodyRef) {
	s.log.Release(ref)
	delete(s.live, ref)
}

// check reads every body that stays.
func (s *shop) check() {
	s.t.Helper()
	if got := s.log.Stats().LiveBodies; got != int64(len(s.live)) {
		s.t.Errorf("%d live bodies, want %d", got, len(s.live))
	}
	for ref, size := range s.live {
		if got := readAll(s.t, s.log, commitOf(ref, size, false)); !bytes.Equal(got, payload(ref, size)) {
			s.t.Fatalf("body %v is another", ref)
		}
	}
}

func (s *shop) crash() {
	s.t.Helper()
	s.disk.PowerCut(memfs.KeepNone, nil)
	s.open()
}

// TestCompactOneOld: one old message that nobody settles, and then many that are. The disk stays as
// small as a few segments, and the message is there, also after a power cut. WEIDA_RUNS thousand
// messages; the number is 1000.
func TestCompactOneOld(t *testing.T) {
	const segBytes = 32 << 10
	s := newShop(t, segBytes)
	s.take(1, 256, 1)
	var most int64
	for range runsOf(t, 20) {
		for range 10 {
			s.take(100, 256, 0)
			s.settle()
			most = max(most, s.log.Stats().PhysicalBytes)
		}
		s.check()
	}
	if !s.event(EventCompacted) {
		t.Fatal("nothing was compacted")
	}
	if limit := int64(6 * segBytes); most > limit {
		t.Errorf("the group took %d bytes, want at most %d", most, limit)
	}
	t.Logf("%d messages: at most %d bytes on the disk, %d segments made", s.next-1, most, s.log.man.Next-1)
	s.crash()
	s.check()
	ref := segment.BodyRef{Term: 1, Seq: 1}
	s.release(ref)
	s.take(500, 256, 0)
	s.settle()
	if _, err := s.log.OpenRef(ref); !errors.Is(err, ErrAbsent) {
		t.Errorf("a settled body that was copied: %v", err)
	}
	must(t, s.store.Close())
}

// TestCompactBounds: whatever stays where, what a snapshot covers takes at most four times what is live
// in it, and each byte that is copied frees three. A first segment that is all live, with dead ones
// behind it, is the case that a share per segment would miss.
func TestCompactBounds(t *testing.T) {
	const segBytes = 16 << 10
	for name, stays := range map[string][]int{
		"one in forty":       {40, 40, 40, 40},
		"first all, no more": {1, 0, 0, 0, 0, 0, 0, 0},
		"none, then all":     {0, 0, 1},
		"by turns":           {1, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, segBytes)
			for _, stay := range stays {
				s.take(80, 256, stay)
			}
			s.settle()
			s.check()
			var live, total int64
			for i, g := range s.log.segs {
				if !s.log.covered(g) {
					break
				}
				total += g.end + g.footer.Size
				live += g.live * segment.SizeOf(16+256)
				if total > compactShare*live {
					t.Errorf("%d segments take %d bytes, of which %d are live", i+1, total, live)
				}
			}
			s.crash()
			s.check()
			for ref := range s.live {
				s.release(ref)
			}
			s.take(1, 256, 0)
			s.settle()
			if n := s.log.Stats().Segments; n > 4 {
				t.Errorf("%d segments are left when all is settled", n)
			}
			must(t, s.store.Close())
		})
	}
}

// TestCompactDamage damages a live body before it is copied: it is not copied, its segment stays, and
// reading it says so. Other live bodies of the segment are still there.
func TestCompactDamage(t *testing.T) {
	if err := compactDamaged(t); err != nil {
		t.Fatal(err)
	}
	off.copyVerify = true
	defer func() { off.copyVerify = false }()
	if compactDamaged(t) == nil {
		t.Fatal("a damaged body was copied unverified and nobody noticed")
	}
}

func compactDamaged(t *testing.T) error {
	s := newShop(t, 16<<10)
	s.take(41, 256, 20)
	s.take(200, 256, 0)
	must(t, s.jobs())
	ref := segment.BodyRef{Term: 1, Seq: 21}
	row := s.place(ref)
	must(t, s.disk.FlipBit(s.log.segPath(s.log.segs[0].file.Segment), row.Pos+segment.HeaderSize+100, 1))
	s.settle()
	_, err := s.log.OpenRef(ref)
	if !isCorrupt(err) {
		return errors.Join(errors.New("a damaged body is not called corrupt"), err)
	}
	if n := s.log.segs[0].file.Segment; n != 1 || !s.event(EventPinned) {
		t.Errorf("the log begins with segment %d: %+v", n, s.events)
	}
	s.release(ref)
	s.take(1, 256, 0)
	s.settle()
	if n := s.log.segs[0].file.Segment; n == 1 {
		t.Error("the segment stays although the damaged body was settled")
	}
	s.check()
	must(t, s.store.Close())
	return nil
}

// place finds the record of a body in the sealed segment that holds it.
func (s *shop) place(ref segment.BodyRef) segment.Row {
	s.t.Helper()
	s.log.mu.Lock()
	g, err := s.log.holderLocked(ref)
	s.log.mu.Unlock()
	must(s.t, err)
	h, err := s.log.acquire(g)
	must(s.t, err)
	defer s.log.release(h)
	row, ok, err := segment.FindBody(h.f, g.footer, ref)
	must(s.t, err)
	if !ok {
		s.t.Fatalf("body %v is not in segment %d", ref, g.file.Segment)
	}
	return row
}

// TestCompactCrashEverywhere crashes a compaction before every call that changes the disk and in the
// middle of every write, in every way, and recoveries of these likewise (WEIDA_FULL=1: all); it is a step of the script
// of the crash suite, so that live bodies of all kinds and what may have been settled are known. (D-1; field
// case 13: rabbitmq-server 13390)
func TestCompactCrashEverywhere(t *testing.T) {
	hurry(t)
	smallSegments(t, 16<<10)
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			seed := seedOf(t)
			w := newWorld(memfs.New(), lifeOptions{seed: seed, strategy: strategy, segBytes: 16 << 10})
			s := &suite{w: w, rng: newRand(seed + 1), fail: func(err error) { t.Error(err) }}
			s.second = min(25, secondCrash())
			tap := &tapFS{inner: w.mem}
			w.fs = tap
			must(t, runScript(w, "aba"+strings.Repeat("a", 50)+"bafcVal"+strings.Repeat("a", 30)+"Rfcs"))
			segs := len(w.log.segs)
			tap.tap = func(op string, mids []mid) {
				s.fork(op, mids)
				s.stop = t.Failed()
			}
			must(t, w.step('T'))
			tap.tap = nil
			s.fork("the end", nil)
			if !w.event(EventCompacted) || len(w.log.segs) >= segs || len(w.held) == 0 || s.forks < 15 {
				t.Fatalf("%d forks, %d of %d segments left, %d live bodies: %+v",
					s.forks, len(w.log.segs), segs, len(w.held), w.events)
			}
			t.Logf("seed %d: %d live bodies, %d forks, %d recoveries", seed, len(w.held), s.forks, s.opens)
		})
	}
}

// TestCompactAwaited: a body that no entry names yet is copied too, and the entry may still come.
func TestCompactAwaited(t *testing.T) {
	s := newShop(t, 16<<10)
	c := commitOf(segment.BodyRef{Term: 2, Seq: 1}, 200, false)
	must(t, s.append(&Append{Bodies: []Body{{c.Ref, payload(c.Ref, 200)}}}))
	for range 3 {
		s.take(150, 256, 0)
		s.settle()
	}
	if n := s.log.Stats().Segments; n > 3 || !s.event(EventCompacted) {
		t.Fatalf("%d segments: %+v", n, s.events)
	}
	data := segment.AppendData(nil, []segment.Commit{c}, nil)
	must(t, s.append(&Append{Entries: []segment.Entry{{Index: s.next, Term: 2, Data: data}}}))
	s.next++
	s.log.Retain(c.Ref)
	s.live[c.Ref] = 200
	must(t, s.flush())
	s.settle()
	s.crash()
	s.check()
	must(t, s.store.Close())
}

// TestCompactKeepsReservation: copies take nothing of what was reserved.
func TestCompactKeepsReservation(t *testing.T) {
	s := newShop(t, 512<<10)
	s.take(2, 60_000, 1)
	s.take(40, 60_000, 0)
	must(t, s.jobs())
	w, err := s.log.NewSnapshot(s.log.Flushed())
	must(t, err)
	must(t, w.Commit())
	s.log.Trim()
	var j *Job
	for j = s.log.Job(); j.Kind != JobCompact; j = s.log.Job() {
		must(t, j.Run())
		must(t, s.log.Advance())
	}
	must(t, j.Run())
	a := oneEntry(s.next, 1, uint64(s.next), 50_000)
	for err = s.log.Reserve(a.Size()); errors.Is(err, ErrNotReady); err = s.log.Reserve(a.Size()) {
		must(t, s.jobs())
	}
	must(t, err)
	s.disk.SetCapacity(s.disk.Used())
	must(t, s.log.Advance())
	must(t, s.log.Append(a))
	s.disk.SetCapacity(0)
	s.next++
	s.log.Trim()
	s.settle()
	s.check()
	if !s.event(EventCompacted) {
		t.Error("nothing was compacted when there was room again")
	}
	must(t, s.store.Close())
}

// TestCompactThenOlderSnapshot damages the newest snapshot behind a compaction: the older one stands in,
// and an entry behind it names a body whose only copy stands behind the entry.
func TestCompactThenOlderSnapshot(t *testing.T) {
	s := newShop(t, 16<<10)
	c := commitOf(segment.BodyRef{Term: 1, Seq: 7000}, 200, false)
	must(t, s.append(&Append{Bodies: []Body{{c.Ref, payload(c.Ref, 200)}}}))
	s.take(70, 256, 0) // the body stands in the first segment, the entry in the third
	must(t, s.jobs())
	older := s.log.Flushed()
	w, err := s.log.NewSnapshot(older)
	must(t, err)
	must(t, w.Commit())
	data := segment.AppendData(nil, []segment.Commit{c}, nil)
	must(t, s.append(&Append{Entries: []segment.Entry{{Index: s.next, Term: 1, Data: data}}}))
	s.next++
	s.log.Retain(c.Ref)
	s.live[c.Ref] = 200
	must(t, s.flush())
	s.settle()
	if first := s.log.segs[0].file.Segment; first == 1 || s.log.man.Dropped.Upto.Index > older.Index {
		t.Fatalf("the log begins with segment %d, dropped up to %+v", first, s.log.man.Dropped.Upto)
	}
	must(t, s.disk.FlipBit(s.log.dir+"/"+snapshotName(s.taken), 100, 1))
	s.crash()
	if got := s.log.Recovered().Snapshot; got != older {
		t.Fatalf("snapshot %+v, want %+v", got, older)
	}
	s.check()
	must(t, s.store.Close())
}

// TestCompactDiskFull: copies that find no room are given up, the log goes on and asks for nothing more,
// and the next trim begins again.
func TestCompactDiskFull(t *testing.T) {
	s := newShop(t, 16<<10)
	s.take(1, 12_000, 1)
	s.take(200, 256, 0)
	must(t, s.jobs())
	for s.log.cur.end < 5000 || s.log.cur.end > 7000 || len(s.log.ready) > 0 {
		s.take(1, 256, 0) // until the copy needs the next segment, and none is made ahead yet
		must(t, s.jobs())
	}
	w, err := s.log.NewSnapshot(s.log.Flushed())
	must(t, err)
	must(t, w.Commit())
	must(t, s.log.Advance())
	s.taken = s.log.Flushed().Index
	s.log.Trim()
	s.disk.SetCapacity(s.disk.Used())
	failed := 0
	for range 100 {
		j := s.log.Job()
		if j == nil {
			break
		}
		if err := j.Run(); errors.Is(err, fsync.ErrDiskFull) {
			failed++
		} else {
			must(t, err)
		}
		must(t, s.log.Advance())
	}
	if j := s.log.Job(); j != nil || failed == 0 || !s.event(EventDiskFull) {
		t.Fatalf("still wants a job (%v) after %d that failed: %+v", j, failed, s.events)
	}
	s.check()
	s.disk.SetCapacity(0)
	s.settle()
	if n := s.log.Stats().Segments; n > 3 {
		t.Errorf("%d segments when there is room again", n)
	}
	s.crash()
	s.check()
	must(t, s.store.Close())
}
