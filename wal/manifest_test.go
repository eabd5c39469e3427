package wal

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

const fileGroup segment.GroupID = 12

// exampleManifest uses every field.
func exampleManifest() manifest {
	return manifest{
		Seq: 41, Next: 9,
		Segments: []segInfo{
			{
				Number: 5, Salt: 0x1111, State: segSealed, Base: 100, Size: 70000, FooterPos: 65000,
				Last: Mark{Term: 3, Index: 220}, FirstRef: segment.BodyRef{Term: 2, Seq: 8},
				LastRef: segment.BodyRef{Term: 3, Seq: 99}, Bodies: 77, Chain: 0xabcdef, Named: 218, Large: 2, Payload: 5000,
			},
			{Number: 7, Salt: 0x2222, Base: 221, Limit: 4096},
			{Number: 8, Salt: 0x3333, Base: 230},
		},
		Dropped: dropInfo{Upto: Mark{Term: 2, Index: 99}, Commit: 210, Chain: 0x77},
		Snapshots: []snapInfo{
			{Mark: Mark{Term: 2, Index: 99}, Size: 500, Salt: 4, Length: 900, Digest: segment.Digest{1, 2}},
			{Mark: Mark{Term: 3, Index: 205}, Size: 501, Salt: 5, Length: 901, Digest: segment.Digest{3}},
		},
		Compactions: []compactInfo{{From: 5, To: 8}},
		Promise:     segment.Position{Segment: 7, Pos: 4096},
	}
}

func newDisk(t *testing.T) *bench {
	t.Helper()
	disk := memfs.New()
	b, err := newBench(disk, disk, fsync.Files)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustSaveManifest(t *testing.T, b *bench, m manifest) {
	t.Helper()
	if err := saveManifest(b.fs, b.fl, benchDir, fileGroup, &m); err != nil {
		t.Fatal(err)
	}
}

func TestManifestRoundTrip(t *testing.T) {
	b := newDisk(t)
	if _, _, err := loadManifest(b.fs, benchDir, fileGroup); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatalf("absent: %v", err)
	}
	want := exampleManifest()
	mustSaveManifest(t, b, want)
	want.Seq++
	got, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
	if err != nil || repaired {
		t.Fatal(err, repaired)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if _, _, err := loadManifest(b.fs, benchDir, fileGroup+1); !isCorrupt(err) {
		t.Fatalf("another group's manifest was taken: %v", err)
	}
}

// saveManifests saves three manifests, one after the other.
func saveManifests() everyOp {
	save := func(b *bench, seq uint64) error {
		m := exampleManifest()
		m.Seq, m.Promise.Pos = seq-1, int64(seq)*8
		return saveManifest(b.fs, b.fl, benchDir, fileGroup, &m)
	}
	return everyOp{
		setup: func(b *bench) error { return save(b, 1) },
		act: func(b *bench) error {
			for n := b.acked; n < 3; n++ {
				if err := save(b, uint64(n+2)); err != nil {
					return err
				}
				b.ack(n + 1)
			}
			return nil
		},
		retry: true,
		check: func(b *bench) error {
			m, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
			if err != nil {
				return err
			}
			if n := int(m.Seq) - 1; repaired || n < b.acked || n > b.acked+1 || m.Promise.Pos != int64(m.Seq)*8 {
				return fmt.Errorf("manifest %d after %d was saved (repaired %v)", m.Seq, b.acked+1, repaired)
			}
			return save(b, m.Seq+1) // whatever was left does not stand in the way
		},
	}
}

func TestManifestCrashAndFaultAtEveryCall(t *testing.T) {
	if err := saveManifests().run(t); err != nil {
		t.Fatal(err)
	}
}

func TestManifestNeedsItsFlushes(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		saveManifests().mustFail(t, func(f *faultfs.FS) { f.IgnoreSync("manifest.tmp"); f.IgnoreSyncFS() })
	})
	t.Run("directory", func(t *testing.T) {
		saveManifests().mustFail(t, func(f *faultfs.FS) { f.IgnoreDirSync("data"); f.IgnoreSyncFS() })
	})
}

// TestManifestOneBit flips a bit in every byte: the other copy stands in, and the damage is reported.
func TestManifestOneBit(t *testing.T) {
	b := newDisk(t)
	mustSaveManifest(t, b, exampleManifest())
	want, _, err := loadManifest(b.fs, benchDir, fileGroup)
	if err != nil {
		t.Fatal(err)
	}
	path := under(manifestName)
	whole, err := b.disk.Bytes(path)
	if err != nil {
		t.Fatal(err)
	}
	for off := range int64(len(whole)) {
		flip(t, b.disk, path, off)
		got, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
		if err != nil || !repaired || !cmp.Equal(want, got) {
			t.Fatalf("byte %d: repaired %v, %v", off, repaired, err)
		}
		flip(t, b.disk, path, off)
	}
}

func flip(t *testing.T, disk *memfs.FS, path string, off int64) {
	t.Helper()
	if err := disk.FlipBit(path, off, uint(off%8)); err != nil {
		t.Fatal(err)
	}
}

