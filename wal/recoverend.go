package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"

	"weida/segment"
)

// chooseSnapshot finds the newest snapshot that is whole. A damaged one is passed over for an older
// one if the log still covers what lies between.
func (r *recovery) chooseSnapshot() error {
	l := r.l
	var damage error
	for _, info := range slices.Backward(l.man.Snapshots) {
		err := l.checkSnapshot(info)
		if err == nil {
			l.snap, l.snapInfo = info.Mark, info
			break
		}
		if !isCorrupt(err) {
			return err
		}
		if damage == nil {
			damage = err
		}
		r.passed = append(r.passed, passed{info.Mark.Index, err})
	}
	if l.snap.Index < l.man.Dropped.Upto.Index {
		if damage == nil {
			damage = corruptAt(filepath.Join(l.dir, manifestName), l.group, 0, "no snapshot covers what was dropped")
		}
		return fmt.Errorf("the log begins behind entry %d and no whole snapshot covers what was before: %w",
			uint64(l.man.Dropped.Upto.Index), damage)
	}
	return nil
}

// fit is step 6: log and snapshot together must give every entry from some base on.
func (r *recovery) fit() error {
	l := r.l
	if err := r.contiguous(); err != nil {
		return err
	}
	l.base = l.man.Dropped.Upto
	lo, hi := l.live()
	switch {
	case lo == hi:
		l.base = later(l.base, l.snap)
		l.last = l.base
	case lo > later(l.base, l.snap).Index+1:
		return corruptAt(l.dir, l.group, 0, fmt.Sprintf("the log begins with entry %d, but what was dropped or is "+
			"covered by a snapshot ends with entry %d", uint64(lo), uint64(later(l.base, l.snap).Index)))
	default:
		if l.base.Index+1 < lo {
			l.base = l.snap
		}
		l.last = r.scan.last
		if l.last.Index != hi-1 {
			panic("bug: wal: recovery lost count of the last entry")
		}
	}
	contradiction, err := r.contradiction(lo, hi)
	if err != nil {
		return err
	}
	if contradiction || l.last.Index < l.snap.Index {
		l.restart(l.snap)
	}
	l.commit = min(max(r.end.Commit, l.man.Dropped.Commit, l.snap.Index), l.last.Index)
	return nil
}

// later returns the mark with the greater index.
func later(a, b Mark) Mark {
	if a.Index < b.Index {
		return b
	}
	return a
}

// contiguous sees that the live entries of the segments follow each other.
func (r *recovery) contiguous() error {
	l := r.l
	var next segment.Index
	for _, s := range l.segs {
		if s.lo == s.hi {
			continue
		}
		if next != 0 && s.lo != next {
			return corruptAt(l.segPath(s.file.Segment), l.group, 0, fmt.Sprintf(
				"its first entry is %d, but the segments before it end with entry %d", uint64(s.lo), uint64(next-1)))
		}
		next = s.hi
	}
	return nil
}

// contradiction reports whether the log, whose live entries are [lo, hi), has another entry than the
// snapshot where the snapshot ends: then the snapshot came from a leader whose log replaced this one.
func (r *recovery) contradiction(lo, hi segment.Index) (bool, error) {
	l := r.l
	i := l.snap.Index
	if i < lo || i >= hi {
		return false, nil
	}
	n := sort.Search(len(l.terms), func(k int) bool { return l.terms[k].first > i })
	if n > 0 {
		return l.terms[n-1].term != l.snap.Term, nil
	}
	term, err := l.termOnDisk(i)
	return term != l.snap.Term, err
}

// restart makes the log empty behind m, which a flushed snapshot covers. Entries that still stand in
// the segments are voided by the next append; until then every opening comes to the same conclusion.
func (l *Log) restart(m Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segs {
		if s.lo < s.hi {
			l.voidAll = true
		}
		s.lo, s.hi = 0, 0
	}
	l.terms = nil
	l.base, l.last = m, m
	l.flushed = m
	for i := range l.marks {
		l.marks[i].last = m
	}
}

