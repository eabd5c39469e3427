package wal

import (
	"path/filepath"

	"weida/fsync"
	"weida/segment"
)

// seg is one segment. Its fields are written by the owner, with Log.mu held where readers look.
type seg struct {
	index
	file   segment.File
	state  segState
	base   segment.Index
	end    int64 // of the log in it: where the next batch or the footer goes
	size   int64 // of the file, preallocation included
	limit  int64 // a recorded cut; 0 if none
	chain  segment.Chain
	last   Mark // of the whole log at its end
	footer segment.Footer
	kept   refSet            // bodies retained and not released
	live   int64             // count of kept
	pinned bool              // what is live in it could not be counted
	unread []segment.BodyRef // live bodies in it that could not be read to be copied
	copied segment.Position  // end of the last batch with copies of what is in it
	flawed bool              // full, and what is needed in it can't be read: it is sealed when that is mended
	h      *handle
}

// handle is an open file of a segment, shared by readers. Guarded by Log.mu.
type handle struct {
	f     fsync.File
	users int
}

// sealedOpenMax bounds the descriptors one log keeps open for sealed segments nobody reads just now.
const sealedOpenMax = 2

func (l *Log) segPath(n segment.Number) string { return filepath.Join(l.dir, segmentName(n)) }

// acquire returns the open file of a segment, opening it if needed; release gives it back. Any
// goroutine may read through it; only the owner writes.
func (l *Log) acquire(s *seg) (*handle, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	return l.acquireLocked(s)
}

func (l *Log) acquireLocked(s *seg) (*handle, error) {
	if s.h == nil {
		access := fsync.ReadWrite
		if s.state == segSealed {
			access = fsync.ReadOnly
			l.closeSealedLocked(sealedOpenMax - 1)
		}
		f, err := l.fs.Open(l.segPath(s.file.Segment), access)
		if err != nil {
			return nil, err
		}
		s.h = &handle{f: f}
	}
	s.h.users++
	return s.h, nil
}

func (l *Log) release(h *handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.users--
	if h.users < 0 {
		panic("bug: wal: a segment's file was given back twice")
	}
	if l.closed && h.users == 0 {
		l.closeFile(h.f)
	}
}

// closeSealedLocked closes files of sealed segments that nobody uses until at most keep are open. An
// error at closing a file that was only read means nothing for the data and is reported as an event.
func (l *Log) closeSealedLocked(keep int) {
	open := 0
	for i := len(l.segs) - 1; i >= 0; i-- {
		s := l.segs[i]
		if s.state != segSealed || s.h == nil {
			continue
		}
		if open < keep || s.h.users > 0 {
			open++
			continue
		}
		l.closeFile(s.h.f)
		s.h = nil
	}
}

// retireLocked makes a file go as soon as nobody reads it and no flush waits for it.
func (l *Log) retireLocked(h *handle) {
	if h != nil {
		l.retired = append(l.retired, h)
	}
}

// closeRetired closes what may go. Owner only.
func (l *Log) closeRetired() {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.retired[:0]
	for _, h := range l.retired {
		if h.users > 0 || l.busy(h.f) {
			kept = append(kept, h)
			continue
		}
		l.closeFile(h.f)
	}
	clear(l.retired[len(kept):])
	l.retired = kept
}

// closeUnused closes all retired files at the end; one that a reader still holds is closed when it is
// given back.
func (l *Log) closeUnused() {
	for _, h := range l.retired {
		if h.users == 0 {
			l.closeFile(h.f)
		}
	}
	l.retired = nil
}

// busy reports whether a flush of s is due or running: then it must stay open.
func (l *Log) busy(s fsync.Syncer) bool {
	return l.target != nil && l.target.Err() == nil && l.target.Busy(s)
}

func (l *Log) closeFile(f interface{ Close() error }) {
	if err := f.Close(); err != nil {
		l.emit(Event{Kind: EventCloseFailed, Path: l.dir, Err: err})
	}
}
