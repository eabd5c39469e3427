package segment

import (
	"fmt"

	"weida/segment/rules"
)

const pageSize = 4096 // the smallest unit in which an interrupted write is left, in bytes

// judge is steps 5 to 11: it says what stands at the place where the log ends.
func (s *scan) judge() error {
	s.end.Chain = s.chain
	if len(s.parts) == 0 {
		return nil
	}
	s.end.At = s.place()
	var b behind
	if !s.closed { // what lies behind a recorded cut or a footer is no part of the log
		var err error
		if b, err = s.sweep(); err != nil { // steps 5 and 6
			return err
		}
	} else {
		b.first = -1
	}
	if b.foreign != nil {
		s.end.Verdict, s.end.At, s.end.Err = UnknownVersion, b.foreign.At, b.foreign
		return nil
	}
	if s.reach.Less(s.promise) && !rules.Off.StopAtPromise { // step 7
		return s.corrupt(s.end.At, s.whyNoBatch()+
			fmt.Sprintf(", but the log was promised to be flushed up to %v", s.promise))
	}
	if b.first < 0 { // step 8
		s.end.Verdict = Valid
		s.end.Reusable = !s.closed
		if i := s.newest(); i > s.part && !s.closed {
			s.enter(i)
			s.end.At = s.place()
		}
		return nil
	}
	if b.first > s.part { // the part ended with zeros; what is torn or damaged stands further on
		s.enter(b.first)
	}
	if s.known.CleanStop && !rules.Off.CleanStop { // step 9
		return s.corrupt(s.place(), "something stands behind the end of a log that was closed in order")
	}
	boot := s.end.Boot
	known := s.batches > 0
	if b.atPlace {
		boot, known = b.boot, true
	}
	if known && boot == s.known.Boot && !rules.Off.SameBoot { // step 10
		cause, err := s.interrupted(b)
		if err != nil {
			return err
		}
		if cause != "" {
			return s.corrupt(s.place(), cause+", which no kill of the process leaves behind")
		}
	}
	s.end.Verdict = Torn // step 11
	return nil
}

// newest is the last part whose log was not cut: the writer had moved on to it.
func (s *scan) newest() int {
	i := len(s.parts) - 1
	for i > s.part && s.parts[i].Limit > 0 {
		i--
	}
	return i
}

func (s *scan) corrupt(at Position, cause string) error {
	s.end.Verdict = Corrupt
	s.end.Err = &CorruptError{Group: s.parts[s.part].File.Group, At: at, Index: s.nextIndex(), Cause: cause}
	return nil
}

// nextIndex is the first entry that damage at the place may concern, 0 if no entry was read.
func (s *scan) nextIndex() Index {
	if s.last == 0 {
		return 0
	}
	return s.last + 1
}

// whyNoBatch says in words why no batch follows at the place.
func (s *scan) whyNoBatch() string {
	b, err := s.bytes(s.part, s.pos, BatchMax)
	if err != nil || len(b) == 0 {
		return "the file ends here"
	}
	_, bad := parseBatch(b, s.parts[s.part].File, s.seeds[s.part], s.pos, s.rows)
	switch bad.code {
	case sound:
		return "a batch stands here that does not continue the chain"
	case short:
		return "the file ends inside a batch"
	case damaged, foreignVersion:
	}
	if bad.pos != s.pos {
		return fmt.Sprintf("the batch is not whole (byte %d: %s)", bad.pos, bad.cause)
	}
	return bad.cause
}

// interrupted is step 10: within one life of the page cache a killed process leaves at most one
// unfinished write, whose beginning is all there and behind which is nothing. It returns what
// contradicts that, "" if nothing does.
func (s *scan) interrupted(b behind) (string, error) {
	if b.heads > 0 {
		return fmt.Sprintf("a batch header stands behind it at %v", b.firstPos), nil
	}
	if b.last != s.part {
		return "more than one segment goes on behind it", nil
	}
	buf, err := s.bytes(s.part, s.pos, BatchMax)
	if err != nil {
		return "", err
	}
	f, seed := s.parts[s.part].File, s.seeds[s.part]
	h, bad := parseHead(buf, f, seed, s.pos)
	if bad.code != sound {
		if !s.cutHeader(buf, b.lastByte) {
			return s.whyNoBatch(), nil
		}
		return "", nil
	}
	if h.kind == KindBatch {
		return s.cutBatch(buf, b.lastByte), nil
	}
	if h.kind != KindFooter {
		return "a " + h.kind.String() + " record stands where a batch should begin", nil
	}
	if b.lastByte >= s.pos+h.size {
		return "a footer stands here from its first to its last byte and is damaged", nil
	}
	return "", nil
}

// cutHeader reports whether the bytes at the place are the beginning of a batch header or footer
// header that ends at a page edge: an interrupted write ends at one.
func (s *scan) cutHeader(buf []byte, lastByte int64) bool {
	edge := (lastByte + pageSize - 1) / pageSize * pageSize
	if rules.Off.PageEdge {
		return true
	}
	n := edge - s.pos
	if n >= HeaderSize {
		return false
	}
	f := s.parts[s.part].File
	var want [HeaderSize]byte
	le.PutUint32(want[offMagic:], magic)
	want[offVersion] = Version
	le.PutUint64(want[offGroup:], uint64(f.Group))
	le.PutUint64(want[offSalt:], uint64(f.Salt))
	n = min(n, int64(len(buf)))
	if n <= offFlags {
		return false
	}
	copy(want[offLength:offReserved], buf[min(offLength, len(buf)):])
	le.PutUint64(want[offChain:], uint64(s.chain))
	copy(want[offBodySum:], buf[min(offBodySum, len(buf)):])
	want[offKind] = buf[offKind]
	if Kind(buf[offKind]) == KindFooter {
		le.PutUint64(want[offChain:], 0)
	} else if Kind(buf[offKind]) != KindBatch {
		return false
	}
	return string(buf[:n]) == string(want[:n])
}

// cutBatch returns what contradicts that the batch at the place, whose header record's head
// verifies, was cut short at lastByte or behind it: "" if nothing does.
func (s *scan) cutBatch(buf []byte, lastByte int64) string {
	f, seed := s.parts[s.part].File, s.seeds[s.part]
	whole := lastByte - s.pos // bytes that are certainly there
	h, bad := parseBatchHead(buf, f, seed, s.pos)
	if bad.code != sound {
		if whole < batchRecord {
			return ""
		}
		return "the batch header is all there and damaged"
	}
	switch {
	case h.chain != s.chain && !rules.Off.Chain:
		return "a batch stands here that does not continue the chain"
	case whole > h.size:
		return "bytes go on behind the end of the batch"
	case whole == h.size && !rules.Off.Trailer:
		return "the batch is there to the last byte of its trailer, but " + s.whyNoBatch()
	}
	chain := h.hash
	for at := int64(batchRecord); at+HeaderSize <= whole; {
		rh, bad := parseHead(buf[at:], f, seed, s.pos+at)
		if bad.code != sound {
			return fmt.Sprintf("a record header inside the unfinished batch is damaged (byte %d)", bad.pos)
		}
		if rh.chain != chain && !rules.Off.Chain {
			return fmt.Sprintf("the chain is broken inside the unfinished batch (byte %d)", s.pos+at)
		}
		if at+rh.size > whole {
			break
		}
		if _, _, bad := parseRecord(buf[at:], f, seed, s.pos+at); bad.code != sound {
			return fmt.Sprintf("a record inside the unfinished batch is damaged (byte %d)", bad.pos)
		}
		at, chain = at+rh.size, rh.hash
	}
	return ""
}
