package wal

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/segment"
)

var snapMark = Mark{Term: 4, Index: 900}

func writeSnapshot(b *bench, p []byte) (info snapInfo, err error) {
	w, err := newSnapshot(b.fs, b.fl, benchDir, fileGroup, snapMark, newFixedRand(byte(len(p))))
	if err != nil {
		return info, err
	}
	w.onCommit = func(i snapInfo) error { info = i; return nil }
	for part := range slices.Chunk(p, 10_000) {
		if _, err := w.Write(part); err != nil {
			return info, errors.Join(err, w.Abort())
		}
	}
	return info, w.Commit()
}

func mustWriteSnapshot(t *testing.T, b *bench, p []byte) snapInfo {
	t.Helper()
	info, err := writeSnapshot(b, p)
	must(t, err)
	return info
}

func readSnapshot(fs fsync.FS, info snapInfo, whole bool) ([]byte, error) {
	r, err := openSnapshot(fs, benchDir, fileGroup, info)
	if err != nil {
		return nil, err
	}
	var got bytes.Buffer
	if whole {
		_, err = r.WriteTo(&got)
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{r}, make([]byte, 777))
	}
	return got.Bytes(), errors.Join(err, r.Close())
}

// compressible is content that zstd makes much smaller.
func compressible(n int) []byte {
	return []byte(strings.Repeat("offset, subscription, attempt; ", n/31+1))[:n]
}

func TestSnapshotRoundTrip(t *testing.T) {
	for _, want := range [][]byte{nil, {7}, content(65536, 1), content(500_000, 1), compressible(3 << 20)} {
		b := newDisk(t)
		info := mustWriteSnapshot(t, b, want)
		if info.Mark != snapMark || info.Length != int64(len(want)) {
			t.Fatalf("%+v", info)
		}
		for _, whole := range []bool{false, true} {
			if got, err := readSnapshot(b.fs, info, whole); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: read %d, %v", len(want), len(got), err)
			}
		}
		if names := namesIn(t, b.fs, benchDir); !slices.Equal(names, []string{"00000000000000000900.snap"}) {
			t.Fatal(names)
		}
		r, err := openSnapshot(b.fs, benchDir, fileGroup, info)
		must(t, err)
		if r.Mark() != snapMark || r.Length() != int64(len(want)) {
			t.Fatalf("mark %+v, length %d", r.Mark(), r.Length())
		}
		must(t, r.Close())
	}
}

// TestSnapshotStartsNoGoroutine: the package has none, and the compressor must not bring its own.
func TestSnapshotStartsNoGoroutine(t *testing.T) {
	b := newDisk(t)
	before := runtime.NumGoroutine()
	w, err := newSnapshot(b.fs, b.fl, benchDir, fileGroup, snapMark, newFixedRand(1))
	must(t, err)
	var info snapInfo
	w.onCommit = func(i snapInfo) error { info = i; return nil }
	_, err = w.Write(compressible(4 << 20))
	must(t, err)
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("writing: %d goroutines more", n-before)
	}
	must(t, w.Commit())
	r, err := openSnapshot(b.fs, benchDir, fileGroup, info)
	must(t, err)
	_, err = r.Read(make([]byte, 2<<20))
	must(t, err)
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("reading: %d goroutines more", n-before)
	}
	must(t, r.Close())
}

func TestSnapshotAbort(t *testing.T) {
	b := newDisk(t)
	w, err := newSnapshot(b.fs, b.fl, benchDir, fileGroup, snapMark, newFixedRand(1))
	must(t, err)
	_, err = w.Write(content(200_000, 1))
	must(t, err)
	must(t, w.Abort())
	must(t, w.Abort())
	if names := namesIn(t, b.fs, benchDir); len(names) != 0 {
		t.Fatal(names)
	}
}

