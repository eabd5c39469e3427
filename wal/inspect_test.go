package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// fullGroup is a running node with one group that has files of every kind: sealed segments, open ones, a
// tombstone, a truncation, snapshots, large bodies. Its directory is /node/data/groups/7.
func fullGroup(t *testing.T) (*memfs.FS, *life) {
	t.Helper()
	smallSegments(t, 8<<10)
	fs := memfs.New()
	l := mustLife(t, fs, lifeOptions{segBytes: 8 << 10})
	for seq, n := range map[uint64]int{1000: 200_000, 1001: 70_000} {
		ref := segment.BodyRef{Term: 1, Seq: seq}
		f, err := l.log.NewBody(ref, int64(n))
		must(t, err)
		_, err = f.Write(payload(ref, n))
		must(t, err)
		c := commitOf(ref, n, true)
		must(t, f.Finish(c.Digest))
		i := l.log.Last().Index + 1
		must(t, l.append(&Append{
			Large:   []*BodyFile{f},
			Entries: []segment.Entry{{Index: i, Term: 1, Data: segment.AppendData(nil, []segment.Commit{c}, []byte("cmd"))}},
		}))
	}
	for i := segment.Index(3); i <= 60; i++ {
		must(t, l.append(oneEntry(i, 1, uint64(i), 300)))
	}
	again := oneEntry(58, 2, 100, 30)
	again.Truncate = 58
	again.Voids = []Void{{Ref: segment.BodyRef{Term: 1, Seq: 59}, Settled: 57}}
	must(t, l.append(again))
	for _, i := range []segment.Index{20, 40} {
		must(t, l.flush())
		must(t, l.jobs())
		w, err := l.log.NewSnapshot(Mark{1, i})
		must(t, err)
		_, err = w.Write(content(3000, uint64(i)))
		must(t, err)
		must(t, w.Commit())
		must(t, l.log.Advance())
	}
	must(t, l.jobs())
	must(t, l.flush())
	return fs, l
}

func findingsOf(t *testing.T, fs fsync.FS) ([]Finding, Verified) {
	t.Helper()
	var list []Finding
	sum, err := VerifyStore(fs, "/node/data", func(f Finding) { list = append(list, f) })
	if err != nil {
		t.Fatal(err)
	}
	return list, sum
}

// TestInspectChangesNothing looks at the directory of a running node.
func TestInspectChangesNothing(t *testing.T) {
	disk, l := fullGroup(t)
	before := snapshotOf(t, disk)
	f := faultfs.New(disk)
	f.Count(slices.DeleteFunc(slices.Clone(faultfs.Changes), func(op faultfs.Op) bool {
		return op == faultfs.OpDropCache // forgets clean pages and changes nothing
	})...)
	list, sum := findingsOf(t, f)
	if len(list) != 0 || sum.Damaged+sum.Survived != 0 || sum.Groups != 1 || sum.Files < 8 || sum.Bytes < 270_000 {
		t.Errorf("%+v, %+v", sum, list)
	}
	st, err := StatStore(f, "/node/data")
	must(t, err)
	got := st.Groups[0]
	if got.Err != nil || got.Last != 58 || got.First != 1 || got.Snapshot != (Mark{1, 40}) || got.Snapshots != 2 ||
		got.Bodies != 2 || got.Sealed < 1 || got.Segments <= got.Sealed || got.BodyBytes < 270_000 {
		t.Errorf("%+v", got)
	}
	lines := 0
	must(t, DumpGroup(f, "/node/data", testGroup, func(DumpLine) error { lines++; return nil }))
	in, err := InspectStore(f, "/node/data")
	must(t, err)
	if lines < 200 || !slices.Equal(in.Groups, []segment.GroupID{testGroup}) || in.Identity.Incarnation != 1 {
		t.Errorf("%d lines, %+v", lines, in)
	}
	if f.Ops() != 0 {
		t.Errorf("it touched the disk: %v", f.Trace())
	}
	if d := cmp.Diff(before, snapshotOf(t, disk)); d != "" {
		t.Error(d)
	}
	must(t, l.append(oneEntry(59, 2, 200, 30))) // and the node goes on
}

// storeTables reads the field names of the tables in STORE.md that follow a heading or a marker.
func storeTables(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "STORE.md"))
	must(t, err)
	tables, name := map[string][]string{}, ""
	title := regexp.MustCompile(`^(?:<!-- table: (.+) -->|### Kind \d+, (.+))$`)
	row := regexp.MustCompile(`^\| \d+ \| [–\d]+ \| ([^|]+) \|`)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := title.FindStringSubmatch(line); m != nil {
			name = m[1] + m[2]
		} else if m := row.FindStringSubmatch(line); m != nil && name != "" {
			tables[name] = append(tables[name], strings.TrimSpace(m[1]))
		}
	}
	return tables
}

