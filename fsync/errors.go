package fsync

import (
	"errors"
	"fmt"
	"syscall"
)

// Conditions that callers test with errors.Is. An *Error wraps them together with the system's own
// error.
var (
	// ErrDiskFull means the file system or a quota has no room (ENOSPC, EDQUOT). At an append it is
	// no fault: nothing was stored, and the same call may succeed once there is room.
	ErrDiskFull = errors.New("disk full")
	// ErrReadOnlyFS means the file system refuses writes (EROFS), usually after the kernel met an
	// error of its own.
	ErrReadOnlyFS = errors.New("file system is read-only")
	// ErrLocked means another process holds the lock.
	ErrLocked = errors.New("locked by another process")
	// ErrPoisoned means an earlier flush of this target failed. It is final: what was not flushed
	// then may be gone although the kernel shows it, and no later success takes that back.
	ErrPoisoned = errors.New("poisoned by a failed flush")
	// ErrClosed means the target or flusher was closed.
	ErrClosed = errors.New("closed")
	// ErrNotRegular means a name that should be a file is a link, a directory, a device or a socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge means a file is longer than its reader's bound; nothing of it was read.
	ErrTooLarge = errors.New("file is larger than allowed")
	// ErrStalled means a flush did not come back within Options.StallAfter.
	ErrStalled = errors.New("disk does not answer")
	// ErrUnclaimed means the file system reported lost writes and no open file admits to them.
	ErrUnclaimed = errors.New("lost writes of an unknown file")
)

// Error is a failed file system call.
type Error struct {
	Op   string // the call: "create", "write", "fdatasync", …
	Path string
	Err  error // what the system said; wraps one of the conditions above where one applies
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the system's error.
func (e *Error) Unwrap() error { return e.Err }

// DeviceFailed reports whether the device refused a call (EIO): what it was to read is not to be had from it.
func DeviceFailed(err error) bool { return errors.Is(err, syscall.EIO) }

// NewError makes the *Error of a failed call from what the system said, adding the condition that
// it stands for. An err that is or wraps an *Error is returned as that *Error. It is for the
// implementations of FS; err must not be nil.
func NewError(op, path string, err error) *Error {
	if err == nil {
		panic("bug: fsync: NewError without an error")
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	cond := condition(err)
	if cond != nil && !errors.Is(err, cond) {
		err = fmt.Errorf("%w (%w)", cond, err)
	}
	return &Error{Op: op, Path: path, Err: err}
}

// condition is the sentinel that a system error stands for, nil if none.
func condition(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrDiskFull
	case errors.Is(err, syscall.EROFS):
		return ErrReadOnlyFS
	}
	return nil
}
