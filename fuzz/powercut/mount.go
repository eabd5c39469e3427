package powercut

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// system is what is particular to a kind of file system.
type system struct {
	make    []string // makes one in an image
	options string   // of its mount
	min     int64    // bytes
}

var systems = map[string]system{
	// A write error turns ext4 read-only rather than going on.
	"ext4": {strings.Fields("mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0"), "errors=remount-ro", 4 << 20},
	// A mount of an earlier life, with the same uuid, may still be there.
	"xfs":   {strings.Fields("mkfs.xfs -q -f"), "nouuid", 300 << 20},
	"btrfs": {strings.Fields("mkfs.btrfs -q -f"), "", 128 << 20},
}

// attach makes a loop device of a file, which goes by itself when nobody has it open or mounted any more. The
// descriptor returned holds it.
func attach(path string) (device string, fd int, err error) {
	file, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, fmt.Errorf("powercut: open %s: %w", path, err)
	}
	defer unix.Close(file) //nolint:errcheck // the device has it
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, fmt.Errorf("powercut: open /dev/loop-control: %w", err)
	}
	defer unix.Close(control) //nolint:errcheck // nothing was written
	for range 100 {           // somebody else may take the one that was free
		n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", 0, fmt.Errorf("powercut: no loop device is free: %w", err)
		}
		device := fmt.Sprintf("/dev/loop%d", n)
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", 0, fmt.Errorf("powercut: open %s: %w", device, err)
		}
		c := unix.LoopConfig{Fd: uint32(file), Size: Sector}
		c.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		copy(c.Info.File_name[:], path)
		if err = unix.IoctlLoopConfigure(fd, &c); err == nil {
			if err = bound(n); err == nil {
				return device, fd, nil
			}
		}
		err = errors.Join(err, unix.Close(fd))
		if !errors.Is(err, unix.EBUSY) {
			return "", 0, fmt.Errorf("powercut: set up %s: %w", device, err)
		}
	}
	return "", 0, errors.New("powercut: others took every loop device that was free")
}

// bound keeps a loop device's requests small enough to be one request of FUSE each: of one that is split the kernel may
// take a part that failed for a short write, which the loop device calls a success.
func bound(loop int) error {
	name := fmt.Sprintf("/sys/block/loop%d/queue/max_sectors_kb", loop)
	return os.WriteFile(name, []byte(strconv.Itoa(requestMax>>10)), 0o644)
}

// format makes a file system in an image.
func format(kind, image string) error {
	args := append(systems[kind].make[1:], image)
	if out, err := exec.Command(systems[kind].make[0], args...).CombinedOutput(); err != nil {
		return fmt.Errorf("powercut: %s %s: %w\n%s", systems[kind].make[0], image, err, out)
	}
	return nil
}

// busyMax bounds how long an unmount may be refused because what was killed has not let go yet.
const busyMax = 5 * time.Second

// unmount takes a mount away. Where others still use it, it is out of sight, and an error says so.
func unmount(dir string) error {
	began := time.Now()
	for {
		err := unix.Unmount(dir, 0)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL): // nothing is mounted there
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("powercut: unmount %s: %w", dir, err)
		case time.Since(began) > busyMax:
			err = fmt.Errorf("powercut: somebody still uses %s: %w", dir, err)
			return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sourceOf is what a FUSE mount of this package says it is of: which process serves it.
func sourceOf(pid int) string { return fmt.Sprintf("weida-powercut-%d", pid) }

// sweep takes away what processes that are no more left mounted.
func sweep() error {
	list, err := mounts()
	if err != nil {
		return err
	}
	var trouble error
	for _, m := range list {
		text, ours := strings.CutPrefix(m.source, sourceOf(0)[:len(sourceOf(0))-1])
		pid, err := strconv.Atoi(text)
		if !ours || err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		for _, on := range list {
			if strings.HasPrefix(backing(on.source), m.dir+"/") {
				trouble = errors.Join(trouble, unix.Unmount(on.dir, unix.MNT_DETACH))
			}
		}
		trouble = errors.Join(trouble, unix.Unmount(m.dir, unix.MNT_DETACH))
	}
	return trouble
}

// backing is the file that a loop device is made of.
func backing(device string) string {
	b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	if err != nil {
		return "" // no loop device
	}
	return strings.TrimSpace(string(b))
}

type mounted struct{ dir, source string }

func mounts() (list []mounted, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if f == "-" && i > 4 && i+2 < len(fields) {
				list = append(list, mounted{dir: fields[4], source: fields[i+2]})
			}
		}
	}
	return list, nil
}

// Available says why there can be no Disk here; nil if there can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("powercut: mounting needs root")
	}
	for _, name := range []string{"/dev/fuse", "/dev/loop-control"} {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("powercut: open %s: %w", name, err)
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	for _, kind := range []string{"ext4", "xfs"} {
		if _, err := exec.LookPath(systems[kind].make[0]); err != nil {
			return fmt.Errorf("powercut: %w; install e2fsprogs and xfsprogs", err)
		}
	}
	return nil
}
