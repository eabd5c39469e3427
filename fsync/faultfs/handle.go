package faultfs

import (
	"io"

	"weida/fsync"
)

type faultFile struct {
	fs    *FS
	inner fsync.File
	name  string
}

// failSyncer is a file or directory that can behave as after a failed flush.
type failSyncer interface{ FailSync() }

// Path is the name the file was opened by.
func (f *faultFile) Path() string { return f.name }

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	c := Call{Op: OpRead, Path: f.name, Off: off, Len: int64(len(p))}
	if v := f.fs.begin(c); v.err != nil {
		return 0, fsync.NewError(string(c.Op), c.Path, v.err)
	}
	return f.inner.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	c := Call{Op: OpWrite, Path: f.name, Off: off, Len: int64(len(p))}
	v := f.fs.begin(c)
	if v.err == nil {
		return f.inner.WriteAt(p, off)
	}
	n := 0
	if v.short > 0 {
		var err error
		if n, err = f.inner.WriteAt(p[:min(v.short, len(p))], off); err != nil {
			return n, err
		}
	}
	return n, fsync.NewError(string(c.Op), c.Path, v.err)
}

func (f *faultFile) Close() error {
	return f.fs.do(Call{Op: OpClose, Path: f.name}, f.inner.Close)
}

func (f *faultFile) Sync() error {
	return f.fs.sync(Call{Op: OpSync, Path: f.name}, f.inner)
}

// sync flushes; an injected error leaves behind what a real one does.
func (f *FS) sync(c Call, inner fsync.Syncer) error {
	v := f.begin(c)
	switch {
	case v.err == nil && v.skip:
		return nil
	case v.err == nil:
		return inner.Sync()
	}
	if s, ok := inner.(failSyncer); ok && !f.Dead() {
		s.FailSync()
	}
	return fsync.NewError(string(c.Op), c.Path, v.err)
}

func (f *faultFile) Size() (n int64, err error) {
	err = f.fs.do(Call{Op: OpSize, Path: f.name}, func() (err error) {
		n, err = f.inner.Size()
		return err
	})
	return n, err
}

func (f *faultFile) Allocate(off, n int64) error {
	return f.fs.do(Call{Op: OpAllocate, Path: f.name, Off: off, Len: n}, func() error {
		return f.inner.Allocate(off, n)
	})
}

func (f *faultFile) StartWrite(off, n int64) error {
	return f.fs.do(Call{Op: OpStartWrite, Path: f.name, Off: off, Len: n}, func() error {
		return f.inner.StartWrite(off, n)
	})
}

func (f *faultFile) DropCache(off, n int64) error {
	return f.fs.do(Call{Op: OpDropCache, Path: f.name, Off: off, Len: n}, func() error {
		return f.inner.DropCache(off, n)
	})
}

// FailSync behaves like a Sync that failed, where the wrapped file can.
func (f *faultFile) FailSync() {
	if s, ok := f.inner.(failSyncer); ok {
		s.FailSync()
	}
}

type faultDir struct {
	fs    *FS
	inner fsync.Dir
	name  string
}

// Path is the name the directory was opened by.
func (d *faultDir) Path() string { return d.name }

func (d *faultDir) Close() error {
	return d.fs.do(Call{Op: OpClose, Path: d.name}, d.inner.Close)
}

func (d *faultDir) Sync() error {
	return d.fs.sync(Call{Op: OpSyncDir, Path: d.name}, d.inner)
}

func (d *faultDir) SyncFS() error {
	return d.fs.do(Call{Op: OpSyncFS, Path: d.name}, d.inner.SyncFS)
}

type faultLock struct {
	fs    *FS
	inner io.Closer
	name  string
}

func (l *faultLock) Close() error {
	return l.fs.do(Call{Op: OpClose, Path: l.name}, l.inner.Close)
}
