package wal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weida/segment"
)

// TestManifestDecodeEncode: every manifest without a flaw comes back as it was, and a changed byte never
// makes the decoder panic or give a manifest with a flaw.
func TestManifestDecodeEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawManifest(t)
		if flaw := m.flaw(); flaw != "" {
			t.Fatalf("drawn with a flaw: %s", flaw)
		}
		body := encodeManifest(&m)
		got, cause := decodeManifest(body)
		if d := cmp.Diff(m, got); cause != "" || d != "" {
			t.Fatal(cause, d)
		}
		body[rapid.IntRange(0, len(body)-1).Draw(t, "at")] ^= rapid.Byte().Draw(t, "flip")
		if got, cause := decodeManifest(body); cause == "" && got.flaw() != "" {
			t.Fatal(got.flaw())
		}
	})
}

func drawManifest(t *rapid.T) (m manifest) {
	u := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	size := func(name string) int64 { return rapid.Int64Range(0, 1<<62).Draw(t, name) }
	mark := func(name string) Mark { return Mark{segment.Term(u(name)), segment.Index(u(name))} }
	m.Seq, m.Next = u("seq"), 1
	for range rapid.IntRange(0, 5).Draw(t, "segments") {
		s := segInfo{
			Number: m.Next, Salt: segment.Salt(u("salt")), State: segState(rapid.IntRange(0, 1).Draw(t, "state")),
			Base: segment.Index(u("base")), Size: size("size"), FooterPos: size("footer"), Last: mark("last"),
			FirstRef: segment.BodyRef{Term: segment.Term(u("term")), Seq: u("first")},
			LastRef:  segment.BodyRef{Seq: u("lastref")},
			Bodies:   size("bodies"), Chain: segment.Chain(u("chain")), Limit: size("limit"),
			Named: segment.Index(u("named")), Large: size("large"), Payload: size("payload"),
		}
		m.Segments = append(m.Segments, s)
		m.Next += segment.Number(rapid.Uint64Range(1, 1<<40).Draw(t, "gap"))
	}
	m.Dropped = dropInfo{Upto: mark("upto"), Chain: segment.Chain(u("dropped chain"))}
	m.Dropped.Commit = segment.Index(rapid.Uint64Min(uint64(m.Dropped.Upto.Index)).Draw(t, "commit"))
	index := segment.Index(0)
	for range rapid.IntRange(0, 3).Draw(t, "snapshots") {
		index += segment.Index(rapid.Uint64Range(1, 1<<40).Draw(t, "index"))
		s := snapInfo{Mark: Mark{segment.Term(u("term")), index}, Size: size("size"), Salt: segment.Salt(u("salt"))}
		s.Length, s.Digest[3] = size("length"), rapid.Byte().Draw(t, "digest")
		m.Snapshots = append(m.Snapshots, s)
	}
	for range rapid.IntRange(0, 3).Draw(t, "compactions") {
		m.Compactions = append(m.Compactions, compactInfo{segment.Number(u("from")), segment.Number(u("to"))})
	}
	if m.Next > 1 {
		m.Promise = segment.Position{Segment: m.Next - 1, Pos: size("promise")}
	}
	return m
}
