package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strings"

	"weida/fsync"
)

// ErrNotStore means that a directory holds files but is no weida data directory.
var ErrNotStore = errors.New("not a weida data directory")

// ErrInUse means that another process has the data directory open. It comes with fsync.ErrLocked.
var ErrInUse = errors.New("the data directory is in use")

// newSuffix marks a directory that is being built.
const newSuffix = ".new"

// foreignNames may lie in a data directory without being the store's: other parts of the node put them
// there, or mkfs does. They are left alone.
var foreignNames = []string{"node.key", "node.crt", "lost+found"}

// nodeFiles are the regular files of the store in a data directory, besides the marks of a running
// process.
var nodeFiles = []string{lockName, diskName, incarnationName, cleanName}

// InitStore makes dir a data directory unless it is one. OpenStore does it too; a caller that needs a
// descriptor of the directory for its Flusher calls InitStore before.
//
// An absent directory is built beside its place, as <dir>.new, flushed, renamed and its parent
// flushed. An empty one is filled in place, because it may be a mount point: the file disk comes
// last. Either way a crash in between is recognised and the building begins again; nothing was
// promised yet. A directory with other content is ErrNotStore and is not touched. rand is
// crypto/rand.Reader if nil.
func InitStore(fs fsync.FS, dir string, random io.Reader) error {
	if random == nil {
		random = rand.Reader
	}
	dir = filepath.Clean(dir)
	list, err := fs.List(dir)
	switch {
	case isAbsent(err):
		return buildBeside(fs, dir, random)
	case err != nil:
		return fmt.Errorf("wal: open %s: %w", dir, err)
	case hasName(list, diskName):
		return nil
	}
	if err := checkUnfinished(fs, dir, list, foreignNames); err != nil {
		return fmt.Errorf("wal: open %s: %w", dir, err)
	}
	lock, err := lockStore(fs, dir)
	if err != nil {
		return err
	}
	// Another process may have built it while this one looked.
	if list, err = fs.List(dir); err == nil && !hasName(list, diskName) {
		err = buildIn(fs, dir, random)
	}
	if err = joinClose(err, lock); err != nil {
		return fmt.Errorf("wal: create %s: %w; nothing was stored yet; start again", dir, err)
	}
	return nil
}

func buildBeside(fs fsync.FS, dir string, random io.Reader) error {
	parent, tmp := filepath.Dir(dir), dir+newSuffix
	if err := fsync.MkdirAll(fs, parent); err != nil {
		return fmt.Errorf("wal: create %s: %w", dir, err)
	}
	if err := fs.Mkdir(tmp); err != nil && !errors.Is(err, iofs.ErrExist) {
		return fmt.Errorf("wal: create %s: %w", dir, err)
	}
	list, err := fs.List(tmp)
	if err == nil {
		err = checkUnfinished(fs, tmp, list, nil)
	}
	if err != nil {
		return fmt.Errorf("wal: create %s: look at %s: %w", dir, tmp, err)
	}
	lock, err := lockStore(fs, tmp)
	if err != nil {
		return err
	}
	if err = buildIn(fs, tmp, random); err == nil {
		err = fs.Rename(tmp, dir)
	}
	if err == nil {
		err = syncDirs(fs, parent)
	}
	if err = joinClose(err, lock); err != nil {
		return fmt.Errorf("wal: create %s: %w; nothing was stored yet; start again", dir, err)
	}
	return nil
}

// buildIn makes everything in dir; disk comes last.
func buildIn(fs fsync.FS, dir string, random io.Reader) error {
	var disk, nonce [16]byte
	if _, err := io.ReadFull(random, disk[:]); err != nil {
		return fmt.Errorf("draw a disk id: %w", err)
	}
	for _, name := range []string{groupsName, controlName, quarantineName} {
		if err := fs.Mkdir(filepath.Join(dir, name)); err != nil && !errors.Is(err, iofs.ErrExist) {
			return err
		}
	}
	if err := writeIncarnation(fs, dir, 0, nonce, nil); err != nil {
		return err
	}
	return writeDisk(fs, dir, disk)
}

// checkUnfinished looks at a directory without the file disk, or at one being built: it must hold
// nothing but what building leaves, and names in allowed.
func checkUnfinished(fs fsync.FS, dir string, list []fsync.Entry, allowed []string) error {
	for _, e := range list {
		base, isTmp := strings.CutSuffix(e.Name, tmpSuffix)
		switch {
		case slices.Contains(allowed, e.Name), e.Name == lockName:
		case e.Name == groupsName, e.Name == controlName, e.Name == quarantineName:
			inside, err := fs.List(filepath.Join(dir, e.Name))
			if err != nil {
				return err
			}
			if len(inside) > 0 {
				return unbuilt(dir, e.Name)
			}
		case e.Name == cleanName:
			return unbuilt(dir, e.Name)
		case e.Name == incarnationName:
			body, _, err := loadNode(fs, dir, e.Name, headIncarnation, 24)
			if err == nil && le.Uint64(body) != 0 {
				return unbuilt(dir, e.Name)
			}
			if err != nil && !isCorrupt(err) {
				return err
			}
		case e.Name == diskName, isTmp && slices.Contains(nodeFiles, base):
		default:
			return fmt.Errorf("%w: it holds %q; nothing was touched; choose an empty or a new directory",
				ErrNotStore, e.Name)
		}
	}
	return nil
}

// unbuilt says that a data directory was in use before its file disk went missing.
func unbuilt(dir, because string) error {
	err := corruptAt(filepath.Join(dir, diskName), 0, 0, "the file is missing, and "+because+" shows that it was there")
	return fmt.Errorf("%w; it is never made anew, because a disk taken for another one can break promises given to "+
		"its peers", err)
}

// lockStore takes the lock of a data directory.
func lockStore(fs fsync.FS, dir string) (io.Closer, error) {
	lock, err := fs.Lock(filepath.Join(dir, lockName))
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, fsync.ErrLocked):
		return nil, fmt.Errorf("wal: open %s: %w: %w; nothing was touched; stop the other weida, or choose another "+
			"directory", dir, ErrInUse, err)
	}
	return nil, fmt.Errorf("wal: open %s: %w", dir, err)
}

func hasName(list []fsync.Entry, name string) bool {
	return slices.ContainsFunc(list, func(e fsync.Entry) bool { return e.Name == name })
}
