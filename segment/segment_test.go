package segment

import (
	"bytes"
	"errors"
	"testing"
)

var testFile = File{Group: 7, Segment: 3, Salt: 0x5a17}

func TestBuilderRoundTrip(t *testing.T) {
	var b Builder
	stamp := Stamp{Promise: Position{3, FirstBatch}, Commit: 9, Boot: Boot{1, 2, 3}}
	b.Reset(testFile, FirstBatch, 42, stamp)
	b.Body(BodyRef{4, 1}, []byte("hello, "), []byte("world"))
	b.Entry(Entry{Index: 10, Term: 4, Data: []byte("data")})
	b.Truncate(11)
	b.Void(BodyRef{4, 2}, 8)
	want := b.Len()
	raw, next := b.Finish()
	if int64(len(raw)) != want || want%8 != 0 || raw[len(raw)-1] == 0 {
		t.Fatalf("length %d, want %d; last byte %x", len(raw), want, raw[len(raw)-1])
	}
	bt, err := ParseBatch(raw, testFile, FirstBatch, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bt.Stamp != stamp || bt.Chain != 42 || bt.Next != next || bt.Size != want || len(bt.Rows) != 4 {
		t.Fatalf("got %+v", bt)
	}
	for i, row := range bt.Rows {
		if row != b.Rows()[i] {
			t.Errorf("row %d: read %+v, built %+v", i, row, b.Rows()[i])
		}
	}
	ref, payload, err := ParseBody(bt.Record(bt.Rows[0]).Body)
	if err != nil || ref != (BodyRef{4, 1}) || !bytes.Equal(payload, []byte("hello, world")) {
		t.Errorf("body %v %q %v", ref, payload, err)
	}
	e, err := ParseEntry(bt.Record(bt.Rows[1]).Body)
	if err != nil || e.Index != 10 || e.Term != 4 || string(e.Data) != "data" {
		t.Errorf("entry %+v %v", e, err)
	}
	if _, err := ParseBatch(raw[:len(raw)-1], testFile, FirstBatch, nil); !errors.Is(err, ErrShort) {
		t.Errorf("a batch that is cut short: %v", err)
	}
}
