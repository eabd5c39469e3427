package segment

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew; only for kinds that are new")

const goldenFile = "testdata/golden.txt"

type golden struct {
	name string
	pos  int64
	b    []byte
}

// goldens are the bytes of every record kind, and of a batch and a footer, as version 1 writes them.
func goldens() []golden {
	f := File{Group: 7, Segment: 3, Salt: 0x1122334455667788}
	var list []golden
	add := func(name string, pos int64, b []byte) { list = append(list, golden{name, pos, bytes.Clone(b)}) }
	add("segment", 0, EncodeHeader(f, Header{Base: 41, Manifest: 9}))

	var b Builder
	b.Reset(f, FirstBatch, 0xc0ffee, Stamp{Promise: Position{2, 4096}, Commit: 40, Boot: Boot{1, 2, 3, 15: 16}})
	body := []byte("hello, world")
	b.Body(BodyRef{Term: 5, Seq: 6}, body)
	commits := []Commit{
		{Ref: BodyRef{5, 6}, Length: int64(len(body)), Digest: DigestOf(body)},
		{Ref: BodyRef{5, 7}, Length: 1 << 30, Digest: Digest{1, 2}, Large: true},
	}
	b.Entry(Entry{Index: 41, Term: 5, Data: AppendData(nil, commits, []byte("commands"))})
	b.Entry(Entry{Index: 42, Term: 5, Type: EntryConfChangeV2, Data: []byte("change")})
	b.Truncate(42)
	b.Void(BodyRef{5, 8}, 39)
	raw, chain := b.Finish()
	add("batch of body, entry, entry, truncate, void", FirstBatch, raw)
	end := FirstBatch + int64(len(raw))
	add("footer", end, EncodeFooter(f, end, b.Rows(), chain, 41))

	plain := File{Group: 7, Salt: 77}
	for _, k := range []Kind{KindManifest, KindHardState, KindFileHead, KindFrame, KindFileTail} {
		rec, _ := AppendRecord(nil, plain, 4096, k, 5, []byte("content of "), []byte(k.String()))
		add(k.String(), 4096, rec)
	}
	return list
}

func formatGoldens(list []golden) string {
	var s strings.Builder
	for _, g := range list {
		fmt.Fprintf(&s, "%s at %d\n", g.name, g.pos)
		for b := g.b; len(b) > 0; b = b[min(32, len(b)):] {
			fmt.Fprintf(&s, "  %s\n", hex.EncodeToString(b[:min(32, len(b))]))
		}
	}
	return s.String()
}

// TestGolden: version 1 writes these bytes for ever, and reads them.
func TestGolden(t *testing.T) {
	list := goldens()
	got := formatGoldens(list)
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatalf("the bytes of the format changed; files on disk would not be read any more:\n%s", got)
	}
	seen := make(map[Kind]bool)
	for _, g := range list {
		f := File{Group: 7, Segment: 3, Salt: 0x1122334455667788}
		if g.pos == 4096 {
			f = File{Group: 7, Salt: 77}
		}
		for b, pos := g.b, g.pos; len(b) > 0; {
			r, _, err := ParseRecord(b, f, pos)
			if err != nil {
				t.Fatalf("%s: %v", g.name, err)
			}
			seen[r.Kind] = true
			b, pos = b[r.Size:], pos+r.Size
		}
	}
	for k := KindSegment; k <= KindFileTail; k++ {
		if !seen[k] {
			t.Errorf("no golden bytes of kind %v", k)
		}
	}
	if _, ok := kindSpec(KindFileTail + 1); ok {
		t.Error("a new kind needs golden bytes")
	}
}
