package wal

import "weida/segment"

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
// Nothing in it may be changed while Log.Append runs; afterwards all of it is the caller's again, but
// for Large.
type Append struct {
	Truncate segment.Index   // entries at or above are void; 0 for none
	Bodies   []Body          // before the entries that name them
	Voids    []Void          // tombstones
	Entries  []segment.Entry // consecutive
	Large    []*BodyFile     // finished files named by the entries; flushed with this batch
	Commit   segment.Index   // the commit index known, a hint for recovery; 0 for none

	copies bool // Bodies stand in older segments too
	apart  bool // they are found without reading what stands before them
}

// Void is a tombstone: the body is settled, as of a committed index.
type Void struct {
	Ref     segment.BodyRef
	Settled segment.Index
}

// Stats counts what one log holds.
type Stats struct {
	Segments      int
	LogBytes      int64 // entries, truncations and framing in live segments
	PayloadBytes  int64 // inline bodies in live segments
	LargeBytes    int64 // body files
	PhysicalBytes int64 // allocated on disk
	LiveBodies    int64 // retained and not released
}
