// Package fstest is the suite that every fsync.FS passes: the real one, the one in memory and the one
// that fails on order without an order.
//
// What it is for: code that is tested on memfs runs on the real file system; this suite is what makes
// the first say something about the second. It covers what a living process sees. What a power cut
// leaves is tested with memfs, which alone can have one.
//
// Who may call: one test at a time per directory. It fails the test it was given and keeps nothing.
package fstest

import (
	"errors"
	"path/filepath"
	"testing"

	"weida/fsync"
)

// Run checks a file system. newFS returns it with an empty directory; it is called for each subtest.
func Run(t *testing.T, newFS func(t *testing.T) (fs fsync.FS, dir string)) {
	for _, c := range []struct {
		name string
		test func(e env)
	}{
		{"Create", testCreate},
		{"Open", testOpen},
		{"ReadWrite", testReadWrite},
		{"ReadOnly", testReadOnly},
		{"TwoHandles", testTwoHandles},
		{"Concurrent", testConcurrent},
		{"Allocate", testAllocate},
		{"FlushCalls", testFlushCalls},
		{"Rename", testRename},
		{"RenameDir", testRenameDir},
		{"Remove", testRemove},
		{"RemovedButOpen", testRemovedButOpen},
		{"List", testList},
		{"Lock", testLock},
		{"Space", testSpace},
		{"Closed", testClosed},
		{"Errors", testErrors},
		{"MkdirAll", testMkdirAll},
		{"WriteFileAtomic", testWriteFileAtomic},
		{"ReadFile", testReadFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, dir := newFS(t)
			c.test(env{T: t, fs: fs, dir: dir})
		})
	}
}

// env is one subtest with its file system.
type env struct {
	*testing.T
	fs  fsync.FS
	dir string
}

func (e env) path(name string) string { return filepath.Join(e.dir, name) }

func (e env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// is checks that err is an *fsync.Error that wraps want.
func (e env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("got error %v, want %v", err, want)
	}
	e.isError(err)
}

func (e env) isError(err error) {
	e.Helper()
	fe, ok := errors.AsType[*fsync.Error](err)
	if !ok || fe.Op == "" || fe.Path == "" {
		e.Fatalf("got %#v, want an *fsync.Error with Op and Path", err)
	}
}

func (e env) create(name string) fsync.File {
	e.Helper()
	f, err := e.fs.Create(e.path(name))
	e.ok(err)
	return f
}

// file makes a file with content and closes it.
func (e env) file(name, content string) {
	e.Helper()
	f := e.create(name)
	e.write(f, 0, content)
	e.ok(f.Close())
}

func (e env) write(f fsync.File, off int64, content string) {
	e.Helper()
	n, err := f.WriteAt([]byte(content), off)
	e.ok(err)
	if n != len(content) {
		e.Fatalf("wrote %d of %d bytes without an error", n, len(content))
	}
}

// content checks a whole file through a new handle.
func (e env) content(name, want string) {
	e.Helper()
	got, err := fsync.ReadFile(e.fs, e.path(name), 1<<20)
	e.ok(err)
	if string(got) != want {
		e.Fatalf("%s holds %q, want %q", name, got, want)
	}
}

func (e env) size(f fsync.File, want int64) {
	e.Helper()
	got, err := f.Size()
	e.ok(err)
	if got != want {
		e.Fatalf("size %d, want %d", got, want)
	}
}

func (e env) names(dir string, want ...string) {
	e.Helper()
	list, err := e.fs.List(dir)
	e.ok(err)
	var got []string
	for _, entry := range list {
		got = append(got, entry.Name)
	}
	if len(got) != len(want) {
		e.Fatalf("%s lists %q, want %q", dir, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			e.Fatalf("%s lists %q, want %q", dir, got, want)
		}
	}
}
