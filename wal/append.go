package wal

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"weida/fsync"
	"weida/segment"
)

// builders are shared by all logs: a batch is built and written within one call, so an idle log needs
// none.
var builders = sync.Pool{New: func() any { return new(segment.Builder) }}

// Append writes one batch with one write: the truncation, the bodies, the tombstones, the entries. On
// nil all of it is written; RequestFlush makes it durable. On any error nothing of it counts:
// ErrNotReady (run Job, call Advance, then again), fsync.ErrDiskFull (the log stays usable),
// ErrTooLarge, an error that wraps ErrAbsent when an entry names a body that is not here, and
// fsync.ErrPoisoned, after which no append succeeds.
//
// Entries continue the log, after the truncation if there is one. Payloads and data are copied;
// Large bodies belong to the log on nil and stay the caller's on an error.
func (l *Log) Append(a *Append) error {
	if err := l.failure(); err != nil {
		return err
	}
	if l.closed {
		return errClosed
	}
	return l.append(a, 0)
}

// append is Append; behind the batch spare bytes must be left.
func (l *Log) append(a *Append, spare int64) error {
	p, err := l.plan(a)
	if err != nil {
		return fmt.Errorf("wal: group %d: append: %w", uint64(l.group), err)
	}
	if len(a.Large) > 0 {
		if err := l.openDir(); err != nil {
			return fmt.Errorf("wal: group %d: append: %w; nothing was written", uint64(l.group), err)
		}
	}
	if err := l.room(p.size + spare); err != nil {
		return err
	}
	b := builders.Get().(*segment.Builder)
	defer builders.Put(b)
	bytes, chain := l.build(b, a, p.void)
	if err := l.write(bytes); err != nil {
		return err
	}
	l.took(a, p, b.Rows(), int64(len(bytes)), chain)
	return nil
}

// appendPlan is what an append comes to, checked before anything is written.
type appendPlan struct {
	size   int64
	void   segment.Index // truncation to write; 0 for none
	before Mark          // last entry that stands after the truncation
	after  Mark          // last entry when all is written
}

func (l *Log) plan(a *Append) (*appendPlan, error) {
	p := &appendPlan{size: a.Size(), before: l.last}
	if a.Truncate != 0 && a.Truncate <= l.base.Index {
		panic(fmt.Sprintf("bug: wal: truncation from %d, but the log is final up to %d", a.Truncate, l.base.Index))
	}
	if a.Truncate != 0 && a.Truncate <= l.last.Index {
		term, err := l.Term(a.Truncate - 1)
		if err != nil {
			return nil, err
		}
		p.void, p.before = a.Truncate, Mark{Term: term, Index: a.Truncate - 1}
	}
	p.after = p.before
	if l.voidAll && len(a.Entries) > 0 {
		p.void = 1
		p.size += voidAllSize
	}
	here := refSet{}
	for i := range a.Bodies {
		b := &a.Bodies[i]
		if len(b.Payload) > segment.InlineMax {
			return nil, fmt.Errorf("%w: body %v has %d bytes, at most %d go into a segment", ErrTooLarge, b.Ref,
				len(b.Payload), segment.InlineMax)
		}
		here.add(b.Ref)
	}
	for _, v := range a.Voids {
		here.add(v.Ref)
	}
	for i := range a.Entries {
		if err := l.planEntry(a, p, &a.Entries[i], &here); err != nil {
			return nil, err
		}
	}
	if p.size > segment.BatchMax {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, p.size, segment.BatchMax)
	}
	return p, nil
}

// planEntry checks that an entry continues the log and that every body it names is here: an entry
// without its body would be evidence of what is not there.
func (l *Log) planEntry(a *Append, p *appendPlan, e *segment.Entry, here *refSet) error {
	if want := p.after.Index + 1; e.Index != want {
		panic(fmt.Sprintf("bug: wal: entry %d appended where %d was due", e.Index, want))
	}
	if e.Term < p.after.Term {
		panic(fmt.Sprintf("bug: wal: entry %d has term %d after term %d", e.Index, e.Term, p.after.Term))
	}
	p.after = Mark{Term: e.Term, Index: e.Index}
	if e.Type != segment.EntryNormal {
		return nil
	}
	return segment.EachCommit(e.Data, func(c segment.Commit) error {
		switch {
		case c.Large && !l.hasLarge(a, c.Ref):
			return fmt.Errorf("entry %d names the large body %v: %w", e.Index, c.Ref, ErrAbsent)
		case c.Large, here.has(c.Ref), l.pending.has(c.Ref), l.voids.has(c.Ref):
			return nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if s, err := l.holderLocked(c.Ref); err != nil || s != nil {
			return err
		}
		return fmt.Errorf("entry %d names body %v: %w", e.Index, c.Ref, ErrAbsent)
	})
}

func (l *Log) hasLarge(a *Append, ref segment.BodyRef) bool {
	for _, f := range a.Large {
		if f.Ref() == ref {
			return true
		}
	}
	for _, v := range a.Voids {
		if v.Ref == ref {
			return true
		}
	}
	b := l.large[ref]
	return b != nil && !b.unproved() || l.voids.has(ref)
}

// room finds the place for a batch of n bytes: in the current segment, or in the next one, which must
// be ready. On an error the current one stays.
func (l *Log) room(n int64) error {
	s := l.cur
	full := s != nil && s.end > segment.FirstBatch && s.end+n > l.segBytes
	left := s != nil && s.file.Segment == l.resign
	if s == nil || left || full && n > segment.BatchOverhead { // a promise alone does not roll
		if len(l.ready) == 0 {
			l.wanted, l.stalled = true, false
			return ErrNotReady
		}
		s = l.ready[0]
	}
	if err := l.allocate(s, n); err != nil {
		return err
	}
	if s != l.cur {
		l.roll()
	}
	return nil
}

// allocate makes room for n bytes behind the log's end in s, doubling what was there.
func (l *Log) allocate(s *seg, n int64) error {
	if s.end+n <= s.size {
		return nil
	}
	size := max(s.size, l.firstBytes)
	for size < s.end+n {
		size *= 2
	}
	size = max(min(size, l.segBytes), s.end+n)
	h, err := l.acquire(s)
	if err != nil {
		return fmt.Errorf("wal: group %d: append: %w; nothing was written", uint64(l.group), err)
	}
	defer l.release(h)
	if err := h.f.Allocate(s.size, size-s.size); err != nil {
		if errors.Is(err, fsync.ErrDiskFull) {
			return l.diskFull(err)
		}
		l.poison(fmt.Errorf("preallocate at %v: %w", segment.Position{Segment: s.file.Segment, Pos: s.size}, err))
		return l.failure()
	}
	l.dirty(h.f)
	l.mu.Lock()
	s.size = size
	l.mu.Unlock()
	return nil
}

// roll goes on in the next segment. The one before is sealed by a job.
func (l *Log) roll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cur, l.ready = l.ready[0], l.ready[1:]
	l.wanted = false
}

