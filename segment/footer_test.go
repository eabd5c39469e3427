package segment

import (
	"bytes"
	"errors"
	"testing"
)

// sealed writes a segment of n small batches with a truncation and a tombstone, and its footer.
func sealed(t testing.TB, n int) (*lab, Footer) {
	l := newLab(t)
	for range n {
		l.batch(10, 3000%(n+7))
	}
	p := l.cur()
	l.b.Reset(p.file, p.pos, l.chain, Stamp{Boot: l.boot})
	l.b.Truncate(l.index)
	l.b.Void(BodyRef{1, 1 << 40}, 3)
	l.index--
	l.write()
	l.batch(20)
	size := l.footer()
	p.data = p.data[:p.pos+size]
	ft, err := LocateFooter(bytes.NewReader(p.data), p.file, int64(len(p.data)))
	if err != nil {
		t.Fatal(err)
	}
	return l, ft
}

func TestFooter(t *testing.T) {
	for _, n := range []int{1, 5, 300} {
		l, ft := sealed(t, n)
		p := l.cur()
		r := bytes.NewReader(p.data)
		whole, rows, err := ParseFooter(p.data[p.pos:], p.file, p.pos)
		if err != nil || whole != ft {
			t.Fatalf("%+v, %v; want %+v", whole, err, ft)
		}
		if ft.First != 1 || ft.Last != l.index || ft.Chain != l.chain || ft.Entries != n || ft.Bodies != 2*n+1 ||
			ft.Others != 2 {
			t.Errorf("footer %+v", ft)
		}
		var each []Row
		if err := EachRow(r, ft, func(row Row) error { each = append(each, row); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(each) != len(rows) {
			t.Errorf("%d rows, %d one by one", len(rows), len(each))
		}
		var buf []byte
		for _, row := range rows {
			var rec Record
			if rec, buf, err = ReadRecord(r, p.file, row, buf); err != nil || rec.Kind != row.Kind {
				t.Fatalf("%+v: %v", row, err)
			}
		}
		for i := Index(1); i <= l.index; i++ {
			row, ok, err := FindEntry(r, ft, i)
			if err != nil || !ok || row.Index != i {
				t.Fatalf("entry %d: %+v %v %v", i, row, ok, err)
			}
		}
		for s := uint64(1); s <= l.seq; s++ {
			row, ok, err := FindBody(r, ft, BodyRef{1, s})
			if err != nil || !ok || row.Ref.Seq != s {
				t.Fatalf("body %d: %+v %v %v", s, row, ok, err)
			}
		}
		for _, i := range []Index{0, l.index + 1, 1 << 60} {
			if _, ok, err := FindEntry(r, ft, i); ok || err != nil {
				t.Errorf("entry %d: %v %v", i, ok, err)
			}
		}
		if _, ok, err := FindBody(r, ft, BodyRef{2, 1}); ok || err != nil {
			t.Errorf("a body that is not there: %v %v", ok, err)
		}
		var others []Row
		if err := EachOther(r, ft, func(row Row) error { others = append(others, row); return nil }); err != nil ||
			len(others) != 2 || others[0].Kind != KindTruncate || others[1].Kind != KindVoid {
			t.Errorf("others %+v %v", others, err)
		}
	}
}

// TestFooterTruncated: a truncation takes the rows of the entries it makes void; the entry written
// in their place has the row.
func TestFooterTruncated(t *testing.T) {
	l, ft := sealed(t, 5)
	r := bytes.NewReader(l.cur().data)
	row, ok, err := FindEntry(r, ft, 5)
	if err != nil || !ok || row.Pos < l.wrote[5].pos {
		t.Errorf("%+v %v %v: the entry before the truncation", row, ok, err)
	}
	if ft := sortedIndexes(l.cur().rows[:12], KindEntry); len(ft) != 4 {
		t.Errorf("%v", ft)
	}
}

func sortedIndexes(rows []Row, k Kind) (list []Index) {
	entries, _, _ := sortRows(rows)
	for _, r := range entries {
		if r.Kind == k {
			list = append(list, r.Index)
		}
	}
	return list
}

// TestFooterEveryByte: damage in a footer is an error wherever it is met, never a wrong row and
// never "not there".
func TestFooterEveryByte(t *testing.T) {
	l, ft := sealed(t, 5)
	p := l.cur()
	good := bytes.Clone(p.data)
	for at := p.pos; at < int64(len(p.data)); at++ {
		copy(p.data, good)
		flip(p, at)
		r := bytes.NewReader(p.data)
		if _, _, err := ParseFooter(p.data[p.pos:], p.file, p.pos); err == nil {
			t.Errorf("byte %d: not noticed", at)
		}
		got, err := LocateFooter(r, p.file, int64(len(p.data)))
		if err != nil {
			continue
		}
		if got != ft {
			t.Errorf("byte %d: another footer: %+v", at, got)
		}
		for i := Index(1); i <= l.index; i++ {
			if row, ok, err := FindEntry(r, got, i); err == nil && (!ok || row.Index != i) {
				t.Errorf("byte %d: entry %d: %+v %v", at, i, row, ok)
			}
		}
		for s := uint64(1); s <= l.seq; s++ {
			if row, ok, err := FindBody(r, got, BodyRef{1, s}); err == nil && (!ok || row.Ref.Seq != s) {
				t.Errorf("byte %d: body %d: %+v %v", at, s, row, ok)
			}
		}
	}
}

func TestReadRecordDamage(t *testing.T) {
	l, ft := sealed(t, 2)
	p := l.cur()
	row, _, err := FindEntry(bytes.NewReader(p.data), ft, 1)
	if err != nil {
		t.Fatal(err)
	}
	wrong := []Row{row, row, row, row}
	wrong[0].Index = 2
	wrong[1].Size -= 8
	wrong[2].Pos += 4
	wrong[3].Size = BatchMax + 8
	var corrupt *CorruptError
	for _, w := range wrong {
		if _, _, err := ReadRecord(bytes.NewReader(p.data), p.file, w, nil); !errors.As(err, &corrupt) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	flip(p, row.Pos+60)
	_, _, err = ReadRecord(bytes.NewReader(p.data), p.file, row, nil)
	if !errors.As(err, &corrupt) || corrupt.Index != 1 || corrupt.At != (Position{1, row.Pos}) {
		t.Errorf("%v", err)
	}
	disk := errors.New("input/output error")
	if _, _, err := ReadRecord(brokenReader{disk}, p.file, row, nil); !errors.Is(err, disk) {
		t.Errorf("%v", err)
	}
	if _, _, err := FindEntry(brokenReader{disk}, ft, 1); !errors.Is(err, disk) {
		t.Errorf("%v", err)
	}
	if _, err := OpenFooter(brokenReader{disk}, p.file, p.pos); !errors.Is(err, disk) {
		t.Errorf("%v", err)
	}
	if _, err := LocateFooter(brokenReader{disk}, p.file, 1000); !errors.Is(err, disk) {
		t.Errorf("%v", err)
	}
}

func TestEachBatch(t *testing.T) {
	l := newLab(t)
	for range 100 {
		l.batch(5000)
	}
	l.footer()
	p := l.cur()
	read := func() (int, int64, Chain, error) {
		n := 0
		end, chain, err := EachBatch(bytes.NewReader(p.data), int64(len(p.data)), p.file, FirstBatch, func(b *Batch) error {
			for i, row := range b.Rows {
				if h := recordHash(p.file.Segment, b.Record(row)); h != l.wrote[n].records[i] {
					t.Errorf("batch %d record %d differs", n, i)
				}
			}
			n++
			return nil
		})
		return n, end, chain, err
	}
	if n, end, chain, err := read(); n != 100 || end != p.pos || chain != l.chain || err != nil {
		t.Errorf("%d batches to %d, %v", n, end, err)
	}
	p.zero(p.pos)
	if n, end, _, err := read(); n != 100 || end != p.pos || err != nil {
		t.Errorf("before zeros: %d batches to %d, %v", n, end, err)
	}
	var corrupt *CorruptError
	other := newLab(t)
	other.batch(10)
	other.chain++
	w := other.batch(10)
	data := other.cur().data
	each := func(*Batch) error { return nil }
	end, _, err := EachBatch(bytes.NewReader(data), int64(len(data)), p.file, FirstBatch, each)
	if end != w.pos || !errors.As(err, &corrupt) {
		t.Errorf("a broken chain: %d, %v", end, err)
	}
	flip(p, l.wrote[50].pos+500)
	if n, end, _, err := read(); n != 50 || end != l.wrote[50].pos || !errors.As(err, &corrupt) {
		t.Errorf("before damage: %d batches to %d, %v", n, end, err)
	}
	stop := errors.New("stop")
	_, _, err = EachBatch(bytes.NewReader(p.data), p.pos, p.file, FirstBatch, func(*Batch) error { return stop })
	if !errors.Is(err, stop) {
		t.Error(err)
	}
}
