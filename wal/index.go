package wal

import (
	"slices"
	"sort"

	"weida/segment"
)

// spanBytes is how much of an unsealed segment one index mark covers, in bytes. A lookup reads at
// most one span and the record that crosses its end, so this trades memory (about 64 bytes a span)
// for reading.
const spanBytes = 16 << 10

// span is one stretch of an unsealed segment, from pos to the next span's pos or the segment's end.
// It begins at a record and says which entries and bodies may stand in it.
type span struct {
	pos         int64
	first, last segment.Index   // of the entries in it, void ones included; 0 if there is none
	min, max    segment.BodyRef // of the bodies in it, if any
	bodies      bool
}

// voiding is a truncation record: entries at or above from that stand before pos are void.
type voiding struct {
	pos  int64
	from segment.Index
}

// index is what is kept in memory about one segment. For a sealed one spans and refs are dropped:
// its footer answers from the disk.
type index struct {
	spans []span
	apart bool // the next record begins a span
	// cuts rise in both fields: a later truncation from a lower index makes the earlier ones moot.
	cuts []voiding
	// refs are the bodies in an unsealed segment, as runs.
	refs   refSet
	lo, hi segment.Index // live entries [lo, hi); lo = hi if there is none
	// minRef and maxRef bound the refs of the bodies in it, if bodies > 0.
	minRef, maxRef segment.BodyRef
	bodies         int64
	payload        int64 // bytes of body records
	// named is the last entry that names a body here or settles a tombstone here: the segment is needed
	// until a snapshot covers it.
	named segment.Index
	large int64 // large bodies named by entries here
}

// note takes one record into the index. Records come in log order.
func (x *index) note(row segment.Row) {
	x.noteSpan(row)
	switch row.Kind {
	case segment.KindEntry:
		if x.lo == x.hi {
			x.lo = row.Index
		}
		x.hi = row.Index + 1
	case segment.KindTruncate:
		x.noteCut(row.Pos, row.Index)
	case segment.KindBody:
		x.refs.add(row.Ref)
		x.noteRef(row.Ref)
		x.payload += row.Size
	case segment.KindVoid, segment.KindSegment, segment.KindBatch, segment.KindTrailer, segment.KindFooter,
		segment.KindManifest, segment.KindHardState, segment.KindFileHead, segment.KindFrame, segment.KindFileTail:
	}
}

func (x *index) noteSpan(row segment.Row) {
	if n := len(x.spans); n == 0 || row.Pos-x.spans[n-1].pos >= spanBytes || x.apart {
		x.apart = false
		x.spans = append(x.spans, span{pos: row.Pos})
	}
	s := &x.spans[len(x.spans)-1]
	switch row.Kind {
	case segment.KindEntry:
		if s.first == 0 || row.Index < s.first {
			s.first = row.Index
		}
		s.last = max(s.last, row.Index)
	case segment.KindBody:
		if !s.bodies || row.Ref.Less(s.min) {
			s.min = row.Ref
		}
		if !s.bodies || s.max.Less(row.Ref) {
			s.max = row.Ref
		}
		s.bodies = true
	default:
	}
}

func (x *index) noteRef(ref segment.BodyRef) {
	if x.bodies == 0 || ref.Less(x.minRef) {
		x.minRef = ref
	}
	if x.bodies == 0 || x.maxRef.Less(ref) {
		x.maxRef = ref
	}
	x.bodies++
}

// noteCut takes a truncation that stands in this segment at pos.
func (x *index) noteCut(pos int64, from segment.Index) {
	x.pushCut(pos, from)
	x.truncate(from)
}

func (x *index) pushCut(pos int64, from segment.Index) {
	for len(x.cuts) > 0 && x.cuts[len(x.cuts)-1].from >= from {
		x.cuts = x.cuts[:len(x.cuts)-1]
	}
	x.cuts = append(x.cuts, voiding{pos: pos, from: from})
}

// truncate makes the live entries end before from; the truncation may stand in a later segment.
func (x *index) truncate(from segment.Index) {
	x.hi = max(x.lo, min(x.hi, from))
}

// after returns the position before which an entry of index i is void.
func (x *index) after(i segment.Index) int64 {
	n := sort.Search(len(x.cuts), func(k int) bool { return x.cuts[k].from > i })
	if n == 0 {
		return 0
	}
	return x.cuts[n-1].pos
}

// spanOf returns where to begin looking for the live entry i of an unsealed segment.
func (x *index) spanOf(i segment.Index) int64 {
	from := x.after(i)
	for k := len(x.spans) - 1; k >= 0; k-- {
		s := &x.spans[k]
		if s.first != 0 && s.first <= i || s.pos <= from {
			return max(s.pos, from)
		}
	}
	return from
}

// bodySpans returns the spans that may hold the body, newest first, each with its end.
func (x *index) bodySpans(ref segment.BodyRef, end int64) []extent {
	var list []extent
	for k, s := range slices.Backward(x.spans) {
		if s.bodies && !ref.Less(s.min) && !s.max.Less(ref) {
			list = append(list, extent{s.pos, end})
		}
		end = x.spans[k].pos
	}
	return list
}

// extent is a range [from, end) of positions in a segment.
type extent struct{ from, end int64 }

// covers reports whether the body may be here by its ref.
func (x *index) covers(ref segment.BodyRef) bool {
	return x.bodies > 0 && !ref.Less(x.minRef) && !x.maxRef.Less(ref)
}
