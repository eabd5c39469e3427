package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"weida/segment"
)

const windowBytes = 128 << 10 // read at once when walking a segment

// Term returns the term of entry i, also of the place before First. ErrTrimmed below that, ErrAbsent
// behind Last. Owner only, like Entries.
func (l *Log) Term(i segment.Index) (segment.Term, error) {
	switch {
	case i == l.base.Index:
		return l.base.Term, nil
	case i == l.snap.Index:
		return l.snap.Term, nil
	case i < l.base.Index:
		return 0, fmt.Errorf("wal: group %d: entry %d: %w", uint64(l.group), uint64(i), ErrTrimmed)
	case i == l.last.Index:
		return l.last.Term, nil
	case i > l.last.Index:
		return 0, fmt.Errorf("wal: group %d: entry %d: %w", uint64(l.group), uint64(i), ErrAbsent)
	}
	if t, ok := l.termInMemory(i); ok {
		return t, nil
	}
	return l.termOnDisk(i)
}

// termInMemory knows the terms of everything read or appended since the log was opened.
func (l *Log) termInMemory(i segment.Index) (segment.Term, bool) {
	if i == l.base.Index {
		return l.base.Term, true
	}
	n := sort.Search(len(l.terms), func(k int) bool { return l.terms[k].first > i })
	if n == 0 {
		return 0, false
	}
	return l.terms[n-1].term, true
}

// termOnDisk asks the footer of the sealed segment that holds entry i. Terms never fall, so that an
// entry between two of the same term needs no reading.
func (l *Log) termOnDisk(i segment.Index) (segment.Term, error) {
	var before Mark
	for _, s := range l.segs {
		if i >= s.lo && i < s.hi {
			if before.Index > 0 && before.Term == s.last.Term && s.hi-1 == s.last.Index {
				return before.Term, nil
			}
			row, err := l.entryRow(s, i)
			return row.Term, err
		}
		before = Mark{}
		if s.lo < s.hi && s.hi-1 == s.last.Index {
			before = s.last
		}
	}
	return 0, l.missing(i)
}

// missing is an entry that must be there and is not.
func (l *Log) missing(i segment.Index) error {
	return &segment.CorruptError{
		Path: l.dir, Group: l.group, Index: i,
		Cause: fmt.Sprintf("no segment holds entry %d, which lies between the first and the last", uint64(i)),
	}
}

// entryRow finds the row of a live entry in a sealed segment's footer.
func (l *Log) entryRow(s *seg, i segment.Index) (segment.Row, error) {
	h, err := l.acquire(s)
	if err != nil {
		return segment.Row{}, l.readError(s, err)
	}
	defer l.release(h)
	row, ok, err := segment.FindEntry(h.f, s.footer, i)
	if err == nil && !ok {
		err = &segment.CorruptError{
			Group: l.group, At: segment.Position{Segment: s.file.Segment, Pos: s.footer.Pos},
			Index: i, Cause: fmt.Sprintf("the footer has no row for entry %d", uint64(i)),
		}
	}
	return row, l.readError(s, err)
}

// readError names the file in an error of reading a segment.
func (l *Log) readError(s *seg, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("wal: group %d: %w", uint64(l.group), withPath(err, l.segPath(s.file.Segment)))
}

// Entries returns the entries [lo, limit), fewer if their data together would exceed maxBytes, but at
// least one if the range is not empty. Bodies between them are passed over. The data is the caller's.
// ErrTrimmed if lo is below First, ErrAbsent if limit is more than one behind Last; damage is a
// *segment.CorruptError. Owner only.
func (l *Log) Entries(lo, limit segment.Index, maxBytes int64) ([]segment.Entry, error) {
	switch {
	case lo <= l.base.Index:
		return nil, fmt.Errorf("wal: group %d: entry %d: %w", uint64(l.group), uint64(lo), ErrTrimmed)
	case limit > l.last.Index+1:
		return nil, fmt.Errorf("wal: group %d: entry %d: %w", uint64(l.group), uint64(limit-1), ErrAbsent)
	case lo >= limit:
		return nil, nil
	}
	c := collector{next: lo, limit: limit, room: maxBytes}
	for c.next < c.limit && !c.full {
		s := l.segmentOf(c.next)
		if s == nil {
			return nil, l.missing(c.next)
		}
		was := c.next
		if err := l.collect(s, &c); err != nil && (len(c.list) == 0 || !isCorrupt(err)) {
			return nil, l.readError(s, err)
		} else if err != nil {
			return c.list, nil // who asks for the next one, which may have a way of its own, is told if it has none
		}
		if c.next == was && !c.full {
			return nil, l.missing(was)
		}
	}
	return c.list, nil
}

