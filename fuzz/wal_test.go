package fuzz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// These targets put files with fuzzed content into a data directory and open it as a node does and as
// the inspection commands do. Records are sealed with right checksums where a target says so, because
// random bytes would never get past those: what is tested is what damage can't reach, a writer with a
// defect or a hostile hand can.

const (
	fuzzDir   = "/node"
	fuzzGroup = segment.GroupID(7)
	fuzzPath  = fuzzDir + "/groups/7"
)

var le = binary.LittleEndian

// fuzzDisk is a disk with a data directory and one group, closed in order.
func fuzzDisk(t testing.TB) *memfs.FS {
	disk := memfs.New()
	s, done := openFuzz(t, disk)
	l, err := s.OpenLog(fuzzGroup)
	if err == nil {
		err = l.SetHardState(wal.HardState{Term: 3, Vote: 2})
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	done()
	disk.Kill()
	return disk
}

// chaff is the source of randomness of a fuzzed store: the same in every run.
func chaff() io.Reader { return rand.NewChaCha8([32]byte{1}) }

func openFuzz(t testing.TB, disk *memfs.FS) (*wal.Store, func()) {
	t.Helper()
	if err := fsync.MkdirAll(disk, fuzzDir); err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenDir(fuzzDir)
	if err != nil {
		t.Fatal(err)
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root})
	s, err := wal.OpenStore(disk, fuzzDir, wal.Options{Flusher: fl, Boot: disk.BootID(), Rand: chaff()})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() { _ = fl.Close() }
}

