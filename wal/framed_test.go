package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"slices"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

var bodyRef = segment.BodyRef{Term: 3, Seq: 0xbeef}

// writeBody writes a body to its end; it is closed and not flushed.
func writeBody(b *bench, p []byte) (segment.Commit, error) {
	c := segment.Commit{Ref: bodyRef, Length: int64(len(p)), Digest: segment.DigestOf(p), Large: true}
	f, err := createBody(b.fs, b.fl, benchDir, fileGroup, bodyRef, c.Length, newFixedRand(9))
	if err != nil {
		return c, err
	}
	for part := range slices.Chunk(p, 50_000) {
		if _, err := f.Write(part); err != nil {
			return c, errors.Join(err, f.Abort())
		}
	}
	if err := f.Finish(c.Digest); err != nil {
		return c, errors.Join(err, f.Abort())
	}
	f.handOver()
	return c, f.closeFile()
}

func mustWriteBody(t *testing.T, b *bench, p []byte) segment.Commit {
	t.Helper()
	c, err := writeBody(b, p)
	must(t, err)
	return c
}

// readBody reads a body in one of the two ways.
func readBody(fs fsync.FS, c segment.Commit, whole bool) ([]byte, error) {
	r, err := openBodyFile(fs, benchDir, fileGroup, c)
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

func TestBodyFileRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 65535, 65536, 65537, 131072, 300_001} {
		b := newDisk(t)
		want := content(n, uint64(n))
		c := mustWriteBody(t, b, want)
		must(t, checkBodyFile(b.fs, benchDir, fileGroup, c))
		for _, whole := range []bool{false, true} {
			if got, err := readBody(b.fs, c, whole); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: read %d, %v", n, len(got), err)
			}
		}
		list, err := b.fs.List(benchDir)
		must(t, err)
		if len(list) != 1 || list[0].Name != "0000000000000003-000000000000beef.body" ||
			list[0].Size != framedSize(int64(n)) {
			t.Fatalf("%d bytes: %+v, want a size of %d", n, list, framedSize(int64(n)))
		}
	}
}

