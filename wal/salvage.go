package wal

import (
	"errors"
	"fmt"
	"slices"

	"weida/fsync"
	"weida/segment"
)

// errFlawed means that a segment gets no footer yet: it would not say any more that something is missing.
var errFlawed = errors.New("what can't be read in it is needed; it is sealed when that is mended")

// salvage returns the rows of a full segment in which something is damaged, if nothing of that is needed: a footer does
// without it, and the log goes on. cause is the damage.
func (l *Log) salvage(s *seg, f fsync.File, end int64, cause error) (rows []segment.Row, err error) {
	l.mu.Lock()
	spans, cuts := slices.Clone(s.spans), slices.Clone(s.cuts)
	l.mu.Unlock()
	lost := false
	var refs refSet
	seen := map[segment.Index]bool{}
	for k, one := range spans {
		x := extent{one.pos, end}
		if k+1 < len(spans) {
			x.end = spans[k+1].pos
		}
		pass := func(k segment.Kind, _ error) bool {
			lost = lost || k == segment.KindTruncate || k == segment.KindVoid
			return true
		}
		err := walkOver(f, s.file, x, pass, func(r segment.Record) (bool, error) {
			row, err := rowOf(&r)
			if err != nil || row.Kind == 0 {
				return err == nil, err
			}
			switch row.Kind {
			case segment.KindBody:
				refs.add(row.Ref)
			case segment.KindEntry:
				seen[row.Index] = true
			default:
			}
			rows = append(rows, row)
			return true, nil
		})
		if err != nil && !isCorrupt(err) {
			return nil, err
		}
		inside := func(c voiding) bool { return c.pos >= x.from && c.pos < x.end }
		lost = lost || err != nil && slices.ContainsFunc(cuts, inside)
	}
	if lost || l.misses(s, &refs, seen) {
		return nil, fmt.Errorf("%s: %w: %w", l.segPath(s.file.Segment), errFlawed, cause)
	}
	return rows, nil
}

// rowOf is the row of a record, of kind 0 if it has none.
func rowOf(r *segment.Record) (row segment.Row, err error) {
	row = segment.Row{Kind: r.Kind, Pos: r.Pos, Size: r.Size}
	switch r.Kind {
	case segment.KindBody:
		row.Ref, _, err = segment.ParseBody(r.Body)
	case segment.KindVoid:
		row.Ref, _, err = segment.ParseVoid(r.Body)
	case segment.KindEntry:
		var e segment.Entry
		e, err = segment.ParseEntry(r.Body)
		row.Index, row.Term = e.Index, e.Term
	case segment.KindTruncate:
		row.Index, err = segment.ParseTruncate(r.Body)
	default:
		row.Kind = 0
	}
	return row, err
}

// misses reports whether a segment holds a live body, or an entry that no snapshot stands for, that is not among those
// that were read.
func (l *Log) misses(s *seg, refs *refSet, seen map[segment.Index]bool) bool {
	l.manMu.Lock()
	dropped := l.man.Dropped.Upto.Index
	l.manMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := max(s.lo, dropped+1); i < s.hi; i++ {
		if !seen[i] {
			return true
		}
	}
	missing := false
	for _, set := range []*refSet{&s.kept, &l.pending} {
		set.each(func(run refRun) bool {
			for seq := run.from; seq < run.to && !missing; seq++ {
				ref := segment.BodyRef{Term: run.term, Seq: seq}
				missing = s.refs.has(ref) && !refs.has(ref)
			}
			return !missing
		})
	}
	return missing
}

// tryAgain has segments sealed that could not be.
func (l *Log) tryAgain() {
	for _, s := range l.segs {
		s.flawed = false
	}
}
