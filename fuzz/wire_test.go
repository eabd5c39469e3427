package fuzz

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"weida/broker/wire"
)

// checkFrame holds what every decoded frame has to satisfy: one encoding, evidence that may exist.
func checkFrame(t *testing.T, f wire.Frame, b []byte) {
	t.Helper()
	if again := wire.Append(nil, f); !bytes.Equal(again, b) {
		t.Fatalf("%v decoded from %x encodes as %x", f.Type(), b, again)
	}
	var said []wire.Evidence
	switch f := f.(type) {
	case *wire.OpenProducer:
		said = append(said, f.Want)
	case *wire.Opened:
		said = append(said, f.Offer)
	case *wire.EvidenceFrame:
		said = append(said, f.Evidence)
		if f.Count == 0 || f.First+f.Count < f.First {
			t.Fatalf("a range of nothing or without end: %+v", f)
		}
	case *wire.Below:
		said = append(said, f.Evidence)
		if f.Evidence.Replicas == 0 {
			t.Fatalf("below request without being stored: %+v", f)
		}
	case *wire.Publish:
		if !f.Want.IsZero() {
			said = append(said, f.Want)
		}
		checkBody(t, f.Large, f.Length, f.Body)
		if f.Large && f.Length <= wire.InlineMax {
			t.Fatalf("a large body of %d bytes", f.Length)
		}
	case *wire.Deliver: // a short body may come as a stream, which can end with a reason
		checkBody(t, f.Large, f.Length, f.Body)
	}
	for _, e := range said {
		if err := e.Validate(); err != nil {
			t.Fatalf("%v carries %+v: %v", f.Type(), e, err)
		}
	}
}

func checkBody(t *testing.T, large bool, length uint64, body []byte) {
	t.Helper()
	if large && body != nil || !large && len(body) > wire.InlineMax {
		t.Fatalf("large %v, length %d, %d bytes inline", large, length, len(body))
	}
}

func wireSeeds() [][]byte {
	var seeds [][]byte
	for _, f := range []wire.Frame{
		&wire.OpenProducer{Queue: "demo", Producer: "p", Want: wire.Stored(wire.Flushed)},
		&wire.OpenConsumer{Queue: "demo", Subscription: "s", Credit: 256},
		&wire.Opened{Offer: wire.Stored(wire.Flushed), MessageMax: 1 << 30, InFlight: 1024, InFlightSize: 16 << 20},
		&wire.Publish{Seq: 1, Low: 1, Body: []byte("hello")},
		&wire.Publish{Seq: 70, Low: 60, Want: wire.Replicated(3, wire.Flushed), Headers: []byte{1}},
		&wire.Publish{Seq: 2, Low: 1, Large: true, Stream: 6, Length: 1 << 30},
		&wire.EvidenceFrame{First: 1, Count: 300, Evidence: wire.Stored(wire.Written), Offset: 17, Term: 6},
		&wire.EvidenceFrame{First: 1, Count: 1, Evidence: wire.Accepted()},
		&wire.Refused{Seq: 9, Code: wire.DiskFull, Detail: "no room"},
		&wire.Below{Seq: 9, Evidence: wire.Stored(wire.Flushed), Offset: 4, Term: 2, Code: wire.NotOffered},
		&wire.Indeterminate{Seq: 9, Code: wire.StoreFailed},
		&wire.Deliver{Offset: 17, Attempt: 1, Term: 6, Body: []byte("hello")},
		&wire.Deliver{Offset: 18, Attempt: 2, Term: 6, Large: true, Stream: 7, Length: 70_000},
		&wire.Credit{Limit: 512},
		&wire.Settle{Offset: 17, Attempt: 1, Term: 6, Verb: wire.Reject},
		&wire.Settled{Offset: 17, Attempt: 1, Code: wire.StaleSettle},
		&wire.ErrorFrame{Code: wire.UnknownQueue, Detail: "nope"},
		&wire.BodyHead{Length: 70_000},
	} {
		seeds = append(seeds, wire.Append(nil, f))
	}
	return seeds
}

// FuzzFrames reads any bytes as a stream: no panic, no guess, one encoding per frame, and a Reader
// finds the same frames and the same end as Parse.
func FuzzFrames(f *testing.F) {
	var all []byte
	for _, s := range wireSeeds() {
		f.Add(s)
		all = append(all, s...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wire.NewReader(bytes.NewReader(b))
		for at := 0; ; {
			frame, n, err := wire.Parse(b[at:])
			got, rerr := r.Next()
			if err != nil {
				checkEnd(t, err, rerr, len(b) == at)
				return
			}
			if rerr != nil || !bytes.Equal(wire.Append(nil, got), b[at:at+n]) {
				t.Fatalf("at %d: Parse took %d bytes, the Reader says %v, %v", at, n, got, rerr)
			}
			checkFrame(t, frame, b[at:at+n])
			at += n
		}
	})
}

func checkEnd(t *testing.T, err, rerr error, clean bool) {
	t.Helper()
	var format *wire.FormatError
	switch {
	case errors.As(err, &format):
		if !errors.As(rerr, &format) {
			t.Fatalf("Parse says %v, the Reader %v", err, rerr)
		}
	case clean:
		if !errors.Is(rerr, io.EOF) {
			t.Fatalf("after the last frame the Reader says %v", rerr)
		}
	case !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(rerr, io.ErrUnexpectedEOF):
		t.Fatalf("inside a frame Parse says %v, the Reader %v", err, rerr)
	}
}

// FuzzPublishFrame puts any payload behind the head of a PUBLISH frame, so that the fuzzer does not
// have to find type and length first.
func FuzzPublishFrame(f *testing.F) {
	for _, s := range wireSeeds() {
		if s[0] == byte(wire.TypePublish) {
			f.Add(s[2:])
			f.Add(s[3:])
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > wire.FrameMax {
			return
		}
		b := append(publishHead(len(payload)), payload...)
		frame, n, err := wire.Parse(b)
		var format *wire.FormatError
		if err != nil {
			if !errors.As(err, &format) {
				t.Fatalf("a whole frame is said to go on: %v", err)
			}
			return
		}
		if _, ok := frame.(*wire.Publish); !ok || n != len(b) {
			t.Fatalf("decoded %T from %d of %d bytes", frame, n, len(b))
		}
		checkFrame(t, frame, b)
	})
}

// publishHead is type and length in their shortest forms.
func publishHead(n int) []byte {
	head := []byte{byte(wire.TypePublish)}
	switch {
	case n < 1<<6:
		return append(head, byte(n))
	case n < 1<<14:
		return append(head, 0x40|byte(n>>8), byte(n))
	}
	return append(head, 0x80, byte(n>>16), byte(n>>8), byte(n))
}
