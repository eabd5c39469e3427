package wal

import (
	"io"

	"weida/fsync"
	"weida/segment"
)

// Options of a Store. Flusher is required; everything else works when zero.
type Options struct {
	// Flusher makes the store's files durable. It must run, or be stepped, until Close has returned.
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
	// Event receives what an operator should know; nil drops it. It is called from any goroutine that
	// uses the store, also from several at once, and must not block or call back.
	Event func(Event)
}

// Event is one thing worth telling an operator. Fields that a kind does not need are zero.
type Event struct {
	Kind   string          // one of the Event… constants
	Group  segment.GroupID // 0 for what concerns the node
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
	// Before are the nonces of the incarnations before this one, newest first, at most LivesKept.
	Before [][16]byte
}
