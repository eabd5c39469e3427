package wal

import (
	"fmt"
	"io"

	"weida/fsync"
	"weida/fsync/memfs"
)

// tapFS tells before every call that changes the disk, so that a test can fork the disk there. mid
// makes the state in the middle of the call on a fork: for a write, whole pages of it have landed.
type tapFS struct {
	inner fsync.FS
	tap   func(op string, mids []mid)
}

// mid applies the first part of a call to a fork.
type mid func(fork *memfs.FS) error

func (t *tapFS) call(op, path string, mids ...mid) {
	if t.tap != nil {
		t.tap(op+" "+path, mids)
	}
}

func (t *tapFS) file(f fsync.File, name string, err error) (fsync.File, error) {
	if err != nil {
		return nil, err
	}
	return &tapFile{f, t, name}, nil
}

func (t *tapFS) Create(name string) (fsync.File, error) {
	t.call("create", name)
	f, err := t.inner.Create(name)
	return t.file(f, name, err)
}

func (t *tapFS) Open(name string, access fsync.Access) (fsync.File, error) {
	f, err := t.inner.Open(name, access)
	return t.file(f, name, err)
}

func (t *tapFS) OpenDir(name string) (fsync.Dir, error) {
	d, err := t.inner.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &tapDir{d, t, name}, nil
}

func (t *tapFS) Mkdir(name string) error {
	t.call("mkdir", name)
	return t.inner.Mkdir(name)
}

func (t *tapFS) Rename(oldName, newName string) error {
	t.call("rename", oldName)
	return t.inner.Rename(oldName, newName)
}

func (t *tapFS) Remove(name string) error {
	t.call("remove", name)
	return t.inner.Remove(name)
}

func (t *tapFS) List(name string) ([]fsync.Entry, error) { return t.inner.List(name) }

func (t *tapFS) Lock(name string) (io.Closer, error) {
	t.call("lock", name)
	return t.inner.Lock(name)
}

func (t *tapFS) Space(name string) (fsync.Space, error) { return t.inner.Space(name) }

type tapFile struct {
	fsync.File
	fs   *tapFS
	name string
}

func (f *tapFile) Path() string { return f.name }

func (f *tapFile) WriteAt(p []byte, off int64) (int, error) {
	var mids []mid
	for edge := (off/blockBytes + 1) * blockBytes; edge < off+int64(len(p)); edge += blockBytes {
		n := edge - off
		mids = append(mids, func(fork *memfs.FS) error {
			g, err := fork.Open(f.name, fsync.ReadWrite)
			if err != nil {
				return err
			}
			_, err = g.WriteAt(p[:n], off)
			return joinClose(err, g)
		})
	}
	f.fs.call(fmt.Sprintf("write [%d, %d)", off, off+int64(len(p))), f.name, mids...)
	return f.File.WriteAt(p, off)
}

func (f *tapFile) Sync() error {
	f.fs.call("fdatasync", f.name)
	return f.File.Sync()
}

func (f *tapFile) Allocate(off, n int64) error {
	f.fs.call("fallocate", f.name)
	return f.File.Allocate(off, n)
}

func (f *tapFile) DropCache(off, n int64) error {
	f.fs.call("fadvise", f.name)
	return f.File.DropCache(off, n)
}

type tapDir struct {
	fsync.Dir
	fs   *tapFS
	name string
}

func (d *tapDir) Path() string { return d.name }

func (d *tapDir) Sync() error {
	d.fs.call("fsync", d.name)
	return d.Dir.Sync()
}

func (d *tapDir) SyncFS() error {
	d.fs.call("syncfs", d.name)
	return d.Dir.SyncFS()
}