// TestBodyFileReadersShare: several readers of one file, each at its own place.
func TestBodyFileReadersShare(t *testing.T) {
	b := newDisk(t)
	want := content(200_000, 1)
	c := mustWriteBody(t, b, want)
	var readers [3]*bodyFileReader
	var got [3][]byte
	for i := range readers {
		r, err := openBodyFile(b.fs, benchDir, fileGroup, c)
		must(t, err)
		readers[i] = r
	}
	buf := make([]byte, 30_000)
	for done := 0; done < len(readers); {
		done = 0
		for i, r := range readers {
			n, err := r.Read(buf[:10_000*(i+1)])
			got[i] = append(got[i], buf[:n]...)
			if errors.Is(err, io.EOF) {
				done++
			} else {
				must(t, err)
			}
		}
	}
	for i, r := range readers {
		must(t, r.Close())
		if !bytes.Equal(got[i], want) {
			t.Errorf("reader %d read %d bytes", i, len(got[i]))
		}
		if _, err := r.Read(buf); !errors.Is(err, io.EOF) && !errors.Is(err, fsync.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	}
}

// TestBodyFileRefuses: what is not as announced leaves nothing behind.
func TestBodyFileRefuses(t *testing.T) {
	want := content(100_000, 1)
	digest := segment.DigestOf(want)
	for name, feed := range map[string]func(*BodyFile) error{
		"short": func(f *BodyFile) error {
			_, err := f.Write(want[:99_999])
			return errors.Join(err, f.Finish(digest))
		},
		"long": func(f *BodyFile) error {
			_, err := f.Write(want)
			if err != nil {
				return err
			}
			_, err = f.Write([]byte{1})
			return err
		},
		"other bytes": func(f *BodyFile) error {
			p := slices.Clone(want)
			p[70_000] ^= 1
			_, err := f.Write(p)
			return errors.Join(err, f.Finish(digest))
		},
	} {
		b := newDisk(t)
		f, err := createBody(b.fs, b.fl, benchDir, fileGroup, bodyRef, int64(len(want)), newFixedRand(1))
		must(t, err)
		err = feed(f)
		if m, ok := errors.AsType[*BodyMismatchError](err); !ok || m.Ref != bodyRef || m.Announced != 100_000 {
			t.Fatalf("%s: %v", name, err)
		}
		mustSay(t, err, "nothing of it is stored", "send it again")
		if again := f.Finish(digest); again == nil {
			t.Errorf("%s: Finish after an error", name)
		}
		must(t, f.Abort())
		must(t, f.Abort())
		if names := namesIn(t, b.fs, benchDir); len(names) != 0 {
			t.Errorf("%s: %v is left", name, names)
		}
	}
}

func TestBodyFileExists(t *testing.T) {
	b := newDisk(t)
	want := content(100, 1)
	c := mustWriteBody(t, b, want)
	_, err := createBody(b.fs, b.fl, benchDir, fileGroup, bodyRef, 100, newFixedRand(1))
	if !errors.Is(err, iofs.ErrExist) {
		t.Fatal(err)
	}
	if got, err := readBody(b.fs, c, true); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
	_, err = createBody(b.fs, b.fl, benchDir, fileGroup, bodyRef, bodyBytesMax+1, newFixedRand(1))
	if !errors.Is(err, fsync.ErrTooLarge) {
		t.Fatal(err)
	}
}

// TestBodyFileDiskFull: the disk is full at every size; nothing stays, and with room it works.
func TestBodyFileDiskFull(t *testing.T) {
	want := content(3<<20, 1)
	for room := int64(0); room < 3<<20+65536; room += 300 << 10 {
		b := newDisk(t)
		b.disk.SetCapacity(b.disk.Used() + room + 4096)
		_, err := writeBody(b, want)
		if !errors.Is(err, fsync.ErrDiskFull) {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
		if names := namesIn(t, b.fs, benchDir); len(names) != 0 {
			t.Fatalf("room for %d bytes: %v is left", room, names)
		}
		b.disk.SetCapacity(0)
		c := mustWriteBody(t, b, want)
		must(t, checkBodyFile(b.fs, benchDir, fileGroup, c))
	}
}

// noWrong asserts that reading gives the content or damage with the file's name: never other bytes, also
// not before the error.
func noWrong(got, want []byte, err error, path string) error {
	switch {
	case err == nil && !bytes.Equal(got, want):
		return fmt.Errorf("%d wrong bytes", len(got))
	case err != nil && !bytes.HasPrefix(want, got):
		return fmt.Errorf("wrong bytes before %w", err)
	case err != nil && len(want) > 0 && len(got) == len(want):
		return fmt.Errorf("the whole content and then %w", err)
	}
	if c, ok := errors.AsType[*segment.CorruptError](err); err != nil && (!ok || c.Path != path) {
		return fmt.Errorf("no damage of %s: %w", path, err)
	}
	return nil
}

// TestBodyFileOneBit flips a bit in every byte of a small body, and in many of one with two frames.
func TestBodyFileOneBit(t *testing.T) {
	path := under(bodyName(bodyRef))
	for n, step := range map[int]int64{0: 1, 300: 1, 70_000: 97} {
		b := newDisk(t)
		want := content(n, 5)
		c := mustWriteBody(t, b, want)
		for off := int64(0); off < framedSize(int64(n)); off += step {
			flip(t, b.disk, path, off)
			got, err := readBody(b.fs, c, off%2 == 0)
			if err == nil {
				t.Fatalf("%d bytes, byte %d: nothing noticed", n, off)
			}
			if err := noWrong(got, want, err, path); err != nil {
				t.Fatalf("%d bytes, byte %d: %v", n, off, err)
			}
			flip(t, b.disk, path, off)
		}
		for size := framedSize(int64(n)) - 1; size >= 0; size -= step {
			must(t, b.disk.Truncate(path, size))
			if err := checkBodyFile(b.fs, benchDir, fileGroup, c); !isCorrupt(err) {
				t.Fatalf("%d bytes, cut to %d: %v", n, size, err)
			}
		}
	}
}

// TestBodyFileOtherFile: a whole file that is not the one meant, and frames of a like one.
func TestBodyFileOtherFile(t *testing.T) {
	b := newDisk(t)
	want := content(200_000, 5)
	c := mustWriteBody(t, b, want)
	for name, change := range map[string]func(*segment.Commit){
		"length": func(c *segment.Commit) { c.Length-- },
		"digest": func(c *segment.Commit) { c.Digest[3]++ },
	} {
		other := c
		change(&other)
		if err := checkBodyFile(b.fs, benchDir, fileGroup, other); !isCorrupt(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkBodyFile(b.fs, benchDir, fileGroup+1, c); !isCorrupt(err) {
		t.Errorf("group: %v", err)
	}
	must(t, b.fs.Rename(under(bodyName(bodyRef)), under(bodyName(segment.BodyRef{Term: 3, Seq: 1}))))
	moved := c
	moved.Ref.Seq = 1
	if err := checkBodyFile(b.fs, benchDir, fileGroup, moved); !isCorrupt(err) {
		t.Errorf("renamed: %v", err)
	}
	path := under(bodyName(moved.Ref))
	must(t, b.disk.Corrupt(path, framedHeadSize, 2*frameStride, func(p []byte) {
		a := slices.Clone(p[:frameStride])
		copy(p, p[frameStride:])
		copy(p[frameStride:], a)
	}))
	r, err := openFramed(b.fs, path, fileGroup, framedSize(c.Length))
	must(t, err)
	if n, err := r.WriteTo(io.Discard); n != 0 || !isCorrupt(err) {
		t.Errorf("two frames exchanged: %d bytes, %v", n, err)
	}
	must(t, r.Close())
}

func TestBodyFileOtherVersion(t *testing.T) {
	for _, pos := range []int64{0, framedHeadSize} {
		b := newDisk(t)
		c := mustWriteBody(t, b, content(500, 1))
		otherVersion(t, b.disk, under(bodyName(bodyRef)), pos)
		if _, err := readBody(b.fs, c, true); !isVersion(err) {
			t.Errorf("record at %d: %v", pos, err)
		}
	}
}

// TestBodyFileCrashAndFaultAtEveryCall: a body whose file and directory were flushed after Finish is
// whole, whatever happens then; one that was not is whole, or not to be opened. Never other bytes.
func TestBodyFileCrashAndFaultAtEveryCall(t *testing.T) {
	if err := bodyFlushed().run(t); err != nil {
		t.Fatal(err)
	}
}

func TestBodyFileNeedsItsFlushes(t *testing.T) {
	bodyFlushed().mustFail(t, func(f *faultfs.FS) { f.IgnoreSync("*.body"); f.IgnoreSyncFS() })
	bodyFlushed().mustFail(t, func(f *faultfs.FS) { f.IgnoreDirSync("data"); f.IgnoreSyncFS() })
}

func bodyFlushed() everyOp {
	want := content(70_000, 8)
	c := segment.Commit{Ref: bodyRef, Length: int64(len(want)), Digest: segment.DigestOf(want), Large: true}
	return everyOp{
		act: func(b *bench) error {
			f, err := createBody(b.fs, b.fl, benchDir, fileGroup, bodyRef, c.Length, newFixedRand(2))
			if err != nil {
				return err
			}
			if _, err = f.Write(want); err == nil {
				err = f.Finish(c.Digest)
			}
			if err != nil {
				return errors.Join(err, f.Abort())
			}
			d, err := b.fs.OpenDir(benchDir)
			if err != nil {
				return err
			}
			if err := b.fl.Flush("log", f.flushTarget(), d); err != nil {
				return err
			}
			b.ack(1)
			f.handOver()
			return f.closeFile()
		},
		check: func(b *bench) error {
			got, err := readBody(b.fs, c, true)
			if b.acked == 0 && isAbsent(err) {
				return nil
			}
			if err := noWrong(got, want, err, under(bodyName(bodyRef))); err != nil {
				return err
			}
			if b.acked == 1 {
				return err
			}
			return nil
		},
	}
}

// TestBodyFileMemory: a body costs its writer and its reader a bounded number of bytes.
func TestBodyFileMemory(t *testing.T) {
	const n = 64 << 20
	b := newDisk(t)
	chunk := content(1<<20, 1)
	h := segment.Hasher{}
	f, err := createBody(b.fs, b.fl, benchDir, fileGroup, bodyRef, n, newFixedRand(1))
	must(t, err)
	for range n / len(chunk) {
		_, err := h.Write(chunk)
		must(t, err)
		_, err = f.Write(chunk)
		must(t, err)
	}
	if held := cap(f.w.content) + cap(f.w.record); held > 3*segment.FrameMax {
		t.Errorf("the writer holds %d bytes", held)
	}
	must(t, f.Finish(h.Sum()))
	f.handOver()
	must(t, f.closeFile())
	b.disk.PowerCut(memfs.KeepAll, nil)
	r, err := openBodyFile(b.fs, benchDir, fileGroup, segment.Commit{Ref: bodyRef, Length: n, Digest: h.Sum()})
	must(t, err)
	got, err := r.WriteTo(io.Discard)
	if err != nil || got != n || cap(r.record) > 2*segment.FrameMax {
		t.Errorf("%d bytes, %v; the reader holds %d", got, err, cap(r.record))
	}
	must(t, r.Close())
}
