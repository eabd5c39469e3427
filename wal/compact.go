package wal

import (
	"errors"
	"fmt"
	"slices"

	"weida/fsync"
	"weida/segment"
)

// Compaction. Only a prefix of the segments is ever dropped, so that one old body keeps its segment and
// everything behind it. Therefore live bodies are copied forward, under the same ref, into the segment
// that is appended to: as bodies in a batch, which recovery reads like any others. What stands in two
// places is equal, and the newer one counts.
//
//	job      read a few live bodies of the oldest segment that has any, verified
//	Advance  append them in one batch, if they are still live
//	         ... until the prefix holds none
//	job      flush the copies
//	job      trim: the prefix goes
//
// A crash between any two of these leaves the old segment named by the manifest, and perhaps copies.
//
// A prefix is compacted when its live bodies take at most a quarter of its bytes. So every byte copied
// frees three, and what a snapshot covers takes at most four times what is live in it.
const (
	compactShare = 4         // a prefix is compacted when its live bytes are at most this part of it
	compactBytes = 128 << 10 // copied by one job, but for the last body
	compactRefs  = 1024      // bodies copied by one job
)

// copying is the compaction under way.
type copying struct {
	due  bool             // Trim was called since there was nothing to compact
	from *seg             // where list stands
	list []Body           // was read and waits to be appended
	end  segment.Position // of the last batch of copies

	bodies, bytes int64 // copied since the last trim
}

// compactWork is the next step of a compaction, nil if there is none.
func (l *Log) compactWork() *work {
	c := &l.copying
	if !c.due || !l.claimed || len(c.list) > 0 {
		return nil
	}
	prefix := l.compactable()
	for _, s := range prefix {
		if refs := l.liveRefs(s); len(refs) > 0 {
			return l.readWork(s, refs)
		}
	}
	if len(prefix) > 0 && l.safe.Less(c.end) && !off.copyFlush {
		return l.flushCopiesWork()
	}
	if len(prefix) > 0 {
		if w := l.trimWork(); w != nil {
			l.tellCompacted(len(prefix))
			return w
		}
	}
	c.due = false
	return nil
}

// tellCompacted tells of the copies that a trim of n segments rests on.
func (l *Log) tellCompacted(n int) {
	c := &l.copying
	if c.bodies > 0 {
		l.emit(Event{Kind: EventCompacted, Path: l.dir, Detail: fmt.Sprintf(
			"%d live bodies of %d bytes were copied out of %d segments", c.bodies, c.bytes, n)})
	}
	c.bodies, c.bytes = 0, 0
}

// compactable returns the shortest prefix of the segments that is worth compacting, nil if none is. How
// many bytes are live in a segment is taken from the mean size of its bodies.
func (l *Log) compactable() []*seg {
	var total, live int64
	for i, s := range l.segs {
		if !l.covered(s) || l.stuck(s) {
			return nil
		}
		total += s.end + s.footer.Size
		if s.bodies > 0 {
			live += s.payload / s.bodies * min(s.live+l.pendingCount(s), s.bodies)
		}
		if live*compactShare <= total || s.file.Segment == l.evict {
			return l.segs[:i+1]
		}
	}
	return nil
}

// stuck reports whether a body in s is live that can't be read: it keeps its segment.
func (l *Log) stuck(s *seg) bool {
	return slices.ContainsFunc(s.unread, func(ref segment.BodyRef) bool { return s.kept.has(ref) || l.pending.has(ref) })
}

// pendingCount is at least the number of bodies in s that no entry names yet.
func (l *Log) pendingCount(s *seg) (n int64) {
	if !l.pending.meets(s.minRef, s.maxRef) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loadRefsLocked(s) != nil {
		return s.bodies
	}
	for _, run := range l.pending.common(&s.refs) {
		n += int64(run.to - run.from)
	}
	return n
}

// liveRefs returns some bodies of s that must not be lost with it.
func (l *Log) liveRefs(s *seg) []segment.BodyRef {
	l.mu.Lock()
	defer l.mu.Unlock()
	refs := s.kept.first(compactRefs)
	more, _ := l.awaited(s, compactRefs)
	return slices.DeleteFunc(append(refs, more...), func(r segment.BodyRef) bool { return slices.Contains(s.unread, r) })
}

