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

// Finding is one thing that is not as it should be.
type Finding struct {
	Group   segment.GroupID // 0 for a file of the node
	Path    string
	Pos     int64
	Verdict segment.Verdict // Torn, Corrupt, UnknownVersion or Unreadable
	// Survived: the store opens all the same and nothing is lost, because a second copy is whole, the end
	// was never confirmed as flushed, or the file is none of the store's.
	Survived bool
	Err      error
}

// Verified counts what was read and found.
type Verified struct {
	Groups   int
	Files    int
	Records  int64 // of segments
	Bytes    int64 // read and verified
	Damaged  int   // findings that are not survived
	Survived int   // findings that are
}

// findingsMax bounds the findings kept of one group.
const findingsMax = 1000

// VerifyStore reads everything in the data directory dir, payloads included, and reports what is not
// as it should be. The error is one of the looking itself; damage is only in the findings.
func VerifyStore(fs fsync.FS, dir string, report func(Finding)) (Verified, error) {
	var sum Verified
	in, err := InspectStore(fs, dir)
	if errors.Is(err, ErrNotStore) || err != nil && len(in.Groups) == 0 && !isCorrupt(err) && !isVersion(err) {
		return sum, err
	}
	if err != nil {
		sum.note(finding(0, dir, err), report)
	}
	for _, name := range []string{diskName, incarnationName} {
		if err == nil {
			verifyNode(fs, in.Dir, name, &sum, report)
		}
	}
	for _, g := range in.Groups {
		one, err := VerifyGroup(fs, in.Dir, g, report)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return sum, err
		}
		sum.Groups++
		sum.add(one)
	}
	return sum, nil
}

func verifyNode(fs fsync.FS, dir, name string, sum *Verified, report func(Finding)) {
	t := headDisk
	if name == incarnationName {
		t = headIncarnation
	}
	sum.Files++
	_, repaired, err := loadNode(fs, dir, name, t, 16)
	switch {
	case err != nil:
		sum.note(finding(0, filepath.Join(dir, name), err), report)
	case repaired:
		sum.note(oneCopy(0, filepath.Join(dir, name), 0), report)
	}
}

func (v *Verified) add(w Verified) {
	v.Files += w.Files
	v.Records += w.Records
	v.Bytes += w.Bytes
	v.Damaged += w.Damaged
	v.Survived += w.Survived
}

func (v *Verified) note(f Finding, report func(Finding)) {
	if f.Survived {
		v.Survived++
	} else {
		v.Damaged++
	}
	report(f)
}

// finding makes a Finding of an error.
func finding(g segment.GroupID, path string, err error) Finding {
	f := Finding{Group: g, Path: path, Verdict: segment.Unreadable, Err: err}
	if c, ok := errors.AsType[*segment.CorruptError](err); ok {
		f.Verdict, f.Pos = segment.Corrupt, c.At.Pos
		if c.Path != "" {
			f.Path = c.Path
		}
	}
	if v, ok := errors.AsType[*segment.VersionError](err); ok {
		f.Verdict, f.Pos = segment.UnknownVersion, v.At.Pos
		if v.Path != "" {
			f.Path = v.Path
		}
	}
	return f
}

func oneCopy(g segment.GroupID, path string, pos int64) Finding {
	return Finding{Group: g, Path: path, Pos: pos, Verdict: segment.Corrupt, Survived: true, Err: fmt.Errorf(
		"wal: %s: one of its copies is damaged, another is whole; the next start writes it anew", path)}
}

// VerifyGroup is VerifyStore for one group.
func VerifyGroup(fs fsync.FS, dir string, g segment.GroupID, report func(Finding)) (Verified, error) {
	var x *verifier
	err := settled(func() error {
		x = &verifier{}
		v, err := viewGroup(fs, dir, g)
		if isCorrupt(err) || isVersion(err) {
			x.found = append(x.found, finding(g, filepath.Join(dir, groupsName, groupName(g), manifestName), err))
			return err
		}
		if err != nil {
			return err
		}
		x.groupView = v
		x.run()
		return x.worst()
	})
	if err != nil && len(x.found) == 0 {
		return x.sum, err
	}
	for _, f := range x.found {
		x.sum.note(f, report)
	}
	return x.sum, nil
}

// verifier reads one group.
type verifier struct {
	*groupView
	found []Finding
	sum   Verified

	snap    segment.Index // newest snapshot
	fresh   map[segment.BodyRef]segment.Commit
	here    refSet // inline bodies that stand in the segments
	voids   refSet
	missing []lost // inline bodies that are named and not here
	larges  []lost
}

// worst is the damage that looking again may explain.
func (x *verifier) worst() error {
	for _, f := range x.found {
		if !f.Survived && isCorrupt(f.Err) {
			return f.Err
		}
	}
	return nil
}

