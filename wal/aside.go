package wal

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weida/fsync"
	"weida/segment"
)

// asideSuffix stands between a group and the id of its replica in the name of a directory that lies aside.
const asideSuffix = ".lost-"

// EventSetAside means that a group's directory was set aside, as it is.
const EventSetAside = "set_aside"

// Aside is what is left of a replica that is not to be used any more: groups/<group>.lost-<replica>. Nothing
// reads it and nothing removes it; it is empty where nothing was left.
type Aside struct {
	Group   segment.GroupID
	Replica uint64
}

// asideName is the name of what lies aside.
func asideName(a Aside) string {
	return groupName(a.Group) + asideSuffix + strconv.FormatUint(a.Replica, 10)
}

// parseAsideName is the inverse of asideName.
func parseAsideName(name string) (Aside, bool) {
	group, id, ok := strings.Cut(name, asideSuffix)
	g, known := parseGroupName(group)
	replica, err := strconv.ParseUint(id, 10, 64)
	a := Aside{g, replica}
	return a, ok && known && err == nil && asideName(a) == name
}

// AsidePath is the directory of what lies aside.
func (s *Store) AsidePath(a Aside) string { return filepath.Join(s.dir, groupsName, asideName(a)) }

// Asides are all that lie aside here, in order.
func (s *Store) Asides() []Aside {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Aside, 0, len(s.asides))
	for a := range s.asides {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b Aside) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Replica, b.Replica))
	})
	return list
}

// IsAside reports whether the replica's data lies aside: what the group has here now is another replica's.
func (s *Store) IsAside(a Aside) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asides[a]
}

// SetAside gives the directory of a group another name, flushed, so that nobody takes it for a log and another
// replica of the group can be made here: the caller knows that this one is given up. Nothing is read, changed
// or removed. A group without a directory leaves an empty one, so that whoever comes after a crash knows that
// this was done: what is called <group> from then on is never this replica's. Doing it again does nothing. The
// log must not be open: ErrOpen.
func (s *Store) SetAside(a Aside) error {
	if s.IsAside(a) {
		return nil
	}
	known, err := s.reserve(a.Group)
	if err == nil {
		err = s.setAside(a, known)
	}
	if err != nil {
		err = fmt.Errorf("wal: set the data of replica %d of group %d aside: %w; it is where it was, or lies aside "+
			"whole", a.Replica, uint64(a.Group), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, ErrOpen) && !errors.Is(err, fsync.ErrClosed) {
		delete(s.logs, a.Group)
	}
	return err
}

// setAside is SetAside once the group is reserved.
func (s *Store) setAside(a Aside, known bool) error {
	dir, name := filepath.Join(s.dir, groupsName), asideName(a)
	var err error
	if known {
		err = renameFlushed(s.fs, s.o.Flusher, dir, groupName(a.Group), name)
	} else if err = s.fs.Mkdir(filepath.Join(dir, name)); err == nil {
		if err = flushDir(s.fs, s.o.Flusher, dir); err != nil {
			err = fmt.Errorf("%w: %w", errHalfway, err)
		}
	}
	if err != nil && !errors.Is(err, errHalfway) {
		return err
	}
	// It has its name, flushed or not.
	s.mu.Lock()
	delete(s.known, a.Group)
	delete(s.held, a.Group)
	if err == nil {
		s.asides[a] = true
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.o.Event(Event{
		Kind: EventSetAside, Group: a.Group, Path: filepath.Join(dir, name),
		Detail: fmt.Sprintf("what is left of replica %d; it is not used any more, and not removed", a.Replica),
	})
	return nil
}
