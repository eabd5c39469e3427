package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"weida/segment"
)

// The files the targets read are of this group; what verifies for it was written by the seeds below.
var fuzzFile = segment.File{Group: 7, Segment: 1, Salt: 0x5a17}

// fuzzLog is a small segment: header, five batches of every record kind, footer.
type fuzzLog struct {
	data  []byte // the whole file
	end   int64  // of the log; the footer stands there
	first []byte // the first batch
	chain segment.Chain
	rows  []segment.Row
	known map[string]bool // every record of the log, see recordKey
}

func newFuzzLog(t testing.TB) fuzzLog {
	l := fuzzLog{known: make(map[string]bool)}
	l.data = segment.EncodeHeader(fuzzFile, segment.Header{Base: 1, Manifest: 1})
	var b segment.Builder
	promise := segment.Position{}
	for i := range 5 {
		pos := int64(len(l.data))
		b.Reset(fuzzFile, pos, l.chain, segment.Stamp{Promise: promise, Commit: segment.Index(i), Boot: segment.Boot{1}})
		ref, payload := segment.BodyRef{Term: 2, Seq: uint64(i + 1)}, bytes.Repeat([]byte{byte(i + 1)}, 10+200*i)
		b.Body(ref, payload)
		commit := segment.Commit{Ref: ref, Length: int64(len(payload)), Digest: segment.DigestOf(payload)}
		data := segment.AppendData(nil, []segment.Commit{commit}, []byte("put"))
		b.Entry(segment.Entry{Index: segment.Index(i + 1), Term: 2, Data: data})
		if i == 3 {
			b.Truncate(4)
			b.Void(segment.BodyRef{Term: 1, Seq: 9}, 2)
		}
		raw, chain := b.Finish()
		bt, err := segment.ParseBatch(raw, fuzzFile, pos, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range bt.Rows {
			l.known[recordKey(bt.Record(row))] = true
		}
		if i == 0 {
			l.first = bytes.Clone(raw)
		}
		l.rows = append(l.rows, b.Rows()...)
		l.data, l.chain = append(l.data, raw...), chain
		if i == 2 {
			promise = segment.Position{Segment: 1, Pos: int64(len(l.data))}
		}
	}
	l.end = int64(len(l.data))
	l.data = append(l.data, segment.EncodeFooter(fuzzFile, l.end, l.rows, l.chain, 5)...)
	return l
}

func recordKey(r segment.Record) string { return fmt.Sprintf("%d %d %x", r.Pos, r.Kind, r.Body) }

// typed fails the test unless err is one of the errors the reader of a record may return.
func typed(t *testing.T, err error) {
	t.Helper()
	var corrupt *segment.CorruptError
	var version *segment.VersionError
	if !errors.As(err, &corrupt) && !errors.As(err, &version) && !errors.Is(err, segment.ErrShort) {
		t.Fatalf("untyped error: %v", err)
	}
}

// FuzzRecord: no bytes make ParseRecord panic, and a record it returns encodes to the same bytes.
func FuzzRecord(f *testing.F) {
	for k := segment.KindSegment; k <= segment.KindFileTail; k++ {
		for _, n := range []int{0, 8, 24, 48, 64, 100} {
			if b := tryRecord(k, n); b != nil {
				f.Add(b, int64(4096))
			}
		}
	}
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, pos int64) {
		pos &= 1<<40 - 8
		r, next, err := segment.ParseRecord(b, fuzzFile, pos)
		if err != nil {
			typed(t, err)
			return
		}
		again, chain := segment.AppendRecord(nil, fuzzFile, pos, r.Kind, r.Chain, r.Body)
		if !bytes.Equal(again, b[:r.Size]) {
			t.Fatalf("a record that reads as %+v is written as other bytes", r)
		}
		if r.Chain != 0 && chain != next {
			t.Fatalf("chain %x when read, %x when written", next, chain)
		}
		readBody(t, r)
	})
}

// tryRecord returns a record of kind k with a body of n bytes, nil if the kind has no such length.
func tryRecord(k segment.Kind, n int) (b []byte) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	b, _ = segment.AppendRecord(nil, fuzzFile, 4096, k, 5, bytes.Repeat([]byte{1}, n))
	return b
}

// readBody parses a body as its kind; whatever it holds, nothing may panic.
func readBody(t *testing.T, r segment.Record) {
	var err error
	switch r.Kind {
	case segment.KindBody:
		_, _, err = segment.ParseBody(r.Body)
	case segment.KindEntry:
		var e segment.Entry
		if e, err = segment.ParseEntry(r.Body); err == nil {
			_, _, err = segment.ParseData(e.Data)
		}
	case segment.KindTruncate:
		_, err = segment.ParseTruncate(r.Body)
	case segment.KindVoid:
		_, _, err = segment.ParseVoid(r.Body)
	}
	if err != nil && err.Error() == "" {
		t.Fatal("an error without words")
	}
}

// FuzzBatch: no bytes make ParseBatch panic; a batch it returns is one a builder writes.
func FuzzBatch(f *testing.F) {
	l := newFuzzLog(f)
	f.Add(l.first)
	f.Add(l.data[segment.FirstBatch:])
	f.Add(l.first[:len(l.first)-8])
	f.Fuzz(func(t *testing.T, b []byte) {
		bt, err := segment.ParseBatch(b, fuzzFile, segment.FirstBatch, nil)
		if err != nil {
			typed(t, err)
			return
		}
		var again segment.Builder
		again.Reset(fuzzFile, bt.Pos, bt.Chain, bt.Stamp)
		for _, row := range bt.Rows {
			rebuild(t, &again, bt.Record(row))
		}
		if raw, next := again.Finish(); !bytes.Equal(raw, b[:bt.Size]) || next != bt.Next {
			t.Fatal("a batch that was read is written as other bytes")
		}
	})
}

