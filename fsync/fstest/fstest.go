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
	"bytes"
	"errors"
	"io"
	iofs "io/fs"
	"path/filepath"
	"sync"
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

func testCreate(e env) {
	f := e.create("a")
	e.size(f, 0)
	_, err := e.fs.Create(e.path("a"))
	e.is(err, iofs.ErrExist)
	e.ok(e.fs.Mkdir(e.path("d")))
	_, err = e.fs.Create(e.path("d"))
	e.is(err, iofs.ErrExist)
	_, err = e.fs.Create(e.path("none/a"))
	e.is(err, iofs.ErrNotExist)
	_, err = e.fs.Create(e.path("a/b"))
	e.isError(err)
	e.ok(f.Close())
}

func testOpen(e env) {
	_, err := e.fs.Open(e.path("a"), fsync.ReadWrite)
	e.is(err, iofs.ErrNotExist)
	e.names(e.dir)
	e.ok(e.fs.Mkdir(e.path("d")))
	for _, access := range []fsync.Access{fsync.ReadOnly, fsync.ReadWrite} {
		_, err = e.fs.Open(e.path("d"), access)
		e.is(err, fsync.ErrNotRegular)
	}
	e.file("a", "x")
	_, err = e.fs.OpenDir(e.path("a"))
	e.isError(err)
	_, err = e.fs.OpenDir(e.path("none"))
	e.is(err, iofs.ErrNotExist)
}

func testReadWrite(e env) {
	f := e.create("a")
	e.write(f, 0, "hello")
	e.write(f, 9000, "far")
	e.size(f, 9003)
	e.write(f, 4090, "over a block's end")
	want := make([]byte, 9003)
	copy(want, "hello")
	copy(want[4090:], "over a block's end")
	copy(want[9000:], "far")
	e.content("a", string(want))

	p := make([]byte, 10)
	n, err := f.ReadAt(p, 8998)
	if n != 5 || err != io.EOF { //nolint:errorlint // io.ReaderAt promises the bare value
		e.Fatalf("a read over the end returned %d, %v; want 5, EOF", n, err)
	}
	n, err = f.ReadAt(p, 20000)
	if n != 0 || err != io.EOF { //nolint:errorlint // io.ReaderAt promises the bare value
		e.Fatalf("a read behind the end returned %d, %v; want 0, EOF", n, err)
	}
	n, err = f.ReadAt(p, 4090)
	if n != 10 || err != nil || string(p) != "over a blo" {
		e.Fatalf("read %d %q, %v", n, p, err)
	}
	_, err = f.ReadAt(p, -1)
	if err == nil {
		e.Fatal("a read at a negative position succeeded")
	}
	e.ok(f.Close())
}

func testReadOnly(e env) {
	e.file("a", "x")
	f, err := e.fs.Open(e.path("a"), fsync.ReadOnly)
	e.ok(err)
	_, err = f.WriteAt([]byte("y"), 0)
	e.isError(err)
	e.isError(f.Allocate(0, 4096))
	e.ok(f.Sync())
	e.ok(f.Close())
	e.content("a", "x")
}

func testTwoHandles(e env) {
	a := e.create("a")
	b, err := e.fs.Open(e.path("a"), fsync.ReadWrite)
	e.ok(err)
	e.write(a, 0, "one")
	e.write(b, 3, "two")
	e.size(a, 6)
	e.ok(a.Close())
	e.write(b, 6, "three")
	e.ok(b.Sync())
	e.ok(b.Close())
	e.content("a", "onetwothree")
}

func testConcurrent(e env) {
	const writers, size = 8, 10_000
	f := e.create("a")
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			p := bytes.Repeat([]byte{byte('a' + i)}, size)
			if _, err := f.WriteAt(p, int64(i*size)); err != nil {
				e.Error(err)
			}
			got := make([]byte, size)
			if _, err := f.ReadAt(got, int64(i*size)); err != nil || !bytes.Equal(got, p) {
				e.Errorf("read back something else (%v)", err)
			}
			if err := f.Sync(); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	e.size(f, writers*size)
	e.ok(f.Close())
}

