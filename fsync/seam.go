package fsync

import "time"

// This file fixes the Flusher's API. The implementation belongs to flusher.go and its neighbours.

// Strategy says how a round makes its files durable.
type Strategy uint8

// The strategies. Auto picks per round: Files when few files are dirty or bulk writers have more
// than BulkDirtyMax unstarted, Whole otherwise.
const (
	Auto  Strategy = iota
	Files          // one fdatasync per file, up to Workers at a time
	Whole          // one syncfs
)

// Options of a Flusher. The zero value works except for Root.
type Options struct {
	// Root is a descriptor of the data directory, opened before the first write and kept for the
	// process's life; Flusher closes it. Required: error reports of syncfs belong to a descriptor.
	Root Dir
	// Strategy forces one way of flushing; Auto if zero.
	Strategy Strategy
	// FewFiles is the largest number of dirty files flushed one by one under Auto; 2 if zero.
	FewFiles int
	// Workers bounds parallel fdatasync calls; 64 if zero.
	Workers int
	// BulkDirtyMax is how many bytes bulk writers may leave without write-back before rounds use
	// Files; 4 MiB if zero.
	BulkDirtyMax int64
	// SlowAfter is when a flush still running is reported as FlushSlow; 1 s if zero.
	SlowAfter time.Duration
	// StallAfter is when a flush still running counts as failed for the node (Flusher.Err); 25 s if
	// zero.
	StallAfter time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// Event receives FlushSlow, FlushFailed, TargetPoisoned, NodeFailed; nil drops them. Called from
	// the flushing goroutine; must not block or call the Flusher.
	Event func(Event)
}

// Event is one thing worth telling an operator.
type Event struct {
	Kind   string // "flush_slow", "flush_failed", "target_poisoned", "node_failed"
	Target string
	Path   string
	Took   time.Duration
	Err    error
}

// Waker is told once per round that at least one of its targets moved or was poisoned. Wake must not
// block. Shards implement it; the marks themselves are read from the targets.
type Waker interface{ Wake() }
