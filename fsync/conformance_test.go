package fsync_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/fstest"
	"weida/fsync/memfs"
)

func TestConformanceOS(t *testing.T) {
	fstest.Run(t, func(t *testing.T) (fsync.FS, string) { return fsync.OS(), t.TempDir() })
}

func TestConformanceMemfs(t *testing.T) {
	fstest.Run(t, func(t *testing.T) (fsync.FS, string) { return memfs.New(), "/" })
}

func TestConformanceFaultfs(t *testing.T) {
	fstest.Run(t, func(t *testing.T) (fsync.FS, string) {
		fs := faultfs.New(memfs.New())
		if err := fs.Mkdir("/data"); err != nil {
			t.Fatal(err)
		}
		return fs, "/data"
	})
}

// A link, a pipe or a device where a file should be is never followed and never blocks.
func TestOSRefusesIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	fs := fsync.OS()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, pipe} {
		for _, access := range []fsync.Access{fsync.ReadOnly, fsync.ReadWrite} {
			if _, err := fs.Open(name, access); !errors.Is(err, fsync.ErrNotRegular) {
				t.Errorf("open %s: %v, want ErrNotRegular", filepath.Base(name), err)
			}
		}
		if _, err := fs.Lock(name); err == nil {
			t.Errorf("lock %s succeeded", filepath.Base(name))
		}
	}
	if err := os.Remove(victim); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Create(link); !errors.Is(err, os.ErrExist) {
		t.Errorf("create over a dangling link: %v, want ErrExist", err)
	}
	if _, err := os.Lstat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Error("create followed the link")
	}
	list, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Kind != fsync.Other {
			t.Errorf("%s is listed as kind %d", e.Name, e.Kind)
		}
	}
}

// Files are 0600 and directories 0700, whatever they hold.
func TestOSModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := fsync.MkdirAll(fsync.OS(), dir); err != nil {
		t.Fatal(err)
	}
	if err := fsync.WriteFileAtomic(fsync.OS(), dir, "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "a"): 0o600} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
}

func TestCheckKernel(t *testing.T) {
	if err := fsync.CheckKernel(); err != nil {
		t.Fatalf("this kernel: %v", err)
	}
}

func TestBootIDIsStable(t *testing.T) {
	dir := t.TempDir()
	a, err := fsync.BootID(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fsync.BootID(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a != b || a == ([16]byte{}) {
		t.Fatalf("two answers %x and %x for one life", a, b)
	}
	if _, err := fsync.BootID(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("of nothing: %v", err)
	}
}

// Another file system is another page cache with a life of its own, where the kernel can tell.
func TestBootIDNamesTheMount(t *testing.T) {
	const other = "/dev/shm"
	var here, there unix.Statx_t
	dir := t.TempDir()
	for name, st := range map[string]*unix.Statx_t{dir: &here, other: &there} {
		if err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_MNT_ID_UNIQUE, st); err != nil {
			t.Skipf("%s: %v", name, err)
		}
	}
	if here.Mask&unix.STATX_MNT_ID_UNIQUE == 0 || here.Mnt_id == there.Mnt_id {
		t.Skip("the kernel has no unique mount ids, or there is one mount only")
	}
	a, err := fsync.BootID(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fsync.BootID(other)
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Fatal("two mounts share one id")
	}
}
