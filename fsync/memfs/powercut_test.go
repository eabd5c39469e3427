package memfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
)

// disk is a memfs whose every call must succeed.
type disk struct {
	*testing.T
	*memfs.FS
}

func newDisk(t *testing.T) disk {
	d := disk{t, memfs.New()}
	d.ok(d.Mkdir("/d"))
	d.flushDir("/")
	return d
}

func (d disk) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d disk) create(name string) fsync.File {
	d.Helper()
	f, err := d.Create(name)
	d.ok(err)
	return f
}

func (d disk) open(name string) fsync.File {
	d.Helper()
	f, err := d.Open(name, fsync.ReadWrite)
	d.ok(err)
	return f
}

func (d disk) write(f fsync.File, off int64, content string) {
	d.Helper()
	_, err := f.WriteAt([]byte(content), off)
	d.ok(err)
}

func (d disk) dir(name string) fsync.Dir {
	d.Helper()
	dir, err := d.OpenDir(name)
	d.ok(err)
	return dir
}

func (d disk) flushDir(name string) {
	d.Helper()
	d.ok(d.dir(name).Sync())
}

// flushed makes a file whose content and name are durable.
func (d disk) flushed(name, content string) fsync.File {
	d.Helper()
	f := d.create(name)
	d.write(f, 0, content)
	d.ok(f.Sync())
	d.flushDir(name[:strings.LastIndexByte(name, '/')+1])
	return f
}

// state is the whole tree as text: name=content, runs of equal bytes shortened.
func state(t *testing.T, fs *memfs.FS) string {
	t.Helper()
	var s []string
	for _, name := range fs.Files() {
		p, err := fs.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		s = append(s, name+"="+short(p))
	}
	return strings.Join(s, " ")
}

func short(p []byte) string {
	var s strings.Builder
	for len(p) > 0 {
		n := len(p) - len(bytes.TrimLeft(p, string(p[:1])))
		c := string(p[:1])
		if p[0] == 0 {
			c = "0"
		}
		if n > 1 {
			c = fmt.Sprintf("%s*%d", c, n)
		}
		s.WriteString(c)
		p = p[n:]
	}
	return s.String()
}

const cuts = 400

// outcomes is everything that random power cuts leave of d, and what the two extreme ones do.
func outcomes(t *testing.T, fs *memfs.FS) (all []string, none, every string) {
	for seed := range uint64(cuts) {
		c := fs.Clone()
		c.PowerCut(memfs.KeepRandom, rand.New(rand.NewPCG(seed, 1)))
		all = append(all, state(t, c))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	n, e := fs.Clone(), fs.Clone()
	n.PowerCut(memfs.KeepNone, nil)
	e.PowerCut(memfs.KeepAll, nil)
	return all, state(t, n), state(t, e)
}

func TestKillKeepsBytesAndEndsHandles(t *testing.T) {
	d := newDisk(t)
	f := d.create("/d/a")
	d.write(f, 0, "x")
	dir := d.dir("/d")
	lock, err := d.Lock("/d/LOCK")
	d.ok(err)
	boot := d.BootID()
	d.Kill()
	for name, err := range map[string]error{
		"Sync": f.Sync(), "Close": f.Close(), "Dir.Sync": dir.Sync(), "SyncFS": dir.SyncFS(), "lock": lock.Close(),
	} {
		if !errors.Is(err, memfs.ErrGone) {
			t.Errorf("%s after the kill: %v", name, err)
		}
	}
	if got := state(t, d.FS); got != "/d/LOCK= /d/a=x" {
		t.Errorf("kill left %q", got)
	}
	if d.BootID() != boot {
		t.Error("the boot id changed")
	}
	if _, err := d.Lock("/d/LOCK"); err != nil {
		t.Error(err)
	}
	d.PowerCut(memfs.KeepNone, nil) // what was volatile before the kill still is
	if got := state(t, d.FS); got != "" {
		t.Errorf("power cut left %q", got)
	}
	if d.BootID() == boot {
		t.Error("the boot id stayed")
	}
}

func TestCloneSharesNothingThatChanges(t *testing.T) {
	d := newDisk(t)
	f := d.flushed("/d/a", strings.Repeat("o", 5000))
	d.write(f, 0, "x")
	before := state(t, d.FS)
	c := d.Clone()
	d.write(f, 1, "y")
	d.ok(d.Remove("/d/a"))
	if got := state(t, c); got != before {
		t.Errorf("the clone changed to %q", got)
	}
	g, err := c.Open("/d/a", fsync.ReadWrite)
	d.ok(err)
	d.write(g, 4500, "z")
	d.ok(c.FlipBit("/d/a", 4000, 0))
	c.PowerCut(memfs.KeepAll, nil)
	d.create("/d/b")
	p := make([]byte, 5000)
	_, err = f.ReadAt(p, 0)
	d.ok(err)
	if got := short(p); got != "xyo*4998" {
		t.Errorf("the original reads %q", got)
	}
}

func TestDamage(t *testing.T) {
	d := newDisk(t)
	f := d.flushed("/d/a", "abc")
	d.ok(d.FlipBit("/d/a", 1, 0))
	d.ok(f.DropCache(0, 0))
	if got := state(t, d.FS); got != "/d/a=ac*2" {
		t.Errorf("flipped: %q", got)
	}
	d.ok(d.Truncate("/d/a", 2))
	d.write(f, 4, "e")
	if got := state(t, d.FS); got != "/d/a=ac0*2e" {
		t.Errorf("truncated and written: %q", got)
	}
	d.PowerCut(memfs.KeepNone, nil)
	if got := state(t, d.FS); got != "/d/a=ac" {
		t.Errorf("after a power cut: %q", got)
	}
	if err := d.FlipBit("/d/a", 2, 0); err == nil {
		t.Error("flipped a bit behind the end")
	}
}

func TestCapacity(t *testing.T) {
	d := newDisk(t)
	d.SetCapacity(3 * 4096)
	f := d.create("/d/a")
	d.ok(f.Allocate(0, 8192))
	g := d.create("/d/b")
	n, err := g.WriteAt(make([]byte, 8192), 0)
	if n != 4096 || !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if err := g.Allocate(0, 8192); !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatal(err)
	}
	d.write(f, 0, strings.Repeat("x", 8192)) // reserved
	d.ok(d.Remove("/d/b"))
	d.ok(g.Close())
	if got := d.Used(); got != 8192 {
		t.Fatalf("%d bytes used", got)
	}
	d.ok(f.Allocate(8192, 1))
	d.PowerCut(memfs.KeepNone, nil)
	if got := d.Used(); got != 0 {
		t.Fatalf("%d bytes used after everything was lost", got)
	}
}
