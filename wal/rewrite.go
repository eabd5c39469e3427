package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"weida/segment"
)

// What is damaged is mended without a byte being changed in place: a body is written again under its ref, into the
// segment that is appended to, and counts there; an entry is dropped once a snapshot has taken its place.

// Rewrite appends bodies that stand here already and can't be read where they stand. One that was released meanwhile
// is written all the same, and goes with its segment. Errors as Append; on one, nothing counts. Owner only.
func (l *Log) Rewrite(bodies []Body) error {
	if err := l.failure(); err != nil {
		return err
	}
	if l.closed {
		return errClosed
	}
	l.tryAgain()
	return l.append(&Append{Bodies: bodies, copies: true, apart: true}, l.reserved)
}

// MarkDamaged says that the file of a large body is damaged, so that NewBody makes another one for Replace. It reports
// whether the body is here. Owner only.
func (l *Log) MarkDamaged(ref segment.BodyRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.large[ref]
	if b == nil {
		return false
	}
	b.damaged = true
	return true
}

// Replace puts a finished file of NewBody in the place of the damaged one, which is moved to quarantine. The file is
// the log's then, or removed if the body is not needed any more. It is flushed; its name is with the next flush that is
// asked for. After an error the log is poisoned. Owner only.
func (l *Log) Replace(f *BodyFile) error {
	if err := l.failure(); err != nil {
		return errors.Join(err, f.Abort())
	}
	l.mu.Lock()
	b := l.large[f.Ref()]
	l.mu.Unlock()
	if f.mends == nil || b == nil || !b.damaged {
		return f.Abort()
	}
	name := bodyName(f.Ref())
	path := filepath.Join(l.dir, name)
	to, err := asidePath(l.fs, filepath.Dir(filepath.Dir(l.dir)), groupName(l.group), name)
	if err == nil {
		err = l.openDir()
	}
	if err == nil {
		err = l.fs.Rename(path, to)
	}
	if err == nil || isAbsent(err) {
		err = l.fs.Rename(f.w.path, path)
	}
	if err != nil {
		l.poison(fmt.Errorf("replace the damaged %s: %w", path, err))
		return errors.Join(l.failure(), f.Abort())
	}
	f.w.path = path
	l.emit(Event{Kind: EventQuarantined, Path: path, Detail: "it was damaged, and came again; moved to " + to})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeLarge(f)
	return nil
}

// Leave has the log go on in its next segment if it ends in segment n, in which something is damaged: a segment that is
// sealed opens again. False says that an append is wanted, with which it does so. Owner only.
func (l *Log) Leave(n segment.Number) bool {
	if l.cur == nil || l.cur.file.Segment != n {
		return true
	}
	l.resign = n
	return false
}

// HasSegment reports whether a segment is one of the log's, and sealed if that is asked. Owner only.
func (l *Log) HasSegment(n segment.Number, sealed bool) bool {
	return slices.ContainsFunc(l.segs, func(s *seg) bool {
		return s.file.Segment == n && (!sealed || s.state == segSealed)
	})
}

// MendSmall has manifest and hard state written anew, from what is known in memory; a job does it. Owner only.
func (l *Log) MendSmall() { l.mending, l.stalled = true, false }

// MendingSmall reports whether that is still to be done. Owner only.
func (l *Log) MendingSmall() bool { return l.mending }

// Live reports whether a body is here that was retained and not released, or that no entry names yet. Owner only.
func (l *Log) Live(ref segment.BodyRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.large[ref]; b != nil {
		return b.live > 0 || b.index == 0
	}
	s, err := l.holderLocked(ref)
	return err != nil || s != nil && (s.kept.has(ref) || s.pinned || l.pending.has(ref))
}

func (l *Log) mendWork() *work {
	facts, promise := l.facts(), l.safe
	return &work{
		kind: JobMend,
		run: func() error {
			if err := l.change(facts, promise, func(*manifest) {}); err != nil {
				return l.fault("write the manifest anew", err)
			}
			l.hardMu.Lock()
			defer l.hardMu.Unlock()
			if err := l.hard.repair(l.fs, l.fl); err != nil {
				return l.fault("write the hard state anew", err)
			}
			return nil
		},
		take: func() {
			l.mending = false
			l.emit(Event{Kind: EventCopyRepaired, Path: l.dir})
		},
	}
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