func (x *verifier) note(path string, err error) {
	if err != nil && len(x.found) < findingsMax {
		x.found = append(x.found, finding(x.g, path, err))
	}
}

func (x *verifier) run() {
	x.fresh = map[segment.BodyRef]segment.Commit{}
	if n := len(x.man.Snapshots); n > 0 {
		x.snap = x.man.Snapshots[n-1].Mark.Index
	}
	x.small()
	x.sealed()
	end, err := x.recoverOpen(x.record)
	x.note(x.dir, err)
	if err == nil && end.Verdict == segment.Torn {
		path := x.path(segmentName(end.At.Segment))
		x.found = append(x.found, Finding{
			Group: x.g, Path: path, Pos: end.At.Pos, Verdict: segment.Torn, Survived: true,
			Err: fmt.Errorf("wal: %s: the log ends at byte %d with an unfinished batch, as a crash leaves it or a running "+
				"node writes it; nothing behind was confirmed as flushed", path, end.At.Pos),
		})
	}
	x.bodies()
	x.snapshots()
	for _, name := range x.list.unknown {
		x.found = append(x.found, Finding{
			Group: x.g, Path: x.path(name), Verdict: segment.Valid, Survived: true,
			Err: fmt.Errorf("wal: %s is no file of the store; the next start moves it aside", x.path(name)),
		})
	}
}

// small reads manifest and hard state.
func (x *verifier) small() {
	x.sum.Files += 2
	if x.oneCopy {
		x.found = append(x.found, oneCopy(x.g, x.path(manifestName), 0))
	}
	h, err := loadHardState(x.fs, x.dir, x.g)
	if isAbsent(err) {
		err = corruptAt(x.path(hardStateName), x.g, 0, "the hard state is missing")
	}
	x.note(x.path(hardStateName), err)
	if err == nil && h.repaired {
		x.found = append(x.found, oneCopy(x.g, x.path(hardStateName), 0))
	}
}

// sealed reads the sealed segments, batch by batch.
func (x *verifier) sealed() {
	chain := x.man.Dropped.Chain
	for i := range x.man.Segments {
		s := &x.man.Segments[i]
		x.sum.Files++
		if s.State != segSealed {
			continue
		}
		f, size, _, err := x.openSegmentFile(s)
		if err == nil {
			err = joinClose(x.sealedOne(f, size, s, chain), f)
		}
		path := x.path(segmentName(s.Number))
		x.note(path, withPath(err, path))
		chain = s.Chain
	}
}

func (x *verifier) sealedOne(f io.ReaderAt, size int64, s *segInfo, chain segment.Chain) error {
	limit := min(size, s.FooterPos)
	batch := func(b *segment.Batch) error {
		if b.Chain != chain {
			return x.segCorrupt(s, b.Pos, "the chain is broken")
		}
		chain = b.Next
		for _, row := range b.Rows {
			if err := x.record(s.Number, row, b.Record(row)); err != nil {
				return err
			}
		}
		return nil
	}
	end, after, err := segment.EachBatch(f, limit, x.segFile(s), segment.FirstBatch, batch)
	switch {
	case err != nil:
		return err
	case s.Size < s.FooterPos || size < s.Size:
		return x.segCorrupt(s, size, "the file is shorter than when it was sealed")
	case end != s.FooterPos || after != s.Chain && end > segment.FirstBatch:
		return x.segCorrupt(s, end, "the batches do not end where the footer begins")
	}
	if err := x.footer(f, s); err != nil {
		return err
	}
	return x.behindFooter(f, s, size)
}

func (x *verifier) footer(f io.ReaderAt, s *segInfo) error {
	buf := make([]byte, s.Size-s.FooterPos)
	if n, err := f.ReadAt(buf, s.FooterPos); n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			err = x.segCorrupt(s, s.FooterPos, "the file ends inside its footer")
		}
		return err
	}
	t, _, err := segment.ParseFooter(buf, x.segFile(s), s.FooterPos)
	if err != nil {
		return err
	}
	if t.Chain != s.Chain || t.Pos+t.Size != s.Size {
		return x.segCorrupt(s, s.FooterPos, "the footer is not that of the sealing that the manifest records")
	}
	return nil
}

// behindFooter sees that a sealed file has only zeros behind its footer. Nothing reads there.
func (x *verifier) behindFooter(f io.ReaderAt, s *segInfo, size int64) error {
	buf := make([]byte, segment.BatchMax)
	for pos := s.Size; pos < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-pos)], pos)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !zeros(buf[:n]) {
			one := finding(x.g, "", x.segCorrupt(s, pos, "something stands behind the footer"))
			one.Survived = true
			x.found = append(x.found, one)
			return nil
		}
		if n == 0 {
			return nil
		}
		pos += int64(n)
	}
	return nil
}
