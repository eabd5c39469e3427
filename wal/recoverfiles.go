package wal

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"

	"weida/fsync"
	"weida/segment"
)

// dirList is what stands in a group's directory, by kind of name.
type dirList struct {
	segments  []segment.Number
	sizes     map[segment.Number]int64
	bodies    map[segment.BodyRef]int64 // sizes of the files
	refs      []segment.BodyRef         // of bodies, sorted by name
	snapshots []segment.Index
	tmps      []string
	unknown   []string
}

func listDir(fs fsync.FS, dir string) (dirList, error) {
	d := dirList{sizes: map[segment.Number]int64{}, bodies: map[segment.BodyRef]int64{}}
	entries, err := fs.List(dir)
	if err != nil {
		return d, err
	}
	for _, e := range entries {
		if e.Kind != fsync.Regular {
			d.unknown = append(d.unknown, e.Name)
			continue
		}
		n, isSegment := parseSegmentName(e.Name)
		ref, isBody := parseBodyName(e.Name)
		i, isSnapshot := parseSnapshotName(e.Name)
		switch {
		case e.Name == manifestName, e.Name == hardStateName:
		case isSegment:
			d.segments = append(d.segments, n)
			d.sizes[n] = e.Size
		case isBody:
			d.refs = append(d.refs, ref)
			d.bodies[ref] = e.Size
		case isSnapshot:
			d.snapshots = append(d.snapshots, i)
		case isOurTmp(e.Name):
			d.tmps = append(d.tmps, e.Name)
		default:
			d.unknown = append(d.unknown, e.Name)
		}
	}
	return d, nil
}

// checkFiles is step 2: every file that the manifest names is there and is the one it means.
func (r *recovery) checkFiles() error {
	l := r.l
	for _, ref := range r.list.refs {
		l.large[ref] = &largeBody{size: r.list.bodies[ref], leftover: true}
	}
	for _, n := range r.list.segments {
		// A crash cut makes a segment before what nobody knows is moved aside: never under its name.
		l.numbered = max(l.numbered, n)
	}
	open := false
	for i := range l.man.Segments {
		info := &l.man.Segments[i]
		if info.State == segSealed && open {
			return corruptAt(filepath.Join(l.dir, manifestName), l.group, 0,
				fmt.Sprintf("segment %d is sealed behind one that is not", uint64(info.Number)))
		}
		open = open || info.State != segSealed
		s, err := r.checkSegment(info)
		if errors.Is(err, iofs.ErrNotExist) {
			err = corruptAt(l.segPath(info.Number), l.group, 0, "the file is missing, but the manifest names it")
		}
		if err != nil {
			return withPath(err, l.segPath(info.Number))
		}
		if s.state == segSealed {
			l.segs = append(l.segs, s)
		} else {
			r.open = append(r.open, s)
		}
	}
	if err := r.checkStrangers(); err != nil {
		return err
	}
	return r.chooseSnapshot()
}

// checkSegment opens the file of a segment that the manifest names and verifies its header and, if it
// is sealed, its footer. It stays open only if it is to be read.
func (r *recovery) checkSegment(info *segInfo) (*seg, error) {
	l := r.l
	f, err := l.fs.Open(l.segPath(info.Number), fsync.ReadOnly)
	if err != nil {
		return nil, err
	}
	s, err := r.checkOpenSegment(f, info)
	if err != nil || s.state == segSealed {
		return s, errors.Join(err, f.Close())
	}
	r.files = append(r.files, f)
	return s, nil
}

func (r *recovery) checkOpenSegment(f fsync.File, info *segInfo) (*seg, error) {
	l := r.l
	at := segment.Position{Segment: info.Number}
	corrupt := func(pos int64, cause string) error {
		at.Pos = pos
		return &segment.CorruptError{Group: l.group, At: at, Cause: cause}
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	head := make([]byte, segment.FirstBatch)
	if n, err := f.ReadAt(head, 0); n < len(head) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, corrupt(int64(n), "the file ends inside its header")
		}
		return nil, err
	}
	salt, header, err := segment.ParseHeader(head, l.group, info.Number)
	if err != nil {
		return nil, err
	}
	if salt != info.Salt || header.Base != info.Base {
		return nil, corrupt(0, "it is not the segment that the manifest names")
	}
	s := &seg{
		file: segment.File{Group: l.group, Segment: info.Number, Salt: info.Salt},
		base: info.Base, state: info.State, end: segment.FirstBatch, size: size, limit: info.Limit,
		index: index{
			minRef: info.FirstRef, maxRef: info.LastRef, bodies: info.Bodies,
			named: info.Named, large: info.Large, payload: info.Payload,
		},
		last: info.Last, chain: info.Chain,
	}
	if info.State != segSealed {
		return s, nil
	}
	if size < info.Size {
		return nil, corrupt(size, fmt.Sprintf("the file has %d bytes, but %d when it was sealed", size, info.Size))
	}
	s.footer, err = segment.OpenFooter(f, s.file, info.FooterPos)
	if err != nil {
		return nil, err
	}
	if s.footer.Chain != info.Chain || s.footer.Pos+s.footer.Size != info.Size || s.footer.Last != info.Last.Index {
		return nil, corrupt(info.FooterPos, "the footer is not that of the sealing that the manifest records")
	}
	s.end = info.FooterPos
	return s, nil
}

