package segment

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func testRecord(f File, pos int64, body string) ([]byte, Chain) {
	return AppendRecord(nil, f, pos, KindFrame, 77, []byte(body))
}

func TestRecordRoundTrip(t *testing.T) {
	for _, body := range []string{"", "a", "12345678", strings.Repeat("x", 1000)} {
		b, next := testRecord(testFile, 4096, body)
		if int64(len(b)) != SizeOf(len(body)) {
			t.Errorf("%d bytes for a body of %d", len(b), len(body))
		}
		r, chain, err := ParseRecord(append(b, 0xff), testFile, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Body) != body || r.Kind != KindFrame || r.Pos != 4096 || r.Chain != 77 || chain != next ||
			r.Size != int64(len(b)) {
			t.Errorf("got %+v, chain %x", r, chain)
		}
	}
}

// TestRecordMisplaced: a record verifies at its own place only.
func TestRecordMisplaced(t *testing.T) {
	b, _ := testRecord(testFile, 4096, "body")
	other := testFile
	for _, c := range []struct {
		name string
		f    func() (File, int64)
	}{
		{"position", func() (File, int64) { return testFile, 4104 }},
		{"segment", func() (File, int64) { other.Segment++; return other, 4096 }},
		{"group", func() (File, int64) { other = testFile; other.Group++; return other, 4096 }},
		{"salt", func() (File, int64) { other = testFile; other.Salt++; return other, 4096 }},
	} {
		f, pos := c.f()
		var corrupt *CorruptError
		if _, _, err := ParseRecord(b, f, pos); !errors.As(err, &corrupt) {
			t.Errorf("another %s: %v", c.name, err)
		}
	}
}

