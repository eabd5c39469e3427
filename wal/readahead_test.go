package wal

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

// The body behind the one read last is looked for where it should stand. Whatever the order of reading,
// and wherever segments end meanwhile, each ref gives its own body or its own absence.
func TestReadAhead(t *testing.T) {
	smallSegments(t, 8<<10)
	l := mustLife(t, memfs.New(), lifeOptions{segBytes: 8 << 10})
	size := func(seq uint64) int { return int(seq*37) % 900 }
	read := func(seq uint64) {
		t.Helper()
		ref := segment.BodyRef{Term: 1, Seq: seq}
		r, err := l.log.OpenBody(segment.Commit{Ref: ref, Length: -1})
		if err != nil {
			t.Fatalf("body %v: %v", ref, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, payload(ref, size(seq))) {
			t.Fatalf("body %v: another body, %v", ref, err)
		}
		must(t, r.Close())
	}
	const n = 120
	next := uint64(1) // to be read, in order, beside the appends: the hint stands at the end of the log again and again
	for seq := uint64(1); seq <= n; seq++ {
		must(t, l.append(oneEntry(segment.Index(seq), 1, seq, size(seq))))
		if seq%3 == 0 {
			for ; next <= seq; next++ {
				read(next)
			}
		}
		early := segment.Commit{Ref: segment.BodyRef{Term: 1, Seq: seq + 1}, Length: -1}
		if _, err := l.log.OpenBody(early); !errors.Is(err, ErrAbsent) {
			t.Fatalf("body %d before it was written: %v", seq+1, err)
		}
	}
	must(t, l.jobs())
	if l.log.Stats().Segments < 3 {
		t.Fatal("no segment was rolled")
	}
	for seq := uint64(n); seq > 0; seq-- {
		read(seq)
	}
	for seq := uint64(1); seq+7 <= n; seq++ {
		read(seq)
		read(seq + 7)
		read(seq + 1)
	}
}
