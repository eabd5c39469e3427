package fuzz

import (
	"bytes"
	"testing"

	"weida/broker/wire"
)

// FuzzFrames: what decodes encodes to the same bytes, and nothing panics or reads beyond its input.
func FuzzFrames(f *testing.F) {
	for _, frame := range []wire.Frame{
		&wire.OpenProducer{Queue: "q", Want: wire.Stored(wire.Flushed)},
		&wire.OpenConsumer{Queue: "q", Subscription: "s", Credit: 9},
		&wire.Opened{Offer: wire.Stored(wire.Flushed)},
		&wire.EvidenceFrame{First: 1, Count: 2, Evidence: wire.Replicated(3, wire.Flushed), Offset: 3, Term: 4},
		&wire.Refused{Seq: 1, Code: wire.TooLarge},
		&wire.Deliver{Offset: 1, Attempt: 1, Body: []byte("b")},
		&wire.Settle{Offset: 1, Attempt: 1, Term: 1, Verb: wire.Accept},
	} {
		f.Add(wire.Append(nil, frame))
	}
	f.Fuzz(roundTrip)
}

// FuzzPublishFrame is the same for the frame that carries other people's bytes.
func FuzzPublishFrame(f *testing.F) {
	f.Add(wire.Append(nil, &wire.Publish{Seq: 1, Body: []byte("hello")}))
	f.Add(wire.Append(nil, &wire.Publish{Seq: 1, Want: wire.Accepted(), Large: true, Stream: 2, Length: 1 << 30}))
	f.Fuzz(roundTrip)
}

func roundTrip(t *testing.T, b []byte) {
	frame, n, err := wire.Parse(b)
	if err != nil {
		return
	}
	again := wire.Append(nil, frame)
	back, m, err := wire.Parse(again)
	if err != nil || m != len(again) {
		t.Fatalf("%x decodes, its encoding %x does not: %v", b[:n], again, err)
	}
	if !bytes.Equal(wire.Append(nil, back), again) {
		t.Fatalf("%x is not stable", again)
	}
}