// settle is step 7. From here on the disk is changed.
func (r *recovery) settle() error {
	l := r.l
	r.placeParts()
	if err := r.recordCut(); err != nil {
		return err
	}
	if err := r.mendManifest(); err != nil {
		return err
	}
	if l.hard.repaired {
		if err := l.hard.repair(l.fs, l.fl); err != nil {
			return err
		}
		l.emit(Event{Kind: EventCopyRepaired, Path: filepath.Join(l.dir, hardStateName)})
	}
	if err := r.tidy(); err != nil {
		return err
	}
	l.state = l.hard.State()
	if l.last.Term > l.state.Term && !off.termFromLog {
		l.state = HardState{Term: l.last.Term}
		if err := l.hard.Set(l.fs, l.fl, l.state); err != nil { // nothing is told that a crash could take back
			return err
		}
	}
	l.flushed = l.last
	l.asked = true
	end := segment.Position{Segment: r.batchEnd.Segment, Pos: r.batchEnd.Pos + segment.SizeOf(8)}
	l.promised = r.batchEnd.Segment == 0 || !r.end.Promise.Less(end)
	l.recovered = Recovery{
		First: l.First(), Last: l.last, Commit: l.commit, HardState: l.state, Snapshot: l.snap, Boot: r.end.Boot,
	}
	if r.cut {
		end := r.end
		end.At = r.cutAt
		l.recovered.Cut = &end
	}
	return nil
}

// mendManifest writes the manifest anew if a copy of it is damaged, and without the damaged snapshots
// that were passed over: their files are then moved aside.
func (r *recovery) mendManifest() error {
	l := r.l
	if !r.mend && len(r.passed) == 0 {
		return nil
	}
	err := l.change(nil, segment.Position{}, func(m *manifest) {
		m.Snapshots = slices.DeleteFunc(m.Snapshots, func(s snapInfo) bool {
			return slices.ContainsFunc(r.passed, func(p passed) bool { return p.index == s.Mark.Index })
		})
	})
	if err != nil {
		return err
	}
	if r.mend {
		l.emit(Event{Kind: EventCopyRepaired, Path: filepath.Join(l.dir, manifestName)})
	}
	for _, p := range r.passed {
		l.emit(Event{Kind: EventSnapshotPassed, Path: filepath.Join(l.dir, snapshotName(p.index)), Err: p.err})
	}
	return nil
}

// passed is a damaged snapshot for which an older one stands in.
type passed struct {
	index segment.Index
	err   error
}

// placeParts decides which of the open segments are full, which is appended to and which are ready.
func (r *recovery) placeParts() {
	l := r.l
	l.chain = r.end.Chain
	if len(r.parts) == 0 {
		for i := range l.man.Segments {
			l.chain = l.man.Segments[i].Chain
		}
		if len(l.man.Segments) == 0 {
			l.chain = l.man.Dropped.Chain
		}
	}
	l.safe = l.man.Promise
	last := r.lastBefore()
	k := 0 // the segment in which the log ends
	for i, s := range r.open {
		p := r.end.Parts[i]
		s.end, s.chain = p.End, p.Chain
		if m, ok := r.lasts[s.file.Segment]; ok {
			last = m
		}
		s.last = last
		if s.end > segment.FirstBatch {
			k = i
		}
	}
	if len(r.open) > 0 && r.open[k].end > segment.FirstBatch {
		l.lastSeg = segment.Position{Segment: r.open[k].file.Segment, Pos: r.open[k].end}
		if l.safe.Less(l.lastSeg) {
			l.safe = l.lastSeg // everything that counts was flushed, or the store was closed in order
		}
	} else {
		l.lastSeg = l.safe // the last batch is in a sealed segment, and nothing is sealed before it is flushed
	}
	if r.cut || !r.end.Reusable {
		return // all are full
	}
	for i, s := range r.open {
		if s.limit != 0 && i >= k { // a cut: the log goes on behind it, never in front of it
			k = i + 1
		}
	}
	for k < len(r.open) && !r.goesOn(k) {
		k++
	}
	if k < len(r.open) {
		l.cur, l.ready = r.open[k], slices.Clone(r.open[k+1:])
	}
}

// lastBefore is the last entry before the open segments.
func (r *recovery) lastBefore() (m Mark) {
	for i := range r.l.man.Segments {
		if s := &r.l.man.Segments[i]; s.State == segSealed {
			m = s.Last
		}
	}
	return m
}

