package wal

// JobHardState is the kind of the jobs of HardStateJob.
const JobHardState = "hard state"

// HardState returns the term and vote last made durable, the term raised to that of the last entry
// found at opening.
func (l *Log) HardState() HardState { return l.state }

// SetHardState makes term and vote durable before it returns. Owner only, while no HardStateJob is
// under way.
func (l *Log) SetHardState(h HardState) error {
	j := l.HardStateJob(h)
	err := j.Run()
	l.takeHardState()
	return err
}

// HardStateJob returns the work that makes term and vote durable. Run blocks on a flush; it may run on
// any goroutine beside one other job, a SnapshotWriter and the owner, who goes on meanwhile. After Run
// returned nil it is durable, and HardState shows it from the owner's next Advance on; only then may
// another one be made, or the log be closed. On fsync.ErrDiskFull without fsync.ErrPoisoned the old
// state stands; after any other error the log is poisoned and only opening it again says which of the
// two stands. Owner only.
func (l *Log) HardStateJob(h HardState) *Job {
	if l.hardWork != nil {
		panic("bug: wal: a hard state is set while another one is under way")
	}
	w := &work{
		kind: JobHardState,
		run: func() error {
			if err := l.failure(); err != nil {
				return err
			}
			l.hardMu.Lock()
			err := l.hard.Set(l.fs, l.fl, h)
			l.hardMu.Unlock()
			if err != nil && !harmless(err) {
				l.poison(err)
			}
			return err
		},
		take: func() { l.state = h },
	}
	l.hardWork = w
	return w.job()
}

// takeHardState takes up a finished HardStateJob.
func (l *Log) takeHardState() {
	w := l.hardWork
	if w == nil || !w.done.Load() {
		return
	}
	l.hardWork = nil
	if w.err == nil {
		w.take()
	}
}
