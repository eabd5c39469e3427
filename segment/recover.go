package segment

import (
	"fmt"
	"io"

	"weida/segment/rules"
)

// Recover reads the unsealed segments of a group in order, calls visit for every record of every
// whole batch of the log, and says where the log ends and what stands there. The steps are those of
// STORE.md section 9.
//
// It changes nothing. It reads each byte at most a few times through one buffer of at most 1 MiB.
// The record given to visit is valid during the call; an error of visit ends the recovery and comes
// back in End.Err with the verdict Unreadable, like an error of a reader.
func Recover(parts []Part, k Known, visit func(n Number, row Row, r Record) error) End {
	s := newScan(parts, k, visit)
	err := s.log()
	if err == nil {
		err = s.judge()
	}
	if err != nil {
		s.end.Verdict, s.end.Err, s.end.Reusable = Unreadable, err, false
	}
	s.end.Promise = s.promise
	return s.end
}

// scan is one recovery.
type scan struct {
	parts   []Part
	seeds   []uint64
	known   Known
	visit   func(Number, Row, Record) error
	end     End
	promise Position // the greatest seen so far
	chain   Chain    // of the last record header read
	rows    []Row
	last    Index
	batches int // whole ones read

	part int   // index of the part the scan is in
	pos  int64 // of the place where the next batch would be
	// reach is the furthest position of which it is proven that no part of the log before it is
	// missing: the place itself, or what a footer or a continuing batch header proves beyond it.
	reach  Position
	closed bool // the log of the last part ended at pos by a recorded cut or a whole footer

	win  window
	over int // which part win reads
}

func newScan(parts []Part, k Known, visit func(Number, Row, Record) error) *scan {
	s := &scan{parts: parts, known: k, visit: visit, promise: k.Promise, chain: k.Chain, over: -1}
	s.end.Parts = make([]PartEnd, len(parts))
	s.seeds = make([]uint64, len(parts))
	var size int64
	for i, p := range parts {
		if i > 0 && p.File.Segment <= parts[i-1].File.Segment {
			panic("bug: segment: parts out of order")
		}
		if p.Start < FirstBatch || p.Start%align != 0 || p.Limit != 0 && p.Limit < p.Start {
			panic("bug: segment: part with impossible bounds")
		}
		s.seeds[i] = p.File.seed()
		size = max(size, p.Size-p.Start)
		// A cut is recorded only after everything before it was flushed and read again. One at the start
		// of a segment says that nothing of the log is in it, and nothing about the segment before.
		if p.Limit > p.Start && !rules.Off.Limit {
			s.promised(Position{p.File.Segment, p.Limit})
		}
	}
	s.win.buf = newBuffer(size)
	return s
}

func (s *scan) promised(p Position) {
	if s.promise.Less(p) || rules.Off.GreatestPromise && p.Segment != 0 {
		s.promise = p
	}
}

// limit is where part i ends for a scan: at a recorded cut or at the end of the file.
func (s *scan) limit(i int) int64 {
	if p := s.parts[i]; p.Limit > 0 && !rules.Off.Limit {
		return min(p.Limit, p.Size)
	}
	return s.parts[i].Size
}

func (s *scan) cutAt(i int, pos int64) bool {
	return s.parts[i].Limit > 0 && pos == s.parts[i].Limit && !rules.Off.Limit
}

// bytes lends n bytes of part i from pos, fewer where the part ends.
func (s *scan) bytes(i int, pos int64, n int) ([]byte, error) {
	if s.over != i {
		s.win = window{r: s.parts[i].R, size: s.limit(i), buf: s.win.buf}
		s.over = i
	}
	return s.win.bytes(pos, n)
}

// log is steps 1 to 4: it reads batches until none follows, and leaves the scan at that place.
func (s *scan) log() error {
	if len(s.parts) == 0 {
		return nil
	}
	s.pos = s.parts[0].Start
	for {
		s.reach = s.place() // step 4 may have reached further; a batch or a part may have come since
		s.mark()
		if s.cutAt(s.part, s.pos) { // step 2
			if s.part+1 == len(s.parts) {
				s.closed = true
				return nil
			}
			s.enter(s.part + 1)
			continue
		}
		whole, err := s.batch() // step 1
		if err != nil {
			return err
		}
		if whole {
			continue
		}
		on, err := s.nextPart() // step 3
		if err != nil {
			return err
		}
		if !on {
			on, err = s.footer() // step 4
		}
		if err != nil || !on {
			return err
		}
	}
}

func (s *scan) place() Position { return Position{s.parts[s.part].File.Segment, s.pos} }

