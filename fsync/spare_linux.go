package fsync

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// spare are descriptors that are kept for this package: a process that has no more of them, for its many clients or
// for whatever else it has open, can still open the files of its store. Without them an append that needs a new file,
// or a vote, would fail as on a broken disk.
var spare struct {
	mu   sync.Mutex
	want int
	held []*os.File // guarded by mu
}

// KeepDescriptors has the process keep n descriptors for the files of OS. One is given up when an open finds none left
// (EMFILE, ENFILE), and taken back when there are some again. It replaces what an earlier call wanted; 0 gives all up.
// An error says that fewer could be had; those are kept.
func KeepDescriptors(n int) error {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	spare.want = n
	var err error
	for len(spare.held) > n {
		err = errors.Join(err, giveUp())
	}
	if more := refill(); more != nil {
		err = fmt.Errorf("fsync: keep %d descriptors: only %d are to be had: %w", n, len(spare.held), more)
	}
	return err
}

// giveUp closes one. The caller holds the lock, and there is one.
func giveUp() error {
	last := len(spare.held) - 1
	f := spare.held[last]
	spare.held = spare.held[:last]
	return f.Close()
}

// refill takes back what was given up, as far as there are any. The caller holds the lock.
func refill() error {
	for len(spare.held) < spare.want {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		spare.held = append(spare.held, f)
	}
	return nil
}

// spared opens something, with a spare descriptor if there is no other one. What it opens takes the place of the spare;
// somebody else may be faster, so it asks again while there are any.
func spared[T any](open func() (T, error)) (T, error) {
	x, err := open()
	for none(err) {
		spare.mu.Lock()
		if len(spare.held) == 0 {
			spare.mu.Unlock()
			return x, err
		}
		closed := giveUp()
		spare.mu.Unlock()
		if x, err = open(); closed != nil {
			err = errors.Join(err, closed)
		}
	}
	if err == nil {
		spare.mu.Lock()
		if len(spare.held) < spare.want {
			_ = refill() // there are none yet: it is asked again at the next open
		}
		spare.mu.Unlock()
	}
	return x, err
}

func none(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// openFile is os.OpenFile with a spare descriptor, if need be.
func openFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	return spared(func() (*os.File, error) { return os.OpenFile(name, flag, perm) })
}
