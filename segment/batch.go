package segment

import "weida/segment/rules"

// Batch is one whole, verified batch. What it points to aliases the buffer it was parsed from.
type Batch struct {
	Pos   int64
	Size  int64 // from its header to the end of its trailer
	Stamp Stamp
	Chain Chain // carried by its header: the hash of the record header before the batch
	Next  Chain // to carry on with behind the batch
	Rows  []Row // of its records, in order, without header and trailer
	bytes []byte
}

// Record returns the record a row of this batch places. It was verified when the batch was parsed.
func (b *Batch) Record(row Row) Record {
	h := b.bytes[row.Pos-b.Pos:]
	n := int(le.Uint32(h[offLength:]))
	return Record{
		Kind:  row.Kind,
		Pos:   row.Pos,
		Chain: Chain(le.Uint64(h[offChain:])),
		Body:  h[HeaderSize : HeaderSize+n : HeaderSize+n],
		Size:  row.Size,
	}
}

// ParseBatch reads the batch at the start of b, which stands at pos of file f; b may go on behind
// it. A batch is returned only if it is whole: every record verifies, each carries the hash of the
// header before it, the count is right and the trailer stands at its end. Rows are appended to
// rows[:0]. Errors are *CorruptError, *VersionError, or ErrShort if b ends too early.
func ParseBatch(b []byte, f File, pos int64, rows []Row) (Batch, error) {
	bt, bad := parseBatch(b, f, f.seed(), pos, rows)
	return bt, bad.err(f)
}

// batchHead is the content of a batch header.
type batchHead struct {
	head
	size  int64 // of the batch
	count int
	stamp Stamp
}

// parseBatchHead verifies the batch header at the start of b.
func parseBatchHead(b []byte, f File, seed uint64, pos int64) (batchHead, fault) {
	r, hash, bad := parseRecord(b, f, seed, pos)
	if bad.code != sound {
		return batchHead{}, bad
	}
	if r.Kind != KindBatch {
		return batchHead{}, fault{code: damaged, pos: pos, cause: "a record stands here, but not a batch header"}
	}
	h := batchHead{
		head:  head{kind: r.Kind, size: r.Size, chain: r.Chain, hash: hash},
		size:  int64(le.Uint32(r.Body)),
		count: int(le.Uint32(r.Body[4:])),
		stamp: Stamp{
			Promise: Position{Segment: Number(le.Uint64(r.Body[8:])), Pos: int64(le.Uint64(r.Body[16:]))},
			Commit:  Index(le.Uint64(r.Body[24:])),
			Boot:    Boot(r.Body[32:48]),
		},
	}
	switch {
	case h.size < BatchOverhead || h.size > BatchMax || h.size%align != 0:
		return batchHead{}, fault{code: damaged, pos: pos, cause: "the batch has an impossible length"}
	case h.stamp.Promise.Pos < 0 || (Position{Segment: f.Segment, Pos: pos}).Less(h.stamp.Promise):
		return batchHead{}, fault{code: damaged, pos: pos, cause: "the batch promises more than stands before it"}
	}
	return h, fault{}
}

func parseBatch(b []byte, f File, seed uint64, pos int64, rows []Row) (Batch, fault) {
	h, bad := parseBatchHead(b, f, seed, pos)
	if bad.code != sound {
		return Batch{}, bad
	}
	rows = rows[:0]
	at, end, chain := int64(batchRecord), h.size-trailerRecord, h.hash
	for i := 0; i < h.count; i++ {
		if at >= end {
			return Batch{}, fault{code: damaged, pos: pos + at, cause: "the batch holds fewer records than it says"}
		}
		r, hash, bad := parseRecord(b[min(at, int64(len(b))):], f, seed, pos+at)
		if bad.code != sound {
			return Batch{}, inBatch(bad)
		}
		if r.Chain != chain && !rules.Off.Chain {
			return Batch{}, fault{code: damaged, pos: pos + at, cause: "the chain is broken inside a batch"}
		}
		row, cause := rowOf(r)
		if cause != "" {
			return Batch{}, fault{code: damaged, pos: pos + at, cause: cause}
		}
		rows = append(rows, row)
		at, chain = at+r.Size, hash
	}
	if at != end {
		return Batch{}, fault{code: damaged, pos: pos + at, cause: "the batch ends elsewhere than it says"}
	}
	chain, bad = parseTrailer(b, f, seed, pos, end, chain)
	if bad.code != sound && !rules.Off.Trailer {
		return Batch{}, inBatch(bad)
	}
	return Batch{
		Pos: pos, Size: h.size, Stamp: h.stamp, Chain: h.chain, Next: chain, Rows: rows,
		bytes: b[:min(h.size, int64(len(b)))],
	}, fault{}
}

// inBatch: a batch is written by one build, so a foreign version inside one is damage.
func inBatch(bad fault) fault {
	if bad.code == foreignVersion {
		bad.code, bad.cause = damaged, "another format version inside a batch"
	}
	return bad
}

func parseTrailer(b []byte, f File, seed uint64, pos, end int64, chain Chain) (Chain, fault) {
	r, hash, bad := parseRecord(b[min(end, int64(len(b))):], f, seed, pos+end)
	switch {
	case bad.code != sound:
		return chain, bad
	case r.Kind != KindTrailer:
		return chain, fault{code: damaged, pos: r.Pos, cause: "no trailer stands at the end of the batch"}
	case r.Chain != chain && !rules.Off.Chain:
		return chain, fault{code: damaged, pos: r.Pos, cause: "the chain is broken before the trailer"}
	case int64(le.Uint32(r.Body)) != end+trailerRecord || le.Uint32(r.Body[4:]) != endMagic:
		return chain, fault{code: damaged, pos: r.Pos, cause: "the trailer is not that of its batch"}
	}
	return hash, fault{}
}

// rowOf returns the row of a record of a batch, or why the record cannot be in one.
func rowOf(r Record) (Row, string) {
	row := Row{Kind: r.Kind, Pos: r.Pos, Size: r.Size}
	var err error
	switch r.Kind {
	case KindBody, KindVoid:
		row.Ref = getRef(r.Body)
	case KindEntry:
		var e Entry
		e, err = ParseEntry(r.Body)
		row.Index, row.Term = e.Index, e.Term
	case KindTruncate:
		row.Index, err = ParseTruncate(r.Body)
	default:
		return Row{}, "a record of this kind cannot be in a batch"
	}
	if err != nil {
		return Row{}, err.Error()
	}
	return row, ""
}
