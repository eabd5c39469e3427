package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

// ruin is one log on a disk that is about to be damaged.
type ruin struct {
	disk    *memfs.FS
	o       lifeOptions
	last    Mark
	promise segment.Position // greatest one on the disk
	entries []segment.Entry
	voided  segment.Entry // the entry that the truncation voids: a log cut before it ends with this one
}

// newRuin makes a log of two sealed segments and an open one, with bodies of all kinds. stop is how
// the last process ends: in order, killed, or with the power.
func newRuin(t testing.TB, stop string) *ruin {
	t.Helper()
	r := &ruin{disk: memfs.New(), o: lifeOptions{segBytes: 4 << 10}}
	l := mustLife(t, r.disk, r.o)
	other, err := l.store.OpenLog(testGroup + 1)
	must(t, err)
	must(t, other.Close())
	ref := segment.BodyRef{Term: 1, Seq: 5000}
	large := commitOf(ref, 66_000, true)
	f, err := l.log.NewBody(ref, large.Length)
	must(t, err)
	_, err = f.Write(payload(ref, int(large.Length)))
	must(t, err)
	must(t, f.Finish(large.Digest))
	data := segment.AppendData(nil, []segment.Commit{large}, []byte("large"))
	must(t, l.append(&Append{Large: []*BodyFile{f}, Entries: []segment.Entry{{Index: 1, Term: 1, Data: data}}}))
	for i := segment.Index(2); i <= 18; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 300)))
		must(t, l.flush())
		must(t, l.jobs())
	}
	before, err := l.log.Entries(18, 19, 1)
	must(t, err)
	r.voided = before[0]
	a := oneEntry(18, 2, 100, 20)
	a.Truncate = 18
	must(t, l.append(a))
	must(t, l.flush())
	r.promise = l.log.safe
	must(t, l.append(oneEntry(19, 2, 101, 40)))
	must(t, l.flush())
	r.last = l.log.Last()
	r.entries, err = l.log.Entries(1, r.last.Index+1, 1<<30)
	must(t, err)
	switch stop {
	case "in order":
		must(t, l.store.Close())
		r.promise = l.log.safe
	case "killed":
		r.disk.Kill()
	case "power cut":
		r.disk.PowerCut(memfs.KeepNone, nil)
	}
	return r
}

// open opens the damaged disk and judges what comes back: never another entry, never another body,
// every error names the damaged file and what to do, the other group opens. It returns the error of
// opening, and how many reads failed.
func (r *ruin) open(disk *memfs.FS, name string) (opened error, bad int, err error) {
	o := r.o
	o.boot = disk.BootID()
	l, opened := openLife(disk, o)
	if opened != nil {
		if err := r.otherGroup(disk); err != nil {
			return opened, 0, err
		}
		return opened, 0, named(opened, name)
	}
	if got := l.log.Last(); got.Index > r.last.Index {
		return nil, 0, fmt.Errorf("the log grew to %+v", got)
	}
	for _, want := range r.entries {
		if want.Index > l.log.Last().Index {
			bad++
			continue
		}
		list, err := l.log.Entries(want.Index, want.Index+1, 1<<30)
		if err != nil {
			bad++
			if err := named(err, name); err != nil {
				return nil, bad, err
			}
			continue
		}
		if l.log.Last() == (Mark{r.voided.Term, r.voided.Index}) && want.Index == r.voided.Index {
			bad++ // cut where nothing says any more that something was flushed behind it
			want = r.voided
		}
		if e := list[0]; e.Index != want.Index || e.Term != want.Term || !bytes.Equal(e.Data, want.Data) {
			return nil, bad, fmt.Errorf("entry %d is another", want.Index)
		}
		err = segment.EachCommit(want.Data, func(c segment.Commit) error {
			err := checkOne(l.log, c)
			if err == nil || errors.Is(err, errOther) {
				return err
			}
			bad++
			return named(err, name)
		})
		if err != nil {
			return nil, bad, err
		}
	}
	return nil, bad, nil
}

func (r *ruin) otherGroup(disk *memfs.FS) error {
	disk.Kill()
	o := r.o
	o.boot = disk.BootID()
	l := &life{}
	root, err := disk.OpenDir("/")
	if err != nil {
		return err
	}
	l.fl = newStepped(root)
	s, err := OpenStore(disk, "/node/data", Options{Flusher: l.fl, Boot: segment.Boot(o.boot)})
	if err != nil {
		return fmt.Errorf("the store: %w", err)
	}
	if _, err := s.OpenLog(testGroup + 1); err != nil {
		return fmt.Errorf("the other group: %w", err)
	}
	return nil
}

var errOther = errors.New("another body")

func checkOne(l *Log, c segment.Commit) error {
	r, err := l.OpenBody(c)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if !bytes.Equal(b, payload(c.Ref, int(c.Length))) {
		return errOther
	}
	return nil
}

// named reports what is wrong with an error about a damaged file.
func named(err error, name string) error {
	text := err.Error()
	switch {
	case !isCorrupt(err) && !isVersion(err):
		return fmt.Errorf("neither corrupt nor another version: %w", err)
	case !strings.Contains(text, name):
		return fmt.Errorf("does not name %s: %w", name, err)
	case !strings.Contains(text, "byte "), !strings.Contains(text, "restore") && !strings.Contains(text, "start a build"):
		return fmt.Errorf("does not say where or what to do: %w", err)
	}
	return nil
}

