package wal

import (
	"io"

	"weida/fsync"
	"weida/segment"
)

// This file fixes the package's API; implementations lie beside it. Once every part stands in its
// own file this one goes.

// Options of a Store. Flusher is required; everything else works when zero.
type Options struct {
	// Flusher makes the store's files durable.
	Flusher *fsync.Flusher
	// Boot identifies the present life of the page cache (fsync.BootID).
	Boot segment.Boot
	// SegmentBytes is where a segment is rolled; 16 MiB if zero, at least 512 KiB.
	SegmentBytes int64
	// FirstBytes is the first preallocation of a segment, doubled when used up; 64 KiB if zero.
	FirstBytes int64
	// Rand is the source of salts and ids; crypto/rand.Reader if nil.
	Rand io.Reader
	// Keep names files of others at the top of the data directory that are left alone; none if nil.
	// node.key, node.crt and lost+found always are.
	Keep []string
	// Event receives what an operator should know; nil drops it. Must not block.
	Event func(Event)
}

// Event is one thing worth telling: segment_sealed, tail_cut, quarantined, log_poisoned,
// copy_repaired, disk_full, …
type Event struct {
	Kind   string
	Group  segment.GroupID
	Path   string
	Detail string
	Err    error
}

// Identity is what a data directory says about the node's disk and process life.
type Identity struct {
	Disk        [16]byte // made once with the directory; another disk is another replica
	Incarnation uint64   // rises by one at every open
	Nonce       [16]byte // random for this incarnation
	CleanStop   bool     // the previous incarnation stopped in order
}

// HardState is what must be flushed before any message that depends on it.
type HardState struct {
	Term segment.Term
	Vote uint64
}

// Mark names an entry: a completion at a mark counts only while that very entry stands.
type Mark struct {
	Term  segment.Term
	Index segment.Index
}

// Body is an inline body on its way into the log. The payload is copied by Append.
type Body struct {
	Ref     segment.BodyRef
	Payload []byte // at most segment.InlineMax bytes
}

// Append is one batch: written with one write, in this order: truncation, bodies, voids, entries.
type Append struct {
	Truncate segment.Index   // entries at or above are void; 0 for none
	Bodies   []Body          // before the entries that name them
	Voids    []Void          // tombstones
	Entries  []segment.Entry // consecutive
	Large    []*BodyFile     // finished files named by the entries; flushed with this batch
	Commit   segment.Index   // hint
}

// Void is a tombstone: the body is settled, as of a committed index.
type Void struct {
	Ref     segment.BodyRef
	Settled segment.Index
}

// Job is slow work of one log (make the next segment ready, seal, trim, write the manifest): it
// blocks on flushes, so the owner hands it to another goroutine, or runs it inline when stepped. At
// most one job of a log exists at a time. After Run returned the owner calls Log.Advance.
type Job struct {
	Kind string
	Run  func() error
}

// Stats counts what one log holds.
type Stats struct {
	Segments      int
	LogBytes      int64 // entries, truncations and framing in live segments
	PayloadBytes  int64 // inline bodies in live segments
	LargeBytes    int64 // body files
	PhysicalBytes int64 // allocated on disk
	LiveBodies    int64
}

// Seam wanted by raftstore: func (l *Log) SetWaker(w fsync.Waker). The owner calls it once, before its
// first use of the log; w is woken when the log's flush mark moved or its target was poisoned (pass it to
// Flusher.NewTarget, created at the first append; all logs of a shard share one w, so that it is
// woken once per round).