// goesOn reports whether the log may be continued in open segment k, the last with a batch: nothing
// but zeros stands behind it. A footer or its remains may, if the sealing was interrupted.
func (r *recovery) goesOn(k int) bool {
	s := r.open[k]
	if s.limit != 0 {
		return false
	}
	if k == len(r.open)-1 {
		return true
	}
	buf := make([]byte, windowBytes)
	for pos := s.end; pos < s.size; {
		n, err := r.files[k].ReadAt(buf[:min(int64(len(buf)), s.size-pos)], pos)
		if n == 0 || !zeros(buf[:n]) || err != nil && !errors.Is(err, io.EOF) {
			return false // what can't be read is not written over
		}
		pos += int64(n)
	}
	return true
}

// recordCut makes a crash cut and the segment that follows it true with one record of the manifest.
func (r *recovery) recordCut() error {
	l := r.l
	if !r.cut {
		return nil
	}
	if off.cutNewSegment {
		k := slices.IndexFunc(r.open, func(s *seg) bool { return s.file.Segment == r.cutAt.Segment })
		l.cur, l.ready = r.open[k], nil
		return nil
	}
	at := r.cutAt
	made, err := l.createSegment(l.facts(), l.safe, l.last.Index+1, func(m *manifest) {
		if off.cutManifest {
			return
		}
		for i := range m.Segments {
			s := &m.Segments[i]
			switch p := r.partEnd(s.Number); {
			case s.State == segSealed || p == 0 || s.Limit != 0 && s.Limit <= p:
			case s.Number >= at.Segment:
				s.Limit = p
			}
		}
	})
	if err != nil {
		return err
	}
	for _, s := range r.open {
		if s.file.Segment >= at.Segment {
			s.limit = s.end
		}
	}
	l.segs = append(l.segs, made)
	l.cur = made
	l.emit(Event{Kind: EventTailCut, Path: l.segPath(at.Segment), Detail: fmt.Sprintf(
		"cut at byte %d behind entry %d; nothing behind it was confirmed as flushed", at.Pos, uint64(l.last.Index))})
	return nil
}

// partEnd is where the log ends in an open segment, 0 for any other.
func (r *recovery) partEnd(n segment.Number) int64 {
	for i, s := range r.open {
		if s.file.Segment == n {
			return r.end.Parts[i].End
		}
	}
	return 0
}

// tidy removes what the manifest says is gone and moves aside what nobody knows.
func (r *recovery) tidy() error {
	l := r.l
	named := map[string]bool{}
	first, newest := l.man.Next, segment.Index(0)
	for i := range l.man.Segments {
		named[segmentName(l.man.Segments[i].Number)] = true
		first = min(first, l.man.Segments[i].Number)
	}
	for i := range l.man.Snapshots {
		named[snapshotName(l.man.Snapshots[i].Mark.Index)] = true
		newest = l.man.Snapshots[i].Mark.Index
	}
	var gone, strange []string
	for _, n := range r.list.segments {
		switch name := segmentName(n); {
		case named[name]:
		case n < first:
			gone = append(gone, name)
		default:
			strange = append(strange, name)
		}
	}
	for _, i := range r.list.snapshots {
		switch name := snapshotName(i); {
		case named[name]:
		case i < newest:
			gone = append(gone, name)
		default:
			strange = append(strange, name)
		}
	}
	gone = append(gone, r.list.tmps...)
	strange = append(strange, r.list.unknown...)
	return r.clear(gone, strange)
}

func (r *recovery) clear(gone, strange []string) error {
	l := r.l
	for _, name := range gone {
		if err := removeIfThere(l.fs, filepath.Join(l.dir, name)); err != nil {
			return err
		}
		l.emit(Event{Kind: EventLeftover, Path: filepath.Join(l.dir, name)})
	}
	for _, name := range strange {
		why := "no manifest names it and no weida writes such a file"
		if _, ok := parseSegmentName(name); ok {
			why = "a segment whose making was interrupted: the manifest does not name it and it holds nothing"
		} else if _, ok := parseSnapshotName(name); ok {
			why = "a snapshot that the manifest does not name: its making was interrupted, or it is damaged"
		}
		if err := quarantine(l.fs, l.dir, name, why, l.event); err != nil {
			return err
		}
	}
	return nil
}
