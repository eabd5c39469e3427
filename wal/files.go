package wal

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"weida/fsync"
	"weida/segment"
)

// The names of the files of a group's directory. Every name is built from numbers: nothing that came
// over the wire ever becomes one.
const (
	manifestName  = "manifest"
	hardStateName = "hardstate"

	segmentSuffix  = ".seg"
	bodySuffix     = ".body"
	snapshotSuffix = ".snap"
	tmpSuffix      = ".tmp" // not yet given its name: belongs to an operation that a crash ended
)

// blockBytes is the unit of separation between two copies of the same fact: damage to one block of
// the disk leaves the other copy whole.
const blockBytes = 4096

func segmentName(n segment.Number) string { return fmt.Sprintf("%08d%s", uint64(n), segmentSuffix) }

func bodyName(r segment.BodyRef) string {
	return fmt.Sprintf("%016x-%016x%s", uint64(r.Term), r.Seq, bodySuffix)
}

func snapshotName(i segment.Index) string { return fmt.Sprintf("%020d%s", uint64(i), snapshotSuffix) }

// parseSegmentName is the inverse of segmentName; ok is false for every other name.
func parseSegmentName(name string) (n segment.Number, ok bool) {
	v, ok := parseName(name, segmentSuffix, 10)
	n = segment.Number(v)
	return n, ok && n > 0 && segmentName(n) == name
}

// parseBodyName is the inverse of bodyName.
func parseBodyName(name string) (r segment.BodyRef, ok bool) {
	term, rest, ok := strings.Cut(name, "-")
	if !ok {
		return segment.BodyRef{}, false
	}
	t, okTerm := parseName(term, "", 16)
	s, okSeq := parseName(rest, bodySuffix, 16)
	r = segment.BodyRef{Term: segment.Term(t), Seq: s}
	return r, okTerm && okSeq && bodyName(r) == name
}

// parseSnapshotName is the inverse of snapshotName.
func parseSnapshotName(name string) (i segment.Index, ok bool) {
	v, ok := parseName(name, snapshotSuffix, 10)
	i = segment.Index(v)
	return i, ok && snapshotName(i) == name
}

func parseName(name, suffix string, base int) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, base, 64)
	return v, err == nil
}

// isOurTmp reports whether name is what an interrupted operation of this package leaves in a group's
// directory. Such a file was never used, so removing it loses nothing.
func isOurTmp(name string) bool {
	base, ok := strings.CutSuffix(name, tmpSuffix)
	if !ok {
		return false
	}
	_, snapshot := parseSnapshotName(base)
	_, body := parseBodyName(base)
	return base == manifestName || base == hardStateName || snapshot || body
}

// replaceFile makes dir/name hold data: a temporary file, flushed, then renamed, then the directory
// flushed. After a crash at any moment the name holds either its old content or all of data. It
// blocks on flush rounds.
//
// After an error that is not harmless the caller can't know which of the two a restart will find, and
// must not act on either before then.
func replaceFile(fs fsync.FS, fl *fsync.Flusher, dir, name string, data []byte) error {
	tmp := filepath.Join(dir, name+tmpSuffix)
	if err := removeIfThere(fs, tmp); err != nil {
		return err
	}
	if err := writeFlushed(fs, fl, tmp, data); err != nil {
		if harmless(err) {
			// The fragment would keep the space that the retry needs.
			err = errors.Join(err, removeIfThere(fs, tmp))
		}
		return err
	}
	return renameFlushed(fs, fl, dir, name+tmpSuffix, name)
}

// renameFlushed gives a file or directory in dir another name and flushes that. Once the name has
// changed every error is errHalfway, because nobody can say which name a power cut would leave.
func renameFlushed(fs fsync.FS, fl *fsync.Flusher, dir, from, to string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := fs.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		return joinClose(err, d)
	}
	if err := joinClose(flush(fl, dir, d), d); err != nil {
		return fmt.Errorf("%w: %w", errHalfway, err)
	}
	return nil
}

// writeFlushed makes the new file name hold data, flushed; its directory entry is not.
func writeFlushed(fs fsync.FS, fl *fsync.Flusher, name string, data []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = flush(fl, name, f)
	}
	return errors.Join(err, f.Close())
}

// flush makes syncers durable in a flush round. Every error but fsync.ErrClosed is fsync.ErrPoisoned:
// what was written since the last flush is in doubt, even where the disk said that it was full.
func flush(fl *fsync.Flusher, name string, s ...fsync.Syncer) error {
	err := fl.Flush(name, s...)
	if err == nil || errors.Is(err, fsync.ErrPoisoned) || errors.Is(err, fsync.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", fsync.ErrPoisoned, err)
}

// flushDir makes the entries of dir durable in a flush round.
func flushDir(fs fsync.FS, fl *fsync.Flusher, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(flush(fl, dir, d), d.Close())
}

func removeIfThere(fs fsync.FS, name string) error {
	if err := fs.Remove(name); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// isAbsent reports whether err says that a name does not exist.
func isAbsent(err error) bool { return errors.Is(err, iofs.ErrNotExist) }