func testAllocate(e env) {
	f := e.create("a")
	e.write(f, 0, "abc")
	e.ok(f.Allocate(0, 65536))
	e.size(f, 65536)
	want := make([]byte, 65536)
	copy(want, "abc")
	e.content("a", string(want))
	e.ok(f.Allocate(0, 4096)) // smaller: the size stays
	e.size(f, 65536)
	e.ok(f.Allocate(65536, 1000))
	e.size(f, 66536)
	e.isError(f.Allocate(-1, 10))
	e.isError(f.Allocate(0, 0))
	e.ok(f.Close())
	list, err := e.fs.List(e.dir)
	e.ok(err)
	if len(list) != 1 || list[0].Size != 66536 || list[0].Allocated < 66536 {
		e.Fatalf("listed %+v", list)
	}
}

func testFlushCalls(e env) {
	f := e.create("a")
	e.write(f, 0, "abc")
	e.ok(f.StartWrite(0, 3))
	e.ok(f.DropCache(0, 0)) // dirty bytes must survive it
	e.content("a", "abc")
	e.ok(f.Sync())
	e.ok(f.DropCache(1, 1))
	e.ok(f.DropCache(0, 0))
	e.content("a", "abc")
	d, err := e.fs.OpenDir(e.dir)
	e.ok(err)
	e.ok(d.Sync())
	e.write(f, 3, "def")
	e.ok(d.SyncFS())
	e.ok(d.SyncFS())
	e.content("a", "abcdef")
	e.ok(d.Close())
	e.ok(f.Close())
}

func testRename(e env) {
	e.file("a", "A")
	e.file("b", "B")
	old, err := e.fs.Open(e.path("b"), fsync.ReadOnly)
	e.ok(err)
	e.ok(e.fs.Rename(e.path("a"), e.path("b")))
	e.names(e.dir, "b")
	e.content("b", "A")
	p := make([]byte, 1)
	_, err = old.ReadAt(p, 0)
	e.ok(err)
	if p[0] != 'B' {
		e.Fatalf("the replaced file reads %q", p)
	}
	e.ok(old.Close())

	e.ok(e.fs.Mkdir(e.path("d")))
	e.ok(e.fs.Rename(e.path("b"), e.path("d/c")))
	e.names(e.dir, "d")
	e.content("d/c", "A")
	e.ok(e.fs.Rename(e.path("d/c"), e.path("d/c")))
	e.content("d/c", "A")
	e.is(e.fs.Rename(e.path("none"), e.path("x")), iofs.ErrNotExist)
	e.is(e.fs.Rename(e.path("d/c"), e.path("none/x")), iofs.ErrNotExist)
	e.isError(e.fs.Rename(e.path("d/c"), e.path("d")))
}

func testRenameDir(e env) {
	e.ok(e.fs.Mkdir(e.path("d")))
	e.file("d/a", "A")
	e.ok(e.fs.Rename(e.path("d"), e.path("f")))
	e.names(e.dir, "f")
	e.content("f/a", "A")
	e.ok(e.fs.Mkdir(e.path("g")))
	e.file("g/b", "B")
	e.is(e.fs.Rename(e.path("f"), e.path("g")), iofs.ErrExist)
	e.content("g/b", "B")
}

func testRemove(e env) {
	e.file("a", "A")
	e.ok(e.fs.Remove(e.path("a")))
	e.names(e.dir)
	e.is(e.fs.Remove(e.path("a")), iofs.ErrNotExist)
	e.ok(e.fs.Mkdir(e.path("d")))
	e.file("d/a", "A")
	e.isError(e.fs.Remove(e.path("d")))
	e.ok(e.fs.Remove(e.path("d/a")))
	e.ok(e.fs.Remove(e.path("d")))
	e.names(e.dir)
}

func testRemovedButOpen(e env) {
	f := e.create("a")
	e.ok(e.fs.Remove(e.path("a")))
	e.write(f, 0, "still here")
	e.ok(f.Sync())
	p := make([]byte, 10)
	_, err := f.ReadAt(p, 0)
	e.ok(err)
	if string(p) != "still here" {
		e.Fatalf("read %q", p)
	}
	g := e.create("a") // the name is free again, for another file
	e.size(g, 0)
	e.ok(g.Close())
	e.ok(f.Close())
}