func (l *Log) build(b *segment.Builder, a *Append, void segment.Index) ([]byte, segment.Chain) {
	s := l.cur
	stamp := segment.Stamp{Promise: l.safe, Commit: max(l.commit, a.Commit), Boot: l.boot}
	switch {
	case off.promise:
		stamp.Promise = segment.Position{}
	case off.promiseNotOwn:
		stamp.Promise = segment.Position{Segment: s.file.Segment, Pos: s.end}
	}
	b.Reset(s.file, s.end, l.chain, stamp)
	if void != 0 && !off.truncateRecord {
		b.Truncate(void)
	}
	for i := range a.Bodies {
		b.Body(a.Bodies[i].Ref, a.Bodies[i].Payload)
	}
	for _, v := range a.Voids {
		b.Void(v.Ref, v.Settled)
	}
	for _, e := range a.Entries {
		b.Entry(e)
	}
	return b.Finish()
}

// write puts the batch behind the log's end.
func (l *Log) write(p []byte) error {
	s := l.cur
	h, err := l.acquire(s)
	if err != nil {
		return fmt.Errorf("wal: group %d: append: %w; nothing was written", uint64(l.group), err)
	}
	defer l.release(h)
	n, err := h.f.WriteAt(p, s.end)
	l.dirty(h.f)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fsync.ErrDiskFull) && !errors.Is(err, io.ErrShortWrite):
		l.poison(fmt.Errorf("write a batch at %v: %w", segment.Position{Segment: s.file.Segment, Pos: s.end}, err))
		return l.failure()
	}
	if n > 0 && !off.zeroAfterShort {
		if zerr := clearBack(h.f, s.end, int64(n)); zerr != nil {
			l.poison(fmt.Errorf("clear a batch that was cut short: %w", zerr))
			return l.failure()
		}
	}
	return l.diskFull(err)
}

// clearBack overwrites [from, from+n) with zeros. A later, shorter batch would leave the rest of a
// batch that was cut short behind it, where it looks like damage. It goes backward, page by page: a
// kill in between leaves the beginning of the batch, as a kill in the write itself would have.
func clearBack(f fsync.File, from, n int64) error {
	var page [blockBytes]byte
	for end := from + n; end > from; {
		start := max(from, (end-1)/blockBytes*blockBytes)
		if _, err := f.WriteAt(page[:end-start], start); err != nil {
			return err
		}
		end = start
	}
	return nil
}

func (l *Log) dirty(s fsync.Syncer) {
	if l.target == nil {
		l.target = l.fl.NewTarget(l.dir, l.waker)
	}
	l.target.Dirty(s)
	l.asked = false
}

// took takes a written batch into the log's state.
func (l *Log) took(a *Append, p *appendPlan, rows []segment.Row, n int64, chain segment.Chain) {
	s := l.cur
	l.mu.Lock()
	if p.void != 0 {
		l.truncated(p.void, p.before)
	}
	s.apart = a.apart
	for _, row := range rows {
		l.noteRow(s, row, a.copies)
	}
	for _, v := range a.Voids {
		s.named = max(s.named, v.Settled)
	}
	for _, f := range a.Large {
		l.takeLarge(f)
	}
	for i := range a.Entries {
		if ref, ok := l.noteNames(s, &a.Entries[i]); !ok {
			panic(fmt.Sprintf("bug: wal: entry %d was written without body %v", a.Entries[i].Index, ref))
		}
	}
	s.end += n
	l.chain, s.chain = chain, chain
	l.mu.Unlock()
	if !a.copies {
		l.reserved = max(0, l.reserved-n)
	}

	promise := l.safe
	l.promised = len(rows) == 0 && promise == l.lastSeg
	l.last, s.last = p.after, p.after
	l.lastSeg = segment.Position{Segment: s.file.Segment, Pos: s.end}
	if p.void != 0 {
		l.voided = l.lastSeg
	}
	l.commit = max(l.commit, a.Commit)
	l.stalled, l.active = false, true
}

// diskFull is the answer to an append or a job that found no room: no fault, and nothing was stored.
func (l *Log) diskFull(err error) error {
	if !errors.Is(err, fsync.ErrDiskFull) {
		err = fmt.Errorf("%w: %w", fsync.ErrDiskFull, err)
	}
	err = fmt.Errorf("wal: group %d: not stored: %w; what was stored before is not touched; free some space, then the "+
		"same call succeeds", uint64(l.group), err)
	l.emit(Event{Kind: EventDiskFull, Path: l.dir, Err: err})
	return err
}
