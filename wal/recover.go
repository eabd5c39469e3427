package wal

import (
	"errors"
	iofs "io/fs"
	"path/filepath"

	"weida/fsync"
	"weida/segment"
)

// Recovery is what opening a log found.
type Recovery struct {
	First     segment.Index // of the first entry that can be read
	Last      Mark
	Commit    segment.Index // greatest known, at most Last.Index; a hint
	HardState HardState     // the term at least that of the last entry, the vote void if that raised it
	Snapshot  Mark          // newest whole snapshot; zero if there is none
	Cut       *segment.End  // where a crash cut the log, nil if it did not
	Boot      segment.Boot  // of the last batch; zero if there was none to read
}

// newLog recovers the log of a group in dir.
//
// Recovery, in order; it changes nothing on the disk before step 7:
//
//  1. Read the manifest and the hard state. The store makes both with the directory, so that one of
//     them missing is damage.
//  2. See that every file the manifest names is there: sealed segments with their size and footer,
//     open ones with their header, the newest whole snapshot.
//  3. Read the open segments (segment.Recover). Corrupt or of another version: stop.
//  4. After an unclean stop flush what was read, forget the cache behind the promise, and read again:
//     only what the disk gives back counts, and it decides as if the power had been cut.
//  5. See that every body that a live entry names is here. In the unflushed tail a large body that is
//     not whole ends the log before the batch that names it, when the power was cut.
//  6. Fit log and snapshot together: no gap, and where they contradict each other the snapshot stands.
//  7. After a cut, make a new segment; it and the cut become true with one record of the manifest.
//     Remove what the manifest says is dropped, move unknown files aside, mend damaged copies.
func newLog(s *Store, g segment.GroupID, dir string) (*Log, error) {
	c := logConfig{
		fs: s.fs, fl: s.o.Flusher, group: g, dir: dir, boot: s.o.Boot, clean: s.cleanStop(g),
		rand: s.o.Rand, event: s.o.Event, segBytes: s.o.SegmentBytes, firstBytes: s.o.FirstBytes,
	}
	if c.segBytes == 0 {
		c.segBytes = segmentBytes
	}
	if c.firstBytes == 0 {
		c.firstBytes = firstBytes
	}
	c.segBytes = max(c.segBytes, segmentBytesMin)
	c.firstBytes = min(max(c.firstBytes, blockBytes), c.segBytes)
	l := &Log{logConfig: c, large: map[segment.BodyRef]*largeBody{}}
	r := &recovery{l: l}
	err := r.run()
	if err = errors.Join(err, r.closeFiles()); err != nil {
		l.closeHandles()
		return nil, err
	}
	return l, nil
}

// Defaults of Options, and the least size of a segment: two batches.
const (
	segmentBytes = 16 << 20
	firstBytes   = 64 << 10
)

// segmentBytesMin is a variable so that tests can roll often.
var segmentBytesMin int64 = 2 * segment.BatchMax

// recovery is the opening of one log.
type recovery struct {
	l     *Log
	list  dirList
	open  []*seg       // unsealed segments, in order
	files []fsync.File // of open
	parts []segment.Part
	end   segment.End
	mend  bool // the manifest has a damaged copy
	cut   bool // the log ends at end.At by a crash
	// promise is the greatest one of the first reading.
	promise segment.Position
	passed  []passed
	cutAt   segment.Position // where, if cut

	scan
}

// scan is what reading the open segments gathers; a second reading begins it anew.
type scan struct {
	last     Mark
	batchEnd segment.Position // behind the last record read, to see where batches begin
	batch    segment.Position // where the batch of the last record begins
	missing  []lost
	larges   []lost
	lasts    map[segment.Number]Mark
}

// lost is a body that an entry names and that is not here, or must be looked at.
type lost struct {
	index  segment.Index
	commit segment.Commit
	batch  segment.Position // where the batch of the entry begins
}

func (r *recovery) run() error {
	if err := r.load(); err != nil { // step 1
		return err
	}
	if err := r.checkFiles(); err != nil { // step 2
		return err
	}
	if err := r.readLog(); err != nil { // steps 3 to 5
		return err
	}
	if err := r.fit(); err != nil { // step 6
		return err
	}
	return r.settle() // step 7
}

func (r *recovery) closeFiles() error {
	var err error
	for _, f := range r.files {
		err = errors.Join(err, f.Close())
	}
	r.files = nil
	return err
}

// load is step 1.
func (r *recovery) load() (err error) {
	l := r.l
	if r.list, err = listDir(l.fs, l.dir); err != nil {
		return err
	}
	l.man, r.mend, err = loadManifest(l.fs, l.dir, l.group)
	if errors.Is(err, iofs.ErrNotExist) {
		return corruptAt(filepath.Join(l.dir, manifestName), l.group, 0, "the manifest is missing")
	}
	if err != nil {
		return err
	}
	l.hard, err = loadHardState(l.fs, l.dir, l.group)
	if errors.Is(err, iofs.ErrNotExist) {
		return corruptAt(filepath.Join(l.dir, hardStateName), l.group, 0, "the hard state is missing")
	}
	return err
}

