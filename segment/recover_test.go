package segment

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"weida/segment/rules"
)

// ruleCase is a scene in which one rule decides. The scene builds the files, and says what must come
// out; TestRules also runs it with the rule off and demands that something else comes out.
type ruleCase struct {
	name  string
	rule  *bool
	scene func(l *lab) (v Verdict, at Position, batches int)
}

func otherBoot(l *lab) { l.known.Boot = Boot{99} }

func flip(p *labPart, pos int64) { p.data[pos] ^= 0x40 }

// threeBatches: the third promises that the second is flushed; the second is damaged.
func threeBatches(l *lab) Position {
	l.batch(100)
	second := l.batch(200)
	at := Position{1, second.pos}
	l.flushed()
	l.batch(300)
	flip(l.cur(), second.pos+300)
	otherBoot(l)
	return at
}

var ruleCases = []ruleCase{
	{"a promise behind the damage", &rules.Off.LookBehind, func(l *lab) (Verdict, Position, int) {
		return Corrupt, threeBatches(l), 1
	}},
	{"the manifest promises more than the batches", &rules.Off.GreatestPromise, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		second := l.batch(200)
		l.known.Promise = l.place()
		l.batch(300)
		flip(l.cur(), second.pos+300)
		otherBoot(l)
		return Corrupt, Position{}, 1
	}},
	{"bad bytes before the promise", &rules.Off.StopAtPromise, func(l *lab) (Verdict, Position, int) {
		return Corrupt, threeBatches(l), 1
	}},
	{"zeros before the promise", &rules.Off.StopAtPromise, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		second := l.batch(200)
		l.known.Promise = l.place()
		l.cur().zero(second.pos)
		return Corrupt, Position{}, 1
	}},
	{"an unfinished batch after a clean stop", &rules.Off.CleanStop, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(5000)
		l.cur().zero(w.pos + 4096)
		l.known.CleanStop = true
		otherBoot(l)
		return Corrupt, Position{}, 1
	}},
	{"a damaged last batch after a kill", &rules.Off.SameBoot, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(5000)
		flip(l.cur(), w.pos+1000)
		return Corrupt, Position{}, 1
	}},
	{"a hole before a whole batch after a kill", &rules.Off.SameBoot, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(5000)
		l.batch(100)
		clear(l.cur().data[w.pos+4096 : w.pos+int64(len(w.bytes))])
		return Corrupt, Position{}, 1
	}},
	{"a header cut short inside a page", &rules.Off.PageEdge, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(100)
		l.cur().zero(w.pos + 24)
		return Corrupt, Position{}, 1
	}},
	{"a log in two segments", &rules.Off.NextPart, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.roll()
		l.batch(100)
		return Valid, l.place(), 2
	}},
	{"stale batches behind a recorded cut", &rules.Off.Limit, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		cut, chain := l.cur().pos, l.chain
		l.batch(200)
		l.wrote = l.wrote[:1]
		l.cur().limit, l.chain = cut, chain
		l.roll()
		l.batch(300)
		return Valid, l.place(), 2
	}},
	{"an old batch behind a new one of the same length", &rules.Off.Chain, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(200)
		l.cur().pos, l.chain, l.index, l.seq, l.term = FirstBatch, 0, 0, 0, 2
		l.wrote = nil
		l.batch(100)
		at := l.place()
		if at.Pos != w.pos {
			l.t.Fatalf("bug of the test: lengths differ")
		}
		otherBoot(l)
		return Torn, at, 1
	}},
	{"bytes of the file that had this number before", &rules.Off.Salt, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.wrote = nil
		p := l.cur()
		p.file.Salt++
		copy(p.data, EncodeHeader(p.file, Header{}))
		otherBoot(l)
		return Torn, Position{1, FirstBatch}, 0
	}},
	{"bytes of another group's file", &rules.Off.Seat, func(l *lab) (Verdict, Position, int) {
		l.cur().file.Group++
		l.batch(100)
		l.wrote = nil
		l.cur().file.Group--
		otherBoot(l)
		return Torn, Position{1, FirstBatch}, 0
	}},
	{"a batch without its trailer", &rules.Off.Trailer, func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(200)
		l.cur().zero(w.pos + int64(len(w.bytes)) - trailerRecord)
		return Torn, Position{1, w.pos}, 1
	}},
	{"bits in the padding", &rules.Off.Padding, func(l *lab) (Verdict, Position, int) {
		w := l.batch(1)
		l.known.Promise = l.place()
		flip(l.cur(), w.pos+batchRecord+HeaderSize+bodyPrefix+3)
		return Corrupt, Position{}, 0
	}},
}

