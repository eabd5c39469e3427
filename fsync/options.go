package fsync

import "time"

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
	// LateAfter is how long a target's flush may keep a round that others wait for, at most; 100 ms if zero. Once it is
	// known how long flushes take it is eight times that, and 10 ms at least.
	LateAfter time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// Event receives what an operator should know; nil drops it. Called by one goroutine at a time;
	// must not block or call the Flusher.
	Event func(Event)
}

// The kinds of events.
const (
	EventFlushSlow      = "flush_slow"      // a flush is running for SlowAfter already
	EventFlushFailed    = "flush_failed"    // a call reported lost writes
	EventTargetPoisoned = "target_poisoned" // a target will never advance again
	EventNodeFailed     = "node_failed"     // Flusher.Err is set
)

// Event is one thing worth telling an operator. Fields that a kind does not need are zero.
type Event struct {
	Kind   string // one of the constants
	Target string
	Path   string
	Took   time.Duration
	Err    error
}

// Waker is told once per round that at least one of its targets moved or was poisoned. Wake must not
// block. Shards implement it; the marks themselves are read from the targets. Its dynamic type must be
// comparable (a pointer).
type Waker interface{ Wake() }

func (o Options) withDefaults() Options {
	if o.FewFiles == 0 {
		o.FewFiles = 2
	}
	if o.Workers == 0 {
		o.Workers = 64
	}
	if o.BulkDirtyMax == 0 {
		o.BulkDirtyMax = 4 << 20
	}
	if o.SlowAfter == 0 {
		o.SlowAfter = time.Second
	}
	if o.StallAfter == 0 {
		o.StallAfter = 25 * time.Second
	}
	if o.LateAfter == 0 {
		o.LateAfter = 100 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
