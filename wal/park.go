package wal

import (
	"errors"
	"fmt"

	"weida/segment"
)

// Park closes the descriptors of an idle log; the next use opens them again. It returns nil when that
// is done and ErrNotReady while a flush or job has to end first: the owner calls it again after a
// wake. Before, if the last batch's flush is promised nowhere, it writes a batch that only promises,
// so that damage in an idle log is never taken for a torn tail. That batch says as well what is committed. Owner only.
func (l *Log) Park() error {
	if err := l.Advance(); err != nil {
		return err
	}
	if l.closed {
		return errClosed
	}
	if l.work != nil {
		return ErrNotReady
	}
	settled, err := l.settleTail()
	if err != nil {
		return err
	}
	if !settled {
		return ErrNotReady
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parkLocked()
}

// Committed tells the log which index is known to be committed, at most the last one. The next batch says so, and Park
// writes one where none came: the last entries before a crash are known to be committed then. Owner only.
func (l *Log) Committed(i segment.Index) {
	if i > l.last.Index {
		panic(fmt.Sprintf("bug: wal: entry %d is committed, and the last one is %d", i, l.last.Index))
	}
	if i > l.commit {
		l.commit, l.promised = i, false
	}
}

// settleTail brings the log to the point where everything is flushed and promised: it writes and asks
// for flushes, and returns true when there is nothing left to do.
func (l *Log) settleTail() (bool, error) {
	if l.target == nil {
		return true, nil
	}
	l.RequestFlush()
	if len(l.marks) > 0 {
		return false, nil
	}
	if l.promised || l.cur == nil {
		return true, nil
	}
	if err := l.Append(&Append{}); err != nil {
		return false, err
	}
	l.RequestFlush()
	return false, nil
}

func (l *Log) parkLocked() error {
	for _, s := range l.segs {
		if s.h == nil {
			continue
		}
		if s.h.users > 0 || l.busy(s.h.f) {
			return ErrNotReady
		}
		l.closeFile(s.h.f)
		s.h = nil
	}
	if l.dirFile != nil {
		if l.busy(l.dirFile) {
			return ErrNotReady
		}
		l.closeFile(l.dirFile)
		l.dirFile = nil
	}
	if len(l.retired) > 0 {
		return ErrNotReady
	}
	l.active = false
	return nil
}

// Close makes everything durable, promises it and closes the log; it blocks on flush rounds. No job
// may be running. If it returns an error, or the log was poisoned, the next opening decides as after
// a crash. Owner only; readers that are open keep what they have, and get fsync.ErrClosed for more.
func (l *Log) Close() error {
	if l.closed {
		return nil
	}
	if w := l.work; w != nil && !w.done.Load() {
		w.err = errClosed // it was offered and never run
		w.done.Store(true)
	}
	l.copying = copying{}
	err := l.drain()
	if l.target != nil {
		l.target.Close()
	}
	l.closeHandles()
	l.inOrder = err == nil
	if err != nil {
		return fmt.Errorf("wal: close group %d: %w", uint64(l.group), err)
	}
	return nil
}

// drain flushes and promises what was appended.
func (l *Log) drain() error {
	for {
		if err := l.Advance(); err != nil {
			return err
		}
		settled, err := l.settleTail()
		if errors.Is(err, ErrNotReady) {
			settled, err = true, nil // no room for the promise: the clean stop says as much
		}
		if settled || err != nil {
			return err
		}
		// This flush begins no earlier than the one just asked for; when it is through, so is that.
		if err := l.openDir(); err != nil {
			return err
		}
		if err := l.fl.Flush(l.dir, l.dirFile); err != nil {
			l.poison(err)
			return l.failure()
		}
	}
}

// closeHandles closes every file. Readers in the middle of one keep theirs until they give it back.
func (l *Log) closeHandles() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, s := range l.segs {
		l.retireLocked(s.h)
		s.h = nil
	}
	l.closeUnused()
	if l.dirFile != nil {
		l.closeFile(l.dirFile)
		l.dirFile = nil
	}
}

// isClosed reports whether Close was called. Any goroutine.
func (l *Log) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// closedInOrder reports whether Close left everything flushed and promised.
func (l *Log) closedInOrder() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed && l.inOrder
}
