package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

// The crash suite runs a script against a real store on a disk in memory, and beside it a model of
// what must come back. Every step that changes the log gives the model another state; whatever the
// crash, what comes back must be exactly one of the states between what was confirmed and what was
// begun:
//
//	kill -9      every state whose call had returned, at most the one in progress
//	power cut    every state up to the last confirmed flush, at most the one in progress

// modelEntry is an entry as it was appended.
type modelEntry struct {
	mark    Mark
	kind    segment.EntryType
	data    []byte
	commits []segment.Commit
}

// modelState is the log after one step.
type modelState struct {
	base    Mark             // a snapshot that took the log's place; zero if none did
	live    []segment.Commit // bodies that came before it and that it names
	entries []*modelEntry
}

// commits are all bodies that a state names.
func (s *modelState) commits() []segment.Commit {
	list := slices.Clone(s.live)
	for _, e := range s.entries {
		list = append(list, e.commits...)
	}
	return list
}

func (s *modelState) last() Mark {
	if n := len(s.entries); n > 0 {
		return s.entries[n-1].mark
	}
	return s.base
}

func (s *modelState) entry(i segment.Index) *modelEntry {
	if i <= s.base.Index || i > s.last().Index {
		return nil
	}
	return s.entries[i-s.base.Index-1]
}

// world is a running script: the process, the disk and the model.
type world struct {
	*life
	o    lifeOptions
	rng  *rand.Rand
	fs   fsync.FS // what the process sees
	mem  *memfs.FS
	lies func(fs fsync.FS) fsync.FS // between process and disk, for mutations; nil for none

	states []modelState
	acked  int // state that must survive a kill
	sure   int // state that must survive a power cut
	next   *modelState
	born   map[Mark]int // the state in which a mark appeared

	term   segment.Term
	seq    uint64
	commit segment.Index
	loose  []segment.Commit // bodies here that no entry names yet
	held   map[segment.BodyRef]bool
	gone   map[segment.BodyRef]bool // released, or void
	void   map[segment.BodyRef]bool

	hard, hardNext HardState
	snap, snapNext Mark
	doubt          bool // a call failed in a way that leaves open whether it counts
}

func newWorld(mem *memfs.FS, o lifeOptions) *world {
	return &world{
		o: o, mem: mem, fs: mem, rng: newRand(o.seed),
		states: []modelState{{}}, born: map[Mark]int{{}: 0}, term: 1,
		held: map[segment.BodyRef]bool{}, gone: map[segment.BodyRef]bool{}, void: map[segment.BodyRef]bool{},
	}
}

func (w *world) now() *modelState { return &w.states[w.acked] }

// start opens the log for the script.
func (w *world) start() error {
	w.o.boot = w.mem.BootID()
	w.o.seed++
	l, err := openLife(w.fs, w.o)
	if err != nil {
		return err
	}
	w.life = l
	w.log.Trim() // nothing: what is live is retained below before any job runs
	for _, c := range w.now().live {
		if !w.gone[c.Ref] {
			w.hold(c.Ref)
		}
	}
	for _, e := range w.now().entries {
		for _, c := range e.commits {
			if !w.gone[c.Ref] && e.mark.Index <= w.commit {
				w.hold(c.Ref)
			}
		}
	}
	for _, ref := range sortedRefs(w.held) {
		w.log.Retain(ref)
	}
	w.flushed()
	return nil
}

func (w *world) hold(ref segment.BodyRef) { w.held[ref] = true }

