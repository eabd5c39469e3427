package memfs

import (
	"io"
	"os"
	"syscall"

	"weida/fsync"
)

// handle is what files, directories and locks have in common.
type handle struct {
	fs     *FS
	ino    *inode
	name   string
	life   uint64
	since  uint64 // errors reported so far
	closed bool
}

// check says why a handle can't be used, nil if it can. FS.mu must be held by the caller.
func (h *handle) check(op string) error {
	switch {
	case h.life != h.fs.life:
		return fsync.NewError(op, h.name, ErrGone)
	case h.closed:
		return fsync.NewError(op, h.name, os.ErrClosed)
	}
	return nil
}

func (h *handle) close() error {
	if err := h.check("close"); err != nil {
		return err
	}
	h.closed = true
	return nil
}

// Path is the name the handle was opened by.
func (h *handle) Path() string { return h.name }

type file struct {
	handle
	access fsync.Access
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fsync.NewError("read", f.name, syscall.EINVAL)
	}
	n := f.ino.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("write"); err != nil {
		return 0, err
	}
	switch {
	case off < 0:
		return 0, fsync.NewError("write", f.name, syscall.EINVAL)
	case f.access != fsync.ReadWrite:
		return 0, fsync.NewError("write", f.name, syscall.EBADF)
	case len(p) == 0:
		return 0, nil
	}
	n := f.ino
	n.grow(off + int64(len(p)))
	f.fs.touch(n)
	done := 0
	for done < len(p) {
		i, in := int((off+int64(done))/blockBytes), int((off+int64(done))%blockBytes)
		if !f.fs.reserve(n, i) {
			break
		}
		part := p[done:min(len(p), done+blockBytes-in)]
		n.writeBlock(f.fs.own, i, in, part)
		done += len(part)
	}
	if done > 0 {
		n.setSize(off + int64(done))
	}
	if done < len(p) {
		return done, fsync.NewError("write", f.name, syscall.ENOSPC)
	}
	return done, nil
}

// reserve counts block i of n against the capacity and says whether there was room.
func (m *FS) reserve(n *inode, i int) bool {
	if n.state[i].reserved {
		return true
	}
	if m.capacity > 0 && m.used+blockBytes > m.capacity {
		return false
	}
	n.state[i].reserved = true
	n.blocks++
	m.used += blockBytes
	return true
}

func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.close(); err != nil {
		return err
	}
	f.ino.opens--
	f.fs.release(f.ino)
	return nil
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("fdatasync"); err != nil {
		return err
	}
	f.fs.writeBack(f.ino)
	if f.ino.err.check(&f.since) {
		return fsync.NewError("fdatasync", f.name, syscall.EIO)
	}
	return nil
}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("stat"); err != nil {
		return 0, err
	}
	return f.ino.size, nil
}

func (f *file) Allocate(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("fallocate"); err != nil {
		return err
	}
	switch {
	case off < 0 || n <= 0:
		return fsync.NewError("fallocate", f.name, syscall.EINVAL)
	case f.access != fsync.ReadWrite:
		return fsync.NewError("fallocate", f.name, syscall.EBADF)
	}
	ino := f.ino
	ino.grow(off + n)
	for i := int(off / blockBytes); i < int((off+n+blockBytes-1)/blockBytes); i++ {
		if !f.fs.reserve(ino, i) {
			return fsync.NewError("fallocate", f.name, syscall.ENOSPC)
		}
	}
	f.fs.touch(ino)
	ino.setSize(off + n)
	return nil
}

func (f *file) StartWrite(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("sync_file_range"); err != nil {
		return err
	}
	if f.ino.armed > 0 {
		f.fs.writeBack(f.ino) // fails in the background, nobody is told yet
	}
	return nil
}

func (f *file) DropCache(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("fadvise"); err != nil {
		return err
	}
	limit := len(f.ino.cur)
	if n > 0 {
		limit = int((off + n + blockBytes - 1) / blockBytes)
	}
	f.ino.dropCache(int(off/blockBytes), limit)
	return nil
}

// FailSync behaves like a Sync that failed and was reported: what was unflushed is lost on the disk
// and clean in the cache, and every other open descriptor of the file is told once,
// SyncFS too. faultfs calls it for the error it injects.
func (f *file) FailSync() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.check("fdatasync") == nil {
		f.ino.lose()
		f.ino.err.record()
		f.fs.err.record()
		f.ino.err.check(&f.since)
	}
}

type dir struct {
	handle        // since counts reports of SyncFS
	own    uint64 // reports of Sync so far
}

func (d *dir) Close() error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	return d.close()
}

func (d *dir) Sync() error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	if err := d.check("fsync"); err != nil {
		return err
	}
	d.ino.dir.flush()
	if d.ino.err.check(&d.own) {
		return fsync.NewError("fsync", d.name, syscall.EIO)
	}
	return nil
}

func (d *dir) SyncFS() error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	if err := d.check("syncfs"); err != nil {
		return err
	}
	kept := d.fs.unflushed[:0]
	for _, n := range d.fs.unflushed {
		d.fs.writeBack(n)
		if n.listed = n.pending(); n.listed {
			kept = append(kept, n)
		}
	}
	d.fs.unflushed = kept
	if d.fs.err.check(&d.since) {
		return fsync.NewError("syncfs", d.name, syscall.EIO)
	}
	return nil
}

// FailSync behaves like a Sync that failed and was reported: what was unflushed never becomes durable
// by a later one, and every other open descriptor of the directory is told once, SyncFS too.
func (d *dir) FailSync() {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	if d.check("fsync") == nil {
		d.ino.dir.lose()
		d.ino.err.record()
		d.fs.err.record()
		d.ino.err.check(&d.own)
	}
}

// writeBack flushes one inode, or loses it if a failure was ordered.
func (m *FS) writeBack(n *inode) {
	switch {
	case n.dir != nil:
		n.dir.flush()
	case n.armed > 0 && len(n.dirty) > 0:
		n.armed--
		n.lose()
		n.err.record()
		m.err.record()
	default:
		n.flush()
	}
}

type lock struct{ handle }

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if err := l.close(); err != nil {
		return err
	}
	delete(l.fs.locks, l.ino)
	return nil
}
