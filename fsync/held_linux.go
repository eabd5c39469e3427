package fsync

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Held says whether somebody holds the lock that FS.Lock takes, without taking it and without making its file: who only
// looks asks here. An absent file is held by nobody. For the moment of the call the lock is shared, so that a Lock at
// that very moment is refused; another Held is not.
func Held(name string) (held bool, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, osError("lock", name, err)
	}
	defer func() { err = errors.Join(err, osError("close", name, f.Close())) }()
	err = control(f, "lock", name, func(fd int) error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
