package wal

import (
	"fmt"
	"slices"

	"weida/segment"
)

// Which bodies are live is kept as runs of refs beside the segment that holds them: the newest one, if
// several do. A body that is written again, by a compaction or because it came a second time, is counted
// where it stands now, so that the older segment may go.

// Retain says that a body is live: a message that is not settled. Its segment or file stays until as
// many Release calls came. It reports whether the body is here: one that is not, a tombstone for one, is
// passed over. A replica that is brought up also retains what its snapshot will need, so that nothing of
// it goes before the snapshot is there. Owner only.
func (l *Log) Retain(ref segment.BodyRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.large[ref]; b != nil {
		b.live++
		return true
	}
	s, err := l.holderLocked(ref)
	if err != nil {
		l.pinLocked(ref, err)
	}
	if err != nil || s == nil {
		return false
	}
	l.pending.remove(ref) // the state names it
	switch {
	case s.pinned: // what is live in it was not counted from the start
	case s.kept.has(ref):
		if l.again == nil {
			l.again = map[segment.BodyRef]int64{}
		}
		l.again[ref]++
	default:
		s.kept.add(ref)
		s.live++
	}
	return true
}

// Release takes a Retain back.
func (l *Log) Release(ref segment.BodyRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.large[ref]; b != nil {
		if b.live--; b.live < 0 {
			panic(fmt.Sprintf("bug: wal: body %v released more often than retained", ref))
		}
		return
	}
	if n := l.again[ref]; n > 1 {
		l.again[ref] = n - 1
		return
	} else if n == 1 {
		delete(l.again, ref)
		return
	}
	s, err := l.holderLocked(ref)
	switch {
	case err != nil:
		l.pinLocked(ref, err)
	case s == nil || s.pinned:
	case !s.kept.has(ref):
		panic(fmt.Sprintf("bug: wal: body %v released more often than retained", ref))
	default:
		s.kept.remove(ref)
		s.live--
	}
}

// ReleaseAll takes every Retain back: the owner is about to restore another state. Until the next Trim,
// which says that what is live in that one is retained, nothing is dropped. Owner only.
func (l *Log) ReleaseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restoring = true
	l.again = nil
	for _, s := range l.segs {
		s.kept, s.live = refSet{}, 0
	}
	for _, b := range l.large {
		b.live = 0
	}
}

// pinLocked keeps every segment that may hold the body until the log is opened again, because which
// one does could not be read.
func (l *Log) pinLocked(ref segment.BodyRef, cause error) {
	for _, s := range l.segs {
		if s.covers(ref) {
			s.pinned = true
		}
	}
	l.emit(Event{Kind: EventPinned, Path: l.dir, Err: cause})
}

// holder is what the last lookup found: bodies are mostly asked for in order. It is true for every ref
// in [from, to) that s holds, because no newer segment holds any of these.
type holder struct {
	s    *seg
	from segment.BodyRef
	to   segment.BodyRef
	ends bool // to bounds it
}

// holderLocked returns the newest segment that holds the inline body, nil if none does. The runs of a
// sealed segment are read from its footer when they are first asked for. Log.mu is held.
func (l *Log) holderLocked(ref segment.BodyRef) (*seg, error) {
	if h := &l.holder; h.s != nil && !ref.Less(h.from) && (!h.ends || ref.Less(h.to)) && h.s.refs.has(ref) {
		return h.s, nil
	}
	found := holder{from: ref}
	for _, s := range slices.Backward(l.segs) {
		if s.bodies == 0 || s.maxRef.Less(ref) {
			continue
		}
		next := s.minRef
		if s.covers(ref) {
			if err := l.loadRefsLocked(s); err != nil {
				return nil, err
			}
			if s.refs.has(ref) {
				found.s = s
				l.holder = found
				return s, nil
			}
			next, _ = s.refs.next(ref)
		}
		if !found.ends || next.Less(found.to) {
			found.to, found.ends = next, true
		}
	}
	return nil, nil
}

func (l *Log) loadRefsLocked(s *seg) error {
	if s.state != segSealed || s.bodies == 0 || !s.refs.empty() {
		return nil
	}
	h, err := l.acquireLocked(s)
	if err != nil {
		return l.readError(s, err)
	}
	defer func() { h.users-- }()
	var refs refSet
	err = segment.EachRow(h.f, s.footer, func(row segment.Row) error {
		if row.Kind == segment.KindBody {
			refs.add(row.Ref)
		}
		return nil
	})
	if err != nil {
		return l.readError(s, err)
	}
	s.refs = refs
	return nil
}

// noteBody takes a body that stands in s now into account; it is in s's index already. A copy of one
// that stands elsewhere is as pending as that one is. Log.mu is held.
func (l *Log) noteBody(s *seg, ref segment.BodyRef, isCopy bool) {
	l.holder = holder{} // a newer segment has it, or a lower ref than before
	if l.maxRef.Less(ref) {
		l.maxRef = ref // practically always: refs rise
		l.pending.add(ref)
		return
	}
	if s.kept.has(ref) {
		return
	}
	known, kept := false, false
	for _, o := range l.segs {
		if o == s || !o.covers(ref) || l.loadRefsLocked(o) != nil || !o.refs.has(ref) {
			continue // what can't be read was not counted either: a Retain has pinned it, or will
		}
		known = true
		if o.kept.has(ref) {
			o.kept.remove(ref)
			o.live--
			kept = true
		}
	}
	if kept {
		s.kept.add(ref)
		s.live++
	}
	if !kept && !(known && isCopy) {
		l.pending.add(ref)
	}
}

// awaitedIn reports whether a body that no entry names yet stands in s and in no newer segment. Log.mu
// is held.
func (l *Log) awaitedIn(s *seg) bool {
	_, ok := l.awaited(s, 1)
	return ok
}

// awaited returns at most limit bodies in s that no entry names yet and that stand in no newer segment.
// What can't be read is awaited: ok says whether there is any.
func (l *Log) awaited(s *seg, limit int) (list []segment.BodyRef, ok bool) {
	if s.bodies == 0 || !l.pending.meets(s.minRef, s.maxRef) {
		return nil, false
	}
	if err := l.loadRefsLocked(s); err != nil {
		return nil, true
	}
	for _, run := range l.pending.common(&s.refs) {
		for seq := run.from; seq < run.to; seq++ {
			ref := segment.BodyRef{Term: run.term, Seq: seq}
			if h, err := l.holderLocked(ref); err != nil || h == s {
				list = append(list, ref)
			}
			if len(list) == limit {
				return list, true
			}
		}
	}
	return list, len(list) > 0
}
