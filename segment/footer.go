package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// Layout of a footer's body: a head with its own checksum, rows with one each, and a tail, so that
// one row can be read and trusted without reading the rest.
const (
	footerHead = 48
	footerTail = 8
	rowSize    = 32

	footerMagic = 0xb1c3d5e7 // its last byte on disk is not zero
)

// Footer is what a sealed segment's footer says about it, apart from its rows.
type Footer struct {
	File    File
	Pos     int64 // of the footer record: where the segment's log ends
	Size    int64 // of the footer record
	Chain   Chain // hash of the last record header of the segment's log
	First   Index // of the first entry row, 0 if there is none
	Last    Index // of the log's last entry when the segment was sealed, wherever it stands
	Entries int   // rows of live entries, by index
	Bodies  int   // rows of bodies, by ref
	Others  int   // rows of truncations and voids, in log order
}

func (t Footer) rows(section int) (first, count int) {
	switch section {
	case entryRows:
		return 0, t.Entries
	case bodyRows:
		return t.Entries, t.Bodies
	case otherRows:
		return t.Entries + t.Bodies, t.Others
	}
	panic("bug: segment: unknown section of a footer")
}

const (
	entryRows = iota
	bodyRows
	otherRows
)

// EncodeFooter returns the footer that will stand at pos of f, right behind the last batch. Rows are
// those of the whole segment in log order; chain is the one to carry on with behind the segment,
// last the index of the log's last entry at that point. An entry that a truncation in the same
// segment makes void gets no row; of an entry or body that stands there twice the later one counts.
func EncodeFooter(f File, pos int64, rows []Row, chain Chain, last Index) []byte {
	entries, bodies, others := sortRows(rows)
	n := len(entries) + len(bodies) + len(others)
	size := footerHead + n*rowSize + footerTail
	seed := f.seed()

	b := make([]byte, footerHead, size)
	le.PutUint64(b, uint64(chain))
	if len(entries) > 0 {
		le.PutUint64(b[8:], uint64(entries[0].Index))
	}
	le.PutUint64(b[16:], uint64(last))
	le.PutUint32(b[24:], uint32(len(entries)))
	le.PutUint32(b[28:], uint32(len(bodies)))
	le.PutUint32(b[32:], uint32(len(others)))
	le.PutUint64(b[40:], xxh3.HashSeed(b[:40], seedAt(seed, pos+HeaderSize)))
	for _, section := range [][]Row{entries, bodies, others} {
		for _, r := range section {
			b = appendRow(b, seed, pos+HeaderSize+int64(len(b)), r)
		}
	}
	b = le.AppendUint32(b, uint32(SizeOf(size)))
	b = le.AppendUint32(b, footerMagic)
	rec, _ := appendRecord(make([]byte, 0, SizeOf(size)), f, seed, pos, KindFooter, 0, b)
	return rec
}

func sortRows(rows []Row) (entries, bodies, others []Row) {
	n := 0
	for i := range rows {
		if rows[i].Kind == KindBody {
			n++
		}
	}
	bodies, entries = make([]Row, 0, n), make([]Row, 0, len(rows)-n)
	for _, r := range rows {
		switch r.Kind {
		case KindEntry:
			entries = append(cutRows(entries, r.Index), r)
		case KindBody:
			bodies = append(bodies, r)
		case KindTruncate:
			entries = cutRows(entries, r.Index)
			others = append(others, r)
		case KindVoid:
			others = append(others, r)
		default:
			panic("bug: segment: footer row of a kind that has none")
		}
	}
	byRef := func(a, b Row) int { return compareRef(a.Ref, b.Ref) }
	if !slices.IsSortedFunc(bodies, byRef) {
		slices.SortStableFunc(bodies, byRef)
	}
	out := bodies[:0]
	for i, r := range bodies {
		if i+1 == len(bodies) || bodies[i+1].Ref != r.Ref {
			out = append(out, r)
		}
	}
	return entries, out, others
}

// cutRows drops the rows at or above from. Entries come in rising order, so they are at the end.
func cutRows(rows []Row, from Index) []Row {
	for len(rows) > 0 && rows[len(rows)-1].Index >= from {
		rows = rows[:len(rows)-1]
	}
	return rows
}

func compareRef(a, b BodyRef) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Seq, b.Seq))
}

func appendRow(b []byte, seed uint64, pos int64, r Row) []byte {
	if r.Pos < 0 || r.Pos > math.MaxUint32 || r.Size < 0 || r.Size > math.MaxUint32 {
		panic("bug: segment: footer row beyond the bounds of a segment")
	}
	start := len(b)
	key1, key2 := uint64(r.Index), uint64(r.Term)
	if r.Kind == KindBody || r.Kind == KindVoid {
		key1, key2 = uint64(r.Ref.Term), r.Ref.Seq
	}
	b = le.AppendUint64(b, key1)
	b = le.AppendUint64(b, key2)
	b = le.AppendUint32(b, uint32(r.Pos))
	b = le.AppendUint32(b, uint32(r.Size))
	b = append(b, byte(r.Kind), 0, 0, 0)
	return le.AppendUint32(b, uint32(xxh3.HashSeed(b[start:], seedAt(seed, pos))))
}

func parseRow(b []byte, seed uint64, pos int64) (Row, bool) {
	if uint32(xxh3.HashSeed(b[:28], seedAt(seed, pos))) != le.Uint32(b[28:]) {
		return Row{}, false
	}
	r := Row{Kind: Kind(b[24]), Pos: int64(le.Uint32(b[16:])), Size: int64(le.Uint32(b[20:]))}
	switch r.Kind {
	case KindEntry, KindTruncate:
		r.Index, r.Term = Index(le.Uint64(b)), Term(le.Uint64(b[8:]))
	case KindBody, KindVoid:
		r.Ref = getRef(b)
	default:
		return Row{}, false
	}
	return r, b[25]|b[26]|b[27] == 0
}

