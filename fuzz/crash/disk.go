package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"weida/fuzz/powercut"
)

// disk is what a node's data directory is on.
type disk interface {
	// root is a directory on it, where the data directory is.
	root() string
	// fill takes all room that is left, and free gives it back.
	fill() error
	free() error
	// cut takes its power away, keeping what how says of what was not flushed; whoever uses it is stopped. back gives it
	// power again, when nobody uses it.
	cut(how string)
	back() error
	// lie has it say, from now on, that it flushed, and not do it.
	lie()
	close() error
}

// tmpfsBytes is how large a disk in memory is.
const tmpfsBytes = 512 << 20

// newDisk makes one: a directory of the machine's own disk (none), a file system in memory, or one on a device whose
// power can be cut.
func newDisk(dir, kind string, seed uint64) (disk, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	switch kind {
	case "none":
		return plain{directory(dir)}, nil
	case "tmpfs":
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", tmpfsBytes)); err != nil {
			return nil, fmt.Errorf("mount tmpfs at %s: %w", dir, err)
		}
		return tmpfs{directory(dir)}, nil
	}
	d, err := powercut.New(dir, powercut.Options{FS: kind, Seed: seed, Size: 512 << 20})
	return device{d}, err
}

// diskMissing says what a kind of disk needs and is not there; "" if there is nothing.
func diskMissing(kind string) string {
	switch kind {
	case "none":
		return ""
	case "tmpfs":
		if os.Geteuid() != 0 {
			return "tmpfs needs root"
		}
		return ""
	}
	if err := powercut.Available(); err != nil {
		return err.Error()
	}
	return ""
}

// directory is what plain and tmpfs have in common. Neither has power that could be cut.
type directory string

func (d directory) root() string { return string(d) }
func (d directory) cut(string)   { panic("bug: crash: the power of this disk cannot be cut") }
func (d directory) back() error  { panic("bug: crash: the power of this disk was not cut") }

func (d directory) lie() { panic("bug: crash: this disk cannot lie") }

// plain is a directory of the machine's own disk.
type plain struct{ directory }

func (d plain) fill() error  { panic("bug: crash: this disk has no end") }
func (d plain) free() error  { return nil }
func (d plain) close() error { return nil }

// tmpfs is a file system in memory that has an end.
type tmpfs struct{ directory }

func (d tmpfs) ballast() string { return filepath.Join(d.root(), "ballast") }

func (d tmpfs) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for len(b) >= 512 && err == nil {
		if _, err = f.Write(b); errors.Is(err, syscall.ENOSPC) {
			b, err = b[:len(b)/2], nil
		}
	}
	return errors.Join(err, f.Close())
}

func (d tmpfs) free() error {
	err := os.Remove(d.ballast())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d tmpfs) close() error { return syscall.Unmount(string(d.directory), syscall.MNT_DETACH) }

// device is a file system on a device of our own.
type device struct{ d *powercut.Disk }

func (d device) root() string { return d.d.Mount() }
func (d device) fill() error  { return d.d.Fill(0) }

func (d device) free() error {
	err := d.d.Free()
	if errors.Is(err, fs.ErrNotExist) { // a cut has taken it
		return nil
	}
	return err
}

func (d device) cut(how string) {
	d.d.Cut(map[string]powercut.Keep{
		"none": powercut.Nothing, "some": powercut.Some, "all": powercut.Everything,
	}[how])
}

func (d device) back() error  { return d.d.Remount() }
func (d device) lie()         { d.d.Lie() }
func (d device) close() error { return d.d.Close() }

// volume is a disk with the lock that those who write to it beside the node share with its power.
type volume struct {
	disk
	mu sync.Mutex
}

func (v *volume) fill() error { return v.alone(v.disk.fill) }
func (v *volume) free() error { return v.alone(v.disk.free) }

func (v *volume) alone(do func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return do()
}

// lose takes the power away, kills whoever uses the disk, and gives it back.
func (v *volume) lose(how string, kill func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut(how)
	if err := kill(); err != nil {
		return err
	}
	return v.back()
}
