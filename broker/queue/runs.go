package queue

import "sort"

// Ref names a body within the queue's group; the term is that of the message's entry, too.
type Ref struct {
	Term uint64
	Seq  uint64
}

// Large describes a body in a file of its own.
type Large struct {
	Length int64 // bytes
	Digest [16]byte
}

// run is a stretch of present messages: offsets [first, first+count) have refs [ref, ref+count).
type run struct {
	first uint64
	count uint64
	ref   Ref
	large *Large // then count is 1
}

func (r *run) limit() uint64 { return r.first + r.count }

func (r *run) at(offset uint64) Ref { return Ref{r.ref.Term, r.ref.Seq + (offset - r.first)} }

// runs is the set of present messages, in order of offset. Taking messages out at the front is cheap; in the
// middle it splits a run.
type runs struct{ list []run }

func (s *runs) add(offset uint64, ref Ref, large *Large) {
	if n := len(s.list); n > 0 && large == nil {
		last := &s.list[n-1]
		next := Ref{last.ref.Term, last.ref.Seq + last.count}
		if last.large == nil && last.limit() == offset && next == ref {
			last.count++
			return
		}
	}
	s.list = append(s.list, run{offset, 1, ref, large})
}

// find returns the place of the run that holds offset, or of the first one behind it.
func (s *runs) find(offset uint64) (int, bool) {
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].limit() > offset })
	return i, i < len(s.list) && s.list[i].first <= offset
}

// from returns the lowest present offset at or above the one given.
func (s *runs) from(offset uint64) (uint64, bool) {
	i, in := s.find(offset)
	switch {
	case in:
		return offset, true
	case i < len(s.list):
		return s.list[i].first, true
	}
	return 0, false
}

func (s *runs) get(offset uint64) (Ref, *Large, bool) {
	i, in := s.find(offset)
	if !in {
		return Ref{}, nil, false
	}
	return s.list[i].at(offset), s.list[i].large, true
}

func (s *runs) remove(offset uint64) {
	i, in := s.find(offset)
	if !in {
		panic("bug: queue: removed a message that is not present")
	}
	r := s.list[i]
	switch {
	case r.count == 1:
		s.list = append(s.list[:i], s.list[i+1:]...)
	case offset == r.first:
		s.list[i].first++
		s.list[i].ref.Seq++
		s.list[i].count--
	case offset == r.limit()-1:
		s.list[i].count--
	default:
		s.list[i].count = offset - r.first
		rest := run{offset + 1, r.limit() - offset - 1, r.at(offset + 1), nil}
		s.list = append(s.list, run{})
		copy(s.list[i+2:], s.list[i+1:])
		s.list[i+1] = rest
	}
}

// offsets is a sorted set of offsets that came back.
type offsets struct{ list []uint64 }

func (o *offsets) add(v uint64) {
	i := sort.Search(len(o.list), func(i int) bool { return o.list[i] >= v })
	if i < len(o.list) && o.list[i] == v {
		return
	}
	o.list = append(o.list, 0)
	copy(o.list[i+1:], o.list[i:])
	o.list[i] = v
}

func (o *offsets) first() (uint64, bool) {
	if len(o.list) == 0 {
		return 0, false
	}
	return o.list[0], true
}

func (o *offsets) removeFirst() { o.list = o.list[1:] }
