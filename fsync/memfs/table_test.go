package memfs_test

import (
	"slices"
	"strings"
	"testing"
)

// Sectors of one letter each.
var x, o, z = strings.Repeat("x", 512), strings.Repeat("o", 512), strings.Repeat("\x00", 512)

// powerCuts is what was done, and every state that a power cut may leave: the first is what KeepNone
// leaves, the last what KeepAll leaves. D-2, D-3.
var powerCuts = []struct {
	name string
	do   func(d disk)
	want []string
}{
	{"nothing", func(disk) {}, []string{""}},
	{"file flushed, directory not", func(d disk) {
		f := d.create("/d/a")
		d.write(f, 0, "x")
		d.ok(f.Sync())
	}, []string{"", "/d/a=x"}},
	{"directory flushed, file not", func(d disk) {
		d.write(d.create("/d/a"), 0, "x")
		d.flushDir("/d")
	}, []string{"/d/a=", "/d/a=0", "/d/a=x"}},
	{"file and directory flushed", func(d disk) { d.flushed("/d/a", "x") }, []string{"/d/a=x"}},
	{"directory itself not flushed", func(d disk) {
		d.ok(d.Mkdir("/e"))
		d.flushed("/e/a", "x")
	}, []string{"", "/e/a=x"}},
	{"rename over", func(d disk) {
		d.flushed("/d/ptr", "o")
		d.flushed("/d/ptr.tmp", "x")
		d.ok(d.Rename("/d/ptr.tmp", "/d/ptr"))
	}, []string{"/d/ptr=o /d/ptr.tmp=x", "/d/ptr=x"}},
	{"rename over, flushed", func(d disk) {
		d.flushed("/d/ptr", "o")
		d.flushed("/d/ptr.tmp", "x")
		d.ok(d.Rename("/d/ptr.tmp", "/d/ptr"))
		d.flushDir("/d")
	}, []string{"/d/ptr=x"}},
	{"create and rename", func(d disk) {
		f := d.create("/d/a.tmp")
		d.write(f, 0, "x")
		d.ok(f.Sync())
		d.ok(d.Rename("/d/a.tmp", "/d/a"))
	}, []string{"", "/d/a.tmp=x", "/d/a=x"}},
	{"rename to another directory, neither flushed", func(d disk) {
		d.ok(d.Mkdir("/e"))
		d.flushDir("/")
		d.flushed("/d/a", "x")
		d.ok(d.Rename("/d/a", "/e/a"))
	}, []string{"/d/a=x", "/d/a=x /e/a=x", "", "/e/a=x"}},
	{"rename to another directory, the new one flushed", func(d disk) {
		d.ok(d.Mkdir("/e"))
		d.flushDir("/")
		d.flushed("/d/a", "x")
		d.ok(d.Rename("/d/a", "/e/a"))
		d.flushDir("/e")
	}, []string{"/d/a=x /e/a=x", "/e/a=x"}},
	{"remove", func(d disk) {
		d.flushed("/d/victim", "x")
		d.ok(d.Remove("/d/victim"))
	}, []string{"/d/victim=x", ""}},
	{"remove, flushed", func(d disk) {
		d.flushed("/d/victim", "x")
		d.ok(d.Remove("/d/victim"))
		d.flushDir("/d")
	}, []string{""}},
	{"remove and create again", func(d disk) {
		d.flushed("/d/a", "o")
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
		f := d.flushed("/d/a", o+o)
		d.write(f, 0, x+x)
	}, []string{"/d/a=o*1024", "/d/a=x*512o*512", "/d/a=o*512x*512", "/d/a=x*1024"}},
	{"every version", func(d disk) {
		f := d.flushed("/d/a", "1")
		d.write(f, 0, "2")
		d.write(f, 0, "3")
		d.write(f, 0, "4")
	}, []string{"/d/a=1", "/d/a=2", "/d/a=3", "/d/a=4"}},
	{"append", func(d disk) {
		f := d.flushed("/d/a", o)
		d.write(f, 512, x)
	}, []string{"/d/a=o*512", "/d/a=o*5120*512", "/d/a=o*512x*512"}},
	{"append twice", func(d disk) {
		f := d.flushed("/d/a", "")
		d.write(f, 0, "x")
		d.write(f, 1, "y")
	}, []string{"/d/a=", "/d/a=0", "/d/a=0*2", "/d/a=x", "/d/a=x0", "/d/a=xy"}},
	{"preallocated, written", func(d disk) {
		f := d.create("/d/a")
		d.ok(f.Allocate(0, 1024))
		d.ok(f.Sync())
		d.flushDir("/d")
		d.write(f, 0, x)
	}, []string{"/d/a=0*1024", "/d/a=x*5120*512"}},
	{"preallocation not flushed", func(d disk) {
		d.ok(d.flushed("/d/a", x).Allocate(0, 1024))
	}, []string{"/d/a=x*512", "/d/a=x*5120*512"}},
	{"write-back started", func(d disk) {
		f := d.flushed("/d/a", o)
		d.write(f, 0, x)
		d.ok(f.StartWrite(0, 512))
	}, []string{"/d/a=o*512", "/d/a=x*512"}},
	{"bytes after the flush", func(d disk) {
		f := d.flushed("/d/a", x)
		d.write(f, 512, z)
		d.ok(f.Sync())
		d.write(f, 512, o)
	}, []string{"/d/a=x*5120*512", "/d/a=x*512o*512"}},
	{"syncfs", func(d disk) {
		d.ok(d.Mkdir("/e"))
		d.write(d.create("/e/a"), 0, "x")
		f := d.flushed("/d/b", "o")
		d.write(f, 0, "x")
		d.ok(d.Rename("/d/b", "/d/c"))
		d.ok(d.dir("/").SyncFS())
	}, []string{"/d/c=x /e/a=x"}},
}

func TestPowerCut(t *testing.T) {
	for _, c := range powerCuts {
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
