package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"weida/broker/wire"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew: only with a new protocol version")

// The bytes of every frame are fixed: a client of this version must understand a broker of the next.
func TestGolden(t *testing.T) {
	const file = "testdata/golden.txt"
	var now strings.Builder
	for _, s := range samples {
		fmt.Fprintf(&now, "%s: %s\n", s.name, hex.EncodeToString(wire.Append(nil, s.frame)))
	}
	if *update {
		if err := os.WriteFile(file, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(now.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d of %s:\nwant %s\ngot  %v", i+1, file, line, got[min(i, len(got)-1)])
		}
	}
	if len(got) != strings.Count(string(want), "\n")+1 {
		t.Fatalf("%d samples, %s holds another number", len(samples), file)
	}
}

func TestSamplesCoverEveryType(t *testing.T) {
	seen := map[wire.Type]bool{}
	for _, s := range samples {
		seen[s.frame.Type()] = true
	}
	for kind := wire.Type(1); kind <= wire.TypePublishWithin; kind++ {
		if !seen[kind] {
			t.Errorf("no golden sample of %v", kind)
		}
	}
}

func TestDecodeOfEncodeIsTheFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFrame(t)
		b := wire.Append([]byte("x"), f)[1:]
		got, n, err := wire.Parse(append(b, 0xff))
		if err != nil || n != len(b) || !same(got, f) {
			t.Fatalf("encoded %+v, decoded %+v, %d of %d bytes, %v", f, got, n, len(b), err)
		}
	})
}

// A frame cut anywhere is "more bytes needed"; the same bytes with a wrong length never decode.
func TestCutFrames(t *testing.T) {
	for _, s := range samples {
		b := wire.Append(nil, s.frame)
		for cut := range len(b) {
			if f, n, err := wire.Parse(b[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s cut at %d of %d: %v, %d, %v", s.name, cut, len(b), f, n, err)
			}
		}
		if b[1] >= 63 {
			continue // its length is not one byte
		}
		long := append(bytes.Clone(b), 0)
		long[1]++
		if f, _, err := wire.Parse(long); err == nil {
			t.Errorf("%s with a byte left over: decoded as %+v", s.name, f)
		}
		short := bytes.Clone(b)
		short[1]--
		if f, n, err := wire.Parse(short); err == nil && n == len(short)-1 && same(f, s.frame) {
			t.Errorf("%s one byte short: decoded as the whole frame", s.name)
		}
	}
}

// Each of these is refused, with the frame named where it is known.
func TestMalformed(t *testing.T) {
	const opener, publish, evidence, below, settle = 1, 4, 5, 7, 11
	frame := func(kind byte, payload ...byte) []byte { return append([]byte{kind, byte(len(payload))}, payload...) }
	cases := []struct {
		name, says string
		b          []byte
	}{
		{"unknown type", "unknown type 63", []byte{63, 0}},
		{"type zero", "unknown type 0", []byte{0, 0}},
		{"redirect to no host", "no address", frame(22, append(make([]byte, 2+32), 0, 1)...)},
		{"redirect to no port", "no address", frame(22, append(make([]byte, 2+32), 1, 'h', 0)...)},
		{"redirect beyond every port", "no address", frame(22, append(make([]byte, 2+32), 1, 'h', 0x80, 1, 0, 0)...)},
		{"a fingerprint cut short", "bytes are missing", frame(23, make([]byte, 31)...)},
		{"PUBLISH_WITHIN without a time", "a time that is none", frame(25, 1, 1, 0, 0, 0, 0, 0)},
		{"PUBLISH_WITHIN beyond its bound", "too long", frame(25, 1, 1, 0, 0x80, 0, 0xea, 0x61, 0, 0, 0)},
		{"type not in its shortest form", "shortest", []byte{0x40, 10, 1, 5}},
		{"length not in its shortest form", "shortest", []byte{10, 0x40, 1, 5}},
		{"payload beyond every bound", "at most", []byte{publish, 0x80, 0xff, 0xff, 0xff}},
		{"number not in its shortest form", "shortest", frame(10, 0x40, 1)},
		{"number cut short", "cut short", frame(10, 0x40)},
		{
			"queue name beyond its bound", "queue name of 513 bytes",
			append([]byte{opener, 0x42, 0x10, 0x42, 0x01}, make([]byte, 526)...),
		},
		{"bytes missing", "bytes are missing", frame(opener, 5, 'a')},
		{"no evidence wanted", "evidence is missing", frame(opener, 1, 'a', 0, 0)},
		{"D-4: stored without a level", "without a level", frame(opener, 1, 'a', 0, 2, 0)},
		{"D-4: replicated without a level", "without a level", frame(opener, 1, 'a', 0, 3, 0, 3)},
		{"persistence unknown", "without a level", frame(opener, 1, 'a', 0, 2, 3)},
		{"D-6: replicated of one", "replicated 1", frame(opener, 1, 'a', 0, 3, 2, 1)},
		{"D-6: replicated of none", "replicated 0", frame(evidence, 1, 1, 3, 2, 0, 0, 0)},
		{"replicated of too many", "replicated 256", frame(opener, 1, 'a', 0, 3, 2, 0x41, 0)},
		{"evidence of unknown kind", "unknown kind 9", frame(opener, 1, 'a', 0, 9, 1)},
		{"flag neither 0 nor 1", "flag", frame(publish, 1, 1, 0, 0, 2)},
		{"large body that is small", "would fit", frame(publish, 1, 1, 0, 0, 1, 2, 5)},
		{"empty range", "range", frame(evidence, 1, 0, 1)},
		{"below that was only accepted", "not stored", frame(below, 1, 1, 0, 0, 1, 0)},
		{"undefined verb", "verb", frame(settle, 1, 1, 1, 4)},
		{"verb zero", "verb", frame(settle, 1, 1, 1, 0)},
		{"error without a code", "without a code", frame(13, 0, 0)},
	}
	for _, c := range cases {
		f, n, err := wire.Parse(c.b)
		var format *wire.FormatError
		if !errors.As(err, &format) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %d, error %v; want a *FormatError that says %q", c.name, f, n, err, c.says)
		}
	}
}

