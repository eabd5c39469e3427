package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weida/broker/control"
	"weida/fsync"
	"weida/wal"
)

// This file is data directories that are not the node's own: of an earlier day, or empty. The own one lies aside
// meanwhile and comes back, so that no disk is lost for good; a node with a false one must not be taken for the member
// that it was, nor take part in anything.

// The variants of emptied.
const (
	withKey    = "with-key"    // the key was kept, and so it comes under its old name
	withoutKey = "without-key" // all of it is gone
)

const (
	// knownMax is how long the others may take to say who a node is; else it is not looked at this time.
	knownMax = 10 * time.Second
	// displaced is the exit status of a process that has learned that it is not the node.
	displaced = 13
)

// own is where a node's own directory lies aside.
func (s *seat) own() string { return s.Dir + ".own" }

// registered is what the others have on record of a node's last start; false if nobody answers.
func (r *run) registered(s *seat) (life control.NodeStatus, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), knownMax)
	defer cancel()
	for _, i := range rand.Perm(len(r.seats)) {
		if i == s.index || !r.seats[i].usable() {
			continue
		}
		c, err := r.seats[i].Status(ctx)
		if err != nil {
			continue
		}
		for _, n := range c.Nodes {
			if n.Metadata.Name == s.Name {
				return n.Status, n.Status.Incarnation > 0
			}
		}
	}
	return life, false
}

// rollBack has a node make a copy of its directory, live on, and be put back to that copy.
func (r *run) rollBack(b *bar) error {
	s := r.seats[b.Nodes[0]]
	old := filepath.Join(r.dir, "copy-"+s.Name)
	if err := r.strike(s); err != nil {
		return err
	}
	if err := command("", "cp", "-a", s.Dir, old); err != nil {
		return err
	}
	copied, err := incarnationOf(old)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(old) }() // what is left of it is seen in the run's directory
	if err := r.launch(s); err != nil {
		return err
	}
	if !r.comes(knownMax, func() (ok bool) {
		s.before, ok = r.registered(s)
		return ok && s.before.Incarnation > copied
	}) {
		b.detail = "its life after the copy was not registered in time: not put back"
		return nil
	}
	return r.swap(s, b, func() error { return command("", "cp", "-a", old, s.Dir) })
}

// incarnationAt is where the file of that name has it: behind two heads, of the file and of the record, and the type.
const incarnationAt = 64

// incarnationOf reads how often a node was started on a directory, as STORE.md has it.
func incarnationOf(dir string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(dir, "incarnation"))
	if err == nil && len(b) < incarnationAt+8 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, fmt.Errorf("read the incarnation in %s: %w", dir, err)
	}
	return binary.LittleEndian.Uint64(b[incarnationAt:]), nil
}

// comes waits for something, and looks after the processes meanwhile.
func (r *run) comes(most time.Duration, holds func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r.watch(); holds() {
			return true
		}
	}
	return false
}

// empty gives a node a directory that nobody has used.
func (r *run) empty(b *bar) error {
	s := r.seats[b.Nodes[0]]
	if !r.comes(knownMax, func() (ok bool) { s.before, ok = r.registered(s); return ok }) {
		b.detail = "nobody said who it is: left as it is"
		return nil
	}
	return r.swap(s, b, func() error {
		if err := wal.InitStore(fsync.OS(), s.Dir, nil); err != nil {
			return err
		}
		if b.How == withoutKey {
			return nil
		}
		for _, name := range []string{"node.key", "node.crt"} {
			text, err := os.ReadFile(filepath.Join(s.own(), name))
			if err == nil {
				err = os.WriteFile(filepath.Join(s.Dir, name), text, 0o600)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// swap kills a node and starts it on a directory that make makes. Where that has no room nothing is done.
func (r *run) swap(s *seat, b *bar, make func() error) error {
	if err := r.strike(s); err != nil {
		return err
	}
	if err := os.Rename(s.Dir, s.own()); err != nil {
		return err
	}
	if err := make(); err != nil {
		b.detail = fmt.Sprintf("left as it is: %v", err)
		return r.regain(s)
	}
	s.set(func() { s.foreign = true })
	return r.launch(s)
}

// foreigner looks after a node whose directory is not its own: that it ends by itself is what it should do.
func (r *run) foreigner(s *seat) {
	if s.ready != nil {
		select {
		case <-s.ready:
			s.ready = nil
		default:
		}
		return
	}
	if !s.up || s.Alive() {
		return
	}
	// One without the key is nobody that the seeds name, and is told what to do.
	stranger := s.ExitStatus() == 1 && strings.Contains(s.Said(2000), "weida node add")
	if s.up = false; s.ExitStatus() != displaced && !stranger {
		r.wrong("%s, on a directory that is not its own, ended with status %d; it said last: %s", s.Name,
			s.ExitStatus(), s.Said(600))
	}
}

// putRight ends it: nobody may have taken the process for the node. Then the node has its own directory again.
func (r *run) putRight(s *seat, b *bar) error {
	if !s.isForeign() {
		return nil
	}
	r.foreigner(s)
	switch {
	case s.Alive():
		b.detail += "it waited, and took no part"
		if err := s.Kill(); err != nil && s.Alive() {
			return err
		}
	default:
		b.detail += "it said that it is not the node, and ended"
		r.mu.Lock()
		r.turned++
		r.mu.Unlock()
	}
	s.settle()
	s.up = false
	var now control.NodeStatus
	if !r.comes(knownMax, func() (ok bool) { // who is behind knows of an earlier start
		now, ok = r.registered(s)
		return ok && now.Incarnation >= s.before.Incarnation
	}) {
		b.detail += "; nobody said who it is"
		now = s.before
	}
	// A life that was killed may have been registered after it.
	if now.Disk != s.before.Disk || b.Kind == rollback && now.Nonce != s.before.Nonce {
		r.wrong("a process on a directory that is not %s's own was taken for it: %+v was registered, and %+v is", s.Name,
			s.before, now)
	}
	s.set(func() { s.foreign = false })
	return r.regain(s)
}

// regain puts a node's own directory back in its place.
func (r *run) regain(s *seat) error {
	return errors.Join(os.RemoveAll(s.Dir), os.Rename(s.own(), s.Dir))
}
