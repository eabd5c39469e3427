package fsync

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// An interrupted call is made again; anything else is told.
func TestControlRepeatsInterruptedCalls(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	calls := 0
	err = control(f, "op", "a", func(int) error {
		if calls++; calls < 3 {
			return unix.EINTR
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	err = control(f, "op", "a", func(int) error { return unix.EIO })
	if fe, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, unix.EIO) || fe.Op != "op" {
		t.Fatal(err)
	}
}

func TestErrorConditions(t *testing.T) {
	for errno, want := range map[syscall.Errno]error{
		unix.ENOSPC: ErrDiskFull, unix.EDQUOT: ErrDiskFull, unix.EROFS: ErrReadOnlyFS,
	} {
		err := error(NewError("write", "/a", errno))
		if !errors.Is(err, want) || !errors.Is(err, errno) {
			t.Errorf("%v is not %v", err, want)
		}
	}
	inner := NewError("write", "/a", unix.EIO)
	if NewError("flush", "b", inner) != inner {
		t.Error("an error was wrapped twice")
	}
	if got, want := inner.Error(), "write /a: input/output error"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
