package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// newDisk makes one for a test, or skips the test where there can be none.
func newDisk(t *testing.T, o Options) *Disk {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	d, err := New(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// kinds are the file systems that tests run on.
var kinds = []string{"ext4", "xfs"}

// each runs a test on a disk of each kind.
func each(t *testing.T, o Options, test func(t *testing.T, d *Disk)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			o.FS = kind
			test(t, newDisk(t, o))
		})
	}
}

// put writes a file with no flush.
func put(t *testing.T, path string, data []byte) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // of a life that may be over
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDiskKeepsWhatWasFlushed: after each kind of cut the file system mounts, has what was flushed, and has nothing of
// what was only in the page cache. What was on its way is there or not.
func TestDiskKeepsWhatWasFlushed(t *testing.T) {
	each(t, Options{Seed: 7}, func(t *testing.T, d *Disk) {
		data := bytes.Repeat([]byte("what was flushed"), 64<<10/16)
		for i, k := range []Keep{Nothing, Some, Everything, Some} {
			flushed := filepath.Join(d.Mount(), fmt.Sprintf("flushed%d", i))
			f := put(t, flushed, data)
			must(t, f.Sync())
			lost := put(t, filepath.Join(d.Mount(), fmt.Sprintf("lost%d", i)), data)
			under := put(t, filepath.Join(d.Mount(), fmt.Sprintf("underway%d", i)), data)
			must(t, unix.SyncFileRange(int(under.Fd()), 0, 0,
				unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER))
			loss := d.Cut(k)
			t.Logf("%v: %+v", k, loss)
			if err := f.Sync(); err == nil {
				_, err = f.Write(data)
				if err = errors.Join(err, f.Sync()); err == nil {
					t.Error("a flush succeeds without power")
				}
			}
			for _, f := range []*os.File{f, lost, under} {
				_ = f.Close() // of a life that is over
			}
			must(t, d.Remount())
			got, err := os.ReadFile(flushed)
			if err != nil || !bytes.Equal(got[:min(len(got), len(data))], data) {
				t.Errorf("%v: what was flushed is %d bytes, %v", k, len(got), err)
			}
			if b, err := os.ReadFile(lost.Name()); err == nil && len(b) > 0 {
				t.Errorf("%v: what nobody flushed has %d bytes", k, len(b))
			}
		}
	})
}
