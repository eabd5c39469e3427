package segment

import "testing"

// endCases is the decision table of STORE.md section 9, row by row.
var endCases = []struct {
	name  string
	scene func(l *lab) (Verdict, Position, int)
}{
	{"nothing was ever written", func(l *lab) (Verdict, Position, int) {
		return Valid, Position{1, FirstBatch}, 0
	}},
	{"zeros behind the last batch", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.batch()
		return Valid, l.place(), 2
	}},
	{"zeros behind the last batch, other boot", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		otherBoot(l)
		return Valid, l.place(), 1
	}},
	{"the file ends with the last batch", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.cur().data = l.cur().data[:l.cur().pos]
		return Valid, l.place(), 1
	}},
	{"a file shorter than its header", func(l *lab) (Verdict, Position, int) {
		l.cur().data = l.cur().data[:8]
		return Valid, Position{1, FirstBatch}, 0
	}},
	{"a kill leaves a batch cut at a page edge", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(9000)
		l.cur().zero(8192)
		return Torn, Position{1, w.pos}, 1
	}},
	{"a kill leaves a batch header cut at a page edge", func(l *lab) (Verdict, Position, int) {
		entry := SizeOf(entryPrefix + DataLen(1, 3))
		l.batch(4080 - int(FirstBatch+BatchOverhead+entry) - HeaderSize - bodyPrefix)
		w := l.batch(100)
		if w.pos != 4080 {
			l.t.Fatalf("bug of the test: batch at %d", w.pos)
		}
		l.cur().zero(4096)
		return Torn, Position{1, w.pos}, 1
	}},
	{"damage before the cut of an unfinished batch", func(l *lab) (Verdict, Position, int) {
		w := l.batch(3000, 6000)
		flip(l.cur(), w.pos+500)
		l.cur().zero(8192)
		return Corrupt, Position{}, 0
	}},
	{"a kill leaves the first batch of the next segment unfinished", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		p := l.roll()
		l.batch(9000)
		p.zero(8192)
		return Torn, Position{2, FirstBatch}, 1
	}},
	{"the same without a page of the header", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		p := l.roll()
		l.batch(9000)
		clear(p.data[FirstBatch:4096])
		at := Position{1, l.parts[0].pos}
		otherBoot(l)
		return Torn, at, 1
	}},
	{"a segment cut at its start promises nothing about the one before", func(l *lab) (Verdict, Position, int) {
		p := l.roll() // nothing of the first segment was flushed when the power went
		l.batch(9000)
		p.zero(4096)
		p.limit = FirstBatch
		l.wrote, l.chain = nil, 0
		l.roll()
		return Valid, Position{3, FirstBatch}, 0
	}},
	{"an empty segment was made ahead", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.roll()
		return Valid, Position{2, FirstBatch}, 1
	}},
	{"an empty segment lies between", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.roll()
		l.roll()
		l.batch(100)
		return Valid, l.place(), 2
	}},
	{"footer, then the next segment", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.footer()
		l.roll()
		l.batch(100)
		return Valid, l.place(), 2
	}},
	{"footer, then an empty segment", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.footer()
		l.roll()
		l.known.CleanStop = true
		return Valid, Position{2, FirstBatch}, 1
	}},
	{"footer at the end", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.footer()
		l.known.CleanStop = true
		return Valid, l.place(), 1
	}},
	{"an unfinished footer, then the next segment", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		n := l.footer()
		l.cur().zero(l.cur().pos + n - 8)
		l.roll()
		l.batch(100)
		otherBoot(l)
		return Valid, l.place(), 2
	}},
	{"an unfinished footer at the end", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		n := l.footer()
		l.cur().zero(l.cur().pos + n - 40)
		return Torn, l.place(), 1
	}},
	{"a damaged footer at the end", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.footer()
		flip(l.cur(), l.cur().pos+70)
		return Corrupt, Position{}, 1
	}},
	{"a footer that names another chain", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.chain++
		l.footer()
		return Corrupt, Position{}, 1
	}},
	{"a batch lost before the footer", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(200)
		l.footer()
		clear(l.cur().data[w.pos : w.pos+int64(len(w.bytes))])
		otherBoot(l)
		return Torn, Position{1, w.pos}, 1
	}},
	{"one lost batch, later ones whole, other boot, not promised", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(200)
		l.batch(300)
		clear(l.cur().data[w.pos:][:512])
		otherBoot(l)
		return Torn, Position{1, w.pos}, 1
	}},
	{"no whole batch at all, other boot", func(l *lab) (Verdict, Position, int) {
		l.batch(9000)
		clear(l.cur().data[:4096])
		otherBoot(l)
		return Torn, Position{1, FirstBatch}, 0
	}},
	{"no whole batch, but a header of this boot and a trailer", func(l *lab) (Verdict, Position, int) {
		l.batch(9000)
		flip(l.cur(), 5000)
		return Corrupt, Position{}, 0
	}},
	{"zeros in a segment whose successor is promised", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(100)
		p := l.cur()
		l.roll()
		l.batch(100)
		l.flushed()
		l.batch(100)
		p.zero(w.pos)
		otherBoot(l)
		return Corrupt, Position{}, 1
	}},
	{"the last segment promised away", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.known.Promise = Position{2, 4096}
		return Corrupt, Position{}, 1
	}},
	{"a recorded cut at the end", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.cur().limit = l.cur().pos
		copy(l.cur().data[l.cur().pos:], "remains of something")
		return Valid, l.place(), 1
	}},
	{"damage before a recorded cut", func(l *lab) (Verdict, Position, int) {
		w := l.batch(100)
		l.cur().limit = l.cur().pos
		flip(l.cur(), w.pos+20)
		l.roll()
		l.batch(100)
		otherBoot(l)
		return Corrupt, Position{}, 0
	}},
	{"a segment cut at its start", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		chain := l.chain
		p := l.roll()
		l.batch(200)
		p.zero(200)
		p.limit = FirstBatch
		l.wrote, l.chain = l.wrote[:1], chain
		l.roll()
		l.batch(300)
		return Valid, l.place(), 2
	}},
	{"another format version", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(100)
		l.cur().data[w.pos+offVersion] = 2
		l.cur().data[w.pos+offHeadSum]++
		return UnknownVersion, Position{}, 1
	}},
	{"another format version behind damage", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(100)
		v := l.batch(100)
		flip(l.cur(), w.pos)
		l.cur().data[v.pos+offVersion] = 2
		l.cur().data[v.pos+offHeadSum]++
		otherBoot(l)
		return UnknownVersion, Position{}, 1
	}},
	{"a damaged version byte", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		w := l.batch(100)
		l.cur().data[w.pos+offVersion] = 2
		return Corrupt, Position{}, 1
	}},
	{"the newest segment was cut at its start", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		at := l.place()
		p := l.roll()
		p.limit = FirstBatch
		return Valid, at, 1
	}},
	{"a cut segment that another chain leads to", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		chain := l.chain
		l.roll()
		l.chain++
		l.batch(100)
		l.cur().limit = l.cur().pos
		l.wrote = l.wrote[:1]
		l.chain = chain
		l.roll()
		l.batch(100)
		return Corrupt, Position{}, 1
	}},
	{"a promise that counts the footer in", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		n := l.footer()
		l.known.Promise = Position{1, l.cur().pos + n}
		return Valid, l.place(), 1
	}},
	{"a footer with something behind it, other boot", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		n := l.footer()
		l.cur().data[l.cur().pos+n+4000] = 1
		otherBoot(l)
		return Torn, l.place(), 1
	}},
	{"a footer of another chain, other boot", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.chain++
		l.footer()
		otherBoot(l)
		return Torn, l.place(), 1
	}},
	{"a footer of another format version", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.footer()
		l.cur().data[l.cur().pos+offVersion] = 2
		l.cur().data[l.cur().pos+offHeadSum]++
		return UnknownVersion, Position{}, 1
	}},
	{"a kill leaves a batch header whose body is cut", func(l *lab) (Verdict, Position, int) {
		entry := SizeOf(entryPrefix + DataLen(1, 3))
		l.batch(4032 - int(FirstBatch+BatchOverhead+entry) - HeaderSize - bodyPrefix)
		w := l.batch(100)
		if w.pos != 4032 {
			l.t.Fatalf("bug of the test: batch at %d", w.pos)
		}
		l.cur().zero(4096)
		return Torn, Position{1, w.pos}, 1
	}},
	{"a batch of this boot that continues another chain", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.chain++
		l.boot = Boot{99}
		l.batch(100)
		l.wrote = l.wrote[:1]
		otherBoot(l)
		return Corrupt, Position{}, 1
	}},
	{"a batch header of another chain, cut at a page edge", func(l *lab) (Verdict, Position, int) {
		entry := SizeOf(entryPrefix + DataLen(1, 3))
		l.batch(4048 - int(FirstBatch+BatchOverhead+entry) - HeaderSize - bodyPrefix)
		l.chain++
		w := l.batch(100)
		if w.pos != 4048 {
			l.t.Fatalf("bug of the test: batch at %d", w.pos)
		}
		l.cur().zero(4096)
		return Corrupt, Position{}, 1
	}},
	{"a footer before a recorded cut", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.cur().limit = l.cur().pos + l.footer()
		return Corrupt, Position{}, 1
	}},
	{"one byte of dirt behind the end after a clean stop", func(l *lab) (Verdict, Position, int) {
		l.batch(100)
		l.cur().data[len(l.cur().data)-1] = 1
		l.known.CleanStop = true
		otherBoot(l)
		return Corrupt, Position{}, 1
	}},
}

func TestRecoverEnds(t *testing.T) {
	for _, c := range endCases {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			v, at, n := c.scene(l)
			l.want(v, at, n)
		})
	}
}
