package wal

import "weida/segment"

// This file takes records into the state of the log, as they are appended and as they are found at opening.

// noteRow takes a record of segment s into the indexes; isCopy says that a body of it stands elsewhere
// too. Log.mu is held.
func (l *Log) noteRow(s *seg, row segment.Row, isCopy bool) {
	s.note(row)
	switch row.Kind {
	case segment.KindEntry:
		if n := len(l.terms); n == 0 || l.terms[n-1].term != row.Term {
			l.terms = append(l.terms, termRun{row.Index, row.Term})
		}
	case segment.KindBody:
		l.noteBody(s, row.Ref, isCopy)
	case segment.KindVoid:
		l.voids.add(row.Ref)
	default:
	}
}

// noteNames marks the bodies that an entry in segment s names as named. ok is false if one of them is
// not here. Log.mu is held.
func (l *Log) noteNames(s *seg, e *segment.Entry) (missing segment.BodyRef, ok bool) {
	if e.Type != segment.EntryNormal {
		return missing, true
	}
	ok = true
	err := segment.EachCommit(e.Data, func(c segment.Commit) error {
		if c.Large {
			s.large++
			if b := l.large[c.Ref]; b != nil {
				b.index = max(b.index, e.Index)
				return nil
			}
			if !l.voids.has(c.Ref) {
				missing, ok = c.Ref, false
			}
			return nil
		}
		l.pending.remove(c.Ref)
		if s.refs.has(c.Ref) {
			s.named = max(s.named, e.Index)
			return nil
		}
		found := l.voids.has(c.Ref)
		for _, other := range l.segs {
			if other.covers(c.Ref) {
				other.named = max(other.named, e.Index)
				found = true
			}
		}
		if !found {
			missing, ok = c.Ref, false
		}
		return nil
	})
	return missing, ok && err == nil
}

// truncated voids the entries at or above from; before is what then stands last. Log.mu is held.
func (l *Log) truncated(from segment.Index, before Mark) {
	for _, s := range l.segs {
		s.truncate(from)
	}
	for len(l.terms) > 0 && l.terms[len(l.terms)-1].first >= from {
		l.terms = l.terms[:len(l.terms)-1]
	}
	l.voidAll = false
	l.unflush(before)
}

// unflush makes completions of entries behind m not count.
func (l *Log) unflush(m Mark) {
	if off.flushedVoid {
		return
	}
	if l.flushed.Index > m.Index {
		l.flushed = m
	}
	for i := range l.marks {
		if l.marks[i].last.Index > m.Index {
			l.marks[i].last = m
		}
	}
}