// TestDamageEveryByte flips one bit in bytes of every segment, after each kind of stop: in every one with
// WEIDA_FULL=1, in every eighth or so without. Below the promise, and anywhere after a stop in order, that
// is never cut off silently.
func TestDamageEveryByte(t *testing.T) {
	hurry(t)
	smallSegments(t, 4<<10)
	for _, stop := range []string{"in order", "killed", "power cut"} {
		t.Run(stop, func(t *testing.T) {
			r := newRuin(t, stop)
			rng := newRand(seedOf(t))
			for n := segment.Number(1); ; n++ {
				name := segmentName(n)
				raw, err := r.disk.Bytes(filepath.Join(testDir, name))
				if err != nil {
					if n < 4 {
						t.Fatalf("only %d segments: %v", n-1, err)
					}
					return
				}
				for off := int64(0); off < int64(len(raw)); off += step(rng) {
					disk := r.disk.Clone()
					must(t, disk.FlipBit(filepath.Join(testDir, name), off, uint(rng.IntN(8))))
					opened, bad, err := r.open(disk, name)
					if err != nil {
						t.Fatalf("%s, byte %d: %v", name, off, err)
					}
					at := segment.Position{Segment: n, Pos: off}
					if opened == nil && bad == 0 && raw[off] != 0 && off < int64(segment.FirstBatch) {
						t.Fatalf("%s: damage at byte %d of the header goes unnoticed", name, off)
					}
					if cut := opened == nil && !isSealed(t, disk, n); cut && bad > 0 && at.Less(r.promise) {
						t.Fatalf("%s: damage at byte %d, below the promise %v, was cut off", name, off, r.promise)
					}
					if opened == nil && stop == "in order" && !isSealed(t, disk, n) {
						t.Fatalf("%s: damage at byte %d after a stop in order was passed over", name, off)
					}
				}
			}
		})
	}
}

func step(rng *rand.Rand) int64 {
	if full() {
		return 1
	}
	return 1 + rng.Int64N(15)
}

func isSealed(t testing.TB, disk *memfs.FS, n segment.Number) bool {
	t.Helper()
	m, _, err := loadManifest(disk, testDir, testGroup)
	must(t, err)
	for _, s := range m.Segments {
		if s.Number == n {
			return s.State == segSealed
		}
	}
	return false
}

// TestDamageFiles cuts every file of the group at many lengths, empties it and removes it.
func TestDamageFiles(t *testing.T) {
	hurry(t)
	smallSegments(t, 4<<10)
	for _, stop := range []string{"in order", "power cut"} {
		t.Run(stop, func(t *testing.T) {
			r := newRuin(t, stop)
			list, err := r.disk.List(testDir)
			must(t, err)
			for _, e := range list {
				path := filepath.Join(testDir, e.Name)
				for i := int64(-1); i < 40; i++ {
					disk := r.disk.Clone()
					var size int64
					if i < 0 {
						must(t, disk.Remove(path))
						size = -1
					} else {
						size = e.Size * i / 40
						must(t, disk.Truncate(path, size))
					}
					opened, bad, err := r.open(disk, e.Name)
					if err != nil {
						t.Fatalf("%s cut to %d of %d bytes: %v", e.Name, size, e.Size, err)
					}
					if opened == nil && bad == 0 && takesSomething(r, disk, e.Name, size) {
						t.Fatalf("%s cut to %d of %d bytes: nobody notices", e.Name, size, e.Size)
					}
				}
			}
		})
	}
}

// takesSomething reports whether cutting the file to size takes something that is not zero, and of which there
// is no second copy.
func takesSomething(r *ruin, disk *memfs.FS, name string, size int64) bool {
	if size < 0 {
		return true
	}
	raw, err := r.disk.Bytes(filepath.Join(testDir, name))
	if err != nil || name == manifestName || name == hardStateName {
		return false
	}
	return !zeros(raw[size:])
}

// TestDamageBelowPromise: what was promised to be flushed is never taken for a torn tail (3c, rule 1).
func TestDamageBelowPromise(t *testing.T) {
	provesRule(t, &off.promise, func() error {
		mem := memfs.New()
		l, err := openDisk(mem)
		if err != nil {
			return err
		}
		for i := segment.Index(1); i < 6; i++ {
			if err := errors.Join(l.appendRange(i, i+1, 1), l.flush()); err != nil {
				return err
			}
		}
		mem.PowerCut(memfs.KeepNone, nil)
		path := filepath.Join(testDir, segmentName(1))
		if err := mem.FlipBit(path, segment.FirstBatch+700, 3); err != nil {
			return err
		}
		if _, err := openDisk(mem); !isCorrupt(err) {
			return fmt.Errorf("opening says: %w", err)
		}
		return nil
	})
}

// A log that was parked promises its last batch too, so that damage there is seen.
func TestDamageOfParkedLog(t *testing.T) {
	mem := memfs.New()
	l := mustLife(t, mem, lifeOptions{})
	must(t, l.appendRange(1, 4, 1))
	end := l.log.lastSeg.Pos
	w := &world{life: l, born: map[Mark]int{{1, 3}: 0}, states: []modelState{{entries: []*modelEntry{
		{mark: Mark{1, 1}}, {mark: Mark{1, 2}}, {mark: Mark{1, 3}},
	}}}}
	must(t, w.park())
	mem.PowerCut(memfs.KeepNone, nil)
	must(t, mem.FlipBit(filepath.Join(testDir, segmentName(1)), end-70, 0))
	if _, err := openDisk(mem); !isCorrupt(err) {
		t.Fatalf("opening says: %v", err)
	}
}