// TestSnapshotDiskFull: nothing stays, the error says what it means, and with room it works.
func TestSnapshotDiskFull(t *testing.T) {
	want := content(2<<20, 1)
	for room := int64(0); room < 2<<20; room += 300 << 10 {
		b := newDisk(t)
		b.disk.SetCapacity(b.disk.Used() + room + 4096)
		_, err := writeSnapshot(b, want)
		if !harmless(err) {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
		mustSay(t, err, "index 900", "the log is complete without it")
		if names := namesIn(t, b.fs, benchDir); len(names) != 0 {
			t.Fatalf("room for %d bytes: %v is left", room, names)
		}
		b.disk.SetCapacity(0)
		mustWriteSnapshot(t, b, want)
	}
}

// TestSnapshotNotNamed: the disk is full when the manifest is to name it. The file goes too.
func TestSnapshotNotNamed(t *testing.T) {
	b := newDisk(t)
	w, err := newSnapshot(b.fs, b.fl, benchDir, fileGroup, snapMark, newFixedRand(1))
	must(t, err)
	w.onCommit = func(snapInfo) error { return fsync.NewError("write", "manifest.tmp", fsync.ErrDiskFull) }
	_, err = w.Write([]byte("state"))
	must(t, err)
	if err := w.Commit(); !harmless(err) {
		t.Fatal(err)
	}
	if names := namesIn(t, b.fs, benchDir); len(names) != 0 {
		t.Fatal(names)
	}
}

// TestSnapshotOneBit flips a bit in every byte of a small snapshot, in many of a larger one, and cuts
// them at every length.
func TestSnapshotOneBit(t *testing.T) {
	path := under(snapshotName(snapMark.Index))
	for n, step := range map[int]int64{0: 1, 200: 1, 150_000: 149} {
		b := newDisk(t)
		want := content(n, 5)
		info := mustWriteSnapshot(t, b, want)
		for off := int64(0); off < info.Size; off += step {
			flip(t, b.disk, path, off)
			got, err := readSnapshot(b.fs, info, off%2 == 0)
			if err == nil {
				t.Fatalf("%d bytes, byte %d: nothing noticed", n, off)
			}
			if err := noWrong(got, want, err, path); err != nil {
				t.Fatalf("%d bytes, byte %d: %v", n, off, err)
			}
			flip(t, b.disk, path, off)
		}
		for size := info.Size - 1; size >= 0; size -= step {
			must(t, b.disk.Truncate(path, size))
			if _, err := readSnapshot(b.fs, info, true); !isCorrupt(err) {
				t.Fatalf("%d bytes, cut to %d: %v", n, size, err)
			}
		}
	}
}

// TestSnapshotIsTheOneNamed: a whole snapshot that the manifest does not mean is refused.
func TestSnapshotIsTheOneNamed(t *testing.T) {
	b := newDisk(t)
	info := mustWriteSnapshot(t, b, content(1000, 1))
	for name, change := range map[string]func(*snapInfo){
		"term":   func(i *snapInfo) { i.Mark.Term++ },
		"size":   func(i *snapInfo) { i.Size += 8 },
		"salt":   func(i *snapInfo) { i.Salt++ },
		"length": func(i *snapInfo) { i.Length-- },
		"digest": func(i *snapInfo) { i.Digest[0]++ },
		"absent": func(i *snapInfo) { i.Mark.Index++ },
	} {
		other := info
		change(&other)
		if _, err := openSnapshot(b.fs, benchDir, fileGroup, other); !isCorrupt(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	otherVersion(t, b.disk, under(snapshotName(snapMark.Index)), 0)
	if _, err := openSnapshot(b.fs, benchDir, fileGroup, info); !isVersion(err) {
		t.Errorf("version: %v", err)
	}
}

// brokenSink fails after some bytes.
type brokenSink struct{ left int }

func (w *brokenSink) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, errBroken
	}
	return n, nil
}

// TestSnapshotSinkError: an error of the one who reads is not damage of the snapshot.
func TestSnapshotSinkError(t *testing.T) {
	b := newDisk(t)
	info := mustWriteSnapshot(t, b, content(100_000, 1))
	r, err := openSnapshot(b.fs, benchDir, fileGroup, info)
	must(t, err)
	if _, err := r.WriteTo(&brokenSink{left: 70_000}); !errors.Is(err, errBroken) || isCorrupt(err) {
		t.Fatal(err)
	}
	must(t, r.Close())
}

// replaceSnapshot writes a snapshot, names it in a manifest and writes a second, longer one.
func replaceSnapshot() everyOp {
	first, second := content(70_000, 1), content(90_000, 2)
	mark := func(n int) Mark { return Mark{Term: 4, Index: segment.Index(900 + n)} }
	save := func(b *bench, n int, p []byte) error {
		w, err := newSnapshot(b.fs, b.fl, benchDir, fileGroup, mark(n), newFixedRand(byte(n)))
		if err != nil {
			return err
		}
		w.onCommit = func(info snapInfo) error {
			m, _, err := loadManifest(b.fs, benchDir, fileGroup)
			if isAbsent(err) {
				m, err = manifest{Next: 1}, nil
			}
			if err != nil {
				return err
			}
			m.Snapshots = append(m.Snapshots, info)
			return saveManifest(b.fs, b.fl, benchDir, fileGroup, &m)
		}
		if _, err := w.Write(p); err != nil {
			return errors.Join(err, w.Abort())
		}
		return w.Commit()
	}
	return everyOp{
		setup: func(b *bench) error { return save(b, 0, first) },
		act: func(b *bench) error {
			if err := save(b, 1, second); err != nil {
				return err
			}
			b.ack(1)
			return nil
		},
		check: func(b *bench) error {
			m, _, err := loadManifest(b.fs, benchDir, fileGroup)
			if err != nil {
				return err
			}
			if len(m.Snapshots) < 1+b.acked {
				return errors.New("the snapshot is not named")
			}
			for i, info := range m.Snapshots {
				got, err := readSnapshot(b.fs, info, true)
				if err != nil {
					return err
				}
				if want := [][]byte{first, second}[i]; !bytes.Equal(got, want) {
					return errors.New("another content")
				}
			}
			if len(m.Snapshots) == 1 { // nothing stands in the way of taking it again
				return save(b, 1, second)
			}
			return nil
		},
	}
}

func TestSnapshotCrashAndFaultAtEveryCall(t *testing.T) {
	if err := replaceSnapshot().run(t); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotNeedsItsFlushes(t *testing.T) {
	op := replaceSnapshot()
	op.mustFail(t, func(f *faultfs.FS) { f.IgnoreSync("*.snap.tmp"); f.IgnoreSyncFS() })
	op.mustFail(t, func(f *faultfs.FS) { f.IgnoreDirSync("data"); f.IgnoreSyncFS() })
}
