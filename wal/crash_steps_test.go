package wal

import (
	"bytes"
	"errors"
	"fmt"

	"weida/segment"
)

// Steps of the script that only replicas of a group with several members make.

// setHardBeside makes a hard state durable on the worker's side of things, with an append and a job
// between its beginning and its end.
func (w *world) setHardBeside() error {
	term := max(w.hard.Term, w.now().last().Term) + segment.Term(w.rng.IntN(2))
	w.hardNext = HardState{Term: term, Vote: w.rng.Uint64N(9)}
	j := w.log.HardStateJob(w.hardNext)
	if err := w.appendEntries(&Append{}, 1); err != nil {
		return errors.Join(err, j.Run())
	}
	slow := w.log.Job()
	if err := j.Run(); err != nil {
		return err
	}
	w.hard = w.hardNext
	if slow != nil {
		if err := slow.Run(); err != nil {
			return err
		}
	}
	return w.log.Advance()
}

// confChange appends configuration changes, whose data is raft's and names no bodies.
func (w *world) confChange() error {
	next := w.now().copy()
	a := &Append{Commit: w.commit}
	for range 1 + w.rng.IntN(2) {
		e := &modelEntry{
			mark: Mark{w.term, next.last().Index + 1},
			kind: segment.EntryConfChange + segment.EntryType(w.rng.IntN(2)),
			data: bytes.Repeat([]byte{0xff}, w.rng.IntN(60)), // no commit table
		}
		next.entries = append(next.entries, e)
		a.Entries = append(a.Entries, segment.Entry{Index: e.mark.Index, Term: w.term, Type: e.kind, Data: e.data})
	}
	return w.change(next, func() error { return w.append(a) })
}

// tombstonesAlone appends tombstones without an entry: for a body that never comes, and for one that is
// here and that a committed entry names, which stays.
func (w *world) tombstonesAlone() error {
	if w.commit == 0 {
		return nil
	}
	a := &Append{Voids: []Void{{w.newCommit(1, false).Ref, w.commit}}}
	list := w.now().live
	for _, e := range w.now().entries {
		if e.mark.Index <= w.commit {
			list = append(list[:len(list):len(list)], e.commits...)
		}
	}
	if len(list) > 0 {
		a.Voids = append(a.Voids, Void{list[w.rng.IntN(len(list))].Ref, w.commit})
	}
	return w.append(a)
}

// truncateAndBack truncates, and appends again a part of what it has truncated, as a leader does that
// was elected without those who had truncated it: the bodies stayed.
func (w *world) truncateAndBack() error {
	last, first := w.now().last().Index, max(w.commit, w.now().base.Index)+1
	if first > last {
		return nil
	}
	w.loose = nil
	from := first + segment.Index(w.rng.IntN(int(last-first+1)))
	next := w.now().copy()
	n := from - 1 - next.base.Index
	lost := next.entries[n:]
	next.entries = next.entries[:n:n]
	a := &Append{Truncate: from, Commit: w.commit}
	if err := w.change(next, func() error { return w.append(a) }); err != nil {
		return err
	}
	if w.rng.IntN(2) == 0 {
		if err := w.flush1(); err != nil {
			return err
		}
	}
	back := w.now().copy()
	a = &Append{Commit: w.commit}
	for _, e := range lost[:1+w.rng.IntN(len(lost))] {
		back.entries = append(back.entries, e)
		a.Entries = append(a.Entries, segment.Entry{Index: e.mark.Index, Term: e.mark.Term, Type: e.kind, Data: e.data})
	}
	err := w.change(back, func() error { return w.append(a) })
	w.term++
	return err
}

// bringUp takes a snapshot far ahead of the log, after the bodies that are live in it.
func (w *world) bringUp() error {
	w.term++
	m := Mark{w.term, max(w.commit, w.now().last().Index) + 1 + segment.Index(w.rng.IntN(6))}
	var live []segment.Commit
	for range 1 + w.rng.IntN(3) { // several appends
		a := &Append{}
		for range w.rng.IntN(4) {
			c := w.newCommit(w.size(), false)
			c.Ref.Term = 1 + segment.Term(w.rng.Uint64N(uint64(w.term)))
			c = commitOf(c.Ref, int(c.Length), false)
			live = append(live, c)
			a.Bodies = append(a.Bodies, Body{c.Ref, payload(c.Ref, int(c.Length))})
		}
		if w.rng.IntN(4) == 0 {
			c := w.newCommit(66_000, true)
			f, err := w.writeLarge(c)
			if err != nil {
				return err
			}
			live = append(live, c)
			a.Large = append(a.Large, f)
		}
		if err := w.append(a); err != nil {
			for _, f := range a.Large {
				err = errors.Join(err, f.Abort())
			}
			return err
		}
		for _, c := range live[len(live)-len(a.Bodies)-len(a.Large):] {
			if !w.log.Retain(c.Ref) {
				return fmt.Errorf("body %v was appended and is not here", c.Ref)
			}
		}
	}
	if err := w.flush1(); err != nil {
		return err
	}
	if w.log.FlushedEnd() != w.log.End() {
		return fmt.Errorf("flushed to %v, the log ends at %v", w.log.FlushedEnd(), w.log.End())
	}
	return w.installed(m, live)
}

// installed commits a snapshot at m that takes the log's place and restores it.
func (w *world) installed(m Mark, live []segment.Commit) error {
	err := w.writeSnapshot(m, func(commit func() error) error {
		return w.change(modelState{base: m, live: live}, func() error {
			err := commit()
			if err == nil {
				w.sure = w.acked + 1
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	w.commit, w.loose = m.Index, nil
	if w.rng.IntN(2) == 0 { // nothing may go before what is live is retained
		w.log.DropUnnamed(w.term)
		if err := w.jobs(); err != nil {
			return err
		}
	}
	w.log.ReleaseAll()
	for ref := range w.held {
		w.gone[ref] = true
	}
	clear(w.held)
	for _, c := range live {
		w.hold(c.Ref)
		if !w.log.Retain(c.Ref) {
			return fmt.Errorf("body %v came before the snapshot and is not here", c.Ref)
		}
	}
	w.flushed()
	return nil
}
