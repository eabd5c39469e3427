package fsync

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
)

// tmpSuffix marks a file that WriteFileAtomic has not yet given its name.
const tmpSuffix = ".tmp"

// MkdirAll makes dir and its missing parents one by one, each made durable by a Sync of its parent
// before the next is made. The entry of the deepest directory that exists already is made durable
// too: an earlier call may have died between making it and that Sync. A parent that may not be
// opened is passed over there, for then the existing directory can't be the work of such a call.
func MkdirAll(fs FS, dir string) error {
	dir = filepath.Clean(dir)
	d, err := fs.OpenDir(dir)
	if err == nil {
		if err := d.Close(); err != nil {
			return err
		}
		return syncExisting(fs, dir)
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return err
	}
	if err := MkdirAll(fs, parent); err != nil {
		return err
	}
	if err := fs.Mkdir(dir); err != nil && !errors.Is(err, iofs.ErrExist) {
		return err
	}
	return syncDir(fs, parent)
}

func syncExisting(fs FS, dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	err := syncDir(fs, parent)
	if errors.Is(err, iofs.ErrPermission) {
		return nil
	}
	return err
}

// syncDir opens dir, makes its entries durable and closes it.
func syncDir(fs FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteFileAtomic makes dir/name hold data, durably: after a crash at any moment the name holds
// either its old content or all of data. It writes name+".tmp" (removing one that an earlier crash
// left), flushes it, renames it and flushes the directory. On an error the old content may or may
// not have been replaced; after a failed flush the directory must not be trusted before a restart.
func WriteFileAtomic(fs FS, dir, name string, data []byte) error {
	tmp := filepath.Join(dir, name+tmpSuffix)
	if err := fs.Remove(tmp); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if err := writeNew(fs, tmp, data); err != nil {
		if errors.Is(err, ErrDiskFull) {
			// The fragment would keep the space that the retry needs.
			err = errors.Join(err, fs.Remove(tmp))
		}
		return err
	}
	if err := fs.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

func writeNew(fs FS, name string, data []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadFile returns the whole content of a file of at most limit bytes; a longer one is ErrTooLarge
// and is not read.
func ReadFile(fs FS, name string, limit int64) (data []byte, err error) {
	f, err := fs.Open(name, ReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, NewError("read", name, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, size, limit))
	}
	data = make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if n == len(data) {
		return data, nil
	}
	if errors.Is(err, io.EOF) {
		err = NewError("read", name, io.ErrUnexpectedEOF)
	}
	return nil, err
}
