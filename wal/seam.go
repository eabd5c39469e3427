package wal

import "weida/segment"

// This file fixes the package's API; implementations lie beside it. Once every part stands in its
// own file this one goes.

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