func rebuild(t *testing.T, b *segment.Builder, r segment.Record) {
	switch r.Kind {
	case segment.KindBody:
		ref, payload, err := segment.ParseBody(r.Body)
		check(t, err)
		b.Body(ref, payload)
	case segment.KindEntry:
		e, err := segment.ParseEntry(r.Body)
		check(t, err)
		b.Entry(e)
	case segment.KindTruncate:
		from, err := segment.ParseTruncate(r.Body)
		check(t, err)
		b.Truncate(from)
	case segment.KindVoid:
		ref, settled, err := segment.ParseVoid(r.Body)
		check(t, err)
		b.Void(ref, settled)
	default:
		t.Fatalf("a %v record came out of a batch", r.Kind)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzFooter: a damaged footer is an error wherever it is met; no row comes out that was not put in.
func FuzzFooter(f *testing.F) {
	l := newFuzzLog(f)
	f.Add(l.data[l.end:])
	f.Add([]byte{})
	written := make(map[segment.Row]bool)
	for _, row := range l.rows {
		written[row] = true
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, rows, err := segment.ParseFooter(b, fuzzFile, l.end); err != nil {
			typed(t, err)
		} else {
			for _, row := range rows {
				if !written[row] {
					t.Fatalf("row %+v was never written", row)
				}
			}
		}
		file := append(bytes.Clone(l.data[:l.end]), b...)
		r := bytes.NewReader(file)
		ft, err := segment.LocateFooter(r, fuzzFile, int64(len(file)))
		if err != nil {
			typed(t, err)
			return
		}
		for i := segment.Index(0); i < 7; i++ {
			row, ok, err := segment.FindEntry(r, ft, i)
			if err != nil {
				typed(t, err)
			} else if ok && (row.Index != i || !written[row]) {
				t.Fatalf("entry %d: row %+v", i, row)
			}
			ref := segment.BodyRef{Term: 2, Seq: uint64(i)}
			row, ok, err = segment.FindBody(r, ft, ref)
			if err != nil {
				typed(t, err)
			} else if ok && (row.Ref != ref || !written[row]) {
				t.Fatalf("body %v: row %+v", ref, row)
			}
		}
	})
}

// FuzzRecover: a whole segment with anything written over it. No record comes back that was not
// written, the verdict is one of the named ones, and the same bytes give the same answer twice.
func FuzzRecover(f *testing.F) {
	l := newFuzzLog(f)
	f.Add([]byte{}, uint16(0), uint16(0), uint8(0))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint16(200), uint16(0), uint8(1))
	f.Add([]byte{0xff}, uint16(500), uint16(1000), uint8(2))
	f.Add(l.first, uint16(1200), uint16(0), uint8(4))
	f.Add(l.data[:600], uint16(0), uint16(2000), uint8(7))
	f.Fuzz(func(t *testing.T, over []byte, at, cut uint16, how uint8) {
		data := append(bytes.Clone(l.data), make([]byte, 4096)...)
		if how&8 != 0 {
			clear(data[l.end:]) // no footer
		}
		copy(data[min(int(at), len(data)):], over)
		if cut > 0 {
			data = data[:min(int(cut), len(data))]
		}
		k := segment.Known{Boot: segment.Boot{1 + how&1}, CleanStop: how&2 != 0}
		if how&4 != 0 {
			k.Promise = segment.Position{Segment: 1, Pos: int64(at)}
		}
		part := segment.Part{File: fuzzFile, R: bytes.NewReader(data), Size: int64(len(data)), Start: segment.FirstBatch}
		if how&16 != 0 {
			part.Limit = max(int64(at)&^7, segment.FirstBatch)
		}
		run := func() (segment.End, int) {
			n := 0
			end := segment.Recover([]segment.Part{part}, k, func(_ segment.Number, row segment.Row, r segment.Record) error {
				if !l.known[recordKey(r)] {
					t.Fatalf("record at %d was never written", r.Pos)
				}
				n++
				return nil
			})
			return end, n
		}
		end, n := run()
		again, m := run()
		if end.Verdict != again.Verdict || end.At != again.At || end.Chain != again.Chain || n != m {
			t.Fatalf("two answers: %+v and %+v", end, again)
		}
		bad := end.Verdict == segment.Corrupt || end.Verdict == segment.UnknownVersion
		if !bad && end.Verdict != segment.Valid && end.Verdict != segment.Torn || bad != (end.Err != nil) {
			t.Fatalf("verdict %v with error %v", end.Verdict, end.Err)
		}
		if bad {
			typed(t, end.Err)
		}
		each := func(*segment.Batch) error { return nil }
		_, _, err := segment.EachBatch(part.R, part.Size, fuzzFile, segment.FirstBatch, each)
		if err != nil {
			typed(t, err)
		}
	})
}

// FuzzData: no bytes make the commit table panic or allocate beyond their own length, and what is
// read is written the same.
func FuzzData(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255})
	f.Add(segment.AppendData(nil, []segment.Commit{{Length: 5, Large: true}, {Length: 1 << 62}}, []byte("cmd")))
	f.Fuzz(func(t *testing.T, b []byte) {
		commits, commands, err := segment.ParseData(b)
		var n int
		each := segment.EachCommit(b, func(c segment.Commit) error {
			if err == nil && c != commits[n] {
				t.Fatalf("commit %d differs", n)
			}
			n++
			return nil
		})
		if (err != nil) != (each != nil) || err == nil && n != len(commits) {
			t.Fatalf("ParseData %v, EachCommit %v", err, each)
		}
		if err == nil && len(b) > 0 && !bytes.Equal(segment.AppendData(nil, commits, commands), b) {
			t.Fatal("data that was read is written as other bytes")
		}
	})
}
