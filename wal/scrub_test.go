package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// newScrubbed is an open log with sealed segments, one that is appended to, a large body and two snapshots; what is
// not settled is retained. Bodies are 1.1 to 1.n, one an entry, the large one is 1.5000.
func newScrubbed(t testing.TB, n segment.Index) (*memfs.FS, *life) {
	t.Helper()
	disk := memfs.New()
	return disk, newScrubbedOn(t, disk, disk.BootID(), n)
}

// newScrubbedOn is that on a file system that may fail.
func newScrubbedOn(t testing.TB, fs fsync.FS, boot [16]byte, n segment.Index) *life {
	t.Helper()
	smallSegments(t, 4<<10)
	l, err := openLife(fs, lifeOptions{segBytes: 4 << 10, boot: boot})
	must(t, err)
	large := commitOf(segment.BodyRef{Term: 1, Seq: 5000}, 150_000, true)
	for i := segment.Index(1); i <= n; i++ {
		a := oneEntry(i, 1, uint64(i), 300)
		if i == 2 {
			f, err := l.log.NewBody(large.Ref, large.Length)
			must(t, err)
			_, err = f.Write(payload(large.Ref, int(large.Length)))
			must(t, err)
			must(t, f.Finish(large.Digest))
			data := segment.AppendData(nil, []segment.Commit{large}, nil)
			a = &Append{Large: []*BodyFile{f}, Entries: []segment.Entry{{Index: i, Term: 1, Data: data}}}
		}
		must(t, l.append(a))
		must(t, l.flush())
		must(t, l.jobs())
		l.log.Retain(a.ref(t))
		if i == 5 || i == 7 {
			must(t, writeSnapshotAt(l.log, Mark{1, i}, 200_000))
		}
	}
	must(t, l.log.Advance())
	return l
}

func (a *Append) ref(t testing.TB) segment.BodyRef {
	list, _, err := segment.ParseData(a.Entries[0].Data)
	must(t, err)
	return list[0].Ref
}

func writeSnapshotAt(l *Log, m Mark, n int) error {
	w, err := l.NewSnapshot(m)
	if err != nil {
		return err
	}
	if _, err := w.Write(noise[:n]); err != nil {
		return err
	}
	return w.Commit()
}

// scrubAll runs one whole scrub in steps of limit bytes.
func scrubAll(t testing.TB, l *Log, limit int64) (list []Damage, bytes int64) {
	t.Helper()
	s := l.NewScrub(func(d Damage) { list = append(list, d) })
	for range 1 << 20 {
		n, done, err := s.Step(limit)
		must(t, err)
		if bytes += n; done {
			return list, bytes
		}
		if n > limit+scrubWindow {
			t.Fatalf("a step of %d bytes read %d", limit, n)
		}
	}
	t.Fatal("the scrub comes to no end")
	return nil, 0
}

// Wherever a byte of a file of the log is damaged, a scrub of the open log names the file and the record.
func TestScrubFindsDamage(t *testing.T) {
	disk, l := newScrubbed(t, 24)
	if list, n := scrubAll(t, l.log, 1); len(list) > 0 || n < 300_000 {
		t.Fatalf("a sound log: %+v after %d bytes", list, n)
	}
	kinds := map[DamageKind]int{}
	files, err := disk.List(testDir)
	must(t, err)
	for _, e := range files {
		path := filepath.Join(testDir, e.Name)
		raw, err := disk.Bytes(path)
		must(t, err)
		end := int64(len(raw))
		n, isSegment := parseSegmentName(e.Name)
		stride := int64(1)
		if isSegment {
			end, stride = scrubbedEnd(l.log, n), 5
		} else if end > 16<<10 {
			stride = 997
		}
		if e.Name == manifestName || e.Name == hardStateName {
			stride = 7
		}
		first, thin := sparse(t, 4)
		for off := int64(len(e.Name)%3) + first; off < end; off += stride * thin {
			if stride == 7 && raw[off] == 0 {
				continue // between the copies
			}
			must(t, disk.FlipBit(path, off, uint(off%8)))
			list, _ := scrubAll(t, l.log, 1<<20)
			if len(list) == 0 {
				t.Fatalf("%s, byte %d of %d: not noticed", e.Name, off, end)
			}
			for _, d := range list {
				kinds[d.Kind]++
				if d.Path != path || d.Pos > off || d.Err == nil || (d.Segment != 0) != isSegment {
					t.Fatalf("%s, byte %d: %+v", e.Name, off, d)
				}
			}
			must(t, disk.FlipBit(path, off, uint(off%8)))
		}
	}
	if list, _ := scrubAll(t, l.log, 1<<20); len(list) > 0 {
		t.Fatalf("everything is whole again: %+v", list)
	}
	t.Log(kinds)
	for _, k := range []DamageKind{
		DamagedBody, DamagedLarge, DamagedEntry, DamagedFraming, DamagedIndex, DamagedSnapshot, DamagedSmall,
	} {
		if kinds[k] == 0 {
			t.Errorf("no damage of the kind %s was found", k)
		}
	}
	must(t, l.store.Close())
}

// scrubbedEnd is where what is written in a segment ends.
func scrubbedEnd(l *Log, n segment.Number) int64 {
	for _, s := range l.segs {
		if s.file.Segment == n {
			return s.end + s.footer.Size
		}
	}
	return 0
}

