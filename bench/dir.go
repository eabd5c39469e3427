package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileSystems names the file systems that a figure may come from.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
}

// makeDir makes an empty directory for one run below parent and says on what file system it lies. The caller removes
// it. A file system in memory is refused: a flush there costs nothing and means nothing.
func makeDir(parent string) (dir, kind string, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(parent, &st); err != nil {
		return "", "", fmt.Errorf("statfs %s: %w", parent, err)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return "", "", fmt.Errorf("%s lies on a file system in memory, where a flush costs nothing; "+
			"name a directory on a disk with --dir", parent)
	}
	kind = fileSystems[st.Type]
	if kind == "" {
		kind = fmt.Sprintf("file system %#x", st.Type)
	}
	dir, err = os.MkdirTemp(parent, "bench-data-")
	return dir, kind, err
}

// removeOnSignal takes dir away if the run is interrupted. The function it returns ends the watch.
func removeOnSignal(dir string) func() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			fmt.Fprintf(os.Stderr, "bench: %v: removing %s\n", s, dir)
			if err := os.RemoveAll(dir); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
			os.Exit(1)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// allocated is the space that the files below dir take on disk, in bytes.
func allocated(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum, err
}

// kernel is what uname says.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
