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
		if b.index <= l.snap.Index {
			continue
		}
		if copied, err := l.holderLocked(b.commit.Ref); err != nil {
			return err
		} else if copied == nil {
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
		return &segment.CorruptError{
			Path: filepath.Join(r.l.dir, bodyName(b.commit.Ref)), Group: r.l.group,
			Index: b.index, Cause: fmt.Sprintf("the file is missing, but entry %d names it", uint64(b.index)),
		}
	}
	return &segment.CorruptError{
		Path: r.l.segPath(b.batch.Segment), Group: r.l.group, At: b.batch, Index: b.index,
		Cause: fmt.Sprintf("entry %d names body %v, which is not here", uint64(b.index), b.commit.Ref),
	}
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
