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
	if n := len(x.spans); n == 0 || row.Pos-x.spans[n-1].pos >= spanBytes {
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

// refRun is the refs [from, to) of one term.
type refRun struct {
	term     segment.Term
	from, to uint64
}

// refSet is a set of refs as sorted runs: refs are given out in order, so a thousand of them usually
// take one run.
type refSet struct{ runs []refRun }

// find returns the run that holds or would follow ref.
func (s *refSet) find(ref segment.BodyRef) int {
	return sort.Search(len(s.runs), func(i int) bool {
		r := s.runs[i]
		return r.term > ref.Term || r.term == ref.Term && r.to > ref.Seq
	})
}

func (s *refSet) has(ref segment.BodyRef) bool {
	i := s.find(ref)
	return i < len(s.runs) && s.runs[i].term == ref.Term && s.runs[i].from <= ref.Seq
}

func (s *refSet) add(ref segment.BodyRef) {
	if n := len(s.runs); n > 0 { // nearly always it continues the last run
		if r := &s.runs[n-1]; r.term == ref.Term && r.to == ref.Seq {
			r.to++
			return
		}
	}
	i := s.find(ref)
	if i < len(s.runs) && s.runs[i].term == ref.Term && s.runs[i].from <= ref.Seq {
		return
	}
	before := i > 0 && s.runs[i-1].term == ref.Term && s.runs[i-1].to == ref.Seq
	behind := i < len(s.runs) && s.runs[i].term == ref.Term && s.runs[i].from == ref.Seq+1
	switch {
	case before && behind:
		s.runs[i-1].to = s.runs[i].to
		s.runs = slices.Delete(s.runs, i, i+1)
	case before:
		s.runs[i-1].to++
	case behind:
		s.runs[i].from--
	default:
		s.runs = slices.Insert(s.runs, i, refRun{ref.Term, ref.Seq, ref.Seq + 1})
	}
}

func (s *refSet) remove(ref segment.BodyRef) {
	i := s.find(ref)
	if i == len(s.runs) || s.runs[i].term != ref.Term || s.runs[i].from > ref.Seq {
		return
	}
	r := s.runs[i]
	switch {
	case r.from == ref.Seq && r.to == ref.Seq+1:
		s.runs = slices.Delete(s.runs, i, i+1)
	case r.from == ref.Seq:
		s.runs[i].from++
	case r.to == ref.Seq+1:
		s.runs[i].to--
	default:
		s.runs[i].to = ref.Seq
		s.runs = slices.Insert(s.runs, i+1, refRun{r.term, ref.Seq + 1, r.to})
	}
}

// dropBelow forgets all refs of terms below t.
func (s *refSet) dropBelow(t segment.Term) {
	n := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].term >= t })
	s.runs = slices.Delete(s.runs, 0, n)
}

// meets reports whether any ref of the set lies in [lo, hi].
func (s *refSet) meets(lo, hi segment.BodyRef) bool {
	i := s.find(lo)
	return i < len(s.runs) && !hi.Less(segment.BodyRef{Term: s.runs[i].term, Seq: s.runs[i].from})
}

// after returns the least ref of the set behind ref, which is not in it and not behind all of it.
func (s *refSet) after(ref segment.BodyRef) segment.BodyRef {
	r := s.runs[s.find(ref)]
	return segment.BodyRef{Term: r.term, Seq: r.from}
}

// common returns the runs that are in both sets.
func (s *refSet) common(t *refSet) []refRun {
	var list []refRun
	for i, j := 0, 0; i < len(s.runs) && j < len(t.runs); {
		a, b := s.runs[i], t.runs[j]
		if from, to := max(a.from, b.from), min(a.to, b.to); a.term == b.term && from < to {
			list = append(list, refRun{a.term, from, to})
		}
		if a.term < b.term || a.term == b.term && a.to <= b.to {
			i++
		} else {
			j++
		}
	}
	return list
}

// first returns at most n refs of the set, in order.
func (s *refSet) first(n int) []segment.BodyRef {
	var list []segment.BodyRef
	for _, r := range s.runs {
		for seq := r.from; seq < r.to; seq++ {
			if len(list) == n {
				return list
			}
			list = append(list, segment.BodyRef{Term: r.term, Seq: seq})
		}
	}
	return list
}
