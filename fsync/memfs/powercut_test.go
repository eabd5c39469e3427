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
	d.syncDir("/")
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

func (d disk) syncDir(name string) {
	d.Helper()
	d.ok(d.dir(name).Sync())
}

// synced makes a file whose content and name are durable.
func (d disk) synced(name, content string) fsync.File {
	d.Helper()
	f := d.create(name)
	d.write(f, 0, content)
	d.ok(f.Sync())
	d.syncDir(name[:strings.LastIndexByte(name, '/')+1])
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

// The table: what was done, and every state a power cut may leave. The first is what KeepNone
// leaves, the last what KeepAll leaves. D-2, D-3.
func TestPowerCut(t *testing.T) {
	x, o, z := strings.Repeat("x", 512), strings.Repeat("o", 512), strings.Repeat("\x00", 512)
	for _, c := range []struct {
		name string
		do   func(d disk)
		want []string
	}{
		{"nothing", func(disk) {}, []string{""}},
		{"file synced, directory not", func(d disk) {
			f := d.create("/d/a")
			d.write(f, 0, "x")
			d.ok(f.Sync())
		}, []string{"", "/d/a=x"}},
		{"directory synced, file not", func(d disk) {
			d.write(d.create("/d/a"), 0, "x")
			d.syncDir("/d")
		}, []string{"/d/a=", "/d/a=0", "/d/a=x"}},
		{"file and directory synced", func(d disk) { d.synced("/d/a", "x") }, []string{"/d/a=x"}},
		{"directory itself not synced", func(d disk) {
			d.ok(d.Mkdir("/e"))
			d.synced("/e/a", "x")
		}, []string{"", "/e/a=x"}},
		{"rename over", func(d disk) {
			d.synced("/d/ptr", "o")
			d.synced("/d/ptr.tmp", "x")
			d.ok(d.Rename("/d/ptr.tmp", "/d/ptr"))
		}, []string{"/d/ptr=o /d/ptr.tmp=x", "/d/ptr=x"}},
		{"rename over, synced", func(d disk) {
			d.synced("/d/ptr", "o")
			d.synced("/d/ptr.tmp", "x")
			d.ok(d.Rename("/d/ptr.tmp", "/d/ptr"))
			d.syncDir("/d")
		}, []string{"/d/ptr=x"}},
		{"create and rename", func(d disk) {
			f := d.create("/d/a.tmp")
			d.write(f, 0, "x")
			d.ok(f.Sync())
			d.ok(d.Rename("/d/a.tmp", "/d/a"))
		}, []string{"", "/d/a.tmp=x", "/d/a=x"}},
		{"rename to another directory, neither synced", func(d disk) {
			d.ok(d.Mkdir("/e"))
			d.syncDir("/")
			d.synced("/d/a", "x")
			d.ok(d.Rename("/d/a", "/e/a"))
		}, []string{"/d/a=x", "/d/a=x /e/a=x", "", "/e/a=x"}},
		{"rename to another directory, the new one synced", func(d disk) {
			d.ok(d.Mkdir("/e"))
			d.syncDir("/")
			d.synced("/d/a", "x")
			d.ok(d.Rename("/d/a", "/e/a"))
			d.syncDir("/e")
		}, []string{"/d/a=x /e/a=x", "/e/a=x"}},
		{"remove", func(d disk) {
			d.synced("/d/victim", "x")
			d.ok(d.Remove("/d/victim"))
		}, []string{"/d/victim=x", ""}},
		{"remove, synced", func(d disk) {
			d.synced("/d/victim", "x")
			d.ok(d.Remove("/d/victim"))
			d.syncDir("/d")
		}, []string{""}},
		{"remove and create again", func(d disk) {
			d.synced("/d/a", "o")
			d.ok(d.Remove("/d/a"))
			f := d.create("/d/a")
			d.write(f, 0, "x")
			d.ok(f.Sync())
		}, []string{"/d/a=o", "", "/d/a=x"}},
		{"two creations", func(d disk) {
			d.create("/d/a")
			d.create("/d/b")
		}, []string{"", "/d/a=", "/d/b=", "/d/a= /d/b="}},
		{"overwrite tears at sectors", func(d disk) {
			f := d.synced("/d/a", o+o)
			d.write(f, 0, x+x)
		}, []string{"/d/a=o*1024", "/d/a=x*512o*512", "/d/a=o*512x*512", "/d/a=x*1024"}},
		{"every version", func(d disk) {
			f := d.synced("/d/a", "1")
			d.write(f, 0, "2")
			d.write(f, 0, "3")
			d.write(f, 0, "4")
		}, []string{"/d/a=1", "/d/a=2", "/d/a=3", "/d/a=4"}},
		{"append", func(d disk) {
			f := d.synced("/d/a", o)
			d.write(f, 512, x)
		}, []string{"/d/a=o*512", "/d/a=o*5120*512", "/d/a=o*512x*512"}},
		{"append twice", func(d disk) {
			f := d.synced("/d/a", "")
			d.write(f, 0, "x")
			d.write(f, 1, "y")
		}, []string{"/d/a=", "/d/a=0", "/d/a=0*2", "/d/a=x", "/d/a=x0", "/d/a=xy"}},
		{"preallocated, written", func(d disk) {
			f := d.create("/d/a")
			d.ok(f.Allocate(0, 1024))
			d.ok(f.Sync())
			d.syncDir("/d")
			d.write(f, 0, x)
		}, []string{"/d/a=0*1024", "/d/a=x*5120*512"}},
		{"preallocation not synced", func(d disk) {
			d.ok(d.synced("/d/a", x).Allocate(0, 1024))
		}, []string{"/d/a=x*512", "/d/a=x*5120*512"}},
		{"write-back started", func(d disk) {
			f := d.synced("/d/a", o)
			d.write(f, 0, x)
			d.ok(f.StartWrite(0, 512))
		}, []string{"/d/a=o*512", "/d/a=x*512"}},
		{"bytes after the sync", func(d disk) {
			f := d.synced("/d/a", x)
			d.write(f, 512, z)
			d.ok(f.Sync())
			d.write(f, 512, o)
		}, []string{"/d/a=x*5120*512", "/d/a=x*512o*512"}},
		{"syncfs", func(d disk) {
			d.ok(d.Mkdir("/e"))
			d.write(d.create("/e/a"), 0, "x")
			f := d.synced("/d/b", "o")
			d.write(f, 0, "x")
			d.ok(d.Rename("/d/b", "/d/c"))
			d.ok(d.dir("/").SyncFS())
		}, []string{"/d/c=x /e/a=x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			c.do(d)
			all, none, every := outcomes(t, d.FS)
			if none != c.want[0] {
				t.Errorf("KeepNone left %q, want %q", none, c.want[0])
			}
			if last := c.want[len(c.want)-1]; every != last {
				t.Errorf("KeepAll left %q, want %q", every, last)
			}
			slices.Sort(c.want)
			if want := slices.Compact(c.want); !slices.Equal(all, want) {
				t.Errorf("KeepRandom left\n%q, want\n%q", all, want)
			}
		})
	}
}

// What the kernel does after a failed write-back, as measured on ext4, xfs and btrfs.
func TestFailedWriteBack(t *testing.T) {
	d := newDisk(t)
	a := d.synced("/d/a", "old")
	b := d.open("/d/a")
	root := d.dir("/")
	d.ok(d.FailWriteback("/d/a"))
	d.write(a, 0, "new")
	if err := a.Sync(); err == nil {
		t.Fatal("the first Sync succeeded")
	}
	d.ok(a.Sync())
	c := d.open("/d/a") // opened after the report
	d.ok(c.Sync())
	if err := b.Sync(); err == nil {
		t.Fatal("the other descriptor was not told")
	}
	d.ok(b.Sync())
	if err := root.SyncFS(); err == nil {
		t.Fatal("syncfs was not told")
	}
	d.ok(root.SyncFS())
	d.ok(d.dir("/").SyncFS())
	if got := state(t, d.FS); got != "/d/a=new" {
		t.Fatalf("the cache shows %q", got)
	}
	if all, _, _ := outcomes(t, d.FS); len(all) != 1 || all[0] != "/d/a=old" {
		t.Fatalf("after a power cut: %q", all)
	}
	d.ok(a.DropCache(0, 0))
	if got := state(t, d.FS); got != "/d/a=old" {
		t.Fatalf("the disk shows %q", got)
	}
	d.write(a, 0, "new")
	d.ok(a.Sync())
	if all, _, _ := outcomes(t, d.FS); len(all) != 1 || all[0] != "/d/a=new" {
		t.Fatalf("written again: %q", all)
	}
}

// Writing lost bytes again and flushing them makes them durable; those beside them stay lost.
func TestLostBytesWrittenAgain(t *testing.T) {
	d := newDisk(t)
	f := d.synced("/d/a", strings.Repeat("o", 1024))
	d.ok(d.FailWriteback("/d/a"))
	d.write(f, 0, strings.Repeat("n", 1024))
	if err := f.Sync(); err == nil {
		t.Fatal("the first Sync succeeded")
	}
	d.write(f, 0, strings.Repeat("n", 512))
	d.ok(f.Sync())
	if all, _, _ := outcomes(t, d.FS); len(all) != 1 || all[0] != "/d/a=n*512o*512" {
		t.Fatalf("after a power cut: %q", all)
	}
}

func TestFailedAppendLeavesZeros(t *testing.T) {
	d := newDisk(t)
	f := d.synced("/d/a", "x")
	d.ok(d.FailWriteback("/d/a"))
	d.write(f, 1, "yz")
	if err := f.Sync(); err == nil {
		t.Fatal("the first Sync succeeded")
	}
	d.ok(f.Sync())
	d.ok(f.DropCache(0, 0))
	if got := state(t, d.FS); got != "/d/a=x0*2" {
		t.Fatalf("the disk shows %q", got)
	}
}

// The error of a file that was closed and evicted is told by SyncFS alone.
func TestEvictedErrorIsToldBySyncFSOnly(t *testing.T) {
	d := newDisk(t)
	root := d.dir("/")
	f := d.synced("/d/a", "old")
	d.ok(d.FailWriteback("/d/a"))
	d.write(f, 0, "new")
	d.ok(f.StartWrite(0, 3)) // fails in the background
	d.ok(f.Close())
	d.ok(d.Evict("/d/a"))
	d.ok(d.open("/d/a").Sync())
	if got := state(t, d.FS); got != "/d/a=old" {
		t.Fatalf("reopened: %q", got)
	}
	if err := root.SyncFS(); err == nil {
		t.Fatal("syncfs was not told")
	}
}

// An error that nobody has seen is told to a descriptor opened later; a seen one is not.
func TestUnseenErrorIsToldToLaterDescriptor(t *testing.T) {
	d := newDisk(t)
	f := d.synced("/d/a", "old")
	d.ok(d.FailWriteback("/d/a"))
	d.write(f, 0, "new")
	d.ok(f.StartWrite(0, 3))
	if err := d.open("/d/a").Sync(); err == nil {
		t.Fatal("a new file descriptor was not told")
	}
	if err := d.dir("/").SyncFS(); err == nil {
		t.Fatal("a new syncfs descriptor was not told")
	}
	d.ok(d.dir("/").SyncFS())
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
	f := d.synced("/d/a", strings.Repeat("o", 5000))
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
	f := d.synced("/d/a", "abc")
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
