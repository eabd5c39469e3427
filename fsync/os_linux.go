package fsync

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"

	"golang.org/x/sys/unix"
)

// OS returns the file system of the operating system. All callers share one.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, osError("create", name, err)
	}
	return &osFile{f: f, name: name}, nil
}

func (osFS) Open(name string, access Access) (File, error) {
	flag := os.O_RDONLY
	if access == ReadWrite {
		flag = os.O_RDWR
	}
	// O_NONBLOCK keeps a pipe that lies where a file should from blocking the open.
	f, err := openFile(name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		return nil, NewError("open", name, ErrNotRegular)
	}
	if err != nil {
		return nil, osError("open", name, err)
	}
	if err := regular(f); err != nil {
		return nil, errors.Join(osError("open", name, err), f.Close())
	}
	return &osFile{f: f, name: name}, nil
}

// regular refuses everything that is not a plain file.
func regular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	return err
}

func (osFS) OpenDir(name string) (Dir, error) {
	f, err := openFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, osError("opendir", name, err)
	}
	return &osDir{f: f, name: name}, nil
}

func (osFS) Mkdir(name string) error {
	return osError("mkdir", name, os.Mkdir(name, 0o700))
}

func (osFS) Rename(oldName, newName string) error {
	return osError("rename", oldName, os.Rename(oldName, newName))
}

func (osFS) Remove(name string) error {
	return osError("remove", name, os.Remove(name))
}

func (osFS) List(name string) ([]Entry, error) {
	des, err := spared(func() ([]os.DirEntry, error) { return os.ReadDir(name) })
	if err != nil {
		return nil, osError("list", name, err)
	}
	list := make([]Entry, 0, len(des))
	for _, de := range des {
		info, err := de.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, osError("list", name, err)
		}
		list = append(list, entryOf(info))
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

func entryOf(info fs.FileInfo) Entry {
	e := Entry{Name: info.Name(), Kind: Other}
	switch {
	case info.Mode().IsRegular():
		e.Kind, e.Size = Regular, info.Size()
	case info.IsDir():
		e.Kind = Directory
	}
	if st, ok := info.Sys().(*unixStat); ok {
		e.Allocated = st.Blocks * 512
	}
	return e
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, osError("lock", name, err)
	}
	d := &osDir{f: f, name: name}
	if err = osError("lock", name, regular(f)); err == nil {
		err = d.call("lock", func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = NewError("lock", name, ErrLocked)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

func (osFS) Space(name string) (Space, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(name, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return Space{}, NewError("statfs", name, err)
		}
	}
	return Space{Free: int64(st.Bavail) * st.Bsize, Total: int64(st.Blocks) * st.Bsize}, nil
}

// osError turns an error of package os into an *Error, nil into nil.
func osError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	} else if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = le.Err
	}
	return NewError(op, name, err)
}

// control runs one system call on the descriptor of f, again while it is interrupted. The
// descriptor stays valid for the call even if f is closed meanwhile.
func control(f *os.File, op, name string, call func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return osError(op, name, err)
	}
	var callErr error
	err = rc.Control(func(fd uintptr) {
		for {
			callErr = call(int(fd))
			if !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return NewError(op, name, fmt.Errorf("%w: %w", fs.ErrClosed, err)) // its only failure
	}
	return osError(op, name, callErr)
}