// put replaces a file.
func put(t testing.TB, disk *memfs.FS, path string, data []byte) {
	t.Helper()
	if err := disk.Remove(path); err != nil && !bytes.Contains([]byte(err.Error()), []byte("no such file")) {
		t.Fatal(err)
	}
	f, err := disk.Create(path)
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// seal returns the record that stands at pos of a file with the salt, filled up with zeros to n bytes.
func seal(salt segment.Salt, pos int64, k segment.Kind, c segment.Chain, body []byte, n int64) ([]byte, segment.Chain) {
	rec, next := segment.AppendRecord(nil, segment.File{Group: fuzzGroup, Salt: salt}, pos, k, c, body)
	return append(rec, make([]byte, max(0, n-int64(len(rec))))...), next
}

// twin returns a file that holds one record in two copies.
func twin(k segment.Kind, body []byte) []byte {
	const block = 4096
	half := (segment.SizeOf(len(body)) + block - 1) / block * block
	a, _ := seal(segment.Salt(k), 0, k, 0, body, half)
	b, _ := seal(segment.Salt(k), half, k, 0, body, half)
	return append(a, b...)
}

// look opens the group in every way there is and closes it. An error must be one of a kind that says
// what it is; nothing may panic. use gets the log if it opened.
func look(t *testing.T, disk *memfs.FS, use func(*wal.Log)) {
	t.Helper()
	typed := func(what string, err error) {
		var corrupt *segment.CorruptError
		var version *segment.VersionError
		if err != nil && !errors.As(err, &corrupt) && !errors.As(err, &version) {
			t.Errorf("%s: %v", what, err)
		}
	}
	typed("dump", wal.DumpGroup(disk, fuzzDir, fuzzGroup, func(l wal.DumpLine) error {
		_ = fmt.Sprint(l)
		return nil
	}))
	_, err := wal.VerifyGroup(disk, fuzzDir, fuzzGroup, func(f wal.Finding) {
		if f.Err == nil || f.Path == "" {
			t.Errorf("%+v", f)
		}
	})
	typed("verify", err)
	_, err = wal.StatGroup(disk, fuzzDir, fuzzGroup)
	typed("stat", err)
	s, done := openFuzz(t, disk)
	defer done()
	l, err := s.OpenLog(fuzzGroup)
	typed("open", err)
	if err == nil {
		use(l)
		_ = l.Close()
	}
	_ = s.Abandon()
}

// FuzzManifest seals any bytes as a manifest.
func FuzzManifest(f *testing.F) {
	disk := fuzzDisk(f)
	good, err := disk.Bytes(filepath.Join(fuzzPath, "manifest"))
	if err != nil {
		f.Fatal(err)
	}
	n := le.Uint32(good[8:])
	f.Add(good[segment.HeaderSize : segment.HeaderSize+n])
	f.Add(manifestBody(2, 3, row(1, 144), row(2, 144)))
	f.Add(manifestBody(9, 1, row(8, 144)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 1<<16 {
			return
		}
		disk := disk.Clone()
		put(t, disk, filepath.Join(fuzzPath, "manifest"), twin(segment.KindManifest, body))
		look(t, disk, func(l *wal.Log) { _ = l.Last() })
	})
}

// manifestBody is the head of a manifest and rows as they come: of segments if segments is not 0, else
// of snapshots.
func manifestBody(next, segments uint64, rows ...[]byte) []byte {
	b := make([]byte, 80)
	le.PutUint64(b, 1)
	le.PutUint64(b[8:], next)
	le.PutUint32(b[64:], uint32(segments))
	if segments == 0 {
		le.PutUint32(b[68:], uint32(len(rows)))
	}
	return append(b, bytes.Join(rows, nil)...)
}

func row(number uint64, size int) []byte {
	b := make([]byte, size)
	le.PutUint64(b, number)
	return b
}

// FuzzHardState fills the four blocks with any bytes, of which those that flags names are sealed. A
// state that is read must be one that was sealed.
func FuzzHardState(f *testing.F) {
	disk := fuzzDisk(f)
	whole := make([]byte, 0, 128)
	for _, seq := range []uint64{4, 4, 3, 3} {
		for _, v := range []uint64{seq, seq + 10, 1, seq} {
			whole = le.AppendUint64(whole, v)
		}
	}
	f.Add(whole, byte(15), uint16(0), byte(0))
	f.Add(whole, byte(12), uint16(0), byte(0))
	f.Add(whole, byte(15), uint16(60), byte(1))
	f.Add([]byte{}, byte(0), uint16(0), byte(0))
	f.Fuzz(func(t *testing.T, bodies []byte, flags byte, at uint16, flip byte) {
		const block, size = 4096, 32
		data := make([]byte, 4*block)
		sealed := map[wal.HardState]bool{}
		for i := range 4 {
			body := make([]byte, size)
			if len(bodies) > i*size {
				copy(body, bodies[i*size:])
			}
			pos := i * block
			if flags&(1<<i) == 0 {
				copy(data[pos:], body)
				continue
			}
			k := segment.KindHardState
			rec, _ := seal(segment.Salt(k), int64(pos), k, 0, body, block)
			copy(data[pos:], rec)
			sealed[wal.HardState{Term: segment.Term(le.Uint64(body[8:])), Vote: le.Uint64(body[16:])}] = true
		}
		data[int(at)%len(data)] ^= flip
		disk := disk.Clone()
		put(t, disk, filepath.Join(fuzzPath, "hardstate"), data)
		look(t, disk, func(l *wal.Log) {
			if h := l.HardState(); !sealed[h] {
				t.Errorf("the hard state is %+v, sealed are %v", h, sealed)
			}
		})
	})
}

// FuzzSnapshotHeader makes a snapshot of sealed records with any head, tail and content, and a manifest
// that names it.
func FuzzSnapshotHeader(f *testing.F) {
	disk := fuzzDisk(f)
	head := make([]byte, 32)
	le.PutUint64(head, 2)
	le.PutUint64(head[8:], 3)
	le.PutUint64(head[16:], 5)
	empty := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x00, 0x01, 0x00, 0x00, 0x99, 0xe9, 0xd8, 0x51}
	f.Add(head, empty, uint64(len(empty)), uint64(0), uint64(0))
	f.Add(head, []byte("no zstd"), uint64(7), uint64(100), uint64(0))
	f.Add(head, empty, uint64(1<<40), uint64(0), uint64(1<<40))
	f.Fuzz(func(t *testing.T, head, content []byte, length, plain, size uint64) {
		if len(content) > 1<<16 || len(head) > 1<<12 {
			return
		}
		file, digest := framed(head, content, length, plain)
		if size == 0 {
			size = uint64(len(file))
		}
		info := make([]byte, 0, 56)
		for _, v := range []uint64{3, 5, size, fuzzSalt, plain} {
			info = le.AppendUint64(info, v)
		}
		disk := disk.Clone()
		put(t, disk, filepath.Join(fuzzPath, "00000000000000000005.snap"), file)
		put(t, disk, filepath.Join(fuzzPath, "manifest"),
			twin(segment.KindManifest, manifestBody(1, 0, append(info, digest[:]...))))
		look(t, disk, func(l *wal.Log) {
			r, err := l.OpenSnapshot()
			if err != nil {
				return
			}
			n, err := io.Copy(io.Discard, r)
			if err == nil && n != r.Length() {
				t.Errorf("%d bytes of a snapshot of %d", n, r.Length())
			}
			_ = r.Close()
		})
	})
}

