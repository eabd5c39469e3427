package raftstore

import (
	"errors"

	"weida/fsync"
)

// This file holds the slow work of one group: at most one task at a time, run by a worker of the host
// (inline when stepped), begun in step 9 of a round and taken up in step 6 of a later one.

// begin hands work to the host's workers.
func (o *owner) begin(kind taskKind, run func() error) {
	if o.task != noTask {
		panic("bug: raftstore: two tasks of one group")
	}
	o.task = kind
	o.host.pool.submit(func() {
		err := run()
		o.mu.Lock()
		o.taskDone, o.taskErr = true, err
		o.mu.Unlock()
		o.shard.enqueue(o)
	})
}

// takeTask reports the end of the running task, once.
func (o *owner) takeTask() (kind taskKind, err error, done bool) {
	if o.task == noTask {
		return noTask, nil, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.taskDone {
		return noTask, nil, false
	}
	kind, err = o.task, o.taskErr
	o.task, o.taskDone, o.taskErr = noTask, false, nil
	return kind, err, true
}

// beginTask is the group's part of step 9.
func (o *owner) beginTask() {
	switch {
	case o.gone:
		o.finish()
	case o.task != noTask:
	case o.stopping:
		o.begin(closeTask, o.closeLog)
	case o.halted != nil:
		o.abortSnapshot()
	case o.snap.writer != nil && o.snap.mark.Index <= o.marks.Flushed:
		o.begin(commitTask, o.snap.writer.Commit)
	default:
		if j := o.log.Job(); j != nil {
			o.begin(logTask, j.Run)
		} else if o.snapshotDue() {
			o.beginSnapshot()
		}
	}
}

// finishTask takes a finished task up.
func (o *owner) finishTask(kind taskKind, err error) {
	switch kind {
	case logTask:
		if err != nil {
			o.jobFailed(err)
		} else {
			o.jobTold = false
		}
	case snapshotTask:
		o.snapshotWritten(err)
	case commitTask:
		o.snapshotCommitted(err)
	case abortTask:
		if err != nil {
			o.snapshotFailed(err)
		}
	case closeTask:
		o.gone = true
		o.closeErr = err
		o.marks.Flushed = max(o.marks.Flushed, o.log.Flushed().Index) // closing flushes
	default:
		panic("bug: raftstore: unknown task")
	}
}

// jobFailed refuses what waited for the job: it was not written. The log offers the job again after
// the next append. A failed flush shows in the log's Advance and halts the group there.
func (o *owner) jobFailed(err error) {
	if errors.Is(err, fsync.ErrDiskFull) {
		o.diskFull(err)
	} else if !o.jobTold {
		o.jobTold = true
		o.host.o.Event(Event{Kind: JobFailed, Group: o.id, Err: err})
	}
	o.drop(len(o.pending)-o.next, Outcome{Kind: Refused, Err: storeError(err)})
}

// closeLog flushes and closes the log; a worker runs it, as the group's last task.
func (o *owner) closeLog() error {
	var err error
	if w := o.snap.writer; w != nil {
		err = w.Abort()
	}
	return errors.Join(err, o.log.Close())
}

// finish ends the group: the machine was called for the last time.
func (o *owner) finish() {
	if o.finished {
		return
	}
	o.finished = true
	o.endSnapshot()
	if o.closeErr != nil {
		o.host.o.Event(Event{Kind: CloseFailed, Group: o.id, Err: o.closeErr})
	}
	o.host.forget(o.id, o.closeErr)
	close(o.stopped)
}

// awaitsFlush reports whether a finished flush would be news for the group.
func (o *owner) awaitsFlush() bool {
	return !o.closed() && o.halted == nil && o.marks.Flushed < o.marks.Written
}

// tick counts idle time and parks the group when there was enough of it. It returns false when the
// group needs no more ticks.
func (o *owner) tick(n int) bool {
	if o.gone || o.halted != nil {
		return false
	}
	o.idle += n
	busy := o.task != noTask || o.stopping || o.flushing || o.next < len(o.pending)
	if busy || o.idle <= o.host.o.ParkTicks {
		return true
	}
	return !o.park()
}

// park gives the descriptors and the idle memory back. It returns false if that takes another try.
func (o *owner) park() bool {
	switch err := o.log.Park(); {
	case errors.Is(err, fsync.ErrPoisoned):
		o.halt(err)
		o.publish()
		return true
	case err != nil: // a flush has to end first, or there is no room for its promise
		return false
	}
	o.pending, o.written, o.entries = nil, nil, nil
	o.in.shrink()
	return true
}
