package fstest

import (
	"errors"
	iofs "io/fs"

	"weida/fsync"
)

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

func testSpace(e env) {
	s, err := e.fs.Space(e.dir)
	e.ok(err)
	if s.Total < 0 || s.Free < 0 || s.Total > 0 && s.Free > s.Total {
		e.Fatalf("the room is %+v", s)
	}
	_, err = e.fs.Space(e.path("none"))
	e.is(err, iofs.ErrNotExist)
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
