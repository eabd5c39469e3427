package fsync_test

import (
	"bytes"
	"errors"
	iofs "io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// everyCrash plays do on clones of disk, once for each operation as the last one and then whole, and
// calls check with what the power cuts leave; done says whether do had returned.
func everyCrash(t *testing.T, disk *memfs.FS, order func(*faultfs.FS), do func(fs fsync.FS) error,
	check func(after *memfs.FS, done bool) error,
) error {
	t.Helper()
	for n := 1; ; n++ {
		d := disk.Clone()
		fs := faultfs.New(d)
		fs.Count(faultfs.Changes...)
		order(fs)
		fs.DieBefore(n)
		err := do(fs)
		if err != nil && !errors.Is(err, faultfs.ErrDied) {
			t.Fatal(err)
		}
		for _, keep := range []memfs.Keep{memfs.KeepNone, memfs.KeepAll, memfs.KeepRandom, memfs.KeepRandom} {
			after := d.Clone()
			after.PowerCut(keep, rand.New(rand.NewPCG(uint64(n), uint64(keep))))
			if err := check(after, err == nil); err != nil {
				return err
			}
		}
		if err == nil {
			return nil
		}
	}
}

func nothing(*faultfs.FS) {}

func writeAtomicTest(t *testing.T, order func(*faultfs.FS)) error {
	t.Helper()
	was, now := bytes.Repeat([]byte("o"), 5000), bytes.Repeat([]byte("n"), 9000)
	disk := memfs.New()
	if err := fsync.MkdirAll(disk, "/d"); err != nil {
		t.Fatal(err)
	}
	if err := fsync.WriteFileAtomic(disk, "/d", "a", was); err != nil {
		t.Fatal(err)
	}
	do := func(fs fsync.FS) error { return fsync.WriteFileAtomic(fs, "/d", "a", now) }
	return everyCrash(t, disk, order, do, func(after *memfs.FS, done bool) error {
		got, err := after.Bytes("/d/a")
		if err != nil {
			return err
		}
		if !bytes.Equal(got, now) && (done || !bytes.Equal(got, was)) {
			return errors.New("neither old nor new")
		}
		return do(after) // and again, over what was left
	})
}

func TestWriteFileAtomicSurvivesEveryCrash(t *testing.T) {
	if err := writeAtomicTest(t, nothing); err != nil {
		t.Fatal(err)
	}
	for name, skip := range map[string]func(*faultfs.FS){
		"file": func(fs *faultfs.FS) { fs.IgnoreSync("") }, "directory": func(fs *faultfs.FS) { fs.IgnoreDirSync("") },
	} {
		if writeAtomicTest(t, skip) == nil {
			t.Errorf("the flush of the %s is left out, and no test notices", name)
		}
	}
}

func mkdirAllTest(t *testing.T, order func(*faultfs.FS)) error {
	t.Helper()
	do := func(fs fsync.FS) error { return fsync.MkdirAll(fs, "/a/b/c") }
	return everyCrash(t, memfs.New(), order, do, func(after *memfs.FS, done bool) error {
		_, err := after.OpenDir("/a/b/c")
		if done && err != nil {
			return err
		}
		return do(after)
	})
}

func TestMkdirAllSurvivesEveryCrash(t *testing.T) {
	if err := mkdirAllTest(t, nothing); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/", "a", "b"} {
		if mkdirAllTest(t, func(fs *faultfs.FS) { fs.IgnoreDirSync(dir) }) == nil {
			t.Errorf("the flush of %s is left out, and no test notices", dir)
		}
	}
}

// A call that died after making a directory has left it volatile; the next call makes it durable.
func TestMkdirAllCompletesAnEarlierOne(t *testing.T) {
	disk := memfs.New()
	if err := disk.Mkdir("/a"); err != nil {
		t.Fatal(err)
	}
	disk.Kill()
	if err := fsync.MkdirAll(disk, "/a"); err != nil {
		t.Fatal(err)
	}
	disk.PowerCut(memfs.KeepNone, nil)
	if _, err := disk.OpenDir("/a"); err != nil {
		t.Fatal(err)
	}
}

// A directory inside one that may be passed through, not read, is no obstacle.
func TestMkdirAllUnderUnreadableParent(t *testing.T) {
	disk := memfs.New()
	if err := disk.Mkdir("/a"); err != nil {
		t.Fatal(err)
	}
	fs := faultfs.New(disk)
	fs.Fail(faultfs.Match{Op: faultfs.OpOpenDir, Path: "/"}, 1, -1, iofs.ErrPermission)
	if err := fsync.MkdirAll(fs, "/a/b"); err != nil {
		t.Fatal(err)
	}
	if err := fsync.MkdirAll(fs, "/b"); !errors.Is(err, iofs.ErrPermission) {
		t.Fatalf("a new directory there: %v", err)
	}
}

func TestWriteFileAtomicOnAFullDisk(t *testing.T) {
	disk := memfs.New()
	disk.SetCapacity(8192)
	if err := fsync.WriteFileAtomic(disk, "/", "a", make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := fsync.WriteFileAtomic(disk, "/", "a", make([]byte, 8192)); !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatal(err)
	}
	if got := disk.Files(); !slices.Equal(got, []string{"/a"}) {
		t.Fatalf("left behind: %q", got)
	}
	if err := fsync.WriteFileAtomic(disk, "/", "a", make([]byte, 4000)); err != nil {
		t.Fatal(err)
	}
}

// Every call that WriteFileAtomic and ReadFile make fails in turn, and they say so.
func TestHelpersReportEveryFailure(t *testing.T) {
	for n := 1; ; n++ {
		fs := faultfs.New(memfs.New())
		fs.Fail(faultfs.Match{}, n, 1, errors.New("injected"))
		err := fsync.WriteFileAtomic(fs, "/", "a", []byte("x"))
		if err == nil {
			_, err = fsync.ReadFile(fs, "/a", 10)
		}
		failed := fs.Ops() >= n
		if (err != nil) != failed {
			t.Fatalf("call %d failed, and the helper says %v; calls: %v", n, err, fs.Trace())
		}
		if !failed {
			return
		}
	}
}
