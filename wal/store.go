package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"weida/fsync"
	"weida/segment"
)

// ErrOpen means that the group's log is open already.
var ErrOpen = errors.New("the log is open already")

// Store is a data directory that this process has to itself: the node's identity on disk and one log
// per group. All methods may be called from any goroutine.
type Store struct {
	fs   fsync.FS
	dir  string
	o    Options
	lock io.Closer
	id   Identity

	mu     sync.Mutex
	closed bool
	known  map[segment.GroupID]bool // groups that have a directory
	// held are groups whose last stop was not in order, whatever the marker says of the store: not
	// opened since, or opened and not closed in order.
	held map[segment.GroupID]bool
	logs map[segment.GroupID]*Log // nil while it is being opened
	// asides is what lies aside.
	asides map[Aside]bool
}

// OpenStore opens the data directory dir and makes it first if it is absent or empty (see InitStore).
// When it returns, the incarnation is raised and the clean marker gone, both flushed. Errors: ErrInUse
// with fsync.ErrLocked, ErrNotStore, *segment.CorruptError or *segment.VersionError for a file of the
// identity, else the system's. After an error nothing but an unfinished new directory stays.
func OpenStore(fs fsync.FS, dir string, o Options) (*Store, error) {
	if o.Flusher == nil {
		panic("bug: wal: Options.Flusher is required")
	}
	o = o.withDefaults()
	dir = filepath.Clean(dir)
	if err := InitStore(fs, dir, o.Rand); err != nil {
		return nil, err
	}
	lock, err := lockStore(fs, dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		fs: fs, dir: dir, o: o, lock: lock,
		known: make(map[segment.GroupID]bool),
		held:  make(map[segment.GroupID]bool),
		logs:  make(map[segment.GroupID]*Log),

		asides: make(map[Aside]bool),
	}
	if err := s.open(); err != nil {
		return nil, joinClose(err, lock)
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	o.Rand = &lockedReader{r: o.Rand}
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	return o
}

// lockedReader lets logs that are opened side by side share one source of randomness.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

// open reads before it writes, in these steps:
//
//  1. The directory's own name is flushed: a first start may have died before that.
//  2. Identity and clean marker are read.
//  3. After an unclean stop everything on the file system is flushed: what the last process wrote and
//     renamed, and this one is about to see, must not go in a power cut after it was acted upon.
//  4. The incarnation is raised, which voids the marker.
//  5. What interrupted operations left is removed, unknown files are moved aside.
func (s *Store) open() error {
	if err := fsync.MkdirAll(s.fs, s.dir); err != nil {
		return fmt.Errorf("wal: open %s: %w", s.dir, err)
	}
	id, held, repair, err := readIdentity(s.fs, s.dir)
	if err != nil {
		return err
	}
	s.id = id
	if !id.CleanStop {
		if err := s.syncFS(); err != nil {
			return fmt.Errorf("wal: open %s: flush what the last process left: %w; nothing was changed, and what was "+
				"confirmed as flushed stays true; look at the disk and start again: a start counts only what the disk "+
				"gives back", s.dir, err)
		}
	}
	if err := raise(s.fs, s.dir, &s.id, s.o.Rand); err != nil {
		return err
	}
	if err := s.repairIdentity(repair); err != nil {
		return err
	}
	if err := s.tidyTop(); err != nil {
		return err
	}
	if err := s.tidyGroups(); err != nil {
		return err
	}
	for _, g := range held {
		s.held[g] = true
	}
	if !s.id.CleanStop {
		maps.Copy(s.held, s.known)
	}
	return nil
}

func (s *Store) repairIdentity(names []string) error {
	for _, name := range names {
		if name == diskName { // the incarnation was written anew when it was raised
			if err := writeDisk(s.fs, s.dir, s.id.Disk); err != nil {
				return fmt.Errorf("wal: open %s: %w", s.dir, err)
			}
		}
		s.o.Event(Event{Kind: EventCopyRepaired, Path: filepath.Join(s.dir, name)})
	}
	return nil
}

// syncFS makes everything on the directory's file system durable. For opening and closing.
func (s *Store) syncFS() error {
	d, err := s.fs.OpenDir(s.dir)
	if err != nil {
		return err
	}
	return joinClose(d.SyncFS(), d)
}

// Identity is what the directory says about disk and process life.
func (s *Store) Identity() Identity { return s.id }

// Space says how much room there is on the data directory's file system. Any goroutine.
func (s *Store) Space() (fsync.Space, error) {
	space, err := s.fs.Space(s.dir)
	if err != nil {
		return space, fmt.Errorf("wal: how much room there is: %w", err)
	}
	return space, nil
}

// Dir is the data directory.
func (s *Store) Dir() string { return s.dir }

// FS is the file system that the store uses.
func (s *Store) FS() fsync.FS { return s.fs }

// Flusher is the one given in Options.
func (s *Store) Flusher() *fsync.Flusher { return s.o.Flusher }

// Groups returns the groups that have a log here, in order.
func (s *Store) Groups() ([]segment.GroupID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.known)), nil
}

