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

// This file and the inspect….go beside it look at a data directory from outside: without its lock,
// without changing anything, and also while a node runs on it. What they say about the end of a log
// is what a start after a power cut would say at that moment.

// Inspection is what a data directory says about itself.
type Inspection struct {
	Dir      string
	Identity Identity          // CleanStop: the marker of an orderly stop is there
	Held     []segment.GroupID // groups that the marker does not speak for
	Groups   []segment.GroupID // in order
	Asides   []Aside           // what is left of replicas that were given up
	Left     []string          // names in groups/ of interrupted creations and deletions, and unknown ones
}

// InspectStore reads the identity of the data directory dir and lists its groups. A directory that is
// none is ErrNotStore; damage of the identity is *segment.CorruptError or *segment.VersionError, and
// then the groups are listed all the same.
func InspectStore(fs fsync.FS, dir string) (Inspection, error) {
	dir = filepath.Clean(dir)
	in := Inspection{Dir: dir}
	top, err := fs.List(dir)
	if err != nil {
		return in, fmt.Errorf("wal: inspect %s: %w", dir, err)
	}
	if !hasName(top, groupsName) || !hasName(top, diskName) && !hasName(top, incarnationName) {
		return in, fmt.Errorf("wal: inspect %s: %w; give the directory that holds %s/ and the file %s",
			dir, ErrNotStore, groupsName, diskName)
	}
	list, err := fs.List(filepath.Join(dir, groupsName))
	if err != nil {
		return in, fmt.Errorf("wal: inspect %s: %w", dir, err)
	}
	for _, e := range list {
		if g, ok := parseGroupName(e.Name); ok && e.Kind == fsync.Directory {
			in.Groups = append(in.Groups, g)
		} else if a, ok := parseAsideName(e.Name); ok && e.Kind == fsync.Directory {
			in.Asides = append(in.Asides, a)
		} else {
			in.Left = append(in.Left, e.Name)
		}
	}
	sortGroups(in.Groups)
	id, held, _, err := readIdentity(fs, dir)
	if err != nil {
		return in, err
	}
	in.Identity, in.Held = id, held
	return in, nil
}

// groupView is one look at a group's directory.
type groupView struct {
	fs   fsync.FS
	dir  string
	g    segment.GroupID
	list dirList
	man  manifest
	// oneCopy: one of the manifest's two copies is damaged.
	oneCopy bool
}

// viewGroup reads what names the files of a group.
func viewGroup(fs fsync.FS, data string, g segment.GroupID) (v *groupView, err error) {
	v = &groupView{fs: fs, dir: filepath.Join(data, groupsName, groupName(g)), g: g}
	if v.list, err = listDir(fs, v.dir); err != nil {
		return nil, err
	}
	v.man, v.oneCopy, err = loadManifest(fs, v.dir, g)
	if isAbsent(err) {
		err = corruptAt(v.path(manifestName), g, 0, "the manifest is missing")
	}
	return v, err
}

func (v *groupView) path(name string) string { return filepath.Join(v.dir, name) }

// lookTries is how often a group is looked at before damage is believed: a running node may have dropped
// a file, or have been in the middle of a batch, between two reads.
const lookTries = 3

// settled runs look until it finds no damage, lookTries times at most.
func settled(look func() error) error {
	for try := 1; ; try++ {
		err := look()
		if try == lookTries || !isCorrupt(err) {
			return err
		}
	}
}

// openSegmentFile opens a segment that the manifest names and verifies its header.
func (v *groupView) openSegmentFile(s *segInfo) (f fsync.File, size int64, h segment.Header, err error) {
	path := v.path(segmentName(s.Number))
	f, err = v.fs.Open(path, fsync.ReadOnly)
	if isAbsent(err) {
		return nil, 0, h, v.segCorrupt(s, 0, "the file is missing, but the manifest names it")
	}
	if err != nil {
		return nil, 0, h, err
	}
	if size, err = f.Size(); err == nil {
		h, err = v.segmentHead(f, s)
	}
	if err != nil {
		return nil, 0, h, joinClose(withPath(err, path), f)
	}
	return f, size, h, nil
}

func (v *groupView) segmentHead(f fsync.File, s *segInfo) (segment.Header, error) {
	head := make([]byte, segment.FirstBatch)
	if n, err := f.ReadAt(head, 0); n < len(head) {
		if err == nil || errors.Is(err, io.EOF) {
			err = v.segCorrupt(s, int64(n), "the file ends inside its header")
		}
		return segment.Header{}, err
	}
	salt, h, err := segment.ParseHeader(head, v.g, s.Number)
	if err == nil && salt != s.Salt {
		err = v.segCorrupt(s, 0, "it is not the segment that the manifest names")
	}
	return h, err
}

func (v *groupView) segCorrupt(s *segInfo, pos int64, cause string) error {
	return &segment.CorruptError{
		Path: v.path(segmentName(s.Number)), Group: v.g,
		At: segment.Position{Segment: s.Number, Pos: pos}, Cause: cause,
	}
}

func (v *groupView) segFile(s *segInfo) segment.File {
	return segment.File{Group: v.g, Segment: s.Number, Salt: s.Salt}
}