// A damaged body is named by its ref, with the entry that names it and what that says, in a sealed segment and in the
// one that is appended to; no other body and no entry is lost by it.
func TestDamagedBodyIsAlone(t *testing.T) {
	provesRule(t, &off.passOver, func() error {
		disk, l := newScrubbed(t, 24)
		for _, i := range []segment.Index{3, 23} {
			ref := segment.BodyRef{Term: 1, Seq: uint64(i)}
			path, at := l.find(t, disk, payload(ref, 300))
			if err := disk.FlipBit(path, at+100, 0); err != nil {
				return err
			}
			list, _ := scrubAll(t, l.log, 4096)
			want := Damage{
				Kind: DamagedBody, Path: path, Pos: at - segment.HeaderSize - 16, Segment: list[0].Segment, Ref: ref, Index: i,
				Commit: commitOf(ref, 300, false), Needed: true, Err: list[0].Err,
			}
			if got := list[0]; len(list) != 1 || got.Kind != want.Kind || got.Ref != ref || !got.Needed {
				return fmt.Errorf("entry %d: %+v", i, list)
			} else if got != want && i == 3 {
				return fmt.Errorf("entry %d: %+v, want %+v", i, got, want)
			}
			if err := l.allBut(ref, 24); err != nil {
				return err
			}
			must(t, disk.FlipBit(path, at+100, 0))
		}
		return nil
	})
}

// find looks for bytes in the segments.
func (l *life) find(t testing.TB, disk *memfs.FS, what []byte) (path string, at int64) {
	t.Helper()
	for _, s := range l.log.segs {
		path := l.log.segPath(s.file.Segment)
		raw, err := disk.Bytes(path)
		must(t, err)
		if at := bytes.Index(raw, what); at >= 0 {
			return path, int64(at)
		}
	}
	t.Fatal("no segment holds it")
	return "", 0
}

// allBut reads every entry, and every body but that of ref, which has to be refused.
func (l *life) allBut(ref segment.BodyRef, n segment.Index) error {
	for i := segment.Index(1); i <= n; {
		list, err := l.log.Entries(i, n+1, 1<<20)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		i += segment.Index(len(list))
		for _, e := range list {
			err := segment.EachCommit(e.Data, func(c segment.Commit) error {
				err := checkOne(l.log, c)
				if c.Ref == ref {
					if !isCorrupt(err) {
						return fmt.Errorf("the damaged body %v: %w", ref, err)
					}
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// While a log is appended to, rolled, sealed and trimmed, a scrub of it finds nothing.
func TestScrubBesideAppends(t *testing.T) {
	_, l := newScrubbed(t, 10)
	next := segment.Index(11)
	for round := range 40 {
		s := l.log.NewScrub(func(d Damage) { t.Fatalf("round %d: %+v", round, d) })
		for done := false; !done; {
			a := oneEntry(next, 1, uint64(next), 200+round)
			must(t, l.append(a))
			l.log.Retain(a.ref(t))
			if next > 30 {
				l.log.Release(segment.BodyRef{Term: 1, Seq: uint64(next - 20)})
			}
			next++
			if next%7 == 0 {
				must(t, l.flush())
			}
			if next%100 == 0 {
				must(t, writeSnapshotAt(l.log, l.log.Last(), 1000))
				l.log.Trim()
			}
			must(t, l.jobs())
			var err error
			if _, done, err = s.Step(5000); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, l.store.Close())
}

// What can't be read is damage too: it is named record by record, and what stands beside it is looked at.
func TestScrubReadErrors(t *testing.T) {
	disk := memfs.New()
	fs := faultfs.New(disk)
	l := newScrubbedOn(t, fs, disk.BootID(), 24)
	once, gone := l.log.segPath(1), l.log.segPath(2)
	fs.Fail(faultfs.Match{Op: faultfs.OpRead, Path: once}, 2, 1, syscall.EIO) // behind the header
	list, _ := scrubAll(t, l.log, 1<<20)
	if len(list) != 1 || list[0].Kind != DamagedFraming || list[0].Path != once || !errors.Is(list[0].Err, syscall.EIO) {
		t.Fatalf("one reading of many records failed, and each can be read: %+v", list)
	}
	fs.Fail(faultfs.Match{Op: faultfs.OpRead, Path: gone}, 1, -1, syscall.EIO)
	list, _ = scrubAll(t, l.log, 1<<20)
	bodies := 0
	for _, d := range list {
		if d.Path != gone || d.Err == nil {
			t.Fatalf("%+v", d)
		}
		if d.Kind == DamagedBody && d.Needed {
			bodies++
		}
	}
	if int64(bodies) != l.log.segs[1].live {
		t.Fatalf("%d bodies of %d are told of: %+v", bodies, l.log.segs[1].live, list)
	}
	must(t, l.store.Close())
}

// A scrub of a log that is closed ends with the reason.
func TestScrubOfClosedLog(t *testing.T) {
	_, l := newScrubbed(t, 10)
	s := l.log.NewScrub(func(d Damage) { t.Errorf("%+v", d) })
	_, _, err := s.Step(1)
	must(t, err)
	must(t, l.store.Close())
	if _, _, err := s.Step(1 << 20); !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
	s.Close()
}
