package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// writeStore makes a data directory with one of everything: a sealed and an open segment, an inline
// and a large body, a snapshot, a hard state. It returns the file system it lies in.
func writeStore(t *testing.T, large []byte) *memfs.FS {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	disk := memfs.New()
	root, err := disk.OpenDir("/")
	must(err)
	var seed [32]byte
	flusher := fsync.NewFlusher(fsync.Options{Root: root})
	store, err := wal.OpenStore(disk, "/data", wal.Options{
		Flusher: flusher, Boot: disk.BootID(), Rand: rand.NewChaCha8(seed),
		SegmentBytes: 1, // the least there is
	})
	must(err)
	log, err := store.OpenLog(7)
	must(err)
	jobs := func() {
		for flushed := true; flushed; flushed = flusher.Step() { // a segment is sealed once it is flushed
			must(log.Advance())
			for j := log.Job(); j != nil; j = log.Job() {
				must(j.Run())
				must(log.Advance())
			}
		}
	}
	add := func(a *wal.Append) {
		t.Helper()
		err := log.Append(a)
		if errors.Is(err, wal.ErrNotReady) {
			jobs()
			err = log.Append(a)
		}
		must(err)
		jobs()
	}
	must(log.SetHardState(wal.HardState{Term: 3, Vote: 5}))
	ref := segment.BodyRef{Term: 3, Seq: 1}
	w, err := log.NewBody(ref, int64(len(large)))
	must(err)
	_, err = w.Write(large)
	must(err)
	must(w.Finish(segment.DigestOf(large)))
	commits := []segment.Commit{{Ref: ref, Length: int64(len(large)), Digest: segment.DigestOf(large), Large: true}}
	entry := segment.Entry{Index: 1, Term: 3, Data: segment.AppendData(nil, commits, []byte("put"))}
	add(&wal.Append{Entries: []segment.Entry{entry}, Large: []*wal.BodyFile{w}})
	for i := segment.Index(2); i < 20; i++ {
		body := bytes.Repeat([]byte{byte(i)}, 40_000)
		c := segment.Commit{Ref: segment.BodyRef{Term: 3, Seq: uint64(i)}, Length: 40_000, Digest: segment.DigestOf(body)}
		entry := segment.Entry{Index: i, Term: 3, Data: segment.AppendData(nil, []segment.Commit{c}, nil)}
		add(&wal.Append{Bodies: []wal.Body{{Ref: c.Ref, Payload: body}}, Entries: []segment.Entry{entry}})
	}
	s, err := log.NewSnapshot(wal.Mark{Term: 3, Index: 4})
	must(err)
	_, err = io.WriteString(s, strings.Repeat("state ", 1000))
	must(err)
	must(s.Commit())
	jobs()
	must(store.Close())
	return disk
}

// fields reads a piece of a file by a table of STORE.md. The second result is its length.
func fields(t *testing.T, tables map[string][][]string, name string, b []byte) (map[string]uint64, int) {
	t.Helper()
	m := map[string]uint64{}
	end := 0
	for _, row := range tables[name] {
		at, err := strconv.Atoi(row[0])
		size, err2 := strconv.Atoi(row[1])
		if err != nil || err2 != nil {
			break // a field without a fixed size is the last
		}
		if end = at + size; end > len(b) {
			t.Fatalf("table %q: %d bytes are too few", name, len(b))
		}
		field := b[at:end]
		if size == 16 { // the second half, where the first is a term or a segment
			field = field[8:]
		}
		var eight [8]byte
		copy(eight[:], field)
		m[row[2]] = binary.LittleEndian.Uint64(eight[:])
	}
	if len(m) == 0 {
		t.Fatalf("no table %q", name)
	}
	return m, end
}

// want compares fields by name.
func want(t *testing.T, what string, got map[string]uint64, want map[string]uint64) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s: %s is %d (%v), want %d", what, k, g, ok, v)
		}
	}
}