const fuzzSalt = 0x5a17

// framed is a file of sealed records: a head, content in one frame, a tail with the digest of the
// content.
func framed(head, content []byte, length, plain uint64) ([]byte, segment.Digest) {
	file, chain := seal(fuzzSalt, 0, segment.KindFileHead, 0, head, 0)
	if len(content) > 0 {
		var rec []byte
		rec, chain = seal(fuzzSalt, int64(len(file)), segment.KindFrame, chain, content, 0)
		file = append(file, rec...)
	}
	digest := segment.DigestOf(content)
	tail := append(le.AppendUint64(nil, length), digest[:]...)
	rec, _ := seal(fuzzSalt, int64(len(file)), segment.KindFileTail, chain, le.AppendUint64(tail, plain), 0)
	return append(file, rec...), digest
}

// FuzzBodyFile changes bytes of a body file, seals one frame anew, and reads it: what comes back is the
// body or an error, never other bytes.
func FuzzBodyFile(f *testing.F) {
	disk := fuzzDisk(f)
	head := make([]byte, 32)
	for i, v := range []uint64{1, 3, 1, 0} {
		le.PutUint64(head[8*i:], v)
	}
	f.Add([]byte("a body that stands for a large one"), uint16(0), byte(0), []byte{})
	f.Add(bytes.Repeat([]byte{7}, 5000), uint16(200), byte(3), []byte{})
	f.Add([]byte("a body"), uint16(0), byte(0), []byte("another"))
	f.Add([]byte{}, uint16(60), byte(1), []byte{})
	f.Fuzz(func(t *testing.T, body []byte, at uint16, flip byte, other []byte) {
		if len(body) > segment.FrameMax || len(other) > segment.FrameMax {
			return
		}
		le.PutUint64(head[24:], uint64(len(body)))
		content := body
		if len(other) > 0 {
			content = other
		}
		file, _ := framed(head, content, uint64(len(body)), uint64(len(body)))
		file[int(at)%len(file)] ^= flip
		ref := segment.BodyRef{Term: 3, Seq: 1}
		c := segment.Commit{Ref: ref, Length: int64(len(body)), Digest: segment.DigestOf(body), Large: true}
		disk := disk.Clone()
		put(t, disk, filepath.Join(fuzzPath, "0000000000000003-0000000000000001.body"), file)
		look(t, disk, func(l *wal.Log) {
			r, err := l.OpenBody(c)
			if err != nil {
				return
			}
			got, err := io.ReadAll(r)
			if err == nil && !bytes.Equal(got, body) || err != nil && !bytes.HasPrefix(body, got) {
				t.Errorf("%d bytes came back for %d, %v", len(got), len(body), err)
			}
			if err == nil && !bytes.Equal(content, body) {
				t.Error("another body came back")
			}
			_ = r.Close()
		})
	})
}
