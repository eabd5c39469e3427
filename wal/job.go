package wal

import (
	"errors"
	"fmt"
	"sync/atomic"

	"weida/fsync"
	"weida/segment"
)

// The kinds of jobs.
const (
	JobCreate  = "create"  // make the next segment ready
	JobSeal    = "seal"    // give a full segment its footer
	JobTrim    = "trim"    // drop what a snapshot covers, body files that nothing needs
	JobMend    = "mend"    // write manifest and hard state anew
	JobCompact = "compact" // copy a few live bodies forward, so that what they pin can be dropped
)

// Job is slow work of one log (make the next segment ready, seal, trim): it blocks on flushes, so the
// owner hands it to another goroutine, or runs it inline when stepped. At most one job of Log.Job and one
// of Log.HardStateJob exist at a time. After Run returned the owner calls Log.Advance.
type Job struct {
	Kind string
	Run  func() error
}

// work is a job on its way: Run does the slow part on any goroutine, take brings its result into the
// log's state on the owner's.
type work struct {
	kind string
	run  func() error
	take func()
	err  error
	done atomic.Bool
}

// Job returns the next slow work, or nil if there is none or one is still under way. A job that
// failed is offered again after the next append or trim.
func (l *Log) Job() *Job {
	if l.work != nil || l.stalled || l.closed || l.failure() != nil {
		return nil
	}
	w := l.nextWork()
	if w == nil {
		return nil
	}
	l.work = w
	return w.job()
}

// job is w as it is handed out.
func (w *work) job() *Job {
	return &Job{Kind: w.kind, Run: func() error {
		if w.done.Load() {
			panic("bug: wal: a job ran twice")
		}
		err := w.run()
		w.err = err
		w.done.Store(true)
		return err
	}}
}

func (l *Log) nextWork() *work {
	half := l.cur != nil && l.active && l.cur.end >= l.segBytes/2
	if len(l.ready) == 0 && (l.wanted || half) {
		return l.createWork()
	}
	if s := l.fullSegment(); s != nil {
		return l.sealWork(s)
	}
	if l.mending {
		return l.mendWork()
	}
	if l.restoring && !off.restoreFirst || !l.trim && !l.copying.due || !l.voidsFlushed() {
		return nil
	}
	if l.trim {
		l.trim = false
		if w := l.trimWork(); w != nil {
			return w
		}
	}
	return l.compactWork()
}

// takeWork takes up a finished job.
func (l *Log) takeWork() {
	w := l.work
	if w == nil || !w.done.Load() {
		return
	}
	l.work = nil
	if w.err == nil {
		w.take()
		return
	}
	l.stalled = true
	l.copying.list, l.copying.due = nil, false // the next trim begins anew
	if errors.Is(w.err, fsync.ErrDiskFull) {
		l.emit(Event{Kind: EventDiskFull, Path: l.dir, Detail: w.kind, Err: w.err})
	}
}

// fault judges an error of a job or of recovery's writing: only a full disk leaves the log usable,
// because then it is certain what is on the disk. Any goroutine.
func (l *Log) fault(doing string, err error) error {
	err = fmt.Errorf("wal: group %d: %s: %w", uint64(l.group), doing, err)
	if !harmless(err) {
		l.poison(err)
	}
	return err
}

// harmless reports whether an error says that the disk is full and nothing else: met at a write it is
// certain what is on the disk, met at a flush it is not.
func harmless(err error) bool {
	return errors.Is(err, fsync.ErrDiskFull) && !errors.Is(err, fsync.ErrPoisoned) && !errors.Is(err, errHalfway)
}

// errHalfway marks an error behind the point where a replaced file may have got its new content.
var errHalfway = errors.New("a restart decides whether it counts")

// segFacts are what the owner knows about a segment beyond what the manifest recorded when it was
// made or sealed.
type segFacts struct {
	n     segment.Number
	named segment.Index
}

func (l *Log) facts() []segFacts {
	list := make([]segFacts, 0, len(l.segs))
	for _, s := range l.segs {
		list = append(list, segFacts{s.file.Segment, s.named})
	}
	return list
}

// change saves the manifest as edit leaves it. It blocks on flush rounds; jobs, snapshots and recovery
// use it, one at a time. facts and promise were taken by the owner when the work began.
func (l *Log) change(facts []segFacts, promise segment.Position, edit func(m *manifest)) error {
	l.manMu.Lock()
	defer l.manMu.Unlock()
	m := l.man.clone()
	if m.Promise.Less(promise) {
		m.Promise = promise
	}
	for _, f := range facts {
		for i := range m.Segments {
			if s := &m.Segments[i]; s.Number == f.n {
				s.Named = max(s.Named, f.named)
			}
		}
	}
	edit(&m)
	if err := saveManifest(l.fs, l.fl, l.dir, l.group, &m); err != nil {
		return err
	}
	l.man = m
	return nil
}