// HasLog reports whether the group has a log here.
func (s *Store) HasLog(g segment.GroupID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[g], nil
}

func (s *Store) groupDir(g segment.GroupID) string {
	return filepath.Join(s.dir, groupsName, groupName(g))
}

// cleanStop reports whether the log of the group was closed in order the last time it was open, so
// that nothing in it may be torn. The marker of the store does not speak for every group.
func (s *Store) cleanStop(g segment.GroupID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.held[g]
}

// OpenLog opens the log of a group, made durably first if the group has none here. A damaged log is
// *segment.CorruptError, one of another version *segment.VersionError; other groups open all the same.
// A log that is open is ErrOpen. Logs may be opened side by side.
func (s *Store) OpenLog(g segment.GroupID) (*Log, error) {
	if g == 0 {
		panic("bug: wal: group 0 is no group")
	}
	known, err := s.reserve(g)
	if err != nil {
		return nil, fmt.Errorf("wal: open group %d: %w", uint64(g), err)
	}
	if !known {
		err = s.createGroup(g)
	}
	var l *Log
	if err == nil {
		l, err = newLog(s, g, s.groupDir(g))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.logs, g)
		return nil, fmt.Errorf("wal: open group %d: %w", uint64(g), err)
	}
	s.logs[g] = l
	s.held[g] = true // until it is closed in order
	return l, nil
}

// reserve takes the group for the caller.
func (s *Store) reserve(g segment.GroupID) (known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, fsync.ErrClosed
	}
	if l, ok := s.logs[g]; ok {
		if l == nil || !l.isClosed() {
			return false, ErrOpen
		}
		s.settleLocked(g, l)
	}
	s.logs[g] = nil
	return s.known[g], nil
}

// settleLocked takes notice of a log that is closed.
func (s *Store) settleLocked(g segment.GroupID, l *Log) {
	delete(s.logs, g)
	if l.closedInOrder() {
		delete(s.held, g)
	}
}

// RemoveLog deletes the group's log: the caller has a committed deletion. The directory gets a name
// that says so, flushed, before the first file goes, so a deletion that was begun is completed by the
// next OpenStore and never undone. A group that has no log here is no error.
func (s *Store) RemoveLog(g segment.GroupID) error {
	known, err := s.reserve(g)
	if err == nil && known {
		err = s.removeGroup(g)
	}
	if err != nil {
		err = fmt.Errorf("wal: remove group %d: %w", uint64(g), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, ErrOpen) && !errors.Is(err, fsync.ErrClosed) {
		delete(s.logs, g)
	}
	return err
}

// Close closes every open log, makes everything durable and leaves the clean marker; the Flusher must
// still be running. If anything was not in order there is no marker, the error says so, and the next
// start recovers as after a crash. The lock is given up in any case.
func (s *Store) Close() error {
	logs, ok := s.shut()
	if !ok {
		return nil
	}
	var errs []error
	for _, g := range slices.Sorted(maps.Keys(logs)) {
		if !logs[g].isClosed() {
			errs = append(errs, logs[g].Close())
		}
	}
	err := errors.Join(append(errs, s.mark(logs))...)
	if err = joinClose(err, s.lock); err != nil {
		return fmt.Errorf("wal: close %s: %w", s.dir, err)
	}
	return nil
}

// shut refuses further calls and returns the logs.
func (s *Store) shut() (logs map[segment.GroupID]*Log, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.closed = true
	for g, l := range s.logs {
		if l == nil {
			panic(fmt.Sprintf("bug: wal: the store is closed while group %d is being opened", uint64(g)))
		}
	}
	return s.logs, true
}

// mark writes the clean marker if the node's storage is sound. Groups that were not closed in order
// are listed in it.
func (s *Store) mark(logs map[segment.GroupID]*Log) error {
	if err := s.o.Flusher.Err(); err != nil {
		return err
	}
	if err := s.syncFS(); err != nil {
		return err
	}
	s.mu.Lock()
	for g, l := range maps.Clone(logs) {
		s.settleLocked(g, l)
	}
	held := slices.Collect(maps.Keys(s.held))
	s.mu.Unlock()
	return writeClean(s.fs, s.dir, s.id, held)
}

// Abandon gives up the lock and nothing else: what the next start finds is what a crash would have
// left. For a node whose storage failed, and for tests. Logs must not be used any more.
func (s *Store) Abandon() error {
	if _, ok := s.shut(); !ok {
		return nil
	}
	return s.lock.Close()
}
