package powercut

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Options are what a disk is. The zero value is one of ext4.
type Options struct {
	// FS is the kind of file system: ext4, xfs or btrfs. Default ext4.
	FS string
	// Size is the device's, in bytes; what is not written takes no room. Default 320 MiB, which is enough for xfs.
	Size int64
	// Cache bounds the writes that no flush has reached, in bytes. Default 32 MiB, all of it in memory.
	Cache int64
	// Seed decides what cuts keep. Default 0.
	Seed uint64
}

func (o Options) withDefaults() (Options, error) {
	if o.FS == "" {
		o.FS = "ext4"
	}
	if o.Size == 0 {
		o.Size = 320 << 20
	}
	if o.Cache == 0 {
		o.Cache = 32 << 20
	}
	s, ok := systems[o.FS]
	switch {
	case !ok:
		return o, fmt.Errorf("powercut: no file system %s; there are ext4, xfs and btrfs", o.FS)
	case o.Size < s.min || o.Size%4096 != 0:
		return o, fmt.Errorf("powercut: a disk of %d bytes; %s needs %d at least, in blocks of 4096", o.Size, o.FS, s.min)
	}
	return o, nil
}

// Disk is a file system on a device whose power can be cut.
type Disk struct {
	o       Options
	image   string
	mount   string
	media   *os.File
	v       *device
	fuse    *fuseFile
	fuseDir string
}

// New makes a disk below dir, which it makes where it is missing, and mounts it. See Available for what that needs.
func New(dir string, o Options) (d *Disk, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := sweep(); err != nil {
		return nil, fmt.Errorf("powercut: take away what a killed process left: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	d = &Disk{
		o: o, image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "mnt"), fuseDir: filepath.Join(dir, "device"),
	}
	for _, name := range []string{d.mount, d.fuseDir} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			return nil, err
		}
	}
	if d.media, err = os.OpenFile(d.image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err = d.media.Truncate(o.Size); err == nil {
		err = format(o.FS, d.image)
	}
	if err == nil {
		d.v = newDevice(d.media, o.Size, o.Cache, o.Seed)
		d.fuse, err = serve(d.fuseDir, sourceOf(os.Getpid()), d.v)
	}
	if err != nil {
		return nil, errors.Join(err, d.media.Close())
	}
	if err := d.on(0); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// on gives the device's present life to the kernel, and mounts what is on it.
func (d *Disk) on(flags uintptr) error {
	device, fd, err := attach(d.Device())
	if err != nil {
		return err
	}
	err = unix.Mount(device, d.mount, d.o.FS, flags, systems[d.o.FS].options)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("powercut: mount %s: %w", d.mount, err)
	}
	return nil
}

// Mount is the directory where the file system is, as long as there is power.
func (d *Disk) Mount() string { return d.mount }

// Image is the file that holds what flushes have reached. Whoever reads it while the disk is in use sees it in motion.
func (d *Disk) Image() string { return d.image }

// Device is the device as a file: bytes in whole sectors. A descriptor is of the life in which it was opened.
func (d *Disk) Device() string { return filepath.Join(d.fuseDir, fileName) }

// Cut takes the power, at once, and returns what became of what no flush had reached. From now on the device answers
// nothing but errors, until Remount. Who still runs sees an input/output error, so the caller stalls the disk first and
// kills who runs on it; a cut ends a stall, and what waits for the disk can end.
func (d *Disk) Cut(k Keep) Loss { return d.v.cut(k) }

// Remount gives the power back and mounts what the cut has left. Nobody may use the disk any more. Without a cut
// before it, the file system is unmounted in order. Faults that were ordered stay, but for a stall: a cut ends it.
func (d *Disk) Remount() error { return d.remount(0) }

// RemountReadOnly is Remount of a file system that takes no writes, like one that was found damaged.
func (d *Disk) RemountReadOnly() error { return d.remount(unix.MS_RDONLY) }

func (d *Disk) remount(flags uintptr) error {
	if err := unmount(d.mount); err != nil {
		return err
	}
	if err := d.broken(); err != nil {
		return err
	}
	return d.on(flags)
}

func (d *Disk) broken() error {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	if d.v.broken != nil {
		return fmt.Errorf("powercut: image %s: %w; nothing that this disk did counts", d.image, d.v.broken)
	}
	return nil
}

// Close takes mounts and devices away and keeps the image. It lets a stalled device go on first.
func (d *Disk) Close() error {
	d.Heal()
	err := unmount(d.mount)
	// The loop device lets its file go when the last one that has it does.
	for began := time.Now(); d.fuse.opened.Load() > 0 && time.Since(began) < busyMax; time.Sleep(time.Millisecond) {
	}
	if n := d.fuse.opened.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("powercut: the device of %s is still open, %d times", d.image, n))
	}
	if off := unmount(d.fuseDir); off != nil {
		err = errors.Join(err, off)
	} else {
		d.fuse.server.Wait()
	}
	return errors.Join(err, d.broken(), d.media.Close())
}

// FailWrites lets writes fail from now on, as f says. Several faults are in force side by side.
func (d *Disk) FailWrites(f Fault) { d.v.order(func() { d.v.faults = append(d.v.faults, f) }) }

// FailFlush lets the next n flushes of the device fail. What they were to flush stays in the cache.
func (d *Disk) FailFlush(n int) { d.v.order(func() { d.v.bad += n }) }

// Lie lets flushes report success and do nothing, from now on: a device that is not worth its name.
func (d *Disk) Lie() { d.v.order(func() { d.v.lies = true }) }

// Slow makes every write and every flush take so much longer, from now on.
func (d *Disk) Slow(by time.Duration) { d.v.order(func() { d.v.slow = by }) }

// Stall lets no request end, until Heal or a cut.
func (d *Disk) Stall() {
	d.v.order(func() {
		if d.v.stall == nil {
			d.v.stall = make(chan struct{})
		}
	})
}

// HoldWrites lets no write end that has pattern in its bytes, until Heal or a cut; all others go on. A second call
// holds by its own pattern what comes from then on.
func (d *Disk) HoldWrites(pattern []byte) {
	d.v.order(func() {
		d.v.hold = pattern
		if d.v.held == nil {
			d.v.held = make(chan struct{})
		}
	})
}

// Heal ends every fault. What the file system made of it stays until Remount.
func (d *Disk) Heal() { d.v.order(d.v.heal) }

// fillerName is the file that somebody else fills the file system with.
const fillerName = "foreign"

// Fill leaves so many bytes free, about, by a file that is not the node's; Free takes it away.
func (d *Disk) Fill(leave int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.mount, &s); err != nil {
		return fmt.Errorf("powercut: statfs %s: %w", d.mount, err)
	}
	f, err := os.OpenFile(filepath.Join(d.mount, fillerName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("powercut: fill: %w", err)
	}
	size := int64(s.Bavail)*s.Bsize - leave
	for at, step := int64(0), size; at < size && step > 0; step = min(step, size-at) {
		if err = unix.Fallocate(int(f.Fd()), 0, at, step); err == nil {
			at += step
		} else if step /= 2; !errors.Is(err, unix.ENOSPC) {
			break
		}
	}
	if errors.Is(err, unix.ENOSPC) {
		err = nil // as full as it gets
	}
	return errors.Join(err, f.Close())
}

// Free takes away what Fill put there.
func (d *Disk) Free() error { return os.Remove(filepath.Join(d.mount, fillerName)) }

// Stats counts what the device was asked.
func (d *Disk) Stats() Stats {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	s := d.v.stats
	s.Unflushed = d.v.cache.held
	return s
}
