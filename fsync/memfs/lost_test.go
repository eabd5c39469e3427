package memfs_test

import (
	"strings"
	"testing"
)

// What the kernel does after a failed write-back, as measured on ext4, xfs and btrfs.
func TestFailedWriteBack(t *testing.T) {
	d := newDisk(t)
	a := d.flushed("/d/a", "old")
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
	f := d.flushed("/d/a", strings.Repeat("o", 1024))
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
	f := d.flushed("/d/a", "x")
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
	f := d.flushed("/d/a", "old")
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
	f := d.flushed("/d/a", "old")
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