// mark notes that, as far as it is known, the log of the scan's part ends here, and that of all
// later parts where they begin.
func (s *scan) mark() {
	s.end.Parts[s.part] = PartEnd{End: s.pos, Chain: s.chain, Last: s.last}
	for i := s.part + 1; i < len(s.parts); i++ {
		s.end.Parts[i] = PartEnd{End: s.parts[i].Start, Chain: s.chain, Last: s.last}
	}
}

func (s *scan) enter(i int) { s.part, s.pos = i, s.parts[i].Start }

// batch reads the batch at the place and visits its records, or reports that none stands there.
func (s *scan) batch() (bool, error) {
	f := s.parts[s.part].File
	b, err := s.bytes(s.part, s.pos, BatchMax)
	if err != nil {
		return false, err
	}
	bt, bad := parseBatch(b, f, s.seeds[s.part], s.pos, s.rows)
	if bad.code != sound || bt.Chain != s.chain && !rules.Off.Chain {
		return false, nil
	}
	s.rows = bt.Rows
	for _, row := range bt.Rows {
		if row.Kind == KindEntry {
			s.last = row.Index
		} else if row.Kind == KindTruncate && (s.last == 0 || s.last >= row.Index) {
			s.last = row.Index - 1
		}
		if s.visit != nil {
			if err := s.visit(f.Segment, row, bt.Record(row)); err != nil {
				return false, err
			}
		}
	}
	s.promised(bt.Stamp.Promise)
	s.end.Commit = max(s.end.Commit, bt.Stamp.Commit)
	s.end.Boot = bt.Stamp.Boot
	s.chain, s.pos = bt.Next, s.pos+bt.Size
	s.batches++
	return true, nil
}

// nextPart looks for a later part whose first batch header carries the chain from here, and enters
// it. The chain proves that nothing of the log stands between. Whether that batch is whole is seen
// when it is read; if it is not, its place is where the log ends.
func (s *scan) nextPart() (bool, error) {
	if rules.Off.NextPart || s.parts[s.part].Limit > 0 && !rules.Off.Limit {
		return false, nil
	}
	for i := s.part + 1; i < len(s.parts); i++ {
		if s.cutAt(i, s.parts[i].Start) {
			continue
		}
		p := s.parts[i]
		b, err := s.bytes(i, p.Start, batchRecord)
		if err != nil {
			return false, err
		}
		h, bad := parseBatchHead(b, p.File, s.seeds[i], p.Start)
		if bad.code == sound && h.chain == s.chain {
			s.enter(i)
			return true, nil
		}
		if p.Limit > 0 { // it holds batches, of which this log knows nothing
			return false, nil
		}
	}
	return false, nil
}

// footer sees whether a whole footer stands at the place: then the part's log has ended here, and
// goes on at the start of the next part if there is one.
func (s *scan) footer() (bool, error) {
	p := s.parts[s.part]
	if s.limit(s.part) != p.Size {
		return false, nil
	}
	size, err := s.wholeFooter()
	if err != nil || size == 0 {
		return false, err
	}
	after, err := s.zeroFrom(s.part, s.pos+size)
	if err != nil || !after {
		return false, err
	}
	s.reach.Pos = s.pos + size
	if s.part+1 == len(s.parts) {
		s.closed = true
		return false, nil
	}
	s.enter(s.part + 1)
	return true, nil
}

// wholeFooter returns the size of the footer at the place, 0 if none stands there whole.
func (s *scan) wholeFooter() (int64, error) {
	p := s.parts[s.part]
	b, err := s.bytes(s.part, s.pos, HeaderSize)
	if err != nil {
		return 0, err
	}
	h, bad := parseHead(b, p.File, s.seeds[s.part], s.pos)
	if bad.code != sound || h.kind != KindFooter || s.pos+h.size > p.Size {
		return 0, nil
	}
	whole := make([]byte, h.size) // bounded by the file
	if _, err := io.ReadFull(io.NewSectionReader(p.R, s.pos, h.size), whole); err != nil {
		return 0, fmt.Errorf("segment: read the footer at %v: %w", s.place(), err)
	}
	// A damaged footer is no footer; what its bytes are, step 10 decides.
	if t, _, err := ParseFooter(whole, p.File, s.pos); err == nil && (t.Chain == s.chain || rules.Off.Chain) {
		return h.size, nil
	}
	return 0, nil
}

// zeroFrom reports whether part i holds nothing but zeros from pos on.
func (s *scan) zeroFrom(i int, pos int64) (bool, error) {
	for end := s.limit(i); pos < end; {
		b, err := s.bytes(i, pos, len(s.win.buf))
		if err != nil {
			return false, err
		}
		if !allZero(b) {
			return false, nil
		}
		pos += int64(len(b))
	}
	return true, nil
}
