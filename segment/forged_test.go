package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

// forger writes what no Builder writes: records that verify, in batches that are none.
type forger struct {
	raw   []byte
	chain Chain
}

func (g *forger) record(k Kind, body ...byte) {
	g.raw, g.chain = AppendRecord(g.raw, testFile, FirstBatch+int64(len(g.raw)), k, g.chain, body)
}

func (g *forger) batch(size, count uint32, promise Position) {
	b := make([]byte, batchLen)
	le.PutUint32(b, size)
	le.PutUint32(b[4:], count)
	le.PutUint64(b[8:], uint64(promise.Segment))
	le.PutUint64(b[16:], uint64(promise.Pos))
	g.record(KindBatch, b...)
}

func (g *forger) trailer(size, end uint32) {
	b := make([]byte, trailerLen)
	le.PutUint32(b, size)
	le.PutUint32(b[4:], end)
	g.record(KindTrailer, b...)
}

// TestForgedBatch: a batch whose records all verify is still refused if it is not one.
func TestForgedBatch(t *testing.T) {
	const void = 80 // bytes of a void record
	one := []byte{1, 16: 1, 23: 0}
	for _, c := range []struct {
		name, cause string
		forge       func(g *forger)
	}{
		{"good", "", func(g *forger) {
			g.batch(BatchOverhead+void, 1, Position{})
			g.record(KindVoid, one...)
			g.trailer(BatchOverhead+void, endMagic)
		}},
		{"count too high", "fewer records", func(g *forger) {
			g.batch(BatchOverhead+void, 2, Position{})
			g.record(KindVoid, one...)
			g.trailer(BatchOverhead+void, endMagic)
		}},
		{"count too low", "ends elsewhere", func(g *forger) {
			g.batch(BatchOverhead+void, 0, Position{})
			g.record(KindVoid, one...)
			g.trailer(BatchOverhead+void, endMagic)
		}},
		{"length too small", "impossible length", func(g *forger) { g.batch(BatchOverhead-8, 0, Position{}) }},
		{"length too great", "impossible length", func(g *forger) { g.batch(BatchMax+8, 0, Position{}) }},
		{"length not aligned", "impossible length", func(g *forger) { g.batch(BatchOverhead+4, 0, Position{}) }},
		{"promise behind itself", "promises more", func(g *forger) {
			g.batch(BatchOverhead, 0, Position{testFile.Segment, FirstBatch + 8})
		}},
		{"negative promise", "promises more", func(g *forger) { g.batch(BatchOverhead, 0, Position{1, -8}) }},
		{"trailer of another length", "not that of its batch", func(g *forger) {
			g.batch(BatchOverhead, 0, Position{})
			g.trailer(BatchOverhead+8, endMagic)
		}},
		{"trailer of another magic", "not that of its batch", func(g *forger) {
			g.batch(BatchOverhead, 0, Position{})
			g.trailer(BatchOverhead, endMagic+1)
		}},
		{"no trailer", "no trailer stands", func(g *forger) {
			g.batch(BatchOverhead, 0, Position{})
			g.record(KindTruncate, 1, 0, 0, 0, 0, 0, 0, 0)
		}},
		{"chain broken before a record", "broken inside", func(g *forger) {
			g.batch(BatchOverhead+void, 1, Position{})
			g.chain++
			g.record(KindVoid, one...)
			g.trailer(BatchOverhead+void, endMagic)
		}},
		{"chain broken before the trailer", "broken before the trailer", func(g *forger) {
			g.batch(BatchOverhead, 0, Position{})
			g.chain++
			g.trailer(BatchOverhead, endMagic)
		}},
		{"a frame inside", "cannot be in a batch", func(g *forger) {
			g.batch(BatchOverhead+64, 1, Position{})
			g.record(KindFrame, 1)
			g.trailer(BatchOverhead+64, endMagic)
		}},
		{"a truncation from 0", "index 0", func(g *forger) {
			g.batch(BatchOverhead+64, 1, Position{})
			g.record(KindTruncate, make([]byte, truncateLen)...)
			g.trailer(BatchOverhead+64, endMagic)
		}},
		{"another version inside", "another format version inside", func(g *forger) {
			g.batch(BatchOverhead+void, 1, Position{})
			at := len(g.raw)
			g.record(KindVoid, one...)
			g.raw[at+offVersion], g.raw[at+offHeadSum] = 2, g.raw[at+offHeadSum]+1
			g.trailer(BatchOverhead+void, endMagic)
		}},
		{"a body record", "not a batch header", func(g *forger) { g.record(KindVoid, one...) }},
	} {
		var g forger
		c.forge(&g)
		_, err := ParseBatch(g.raw, testFile, FirstBatch, nil)
		var corrupt *CorruptError
		if c.cause == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if !errors.As(err, &corrupt) || !strings.Contains(corrupt.Cause, c.cause) {
			t.Errorf("%s: %v, want %q", c.name, err, c.cause)
		}
	}
}

