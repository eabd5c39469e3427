package wal

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"weida/fsync"
	"weida/segment"
)

// Conditions a caller tests with errors.Is.
var (
	// ErrTrimmed means the entry was there and a snapshot has taken its place.
	ErrTrimmed = errors.New("wal: trimmed: a snapshot covers it")
	// ErrAbsent means there is no such entry, body or snapshot here.
	ErrAbsent = errors.New("wal: absent")
	// ErrNotReady means that slow work has to be done first: run Log.Job, call Advance, then again.
	// Nothing was written.
	ErrNotReady = errors.New("wal: not ready")
	// ErrTooLarge means an Append does not fit into one batch of segment.BatchMax bytes. Nothing was
	// written.
	ErrTooLarge = errors.New("wal: batch too large")

	errClosed = fmt.Errorf("wal: log: %w", fsync.ErrClosed)
)

// Kinds of events a log emits.
const (
	EventTailCut        = "tail_cut"        // a crash left an unfinished or unflushed end, which was cut
	EventSegmentSealed  = "segment_sealed"  // a full segment got its footer
	EventTrimmed        = "trimmed"         // segments or body files went because a snapshot covers them
	EventCompacted      = "compacted"       // live bodies were copied forward, and what they pinned can go
	EventLogPoisoned    = "log_poisoned"    // a flush failed: nothing more is stored here
	EventDiskFull       = "disk_full"       // an append or job found no room
	EventCloseFailed    = "close_failed"    // closing a file failed; nothing of it was unflushed
	EventSnapshotPassed = "snapshot_passed" // a damaged snapshot was passed over for an older one
	EventPinned         = "pinned"          // a footer can't be read: its segments are kept
	EventNotRemoved     = "not_removed"     // a file that is no longer needed could not be unlinked
	EventLeftover       = "leftover"        // a file that the manifest no longer names was removed at open
)

// logConfig is what a log needs of its store.
type logConfig struct {
	fs         fsync.FS
	fl         *fsync.Flusher
	group      segment.GroupID
	dir        string
	boot       segment.Boot
	clean      bool // the store was closed in order: nothing may be torn
	rand       io.Reader
	event      func(Event)
	segBytes   int64
	firstBytes int64
}

// Log is one group's segmented log. See the package comment for who may call what.
type Log struct {
	logConfig
	recovered Recovery
	hard      *hardStateFile
	state     HardState // of hard, the term raised to that of the last entry found at opening
	hardWork  *work     // makes the next hard state durable; beside it another job may run

	poisoned atomic.Pointer[error]

	// The fields below belong to the owner. What readers on other goroutines look at is changed only
	// with mu held: segs and their indexes, handles, voids, large, closed.
	mu      sync.Mutex
	closed  bool
	inOrder bool   // Close went well
	segs    []*seg // live ones in order: sealed, then full, then cur, then ready
	cur     *seg   // appended to; nil before the first append and after a cut
	ready   []*seg // made ahead, empty, behind cur
	retired []*handle
	voids   refSet
	hint    readHint                  // guarded by mu; of the body read last
	holder  holder                    // guarded by mu; found last
	maxRef  segment.BodyRef           // greatest of an inline body
	again   map[segment.BodyRef]int64 // bodies retained more than once: how often more
	large   map[segment.BodyRef]*largeBody
	dirFile fsync.Dir // flush target for new names; nil while parked

	base    Mark // what stands before the first entry: the end of what was dropped, or a snapshot
	last    Mark
	lastSeg segment.Position // end of the last batch
	chain   segment.Chain
	commit  segment.Index // greatest hint known
	snap    Mark          // newest snapshot that is flushed and named by the manifest
	terms   []termRun
	pending refSet           // bodies written here that no entry names yet
	voidAll bool             // entries before base stand in the segments and must be voided by the next append
	voided  segment.Position // end of the last batch with a truncation

	waker   fsync.Waker
	target  *fsync.Target
	marks   []flushMark // requested and not confirmed, oldest first
	nextNo  uint64      // number of the next mark
	asked   bool        // everything appended is covered by a requested mark
	flushed Mark        // greatest entry confirmed flushed
	safe    segment.Position
	told    bool // the poison was reported as an event
	// promised is true if the last batch holds nothing and promises everything before it.
	promised bool
	active   bool // appended to since it was opened or parked

	work      *work
	wanted    bool         // an append waits for a segment
	stalled   bool         // a job failed: try again after the next append or trim
	reserved  int64        // bytes behind cur's end that Reserve promised
	trim      bool         // Trim was called since the last trim job
	dead      segment.Term // bodies of lower terms that no entry names may go
	claimed   bool         // the owner has retained what is live: bodies nobody holds may go
	restoring bool         // and is about to do it anew: until it has, nothing may go
	copying   copying
	through   segment.Index  // entries up to here are to go although their segments stay
	evict     segment.Number // this segment is to go, whatever has to be copied out of it and those before it
	resign    segment.Number // nothing more is to be appended to this one
	mending   bool           // manifest and hard state are to be written anew
	hardMu    sync.Mutex     // held while the file of hard is written
	manMu     sync.Mutex
	man       manifest
	snapInfo  snapInfo        // of the newest snapshot; with manMu
	writing   []segment.Index // of snapshots being written; with manMu
	retake    segment.Index   // of a damaged snapshot that may be written again; with manMu
	snapMu    sync.Mutex
	newSnaps  []Mark // committed by SnapshotWriters, not taken up yet
	numbered  segment.Number
}

// termRun says that entries from first on have this term, up to the next run.
type termRun struct {
	first segment.Index
	term  segment.Term
}