// readLog is steps 3 to 5.
func (r *recovery) readLog() error {
	if err := r.openParts(); err != nil {
		return err
	}
	if err := r.read(r.l.boot, nil); err != nil {
		return err
	}
	if r.l.clean {
		return r.checkBodies()
	}
	promise, sameBoot := r.end.Promise, r.end.Boot == r.l.boot
	r.promise = promise // true also if the batch that says so is lost
	if sameBoot {
		if err := r.checkBodies(); err != nil {
			return err
		}
	}
	if !off.recoverFlush {
		if err := r.flushTail(promise); err != nil {
			return err
		}
	}
	if off.reread {
		return nil
	}
	if err := r.read(segment.Boot{}, nil); err != nil {
		return err
	}
	cut, err := r.verifyTail(promise)
	if err != nil {
		return err
	}
	if cut != (segment.Position{}) {
		if err := r.read(segment.Boot{}, &cut); err != nil {
			return err
		}
		r.cut, r.cutAt = true, cut
	}
	return r.checkBodies()
}

// read reads the open segments and builds the index anew. boot zero decides as after a power cut. A
// limit ends the log there, whatever follows.
func (r *recovery) read(boot segment.Boot, limit *segment.Position) error {
	l := r.l
	r.scan = scan{lasts: map[segment.Number]Mark{}}
	if err := r.reset(); err != nil {
		return err
	}
	known := segment.Known{
		Chain: l.man.Dropped.Chain, Promise: l.man.Promise, Boot: boot, CleanStop: l.clean,
	}
	if known.Promise.Less(r.promise) {
		known.Promise = r.promise
	}
	for i := range l.man.Segments {
		if s := &l.man.Segments[i]; s.State == segSealed {
			known.Chain = s.Chain
			if end := (segment.Position{Segment: s.Number, Pos: s.FooterPos}); known.Promise.Less(end) {
				known.Promise = end
			}
		}
	}
	if lo, hi := l.live(); lo < hi {
		term, err := l.termOnDisk(hi - 1)
		if err != nil {
			return err
		}
		r.scan.last = Mark{Term: term, Index: hi - 1}
	}
	parts := append([]segment.Part{}, r.parts...)
	for i := range parts {
		p := &parts[i]
		if limit == nil || p.File.Segment < limit.Segment {
			continue
		}
		p.Limit = p.Start
		if p.File.Segment == limit.Segment {
			p.Limit = limit.Pos
		}
	}
	r.end = segment.Recover(parts, known, r.visit)
	switch r.end.Verdict {
	case segment.Valid, segment.Clean:
		return nil
	case segment.Torn:
		r.cut, r.cutAt = true, r.end.At
		return nil
	case segment.Corrupt, segment.UnknownVersion, segment.Unreadable:
	}
	return withPath(r.end.Err, l.segPath(r.end.At.Segment))
}

// reset makes the log's state what the manifest and the footers say, before the open segments are
// read.
func (r *recovery) reset() error {
	l := r.l
	l.terms, l.voids, l.pending = nil, refSet{}, refSet{}
	l.holder, l.maxRef = holder{}, segment.BodyRef{}
	for _, b := range l.large {
		b.index = 0
	}
	r.cut = false
	sealed := l.segs[:0]
	for _, s := range l.segs {
		if s.state == segSealed {
			sealed = append(sealed, s)
		}
	}
	l.segs = sealed
	for _, s := range sealed {
		// Live entries of one segment are dense. Footer.Last may be a snapshot's index.
		s.lo, s.hi = s.footer.First, s.footer.First+segment.Index(s.footer.Entries)
		if s.bodies > 0 && l.maxRef.Less(s.maxRef) {
			l.maxRef = s.maxRef
		}
	}
	for i, s := range sealed {
		if err := r.sealedOthers(sealed[:i], s); err != nil {
			return err
		}
	}
	for _, s := range r.open {
		s.index = index{named: s.named}
		l.segs = append(l.segs, s)
	}
	return nil
}

// sealedOthers applies the truncations and tombstones of a sealed segment.
func (r *recovery) sealedOthers(before []*seg, s *seg) error {
	l := r.l
	s.cuts = nil
	if s.footer.Others > 0 {
		h, err := l.acquire(s)
		if err != nil {
			return err
		}
		defer l.release(h)
		err = segment.EachOther(h.f, s.footer, func(row segment.Row) error {
			if row.Kind == segment.KindVoid {
				l.voids.add(row.Ref)
				return nil
			}
			s.pushCut(row.Pos, row.Index)
			for _, other := range before {
				other.truncate(row.Index)
			}
			return nil
		})
		if err != nil {
			return withPath(err, l.segPath(s.file.Segment))
		}
	}
	return nil
}
