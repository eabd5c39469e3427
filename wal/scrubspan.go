package wal

import (
	"errors"

	"weida/fsync"
	"weida/segment"
)

// hurtSpan is the stretch of an unsealed segment that is being looked at: what it holds is known in memory, and what
// was not met in it is looked for when its end is reached, if something in it is damaged.
type hurtSpan struct {
	span
	end   int64
	refs  refSet // bodies met
	seen  map[segment.Index]bool
	at    int64 // of the first damage
	cause error // of it, nil for none
	other bool  // what is damaged is neither a body nor an entry, as far as its header says
}

func (h *hurtSpan) note(k segment.Kind, pos int64, err error) {
	if h.cause == nil {
		h.at, h.cause = pos, err
		h.other = k != segment.KindBody && k != segment.KindEntry && k != 0
	}
}

// enter makes hurt the stretch in which pos is, and leaves the one before it.
func (s *Scrub) enter(t *scrubFile, f fsync.File, v *scrubSegment) {
	if s.hurt != nil && s.pos < s.hurt.end {
		return
	}
	s.leave(t, f, v)
	if v.sealed {
		return
	}
	h := &hurtSpan{seen: map[segment.Index]bool{}}
	l := s.log
	l.mu.Lock()
	for k := len(v.spans) - 1; k >= 0; k-- {
		h.span = v.spans[k]
		if k == len(v.spans)-1 { // it grows with the log: as far as it is known now it is looked at
			s.end = v.seg.end
			h.end = s.end
		}
		if h.pos <= s.pos {
			break
		}
		h.end = h.pos
	}
	l.mu.Unlock()
	if h.pos > s.pos { // before the first of them stands the head of a batch and nothing else
		h.span, h.end = span{}, h.pos
	}
	s.hurt = h
}

// saw takes note of a record that is whole.
func (s *Scrub) saw(r *segment.Record) {
	if s.hurt == nil {
		return
	}
	switch r.Kind {
	case segment.KindBody:
		if ref, _, err := segment.ParseBody(r.Body); err == nil {
			s.hurt.refs.add(ref)
		}
	case segment.KindEntry:
		if e, err := segment.ParseEntry(r.Body); err == nil {
			s.hurt.seen[e.Index] = true
		}
	default:
	}
}

// leave tells what is lost in the stretch that ends.
func (s *Scrub) leave(t *scrubFile, f fsync.File, v *scrubSegment) {
	h := s.hurt
	s.hurt = nil
	if h == nil || h.cause == nil {
		return
	}
	told := false
	for _, ref := range s.unmet(v, h) {
		if _, err := s.log.readBody(ref); err != nil && !errors.Is(err, fsync.ErrClosed) {
			told = true
			s.tellBody(t, f, v, ref, h.at, err)
		}
	}
	l := s.log
	l.mu.Lock()
	var lost []segment.Index
	for i := max(h.first, v.lo); h.first > 0 && i <= h.last && i < v.hi; i++ {
		if !h.seen[i] && h.end > v.after(i) {
			lost = append(lost, i)
		}
	}
	l.mu.Unlock()
	for _, i := range lost {
		told = true
		s.tellEntry(t, v, i, h.at, h.cause)
	}
	if !told {
		s.tell(t, Damage{Kind: DamagedFraming, Pos: h.at, Needed: true, Err: h.cause}) // an opening would refuse it
	}
}

// unmet are the bodies that may stand in the stretch and were not met in it.
func (s *Scrub) unmet(v *scrubSegment, h *hurtSpan) (list []segment.BodyRef) {
	if !h.bodies {
		return nil
	}
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for ref, ok := v.refs.next(h.min); ok && !h.max.Less(ref); ref, ok = v.refs.next(ref) {
		if !h.refs.has(ref) {
			list = append(list, ref)
		}
		ref.Seq++
	}
	return list
}