// checkStrangers looks at segments that the manifest does not name. Below the first one kept they were
// dropped. Otherwise they are unfinished creations, which hold nothing: a batch in one means that the
// manifest is older than the log.
func (r *recovery) checkStrangers() error {
	l := r.l
	named := map[segment.Number]bool{}
	first := l.man.Next
	for i := range l.man.Segments {
		named[l.man.Segments[i].Number] = true
		first = min(first, l.man.Segments[i].Number)
	}
	for _, n := range r.list.segments {
		if named[n] || n < first {
			continue
		}
		pos, err := r.findBatch(n)
		if err != nil {
			return withPath(err, l.segPath(n))
		}
		if pos > 0 {
			return &segment.CorruptError{Path: l.segPath(n), Group: l.group,
				At:    segment.Position{Segment: n, Pos: pos},
				Cause: "a batch stands in a segment that the manifest does not name: the manifest is older than the log"}
		}
	}
	return nil
}

// findBatch returns the place of the first batch in a segment of which nothing is known, 0 if it
// holds none.
func (r *recovery) findBatch(n segment.Number) (pos int64, err error) {
	l := r.l
	f, err := l.fs.Open(l.segPath(n), fsync.ReadOnly)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head := make([]byte, segment.FirstBatch)
	if got, err := f.ReadAt(head, 0); got < len(head) {
		if err == nil || errors.Is(err, io.EOF) {
			return 0, nil
		}
		return 0, err
	}
	salt, _, err := segment.ParseHeader(head, l.group, n)
	if isVersion(err) {
		return 0, err
	}
	if err != nil {
		return 0, nil //nolint:nilerr // a header that was never flushed: what has none holds no batch
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	file := segment.File{Group: l.group, Segment: n, Salt: salt}
	end, _, err := segment.EachBatch(f, size, file, segment.FirstBatch, func(b *segment.Batch) error {
		pos = b.Pos
		return errFound
	})
	if errors.Is(err, errFound) || err == nil && end == segment.FirstBatch {
		return pos, nil
	}
	if isCorrupt(err) {
		return segment.FirstBatch, nil // neither a batch nor zeros: a creation does not leave that either
	}
	return 0, err
}

var errFound = errors.New("found")

// openParts prepares the open segments for reading.
func (r *recovery) openParts() error {
	for i, s := range r.open {
		r.parts = append(r.parts, segment.Part{
			File: s.file, R: r.files[i], Size: s.size, Start: segment.FirstBatch, Limit: s.limit,
		})
	}
	return nil
}

// flushTail makes everything that was read durable and forgets the cache behind the promise. What the
// kernel shows may be gone from the disk: it marks pages clean after a failed write-back.
func (r *recovery) flushTail(promise segment.Position) error {
	l := r.l
	var syncers []fsync.Syncer
	for i, s := range r.open {
		if s.file.Segment >= promise.Segment {
			syncers = append(syncers, r.files[i])
		}
	}
	var opened []io.Closer
	defer func() {
		for _, c := range opened {
			l.closeFile(c)
		}
	}()
	if !off.recoverDirFlush {
		d, err := l.fs.OpenDir(l.dir)
		if err != nil {
			return err
		}
		opened, syncers = append(opened, d), append(syncers, d)
	}
	for _, b := range r.tailBodies(promise) {
		f, err := l.fs.Open(filepath.Join(l.dir, bodyName(b.commit.Ref)), fsync.ReadOnly)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // verifyTail sees it
		}
		if err != nil {
			return err
		}
		opened, syncers = append(opened, f), append(syncers, f)
	}
	f, err := l.fs.Open(filepath.Join(l.dir, hardStateName), fsync.ReadOnly)
	if err != nil {
		return err
	}
	opened, syncers = append(opened, f), append(syncers, f)
	if len(syncers) > 0 {
		if err := l.fl.Flush(l.dir, syncers...); err != nil {
			return fmt.Errorf("flush what the last run left: %w; it is not known what of it is on the disk; "+
				"nothing was changed", err)
		}
	}
	return r.dropTail(promise)
}

