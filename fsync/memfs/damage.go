package memfs

import (
	"path/filepath"
	"slices"
	"syscall"

	"weida/fsync"
)

// Files returns the full names of all regular files, sorted.
func (m *FS) Files() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	var visit func(path string, n *inode)
	visit = func(path string, n *inode) {
		if n.dir == nil {
			names = append(names, path)
			return
		}
		for base, child := range n.dir.cur {
			visit(filepath.Join(path, base), child)
		}
	}
	visit("/", m.root)
	slices.Sort(names)
	return names
}

// regular finds a file for a test's direct access.
func (m *FS) regular(name string) (*inode, error) {
	n, err := m.walk(name)
	if err == nil && n.dir != nil {
		err = fsync.ErrNotRegular
	}
	if err != nil {
		return nil, fsync.NewError("open", name, err)
	}
	return n, nil
}

// Bytes returns a copy of a file's content as a reader sees it now.
func (m *FS) Bytes(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.regular(name)
	if err != nil {
		return nil, err
	}
	p := make([]byte, n.size)
	n.readAt(p, 0)
	return p, nil
}

// Corrupt lets fn change the bytes [off, off+n) of a file, on the disk and in the cache; n = 0 means
// to the end. What of them was volatile becomes durable as changed.
func (m *FS) Corrupt(name string, off, n int64, fn func(p []byte)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ino, err := m.regular(name)
	if err != nil {
		return err
	}
	if n == 0 {
		n = ino.size - off
	}
	if off < 0 || n <= 0 || off+n > ino.size {
		return fsync.NewError("corrupt", name, syscall.EINVAL)
	}
	p := make([]byte, n)
	ino.readAt(p, off)
	fn(p)
	for done := int64(0); done < n; {
		i, in := int((off+done)/blockBytes), int((off+done)%blockBytes)
		part := p[done:min(n, done+int64(blockBytes-in))]
		ino.setDurable(i, patched(ino.durable(i), in, part))
		ino.cur[i] = patched(ino.cur[i], in, part)
		done += int64(len(part))
	}
	ino.durSize = max(ino.durSize, off+n)
	return nil
}

func patched(b *block, in int, p []byte) *block {
	c := &block{}
	if b != nil {
		c.data = b.data
	}
	copy(c.data[in:], p)
	return c
}

// FlipBit inverts one bit of a file on the disk and in the cache.
func (m *FS) FlipBit(name string, off int64, bit uint) error {
	return m.Corrupt(name, off, 1, func(p []byte) { p[0] ^= 1 << (bit % 8) })
}

// Truncate cuts a file to n bytes, durably, as damage does; nothing in weida's code cuts a file.
func (m *FS) Truncate(name string, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ino, err := m.regular(name)
	if err != nil {
		return err
	}
	if n < 0 || n > ino.size {
		return fsync.NewError("truncate", name, syscall.EINVAL)
	}
	ino.flush()
	ino.durSize = n
	m.used -= ino.blocks * blockBytes
	opens, listed, armed, seq := ino.opens, ino.listed, ino.armed, ino.err
	ino.settle()
	ino.opens, ino.listed, ino.armed, ino.err = opens, listed, armed, seq
	m.used += ino.blocks * blockBytes
	return nil
}

// FailWriteback orders the next write-back of a file's dirty sectors to fail, whoever causes it: the
// sectors are marked clean and are not on the disk, and every open descriptor of the file (Sync) and
// of the file system (SyncFS) is told once.
func (m *FS) FailWriteback(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.regular(name)
	if err == nil {
		n.armed++
	}
	return err
}

// Evict makes the kernel forget a file that nobody holds open: its unreported errors are gone and
// its lost sectors show what is on the disk.
func (m *FS) Evict(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.regular(name)
	if err != nil {
		return err
	}
	if n.opens > 0 {
		return fsync.NewError("evict", name, syscall.EBUSY)
	}
	n.err = errseq{}
	n.dropCache(0, len(n.cur))
	return nil
}
