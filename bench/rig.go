package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

// storeRig is a store on the real file system with a running Flusher.
type storeRig struct {
	flusher *fsync.Flusher
	store   *wal.Store
}

// openStore opens or makes dir/name, as the broker does.
func openStore(dir, name string) (*storeRig, error) {
	if err := fsync.CheckKernel(); err != nil {
		return nil, err
	}
	boot, err := fsync.BootID(dir)
	if err != nil {
		return nil, err
	}
	root, err := fsync.OS().OpenDir(dir)
	if err != nil {
		return nil, err
	}
	f := fsync.NewFlusher(fsync.Options{Root: root})
	f.Start()
	s, err := wal.OpenStore(fsync.OS(), filepath.Join(dir, name), wal.Options{Flusher: f, Boot: segment.Boot(boot)})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &storeRig{flusher: f, store: s}, nil
}

func (r *storeRig) close() error { return errors.Join(r.store.Close(), r.flusher.Close()) }

// writer is one log with one writer that waits for each append to be flushed before it makes the next.
type writer struct {
	log     *wal.Log
	last    segment.Index
	waiting bool
	job     bool // one is running
}

// logFleet drives many writers from one goroutine, as a shard does: it appends to whatever was flushed and never waits
// for a disk. Slow jobs run on goroutines of their own.
type logFleet struct {
	bell    *ringer
	writers []*writer
	payload []byte
	batch   wal.Append
	data    []byte
	jobs    chan jobDone
}

type jobDone struct {
	w   *writer
	err error
}

func newFleet(r *storeRig, n, size int) (*logFleet, error) {
	fl := &logFleet{bell: &ringer{bell: make(bell, 1)}, payload: make([]byte, size), jobs: make(chan jobDone, n)}
	for i := range n {
		log, err := r.store.OpenLog(segment.GroupID(i + 1))
		if err != nil {
			return nil, err
		}
		log.SetWaker(fl.bell)
		if err := log.SetHardState(wal.HardState{Term: 1}); err != nil {
			return nil, err
		}
		fl.writers = append(fl.writers, &writer{log: log})
	}
	return fl, nil
}

// append writes the next message of w: a body and the entry that holds its commit record.
func (fl *logFleet) append(w *writer) error {
	next := w.last + 1
	fl.payload[0] = byte(next)
	ref := segment.BodyRef{Term: 1, Seq: uint64(next)}
	commit := segment.Commit{Ref: ref, Length: int64(len(fl.payload)), Digest: segment.DigestOf(fl.payload)}
	fl.data = segment.AppendData(fl.data[:0], []segment.Commit{commit}, nil)
	fl.batch.Bodies = append(fl.batch.Bodies[:0], wal.Body{Ref: ref, Payload: fl.payload})
	fl.batch.Entries = append(fl.batch.Entries[:0], segment.Entry{Index: next, Term: 1, Data: fl.data})
	fl.batch.Commit = w.last
	err := w.log.Append(&fl.batch)
	if errors.Is(err, wal.ErrNotReady) {
		return nil // the next segment is being made: a job ends, then again
	}
	if err != nil {
		return fmt.Errorf("append %d: %w", next, err)
	}
	w.last, w.waiting = next, true
	w.log.RequestFlush()
	return nil
}

// step takes up what was flushed, counts it, and appends again unless the run is ending.
func (fl *logFleet) step(ending bool) (flushed int, err error) {
	for _, w := range fl.writers {
		if err := w.log.Advance(); err != nil {
			return 0, err
		}
		if w.waiting && w.log.Flushed().Index >= w.last {
			w.waiting = false
			flushed++
		}
		if !w.waiting && !ending {
			if err := fl.append(w); err != nil {
				return 0, err
			}
		}
		if job := w.log.Job(); job != nil && !w.job { // asked last: an append may be what needs it
			w.job = true
			go func() {
				fl.jobs <- jobDone{w, job.Run()}
				fl.bell.Wake()
			}()
		}
	}
	return flushed, nil
}

// wait blocks until something was flushed or a job ended.
func (fl *logFleet) wait(failed <-chan struct{}) error {
	select {
	case <-fl.bell.bell:
	case <-failed:
		return errors.New("the store's flusher failed")
	}
	for {
		select {
		case d := <-fl.jobs:
			d.w.job = false
			if d.err != nil {
				return d.err
			}
		default:
			return nil
		}
	}
}

func (fl *logFleet) busy() bool {
	for _, w := range fl.writers {
		if w.waiting || w.job {
			return true
		}
	}
	return false
}
