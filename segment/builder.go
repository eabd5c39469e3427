package segment

import (
	"math"

	"github.com/zeebo/xxh3"
)

const (
	batchRecord   = HeaderSize + batchLen
	trailerRecord = HeaderSize + trailerLen
	endMagic      = 0xe7d5c3b1 // its last byte on disk is not zero
)

// Builder builds one batch after another in one buffer. A batch is at most BatchMax bytes, so that
// one write carries it. Zero value: call Reset first. One goroutine at a time.
type Builder struct {
	file  File
	seed  uint64
	pos   int64 // of the batch
	chain Chain // of the record before the batch
	stamp Stamp
	buf   []byte
	rows  []Row
	done  bool
}

// Reset begins the batch that will stand at pos of f, after a record whose header hashes to c. What
// Finish and Rows returned before is no longer valid. The promise in s is at most pos itself.
func (b *Builder) Reset(f File, pos int64, c Chain, s Stamp) {
	if (Position{Segment: f.Segment, Pos: pos}).Less(s.Promise) {
		panic("bug: segment: a batch promises more than stands before it")
	}
	if f.Segment == 0 || pos < FirstBatch || pos%align != 0 || pos > math.MaxUint32-BatchMax {
		panic("bug: segment: batch at an impossible position")
	}
	b.file, b.seed, b.pos, b.chain, b.stamp = f, f.seed(), pos, c, s
	b.buf = append(b.buf[:0], zeros[:batchRecord]...)
	b.rows = b.rows[:0]
	b.done = false
}

// Len returns the length of the batch in bytes if it were finished now.
func (b *Builder) Len() int64 { return int64(len(b.buf)) + trailerRecord }

// Fits reports whether records with payloads or data of the given lengths can all be added. It
// reckons eight bytes too many for a payload, so that one bound serves both.
func (b *Builder) Fits(lens ...int) bool {
	n := b.Len()
	for _, l := range lens {
		n += SizeOf(entryPrefix + l)
	}
	return n <= BatchMax
}

// Body adds the payload of a body, given in pieces that are copied; together at most InlineMax.
func (b *Builder) Body(r BodyRef, payload ...[]byte) {
	var prefix [bodyPrefix]byte
	putRef(prefix[:], r)
	b.add(Row{Kind: KindBody, Ref: r}, prefix[:], payload...)
}

// Entry adds an entry of the log; its data, at most DataMax bytes, is copied.
func (b *Builder) Entry(e Entry) {
	if e.Index == 0 || e.Type > EntryConfChangeV2 {
		panic("bug: segment: entry without an index or of an unknown type")
	}
	var prefix [entryPrefix]byte
	le.PutUint64(prefix[:], uint64(e.Index))
	le.PutUint64(prefix[8:], uint64(e.Term))
	prefix[16] = byte(e.Type)
	b.add(Row{Kind: KindEntry, Index: e.Index, Term: e.Term}, prefix[:], e.Data)
}

// Truncate declares all entries at or above from void; bodies stay.
func (b *Builder) Truncate(from Index) {
	if from == 0 {
		panic("bug: segment: truncation from index 0")
	}
	var body [truncateLen]byte
	le.PutUint64(body[:], uint64(from))
	b.add(Row{Kind: KindTruncate, Index: from}, body[:])
}

// Void adds a tombstone: the body is not here because the entry at settled, committed, settled it.
func (b *Builder) Void(r BodyRef, settled Index) {
	var body [voidLen]byte
	putRef(body[:], r)
	le.PutUint64(body[16:], uint64(settled))
	b.add(Row{Kind: KindVoid, Ref: r}, body[:])
}

// add appends a record without its chain and header checksum, which Finish fills in: they depend on
// the batch header, and that on the length of the batch.
func (b *Builder) add(row Row, prefix []byte, parts ...[]byte) {
	if b.done || len(b.buf) == 0 {
		panic("bug: segment: record added outside Reset and Finish")
	}
	start := len(b.buf)
	row.Pos = b.pos + int64(start)
	b.buf = append(b.buf, zeros[:HeaderSize]...)
	b.buf = append(b.buf, prefix...)
	for _, p := range parts {
		b.buf = append(b.buf, p...)
	}
	body := b.buf[start+HeaderSize:]
	if s := kinds[row.Kind]; len(body) < s.min || len(body) > s.max {
		panic("bug: segment: body length outside the bounds of its kind")
	}
	row.Size = SizeOf(len(body))
	h := b.buf[start : start+HeaderSize]
	le.PutUint32(h[offMagic:], magic)
	h[offVersion], h[offKind] = Version, byte(row.Kind)
	le.PutUint32(h[offLength:], uint32(len(body)))
	le.PutUint64(h[offGroup:], uint64(b.file.Group))
	le.PutUint64(h[offSalt:], uint64(b.file.Salt))
	le.PutUint64(h[offBodySum:], xxh3.HashSeed(body, seedAt(b.seed, row.Pos)))
	b.buf = append(b.buf, zeros[:start+int(row.Size)-len(b.buf)]...)
	if b.Len() > BatchMax {
		panic("bug: segment: batch above BatchMax")
	}
	b.rows = append(b.rows, row)
}

// Finish returns the whole batch, to be written at the position given to Reset in one write, and
// the chain to carry on with. The builder owns the bytes; they are valid until the next Reset.
func (b *Builder) Finish() ([]byte, Chain) {
	if b.done || len(b.buf) == 0 {
		panic("bug: segment: Finish without Reset")
	}
	b.done = true
	size := uint32(b.Len())

	var body [batchLen]byte
	le.PutUint32(body[:], size)
	le.PutUint32(body[4:], uint32(len(b.rows)))
	le.PutUint64(body[8:], uint64(b.stamp.Promise.Segment))
	le.PutUint64(body[16:], uint64(b.stamp.Promise.Pos))
	le.PutUint64(body[24:], uint64(b.stamp.Commit))
	copy(body[32:], b.stamp.Boot[:])
	_, chain := appendRecord(b.buf[:0], b.file, b.seed, b.pos, KindBatch, b.chain, body[:])

	for _, row := range b.rows {
		h := b.buf[row.Pos-b.pos:][:HeaderSize]
		le.PutUint64(h[offChain:], uint64(chain))
		le.PutUint64(h[offHeadSum:], xxh3.HashSeed(h[:offHeadSum], seedAt(b.seed, row.Pos)))
		chain = Chain(xxh3.Hash(h))
	}

	var tail [trailerLen]byte
	le.PutUint32(tail[:], size)
	le.PutUint32(tail[4:], endMagic)
	b.buf, chain = appendRecord(b.buf, b.file, b.seed, b.pos+int64(len(b.buf)), KindTrailer, chain, tail[:])
	return b.buf, chain
}

// Rows places the records of the batch, in order. The slice is valid until the next Reset.
func (b *Builder) Rows() []Row { return b.rows }
