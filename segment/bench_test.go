package segment

import (
	"bytes"
	"testing"
)

func BenchmarkBuild(b *testing.B) {
	var bl Builder
	body := bytes.Repeat([]byte{1}, 256)
	commit := []Commit{{Ref: BodyRef{1, 1}, Length: 256}}
	data := AppendData(nil, commit, []byte("put"))
	b.ReportAllocs()
	for b.Loop() {
		bl.Reset(testFile, FirstBatch, 1, Stamp{})
		for range 64 {
			bl.Body(BodyRef{1, 1}, body)
		}
		bl.Entry(Entry{Index: 1, Data: data})
		raw, _ := bl.Finish()
		b.SetBytes(int64(len(raw)))
	}
}

func BenchmarkRecover(b *testing.B) {
	l := newLab(b)
	for range 1000 {
		l.batch(256)
	}
	in := l.input()
	b.SetBytes(l.cur().pos)
	b.ReportAllocs()
	for b.Loop() {
		if end := Recover(in, l.known, nil); end.Verdict != Valid {
			b.Fatal(end.Err)
		}
	}
}

func BenchmarkFindEntry(b *testing.B) {
	l := newLab(b)
	for range 1000 {
		l.batch(256)
	}
	n := l.footer()
	p := l.cur()
	r := bytes.NewReader(p.data)
	ft, err := OpenFooter(r, p.file, p.pos)
	if err != nil || ft.Size != n {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, ok, err := FindEntry(r, ft, 500); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