func sortedRefs(set map[segment.BodyRef]bool) []segment.BodyRef {
	var list []segment.BodyRef
	for ref := range set {
		list = append(list, ref)
	}
	slices.SortFunc(list, func(a, b segment.BodyRef) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	return list
}

// flushed takes note of what the log says is flushed.
func (w *world) flushed() {
	k, ok := w.born[w.log.Flushed()]
	if !ok {
		panic(fmt.Sprintf("the log says that %+v is flushed, which was never written", w.log.Flushed()))
	}
	if e := w.now().entry(w.log.Flushed().Index); w.next == nil && w.log.Flushed().Index > w.now().base.Index &&
		(e == nil || e.mark != w.log.Flushed()) {
		panic(fmt.Sprintf("the log says that %+v is flushed, which does not stand", w.log.Flushed()))
	}
	w.sure = max(w.sure, k)
}

// change runs a call that leads to the next state.
func (w *world) change(next modelState, call func() error) error {
	w.next = &next
	err := call()
	if err != nil && (w.log.failure() != nil || errors.Is(err, faultfs.ErrDied)) {
		w.doubt = true // it may have come to the disk
		return err
	}
	w.next = nil
	if err != nil {
		return err // the promise of an error: nothing of it counts
	}
	w.states = append(w.states[:w.acked+1], next)
	w.acked++
	w.note(w.acked)
	return nil
}

// note remembers the state in which its marks appeared.
func (w *world) note(k int) {
	s := &w.states[k]
	for _, m := range append([]Mark{s.base}, marksOf(s.entries)...) {
		if _, ok := w.born[m]; !ok {
			w.born[m] = k
		}
	}
}

func marksOf(list []*modelEntry) []Mark {
	marks := make([]Mark, len(list))
	for i, e := range list {
		marks[i] = e.mark
	}
	return marks
}

// newCommit makes a body of n bytes; a void one is only a tombstone.
func (w *world) newCommit(n int, large bool) segment.Commit {
	w.seq++
	return commitOf(segment.BodyRef{Term: w.term, Seq: w.seq}, n, large)
}

func (s *modelState) copy() modelState {
	return modelState{base: s.base, live: s.live, entries: slices.Clone(s.entries)}
}

func (w *world) size() int { return 1 + w.rng.IntN(600) }

// append appends count entries with fresh inline bodies, loose ones and given commits.
func (w *world) appendEntries(a *Append, count int, given ...segment.Commit) error {
	next := w.now().copy()
	if a.Truncate != 0 {
		next.entries = next.entries[:a.Truncate-1-next.base.Index]
	}
	for range count {
		commits := given
		given = nil
		if len(w.loose) > 0 && w.rng.IntN(2) == 0 {
			commits = append(commits, w.loose[0])
			w.loose = w.loose[1:]
		}
		for range w.rng.IntN(3) {
			c := w.newCommit(w.size(), false)
			commits = append(commits, c)
			a.Bodies = append(a.Bodies, Body{c.Ref, payload(c.Ref, int(c.Length))})
		}
		i := next.last().Index + 1
		e := &modelEntry{mark: Mark{w.term, i}, commits: commits}
		e.data = segment.AppendData(nil, commits, fmt.Appendf(nil, "cmd %d.%d.%d", w.term, i, w.rng.IntN(1000)))
		next.entries = append(next.entries, e)
		a.Entries = append(a.Entries, segment.Entry{Index: i, Term: w.term, Data: e.data})
	}
	a.Commit = w.commit
	return w.change(next, func() error { return w.append(a) })
}

// step makes one step of the script.
func (w *world) step(c byte) error {
	switch c {
	case 'a': // entries with bodies
		return w.appendEntries(&Append{}, 1+w.rng.IntN(3))
	case 'A': // a batch of many pages
		big := w.newCommit(9000+w.rng.IntN(9000), false)
		return w.appendEntries(&Append{Bodies: []Body{{big.Ref, payload(big.Ref, int(big.Length))}}}, 1, big)
	case 'b': // bodies alone, as a follower gets them
		return w.looseBodies()
	case 'l':
		return w.largeBody()
	case 'x': // a large body that no entry ever names
		_, err := w.writeLarge(w.newCommit(70000, true))
		return err
	case 'v':
		return w.tombstone()
	case 'V':
		return w.tombstonesAlone()
	case 't':
		return w.truncate()
	case 'R': // and what was truncated comes again
		return w.truncateAndBack()
	case 'C':
		return w.confChange()
	case 'r':
		w.log.RequestFlush()
		err := w.log.Advance()
		w.flushed()
		return err
	case 'f':
		return w.flush1()
	case 'j':
		return w.job()
	case 'J':
		return w.jobs()
	case 'c':
		w.advanceCommit()
	case 's':
		return w.snapshot()
	case 'i':
		return w.install()
	case 'B':
		return w.bringUp()
	case 'D':
		w.log.DropUnnamed(w.term)
	case 'T':
		return w.trim()
	case 'h':
		return w.setHard()
	case 'H': // beside an append and a job
		return w.setHardBeside()
	case 'p':
		return w.park()
	case 'z':
		return w.reopen()
	default:
		panic("no such step: " + string(c))
	}
	return nil
}

func (w *world) looseBodies() error {
	a := &Append{}
	var list []segment.Commit
	for range 1 + w.rng.IntN(3) {
		c := w.newCommit(w.size(), false)
		list = append(list, c)
		a.Bodies = append(a.Bodies, Body{c.Ref, payload(c.Ref, int(c.Length))})
	}
	if err := w.append(a); err != nil {
		return err
	}
	w.loose = append(w.loose, list...)
	return nil
}

func (w *world) writeLarge(c segment.Commit) (*BodyFile, error) {
	f, err := w.log.NewBody(c.Ref, c.Length)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(payload(c.Ref, int(c.Length))); err != nil {
		return nil, errors.Join(err, f.Abort())
	}
	if err := f.Finish(c.Digest); err != nil {
		return nil, errors.Join(err, f.Abort())
	}
	return f, nil
}

func (w *world) largeBody() error {
	c := w.newCommit(66000+w.rng.IntN(8000), true)
	f, err := w.writeLarge(c)
	if err != nil {
		return err
	}
	err = w.appendEntries(&Append{Large: []*BodyFile{f}}, 1, c)
	if errors.Is(err, fsync.ErrDiskFull) {
		err = errors.Join(err, f.Abort())
	}
	return err
}

func (w *world) tombstone() error {
	if w.commit == 0 {
		return nil
	}
	c := w.newCommit(100, false)
	w.void[c.Ref], w.gone[c.Ref] = true, true
	return w.appendEntries(&Append{Voids: []Void{{c.Ref, w.commit}}}, 1, c)
}

func (w *world) truncate() error {
	last, first := w.now().last().Index, max(w.commit, w.now().base.Index)+1
	if first > last {
		return nil
	}
	w.term++
	w.loose = nil
	from := first + segment.Index(w.rng.IntN(int(last-first+1)))
	return w.appendEntries(&Append{Truncate: from}, w.rng.IntN(3))
}

func (w *world) flush1() error {
	w.log.RequestFlush()
	for w.fl.Step() {
	}
	err := w.log.Advance()
	w.flushed()
	return err
}

func (w *world) job() error {
	j := w.log.Job()
	if j == nil {
		return nil
	}
	err := j.Run()
	return errors.Join(err, w.log.Advance())
}

// advanceCommit commits what is flushed and retains its bodies.
func (w *world) advanceCommit() {
	for _, e := range w.now().entries {
		if e.mark.Index <= w.commit || e.mark.Index > w.log.Flushed().Index {
			continue
		}
		w.commit = e.mark.Index
		for _, c := range e.commits {
			if !w.gone[c.Ref] {
				w.hold(c.Ref)
				w.log.Retain(c.Ref)
			}
		}
	}
}

func (w *world) snapshot() error {
	if w.commit <= w.snap.Index || w.now().entry(w.commit) == nil {
		return nil
	}
	return w.writeSnapshot(w.now().entry(w.commit).mark, func(commit func() error) error { return commit() })
}

func (w *world) writeSnapshot(m Mark, commit func(func() error) error) error {
	s, err := w.log.NewSnapshot(m)
	if err != nil {
		return err
	}
	if _, err := s.Write(snapshotContent(m)); err != nil {
		return errors.Join(err, s.Abort())
	}
	w.snapNext = m
	err = commit(s.Commit)
	if err != nil {
		return errors.Join(err, w.log.Advance())
	}
	w.snap = m
	return w.log.Advance()
}

func snapshotContent(m Mark) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "state after %d.%d;", m.Term, m.Index), 50)
}