// TestDumpSpeaksLikeTheSpecification: every line's fields are those of the table of its kind, in order.
func TestDumpSpeaksLikeTheSpecification(t *testing.T) {
	disk, _ := fullGroup(t)
	tables := storeTables(t)
	seen := map[string]bool{}
	must(t, DumpGroup(disk, "/node/data", testGroup, func(l DumpLine) error {
		seen[l.Kind] = true
		if l.Kind == "end" {
			return nil
		}
		want, ok := tables[l.Kind]
		if !ok {
			want, ok = tables[l.Kind+" head"]
		}
		if !ok {
			return fmt.Errorf("STORE.md has no table %q", l.Kind)
		}
		var got []string
		for _, f := range l.Fields {
			got = append(got, f.Name)
		}
		skip := func(n string) bool {
			return n == "reserved" || n == "head checksum" || l.Kind == "batch" && n == "reserved" || n == "commits"
		}
		if want = slices.DeleteFunc(slices.Clone(want), skip); !slices.Equal(got, want[:min(len(want), len(got))]) {
			return fmt.Errorf("%s: fields %q, STORE.md has %q", l.Kind, got, want)
		}
		return nil
	}))
	for _, kind := range []string{
		"manifest head", "manifest segment", "manifest snapshot", "hardstate", "segment", "batch", "body", "entry",
		"commit record",
		"truncate", "void", "footer", "filehead", "filetail", "end",
	} {
		if !seen[kind] {
			t.Errorf("no line of kind %q", kind)
		}
	}
}

// TestVerifySeesDamageAnywhere flips bits all over a data directory: each one is found, in the file it
// is in, and a dump of the rest still works.
func TestVerifySeesDamageAnywhere(t *testing.T) {
	disk, _ := fullGroup(t)
	named := map[string]bool{}
	must(t, DumpGroup(disk, "/node/data", testGroup, func(l DumpLine) error { named[l.File] = true; return nil }))
	for _, path := range disk.Files() {
		base := filepath.Base(path)
		if base == lockName || !named[base] && base != diskName && base != incarnationName {
			continue
		}
		whole, err := disk.Bytes(path)
		must(t, err)
		for _, off := range offsets(int64(len(whole))) {
			flip(t, disk, path, off)
			list, sum := findingsOf(t, disk)
			if len(list) == 0 || list[0].Path != path || sum.Damaged+sum.Survived != len(list) {
				t.Fatalf("%s, byte %d: %+v", path, off, list)
			}
			for _, f := range list {
				if f.Verdict == segment.Valid || f.Err == nil {
					t.Fatalf("%s, byte %d: %+v", path, off, f)
				}
				mustSay(t, f.Err, base)
			}
			if err := DumpGroup(disk, "/node/data", testGroup, func(DumpLine) error { return nil }); err != nil {
				t.Fatalf("%s, byte %d: %v", path, off, err)
			}
			if _, err := StatStore(disk, "/node/data"); err != nil && base != diskName && base != incarnationName {
				t.Fatal(err)
			}
			flip(t, disk, path, off)
		}
	}
	if list, _ := findingsOf(t, disk); len(list) != 0 {
		t.Fatalf("put back: %+v", list)
	}
}

// offsets are the first and last bytes of a file and some in between.
func offsets(size int64) []int64 {
	var list []int64
	parts := int64(12)
	if full() {
		parts = 40
	}
	for off := int64(0); off < size; off += max(1, size/parts) {
		list = append(list, off)
	}
	return append(list, 0, 40, 57, size-1)
}

// TestVerifySeesMissingFiles removes each file in turn.
func TestVerifySeesMissingFiles(t *testing.T) {
	source, _ := fullGroup(t)
	for _, path := range source.Files() {
		base := filepath.Base(path)
		if base == lockName {
			continue
		}
		disk := source.Clone()
		must(t, disk.Remove(path))
		list, _ := findingsOf(t, disk)
		unnamed := strings.HasSuffix(base, segmentSuffix) && !isNamed(t, source, base)
		body, isBody := parseBodyName(base)
		switch {
		case unnamed, isBody && body.Seq <= 1001: // below the snapshot, settled for all that is known
			if len(list) != 0 {
				t.Errorf("%s: %+v", base, list)
			}
		case len(list) == 0:
			t.Errorf("%s: nothing found", base)
		case strings.HasSuffix(base, snapshotSuffix) != list[0].Survived:
			t.Errorf("%s: %+v", base, list[0])
		}
	}
}

func isNamed(t *testing.T, fs fsync.FS, name string) bool {
	t.Helper()
	m, _, err := loadManifest(fs, "/node/data/groups/7", testGroup)
	must(t, err)
	return slices.ContainsFunc(m.Segments, func(s segInfo) bool { return segmentName(s.Number) == name })
}

// TestVerifyComparesBodies: a body whose bytes are as written and that is not the one its entry names.
func TestVerifyComparesBodies(t *testing.T) {
	disk := memfs.New()
	l := mustLife(t, disk, lifeOptions{})
	wrong := oneEntry(1, 1, 1, 100)
	wrong.Bodies[0].Payload[5] ^= 1
	must(t, l.append(wrong))
	list, _ := findingsOf(t, disk)
	if len(list) != 1 || list[0].Survived || !strings.Contains(list[0].Err.Error(), "entry 1 names body 1.1") {
		t.Fatalf("%+v", list)
	}
}

func TestInspectRefusesOtherDirectories(t *testing.T) {
	disk := memfs.New()
	must(t, fsync.MkdirAll(disk, "/node/data"))
	if _, err := InspectStore(disk, "/node/data"); !errors.Is(err, ErrNotStore) {
		t.Fatal(err)
	}
	if _, err := VerifyStore(disk, "/node/data", func(Finding) {}); !errors.Is(err, ErrNotStore) {
		t.Fatal(err)
	}
	if _, err := StatStore(disk, "/elsewhere"); !isAbsent(err) {
		t.Fatal(err)
	}
}
