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
			return &segment.CorruptError{
				Path: l.segPath(n), Group: l.group,
				At:    segment.Position{Segment: n, Pos: pos},
				Cause: "a batch stands in a segment that the manifest does not name: the manifest is older than the log",
			}
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
