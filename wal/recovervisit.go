package wal

import (
	"fmt"

	"weida/segment"
)

// visit takes one record of an open segment.
func (r *recovery) visit(n segment.Number, row segment.Row, rec segment.Record) error {
	l := r.l
	s := r.segOf(n)
	if at := (segment.Position{Segment: n, Pos: row.Pos}); at != r.batchEnd {
		r.batch = segment.Position{Segment: n, Pos: row.Pos - batchHead}
	}
	r.batchEnd = segment.Position{Segment: n, Pos: row.Pos + row.Size}
	switch row.Kind {
	case segment.KindEntry:
		e, err := segment.ParseEntry(rec.Body)
		if err != nil {
			return err
		}
		if err := r.entry(s, row, &e); err != nil {
			return err
		}
	case segment.KindTruncate:
		if err := r.truncate(s, row); err != nil {
			return err
		}
	case segment.KindVoid:
		_, settled, err := segment.ParseVoid(rec.Body)
		if err != nil {
			return err
		}
		l.noteRow(s, row, true)
		s.named = max(s.named, settled)
	default:
		l.noteRow(s, row, true)
	}
	r.lasts[n] = r.scan.last
	return nil
}

// batchHead is the size of the batch header in front of a batch's first record.
var batchHead = segment.BatchOverhead - segment.SizeOf(8)

func (r *recovery) segOf(n segment.Number) *seg {
	for _, s := range r.open {
		if s.file.Segment == n {
			return s
		}
	}
	panic("bug: wal: a record of a segment that is not read")
}

func (r *recovery) entry(s *seg, row segment.Row, e *segment.Entry) error {
	l := r.l
	if lo, hi := l.live(); lo < hi && e.Index != hi {
		return r.corruptEntry(s, row, fmt.Sprintf("entry %d stands behind entry %d", uint64(e.Index), uint64(hi-1)))
	}
	if e.Term < r.scan.last.Term {
		return r.corruptEntry(s, row, fmt.Sprintf("entry %d has term %d after term %d", uint64(e.Index),
			uint64(e.Term), uint64(r.scan.last.Term)))
	}
	l.noteRow(s, row, true)
	r.scan.last = Mark{Term: e.Term, Index: e.Index}
	if ref, ok := l.noteNames(s, e); !ok {
		r.missing = append(r.missing, lost{index: e.Index, commit: segment.Commit{Ref: ref}, batch: r.batch})
	}
	if e.Type != segment.EntryNormal {
		return nil
	}
	return segment.EachCommit(e.Data, func(c segment.Commit) error {
		if c.Large {
			r.larges = append(r.larges, lost{e.Index, c, r.batch})
		}
		return nil
	})
}

func (r *recovery) corruptEntry(s *seg, row segment.Row, cause string) error {
	return &segment.CorruptError{
		Path: r.l.segPath(s.file.Segment), Group: r.l.group, Index: row.Index,
		At: segment.Position{Segment: s.file.Segment, Pos: row.Pos}, Cause: cause,
	}
}

// truncate voids what a truncation record says.
func (r *recovery) truncate(s *seg, row segment.Row) error {
	l := r.l
	l.noteRow(s, row, true)
	before := Mark{Index: row.Index - 1}
	l.truncated(row.Index, Mark{})
	r.missing = dropFrom(r.missing, row.Index)
	r.larges = dropFrom(r.larges, row.Index)
	if r.scan.last.Index < row.Index {
		return nil
	}
	r.scan.last = Mark{}
	if lo, hi := l.live(); lo < hi {
		var ok bool
		if before.Term, ok = l.termInMemory(before.Index); !ok {
			var err error
			if before.Term, err = l.termOnDisk(before.Index); err != nil {
				return err
			}
		}
		r.scan.last = before
	}
	return nil
}

func dropFrom(list []lost, from segment.Index) []lost {
	kept := list[:0]
	for _, b := range list {
		if b.index < from {
			kept = append(kept, b)
		}
	}
	return kept
}

// live returns the bounds [lo, hi) of the live entries in all segments.
func (l *Log) live() (lo, hi segment.Index) {
	for _, s := range l.segs {
		if s.lo < s.hi {
			if lo == 0 {
				lo = s.lo
			}
			hi = s.hi
		}
	}
	return lo, hi
}
