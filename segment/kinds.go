package segment

import "fmt"

// Fixed lengths of record bodies and of the prefixes in front of payload and data, in bytes.
const (
	segmentLen  = 24
	batchLen    = 48
	bodyPrefix  = 16
	entryPrefix = 24
	truncateLen = 8
	voidLen     = 24
	trailerLen  = 8

	wholeMax = 256 << 20 // of records that hold a whole table: footer and manifest
)

// FirstBatch is the position of the first batch in a segment.
const FirstBatch int64 = HeaderSize + segmentLen

// What a caller needs to plan a batch, in bytes.
const (
	BatchOverhead  = HeaderSize + batchLen + HeaderSize + trailerLen     // a batch without records
	RecordOverhead = HeaderSize + entryPrefix + align - 1                // at most, above payload or data
	DataMax        = BatchMax - BatchOverhead - HeaderSize - entryPrefix // of the data of an entry
)

type spec struct {
	name     string
	min, max int // of the body length
	chained  bool
}

var kinds = [...]spec{
	KindSegment:   {"segment", segmentLen, segmentLen, false},
	KindBatch:     {"batch", batchLen, batchLen, true},
	KindBody:      {"body", bodyPrefix, bodyPrefix + InlineMax, true},
	KindEntry:     {"entry", entryPrefix, entryPrefix + DataMax, true},
	KindTruncate:  {"truncate", truncateLen, truncateLen, true},
	KindVoid:      {"void", voidLen, voidLen, true},
	KindTrailer:   {"trailer", trailerLen, trailerLen, true},
	KindFooter:    {"footer", footerHead + footerTail, wholeMax, false},
	KindManifest:  {"manifest", 0, wholeMax, false},
	KindHardState: {"hardstate", 0, 4096 - HeaderSize, false},
	KindFileHead:  {"filehead", 0, BatchMax, true},
	KindFrame:     {"frame", 0, BatchMax, true},
	KindFileTail:  {"filetail", 0, BatchMax, true},
}

func kindSpec(k Kind) (spec, bool) {
	if k == 0 || int(k) >= len(kinds) {
		return spec{}, false
	}
	return kinds[k], true
}

func (k Kind) String() string {
	if s, ok := kindSpec(k); ok {
		return s.name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// errBody says that a body is not what its kind demands although its checksum is right. The caller
// that knows the record's place turns it into a *CorruptError.
func errBody(k Kind, what string) error { return fmt.Errorf("segment: %s record: %s", k, what) }

// ParseBody splits the body of a KindBody record into its ref and payload, which aliases it.
func ParseBody(body []byte) (BodyRef, []byte, error) {
	if len(body) < bodyPrefix {
		return BodyRef{}, nil, errBody(KindBody, "shorter than its ref")
	}
	return getRef(body), body[bodyPrefix:], nil
}

// ParseEntry reads the body of a KindEntry record; Data aliases it.
func ParseEntry(body []byte) (Entry, error) {
	if len(body) < entryPrefix {
		return Entry{}, errBody(KindEntry, "shorter than index, term and type")
	}
	e := Entry{
		Index: Index(le.Uint64(body)),
		Term:  Term(le.Uint64(body[8:])),
		Type:  EntryType(body[16]),
		Data:  body[entryPrefix:],
	}
	switch {
	case e.Index == 0:
		return Entry{}, errBody(KindEntry, "index 0")
	case e.Type > EntryConfChangeV2:
		return Entry{}, errBody(KindEntry, "type is not one of this version")
	case !allZero(body[17:entryPrefix]):
		return Entry{}, errBody(KindEntry, "reserved bytes are not zero")
	}
	return e, nil
}

// ParseTruncate reads the body of a KindTruncate record: entries at or above the index are void.
func ParseTruncate(body []byte) (Index, error) {
	if len(body) != truncateLen {
		return 0, errBody(KindTruncate, "wrong length")
	}
	if le.Uint64(body) == 0 {
		return 0, errBody(KindTruncate, "index 0")
	}
	return Index(le.Uint64(body)), nil
}

// ParseVoid reads the body of a KindVoid record: the ref, and the committed index that settled it.
func ParseVoid(body []byte) (BodyRef, Index, error) {
	if len(body) != voidLen {
		return BodyRef{}, 0, errBody(KindVoid, "wrong length")
	}
	return getRef(body), Index(le.Uint64(body[16:])), nil
}

func getRef(b []byte) BodyRef { return BodyRef{Term: Term(le.Uint64(b)), Seq: le.Uint64(b[8:])} }

func putRef(b []byte, r BodyRef) {
	le.PutUint64(b, uint64(r.Term))
	le.PutUint64(b[8:], r.Seq)
}
