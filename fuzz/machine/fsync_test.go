package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"weida/fsync"
	"weida/fsync/fstest"
)

// TestMachineConformance runs the suite of every fsync.FS on file systems of their own.
func TestMachineConformance(t *testing.T) {
	asked(t)
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			dir, cases := mount(t, image(t, kind, 512)), 0
			fstest.Run(t, func(t *testing.T) (fsync.FS, string) {
				cases++
				sub := filepath.Join(dir, strconv.Itoa(cases))
				if err := os.Mkdir(sub, 0o700); err != nil {
					t.Fatal(err)
				}
				return fsync.OS(), sub
			})
		})
	}
}

// TestMachineFull: a full disk is ErrDiskFull from whatever needs room, and no longer once there is room.
func TestMachineFull(t *testing.T) {
	asked(t)
	dir := mount(t, image(t, "ext4", 8))
	fs := fsync.OS()
	filler, err := fs.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<10)
	var off int64
	for ; err == nil; off += int64(len(block)) {
		_, err = filler.WriteAt(block, off)
	}
	if !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatalf("writing to a full disk: %v", err)
	}
	if err := f.Allocate(0, 1<<20); !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatalf("preallocating on a full disk: %v", err)
	}
	if err := fsync.WriteFileAtomic(fs, dir, "small", block); !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatalf("WriteFileAtomic on a full disk: %v", err)
	}
	if err := errors.Join(filler.Close(), fs.Remove(filepath.Join(dir, "filler"))); err != nil {
		t.Fatal(err)
	}
	if err := f.Allocate(0, 1<<20); err != nil {
		t.Fatalf("preallocating after room was made: %v", err)
	}
	if err := fsync.WriteFileAtomic(fs, dir, "small", block); err != nil {
		t.Fatalf("WriteFileAtomic after room was made: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
