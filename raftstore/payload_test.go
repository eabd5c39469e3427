package raftstore

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"weida/segment"
)

func samplePayloads() [][]byte {
	body := bytes.Repeat([]byte("b"), 100)
	large := segment.Commit{Ref: bref(3, 9), Length: 1 << 30, Digest: Digest{1, 2}, Large: true}
	return [][]byte{
		appendBodyFrame(nil, bref(2, 7), segment.DigestOf(body), body),
		appendBodyFrame(nil, bref(2, 8), segment.DigestOf(nil), nil),
		encodeWants([]want{
			{Index: 5, Body: segment.Commit{Ref: bref(2, 7), Length: 100, Digest: segment.DigestOf(body)}},
			{Index: 6, Body: large},
			{Index: 7, Body: segment.Commit{Ref: bref(2, 8)}, Loose: true},
		}),
		encodeSettled(12, []BodyRef{{Term: 2, Seq: 7}, {Term: 3, Seq: 1}}),
		encodeAbsent([]BodyRef{{Term: 2, Seq: 7}}),
	}
}

// encode is the frame that decodes to p.
func (p *payload) encode() []byte {
	switch p.kind {
	case bodyFrame:
		return appendBodyFrame(nil, p.body.Ref, p.body.Digest, p.bytes)
	case wantFrame:
		return encodeWants(p.wants)
	case settledFrame:
		return encodeSettled(p.settle, p.refs)
	case absentFrame:
		return encodeAbsent(p.refs)
	}
	return nil
}

func TestPayloadRoundTrip(t *testing.T) {
	for _, b := range samplePayloads() {
		p, err := decodePayload(b)
		if err != nil {
			t.Fatalf("%x: %v", b[:20], err)
		}
		if !bytes.Equal(p.encode(), b) {
			t.Fatalf("%+v does not encode to itself", p)
		}
		if again, _ := decodePayload(p.encode()); !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v is not %+v", p, again)
		}
	}
	p, _ := decodePayload(samplePayloads()[2])
	if !p.wants[1].Body.Large || p.wants[1].Body.Length != 1<<30 || !p.wants[2].Loose || p.wants[0].Loose {
		t.Fatalf("wants %+v", p.wants)
	}
}

// Every frame is refused when a byte is missing or one too many is there; a changed byte of a body is errBodyDigest.
func TestPayloadStrict(t *testing.T) {
	for _, b := range samplePayloads() {
		for n := range b {
			if _, err := decodePayload(b[:n]); !errors.Is(err, errPayload) {
				t.Fatalf("kind %d cut to %d bytes: %v", b[0], n, err)
			}
		}
		if _, err := decodePayload(append(bytes.Clone(b), 0)); !errors.Is(err, errPayload) {
			t.Fatalf("kind %d and a byte more: %v", b[0], err)
		}
	}
	bad := samplePayloads()[0]
	bad[len(bad)-1] ^= 1
	if p, err := decodePayload(bad); !errors.Is(err, errBodyDigest) || p.body.Ref != bref(2, 7) {
		t.Fatalf("damaged body: %v", err)
	}
	for _, b := range [][]byte{
		nil,
		{0},
		{9},
		make([]byte, PayloadFrameMax+1),
		encodeSettled(0, []BodyRef{{Term: 1, Seq: 1}}),
		encodeSettled(1, []BodyRef{{Term: 0, Seq: 1}}),
		encodeAbsent([]BodyRef{{Term: 1, Seq: 0}}),
		encodeWants([]want{{Index: 0, Body: segment.Commit{Ref: bref(1, 1)}}}),
		encodeWants([]want{{Index: 1, Body: segment.Commit{Ref: bref(1, 1), Length: -1}}}),
	} {
		if _, err := decodePayload(b); !errors.Is(err, errPayload) {
			t.Fatalf("%.20x: %v", b, err)
		}
	}
}

func FuzzPayload(f *testing.F) {
	for _, b := range samplePayloads() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePayload(b)
		if len(p.wants)+len(p.refs) > payloadRefsMax || cap(p.wants) > payloadRefsMax || cap(p.refs) > payloadRefsMax {
			t.Fatal("more refs than a frame may have")
		}
		if err == nil && !bytes.Equal(p.encode(), b) {
			t.Fatalf("%+v does not encode to the frame it came from", p)
		}
	})
}