// A length that the wire announces allocates nothing before the bytes are there.
func TestAnnouncedLengthsAllocateNothing(t *testing.T) {
	b := append([]byte{4, 0x80, 0x01, 0x00, 0x00}, 1, 1, 0, 0, 0, 0x80, 0x00, 0xff, 0xff)
	if got := testing.AllocsPerRun(100, func() {
		if _, _, err := wire.Parse(b); !errors.Is(err, io.ErrUnexpectedEOF) {
			panic(err)
		}
	}); got > 2 { // the frame struct; the bytes that are announced would be one more
		t.Errorf("%v allocations for a frame that is not there", got)
	}
}

// Frames come out of a Reader as they went in, however the stream is cut up.
func TestReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(rapid.Custom(anyFrame), 0, 6).Draw(t, "frames")
		var stream []byte
		for _, f := range frames {
			stream = wire.Append(stream, f)
		}
		tail := blob(t, 100, "tail")
		var in io.Reader = bytes.NewReader(append(stream, tail...))
		switch rapid.IntRange(0, 2).Draw(t, "cut") {
		case 0:
			in = iotest.OneByteReader(in)
		case 1:
			in = iotest.DataErrReader(iotest.HalfReader(in))
		}
		r := wire.NewReader(in)
		for i, want := range frames {
			if got, err := r.Next(); err != nil || !same(got, want) {
				t.Fatalf("frame %d: got %+v, %v; want %+v", i, got, err, want)
			}
		}
		rest, err := io.ReadAll(r.Rest())
		if err != nil || !bytes.Equal(rest, tail) {
			t.Fatalf("rest is %d bytes, %v; want %d", len(rest), err, len(tail))
		}
	})
}

func TestReaderEnds(t *testing.T) {
	whole := wire.Append(nil, samples[0].frame)
	r := wire.NewReader(bytes.NewReader(whole))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("between two frames: %v, want io.EOF", err)
	}
	r = wire.NewReader(bytes.NewReader(whole[:len(whole)-1]))
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("inside a frame: %v, want io.ErrUnexpectedEOF", err)
	}
	broken := errors.New("broken")
	r = wire.NewReader(io.MultiReader(bytes.NewReader(whole[:2]), iotest.ErrReader(broken)))
	if _, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("a stream that fails: %v, want its own error", err)
	}
}

// The largest frame of each kind with variable parts stays within FrameMax; one byte more is refused.
func TestLargestFrames(t *testing.T) {
	body, headers := make([]byte, wire.InlineMax), make([]byte, wire.HeadersMax)
	const most = 1<<62 - 1
	for _, f := range []wire.Frame{
		&wire.Publish{Seq: most, Low: most, Want: wire.Replicated(255, wire.Flushed), Headers: headers, Body: body},
		&wire.Deliver{Offset: most, Attempt: most, Term: most, Headers: headers, Body: body},
		&wire.Below{
			Seq: most, Evidence: wire.Replicated(255, wire.Flushed), Offset: most, Term: most, Code: most,
			Detail: strings.Repeat("x", wire.DetailMax),
		},
	} {
		got, err := wire.NewReader(bytes.NewReader(wire.Append(nil, f))).Next()
		if err != nil || !same(got, f) {
			t.Errorf("largest %v: %v", f.Type(), err)
		}
	}
	over := wire.Append(nil, &wire.Publish{Seq: 1, Low: 1, Body: make([]byte, wire.InlineMax+1)})
	var format *wire.FormatError
	if _, _, err := wire.Parse(over); !errors.As(err, &format) {
		t.Errorf("a body one byte above the bound: %v", err)
	}
}

// A frame of which a part came is not at hand: a broker that waits for its rest first answers what came before.
func TestBufferedMeansAWholeFrame(t *testing.T) {
	one := wire.Append(nil, samples[0].frame)
	in, out := io.Pipe()
	defer out.Close()                                           // a pipe's
	go out.Write(append(bytes.Clone(one), one[:len(one)-1]...)) //nolint:errcheck // a pipe in memory
	r := wire.NewReader(in)
	if r.Buffered() {
		t.Fatal("buffered before anything came")
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if r.Buffered() {
		t.Fatal("a frame without its last byte is called buffered")
	}
	r = wire.NewReader(bytes.NewReader(append(bytes.Clone(one), one...)))
	if _, err := r.Next(); err != nil || !r.Buffered() {
		t.Fatalf("a whole frame is not called buffered (%v)", err)
	}
	r = wire.NewReader(bytes.NewReader(append(bytes.Clone(one), 63)))
	if _, err := r.Next(); err != nil || !r.Buffered() {
		t.Fatalf("an error is at hand, but not called buffered (%v)", err)
	}
}
