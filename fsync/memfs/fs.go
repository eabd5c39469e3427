package memfs

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"weida/fsync"
)

// ErrGone means that a handle belongs to a life that ended with Kill or PowerCut.
var ErrGone = errors.New("handle of an earlier life")

// FS is one disk and the kernel's view of it. The zero value is not usable; see New.
type FS struct {
	mu    sync.Mutex
	own   *owner
	root  *inode
	life  uint64 // counts kills and power cuts; part of every handle
	boots uint64 // counts power cuts
	locks map[*inode]bool
	// unflushed holds every inode with something volatile, in the order it became so.
	unflushed []*inode
	err       errseq // of SyncFS
	capacity  int64  // bytes, 0 = unlimited
	used      int64
	astray    int // see Astray
}

var _ fsync.FS = (*FS)(nil)

// New returns an empty file system with the root directory "/". Relative names start there too.
func New() *FS {
	return &FS{own: new(owner), root: newDirectory(), locks: map[*inode]bool{}}
}

// SetCapacity bounds the space of all files, in bytes, rounded to blocks of 4096; 0 lifts the bound.
// Beyond it Allocate and WriteAt answer fsync.ErrDiskFull.
func (m *FS) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// Used is the space all files take, in bytes.
func (m *FS) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Space implements fsync.FS.
func (m *FS) Space(name string) (fsync.Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.walk(name); err != nil {
		return fsync.Space{}, fsync.NewError("statfs", name, err)
	}
	return fsync.Space{Free: max(m.capacity-m.used, 0), Total: m.capacity}, nil
}

// walk finds a name. ENOENT and ENOTDIR as the system says them.
func (m *FS) walk(name string) (*inode, error) {
	n := m.root
	for part := range strings.SplitSeq(clean(name), "/") {
		if part == "" {
			continue
		}
		if n.dir == nil {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.dir.cur[part]
		if !ok {
			return nil, syscall.ENOENT
		}
		n = next
	}
	return n, nil
}

func clean(name string) string { return filepath.Clean("/" + name) }

// parent finds the directory of a name and the name's last part.
func (m *FS) parent(name string) (*inode, string, error) {
	dir, base := filepath.Split(clean(name))
	if base == "" {
		return nil, "", syscall.EBUSY
	}
	n, err := m.walk(dir)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	return n, base, err
}

// touch remembers that n has something volatile.
func (m *FS) touch(n *inode) {
	if !n.listed {
		n.listed = true
		m.unflushed = append(m.unflushed, n)
	}
}

func (m *FS) link(parent *inode, base string, n *inode) {
	parent.dir.do(dirOp{kind: opLink, name: base, ino: n})
	n.links++
	m.touch(parent)
}

func (m *FS) unlinked(n *inode) {
	n.links--
	m.release(n)
}

// release gives back the space of a file that nothing leads to any more.
func (m *FS) release(n *inode) {
	if n.links == 0 && n.opens == 0 {
		m.used -= n.blocks * blockBytes
		n.blocks = 0
	}
}

// Create implements fsync.FS.
func (m *FS) Create(name string) (fsync.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.make(name, &inode{})
	if err != nil {
		return nil, fsync.NewError("create", name, err)
	}
	return m.open(n, name, fsync.ReadWrite), nil
}

func (m *FS) make(name string, n *inode) (*inode, error) {
	parent, base, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	if parent.dir.cur[base] != nil {
		return nil, syscall.EEXIST
	}
	m.link(parent, base, n)
	return n, nil
}

// Open implements fsync.FS.
func (m *FS) Open(name string, access fsync.Access) (fsync.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(name)
	if err == nil && n.dir != nil {
		err = fsync.ErrNotRegular
	}
	if err != nil {
		return nil, fsync.NewError("open", name, err)
	}
	return m.open(n, name, access), nil
}

func (m *FS) open(n *inode, name string, access fsync.Access) *file {
	n.opens++
	return &file{handle: handle{fs: m, ino: n, name: name, life: m.life, since: n.err.sample()}, access: access}
}

// OpenDir implements fsync.FS.
func (m *FS) OpenDir(name string) (fsync.Dir, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(name)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fsync.NewError("opendir", name, err)
	}
	h := handle{fs: m, ino: n, name: name, life: m.life, since: m.err.sample()}
	return &dir{handle: h, own: n.err.sample()}, nil
}

// Mkdir implements fsync.FS.
func (m *FS) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.make(name, newDirectory()); err != nil {
		return fsync.NewError("mkdir", name, err)
	}
	return nil
}

// Rename implements fsync.FS. Directories move only within their directory.
func (m *FS) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.rename(oldName, newName); err != nil {
		return fsync.NewError("rename", oldName, err)
	}
	return nil
}

func (m *FS) rename(oldName, newName string) error {
	from, oldBase, err := m.parent(oldName)
	if err != nil {
		return err
	}
	n := from.dir.cur[oldBase]
	if n == nil {
		return syscall.ENOENT
	}
	to, newBase, err := m.parent(newName)
	if err != nil {
		return err
	}
	replaced := to.dir.cur[newBase]
	switch {
	case replaced == n:
		return nil
	case replaced != nil && replaced.dir != nil && (n.dir == nil || len(replaced.dir.cur) > 0):
		return syscall.EEXIST
	case replaced != nil && replaced.dir == nil && n.dir != nil:
		return syscall.ENOTDIR
	case n.dir != nil && from != to:
		return syscall.EXDEV
	}
	if from == to {
		from.dir.do(dirOp{kind: opRename, name: newBase, from: oldBase, ino: n})
	} else {
		from.dir.do(dirOp{kind: opUnlink, name: oldBase, ino: n})
		to.dir.do(dirOp{kind: opLink, name: newBase, ino: n})
	}
	m.touch(from)
	m.touch(to)
	if replaced != nil {
		m.unlinked(replaced)
	}
	return nil
}

// Remove implements fsync.FS.
func (m *FS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.remove(name); err != nil {
		return fsync.NewError("remove", name, err)
	}
	return nil
}

func (m *FS) remove(name string) error {
	parent, base, err := m.parent(name)
	if err != nil {
		return err
	}
	n := parent.dir.cur[base]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n.dir != nil && len(n.dir.cur) > 0:
		return syscall.ENOTEMPTY
	}
	parent.dir.do(dirOp{kind: opUnlink, name: base, ino: n})
	m.touch(parent)
	m.unlinked(n)
	return nil
}

// List implements fsync.FS.
func (m *FS) List(name string) ([]fsync.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(name)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fsync.NewError("list", name, err)
	}
	list := make([]fsync.Entry, 0, len(n.dir.cur))
	for base, e := range n.dir.cur {
		entry := fsync.Entry{Name: base, Kind: fsync.Directory}
		if e.dir == nil {
			entry = fsync.Entry{Name: base, Kind: fsync.Regular, Size: e.size, Allocated: e.blocks * blockBytes}
		}
		list = append(list, entry)
	}
	slices.SortFunc(list, func(a, b fsync.Entry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Lock implements fsync.FS. The lock ends with Close, Kill or PowerCut.
func (m *FS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(name)
	if errors.Is(err, syscall.ENOENT) {
		n, err = m.make(name, &inode{})
	}
	switch {
	case err != nil:
	case n.dir != nil:
		err = fsync.ErrNotRegular
	case m.locks[n]:
		err = fsync.ErrLocked
	}
	if err != nil {
		return nil, fsync.NewError("lock", name, err)
	}
	m.locks[n] = true
	return &lock{handle: handle{fs: m, ino: n, name: name, life: m.life}}, nil
}
