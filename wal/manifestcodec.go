package wal

import (
	"errors"
	"fmt"
	"io"

	"weida/segment"
)

// Sizes of the parts of a manifest's body, in bytes.
const (
	manifestHead = 80
	segRow       = 144
	snapRow      = 56
	compactRow   = 16
)

// encodeManifest returns the body of a manifest record: a head of fixed size, then the segments, the
// snapshots and the compactions as rows of fixed size.
func encodeManifest(m *manifest) []byte {
	n := manifestHead + len(m.Segments)*segRow + len(m.Snapshots)*snapRow + len(m.Compactions)*compactRow
	w := words{b: make([]byte, 0, n)}
	w.u64(m.Seq, uint64(m.Next))
	w.mark(m.Dropped.Upto)
	w.u64(uint64(m.Dropped.Commit), uint64(m.Dropped.Chain))
	w.u64(uint64(m.Promise.Segment), uint64(m.Promise.Pos))
	w.u64(uint64(len(m.Segments))|uint64(len(m.Snapshots))<<32, uint64(len(m.Compactions)))
	for i := range m.Segments {
		s := &m.Segments[i]
		w.u64(uint64(s.Number), uint64(s.Salt), uint64(s.State), uint64(s.Base))
		w.u64(uint64(s.Size), uint64(s.FooterPos))
		w.mark(s.Last)
		w.ref(s.FirstRef)
		w.ref(s.LastRef)
		w.u64(uint64(s.Bodies), uint64(s.Chain), uint64(s.Limit))
		w.u64(uint64(s.Named), uint64(s.Large), uint64(s.Payload))
	}
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		w.mark(s.Mark)
		w.u64(uint64(s.Size), uint64(s.Salt), uint64(s.Length))
		w.b = append(w.b, s.Digest[:]...)
	}
	for _, c := range m.Compactions {
		w.u64(uint64(c.From), uint64(c.To))
	}
	return w.b
}

// decodeManifest is the inverse of encodeManifest; cause says why body is no manifest, empty if it is
// one. It allocates no more than the body's own size allows for.
func decodeManifest(body []byte) (m manifest, cause string) {
	if len(body) < manifestHead {
		return manifest{}, "the manifest is shorter than its head"
	}
	r := words{b: body}
	m.Seq, m.Next = r.next(), segment.Number(r.next())
	m.Dropped.Upto = r.nextMark()
	m.Dropped.Commit, m.Dropped.Chain = segment.Index(r.next()), segment.Chain(r.next())
	m.Promise = segment.Position{Segment: segment.Number(r.next()), Pos: int64(r.next())}
	counts, compactions := r.next(), r.next()
	segments, snapshots := counts&0xffffffff, counts>>32
	if compactions > uint64(len(body)) ||
		uint64(len(r.b)) != segments*segRow+snapshots*snapRow+compactions*compactRow {
		return manifest{}, "the manifest's counts do not fit its length"
	}
	for range segments {
		m.Segments = append(m.Segments, r.segInfo())
	}
	for range snapshots {
		m.Snapshots = append(m.Snapshots, r.snapInfo())
	}
	for range compactions {
		c := compactInfo{From: segment.Number(r.next()), To: segment.Number(r.next())}
		m.Compactions = append(m.Compactions, c)
	}
	return m, m.flaw()
}

func (w *words) segInfo() (s segInfo) {
	s.Number, s.Salt = segment.Number(w.next()), segment.Salt(w.next())
	state := w.next()
	if s.State = segState(state); state > uint64(segSealed) {
		s.State = segSealed + 1 // refused by flaw
	}
	s.Base = segment.Index(w.next())
	s.Size, s.FooterPos = int64(w.next()), int64(w.next())
	s.Last = w.nextMark()
	s.FirstRef, s.LastRef = w.nextRef(), w.nextRef()
	s.Bodies, s.Chain, s.Limit = int64(w.next()), segment.Chain(w.next()), int64(w.next())
	s.Named, s.Large, s.Payload = segment.Index(w.next()), int64(w.next()), int64(w.next())
	return s
}

func (w *words) snapInfo() (s snapInfo) {
	s.Mark = w.nextMark()
	s.Size, s.Salt, s.Length = int64(w.next()), segment.Salt(w.next()), int64(w.next())
	copy(s.Digest[:], w.b)
	w.b = w.b[len(s.Digest):]
	return s
}

// flaw says which rule of a manifest does not hold, empty if all do.
func (m *manifest) flaw() string {
	var before segment.Number
	for i := range m.Segments {
		s := &m.Segments[i]
		switch {
		case s.Number <= before:
			return fmt.Sprintf("segment %d is out of order", uint64(s.Number))
		case s.Number >= m.Next:
			return fmt.Sprintf("segment %d is not below the next number", uint64(s.Number))
		case s.State > segSealed:
			return fmt.Sprintf("segment %d is in no state of this version", uint64(s.Number))
		case s.Size < 0 || s.FooterPos < 0 || s.Limit < 0 || s.Bodies < 0 || s.Large < 0 || s.Payload < 0:
			return fmt.Sprintf("segment %d has a negative number", uint64(s.Number))
		}
		before = s.Number
	}
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		switch {
		case s.Size < 0 || s.Length < 0:
			return fmt.Sprintf("snapshot %d has a negative length", uint64(s.Mark.Index))
		case i > 0 && s.Mark.Index <= m.Snapshots[i-1].Mark.Index:
			return fmt.Sprintf("snapshot %d is out of order", uint64(s.Mark.Index))
		}
	}
	switch {
	case m.Next == 0:
		return "the next segment number is 0"
	case m.Promise.Pos < 0 || m.Promise.Segment >= m.Next:
		return "the promise lies behind every segment"
	case m.Dropped.Commit < m.Dropped.Upto.Index:
		return "more was dropped than was committed"
	}
	return ""
}

// words reads and writes numbers of 64 bits, little-endian.
type words struct{ b []byte }

func (w *words) u64(vs ...uint64) {
	for _, v := range vs {
		w.b = le.AppendUint64(w.b, v)
	}
}

func (w *words) mark(m Mark)           { w.u64(uint64(m.Term), uint64(m.Index)) }
func (w *words) ref(r segment.BodyRef) { w.u64(uint64(r.Term), r.Seq) }

// next takes one number; the caller has checked that it is there.
func (w *words) next() uint64 {
	v := le.Uint64(w.b)
	w.b = w.b[8:]
	return v
}

func (w *words) nextMark() Mark {
	return Mark{Term: segment.Term(w.next()), Index: segment.Index(w.next())}
}

func (w *words) nextRef() segment.BodyRef {
	return segment.BodyRef{Term: segment.Term(w.next()), Seq: w.next()}
}

func joinClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