func (t Footer) corrupt(pos int64, cause string) error {
	return &CorruptError{Group: t.File.Group, At: Position{t.File.Segment, pos}, Cause: cause}
}

// ParseFooter reads and verifies the whole footer at the start of b, which stands at pos of f. The
// rows come in the order of the file: entries by index, bodies by ref, truncations and voids. What
// it allocates is bounded by the length of b. Errors as ParseRecord.
func ParseFooter(b []byte, f File, pos int64) (Footer, []Row, error) {
	r, _, err := ParseRecord(b, f, pos)
	if err != nil {
		return Footer{}, nil, err
	}
	t, err := parseFooterHead(r.Body[:min(footerHead, len(r.Body))], f, f.seed(), pos, r.Kind, len(r.Body))
	if err != nil {
		return Footer{}, nil, err
	}
	tail := r.Body[len(r.Body)-footerTail:]
	if int64(le.Uint32(tail)) != t.Size || le.Uint32(tail[4:]) != footerMagic {
		return Footer{}, nil, t.corrupt(pos, "the footer does not end as it should")
	}
	n, seed := t.Entries+t.Bodies+t.Others, f.seed()
	rows := make([]Row, 0, n)
	for i := range n {
		row, ok := parseRow(r.Body[footerHead+i*rowSize:][:rowSize], seed, t.rowPos(i))
		if !ok || !t.rowFits(i, row) {
			return Footer{}, nil, t.corrupt(t.rowPos(i), "a row of the footer is damaged")
		}
		rows = append(rows, row)
	}
	return t, rows, nil
}

func parseFooterHead(b []byte, f File, seed uint64, pos int64, k Kind, length int) (Footer, error) {
	t := Footer{File: f, Pos: pos, Size: SizeOf(length)}
	if k != KindFooter {
		return Footer{}, t.corrupt(pos, "the record is of kind "+k.String()+", not a footer")
	}
	if len(b) < footerHead {
		return Footer{}, t.corrupt(pos, "the footer is shorter than its head")
	}
	if xxh3.HashSeed(b[:40], seedAt(seed, pos+HeaderSize)) != le.Uint64(b[40:]) || le.Uint32(b[36:]) != 0 {
		return Footer{}, t.corrupt(pos, "the head of the footer is damaged")
	}
	t.Chain, t.First, t.Last = Chain(le.Uint64(b)), Index(le.Uint64(b[8:])), Index(le.Uint64(b[16:]))
	entries, bodies, others := le.Uint32(b[24:]), le.Uint32(b[28:]), le.Uint32(b[32:])
	if n := int64(entries) + int64(bodies) + int64(others); footerHead+n*rowSize+footerTail != int64(length) {
		return Footer{}, t.corrupt(pos, "the counts of the footer do not match its length")
	}
	t.Entries, t.Bodies, t.Others = int(entries), int(bodies), int(others)
	return t, nil
}

func (t Footer) rowPos(i int) int64 { return t.Pos + HeaderSize + footerHead + int64(i)*rowSize }

// rowFits reports whether row i is of a kind its section holds and places a record in the segment.
func (t Footer) rowFits(i int, r Row) bool {
	var kind bool
	switch {
	case i < t.Entries:
		kind = r.Kind == KindEntry
	case i < t.Entries+t.Bodies:
		kind = r.Kind == KindBody
	default:
		kind = r.Kind == KindTruncate || r.Kind == KindVoid
	}
	return kind && r.Pos >= FirstBatch && r.Size >= HeaderSize && r.Size <= BatchMax && r.Pos+r.Size <= t.Pos
}

// OpenFooter reads the head of the footer at pos of f: a hundred bytes, whatever its size. What it
// returns is verified; the rows verify one by one as FindEntry, FindBody and EachRow read them.
func OpenFooter(r io.ReaderAt, f File, pos int64) (Footer, error) {
	var b [HeaderSize + footerHead]byte
	n, err := r.ReadAt(b[:], pos)
	if n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			t := Footer{File: f}
			return Footer{}, t.corrupt(pos, "the file ends before its footer does")
		}
		return Footer{}, fmt.Errorf("segment: read footer at byte %d: %w", pos, err)
	}
	seed := f.seed()
	h, bad := parseHead(b[:], f, seed, pos)
	if bad.code != sound {
		return Footer{}, bad.err(f)
	}
	return parseFooterHead(b[HeaderSize:], f, seed, pos, h.kind, h.length)
}

// LocateFooter opens the footer of a sealed segment from the end of its file, which has size bytes
// and ends with the footer.
func LocateFooter(r io.ReaderAt, f File, size int64) (Footer, error) {
	t := Footer{File: f}
	var b [footerTail]byte
	if size < FirstBatch+HeaderSize+footerHead+footerTail {
		return Footer{}, t.corrupt(size, "the file is too short to hold a footer")
	}
	n, err := r.ReadAt(b[:], size-footerTail)
	if n < len(b) && err != nil && !errors.Is(err, io.EOF) {
		return Footer{}, fmt.Errorf("segment: read the last bytes of a sealed segment: %w", err)
	}
	length := int64(le.Uint32(b[:]))
	if n < len(b) || le.Uint32(b[4:]) != footerMagic || length%align != 0 || length > size-FirstBatch {
		return Footer{}, t.corrupt(size-footerTail, "the file does not end with a footer")
	}
	return OpenFooter(r, f, size-length)
}
