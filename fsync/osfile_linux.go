package fsync

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// unixStat is what os.FileInfo.Sys holds.
type unixStat = syscall.Stat_t

// osFile is an open regular file.
type osFile struct {
	f    *os.File
	name string
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.f.ReadAt(p, off)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err // io.EOF stays bare, as io.ReaderAt asks
	}
	return n, osError("read", o.name, err)
}

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, osError("write", o.name, err)
}

// Path is the name the file was opened by.
func (o *osFile) Path() string { return o.name }

func (o *osFile) Close() error { return osError("close", o.name, o.f.Close()) }

func (o *osFile) Sync() error {
	return control(o.f, "fdatasync", o.name, unix.Fdatasync)
}

// Truncate is what Cut calls.
func (o *osFile) Truncate(size int64) error { return osError("truncate", o.name, o.f.Truncate(size)) }

func (o *osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, osError("stat", o.name, err)
	}
	return info.Size(), nil
}

func (o *osFile) Allocate(off, n int64) error {
	err := control(o.f, "fallocate", o.name, func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	size, err := o.Size()
	if err != nil || size >= off+n {
		return err
	}
	return osError("truncate", o.name, o.f.Truncate(off+n))
}

func (o *osFile) StartWrite(off, n int64) error {
	return control(o.f, "sync_file_range", o.name, func(fd int) error {
		return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}

func (o *osFile) DropCache(off, n int64) error {
	// The kernel passes over a page that the range covers in part, so cover whole pages.
	page := int64(os.Getpagesize())
	limit := off + n
	off -= off % page
	if n > 0 {
		n = (limit - off + page - 1) / page * page
	}
	return control(o.f, "fadvise", o.name, func(fd int) error {
		return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED)
	})
}

// osDir is an open directory; a held lock is one too, of which only Close is used.
type osDir struct {
	f    *os.File
	name string
}

func (o *osDir) call(op string, call func(fd int) error) error {
	return control(o.f, op, o.name, call)
}

// Path is the name the directory was opened by.
func (o *osDir) Path() string { return o.name }

func (o *osDir) Close() error { return osError("close", o.name, o.f.Close()) }

func (o *osDir) Sync() error { return o.call("fsync", unix.Fsync) }

func (o *osDir) SyncFS() error { return o.call("syncfs", unix.Syncfs) }
