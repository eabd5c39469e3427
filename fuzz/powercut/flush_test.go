package powercut

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const block = 4096

var (
	oldBytes = bytes.Repeat([]byte("old.old."), block/8)
	newBytes = bytes.Repeat([]byte("new.new."), block/8)
)

// open opens a file that has the old bytes on the disk.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f := put(t, path, oldBytes)
	must(t, f.Sync())
	return f
}

// shows fails unless a file has these bytes, in the cache or, with that dropped, on the disk.
func shows(t *testing.T, f *os.File, drop bool, want []byte) {
	t.Helper()
	if drop {
		must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("cache dropped: %v: the file shows %.8q, want %.8q, %v", drop, got, want, err)
	}
}

// ends fails unless a flush ends as the kernel's do.
func ends(t *testing.T, what string, f *os.File, want error) {
	t.Helper()
	if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestWhatAFailedFlushLeaves asks the kernel what the store's rules for failed flushes rest on: it reports a lost write
// once to each who had the file open, the next flush succeeds, the cache shows what the disk does not have, and only
// what is written anew is there.
func TestWhatAFailedFlushLeaves(t *testing.T) {
	each(t, Options{}, func(t *testing.T, d *Disk) {
		path := filepath.Join(d.Mount(), "f")
		a := open(t, path)
		b, err := os.Open(path)
		must(t, err)
		defer func() { _ = b.Close() }() // read only
		d.FailWrites(Fault{Pattern: newBytes[:64]})
		_, err = a.WriteAt(newBytes, 0)
		must(t, err)
		ends(t, "the first flush", a, unix.EIO)
		ends(t, "the second", a, nil)
		ends(t, "one of who had it open, too", b, unix.EIO)
		c, err := os.Open(path)
		must(t, err)
		defer func() { _ = c.Close() }() // read only
		ends(t, "one of who came later", c, nil)
		shows(t, a, false, newBytes)
		shows(t, a, true, oldBytes)
		d.Heal()
		_, err = a.WriteAt(newBytes, 0)
		must(t, err)
		ends(t, "what is written anew", a, nil)
		d.Cut(Nothing)
		_, _ = a.Close(), b.Close() // of a life that is over
		_ = c.Close()
		must(t, d.Remount())
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, newBytes) {
			t.Errorf("after the cut the file shows %.8q, %v", got, err)
		}
	})
}

// TestEveryWriteFails: a file system that cannot write its journal takes no more, and says so.
func TestEveryWriteFails(t *testing.T) {
	each(t, Options{}, func(t *testing.T, d *Disk) {
		f := open(t, filepath.Join(d.Mount(), "f"))
		d.FailWrites(Fault{})
		made := put(t, filepath.Join(d.Mount(), "g"), newBytes)
		if err := errors.Join(made.Sync(), f.Sync()); err == nil {
			t.Error("a flush succeeds without a write")
		}
		dir, err := os.Open(d.Mount())
		must(t, err)
		if err := unix.Syncfs(int(dir.Fd())); err == nil {
			t.Error("the journal is written without a write")
		}
		must(t, dir.Close())
		h, err := os.Create(filepath.Join(d.Mount(), "h"))
		if err == nil {
			_ = h.Close() // the test has failed
		}
		if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EIO) {
			t.Errorf("making a file: %v", err)
		}
		d.Heal()
		_, _ = f.Close(), made.Close() // of a life that is over
		must(t, d.Remount())
		if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, oldBytes) {
			t.Errorf("mounted anew, the file shows %.8q, %v", got, err)
		}
	})
}