// TestStoreFiles: a data directory as it is really written is as STORE.md says, file by file.
func TestStoreFiles(t *testing.T) {
	tables := segment.DocTables(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	disk := writeStore(t, large)
	seen := map[string]int{}
	var salt uint64
	for _, name := range disk.Files() {
		b, err := disk.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		base := path.Base(name)
		kind := strings.TrimPrefix(path.Ext(base), ".")
		if kind == "" {
			kind = base
		}
		seen[kind]++
		if kind == "LOCK" {
			continue
		}
		head, n := fields(t, tables, "record header", b)
		body := b[n:]
		want(t, name, head, map[string]uint64{"magic": 0x43524557, "version": 1, "flags": 0, "reserved": 0})
		twin := func() {
			if half := len(b) / 2; len(b)%8192 != 0 || !bytes.Equal(b[n:half], b[half+n:]) {
				t.Errorf("%s is no twin file", name)
			}
		}
		switch kind {
		case "disk", "incarnation", "clean":
			twin()
			typ := map[string]uint64{"disk": 3, "incarnation": 4, "clean": 5}[kind]
			got, _ := fields(t, tables, kind, body)
			want(t, name, head, map[string]uint64{"kind": 11, "group": 0, "salt": typ})
			want(t, name, got, map[string]uint64{"type": typ})
			if kind != "disk" {
				want(t, name, got, map[string]uint64{"incarnation": 1})
			}
		case "hardstate":
			want(t, name, head, map[string]uint64{"kind": 10, "group": 7, "salt": 10})
			checkHardState(t, tables, b)
		case "manifest":
			twin()
			want(t, name, head, map[string]uint64{"kind": 9, "group": 7, "salt": 9})
			salt = checkManifest(t, tables, disk, path.Dir(name), body)
		case "seg":
			want(t, name, head, map[string]uint64{"kind": 1, "group": 7, "chain": 0})
			if strings.HasPrefix(base, "00000001.") {
				got, _ := fields(t, tables, "segment", body)
				want(t, name, got, map[string]uint64{"number": 1, "base": 1})
			}
		case "body":
			want(t, name, head, map[string]uint64{"kind": 11, "group": 7, "chain": 0})
			if base != "0000000000000003-0000000000000001.body" {
				t.Errorf("name %s", base)
			}
			got, _ := fields(t, tables, "filehead", body)
			want(t, name, got, map[string]uint64{"type": 1, "term": 3, "seq or index": 1, "announced": uint64(len(large))})
			got, _ = fields(t, tables, "filetail", b[len(b)-32:])
			want(t, name, got, map[string]uint64{"length": uint64(len(large)), "plain length": uint64(len(large))})
			if at := 88 + 56; !bytes.Equal(b[at:at+65536], large[:65536]) {
				t.Error("the first frame of the body is not where it should be")
			}
		case "snap":
			want(t, name, head, map[string]uint64{"kind": 11, "group": 7})
			got, _ := fields(t, tables, "filehead", body)
			want(t, name, got, map[string]uint64{"type": 2, "term": 3, "seq or index": 4, "announced": 0})
			got, _ = fields(t, tables, "filetail", b[len(b)-32:])
			want(t, name, got, map[string]uint64{"plain length": 6000})
			if base != "00000000000000000004.snap" {
				t.Errorf("name %s", base)
			}
		default:
			t.Errorf("a file that section 4 does not know: %s", name)
		}
	}
	for _, kind := range []string{"disk", "incarnation", "clean", "hardstate", "manifest", "seg", "body", "snap"} {
		if seen[kind] == 0 {
			t.Errorf("no %s was written", kind)
		}
	}
	if seen["seg"] < 2 || salt == 0 {
		t.Errorf("%d segments, salt %d", seen["seg"], salt)
	}
}

func checkHardState(t *testing.T, tables map[string][][]string, b []byte) {
	t.Helper()
	if len(b) != 4*4096 {
		t.Fatalf("hardstate has %d bytes", len(b))
	}
	newest := map[string]uint64{}
	for i := range 4 {
		got, _ := fields(t, tables, "hardstate", b[i*4096+56:])
		want(t, "hardstate", got, map[string]uint64{"sequence again": got["sequence"]})
		if got["sequence"]%2 != uint64(i/2) {
			t.Errorf("version %d in slot %d", got["sequence"], i/2)
		}
		if got["sequence"] >= newest["sequence"] {
			newest = got
		}
	}
	want(t, "hardstate", newest, map[string]uint64{"term": 3, "vote": 5})
}

// checkManifest compares the manifest's rows with the files they name, and returns the first salt.
func checkManifest(t *testing.T, tables map[string][][]string, disk *memfs.FS, dir string, body []byte) uint64 {
	t.Helper()
	head, at := fields(t, tables, "manifest head", body)
	want(t, "manifest", head, map[string]uint64{"snapshots": 1, "compactions": 0})
	var salt uint64
	for i := range head["segments"] {
		row, n := fields(t, tables, "manifest segment", body[at:])
		at += n
		file, err := disk.Bytes(path.Join(dir, segName(row["number"])))
		if err != nil {
			t.Fatal(err)
		}
		first, _ := fields(t, tables, "record header", file)
		want(t, "segment", first, map[string]uint64{"salt": row["salt"]})
		if i > 0 {
			continue
		}
		salt = row["salt"]
		want(t, "first segment", row, map[string]uint64{"number": 1, "state": 1, "base": 1, "limit": 0, "first ref": 2})
		foot, n := fields(t, tables, "record header", file[row["footer pos"]:])
		want(t, "footer", foot, map[string]uint64{"kind": 8})
		ft, _ := fields(t, tables, "footer head", file[row["footer pos"]+uint64(n):])
		want(t, "footer", ft, map[string]uint64{"chain": row["chain"], "last index": row["last"], "bodies": row["bodies"]})
		tail, _ := fields(t, tables, "footer tail", file[row["size"]-8:])
		want(t, "footer", tail, map[string]uint64{"record size": row["size"] - row["footer pos"]})
	}
	snap, _ := fields(t, tables, "manifest snapshot", body[at:])
	want(t, "snapshot", snap, map[string]uint64{"mark": 4, "length": 6000})
	return salt
}

func segName(n uint64) string {
	s := strconv.FormatUint(n, 10)
	return strings.Repeat("0", max(0, 8-len(s))) + s + ".seg"
}
