package segment

import (
	"bytes"

	"weida/segment/rules"
)

// behind is what stands from the end of the log on, over all parts.
type behind struct {
	foreign  *VersionError // the first batch header of a version this build does not know
	heads    int           // whole batch headers of ours, the one at the place not counted
	firstPos Position      // of the first of them
	atPlace  bool          // a whole batch header stands at the place
	boot     Boot          // of that header
	first    int           // the first part that is not all zero, -1 if all are
	last     int           // the last such part
	lastByte int64         // position behind the last byte of part last that is not zero
}

// sweep is step 5: one pass over everything from the place on. Every 8-aligned place may hold a
// batch header; it counts if it verifies for exactly that place, and its promise is true whether its
// batch is whole or not.
func (s *scan) sweep() (behind, error) {
	b := behind{first: -1}
	for i := s.part; i < len(s.parts); i++ {
		from := s.parts[i].Start
		if i == s.part {
			from = s.pos
		}
		if err := s.sweepPart(&b, i, from); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (s *scan) sweepPart(b *behind, i int, from int64) error {
	const overlap = batchRecord // a header found in one piece must lie in it whole
	for pos, end := from, s.limit(i); pos < end; {
		buf, err := s.bytes(i, pos, len(s.win.buf))
		if err != nil {
			return err
		}
		n := len(buf)
		if pos+int64(n) < end {
			n -= overlap
		}
		for at := 0; at < n; at += align {
			if at%pageSize == 0 && at+pageSize <= n && bytes.Equal(buf[at:at+pageSize], zeros[:]) {
				at += pageSize - align
				continue
			}
			word := buf[at:min(at+align, len(buf))]
			if allZero(word) {
				continue
			}
			if b.first < 0 {
				b.first = i
			}
			b.last, b.lastByte = i, pos+int64(at+lastNonZero(word))
			if len(word) == align && le.Uint32(word) == magic {
				s.headAt(b, i, pos+int64(at), buf[at:])
			}
		}
		pos += int64(n)
	}
	return nil
}

func lastNonZero(b []byte) int {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

// headAt looks at a place that begins like a record.
func (s *scan) headAt(b *behind, i int, pos int64, buf []byte) {
	p := s.parts[i]
	h, bad := parseBatchHead(buf, p.File, s.seeds[i], pos)
	here := i == s.part && pos == s.pos
	switch {
	case bad.code == foreignVersion && b.foreign == nil && (here || Kind(buf[offKind]) == KindBatch):
		b.foreign = &VersionError{Group: p.File.Group, At: Position{p.File.Segment, pos}, Got: bad.got, Want: Version}
	case bad.code != sound:
	case here:
		b.boot, b.atPlace = h.stamp.Boot, true
		s.promised(h.stamp.Promise)
	case rules.Off.LookBehind:
	default:
		if b.heads == 0 {
			b.firstPos = Position{p.File.Segment, pos}
		}
		b.heads++
		s.promised(h.stamp.Promise)
	}
}