// readWork reads bodies of s to be copied. What can't be read stays where it is, with its segment.
func (l *Log) readWork(s *seg, refs []segment.BodyRef) *work {
	var c copies
	return &work{
		kind: JobCompact,
		run: func() error {
			c = l.readCopies(s, refs)
			return nil
		},
		take: func() {
			if c.damage != nil {
				s.unread = append(s.unread, c.unread...)
				l.emit(Event{Kind: EventPinned, Path: l.segPath(s.file.Segment), Err: c.damage})
			}
			l.copying.from, l.copying.list = s, c.list
		},
	}
}

// copies is what was read of one segment.
type copies struct {
	list   []Body
	unread []segment.BodyRef
	damage error // why the first of unread could not be read
}

// readCopies reads bodies of a sealed segment until there are enough bytes for one batch.
func (l *Log) readCopies(s *seg, refs []segment.BodyRef) (c copies) {
	h, err := l.acquire(s)
	if err != nil {
		return copies{unread: refs, damage: l.readError(s, err)}
	}
	defer l.release(h)
	limit := min(compactBytes, l.segBytes/4)
	var bytes int64
	for _, ref := range refs {
		body, size, err := copyOf(h.f, s, ref)
		if err != nil {
			c.unread = append(c.unread, ref)
			if c.damage == nil {
				c.damage = l.readError(s, err)
			}
			continue
		}
		c.list = append(c.list, Body{ref, body})
		if bytes += size; bytes >= limit {
			break
		}
	}
	return c
}

// copyOf reads and verifies one body of a sealed segment; size is that of its record.
func copyOf(f fsync.File, s *seg, ref segment.BodyRef) (body []byte, size int64, err error) {
	row, ok, err := segment.FindBody(f, s.footer, ref)
	if err == nil && !ok {
		err = &segment.CorruptError{
			Group: s.file.Group, At: segment.Position{Segment: s.file.Segment, Pos: s.footer.Pos},
			Cause: fmt.Sprintf("the footer has no row for body %v, which is live", ref),
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if off.copyVerify {
		raw := make([]byte, row.Size)
		_, err := f.ReadAt(raw, row.Pos)
		n := le.Uint32(raw[8:])
		return raw[segment.HeaderSize+16 : segment.HeaderSize+n], row.Size, err
	}
	rec, _, err := segment.ReadRecord(f, s.file, row, nil)
	if err != nil {
		return nil, 0, err
	}
	_, body, err = segment.ParseBody(rec.Body)
	return body, row.Size, err
}

// copyForward appends what was read, as far as it is still live. What was reserved stays so.
func (l *Log) copyForward() {
	c := &l.copying
	if len(c.list) == 0 || l.closed || l.failure() != nil {
		return
	}
	l.mu.Lock()
	c.list = slices.DeleteFunc(c.list, func(b Body) bool { return !c.from.kept.has(b.Ref) && !l.pending.has(b.Ref) })
	l.mu.Unlock()
	if len(c.list) == 0 {
		return
	}
	err := l.append(&Append{Bodies: c.list, copies: true}, l.reserved)
	if errors.Is(err, ErrNotReady) {
		return // a job makes the next segment
	}
	list := c.list
	c.list = nil
	if err != nil {
		c.due = false // a full disk was told; the next trim tries again
		return
	}
	c.end, c.from.copied = l.lastSeg, l.lastSeg
	c.bodies += int64(len(list))
	for i := range list {
		c.bytes += int64(len(list[i].Payload))
	}
}

// flushCopiesWork waits until the copies are durable: nothing they stand for may go before.
func (l *Log) flushCopiesWork() *work {
	l.RequestFlush()
	s := l.cur
	return &work{
		kind: JobCompact,
		run: func() error {
			h, err := l.acquire(s)
			if err != nil {
				return l.fault("flush copies", err)
			}
			defer l.release(h)
			// This flush begins no earlier than the one just asked for; when it is through, so is that.
			if err := flush(l.fl, l.segPath(s.file.Segment), h.f); err != nil {
				return l.fault("flush copies", err)
			}
			return nil
		},
		take: func() {},
	}
}