// TestRules: every rule decides in its scene, and without it something else comes out.
func TestRules(t *testing.T) {
	for _, c := range ruleCases {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			v, at, batches := c.scene(l)
			l.want(v, at, batches)
		})
		t.Run(c.name+", rule off", func(t *testing.T) {
			off(t, c.rule)
			l := newLab(t)
			v, at, batches := c.scene(l)
			end, got := l.scan()
			if n := l.prefix(got); end.Verdict == v && n == batches && (v == Corrupt || end.At == at) {
				t.Errorf("the rule carries no weight here: %v at %v after %d batches", end.Verdict, end.At, n)
			}
		})
	}
}

func TestRecoverReusable(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene func(l *lab)
		want  bool
	}{
		{"zeros", func(l *lab) {}, true},
		{"footer", func(l *lab) { l.footer() }, false},
		{"recorded cut", func(l *lab) { l.cur().limit = l.cur().pos }, false},
		{"torn", func(l *lab) { l.batch(9000); l.cur().zero(4096) }, false},
	} {
		l := newLab(t)
		l.batch(100)
		c.scene(l)
		if end, _ := l.recover(); end.Reusable != c.want {
			t.Errorf("%s: reusable %v (%v)", c.name, end.Reusable, end.Verdict)
		}
	}
}