func testList(e env) {
	e.file("b", "12345")
	e.file("a", "")
	e.ok(e.fs.Mkdir(e.path("c")))
	list, err := e.fs.List(e.dir)
	e.ok(err)
	want := []fsync.Entry{
		{Name: "a", Kind: fsync.Regular},
		{Name: "b", Kind: fsync.Regular, Size: 5},
		{Name: "c", Kind: fsync.Directory},
	}
	for i := range list {
		list[i].Allocated = 0 // the file system's own affair
	}
	if len(list) != len(want) || list[0] != want[0] || list[1] != want[1] || list[2] != want[2] {
		e.Fatalf("listed %+v, want %+v", list, want)
	}
	e.names(e.path("c"))
	_, err = e.fs.List(e.path("none"))
	e.is(err, iofs.ErrNotExist)
	_, err = e.fs.List(e.path("a"))
	e.isError(err)
}

func testLock(e env) {
	l, err := e.fs.Lock(e.path("LOCK"))
	e.ok(err)
	_, err = e.fs.Lock(e.path("LOCK"))
	e.is(err, fsync.ErrLocked)
	e.names(e.dir, "LOCK")
	e.ok(l.Close())
	l, err = e.fs.Lock(e.path("LOCK"))
	e.ok(err)
	e.ok(l.Close())
	_, err = e.fs.Lock(e.path("none/LOCK"))
	e.is(err, iofs.ErrNotExist)
}

func testClosed(e env) {
	f := e.create("a")
	e.ok(f.Close())
	e.is(f.Close(), iofs.ErrClosed)
	e.is(f.Sync(), iofs.ErrClosed)
	_, err := f.WriteAt([]byte("x"), 0)
	e.is(err, iofs.ErrClosed)
	_, err = f.ReadAt(make([]byte, 1), 0)
	e.is(err, iofs.ErrClosed)
	_, err = f.Size()
	e.is(err, iofs.ErrClosed)
	e.is(f.Allocate(0, 1), iofs.ErrClosed)
	e.is(f.StartWrite(0, 1), iofs.ErrClosed)
	e.is(f.DropCache(0, 0), iofs.ErrClosed)
	d, err := e.fs.OpenDir(e.dir)
	e.ok(err)
	e.ok(d.Close())
	e.is(d.Close(), iofs.ErrClosed)
	e.is(d.Sync(), iofs.ErrClosed)
	e.is(d.SyncFS(), iofs.ErrClosed)
}

func testErrors(e env) {
	_, err := e.fs.Open(e.path("none"), fsync.ReadOnly)
	e.isError(err)
	fe, _ := errors.AsType[*fsync.Error](err)
	if fe.Op != "open" || fe.Path != e.path("none") {
		e.Fatalf("the error names %q of %q", fe.Op, fe.Path)
	}
	e.ok(e.fs.Mkdir(e.path("d")))
	e.is(e.fs.Mkdir(e.path("d")), iofs.ErrExist)
	e.is(e.fs.Mkdir(e.path("none/d")), iofs.ErrNotExist)
}

func testMkdirAll(e env) {
	deep := e.path("a/b/c")
	e.ok(fsync.MkdirAll(e.fs, deep))
	e.ok(fsync.MkdirAll(e.fs, deep))
	e.names(e.path("a/b"), "c")
	e.file("f", "")
	e.isError(fsync.MkdirAll(e.fs, e.path("f/x")))
}

func testWriteFileAtomic(e env) {
	e.ok(fsync.WriteFileAtomic(e.fs, e.dir, "a", []byte("one")))
	e.content("a", "one")
	e.file("a.tmp", "left behind by a crash, and longer than what follows")
	e.ok(fsync.WriteFileAtomic(e.fs, e.dir, "a", []byte("two")))
	e.content("a", "two")
	e.names(e.dir, "a")
}

func testReadFile(e env) {
	e.file("a", "12345")
	_, err := fsync.ReadFile(e.fs, e.path("a"), 4)
	e.is(err, fsync.ErrTooLarge)
	got, err := fsync.ReadFile(e.fs, e.path("a"), 5)
	e.ok(err)
	if string(got) != "12345" {
		e.Fatalf("read %q", got)
	}
	_, err = fsync.ReadFile(e.fs, e.path("none"), 5)
	e.is(err, iofs.ErrNotExist)
	e.file("empty", "")
	got, err = fsync.ReadFile(e.fs, e.path("empty"), 0)
	e.ok(err)
	if len(got) != 0 {
		e.Fatalf("read %q", got)
	}
}
