package faultfs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// script makes seven calls, of which five change the disk.
func script(fs fsync.FS) error {
	f, err := fs.Create("/a")
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(make([]byte, 10000), 3000); err != nil {
		return err
	}
	if _, err := f.Size(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fs.Rename("/a", "/b"); err != nil {
		return err
	}
	return fs.Remove("/b")
}

func TestCountAndTrace(t *testing.T) {
	fs := faultfs.New(memfs.New())
	ok(t, script(fs))
	if n := fs.Ops(); n != 7 {
		t.Errorf("%d calls, want 7", n)
	}
	var got []string
	for _, c := range fs.Trace() {
		got = append(got, c.String())
	}
	want := []string{
		"1 create /a", "2 write /a [3000, 13000)", "3 stat /a", "4 fdatasync /a", "5 close /a",
		"6 rename /a to /b", "7 remove /b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("traced %q, want %q", got, want)
	}
	fs = faultfs.New(memfs.New())
	fs.Count(faultfs.Changes...)
	ok(t, script(fs))
	if n := fs.Ops(); n != 5 {
		t.Errorf("%d changes, want 5", n)
	}
}

// Every call fails in turn, once, with the error that was ordered and nothing else changed.
func TestFailEveryCall(t *testing.T) {
	for n := 1; n <= 7; n++ {
		fs := faultfs.New(memfs.New())
		fs.Fail(faultfs.Match{}, n, 1, syscall.ENOSPC)
		err := script(fs)
		if fe, is := errors.AsType[*fsync.Error](err); !is || !errors.Is(err, fsync.ErrDiskFull) {
			t.Errorf("call %d: %v", n, err)
		} else if last := fs.Trace()[n-1]; fe.Op != string(last.Op) || fe.Path != last.Path {
			t.Errorf("call %d: the error names %s %s", n, fe.Op, fe.Path)
		}
	}
}

func TestFailMatches(t *testing.T) {
	fs := faultfs.New(memfs.New())
	ok(t, fs.Mkdir("/d"))
	boom := errors.New("boom")
	fs.Fail(faultfs.Match{Op: faultfs.OpCreate, Path: "a*"}, 2, 2, boom)
	fs.Fail(faultfs.Match{Op: faultfs.OpRemove, Path: "/d/*"}, 1, -1, boom)
	fs.Fail(faultfs.Match{Op: faultfs.OpRename, Path: "z"}, 1, 1, boom)
	var got []bool
	for _, name := range []string{"/a1", "/d/a2", "/b", "/a3", "/a4"} {
		_, err := fs.Create(name)
		got = append(got, errors.Is(err, boom))
	}
	if fmt.Sprint(got) != "[false true false true false]" {
		t.Errorf("creations failed: %v", got)
	}
	ok(t, fs.Remove("/b"))
	for range 3 {
		if err := fs.Remove("/d/x"); !errors.Is(err, boom) {
			t.Error(err)
		}
	}
	if err := fs.Rename("/a1", "/z"); !errors.Is(err, boom) {
		t.Errorf("a rename does not match by its new name: %v", err)
	}
	ok(t, fs.Rename("/a1", "/z"))
}

func TestShortWrite(t *testing.T) {
	disk := memfs.New()
	fs := faultfs.New(disk)
	fs.ShortWrite(faultfs.Match{Path: "a"}, 2, 3, syscall.ENOSPC)
	f, err := fs.Create("/a")
	ok(t, err)
	_, err = f.WriteAt([]byte("....."), 0)
	ok(t, err)
	n, err := f.WriteAt([]byte("xxxxx"), 0)
	if n != 3 || !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if p, _ := disk.Bytes("/a"); string(p) != "xxx.." {
		t.Fatalf("the file holds %q", p)
	}
}

// An injected failure of Sync loses what the kernel would lose, and the next Sync says nothing.
func TestFailedSyncLosesBytes(t *testing.T) {
	disk := memfs.New()
	fs := faultfs.New(disk)
	fs.Fail(faultfs.Match{Op: faultfs.OpSync}, 1, 1, syscall.EIO)
	f, err := fs.Create("/a")
	ok(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	ok(t, err)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	ok(t, f.Sync())
	p, err := disk.Bytes("/a")
	ok(t, err)
	if string(p) != "x" {
		t.Fatalf("the cache shows %q", p)
	}
	ok(t, f.DropCache(0, 0))
	p, err = disk.Bytes("/a")
	ok(t, err)
	if string(p) != "\x00" {
		t.Fatalf("the disk holds %q", p)
	}
}

// Before, in the middle of and after every call: exactly the calls before the death have happened.
func TestDeath(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for _, after := range []bool{false, true} {
			disk := memfs.New()
			fs := faultfs.New(disk)
			done := n - 1
			if after {
				fs.DieAfter(n)
				done = n
			} else {
				fs.DieBefore(n)
			}
			err := script(fs)
			if (err == nil) != (done == 7) || err != nil && !errors.Is(err, faultfs.ErrDied) {
				t.Fatalf("died at %d: %v", n, err)
			}
			if !fs.Dead() {
				t.Fatal("not dead")
			}
			want := "/a"
			switch {
			case done == 0 || done == 7:
				want = ""
			case done == 6:
				want = "/b"
			}
			if got := strings.Join(disk.Files(), " "); got != want {
				t.Errorf("after %d calls the disk holds %q, want %q", done, got, want)
			}
			ops := fs.Ops()
			if _, err := fs.List("/"); !errors.Is(err, faultfs.ErrDied) {
				t.Errorf("the dead list: %v", err)
			}
			if fs.Ops() != ops {
				t.Error("calls of the dead are counted")
			}
		}
	}
}

func TestDeathDuringAWrite(t *testing.T) {
	// [3000, 13000) covers the pages at 0, 4096, 8192 and 12288.
	for pages, want := range []int64{0, 4096, 8192, 12288, 12288} {
		disk := memfs.New()
		fs := faultfs.New(disk)
		fs.DieDuring(2, pages)
		if err := script(fs); !errors.Is(err, faultfs.ErrDied) {
			t.Fatal(err)
		}
		p, err := disk.Bytes("/a")
		ok(t, err)
		if int64(len(p)) != want {
			t.Errorf("%d pages landed: the file has %d bytes, want %d", pages, len(p), want)
		}
	}
}

func TestIgnoredFlushes(t *testing.T) {
	disk := memfs.New()
	fs := faultfs.New(disk)
	fs.IgnoreSync("a")
	fs.IgnoreDirSync("")
	fs.IgnoreSyncFS()
	d, err := fs.OpenDir("/")
	ok(t, err)
	for _, name := range []string{"/a", "/b"} {
		f, err := fs.Create(name)
		ok(t, err)
		_, err = f.WriteAt([]byte("x"), 0)
		ok(t, err)
		ok(t, f.Sync())
	}
	ok(t, d.Sync())
	ok(t, d.SyncFS())
	lost := disk.Clone()
	lost.PowerCut(memfs.KeepNone, nil)
	if got := lost.Files(); len(got) != 0 {
		t.Fatalf("flushed all the same: %q", got)
	}
	real, err := disk.OpenDir("/")
	ok(t, err)
	ok(t, real.Sync())
	disk.PowerCut(memfs.KeepNone, nil)
	a, err := disk.Bytes("/a")
	ok(t, err)
	b, err := disk.Bytes("/b")
	ok(t, err)
	if string(a) != "" || string(b) != "x" {
		t.Fatalf("a is %q, b is %q", a, b)
	}
}

func TestGate(t *testing.T) {
	fs := faultfs.New(memfs.New())
	g := fs.Gate(faultfs.Match{Op: faultfs.OpMkdir, Path: "b"})
	ok(t, fs.Mkdir("/a"))
	done := make(chan error)
	go func() { done <- fs.Mkdir("/b") }()
	if c := <-g.Entered(); c.Path != "/b" {
		t.Fatalf("entered by %v", c)
	}
	if _, err := fs.List("/b"); err == nil {
		t.Fatal("the call has happened")
	}
	g.Open()
	ok(t, <-done)
	if _, err := fs.List("/b"); err != nil {
		t.Fatal(err)
	}
}
