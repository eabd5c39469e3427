package wal

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"weida/fsync"
	"weida/segment"
)

const (
	groupsName     = "groups"
	controlName    = "control"
	quarantineName = "quarantine"

	asideBytes   = 256 << 10 // of the buffer a file is copied through
	asideNameMax = 180       // of a file's own name, in bytes: the new name must stay below 255
)

// Kinds of events a store emits.
const (
	EventQuarantined  = "quarantined"   // an unknown file was moved aside
	EventCopyRepaired = "copy_repaired" // one of two copies was damaged and is written anew
	EventLeftAlone    = "left_alone"    // something unknown that is no file; it is not touched
	EventRemoved      = "removed"       // what an interrupted creation or deletion left was removed
)

// quarantine moves the unknown file name out of the group's directory dir, which lies in a data
// directory, to <data>/quarantine/<group>-<name>-<n>. It is durable when it returns. Nothing is
// deleted: the file is copied, the copy flushed with its name, and only then the original goes. Where
// there is no room for a copy, or the file can't be read, it is renamed, which a file system with a
// journal does as one step.
func quarantine(fs fsync.FS, dir, name, why string, ev func(Event)) error {
	data, group := filepath.Dir(filepath.Dir(dir)), filepath.Base(dir)
	id, err := strconv.ParseUint(group, 10, 64)
	if err != nil {
		panic("bug: wal: quarantine outside a group's directory: " + dir)
	}
	return moveAside(fs, data, dir, name, group, why, segment.GroupID(id), ev)
}

func moveAside(fs fsync.FS, data, dir, name, prefix, why string, g segment.GroupID, ev func(Event)) error {
	from := filepath.Join(dir, name)
	to, err := asidePath(fs, data, prefix, name)
	if err == nil {
		err = carryAside(fs, from, to)
	}
	if err == nil {
		err = syncDirs(fs, dir)
	}
	if err != nil {
		return fmt.Errorf("wal: move the unknown file %s aside: %w; nothing of it is used or lost; "+
			"move it away by hand", from, err)
	}
	if ev != nil {
		ev(Event{Kind: EventQuarantined, Group: g, Path: from, Detail: why + "; moved to " + to})
	}
	return nil
}

// carryAside copies the file or, where that does not work, renames it.
func carryAside(fs fsync.FS, from, to string) error {
	err := copyAside(fs, from, to)
	if err == nil || isAbsent(err) {
		return err
	}
	if cause := renameAside(fs, from, to); cause != nil {
		return errors.Join(err, cause)
	}
	return nil
}

// asidePath finds a name that is not taken, making the directory if it is gone.
func asidePath(fs fsync.FS, data, prefix, name string) (string, error) {
	dir := filepath.Join(data, quarantineName)
	list, err := fs.List(dir)
	if isAbsent(err) {
		err = fsync.MkdirAll(fs, dir)
	}
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool, len(list))
	for _, e := range list {
		taken[strings.TrimSuffix(e.Name, tmpSuffix)] = true
	}
	base := prefix + "-" + name[:min(len(name), asideNameMax)] + "-"
	for n := 1; ; n++ {
		if to := base + strconv.Itoa(n); !taken[to] {
			return filepath.Join(dir, to), nil
		}
	}
}

// copyAside copies a file and removes the original. The removal is not flushed yet.
func copyAside(fs fsync.FS, from, to string) error {
	tmp := to + tmpSuffix
	if err := copyFile(fs, from, tmp); err != nil {
		if rerr := fs.Remove(tmp); rerr != nil && !errors.Is(rerr, iofs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	if err := fs.Rename(tmp, to); err != nil {
		return err
	}
	if err := syncDirs(fs, filepath.Dir(to)); err != nil {
		return err
	}
	return fs.Remove(from)
}

func copyFile(fs fsync.FS, from, to string) (err error) {
	src, err := fs.Open(from, fsync.ReadOnly)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, src) }()
	dst, err := fs.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, dst) }()
	buf := make([]byte, asideBytes)
	for pos := int64(0); ; {
		n, rerr := src.ReadAt(buf, pos)
		if n > 0 {
			if _, err := dst.WriteAt(buf[:n], pos); err != nil {
				return err
			}
			pos += int64(n)
		}
		if errors.Is(rerr, io.EOF) {
			return dst.Sync()
		}
		if rerr != nil {
			return rerr
		}
	}
}

// renameAside moves a file without copying it: the new name is flushed before the loss of the old one.
func renameAside(fs fsync.FS, from, to string) error {
	if err := fs.Rename(from, to); err != nil {
		return err
	}
	return syncDirs(fs, filepath.Dir(to))
}

// syncDirs makes the entries of directories durable, one after the other. For start-up and shutdown,
// when no flush round runs.
func syncDirs(fs fsync.FS, dirs ...string) error {
	for _, dir := range dirs {
		d, err := fs.OpenDir(dir)
		if err != nil {
			return err
		}
		if err := joinClose(d.Sync(), d); err != nil {
			return err
		}
	}
	return nil
}