func (r *recovery) dropTail(promise segment.Position) error {
	for i, s := range r.open {
		from := int64(0)
		switch {
		case s.file.Segment < promise.Segment:
			continue
		case s.file.Segment == promise.Segment:
			from = promise.Pos
		}
		if from >= s.size {
			continue
		}
		if err := r.files[i].DropCache(from, 0); err != nil {
			return err
		}
	}
	return nil
}

// tailBodies are the large bodies that live entries behind the promise name.
func (r *recovery) tailBodies(promise segment.Position) []lost {
	var list []lost
	for _, b := range r.larges {
		if !b.batch.Less(promise) && !r.l.voids.has(b.commit.Ref) {
			list = append(list, b)
		}
	}
	return list
}

// verifyTail reads the large bodies of the tail from the disk and returns where the log must end
// because one is not whole; zero if all are.
func (r *recovery) verifyTail(promise segment.Position) (cut segment.Position, err error) {
	if off.largeVerify {
		return cut, nil
	}
	for _, b := range r.tailBodies(promise) {
		err := r.verifyBody(b.commit)
		switch {
		case err == nil:
		case errors.Is(err, iofs.ErrNotExist) || isCorrupt(err):
			if cut == (segment.Position{}) || b.batch.Less(cut) {
				cut = b.batch
			}
		default:
			return cut, err
		}
	}
	return cut, nil
}

// verifyBody reads a whole large body past the cache.
func (r *recovery) verifyBody(c segment.Commit) error {
	f, err := openBodyFile(r.l.fs, r.l.dir, r.l.group, c)
	if err != nil {
		return err
	}
	err = f.f.DropCache(0, 0)
	if err == nil {
		_, err = io.Copy(io.Discard, f)
	}
	return errors.Join(err, f.Close())
}

// checkBodies is the rest of step 5: every body that a live entry behind the snapshot names is here.
func (r *recovery) checkBodies() error {
	l := r.l
	for _, b := range r.missing {
		if b.index > l.snap.Index {
			return r.missingBody(b)
		}
	}
	for _, s := range l.segs {
		if s.state == segSealed && s.large > 0 && s.hi > l.snap.Index+1 {
			if err := r.sealedLarges(s); err != nil {
				return err
			}
		}
	}
	for _, b := range r.larges {
		if err := r.checkLarge(b); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) missingBody(b lost) error {
	if b.commit.Large {
		return &segment.CorruptError{Path: filepath.Join(r.l.dir, bodyName(b.commit.Ref)), Group: r.l.group,
			Index: b.index, Cause: fmt.Sprintf("the file is missing, but entry %d names it", uint64(b.index))}
	}
	return &segment.CorruptError{Path: r.l.segPath(b.batch.Segment), Group: r.l.group, At: b.batch, Index: b.index,
		Cause: fmt.Sprintf("entry %d names body %v, which is not here", uint64(b.index), b.commit.Ref)}
}

func (r *recovery) checkLarge(b lost) error {
	l := r.l
	if b.index <= l.snap.Index || l.voids.has(b.commit.Ref) {
		return nil
	}
	err := checkBodyFile(l.fs, l.dir, l.group, b.commit)
	if errors.Is(err, iofs.ErrNotExist) {
		return r.missingBody(b)
	}
	return err
}

// sealedLarges names and checks the large bodies of the live entries of a sealed segment.
func (r *recovery) sealedLarges(s *seg) error {
	l := r.l
	h, err := l.acquire(s)
	if err != nil {
		return err
	}
	defer l.release(h)
	return walk(h.f, s.file, extent{segment.FirstBatch, s.footer.Pos}, func(rec segment.Record) (bool, error) {
		if rec.Kind != segment.KindEntry {
			return true, nil
		}
		e, err := segment.ParseEntry(rec.Body)
		if err != nil || e.Type != segment.EntryNormal || e.Index < s.lo || e.Index >= s.hi ||
			rec.Pos < s.after(e.Index) {
			return err == nil, err
		}
		return true, segment.EachCommit(e.Data, func(c segment.Commit) error {
			if !c.Large {
				return nil
			}
			if b := l.large[c.Ref]; b != nil {
				b.index = max(b.index, e.Index)
			}
			at := segment.Position{Segment: s.file.Segment, Pos: rec.Pos}
			return r.checkLarge(lost{e.Index, c, at})
		})
	})
}
