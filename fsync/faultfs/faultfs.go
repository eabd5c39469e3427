package faultfs

import (
	"errors"
	"io"
	"slices"
	"sync"

	"weida/fsync"
)

// ErrDied means that the process died at an earlier call, or at this one.
var ErrDied = errors.New("the process is dead")

// traceMax bounds the trace; the oldest half is dropped beyond it.
const traceMax = 1 << 16

// FS is the wrapped file system.
type FS struct {
	inner fsync.FS

	mu      sync.Mutex
	ops     int
	counted []Op // nil: all
	trace   []Call
	rules   []*rule
	gates   []*Gate
	ignored []Match
	die     death
	dead    bool
	full    bool
}

var _ fsync.FS = (*FS)(nil)

// New wraps inner. All kinds of calls are counted.
func New(inner fsync.FS) *FS { return &FS{inner: inner} }

// Count makes only the given kinds count for Ops, Die… and the trace's numbers. Call it first.
func (f *FS) Count(ops ...Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted = slices.Clone(ops)
}

// Ops is the number of counted calls so far. The one that killed counts, those after it do not.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Trace returns the calls so far, the last 65,536 at most.
func (f *FS) Trace() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.trace)
}

// do makes a call that has no result but an error.
func (f *FS) do(c Call, call func() error) error {
	v := f.begin(c)
	switch {
	case v.err != nil:
		return fsync.NewError(string(c.Op), c.Path, v.err)
	case v.skip:
		return nil
	}
	return call()
}

// Create implements fsync.FS.
func (f *FS) Create(name string) (fsync.File, error) {
	return f.open(Call{Op: OpCreate, Path: name}, func() (fsync.File, error) { return f.inner.Create(name) })
}

// Open implements fsync.FS.
func (f *FS) Open(name string, access fsync.Access) (fsync.File, error) {
	return f.open(Call{Op: OpOpen, Path: name}, func() (fsync.File, error) { return f.inner.Open(name, access) })
}

func (f *FS) open(c Call, call func() (fsync.File, error)) (file fsync.File, err error) {
	err = f.do(c, func() error {
		in, err := call()
		if err == nil {
			file = &faultFile{fs: f, inner: in, name: c.Path}
		}
		return err
	})
	return file, err
}

// OpenDir implements fsync.FS.
func (f *FS) OpenDir(name string) (dir fsync.Dir, err error) {
	err = f.do(Call{Op: OpOpenDir, Path: name}, func() error {
		in, err := f.inner.OpenDir(name)
		if err == nil {
			dir = &faultDir{fs: f, inner: in, name: name}
		}
		return err
	})
	return dir, err
}

// Mkdir implements fsync.FS.
func (f *FS) Mkdir(name string) error {
	return f.do(Call{Op: OpMkdir, Path: name}, func() error { return f.inner.Mkdir(name) })
}

// Rename implements fsync.FS.
func (f *FS) Rename(oldName, newName string) error {
	return f.do(Call{Op: OpRename, Path: oldName, To: newName}, func() error {
		return f.inner.Rename(oldName, newName)
	})
}

// Remove implements fsync.FS.
func (f *FS) Remove(name string) error {
	return f.do(Call{Op: OpRemove, Path: name}, func() error { return f.inner.Remove(name) })
}

// Space implements fsync.FS. While the disk is full by SetFull there is none. It is no call that counts: it comes by
// the clock.
func (f *FS) Space(name string) (fsync.Space, error) {
	f.mu.Lock()
	dead, full := f.dead, f.full
	f.mu.Unlock()
	if dead {
		return fsync.Space{}, fsync.NewError("statfs", name, ErrDied)
	}
	s, err := f.inner.Space(name)
	if full && err == nil {
		s = fsync.Space{Total: max(s.Total, 1)}
	}
	return s, err
}

// List implements fsync.FS.
func (f *FS) List(name string) (list []fsync.Entry, err error) {
	err = f.do(Call{Op: OpList, Path: name}, func() (err error) {
		list, err = f.inner.List(name)
		return err
	})
	return list, err
}

// Lock implements fsync.FS.
func (f *FS) Lock(name string) (lock io.Closer, err error) {
	err = f.do(Call{Op: OpLock, Path: name}, func() error {
		in, err := f.inner.Lock(name)
		if err == nil {
			lock = &faultLock{fs: f, inner: in, name: name}
		}
		return err
	})
	return lock, err
}
