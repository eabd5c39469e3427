package raftstore

import (
	"errors"
	"fmt"
	"sync/atomic"

	"weida/fsync"
	"weida/wal"
)

// bodyWriter is a large body on its way into its own file.
type bodyWriter struct {
	group *seat
	file  *wal.BodyFile
	// admits says why the group takes no messages now, nil if it does: a body under way is one
	admits func() error
	push   *push // to the other members of a replicated group; nil for none
	state  atomic.Uint32
}

// The life of a large body: a refused proposal gives it back, so that it can be proposed again or
// aborted; a written one keeps it for good.
const (
	bodyOpen uint32 = iota
	bodyFinished
	bodyProposed
	bodyGone
)

func (w *bodyWriter) Ref() BodyRef { return w.file.Ref() }

func (w *bodyWriter) Write(p []byte) (int, error) {
	if w.state.Load() != bodyOpen {
		return 0, fmt.Errorf("raftstore: body %v: write after its end: %w", w.Ref(), ErrBody)
	}
	if err := w.admits(); err != nil {
		w.Abort() // room is wanted now, not when the writer gets to it
		return 0, err
	}
	n, err := w.file.Write(p)
	if err != nil {
		w.push.abort()
		return n, storeError(err)
	}
	w.push.write(p)
	return n, nil
}

func (w *bodyWriter) Finish(d Digest) error {
	if w.state.Load() != bodyOpen {
		return fmt.Errorf("raftstore: body %v: finished twice: %w", w.Ref(), ErrBody)
	}
	if err := w.file.Finish(d); err != nil {
		w.state.Store(bodyGone) // the file was removed
		w.push.abort()
		return storeError(err)
	}
	w.push.finish(d)
	w.state.Store(bodyFinished)
	return nil
}

// Abort removes the file unless a proposal holds it or has named it; then it does nothing, so that it
// can be deferred.
func (w *bodyWriter) Abort() {
	if w.state.CompareAndSwap(bodyOpen, bodyGone) || w.state.CompareAndSwap(bodyFinished, bodyGone) {
		w.push.abort()
		if err := w.file.Abort(); err != nil {
			w.group.host.o.Event(Event{Kind: JobFailed, Group: w.group.id, Err: err})
		}
	}
}

// claimBodies takes all large bodies of a proposal or none.
func claimBodies(items []Item) error {
	for i := range items {
		if w, ok := items[i].Large.(*bodyWriter); ok && !w.state.CompareAndSwap(bodyFinished, bodyProposed) {
			freeBodies(items[:i])
			return ErrBody
		}
	}
	return nil
}

// freeBodies gives the large bodies of a proposal that was refused back to their writers.
func freeBodies(items []Item) {
	for i := range items {
		if w, ok := items[i].Large.(*bodyWriter); ok {
			w.state.CompareAndSwap(bodyProposed, bodyFinished)
		}
	}
}

// storeError adds this package's condition to an error of the store.
func storeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fsync.ErrDiskFull):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case errors.Is(err, fsync.ErrPoisoned):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}
