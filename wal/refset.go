package wal

import (
	"slices"
	"sort"

	"weida/segment"
)

// refSet is a set of refs as sorted runs: refs are given out in order, so a thousand of them usually
// take one run. What is told apart by the term and the upper half of the sequence is kept apart, so
// that a run takes 8 bytes: that is the most a ref can cost.
type refSet struct{ parts []refPart }

// refPart holds the refs of one term whose sequences have the same upper half.
type refPart struct {
	term segment.Term
	high uint64
	runs []shortRun // sorted, with gaps between them; never empty
}

// shortRun is the lower halves [from, last] of sequences.
type shortRun struct{ from, last uint32 }

// refRun is the refs [from, to) of one term.
type refRun struct {
	term     segment.Term
	from, to uint64
}

func (p *refPart) ref(low uint32) segment.BodyRef {
	return segment.BodyRef{Term: p.term, Seq: p.high<<32 | uint64(low)}
}

// find returns the run that holds or would follow the sequence with this lower half.
func (p *refPart) find(low uint32) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].last >= low })
}

// holds reports whether run i holds the sequence.
func (p *refPart) holds(i int, low uint32) bool { return i < len(p.runs) && p.runs[i].from <= low }

// part returns the part that holds or would follow ref, and whether ref belongs into it.
func (s *refSet) part(ref segment.BodyRef) (i int, ok bool) {
	high := ref.Seq >> 32
	if n := len(s.parts); n > 0 && s.parts[n-1].term == ref.Term && s.parts[n-1].high == high {
		return n - 1, true // nearly always
	}
	i = sort.Search(len(s.parts), func(i int) bool {
		p := &s.parts[i]
		return p.term > ref.Term || p.term == ref.Term && p.high >= high
	})
	return i, i < len(s.parts) && s.parts[i].term == ref.Term && s.parts[i].high == high
}

func (s *refSet) empty() bool { return len(s.parts) == 0 }

func (s *refSet) has(ref segment.BodyRef) bool {
	k, ok := s.part(ref)
	if !ok {
		return false
	}
	p, low := &s.parts[k], uint32(ref.Seq)
	return p.holds(p.find(low), low)
}

func (s *refSet) add(ref segment.BodyRef) {
	k, ok := s.part(ref)
	if !ok {
		s.parts = slices.Insert(s.parts, k, refPart{term: ref.Term, high: ref.Seq >> 32})
	}
	s.parts[k].add(uint32(ref.Seq))
}

func (p *refPart) add(low uint32) {
	n := len(p.runs)
	if n > 0 && p.runs[n-1].last < low && p.runs[n-1].last+1 == low { // nearly always it continues the last run
		p.runs[n-1].last++
		return
	}
	i := p.find(low)
	if p.holds(i, low) {
		return
	}
	before := i > 0 && p.runs[i-1].last+1 == low
	behind := i < n && p.runs[i].from == low+1
	switch {
	case before && behind:
		p.runs[i-1].last = p.runs[i].last
		p.runs = slices.Delete(p.runs, i, i+1)
	case before:
		p.runs[i-1].last++
	case behind:
		p.runs[i].from--
	default:
		p.runs = slices.Insert(p.runs, i, shortRun{low, low})
	}
}

func (s *refSet) remove(ref segment.BodyRef) {
	k, ok := s.part(ref)
	if !ok {
		return
	}
	p := &s.parts[k]
	if p.remove(uint32(ref.Seq)); len(p.runs) == 0 {
		s.parts = slices.Delete(s.parts, k, k+1)
	}
}

func (p *refPart) remove(low uint32) {
	i := p.find(low)
	if !p.holds(i, low) {
		return
	}
	r := &p.runs[i]
	switch {
	case r.from == r.last:
		p.runs = slices.Delete(p.runs, i, i+1)
	case r.from == low:
		r.from++
	case r.last == low:
		r.last--
	default:
		last := r.last
		r.last = low - 1
		p.runs = slices.Insert(p.runs, i+1, shortRun{low + 1, last})
	}
}

// dropBelow forgets all refs of terms below t.
func (s *refSet) dropBelow(t segment.Term) {
	n := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].term >= t })
	s.parts = slices.Delete(s.parts, 0, n)
}

// next returns the least ref of the set that is not below ref.
func (s *refSet) next(ref segment.BodyRef) (segment.BodyRef, bool) {
	k, ok := s.part(ref)
	if ok {
		p, low := &s.parts[k], uint32(ref.Seq)
		if i := p.find(low); i < len(p.runs) {
			return p.ref(max(low, p.runs[i].from)), true
		}
		k++
	}
	if k == len(s.parts) {
		return segment.BodyRef{}, false
	}
	return s.parts[k].ref(s.parts[k].runs[0].from), true
}

// meets reports whether any ref of the set lies in [lo, hi].
func (s *refSet) meets(lo, hi segment.BodyRef) bool {
	ref, ok := s.next(lo)
	return ok && !hi.Less(ref)
}

// each calls fn for the runs of the set in order until it returns false. One run of the set may be told
// as two.
func (s *refSet) each(fn func(refRun) bool) {
	for i := range s.parts {
		p := &s.parts[i]
		for _, r := range p.runs {
			if !fn(refRun{p.term, p.ref(r.from).Seq, p.ref(r.last).Seq + 1}) {
				return
			}
		}
	}
}

// common returns the runs that are in both sets.
func (s *refSet) common(t *refSet) (list []refRun) {
	for i, j := 0, 0; i < len(s.parts) && j < len(t.parts); {
		p, q := &s.parts[i], &t.parts[j]
		if p.term == q.term && p.high == q.high {
			list = p.common(q, list)
		}
		if p.term < q.term || p.term == q.term && p.high <= q.high {
			i++
		} else {
			j++
		}
	}
	return list
}

func (p *refPart) common(q *refPart, list []refRun) []refRun {
	for i, j := 0, 0; i < len(p.runs) && j < len(q.runs); {
		a, b := p.runs[i], q.runs[j]
		if from, last := max(a.from, b.from), min(a.last, b.last); from <= last {
			list = append(list, refRun{p.term, p.ref(from).Seq, p.ref(last).Seq + 1})
		}
		if a.last <= b.last {
			i++
		} else {
			j++
		}
	}
	return list
}

// first returns at most n refs of the set, in order.
func (s *refSet) first(n int) (list []segment.BodyRef) {
	s.each(func(r refRun) bool {
		for seq := r.from; seq < r.to && len(list) < n; seq++ {
			list = append(list, segment.BodyRef{Term: r.term, Seq: seq})
		}
		return len(list) < n
	})
	return list
}
