package segment

import (
	"bytes"
	"fmt"
	"testing"

	"weida/segment/rules"
)

// lab writes a group's segments in memory the way a log does, and remembers what it wrote.
type lab struct {
	t       reporter
	parts   []*labPart
	chain   Chain
	boot    Boot
	promise Position // what is put into the next batches
	known   Known
	index   Index
	term    Term
	seq     uint64
	wrote   []written // every batch, in log order
	sealed  int       // parts that are not handed to Recover any more
	end     Position  // of the last batch
	b       Builder
}

type labPart struct {
	file  File
	data  []byte // as long as the file
	pos   int64  // where the next batch goes
	limit int64
	rows  []Row
	chain Chain // at its end
}

// written is one batch as it went to its file.
type written struct {
	part    int
	pos     int64
	bytes   []byte
	records []uint64 // hashes, see recordHash
}

const labBytes = 64 << 10

// reporter is a test of the standard library or of rapid.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func newLab(t reporter) *lab {
	l := &lab{t: t, boot: Boot{1}, known: Known{Boot: Boot{1}}, term: 1}
	l.roll()
	l.promise = Position{1, FirstBatch}
	return l
}

// roll starts the next segment.
func (l *lab) roll() *labPart {
	n := Number(len(l.parts) + 1)
	p := &labPart{file: File{Group: 7, Segment: n, Salt: Salt(0x5a17<<8) + Salt(n)}, pos: FirstBatch}
	p.chain = l.chain
	p.data = make([]byte, labBytes)
	copy(p.data, EncodeHeader(p.file, Header{Base: l.index + 1, Manifest: uint64(n)}))
	l.parts = append(l.parts, p)
	return p
}

func (l *lab) cur() *labPart { return l.parts[len(l.parts)-1] }

// place is where the next batch goes.
func (l *lab) place() Position { return Position{l.cur().file.Segment, l.cur().pos} }

// flushed makes later batches promise all that is written by now.
func (l *lab) flushed() { l.promise = l.end }

// batch writes a batch of one entry and its bodies of the given lengths.
func (l *lab) batch(lens ...int) *written {
	p := l.cur()
	l.b.Reset(p.file, p.pos, l.chain, Stamp{Promise: l.promise, Commit: l.index, Boot: l.boot})
	var commits []Commit
	for _, n := range lens {
		l.seq++
		ref := BodyRef{l.term, l.seq}
		body := bytes.Repeat([]byte{byte(l.seq) | 1}, n)
		l.b.Body(ref, body)
		commits = append(commits, Commit{Ref: ref, Length: int64(n), Digest: DigestOf(body)})
	}
	l.index++
	l.b.Entry(Entry{Index: l.index, Term: l.term, Data: AppendData(nil, commits, []byte("put"))})
	return l.write()
}

// write finishes the builder's batch and puts it into the file.
func (l *lab) write() *written {
	p := l.cur()
	raw, next := l.b.Finish()
	w := written{part: len(l.parts) - 1, pos: p.pos, bytes: bytes.Clone(raw)}
	bt, err := ParseBatch(raw, p.file, p.pos, nil)
	if err != nil {
		l.t.Fatalf("bug of the test: %v", err)
	}
	for _, row := range bt.Rows {
		w.records = append(w.records, recordHash(p.file.Segment, bt.Record(row)))
	}
	p.grow(p.pos + int64(len(raw)))
	copy(p.data[p.pos:], raw)
	p.rows = append(p.rows, l.b.Rows()...)
	p.pos += int64(len(raw))
	l.chain, p.chain = next, next
	l.end = l.place()
	l.wrote = append(l.wrote, w)
	return &l.wrote[len(l.wrote)-1]
}

func (p *labPart) grow(n int64) {
	for int64(len(p.data)) < n {
		p.data = append(p.data, make([]byte, labBytes)...)
	}
}

// footer ends the current part.
func (l *lab) footer() int64 {
	p := l.cur()
	f := EncodeFooter(p.file, p.pos, p.rows, l.chain, l.index)
	p.grow(p.pos + int64(len(f)))
	copy(p.data[p.pos:], f)
	return int64(len(f))
}

func recordHash(n Number, r Record) uint64 {
	d := DigestOf(append(fmt.Appendf(nil, "%d %d %d ", n, r.Pos, r.Kind), r.Body...))
	return le.Uint64(d[:])
}

func (l *lab) input() []Part {
	var in []Part
	for _, p := range l.parts[l.sealed:] {
		in = append(in, Part{
			File: p.file, R: bytes.NewReader(p.data), Size: int64(len(p.data)), Start: FirstBatch, Limit: p.limit,
		})
	}
	return in
}

// recover runs Recover and fails the test if a record comes back that was not written, or out of
// order. It returns how many whole batches came back.
func (l *lab) recover() (End, int) {
	end, got := l.scan()
	n := l.prefix(got)
	if n < 0 {
		l.t.Fatalf("recovery read records that are no prefix of what was written (end %+v)", end)
	}
	return end, n
}

func (l *lab) scan() (End, []uint64) {
	var got []uint64
	end := Recover(l.input(), l.known, func(n Number, row Row, r Record) error {
		if row.Kind != r.Kind || row.Pos != r.Pos || row.Size != r.Size {
			return fmt.Errorf("row %+v with record %+v", row, r)
		}
		got = append(got, recordHash(n, r))
		return nil
	})
	return end, got
}

// prefix returns of how many batches the records are the whole, -1 if they are anything else.
func (l *lab) prefix(got []uint64) int {
	for i, w := range l.wrote {
		if w.part < l.sealed {
			continue
		}
		if len(got) == 0 {
			return i
		}
		if len(got) < len(w.records) {
			return -1
		}
		for k, h := range w.records {
			if got[k] != h {
				return -1
			}
		}
		got = got[len(w.records):]
	}
	if len(got) > 0 {
		return -1
	}
	return len(l.wrote)
}

// zero blanks a part from pos on.
func (p *labPart) zero(from int64) {
	if from < int64(len(p.data)) {
		clear(p.data[from:])
	}
}

// want fails the test unless the end is as given.
func (l *lab) want(v Verdict, at Position, batches int) {
	l.t.Helper()
	end, n := l.recover()
	if end.Verdict != v || n != batches || (v == Valid || v == Torn) && end.At != at {
		l.t.Errorf("got %v at %v after %d batches (%v), want %v at %v after %d",
			end.Verdict, end.At, n, end.Err, v, at, batches)
	}
	if (end.Err != nil) != (v == Corrupt || v == UnknownVersion || v == Unreadable) {
		l.t.Errorf("verdict %v with error %v", end.Verdict, end.Err)
	}
}

// off switches a rule off for the rest of the test.
func off(t testing.TB, rule *bool) {
	t.Helper()
	if *rule {
		t.Fatal("the rule is off already")
	}
	*rule = true
	t.Cleanup(func() { *rule = false })
}

func TestRulesAreOnByDefault(t *testing.T) {
	if got := fmt.Sprintf("%+v", rules.Off); bytes.Contains([]byte(got), []byte("true")) {
		t.Fatalf("rules are off: %s", got)
	}
}
