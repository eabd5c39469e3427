package wal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weida/segment"
)

// The files in testdata are what version 1 wrote. They are kept for ever: a reader that does not
// understand one of them any more has lost somebody's data. -update writes those that are missing.
var update = flag.Bool("update", false, "write missing golden files")

// golden is one file: its name, what writes it today, and what reading it must give.
type golden struct {
	name string
	make func(*testing.T, *bench)
	read func(*testing.T, *bench)
	// loose: what is written today may differ in bytes (the compressor's choice), reading may not.
	loose bool
}

func goldens() []golden {
	body, snap := content(300, 7), []byte("the state after entry 900")
	commit := segment.Commit{Ref: bodyRef, Length: 300, Digest: segment.DigestOf(body), Large: true}
	id := Identity{Disk: [16]byte{1, 2, 3}, Incarnation: 5, Nonce: [16]byte{9, 8}}
	node := func(t *testing.T, b *bench) Identity {
		must(t, writeDisk(b.fs, benchDir, id.Disk))
		must(t, writeIncarnation(b.fs, benchDir, id.Incarnation, id.Nonce, nil))
		must(t, writeClean(b.fs, benchDir, id, []segment.GroupID{7, 3}))
		return id
	}
	readNode := func(t *testing.T, b *bench) {
		got, held, bad, err := readIdentity(b.fs, benchDir)
		want := id
		want.CleanStop = true
		if err != nil || cmp.Diff(want, got) != "" || len(bad) > 0 || !slices.Equal(held, []segment.GroupID{3, 7}) {
			t.Errorf("%+v, %v, %v, %v", got, held, bad, err)
		}
	}
	var info snapInfo
	return []golden{
		{
			name: manifestName,
			make: func(t *testing.T, b *bench) { mustSaveManifest(t, b, exampleManifest()) },
			read: func(t *testing.T, b *bench) {
				want := exampleManifest()
				want.Seq++
				got, repaired, err := loadManifest(b.fs, benchDir, fileGroup)
				if d := cmp.Diff(want, got); err != nil || repaired || d != "" {
					t.Error(err, repaired, d)
				}
			},
		},
		{
			name: hardStateName,
			make: func(t *testing.T, b *bench) {
				must(t, firstState(b))
				h := mustLoadState(t, b.fs)
				for n := range 3 {
					must(t, h.Set(b.fs, b.fl, stateOf(n+5)))
				}
			},
			read: func(t *testing.T, b *bench) {
				if h := mustLoadState(t, b.fs); h.State() != stateOf(7) || h.seq != 4 || h.repaired {
					t.Errorf("%+v", h)
				}
			},
		},
		{name: diskName, make: func(t *testing.T, b *bench) { node(t, b) }, read: readNode},
		{name: incarnationName, make: func(t *testing.T, b *bench) { node(t, b) }, read: readNode},
		{name: cleanName, make: func(t *testing.T, b *bench) { node(t, b) }, read: readNode},
		{
			name: bodyName(bodyRef),
			make: func(t *testing.T, b *bench) { mustWriteBody(t, b, body) },
			read: func(t *testing.T, b *bench) {
				if got, err := readBody(b.fs, commit, true); err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			},
		},
		{
			name:  snapshotName(snapMark.Index),
			loose: true,
			make:  func(t *testing.T, b *bench) { mustWriteSnapshot(t, b, snap) },
			read: func(t *testing.T, b *bench) {
				list, err := b.fs.List(benchDir)
				must(t, err)
				r, err := openFramed(b.fs, under(snapshotName(snapMark.Index)), fileGroup, list[0].Size)
				must(t, err)
				info = snapInfo{
					Mark: snapMark, Size: list[0].Size, Salt: r.file.Salt, Length: r.tail.Plain, Digest: r.tail.Digest,
				}
				must(t, r.Close())
				if got, err := readSnapshot(b.fs, info, true); err != nil || !bytes.Equal(got, snap) {
					t.Errorf("%q, %v", got, err)
				}
			},
		},
	}
}

func TestGoldenFiles(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.name, func(t *testing.T) {
			b := newDisk(t)
			g.make(t, b)
			now, err := b.disk.Bytes(under(g.name))
			must(t, err)
			path := filepath.Join("testdata", g.name+".hex")
			text, err := os.ReadFile(path)
			if os.IsNotExist(err) && *update {
				must(t, os.MkdirAll("testdata", 0o755))
				text = []byte(dumpHex(now))
				err = os.WriteFile(path, text, 0o644)
			}
			must(t, err)
			kept := parseHex(t, string(text))
			if d := cmp.Diff(dumpHex(kept), dumpHex(now)); d != "" && !g.loose {
				t.Errorf("version 1 is written otherwise now: %s", d)
			}
			b = keptDisk(t, g.name, kept)
			g.read(t, b)
		})
	}
}

// keptDisk is a disk with one golden file; the files of the node come together.
func keptDisk(t *testing.T, name string, kept []byte) *bench {
	t.Helper()
	b := newDisk(t)
	put := func(name string, p []byte) { mustWrite(t, b, under(name), string(p)) }
	put(name, kept)
	if !slices.Contains(nodeFiles, name) {
		return b
	}
	for _, other := range nodeFiles[1:] {
		if other != name {
			text, err := os.ReadFile(filepath.Join("testdata", other+".hex"))
			must(t, err)
			put(other, parseHex(t, string(text)))
		}
	}
	return b
}

// dumpHex writes the length and every 32 bytes that are not all zero.
func dumpHex(p []byte) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d bytes\n", len(p))
	for off := 0; off < len(p); off += 32 {
		if line := p[off:min(off+32, len(p))]; !zeros(line) {
			fmt.Fprintf(&s, "%06x %x\n", off, line)
		}
	}
	return s.String()
}

func parseHex(t *testing.T, text string) []byte {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	n, err := strconv.Atoi(strings.TrimSuffix(lines[0], " bytes"))
	must(t, err)
	p := make([]byte, n)
	for _, line := range lines[1:] {
		off, data, _ := strings.Cut(line, " ")
		at, err := strconv.ParseInt(off, 16, 64)
		must(t, err)
		raw, err := hex.DecodeString(data)
		must(t, err)
		copy(p[at:], raw)
	}
	return p
}
