package fsync

import (
	"errors"
	"fmt"
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

// Level is how far one node's persistence of a message has come.
type Level uint8

// The levels, in order. There is no "stored" without one of them (D-4).
const (
	// Written: handed to the kernel; survives the death of the process, not of the machine (D-1, D-2).
	Written Level = iota + 1
	// Flushed: on the disk, name included; survives a power cut of this node (D-3).
	Flushed
)

func (l Level) String() string {
	switch l {
	case Written:
		return "written"
	case Flushed:
		return "flushed"
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}
