package wal

import (
	"fmt"
	"path/filepath"
	"slices"

	"weida/segment"
)

// What a trim drops, in this order, so that a crash between any two steps leaves at most files that
// the manifest says are dropped: save the manifest, then unlink. Only a prefix of the segments goes.

// Trim asks for everything that is no longer needed to go: segments whose entries the newest snapshot
// covers and whose bodies are all released, and body files likewise; a job does it. By calling it the
// owner says that it has restored the newest snapshot, or taken it, and retained every body that is
// live in it and in the entries it has applied since. Owner only.
func (l *Log) Trim() {
	l.takeSnapshots()
	l.trim, l.claimed, l.restoring, l.stalled = true, true, false, false
	l.tryAgain()
	l.copying.due = true
}

// DropUnnamed says that no entry to come will name a body of a term below t, so that files of such
// bodies that no entry names go; a job does it. A one-replica owner knows it as soon as its new epoch
// is flushed. Owner only.
func (l *Log) DropUnnamed(t segment.Term) { l.trim, l.dead, l.stalled = true, max(l.dead, t), false }

// trimPlan is what one trim drops.
type trimPlan struct {
	segs   []*seg
	bodies []segment.BodyRef
	upto   Mark // last entry that goes with them
	chain  segment.Chain
	snap   Mark
}

// voidsFlushed reports whether every truncation is flushed, and asks for it if not. Entries that are
// void only because of a record that a power cut may take stand again after it, and would have lost
// those before them.
func (l *Log) voidsFlushed() bool {
	if off.trimFlushedVoids {
		return true
	}
	if l.safe.Less(l.voided) {
		l.RequestFlush()
		return false
	}
	return !l.voidAll
}

func (l *Log) trimWork() *work {
	p := l.planTrim()
	if len(p.segs) == 0 && len(p.bodies) == 0 && p.upto.Index <= l.base.Index {
		return nil
	}
	facts, promise := l.facts(), l.safe
	numbers := make([]segment.Number, 0, len(p.segs))
	for _, s := range p.segs {
		numbers = append(numbers, s.file.Segment)
	}
	return &work{
		kind: JobTrim,
		run: func() error {
			if err := l.drop(p, facts, numbers, promise); err != nil {
				return l.fault("trim", err)
			}
			return nil
		},
		take: func() { l.dropped(p) },
	}
}

// planTrim decides what may go.
func (l *Log) planTrim() trimPlan {
	p := trimPlan{upto: l.base, snap: l.snap}
	for _, s := range l.segs {
		if !l.claimed || !l.droppable(s) {
			break
		}
		if s.lo < s.hi && s.hi-1 > p.upto.Index {
			term, err := l.Term(s.hi - 1)
			if err != nil {
				break // it stays; what can't be read now may be readable then
			}
			p.upto = Mark{Term: term, Index: s.hi - 1}
		}
		p.segs = append(p.segs, s)
		p.chain = s.chain
	}
	for ref, b := range l.large {
		if b.index == 0 && b.live == 0 && ref.Term < l.dead {
			p.bodies = append(p.bodies, ref)
			continue
		}
		if b.live > 0 || !l.claimed {
			continue
		}
		switch {
		case b.index > 0 && b.index <= l.snap.Index:
			term, err := l.Term(b.index)
			if b.index > p.upto.Index && err == nil {
				p.upto = Mark{Term: term, Index: b.index}
			}
			if b.index <= p.upto.Index {
				p.bodies = append(p.bodies, ref)
			}
		case b.index == 0 && ref.Term < l.snap.Term:
			p.bodies = append(p.bodies, ref) // no entry can name it any more
		}
	}
	if l.through > p.upto.Index && l.through <= l.snap.Index && l.claimed {
		p.upto = l.snap
		if term, err := l.Term(l.through); err == nil {
			p.upto = Mark{Term: term, Index: l.through}
		}
	}
	slices.SortFunc(p.bodies, func(a, b segment.BodyRef) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	return p
}

// droppable reports whether nothing in a segment is needed any more.
func (l *Log) droppable(s *seg) bool {
	if !l.covered(s) || s.live > 0 || l.safe.Less(s.copied) && !off.copyFlush {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.awaitedIn(s)
}

// covered reports whether the newest snapshot stands for everything in a segment but its live bodies.
func (l *Log) covered(s *seg) bool {
	return s.state == segSealed && !s.pinned && (s.lo == s.hi || s.hi <= l.snap.Index+1) && s.named <= l.snap.Index
}

// drop is the job's part of a trim.
func (l *Log) drop(p trimPlan, facts []segFacts, numbers []segment.Number, promise segment.Position) error {
	var snaps []segment.Index
	save := func() error {
		return l.change(facts, promise, func(m *manifest) {
			m.Segments = slices.DeleteFunc(m.Segments, func(s segInfo) bool {
				return slices.Contains(numbers, s.Number)
			})
			if m.Dropped.Upto.Index < p.upto.Index {
				m.Dropped.Upto = p.upto
			}
			m.Dropped.Commit = max(m.Dropped.Commit, p.snap.Index)
			if len(p.segs) > 0 {
				m.Dropped.Chain = p.chain
			}
			m.Snapshots = slices.DeleteFunc(m.Snapshots, func(s snapInfo) bool {
				old := s.Mark.Index < m.Dropped.Upto.Index
				if old {
					snaps = append(snaps, s.Mark.Index)
				}
				return old
			})
		})
	}
	if !off.trimManifest {
		if err := save(); err != nil {
			return err
		}
	}
	var names []string
	for _, n := range numbers {
		names = append(names, segmentName(n))
	}
	for _, ref := range p.bodies {
		names = append(names, bodyName(ref))
	}
	for _, i := range snaps {
		names = append(names, snapshotName(i))
	}
	l.unlink(names)
	if off.trimManifest {
		return save()
	}
	return nil
}

// unlink removes files that the manifest no longer names. One that stays takes room and nothing else;
// the next opening tries again.
func (l *Log) unlink(names []string) {
	for _, name := range names {
		path := filepath.Join(l.dir, name)
		if err := removeIfThere(l.fs, path); err != nil {
			l.emit(Event{Kind: EventNotRemoved, Path: path, Err: err})
		}
	}
}

// dropped is the owner's part of a trim.
func (l *Log) dropped(p trimPlan) {
	l.mu.Lock()
	l.segs = slices.DeleteFunc(l.segs, func(s *seg) bool {
		if !slices.Contains(p.segs, s) {
			return false
		}
		l.retireLocked(s.h)
		s.h = nil
		if s.file.Segment == l.evict {
			l.evict = 0
		}
		return true
	})
	for _, ref := range p.bodies {
		delete(l.large, ref)
	}
	l.holder = holder{}
	l.mu.Unlock()
	if p.upto.Index > l.base.Index {
		l.base = p.upto
		l.dropTerms()
		l.mu.Lock()
		l.voids.dropBelow(l.base.Term) // entries of lower terms are gone, and with them who asks for these
		l.mu.Unlock()
	}
	l.pending.dropBelow(l.snap.Term)
	l.emit(Event{Kind: EventTrimmed, Path: l.dir, Detail: fmt.Sprintf(
		"%d segments and %d body files; the log begins with entry %d", len(p.segs), len(p.bodies), uint64(l.First()))})
}

// dropTerms forgets the runs that end before First.
func (l *Log) dropTerms() {
	n := 0
	for n+1 < len(l.terms) && l.terms[n+1].first <= l.First() {
		n++
	}
	l.terms = slices.Delete(l.terms, 0, n)
}
