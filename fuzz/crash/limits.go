package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// This file is processes that have too little of something.

// The variants of limits.
const (
	descriptors = "descriptors" // hardly more than are open
	memory      = "memory"      // little, for one life
)

// memoryLimit is what a life with little memory has: less than a node under load likes, and enough to go on.
const memoryLimit = "GOMEMLIMIT=48MiB"

// limit begins it.
func (r *run) limit(b *bar) error {
	s := r.seats[b.Nodes[0]]
	if b.How == memory {
		if err := r.stop(s); err != nil {
			return err
		}
		s.With(memoryLimit)
		return r.launch(s)
	}
	if !s.Alive() {
		b.detail = "it did not run"
		return nil
	}
	list, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(s.Pid()), "fd"))
	if err != nil {
		return r.unlessGone(s, err)
	}
	most := uint64(len(list)) + b.Roll%9
	b.detail = fmt.Sprintf("%d are open, and %d may be", len(list), most)
	if err := unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, nil, &s.fds); err != nil {
		return r.unlessGone(s, err)
	}
	return r.unlessGone(s, unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: s.fds.Max}, nil))
}

// unlessGone forgives what cannot be done to a process that ended by itself meanwhile, which is seen elsewhere.
func (r *run) unlessGone(s *seat, err error) error {
	if err != nil && !s.Alive() {
		return nil
	}
	return err
}

// unlimit ends it.
func (r *run) unlimit(b *bar) error {
	s := r.seats[b.Nodes[0]]
	if b.How == memory {
		s.With()
		if err := r.stop(s); err != nil {
			return err
		}
		return r.launch(s)
	}
	if !s.Alive() || s.fds.Max == 0 {
		return nil
	}
	defer func() { s.fds = unix.Rlimit{} }()
	return r.unlessGone(s, unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, &s.fds, nil))
}
