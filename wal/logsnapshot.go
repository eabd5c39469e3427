package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"weida/segment"
)

// snapshotsKept is how many snapshots the manifest names: one more than needed, in case it is damaged.
const snapshotsKept = 2

// NewSnapshot begins a snapshot of the state after the entry at m: Write, then Commit or Abort, on
// any one goroutine; Commit while no job of the log runs. Commit returns when the snapshot is flushed
// and the manifest names it; the owner takes it up with Advance. Where m is behind the last entry, or
// contradicts the log, the log then goes on behind m and what stood in it is void: that is how a
// replica is brought up by its leader. An error if m is not behind the newest snapshot, unless that one is at m and
// RetakeSnapshot was called, or if a snapshot
// of the same index is being written: two may be under way, one of the group itself and one that arrives.
func (l *Log) NewSnapshot(m Mark) (*SnapshotWriter, error) {
	if err := l.failure(); err != nil {
		return nil, err
	}
	if err := l.beginSnapshot(m); err != nil {
		return nil, err
	}
	w, err := newSnapshot(l.fs, l.fl, l.dir, l.group, m, l.rand)
	if err != nil {
		l.endSnapshot(m)
		return nil, err
	}
	w.before = func() error { return l.putSnapshotAside(m) }
	w.onEnd = func() { l.endSnapshot(m) }
	w.onCommit = l.nameSnapshot
	w.onFault = func(err error) {
		if !harmless(err) {
			l.poison(err) // no later flush of the directory could be believed
		}
	}
	return w, nil
}

// beginSnapshot takes the name of the snapshot at m.
func (l *Log) beginSnapshot(m Mark) error {
	l.manMu.Lock()
	defer l.manMu.Unlock()
	if err := l.surpassed(m); err != nil {
		return err
	}
	if slices.Contains(l.writing, m.Index) {
		return fmt.Errorf("wal: group %d: snapshot at index %d: one is being written already",
			uint64(l.group), uint64(m.Index))
	}
	l.writing = append(l.writing, m.Index)
	return nil
}

// ErrSurpassed is what NewSnapshot meets where a snapshot is there already that the new one is not behind. Nothing was
// made.
var ErrSurpassed = errors.New("one that is not behind it is there already")

// surpassed refuses a mark that is not behind the newest snapshot. manMu is held.
func (l *Log) surpassed(m Mark) error {
	for _, s := range l.man.Snapshots {
		if s.Mark.Index >= m.Index && (s.Mark != m || l.retake != m.Index) {
			return fmt.Errorf("wal: group %d: snapshot at index %d: %w: at index %d", uint64(l.group),
				uint64(m.Index), ErrSurpassed, uint64(s.Mark.Index))
		}
	}
	return nil
}

// endSnapshot gives the name back.
func (l *Log) endSnapshot(m Mark) {
	l.manMu.Lock()
	defer l.manMu.Unlock()
	l.writing = slices.DeleteFunc(l.writing, func(i segment.Index) bool { return i == m.Index })
}

// nameSnapshot makes a flushed snapshot part of the log.
func (l *Log) nameSnapshot(info snapInfo) error {
	l.manMu.Lock()
	err := l.surpassed(info.Mark)
	l.manMu.Unlock()
	if err != nil {
		return err
	}
	var old []string
	err = l.change(nil, segment.Position{}, func(m *manifest) {
		m.Snapshots = slices.DeleteFunc(m.Snapshots, func(s snapInfo) bool { return s.Mark == info.Mark })
		m.Snapshots = append(m.Snapshots, info)
		for len(m.Snapshots) > snapshotsKept {
			old = append(old, snapshotName(m.Snapshots[0].Mark.Index))
			m.Snapshots = slices.Delete(m.Snapshots, 0, 1)
		}
	})
	if err != nil {
		return l.fault("name a snapshot", err)
	}
	l.manMu.Lock()
	l.snapInfo = info
	if l.retake <= info.Mark.Index {
		l.retake = 0
	}
	l.manMu.Unlock()
	l.snapMu.Lock()
	l.newSnaps = append(l.newSnaps, info.Mark)
	l.snapMu.Unlock()
	l.unlink(old)
	return nil
}

// RetakeSnapshot says that the newest snapshot, at index i, is damaged: one of the same state may take its place. Owner
// only.
func (l *Log) RetakeSnapshot(i segment.Index) {
	l.manMu.Lock()
	defer l.manMu.Unlock()
	l.retake = i
}

// putSnapshotAside moves the damaged file away that has the name of the snapshot at m, if there is one.
func (l *Log) putSnapshotAside(m Mark) error {
	l.manMu.Lock()
	again := l.retake == m.Index
	l.manMu.Unlock()
	if !again {
		return nil
	}
	name := snapshotName(m.Index)
	to, err := asidePath(l.fs, filepath.Dir(filepath.Dir(l.dir)), groupName(l.group), name)
	if err == nil {
		err = l.fs.Rename(filepath.Join(l.dir, name), to)
	}
	if err == nil {
		path := filepath.Join(l.dir, name)
		l.emit(Event{Kind: EventQuarantined, Path: path, Detail: "it was damaged, and is written again; moved to " + to})
	} else if isAbsent(err) {
		err = nil
	}
	return err
}

// takeSnapshots takes up committed snapshots.
func (l *Log) takeSnapshots() {
	l.snapMu.Lock()
	list := l.newSnaps
	l.newSnaps = nil
	l.snapMu.Unlock()
	for _, m := range list {
		term, err := l.Term(m.Index)
		l.snap = m
		l.commit = max(l.commit, m.Index)
		if m.Index > l.last.Index || err == nil && term != m.Term {
			l.restart(m)
			l.restoring = true // what the snapshot holds is retained after it is restored
		}
	}
}

// OpenSnapshot opens the newest snapshot. ErrAbsent if there is none; damage found while reading is a
// *segment.CorruptError. Any goroutine.
func (l *Log) OpenSnapshot() (*SnapshotReader, error) {
	l.manMu.Lock()
	info := l.snapInfo
	l.manMu.Unlock()
	if info.Mark.Index == 0 {
		return nil, fmt.Errorf("wal: group %d: snapshot: %w", uint64(l.group), ErrAbsent)
	}
	return openSnapshot(l.fs, l.dir, l.group, info)
}

// checkSnapshot verifies the frames of a snapshot from end to end.
func (l *Log) checkSnapshot(info snapInfo) error {
	r, err := openSnapshot(l.fs, l.dir, l.group, info)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
