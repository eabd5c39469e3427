package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"weida/fuzz/powercut"
)

// ownDisks are a disk for each node, on which writes fail or wait by what they contain. Where there is a file system in
// memory they lie there: nobody else's writes are in what they take.
type ownDisks struct {
	dir  string
	list []*powercut.Disk
}

// diskName is where the i-th node's disk lies below the nodes' directory.
func diskName(i int) string { return fmt.Sprintf("disk%d", i+1) }

// memoryDir is where files are in memory.
const memoryDir = "/dev/shm"

// newOwnDisks makes n disks; nodes that are started in dir put their data on them.
func newOwnDisks(dir string, n int) (*ownDisks, error) {
	if err := powercut.Available(); err != nil {
		return nil, fmt.Errorf("a disk of its own: %w", err)
	}
	parent := memoryDir
	if _, err := os.Stat(parent); err != nil {
		parent = dir
	}
	d := new(ownDisks)
	var err error
	if d.dir, err = os.MkdirTemp(parent, "bench-disks-"); err != nil {
		return nil, err
	}
	for i := range n {
		at := filepath.Join(d.dir, diskName(i))
		one, err := powercut.New(at, powercut.Options{Size: 4 << 30})
		if err == nil {
			d.list = append(d.list, one)
			err = os.Symlink(at, filepath.Join(dir, diskName(i)))
		}
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

// dataParent is where the i-th node's data directory is made: on its disk if it has one.
func dataParent(dir string, i int) (string, error) {
	on := filepath.Join(dir, diskName(i), "mnt")
	_, err := os.Stat(on)
	if errors.Is(err, os.ErrNotExist) {
		return dir, nil
	}
	return on, err
}

func (d *ownDisks) heal() {
	for _, one := range d.list {
		one.Heal()
	}
}

// close takes the disks away; nobody may use them any more.
func (d *ownDisks) close() error {
	var errs []error
	for _, one := range d.list {
		errs = append(errs, one.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w; what is left is in %s", err, d.dir)
	}
	return os.RemoveAll(d.dir)
}