// flushMark is a requested flush: when the mark is confirmed, everything up to pos is flushed, and so
// are the entries up to last that still stand.
type flushMark struct {
	n    uint64
	pos  segment.Position
	last Mark
}

// largeBody is a body file.
type largeBody struct {
	size  int64         // of the body, as announced
	index segment.Index // the entry that names it; 0 if none does
	live  int64         // retained and not released
	// leftover: it was here at opening and no entry named it then; it may be an unfinished one.
	leftover bool
	damaged  bool // it is to be replaced
}

// unproved reports whether the file was here at opening and nothing names it: a crash may have left it
// unfinished, and it is no body before one of its ref has been written again.
func (b *largeBody) unproved() bool { return b.leftover && b.index == 0 && b.live == 0 }

// SetWaker says whom to wake when a flush mark moved or the log was poisoned. The owner calls it once,
// before it appends; logs of one owner share one waker, so that it is woken once per round.
func (l *Log) SetWaker(w fsync.Waker) {
	if l.target != nil {
		panic("bug: wal: SetWaker after the first append")
	}
	l.waker = w
}

// Recovered says what was found when the log was opened.
func (l *Log) Recovered() Recovery { return l.recovered }

// First returns the index of the first entry that can be read, or that the next entry will have.
func (l *Log) First() segment.Index { return l.base.Index + 1 }

// Last returns the mark of the last entry, or what stands in its place if there is none: the end of
// what was dropped, the snapshot.
func (l *Log) Last() Mark { return l.last }

// Written returns the mark up to which entries and their bodies are written: Append returns only then.
func (l *Log) Written() Mark { return l.last }

// Flushed returns the mark up to which entries and their bodies, large ones included, are confirmed
// flushed. It never names an entry that was truncated. It moves in Advance.
func (l *Log) Flushed() Mark { return l.flushed }

// RequestFlush asks for everything appended so far to be made durable. It never blocks; Advance takes
// up the answer.
func (l *Log) RequestFlush() {
	if l.asked || l.target == nil || l.failure() != nil {
		return
	}
	l.asked = true
	l.nextNo++
	l.marks = append(l.marks, flushMark{n: l.nextNo, pos: l.lastSeg, last: l.last})
	l.target.Request(l.nextNo)
}

// End returns the end of the last batch: everything appended so far stands before it.
func (l *Log) End() segment.Position { return l.lastSeg }

// FlushedEnd returns the position up to which batches are confirmed flushed, with all that is in them.
// It is how an Append without entries, which Flushed cannot name, is known to be durable. It moves in
// Advance and never back, also where a truncation moves Flushed back.
func (l *Log) FlushedEnd() segment.Position { return l.safe }

// Advance takes up confirmed flushes, finished jobs and committed snapshots. The owner calls it
// after it was woken and after a job. It returns why the log is poisoned, nil if it is not; an error
// of a job is the job's own.
func (l *Log) Advance() error {
	l.takeWork()
	l.takeHardState()
	l.takeSnapshots()
	if l.target != nil {
		done := l.target.Flushed()
		if off.advanceEarly {
			done = l.nextNo
		}
		for len(l.marks) > 0 && l.marks[0].n <= done {
			l.takeMark(l.marks[0])
			l.marks = l.marks[1:]
		}
		if err := l.target.Err(); err != nil {
			l.poison(err)
		}
	}
	l.closeRetired()
	l.copyForward()
	err := l.failure()
	if err != nil && !l.told {
		l.told = true
		l.emit(Event{Kind: EventLogPoisoned, Path: l.dir, Err: err})
	}
	return err
}

// FlushEnded reports whether Advance has a flush to take up that ended, well or not.
func (l *Log) FlushEnded() bool {
	t := l.target
	return t != nil && (len(l.marks) > 0 && l.marks[0].n <= t.Flushed() || t.Err() != nil) || l.failure() != nil
}

func (l *Log) takeMark(m flushMark) {
	if l.safe.Less(m.pos) {
		l.safe = m.pos
	}
	if m.last.Index > l.flushed.Index || off.flushedVoid {
		l.flushed = m.last
	}
}

// failure says why the log takes no more appends, nil while it does.
func (l *Log) failure() error {
	if p := l.poisoned.Load(); p != nil {
		return *p
	}
	return nil
}

// poison ends the log for appends; the first reason stays. Any goroutine.
func (l *Log) poison(cause error) {
	err := fmt.Errorf("wal: group %d: %w", uint64(l.group), cause)
	if !errors.Is(err, fsync.ErrPoisoned) && !errors.Is(err, fsync.ErrClosed) {
		err = fmt.Errorf("wal: group %d: %w: %w; what was not confirmed as flushed may be lost, although reads may "+
			"still show it; nothing more is stored here until the log is opened again", uint64(l.group),
			fsync.ErrPoisoned, cause)
	}
	l.poisoned.CompareAndSwap(nil, &err)
}

func (l *Log) emit(e Event) {
	if l.event != nil {
		e.Group = l.group
		l.event(e)
	}
}

// Stats counts what the log holds. Any goroutine.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Stats{Segments: len(l.segs)}
	for _, s := range l.segs {
		st.LogBytes += s.end - s.payload
		st.PayloadBytes += s.payload
		st.PhysicalBytes += s.size
		st.LiveBodies += s.live
	}
	for _, n := range l.again {
		st.LiveBodies += n
	}
	for _, b := range l.large {
		st.LargeBytes += b.size
		st.PhysicalBytes += b.size
		if b.live > 0 {
			st.LiveBodies++
		}
	}
	return st
}