// recoverOpen reads the segments that are not sealed, as a start after a power cut would.
func (v *groupView) recoverOpen(visit func(segment.Number, segment.Row, segment.Record) error) (
	end segment.End, err error,
) {
	known := segment.Known{Chain: v.man.Dropped.Chain, Promise: v.man.Promise}
	var files []fsync.File
	defer func() {
		for _, f := range files {
			err = joinClose(err, f)
		}
	}()
	var parts []segment.Part
	for i := range v.man.Segments {
		s := &v.man.Segments[i]
		if s.State == segSealed {
			known.Chain = s.Chain
			continue
		}
		f, size, _, err := v.openSegmentFile(s)
		if err != nil {
			return end, err
		}
		files = append(files, f)
		parts = append(parts, segment.Part{
			File: v.segFile(s), R: f, Size: size, Start: segment.FirstBatch, Limit: s.Limit,
		})
	}
	if len(parts) == 0 {
		return segment.End{Chain: known.Chain, Promise: known.Promise}, nil
	}
	end = segment.Recover(parts, known, visit)
	if end.Err != nil {
		return end, withPath(end.Err, v.path(segmentName(end.At.Segment)))
	}
	return end, nil
}

// GroupStat counts what one group has on the disk.
type GroupStat struct {
	Group      segment.GroupID
	HardState  HardState
	First      segment.Index // of the first entry in the log; 0 if it holds none
	Last       segment.Index // of the last entry
	Commit     segment.Index // greatest commit hint in the open segments
	Dropped    Mark          // last entry that was trimmed away
	Snapshot   Mark          // newest one named by the manifest
	Segments   int
	Sealed     int
	Snapshots  int
	Bodies     int   // large ones, in files of their own
	BodyBytes  int64 // sizes of those files
	Bytes      int64 // sizes of all files
	Allocated  int64 // on the disk
	Unfinished int64 // bytes behind the end of the log that are not zero, as a crash leaves them; 0 if none
	// Err is why the group can't be opened; what is zero above is then not known.
	Err error
}

// StoreStat is what StatStore finds.
type StoreStat struct {
	Inspection
	Groups []GroupStat
}

// StatStore counts what a data directory holds. Groups that are damaged say so in their Err.
func StatStore(fs fsync.FS, dir string) (StoreStat, error) {
	in, err := InspectStore(fs, dir)
	if err != nil {
		return StoreStat{Inspection: in}, err
	}
	st := StoreStat{Inspection: in}
	for _, g := range in.Groups {
		one, err := StatGroup(fs, dir, g)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // removed meanwhile
		}
		one.Err = err
		st.Groups = append(st.Groups, one)
	}
	return st, nil
}

// StatGroup is StatStore for one group.
func StatGroup(fs fsync.FS, dir string, g segment.GroupID) (st GroupStat, err error) {
	err = settled(func() error {
		v, err := viewGroup(fs, dir, g)
		if err == nil {
			st, err = v.stat()
		}
		return err
	})
	st.Group = g
	return st, err
}

func (v *groupView) stat() (st GroupStat, err error) {
	st = GroupStat{Group: v.g, Dropped: v.man.Dropped.Upto, Segments: len(v.man.Segments)}
	st.Snapshots, st.Bodies = len(v.man.Snapshots), len(v.list.refs)
	if n := len(v.man.Snapshots); n > 0 {
		st.Snapshot = v.man.Snapshots[n-1].Mark
	}
	entries, err := v.fs.List(v.dir)
	if err != nil {
		return st, err
	}
	for _, e := range entries {
		st.Bytes += e.Size
		st.Allocated += e.Allocated
	}
	for _, n := range v.list.bodies {
		st.BodyBytes += n
	}
	h, err := loadHardState(v.fs, v.dir, v.g)
	if err != nil {
		return st, err
	}
	st.HardState = h.State()
	for i := range v.man.Segments {
		if s := &v.man.Segments[i]; s.State == segSealed {
			st.Sealed++
			st.Last = s.Last.Index
		}
	}
	end, err := v.recoverOpen(func(_ segment.Number, row segment.Row, _ segment.Record) error {
		switch row.Kind {
		case segment.KindEntry:
			st.Last = row.Index
		case segment.KindTruncate:
			st.Last = row.Index - 1
		default: // the payload store
		}
		return nil
	})
	if err != nil {
		return st, err
	}
	st.Commit = end.Commit
	if st.Last > st.Dropped.Index {
		st.First = st.Dropped.Index + 1
	}
	st.Unfinished = v.behind(end)
	return st, nil
}

// behind counts the bytes from the end of the log to the last one that is not zero, in the segment
// where the log ends, if that is an unfinished batch.
func (v *groupView) behind(end segment.End) int64 {
	if end.Verdict != segment.Torn {
		return 0
	}
	f, err := v.fs.Open(v.path(segmentName(end.At.Segment)), fsync.ReadOnly)
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // only read
	buf := make([]byte, segment.BatchMax)
	n, err := f.ReadAt(buf, end.At.Pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	for n > 0 && buf[n-1] == 0 {
		n--
	}
	return int64(n)
}