// TestRecordEveryBit: no single bit of a record can change without being noticed, and none makes it
// a record of another version.
func TestRecordEveryBit(t *testing.T) {
	b, _ := testRecord(testFile, 4096, "thirteen byte")
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		_, _, err := ParseRecord(b, testFile, 4096)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) && !(errors.Is(err, ErrShort) && i/8 >= offLength && i/8 < offReserved) {
			t.Errorf("bit %d of byte %d: %v", i%8, i/8, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestRecordShort(t *testing.T) {
	b, _ := testRecord(testFile, 4096, "body")
	for n := range len(b) {
		if _, _, err := ParseRecord(b[:n], testFile, 4096); !errors.Is(err, ErrShort) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

// TestRecordVersion: another version is told from damage before any checksum is trusted.
func TestRecordVersion(t *testing.T) {
	b, _ := testRecord(testFile, 4096, "body")
	flipped := bytes.Clone(b)
	flipped[offVersion] = 3
	var corrupt *CorruptError
	if _, _, err := ParseRecord(flipped, testFile, 4096); !errors.As(err, &corrupt) {
		t.Errorf("a flipped version byte: %v", err)
	}
	foreign := bytes.Clone(flipped)
	clear(foreign[offHeadSum:]) // where another version keeps its checksum is not known
	var version *VersionError
	if _, _, err := ParseRecord(foreign, testFile, 4096); !errors.As(err, &version) {
		t.Fatalf("another version: %v", err)
	}
	if version.Got != 3 || version.Want != Version || version.At != (Position{3, 4096}) {
		t.Errorf("%+v", version)
	}
	if msg := version.Error(); !strings.Contains(msg, "version 3") || !strings.Contains(msg, "00000003.seg") {
		t.Error(msg)
	}
	other := testFile
	other.Salt++
	if _, _, err := ParseRecord(foreign, other, 4096); !errors.As(err, &corrupt) {
		t.Errorf("another version with the salt of another file: %v", err)
	}
	foreign[offVersion] = 0
	if _, _, err := ParseRecord(foreign, testFile, 4096); !errors.As(err, &corrupt) {
		t.Errorf("version 0, which never was: %v", err)
	}
}

// TestRecordNoAlloc: a good record costs no allocation, and a bad one none that grows with what it
// says about itself.
func TestRecordNoAlloc(t *testing.T) {
	b, _ := testRecord(testFile, 4096, "body")
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := ParseRecord(b, testFile, 4096); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a good record", n)
	}
}

func TestSegmentHeader(t *testing.T) {
	want := Header{Base: 1000, Manifest: 12}
	b := EncodeHeader(testFile, want)
	if int64(len(b)) != FirstBatch {
		t.Fatalf("%d bytes", len(b))
	}
	salt, h, err := ParseHeader(append(b, 1, 2, 3), testFile.Group, testFile.Segment)
	if err != nil || salt != testFile.Salt || h != want {
		t.Errorf("%x %+v %v", salt, h, err)
	}
	var corrupt *CorruptError
	if _, _, err := ParseHeader(b, testFile.Group, 4); !errors.As(err, &corrupt) {
		t.Errorf("under another number: %v", err)
	}
	if _, _, err := ParseHeader(b, 8, testFile.Segment); !errors.As(err, &corrupt) {
		t.Errorf("in another group: %v", err)
	}
	if _, _, err := ParseHeader(b[:20], testFile.Group, testFile.Segment); !errors.Is(err, ErrShort) {
		t.Errorf("cut short: %v", err)
	}
	b[offVersion], b[offHeadSum] = 2, b[offHeadSum]+1
	var version *VersionError
	if _, _, err := ParseHeader(b, testFile.Group, testFile.Segment); !errors.As(err, &version) {
		t.Errorf("of another version: %v", err)
	}
}

func TestSalt(t *testing.T) {
	s, err := NewSalt(bytes.NewReader([]byte{0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}))
	if err != nil || s != 5 {
		t.Errorf("salt %d, %v: a salt of zero must be drawn again", s, err)
	}
	if _, err := NewSalt(bytes.NewReader(nil)); err == nil {
		t.Error("no error of an empty source")
	}
}

func TestHasher(t *testing.T) {
	b := bytes.Repeat([]byte("0123456789"), 1000)
	var h Hasher
	for i := 0; i < len(b); i += 77 {
		h.Write(b[i:min(i+77, len(b))])
	}
	if h.Sum() != DigestOf(b) {
		t.Error("the digest of the pieces is not that of the whole")
	}
	h.Reset()
	if h.Sum() != DigestOf(nil) {
		t.Error("Reset does not forget")
	}
}

func TestData(t *testing.T) {
	commits := []Commit{
		{Ref: BodyRef{3, 9}, Length: 5, Digest: DigestOf([]byte("hello"))},
		{Ref: BodyRef{3, 10}, Length: 1 << 40, Digest: Digest{1}, Large: true},
	}
	b := AppendData(nil, commits, []byte("cmd"))
	if len(b) != DataLen(2, 3) {
		t.Errorf("%d bytes, planned %d", len(b), DataLen(2, 3))
	}
	got, commands, err := ParseData(b)
	if err != nil || len(got) != 2 || got[0] != commits[0] || got[1] != commits[1] || string(commands) != "cmd" {
		t.Errorf("%+v %q %v", got, commands, err)
	}
	var n int
	if err := EachCommit(b, func(c Commit) error {
		if c != commits[n] {
			t.Errorf("commit %d: %+v", n, c)
		}
		n++
		return nil
	}); err != nil || n != 2 {
		t.Errorf("%d commits, %v", n, err)
	}
	if c, err := Commands(b); err != nil || string(c) != "cmd" {
		t.Errorf("%q %v", c, err)
	}
	stop := errors.New("stop")
	if err := EachCommit(b, func(Commit) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if c, cmd, err := ParseData(nil); c != nil || cmd != nil || err != nil {
		t.Error("empty data is a leader's first entry")
	}
	for name, bad := range map[string][]byte{
		"three bytes":       b[:3],
		"half a table":      b[:50],
		"a table of 2^32-1": {255, 255, 255, 255, 0},
		"unknown flags":     append(bytes.Clone(b[:44]), append([]byte{2, 0, 0, 0}, b[48:]...)...),
		"negative length":   append(bytes.Clone(b[:27]), append([]byte{0x80}, b[28:]...)...),
	} {
		if _, _, err := ParseData(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := EachCommit(bad, func(Commit) error { return nil }); err == nil {
			t.Errorf("%s: no error from EachCommit", name)
		}
	}
}

func TestParseBodies(t *testing.T) {
	short := []byte{1, 2, 3}
	if _, _, err := ParseBody(short); err == nil {
		t.Error("body")
	}
	if _, err := ParseEntry(short); err == nil {
		t.Error("entry")
	}
	if _, err := ParseTruncate(short); err == nil {
		t.Error("truncate")
	}
	if _, err := ParseTruncate(make([]byte, 8)); err == nil {
		t.Error("truncation from index 0")
	}
	if _, _, err := ParseVoid(short); err == nil {
		t.Error("void")
	}
	e := make([]byte, entryPrefix)
	if _, err := ParseEntry(e); err == nil {
		t.Error("entry 0")
	}
	e[0] = 1
	if _, err := ParseEntry(e); err != nil {
		t.Error(err)
	}
	e[16] = 9
	if _, err := ParseEntry(e); err == nil {
		t.Error("entry of unknown type")
	}
	e[16], e[17] = 0, 1
	if _, err := ParseEntry(e); err == nil {
		t.Error("reserved byte")
	}
}

// TestBug: what a caller must never ask for is refused at once, not written.
func TestBug(t *testing.T) {
	for name, f := range map[string]func(b *Builder){
		"promise beyond itself": func(b *Builder) { b.Reset(testFile, 160, 0, Stamp{Promise: Position{3, 168}}) },
		"before the header":     func(b *Builder) { b.Reset(testFile, 8, 0, Stamp{}) },
		"unaligned":             func(b *Builder) { b.Reset(testFile, 161, 0, Stamp{}) },
		"no reset":              func(b *Builder) { b.Truncate(1) },
		"finished twice": func(b *Builder) {
			b.Reset(testFile, 160, 0, Stamp{})
			b.Finish()
			b.Finish()
		},
		"body above the bound": func(b *Builder) {
			b.Reset(testFile, 160, 0, Stamp{})
			b.Body(BodyRef{1, 1}, make([]byte, InlineMax+1))
		},
		"batch above the bound": func(b *Builder) {
			b.Reset(testFile, 160, 0, Stamp{})
			for range 4 {
				b.Body(BodyRef{1, 1}, make([]byte, InlineMax))
			}
		},
		"entry 0":        func(b *Builder) { b.Reset(testFile, 160, 0, Stamp{}); b.Entry(Entry{}) },
		"truncate all":   func(b *Builder) { b.Reset(testFile, 160, 0, Stamp{}); b.Truncate(0) },
		"wrong length":   func(*Builder) { AppendRecord(nil, testFile, 0, KindTrailer, 0, make([]byte, 9)) },
		"unknown kind":   func(*Builder) { AppendRecord(nil, testFile, 0, 99, 0) },
		"negative bytes": func(*Builder) { AppendData(nil, []Commit{{Length: -1}}, nil) },
	} {
		func() {
			defer func() {
				if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "bug: segment: ") {
					t.Errorf("%s: %v", name, msg)
				}
			}()
			f(new(Builder))
		}()
	}
}

// TestBatchBounds: the constants callers plan with.
func TestBatchBounds(t *testing.T) {
	var b Builder
	b.Reset(testFile, FirstBatch, 0, Stamp{})
	if b.Len() != BatchOverhead {
		t.Errorf("an empty batch has %d bytes", b.Len())
	}
	if !b.Fits(DataMax) || b.Fits(DataMax, 0) {
		t.Error("exactly one entry of DataMax fits")
	}
	b.Entry(Entry{Index: 1, Data: make([]byte, DataMax)})
	if raw, _ := b.Finish(); len(raw) != BatchMax {
		t.Errorf("the biggest entry makes a batch of %d bytes", len(raw))
	}
	for _, n := range []int{0, 1, 7, 8, 9, 1000, InlineMax} {
		b.Reset(testFile, FirstBatch, 0, Stamp{})
		b.Body(BodyRef{1, 1}, make([]byte, n))
		if got := b.Len() - BatchOverhead - int64(n); got > RecordOverhead {
			t.Errorf("a body of %d bytes has an overhead of %d", n, got)
		}
	}
}
