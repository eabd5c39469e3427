package wal

import (
	"errors"
	"fmt"
	"io"

	"weida/fsync"
	"weida/segment"
)

// This file reads segments for a Scrub. What a damaged record was is told by the footer of its segment; where that is
// not written yet, by what is known in memory to stand in that stretch and can't be read there any more.

// scrubSegment is what is known of a segment at one moment.
type scrubSegment struct {
	*seg
	n      segment.Number
	end    int64
	sealed bool
	footer segment.Footer
}

// segmentNow returns what is known of a segment, nil if it is no more one of the log's.
func (s *Scrub) segmentNow(n segment.Number) *scrubSegment {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.segs {
		if one.file.Segment == n {
			return &scrubSegment{one, n, one.end, one.state == segSealed, one.footer}
		}
	}
	return nil
}

// segment reads on in a segment.
func (s *Scrub) segment(t *scrubFile, limit int64) (n int64, over bool, err error) {
	v := s.segmentNow(t.segment)
	if v == nil {
		return 0, true, nil
	}
	if s.end == 0 || v.sealed {
		s.end = v.end
	}
	f, err := s.log.fs.Open(s.path(t), fsync.ReadOnly)
	if isAbsent(err) {
		if s.segmentNow(t.segment) != nil {
			err = corruptAt("", s.log.group, 0, "the file is missing, but the manifest names it")
			s.tell(t, Damage{Kind: DamagedIndex, Needed: true, Err: err})
		}
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { s.log.closeFile(f) }()
	if s.pos == 0 {
		s.header(t, f, v)
		s.pos, n = segment.FirstBatch, segment.FirstBatch
	}
	for n < limit && s.pos < s.end {
		k, err := s.records(t, f, v)
		if n += k; err != nil {
			return n, false, err
		}
	}
	if s.pos < s.end || n >= limit && v.sealed {
		return n, false, nil
	}
	s.leave(t, f, v)
	if v.sealed {
		n += v.footer.Size
		s.footer(t, f, v)
	}
	return n, true, nil
}

// header verifies the segment's first record.
func (s *Scrub) header(t *scrubFile, f fsync.File, v *scrubSegment) {
	head := make([]byte, segment.FirstBatch)
	k, err := f.ReadAt(head, 0)
	if k < len(head) {
		err = fmt.Errorf("read the header: %w", noEOF(err))
	} else {
		var salt segment.Salt
		var h segment.Header
		salt, h, err = segment.ParseHeader(head, v.file.Group, v.n)
		if err == nil && (salt != v.file.Salt || h.Base != v.base) {
			err = corruptAt("", v.file.Group, 0, "it is not the segment that the manifest names")
		}
	}
	if err != nil {
		s.tell(t, Damage{Kind: DamagedIndex, Needed: true, Err: err})
	}
}

// noEOF makes of the end of a file an error that says so.
func noEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// records verifies the records that one reading gives.
func (s *Scrub) records(t *scrubFile, f fsync.File, v *scrubSegment) (n int64, err error) {
	if s.buf == nil {
		s.buf = make([]byte, scrubWindow)
	}
	from := s.pos
	buf := s.buf[:min(scrubWindow, s.end-from)]
	if v.sealed {
		if err := f.DropCache(from, int64(len(buf))); err != nil {
			return 0, err
		}
	}
	if k, err := f.ReadAt(buf, from); k < len(buf) {
		at := segment.Position{Segment: v.n, Pos: from}
		s.unreadable(t, f, v, from+int64(len(buf)), fmt.Errorf("read %d bytes at %v: %w", len(buf), at, noEOF(err)))
		return s.pos - from, nil
	}
	for s.pos < s.end {
		s.enter(t, f, v)
		b := buf[s.pos-from:]
		rec, _, err := segment.ParseRecord(b, v.file, s.pos)
		switch {
		case errors.Is(err, segment.ErrShort) && s.pos > from:
			return s.pos - from, nil
		case errors.Is(err, segment.ErrShort):
			err = &segment.CorruptError{
				Group: v.file.Group, At: segment.Position{Segment: v.n, Pos: s.pos},
				Cause: "a record goes on behind the end of the log",
			}
			s.damaged(t, f, v, nil, err)
		case err != nil:
			s.damaged(t, f, v, b, err)
		default:
			s.saw(&rec)
			s.pos += rec.Size
		}
	}
	return s.pos - from, nil
}

// damaged deals with the record at pos, which does not verify; b begins there, nil if it can't be told where it ends.
func (s *Scrub) damaged(t *scrubFile, f fsync.File, v *scrubSegment, b []byte, err error) {
	k, size, ok := segment.HeadAt(b, v.file, s.pos)
	if ok && s.pos+size > s.end {
		ok = false
	}
	switch {
	case v.sealed && ok:
		s.unreadable(t, f, v, s.pos+size, err)
	case v.sealed:
		s.unreadable(t, f, v, s.pos+1, err)
	case ok:
		s.hurt.note(k, s.pos, err)
		s.pos += size
	default: // what stands behind it in this stretch can't be found
		s.hurt.note(0, s.pos, err)
		s.pos = min(s.hurt.end, s.end)
	}
}

// unreadable tells what stands in [pos, to) of a sealed segment, asks each record for itself, and goes on behind it.
func (s *Scrub) unreadable(t *scrubFile, f fsync.File, v *scrubSegment, to int64, cause error) {
	from, next, told := s.pos, v.end, false
	if !v.sealed {
		s.enter(t, f, v)
		s.hurt.note(0, from, cause)
		s.pos = min(max(s.hurt.end, from+1), s.end)
		return
	}
	var buf []byte
	err := segment.EachRow(f, v.footer, func(row segment.Row) error {
		if row.Pos >= to {
			next = min(next, row.Pos)
		}
		if row.Pos < from || row.Pos >= to {
			return nil
		}
		var err error
		if _, buf, err = segment.ReadRecord(f, v.file, row, buf); err == nil {
			return nil
		}
		told = true
		s.tellRow(t, f, v, row, err)
		return nil
	})
	if err != nil { // the footer is damaged, too, and is told of when its turn comes
		next = v.end
	}
	if !told {
		s.tell(t, Damage{Kind: DamagedFraming, Pos: from, Err: cause})
	}
	s.pos = next
}

// tellRow tells of a record of a sealed segment that can't be read.
func (s *Scrub) tellRow(t *scrubFile, f fsync.File, v *scrubSegment, row segment.Row, err error) {
	switch row.Kind {
	case segment.KindBody:
		s.tellBody(t, f, v, row.Ref, row.Pos, err)
	case segment.KindEntry:
		s.tellEntry(t, v, row.Index, row.Pos, err)
	default:
		s.tell(t, Damage{Kind: DamagedFraming, Pos: row.Pos, Err: err})
	}
}

// tellBody tells of a body that can't be read where it stands.
func (s *Scrub) tellBody(t *scrubFile, f fsync.File, v *scrubSegment, ref segment.BodyRef, pos int64, err error) {
	d := Damage{Kind: DamagedBody, Ref: ref, Pos: pos, Err: err}
	l := s.log
	l.mu.Lock()
	h, herr := l.holderLocked(ref)
	d.Needed = (herr != nil || h == v.seg) && (v.kept.has(ref) || v.pinned || l.pending.has(ref))
	l.mu.Unlock()
	if d.Needed && pos > 0 {
		d.Commit, d.Index = commitBehind(f, v.file, ref, extent{pos, min(pos+segment.BatchMax, v.end)})
	}
	s.tell(t, d)
}

// commitBehind looks behind a body for the entry of the same batch that names it; zero if it is not found.
func commitBehind(f fsync.File, file segment.File, ref segment.BodyRef, x extent) (
	found segment.Commit, i segment.Index,
) {
	pass := func(segment.Kind, error) bool { return true }
	err := walkOver(f, file, x, pass, func(r segment.Record) (bool, error) {
		if r.Kind != segment.KindEntry {
			return true, nil
		}
		e, err := segment.ParseEntry(r.Body)
		if err != nil || e.Type != segment.EntryNormal {
			return true, err
		}
		err = segment.EachCommit(e.Data, func(c segment.Commit) error {
			if c.Ref == ref && !c.Large {
				found, i = c, e.Index
			}
			return nil
		})
		return i == 0, err
	})
	if err != nil {
		return segment.Commit{}, 0 // it is asked for without
	}
	return found, i
}

// CommitOf looks for what an entry that stands beside an inline body says of it, and for the entry's index; both are
// zero if there is none: the body was copied, and its entry may be gone. It reads one batch or two. Any goroutine.
func (l *Log) CommitOf(ref segment.BodyRef) (found segment.Commit, i segment.Index) {
	w, err := l.locate(ref)
	if err != nil || w.s == nil {
		return found, 0
	}
	defer l.release(w.h)
	l.look(&w, ref)
	if w.sealed {
		row, ok, err := segment.FindBody(w.h.f, w.footer, ref)
		if err != nil || !ok {
			return found, 0
		}
		w.spans = []extent{{row.Pos + row.Size, row.Pos + row.Size}}
	}
	for _, x := range w.spans {
		end := min(x.end+segment.BatchMax, w.end)
		if found, i = commitBehind(w.h.f, w.s.file, ref, extent{x.from, end}); i != 0 {
			break
		}
	}
	return found, i
}

// tellEntry tells of an entry that can't be read.
func (s *Scrub) tellEntry(t *scrubFile, v *scrubSegment, i segment.Index, pos int64, err error) {
	l := s.log
	l.mu.Lock()
	live := i >= v.lo && i < v.hi
	l.mu.Unlock()
	l.manMu.Lock()
	d := Damage{Kind: DamagedEntry, Index: i, Pos: pos, Needed: live && i > l.man.Dropped.Upto.Index, Err: err}
	l.manMu.Unlock()
	s.tell(t, d)
}

// footer verifies the footer and its rows. If a row is damaged, each live body is asked for, for it may be that one's.
func (s *Scrub) footer(t *scrubFile, f fsync.File, v *scrubSegment) {
	err := f.DropCache(v.footer.Pos, v.footer.Size)
	var got segment.Footer
	if err == nil {
		got, err = segment.LocateFooter(f, v.file, v.footer.Pos+v.footer.Size)
	}
	if err == nil && got != v.footer {
		err = corruptAt("", v.file.Group, v.footer.Pos, "it is not the footer with which it was sealed")
	}
	if err == nil {
		err = segment.EachRow(f, v.footer, func(segment.Row) error { return nil })
	}
	if err == nil {
		return
	}
	s.tell(t, Damage{Kind: DamagedIndex, Pos: v.footer.Pos, Needed: true, Err: err})
	l := s.log
	l.mu.Lock()
	refs := v.kept.first(int(v.live))
	l.mu.Unlock()
	for _, ref := range refs {
		if _, _, err := copyOf(f, v.seg, ref); err != nil {
			s.tellBody(t, f, v, ref, 0, err)
		}
	}
}
