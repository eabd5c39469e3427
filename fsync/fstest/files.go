package fstest

import (
	"bytes"
	"io"
	iofs "io/fs"
	"sync"

	"weida/fsync"
)

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
