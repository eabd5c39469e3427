package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"weida/segment"
)

// bounds returns the states between which a crash now must come back.
func (w *world) bounds(powerCut bool) (lo, hi int) {
	lo, hi = w.acked, w.acked
	if powerCut {
		lo = w.sure
	}
	if w.next != nil {
		hi++
	}
	return lo, hi
}

func (w *world) state(k int) *modelState {
	if k <= w.acked {
		return &w.states[k]
	}
	return w.next
}

// check compares a log with the model: it must be one of the states [lo, hi].
func (w *world) check(l *Log, lo, hi int) error {
	_, err := w.find(l, lo, hi)
	return err
}

func (w *world) find(l *Log, lo, hi int) (int, error) {
	var first error
	for k := hi; k >= lo; k-- {
		err := w.compare(l, w.state(k))
		if err == nil {
			return k, w.checkRest(l, w.state(k))
		}
		if first == nil || w.state(k).last() == l.Last() {
			first = err
		}
	}
	return 0, fmt.Errorf("the log ends with %+v and is none of the states %d to %d (ending with %+v to %+v): %w",
		l.Last(), lo, hi, w.state(lo).last(), w.state(hi).last(), first)
}

// compare compares the entries of a log with one state.
func (w *world) compare(l *Log, s *modelState) error {
	if l.Last() != s.last() {
		return fmt.Errorf("ends with %+v, not %+v", l.Last(), s.last())
	}
	snap := l.Recovered().Snapshot
	if l.First() <= s.base.Index || l.First() > max(snap.Index, s.base.Index)+1 {
		return fmt.Errorf("begins with %d, snapshot at %d, base %d", l.First(), snap.Index, s.base.Index)
	}
	if l.First() > l.Last().Index {
		return nil
	}
	list, err := l.Entries(l.First(), l.Last().Index+1, 1<<40)
	if err != nil {
		return err
	}
	if len(list) != int(l.Last().Index+1-l.First()) {
		return fmt.Errorf("%d entries from %d to %d", len(list), l.First(), l.Last().Index)
	}
	for _, e := range list {
		want := s.entry(e.Index)
		if want.mark != (Mark{e.Term, e.Index}) || want.kind != e.Type || !bytes.Equal(want.data, e.Data) {
			return fmt.Errorf("entry %d is another", e.Index)
		}
	}
	return nil
}

// checkRest checks bodies, snapshot and hard state of a log that is in state s.
func (w *world) checkRest(l *Log, s *modelState) error {
	for _, c := range s.commits() {
		if err := w.checkBody(l, c); err != nil {
			return err
		}
	}
	got := l.Recovered()
	if got.Snapshot != w.snap && got.Snapshot != w.snapNext {
		return fmt.Errorf("snapshot %+v, want %+v or %+v", got.Snapshot, w.snap, w.snapNext)
	}
	if got.Snapshot.Index > 0 {
		if err := checkSnapshotContent(l, got.Snapshot); err != nil {
			return err
		}
	}
	h := got.HardState
	if h.Term < w.hard.Term || h.Term < l.Last().Term || h.Term == w.hard.Term && h != w.hard && h != w.hardNext {
		return fmt.Errorf("hard state %+v, want %+v or %+v", h, w.hard, w.hardNext)
	}
	if got.Commit > l.Last().Index {
		return fmt.Errorf("commit %d behind the last entry %d", got.Commit, l.Last().Index)
	}
	return nil
}

func (w *world) checkBody(l *Log, c segment.Commit) error {
	r, err := l.OpenBody(c)
	if errors.Is(err, ErrAbsent) && w.gone[c.Ref] {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if w.void[c.Ref] {
		return fmt.Errorf("body %v never came and is here", c.Ref)
	}
	if !bytes.Equal(b, payload(c.Ref, int(c.Length))) {
		return fmt.Errorf("body %v is another", c.Ref)
	}
	return nil
}

func checkSnapshotContent(l *Log, m Mark) error {
	r, err := l.OpenSnapshot()
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if r.Mark() != m || !bytes.Equal(b, snapshotContent(m)) {
		return fmt.Errorf("snapshot %+v has another content", m)
	}
	return nil
}