// install takes a snapshot from a leader whose log has left this one behind or contradicts it.
func (w *world) install() error {
	w.term++
	m := Mark{w.term, w.commit + 1 + segment.Index(w.rng.IntN(6))}
	if m.Index <= w.snap.Index {
		return nil
	}
	return w.installed(m, nil)
}

func (w *world) trim() error {
	list := w.now().live
	for _, e := range w.now().entries {
		if e.mark.Index <= w.snap.Index {
			list = append(list[:len(list):len(list)], e.commits...)
		}
	}
	for _, c := range list {
		if w.held[c.Ref] && w.rng.IntN(8) > 0 {
			w.gone[c.Ref] = true
			delete(w.held, c.Ref)
			w.log.Release(c.Ref)
		}
	}
	w.log.Trim()
	return w.jobs()
}

func (w *world) setHard() error {
	term := max(w.hard.Term, w.now().last().Term) + segment.Term(w.rng.IntN(2))
	w.hardNext = HardState{Term: term, Vote: w.rng.Uint64N(9)}
	err := w.log.SetHardState(w.hardNext)
	if err == nil {
		w.hard = w.hardNext
	}
	return err
}

func (w *world) park() error {
	for range 8 {
		err := w.log.Park()
		if !errors.Is(err, ErrNotReady) {
			return err
		}
		if err := w.jobs(); err != nil {
			return err
		}
		for w.fl.Step() {
		}
		if err := w.log.Advance(); err != nil {
			return err
		}
		w.flushed()
	}
	return errors.New("the log never parked")
}

// reopen closes the store in order and opens it again.
func (w *world) reopen() error {
	if err := w.store.Close(); err != nil {
		return err
	}
	w.sure = w.acked
	w.loose = nil
	if err := w.start(); err != nil {
		return err
	}
	return w.check(w.log, w.acked, w.acked)
}
