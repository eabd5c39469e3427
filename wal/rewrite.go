package wal

import (
	"errors"
	"fmt"

	"weida/fsync"
	"weida/segment"
)

// What is damaged is mended without a byte being changed in place: a body is written again under its ref, into the
// segment that is appended to, and counts there; an entry is dropped once a snapshot has taken its place.

// Rewrite appends bodies that stand here already and can't be read where they stand. One that was released meanwhile is
// written all the same, and goes with its segment. Large bodies have files that NewBody made after MarkDamaged; they
// take the place of the damaged ones, which are moved to quarantine. Errors as Append; on one, nothing counts. Owner
// only.
func (l *Log) Rewrite(bodies []Body, large []*BodyFile) error {
	if err := l.failure(); err != nil {
		return err
	}
	if l.closed {
		return errClosed
	}
	l.tryAgain()
	return l.append(&Append{Bodies: bodies, Large: large, copies: true, apart: true}, l.reserved)
}

// DropThrough makes the log begin behind entry i, for which a snapshot has to stand: it, or what is before it, can't be
// read. Its segment stays while something else in it is needed. Owner only.
func (l *Log) DropThrough(i segment.Index) {
	if i > l.snap.Index {
		panic(fmt.Sprintf("bug: wal: entry %d is dropped, and the newest snapshot is at %d", i, l.snap.Index))
	}
	if i > l.base.Index {
		l.through = max(l.through, i)
		l.Trim()
	}
}

// Evict makes a segment go, with those before it: what is live in them is copied forward, however much it is. Until a
// snapshot covers the segment, and while something live in it can't be read, it waits. Owner only.
func (l *Log) Evict(n segment.Number) {
	l.evict = max(l.evict, n)
	l.Trim()
}

// errFlawed means that a segment gets no footer yet: it would not say any more that something is missing.
var errFlawed = errors.New("what can't be read in it is needed; it is sealed when that is mended")

// salvage returns the rows of a full segment in which something is damaged, if nothing of that is needed: a footer does
// without it, and the log goes on. cause is the damage.
func (l *Log) salvage(s *seg, f fsync.File, end int64, cause error) (rows []segment.Row, err error) {
	path := l.segPath(s.file.Segment)
	lost := false
	pass := func(k segment.Kind, _ error) bool {
		lost = lost || k == segment.KindTruncate || k == segment.KindVoid
		return true
	}
	var refs refSet
	seen := map[segment.Index]bool{}
	err = walkOver(f, s.file, extent{segment.FirstBatch, end}, pass, func(r segment.Record) (bool, error) {
		row := segment.Row{Kind: r.Kind, Pos: r.Pos, Size: r.Size}
		var err error
		switch r.Kind {
		case segment.KindBody:
			row.Ref, _, err = segment.ParseBody(r.Body)
			refs.add(row.Ref)
		case segment.KindVoid:
			row.Ref, _, err = segment.ParseVoid(r.Body)
		case segment.KindEntry:
			var e segment.Entry
			e, err = segment.ParseEntry(r.Body)
			row.Index, row.Term = e.Index, e.Term
			seen[e.Index] = true
		case segment.KindTruncate:
			row.Index, err = segment.ParseTruncate(r.Body)
		default:
			return true, nil
		}
		rows = append(rows, row)
		return true, err
	})
	if isCorrupt(err) || err == nil && (lost || l.misses(s, &refs, seen)) {
		return nil, fmt.Errorf("%s: %w: %w", path, errFlawed, cause)
	}
	return rows, err
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
