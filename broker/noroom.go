package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"weida/fsync"
	"weida/raftstore"
)

// NoRoomError is a node that does not open for want of room: a start has to write down, before anything else, that it
// is another life of the node than the last one. What is stored is as it was.
type NoRoomError struct {
	Dir   string      // the data directory
	Space fsync.Space // of its file system
	Err   error       // names the file; wraps fsync.ErrDiskFull
}

// startRoom is more than a start takes of a node whose logs have no room left, in bytes, and groupRoom for each group.
const startRoom, groupRoom = 1 << 20, 128 << 10

func (e *NoRoomError) Error() string {
	kept := min(raftstore.DiskReserveMax, e.Space.Total/raftstore.DiskReserveShare)
	return fmt.Sprintf("%v; the node did not start, what is stored is as it was, and can be looked at with `weida log`; "+
		"%d of %d bytes are free on the file system of %s: free %s there, and %s for each queue, without touching the "+
		"data directory, and start it again; it takes messages once %d bytes are free", e.Err, e.Space.Free,
		e.Space.Total, e.Dir, size(startRoom), size(groupRoom), kept)
}

func (e *NoRoomError) Unwrap() error { return e.Err }

// roomless is err, as a *NoRoomError if that is why a data directory could not be opened.
func roomless(files fsync.FS, dir string, err error) error {
	if err == nil || !errors.Is(err, fsync.ErrDiskFull) {
		return err
	}
	at := filepath.Clean(dir)
	if _, gone := fsync.Mode(at); errors.Is(gone, fs.ErrNotExist) {
		at = filepath.Dir(at)
	}
	s, unknown := files.Space(at)
	if unknown != nil {
		return errors.Join(err, unknown)
	}
	return &NoRoomError{Dir: dir, Space: s, Err: err}
}