// segmentOf returns the segment in which the live entry i stands.
func (l *Log) segmentOf(i segment.Index) *seg {
	for _, s := range slices.Backward(l.segs) {
		if i >= s.lo && i < s.hi {
			return s
		}
	}
	return nil
}

// collector gathers entries in order.
type collector struct {
	list        []segment.Entry
	next, limit segment.Index
	room        int64
	full        bool
}

// take takes an entry and says whether more are wanted.
func (c *collector) take(e segment.Entry) bool {
	n := int64(len(e.Data))
	if len(c.list) > 0 && n > c.room {
		c.full = true
		return false
	}
	c.room -= n
	e.Data = slices.Clone(e.Data)
	c.list = append(c.list, e)
	c.next++
	return c.next < c.limit
}

// collect takes the live entries of s from c.next on.
func (l *Log) collect(s *seg, c *collector) error {
	h, err := l.acquire(s)
	if err != nil {
		return err
	}
	defer l.release(h)
	from, end := s.spanOf(c.next), s.end
	if s.state == segSealed {
		row, ok, err := segment.FindEntry(h.f, s.footer, c.next)
		if err != nil || !ok {
			return err
		}
		from, end = row.Pos, s.footer.Pos
	}
	notEntry := func(k segment.Kind, _ error) bool { return k != segment.KindEntry && !off.passOver }
	x := extent{max(from, segment.FirstBatch), end}
	return walkOver(h.f, s.file, x, notEntry, func(r segment.Record) (bool, error) {
		if r.Kind != segment.KindEntry {
			return true, nil
		}
		e, err := segment.ParseEntry(r.Body)
		if err != nil {
			return false, err
		}
		if e.Index != c.next || r.Pos < s.after(e.Index) {
			return true, nil // void
		}
		return c.take(e) && c.next < s.hi, nil
	})
}

// windows are shared by all logs, so that an idle one holds none.
var windows = sync.Pool{New: func() any { b := make([]byte, windowBytes); return &b }}

// walk calls fn for every record of the extent, which begins at a record and lies in the valid log, so
// that a record that does not verify is damage. fn says whether to go on. Records are valid during
// the call.
func walk(r io.ReaderAt, f segment.File, x extent, fn func(segment.Record) (bool, error)) error {
	return walkOver(r, f, x, func(segment.Kind, error) bool { return false }, fn)
}

// walkOver is walk for who can do without some records: pass says whether one of that kind may be passed over that is
// damaged behind its header.
func walkOver(r io.ReaderAt, f segment.File, x extent, pass func(segment.Kind, error) bool,
	fn func(segment.Record) (bool, error),
) error {
	w := windows.Get().(*[]byte)
	defer windows.Put(w)
	buf := (*w)[:min(windowBytes, x.end-x.from)]
	have := buf[:0]
	for pos := x.from; pos < x.end; {
		rec, _, err := segment.ParseRecord(have, f, pos)
		if errors.Is(err, segment.ErrShort) {
			if have, buf, err = refill(r, buf, len(have), pos, x.end); err != nil {
				return err
			}
			if have == nil {
				return &segment.CorruptError{
					Group: f.Group, At: segment.Position{Segment: f.Segment, Pos: pos},
					Cause: "a record goes on behind the end of the log",
				}
			}
			continue
		}
		if size := passable(have, f, pos, err, pass); size > 0 {
			have = have[size:]
			pos += size
			continue
		}
		if err != nil {
			return err
		}
		more, err := fn(rec)
		if err != nil || !more {
			return err
		}
		have = have[rec.Size:]
		pos += rec.Size
	}
	return nil
}

// refill reads from pos on, more than the had bytes that did not hold a whole record. It returns nil
// if there is no more.
func refill(r io.ReaderAt, buf []byte, had int, pos, end int64) (have, grown []byte, err error) {
	want := int64(len(buf))
	if int64(had) >= want {
		want = segment.BatchMax + segment.HeaderSize
	}
	want = min(want, end-pos)
	if want <= int64(had) {
		return nil, buf, nil
	}
	if int64(len(buf)) < want {
		buf = make([]byte, want)
	}
	n, err := r.ReadAt(buf[:want], pos)
	if int64(n) < want {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, buf, nil
		}
		return nil, buf, fmt.Errorf("read %d bytes at byte %d: %w", want, pos, err)
	}
	return buf[:want], buf, nil
}

// passable is the size of the damaged record at the start of have if it may be passed over, 0 if not.
func passable(have []byte, f segment.File, pos int64, err error, pass func(segment.Kind, error) bool) int64 {
	if !isCorrupt(err) {
		return 0
	}
	k, size, ok := segment.HeadAt(have, f, pos)
	if !ok || size > int64(len(have)) || !pass(k, err) {
		return 0
	}
	return size
}