// TestForgedChain: a kind outside the chain carries none.
func TestForgedChain(t *testing.T) {
	b := EncodeHeader(testFile, Header{})
	le.PutUint64(b[offChain:], 1)
	le.PutUint64(b[offHeadSum:], xxh3.HashSeed(b[:offHeadSum], seedAt(testFile.seed(), 0)))
	var corrupt *CorruptError
	if _, _, err := ParseRecord(b, testFile, 0); !errors.As(err, &corrupt) {
		t.Error(err)
	}
}

// TestForgedFooter: rows that verify but place nothing a segment can hold, and a wrong end, are refused.
func TestForgedFooter(t *testing.T) {
	const pos = 4096
	good := Row{Kind: KindEntry, Index: 1, Term: 1, Pos: FirstBatch, Size: 80}
	var corrupt *CorruptError
	for name, row := range map[string]Row{
		"before the first batch": {Kind: KindEntry, Index: 1, Pos: 8, Size: 80},
		"behind the footer":      {Kind: KindBody, Pos: pos, Size: 80},
		"too small":              {Kind: KindVoid, Pos: FirstBatch, Size: 8},
		"too big":                {Kind: KindTruncate, Index: 1, Pos: FirstBatch, Size: BatchMax + 8},
	} {
		b := EncodeFooter(testFile, pos, []Row{row}, 1, 1)
		if _, _, err := ParseFooter(b, testFile, pos); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		ft, err := OpenFooter(offsetReader{b, pos}, testFile, pos)
		if err != nil {
			t.Fatal(err)
		}
		if err := EachRow(offsetReader{b, pos}, ft, func(Row) error { return nil }); !errors.As(err, &corrupt) {
			t.Errorf("%s, row by row: %v", name, err)
		}
	}
	reforge := func(change func(body []byte)) []byte {
		b := EncodeFooter(testFile, pos, []Row{good}, 1, 1)
		body := b[HeaderSize:]
		change(body)
		out, _ := AppendRecord(nil, testFile, pos, KindFooter, 0, body)
		return out
	}
	for name, change := range map[string]func(body []byte){
		"other end magic":   func(b []byte) { b[len(b)-1]++ },
		"other record size": func(b []byte) { b[len(b)-footerTail]++ },
		"head":              func(b []byte) { b[8]++ },
		"row":               func(b []byte) { b[footerHead]++ },
		"counts": func(b []byte) {
			b[24]++
			le.PutUint64(b[40:], xxh3.HashSeed(b[:40], seedAt(testFile.seed(), pos+HeaderSize)))
		},
		"kind of the row": func(b []byte) {
			r := b[footerHead:][:rowSize]
			r[24] = byte(KindBody)
			at := seedAt(testFile.seed(), pos+HeaderSize+footerHead)
			le.PutUint32(r[28:], uint32(xxh3.HashSeed(r[:28], at)))
		},
	} {
		if _, _, err := ParseFooter(reforge(change), testFile, pos); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := ParseFooter(reforge(func([]byte) {}), testFile, pos); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}
