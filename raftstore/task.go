package raftstore

import (
	"errors"

	"weida/fsync"
)

// This file holds the slow work of one group: at most one task at a time, run by a worker of the host
// (inline when stepped), begun in step 8 of a round and taken up in step 2 of a later one.

// taskKind is what a worker does for the group; at most one at a time.
type taskKind uint8

const (
	noTask taskKind = iota
	logTask
	snapshotTask
	commitTask
	abortTask
	closeTask
)

// taskEnd is how a task ended, until the shard takes it up.
type taskEnd struct {
	done bool
	err  error
}

// begin hands work to the host's workers.
func (o *seat) begin(kind taskKind, run func() error) {
	if o.task != noTask {
		panic("bug: raftstore: two tasks of one group")
	}
	o.task = kind
	o.submit(run, &o.ended)
}

// submit runs work on a worker; its end is noted in end, guarded by o.mu, and wakes the group.
func (o *seat) submit(run func() error, end *taskEnd) {
	o.host.pool.submit(func() {
		err := run()
		o.mu.Lock()
		end.done, end.err = true, err
		o.mu.Unlock()
		o.shard.enqueue(o.as)
	})
}

// takeTask reports the end of the running task, once.
func (o *seat) takeTask() (kind taskKind, err error, done bool) {
	if o.task == noTask {
		return noTask, nil, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended.done {
		return noTask, nil, false
	}
	kind, err = o.task, o.ended.err
	o.task, o.ended = noTask, taskEnd{}
	return kind, err, true
}

// beginTask is the group's part of step 8.
func (o *seat) beginTask() {
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
func (o *seat) finishTask(kind taskKind, err error) {
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
func (o *seat) jobFailed(err error) {
	if errors.Is(err, fsync.ErrDiskFull) {
		o.diskFull(err)
	} else if !o.jobTold {
		o.jobTold = true
		o.host.o.Event(Event{Kind: JobFailed, Group: o.id, Err: err})
	}
	o.drop(len(o.pending)-o.next, Outcome{Kind: Refused, Err: storeError(err)})
}

// closeLog flushes and closes the log; a worker runs it, as the group's last task.
func (o *seat) closeLog() error {
	var err error
	if w := o.snap.writer; w != nil {
		err = w.Abort()
	}
	return errors.Join(err, o.log.Close())
}

// finish ends the group: the machine was called for the last time.
func (o *seat) finish() {
	if o.finished {
		return
	}
	o.finished = true
	o.endSnapshot()
	if o.closeErr != nil {
		o.host.o.Event(Event{Kind: CloseFailed, Group: o.id, Err: o.closeErr})
	}
	o.shard.leave(o)
	o.host.forget(o.id, o.closeErr)
	close(o.stopped)
}

// awaitsFlush reports whether a finished flush would be news for the group.
func (o *seat) awaitsFlush() bool {
	behind := o.marks.Flushed < o.marks.Written || o.noting
	return !o.closed() && o.halted == nil && (behind || o.expects)
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
func (o *seat) park() bool {
	switch err := o.log.Park(); {
	case errors.Is(err, fsync.ErrPoisoned):
		o.halt(err)
		o.publish()
		return true
	case err != nil: // a flush has to end first, or there is no room for its promise
		return false
	}
	o.pending, o.written = nil, nil
	o.as.shrink()
	o.in.shrink()
	return true
}
