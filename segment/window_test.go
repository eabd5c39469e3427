package segment

import (
	"bytes"
	"testing"
)

// TestLookBehindWindows: a batch header behind the end is found wherever the pieces in which the
// file is read have their borders.
func TestLookBehindWindows(t *testing.T) {
	const size = 5 << 19 // two and a half pieces
	data := make([]byte, size)
	var b Builder
	const last = size - BatchOverhead - 240
	for _, near := range []int64{FirstBatch, FirstBatch + windowMax, FirstBatch + 2*windowMax, last} {
		for d := int64(-240); d <= 240; d += 8 {
			pos := near + d
			if pos < FirstBatch+8 {
				continue
			}
			promise := Position{testFile.Segment, pos}
			b.Reset(testFile, pos, 99, Stamp{Promise: promise})
			raw, _ := b.Finish()
			copy(data[pos:], raw)
			part := Part{File: testFile, R: bytes.NewReader(data), Size: size, Start: FirstBatch}
			end := Recover([]Part{part}, Known{Boot: Boot{1}}, nil)
			if end.Verdict != Corrupt || end.Promise != promise {
				t.Fatalf("header at %d: %v, promise %v", pos, end.Verdict, end.Promise)
			}
			clear(data[pos : pos+int64(len(raw))])
		}
	}
}

// TestRecoverBig: batches of every size up to the greatest, in a segment of many pieces.
func TestRecoverBig(t *testing.T) {
	l := newLab(t)
	for i := range 60 {
		n := (i*7919 + 1) % InlineMax
		l.batch(n, InlineMax, n, n/2)
	}
	l.want(Valid, l.place(), 60)
	w := l.wrote[40]
	l.known.Promise = l.end
	flip(l.cur(), w.pos+int64(len(w.bytes))-1)
	l.want(Corrupt, Position{}, 40)
}