// TestManifestBothCopies damages both copies in the same place.
func TestManifestBothCopies(t *testing.T) {
	b := newDisk(t)
	mustSaveManifest(t, b, exampleManifest())
	path := under(manifestName)
	whole, err := b.disk.Bytes(path)
	if err != nil {
		t.Fatal(err)
	}
	half := int64(len(whole) / 2)
	m := exampleManifest()
	record := segment.SizeOf(len(encodeManifest(&m)))
	for off := range half {
		flip(t, b.disk, path, off)
		flip(t, b.disk, path, off+half)
		_, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
		switch behind := off >= record; {
		case behind && (err != nil || !repaired), !behind && !isCorrupt(err):
			t.Fatalf("byte %d: repaired %v, %v", off, repaired, err)
		case off == 0:
			mustSay(t, err, path, "at byte 0", "nothing was cut or deleted", "restore the whole directory")
		}
		flip(t, b.disk, path, off)
		flip(t, b.disk, path, off+half)
	}
}

func TestManifestCutShortOrGrown(t *testing.T) {
	b := newDisk(t)
	mustSaveManifest(t, b, exampleManifest())
	path := under(manifestName)
	whole, err := b.disk.Bytes(path)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := loadManifest(b.fs, benchDir, fileGroup)
	record := segment.SizeOf(len(encodeManifest(&want)))
	for n := int64(len(whole)) - 1; n >= 0; n-- {
		if err := b.disk.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
		got, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
		switch {
		case n >= record && (err != nil || !repaired || !cmp.Equal(want, got)):
			t.Fatalf("cut to %d bytes: repaired %v, %v", n, repaired, err)
		case n < record && !isCorrupt(err):
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	b = newDisk(t)
	mustSaveManifest(t, b, exampleManifest())
	f, err := b.fs.Open(path, fsync.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, int64(len(whole))+100); err != nil {
		t.Fatal(err)
	}
	got, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
	if err != nil || !repaired || !cmp.Equal(want, got) {
		t.Fatalf("grown: repaired %v, %v", repaired, err)
	}
}

// TestManifestUnreadableCopy lets the disk refuse to read one copy.
func TestManifestUnreadableCopy(t *testing.T) {
	b := newDisk(t)
	mustSaveManifest(t, b, exampleManifest())
	for nth := 1; nth <= 2; nth++ {
		f := faultfs.New(b.disk)
		f.Fail(faultfs.Match{Op: faultfs.OpRead}, nth, 1, errBroken)
		m, repaired, err := loadManifest(f, benchDir, fileGroup)
		if err != nil || !repaired || m.Seq != 42 {
			t.Fatalf("read %d: repaired %v, %v", nth, repaired, err)
		}
	}
	f := faultfs.New(b.disk)
	f.Fail(faultfs.Match{Op: faultfs.OpRead}, 1, -1, errBroken)
	if _, _, err := loadManifest(f, benchDir, fileGroup); !errors.Is(err, errBroken) || isCorrupt(err) {
		t.Fatalf("an unreadable disk is called %v", err)
	}
}

// otherVersion makes a record one of format version 2 in a way that version 1 can't verify.
func otherVersion(t *testing.T, disk *memfs.FS, path string, pos int64) {
	t.Helper()
	err := disk.Corrupt(path, pos, segment.HeaderSize, func(p []byte) {
		p[4] = 2
		p[48] ^= 0xff
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestManifestOtherVersion(t *testing.T) {
	b := newDisk(t)
	mustSaveManifest(t, b, exampleManifest())
	path := under(manifestName)
	whole, err := b.disk.Bytes(path)
	if err != nil {
		t.Fatal(err)
	}
	otherVersion(t, b.disk, path, 0)
	otherVersion(t, b.disk, path, int64(len(whole)/2))
	_, _, err = loadManifest(b.fs, benchDir, fileGroup)
	if v, ok := errors.AsType[*segment.VersionError](err); !ok || v.Got != 2 || v.Want != 1 {
		t.Fatal(err)
	}
	mustSay(t, err, path, "format version 2", "start a build that knows it")
}

// TestManifestFlaws: a record that verifies and says what can't be.
func TestManifestFlaws(t *testing.T) {
	for name, spoil := range map[string]func(*manifest){
		"order":     func(m *manifest) { m.Segments[1].Number = 5 },
		"next":      func(m *manifest) { m.Next = 8 },
		"no next":   func(m *manifest) { *m = manifest{} },
		"state":     func(m *manifest) { m.Segments[0].State = 2 },
		"negative":  func(m *manifest) { m.Segments[0].Size = -1 },
		"snapshots": func(m *manifest) { m.Snapshots[1].Mark.Index = 99 },
		"snap size": func(m *manifest) { m.Snapshots[1].Size = -1 },
		"promise":   func(m *manifest) { m.Promise.Segment = 9 },
		"no commit": func(m *manifest) { m.Dropped.Commit = 98 },
	} {
		m := exampleManifest()
		spoil(&m)
		if _, cause := decodeManifest(encodeManifest(&m)); cause == "" {
			t.Errorf("%s: taken", name)
		}
	}
	m := exampleManifest()
	body := encodeManifest(&m)
	for n := range body {
		if _, cause := decodeManifest(body[:n]); cause == "" {
			t.Errorf("cut to %d bytes: taken", n)
		}
	}
}
