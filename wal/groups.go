package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weida/fsync"
	"weida/segment"
)

// goneSuffix marks a group's directory whose deletion was begun.
const goneSuffix = ".gone"

// groupName is the name of a group's directory.
func groupName(g segment.GroupID) string { return strconv.FormatUint(uint64(g), 10) }

// parseGroupName is the inverse of groupName.
func parseGroupName(name string) (segment.GroupID, bool) {
	v, err := strconv.ParseUint(name, 10, 64)
	g := segment.GroupID(v)
	return g, err == nil && g != 0 && groupName(g) == name
}

// createGroup builds the group's directory under a temporary name, with an empty manifest and a zero
// hard state, everything flushed, and then gives it its name. So a group's directory without a
// manifest is never an unfinished one: it is damage.
func (s *Store) createGroup(g segment.GroupID) error {
	dir := s.groupDir(g)
	tmp := dir + newSuffix
	err := s.removeTree(tmp) // of an attempt that met a full disk
	if err == nil {
		err = s.fs.Mkdir(tmp)
	}
	if err == nil {
		err = s.fillGroup(tmp, g)
	}
	if err == nil {
		err = renameFlushed(s.fs, s.o.Flusher, filepath.Dir(dir), filepath.Base(tmp), filepath.Base(dir))
	}
	if err != nil && !errors.Is(err, errHalfway) {
		return errors.Join(err, s.removeTree(tmp))
	}
	// It may be found after a crash, so it is known, flushed or not.
	s.mu.Lock()
	s.known[g] = true
	s.mu.Unlock()
	return err
}

// fillGroup writes the files of a new group and flushes them together with their names.
func (s *Store) fillGroup(dir string, g segment.GroupID) (err error) {
	var targets []fsync.Syncer
	write := func(name string, data []byte) error {
		f, err := s.fs.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		targets = append(targets, f)
		_, err = f.WriteAt(data, 0)
		return err
	}
	d, err := s.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	targets = append(targets, d)
	m := manifest{Seq: 1, Next: 1}
	err = write(manifestName, encodeTwin(plainFile(g, segment.KindManifest), segment.KindManifest, encodeManifest(&m)))
	if err == nil {
		err = write(hardStateName, firstHardState(g))
	}
	if err == nil {
		err = flush(s.o.Flusher, dir, targets...)
	}
	for _, t := range targets {
		if c, ok := t.(interface{ Close() error }); ok {
			err = joinClose(err, c)
		}
	}
	return err
}

// removeGroup is RemoveLog once the group is reserved.
func (s *Store) removeGroup(g segment.GroupID) error {
	dir := s.groupDir(g)
	gone := dir + goneSuffix
	if err := s.removeTree(gone); err != nil {
		return err
	}
	err := renameFlushed(s.fs, s.o.Flusher, filepath.Dir(dir), filepath.Base(dir), filepath.Base(gone))
	if err != nil && !errors.Is(err, errHalfway) {
		return err
	}
	s.mu.Lock()
	delete(s.known, g)
	delete(s.held, g)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.removeTree(gone)
}

// removeTree removes a directory of files, if it is there. What is no regular file is none of ours: it
// stays, with the directory, and is reported. The removals are not flushed: what comes back is removed
// again.
func (s *Store) removeTree(dir string) error {
	list, err := s.fs.List(dir)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	left := false
	for _, e := range list {
		if e.Kind != fsync.Regular {
			left = true
			s.leftAlone(filepath.Join(dir, e.Name))
		} else if err := s.fs.Remove(filepath.Join(dir, e.Name)); err != nil {
			return err
		}
	}
	if left {
		return nil
	}
	return s.fs.Remove(dir)
}

func (s *Store) leftAlone(path string) {
	s.o.Event(Event{Kind: EventLeftAlone, Path: path, Detail: "unknown, and no regular file; it is not used"})
}

// tidyTop looks through the data directory: what an interrupted operation left is removed, unknown
// files are moved aside.
func (s *Store) tidyTop() error {
	list, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("wal: open %s: %w", s.dir, err)
	}
	if !hasName(list, groupsName) {
		return fmt.Errorf("wal: open %s: %w; no group was opened", s.dir,
			corruptAt(filepath.Join(s.dir, groupsName), 0, 0, "the directory is missing"))
	}
	ours := slices.Concat(nodeFiles, foreignNames, s.o.Keep, []string{groupsName, controlName, quarantineName})
	for _, e := range list {
		base, isTmp := strings.CutSuffix(e.Name, tmpSuffix)
		switch {
		case slices.Contains(ours, e.Name):
		case isTmp && slices.Contains(nodeFiles, base) && e.Kind == fsync.Regular:
			if err := s.removeLeft(filepath.Join(s.dir, e.Name), 0); err != nil {
				return err
			}
		default:
			if err := s.putAside(s.dir, e, "node"); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidyGroups looks through the directory of groups: deletions that were begun are completed, unfinished
// creations removed, unknown files moved aside.
func (s *Store) tidyGroups() error {
	dir := filepath.Join(s.dir, groupsName)
	list, err := s.fs.List(dir)
	if err != nil {
		return fmt.Errorf("wal: open %s: %w", dir, err)
	}
	for _, e := range list {
		base, isNew := strings.CutSuffix(e.Name, newSuffix)
		rest, isGone := strings.CutSuffix(base, goneSuffix)
		g, ok := parseGroupName(rest)
		aside, isAside := parseAsideName(e.Name)
		switch {
		case isAside && e.Kind == fsync.Directory:
			s.asides[aside] = true
		case e.Kind != fsync.Directory || !ok || isNew && isGone:
			err = s.putAside(dir, e, groupsName)
		case isNew || isGone:
			err = s.removeLeft(filepath.Join(dir, e.Name), g)
		default:
			s.known[g] = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeLeft removes what an interrupted operation of this package left.
func (s *Store) removeLeft(path string, g segment.GroupID) error {
	remove := s.fs.Remove
	if g != 0 {
		remove = s.removeTree
	}
	err := remove(path)
	if err != nil {
		return fmt.Errorf("wal: open %s: remove what an interrupted operation left: %w", s.dir, err)
	}
	s.o.Event(Event{Kind: EventRemoved, Group: g, Path: path})
	return nil
}

// putAside deals with an unknown name in dir: a file is moved aside, anything else is reported and not
// touched, for it can't be mistaken for a file of ours.
func (s *Store) putAside(dir string, e fsync.Entry, prefix string) error {
	if e.Kind == fsync.Regular {
		return moveAside(s.fs, s.dir, dir, e.Name, prefix, "unknown file", 0, s.o.Event)
	}
	s.leftAlone(filepath.Join(dir, e.Name))
	return nil
}

func sortGroups(list []segment.GroupID) { slices.Sort(list) }