// TestRecoverEnd: what Recover says besides the verdict.
func TestRecoverEnd(t *testing.T) {
	l := newLab(t)
	l.batch(100)
	l.batch(100)
	first := PartEnd{End: l.cur().pos, Chain: l.chain, Last: 2}
	l.flushed()
	promise := l.promise
	l.roll()
	l.boot = Boot{5}
	l.batch(100)
	p := l.cur()
	l.b.Reset(p.file, p.pos, l.chain, Stamp{Promise: l.promise, Commit: 1, Boot: l.boot}) // an older hint
	l.b.Truncate(100)                                                                     // nothing stands there
	l.write()
	end, _ := l.recover()
	if end.Promise != promise || end.Commit != 2 || end.Boot != l.boot || end.Chain != l.chain || end.At != l.place() {
		t.Errorf("end %+v", end)
	}
	if last := (PartEnd{End: l.cur().pos, Chain: l.chain, Last: 3}); end.Parts[0] != first || end.Parts[1] != last {
		t.Errorf("parts %+v, want %+v %+v", end.Parts, first, last)
	}
	if end := Recover(nil, Known{Chain: 5}, nil); end.Verdict != Valid || end.Chain != 5 || end.Reusable {
		t.Errorf("no parts: %+v", end)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

// TestRecoverReadError: an error of the disk is neither torn nor corrupt.
func TestRecoverReadError(t *testing.T) {
	l := newLab(t)
	l.batch(100)
	in := l.input()
	disk := errors.New("input/output error")
	in[0].R = brokenReader{disk}
	if end := Recover(in, l.known, nil); end.Verdict != Unreadable || !errors.Is(end.Err, disk) || end.Reusable {
		t.Errorf("%+v", end)
	}
	in[0].R = bytes.NewReader(l.cur().data[:100])
	if end := Recover(in, l.known, nil); end.Verdict != Unreadable || !errors.Is(end.Err, io.ErrUnexpectedEOF) {
		t.Errorf("a file shorter than stated: %+v", end)
	}
	stop := errors.New("stop")
	end := Recover(l.input(), l.known, func(Number, Row, Record) error { return stop })
	if end.Verdict != Unreadable || !errors.Is(end.Err, stop) {
		t.Errorf("a visitor that stops: %+v", end)
	}
}

// TestRecoverCauses: a person reads where the damage is and why it is called that.
func TestRecoverCauses(t *testing.T) {
	for _, c := range []struct {
		name, cause string
		scene       func(l *lab) Position
	}{
		{"whole batch behind", "a batch header stands behind it at 00000001.seg@", func(l *lab) Position {
			w := l.batch(5000)
			l.batch(10)
			clear(l.cur().data[w.pos+4096 : w.pos+int64(len(w.bytes))])
			return Position{1, w.pos}
		}},
		{"dirt in a later segment", "more than one segment goes on behind it", func(l *lab) Position {
			w := l.batch(9000)
			l.cur().zero(4096)
			l.roll().data[9000] = 1
			return Position{1, w.pos}
		}},
		{"dirt behind", "bytes go on behind the end of the batch", func(l *lab) Position {
			w := l.batch(5000)
			l.cur().zero(4096)
			l.cur().data[w.pos+int64(len(w.bytes))] = 1
			return Position{1, w.pos}
		}},
		{"trailer", "there to the last byte of its trailer", func(l *lab) Position {
			w := l.batch(5000)
			flip(l.cur(), w.pos+1000)
			return Position{1, w.pos}
		}},
		{"another chain", "does not continue the chain", func(l *lab) Position {
			at := l.place()
			l.chain++
			l.batch(5000)
			l.wrote = l.wrote[:1]
			return at
		}},
		{"another chain, unfinished", "does not continue the chain", func(l *lab) Position {
			at := l.place()
			l.chain++
			l.batch(5000)
			l.wrote = l.wrote[:1]
			l.cur().zero(4096)
			return at
		}},
		{"batch header", "the batch header is all there and damaged", func(l *lab) Position {
			w := l.batch(5000)
			flip(l.cur(), w.pos+HeaderSize+40)
			l.cur().zero(4096)
			return Position{1, w.pos}
		}},
		{"record header", "a record header inside the unfinished batch is damaged", func(l *lab) Position {
			w := l.batch(1000, 5000)
			flip(l.cur(), w.pos+batchRecord+40)
			l.cur().zero(4096)
			return Position{1, w.pos}
		}},
		{"record body", "a record inside the unfinished batch is damaged", func(l *lab) Position {
			w := l.batch(1000, 5000)
			flip(l.cur(), w.pos+batchRecord+HeaderSize+40)
			l.cur().zero(4096)
			return Position{1, w.pos}
		}},
		{"broken chain", "the chain is broken inside the unfinished batch", func(l *lab) Position {
			p := l.cur()
			at := p.pos
			w := l.batch(10)
			l.wrote = l.wrote[:1]
			void, _ := AppendRecord(nil, p.file, at+batchRecord, KindVoid, 1, make([]byte, voidLen))
			copy(p.data[at+batchRecord:], void)
			p.zero(w.pos + batchRecord + int64(len(void)))
			return Position{1, at}
		}},
		{"another kind", "a frame record stands where a batch should begin", func(l *lab) Position {
			p := l.cur()
			rec, _ := AppendRecord(nil, p.file, p.pos, KindFrame, l.chain, []byte("?"))
			copy(p.data[p.pos:], rec)
			return l.place()
		}},
		{"dirt in the next segment, clean stop", "closed in order", func(l *lab) Position {
			l.known.CleanStop = true
			l.roll().data[9000] = 1
			return Position{2, FirstBatch}
		}},
		{"dirt in the next segment", "zeros where a record should be", func(l *lab) Position {
			l.roll().data[9000] = 1
			return Position{2, FirstBatch}
		}},
		{"promise", "but the log was promised to be flushed up to 00000009.seg@80", func(l *lab) Position {
			l.known.Promise = Position{9, 80}
			return l.place()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.batch(10)
			at := c.scene(l)
			end, n := l.recover()
			var corrupt *CorruptError
			if !errors.As(end.Err, &corrupt) || n != 1 {
				t.Fatalf("%v after %d batches: %v", end.Verdict, n, end.Err)
			}
			if !strings.Contains(corrupt.Cause, c.cause) || corrupt.At != at || corrupt.Index != 2 {
				t.Errorf("at %v, entry %d: %s; want %v: %s", corrupt.At, corrupt.Index, corrupt.Cause, at, c.cause)
			}
		})
	}
}
