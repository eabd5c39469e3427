package fsync

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// KernelError says that the running kernel can't give the evidence weida reports.
type KernelError struct {
	Release string // what uname says
}

func (e *KernelError) Error() string {
	return fmt.Sprintf("fsync: kernel %q is too old: before Linux 5.8 a lost write can go unreported by syncfs, "+
		"so stored data could not be told from lost data; nothing was opened; use Linux 5.8 or later", e.Release)
}

// CheckKernel returns nil on Linux 5.8 or later, the first that reports write-back errors through
// syncfs, and a *KernelError otherwise.
func CheckKernel() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return NewError("uname", "kernel", err)
	}
	return checkRelease(unix.ByteSliceToString(u.Release[:]))
}

func checkRelease(release string) error {
	var major, minor int
	if n, err := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 || err != nil {
		return &KernelError{Release: release}
	}
	if major > 5 || major == 5 && minor >= 8 {
		return nil
	}
	return &KernelError{Release: release}
}

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// BootID identifies the life of the page cache behind dir. Two runs that see the same value share
// one page cache: what the first wrote, the second reads, flushed or not. Two different values mean
// that unflushed bytes may be gone.
//
// It is the kernel's boot id, mixed with the unique id of the mount that holds dir where the kernel
// has one (Linux 6.8): a device that was unmounted and mounted again has lost its cache without a
// boot. A mount that is made anew on a living file system (a container's) counts as another life
// too, which costs a stricter recovery and nothing else.
func BootID(dir string) ([16]byte, error) {
	raw, err := os.ReadFile(bootIDPath)
	if err != nil {
		return [16]byte{}, osError("read", bootIDPath, err)
	}
	var st unix.Statx_t
	// Without the flag a mount point that is not mounted yet would be mounted by asking.
	err = unix.Statx(unix.AT_FDCWD, dir, unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil {
		return [16]byte{}, osError("statx", dir, err)
	}
	var mount [8]byte
	if st.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		binary.LittleEndian.PutUint64(mount[:], st.Mnt_id)
	}
	sum := sha256.Sum256(append([]byte(strings.TrimSpace(string(raw))), mount[:]...))
	return [16]byte(sum[:16]), nil
}
