package wal

import (
	"fmt"

	"weida/segment"
)

// Size is what the append takes in the log, in bytes, framing and padding included; what Log.Reserve
// is asked for. More than segment.BatchMax does not fit into one append.
func (a *Append) Size() int64 {
	n := int64(segment.BatchOverhead)
	if a.Truncate != 0 {
		n += segment.SizeOf(8)
	}
	for i := range a.Bodies {
		n += segment.SizeOf(16 + len(a.Bodies[i].Payload))
	}
	n += int64(len(a.Voids)) * segment.SizeOf(24)
	for i := range a.Entries {
		n += segment.SizeOf(24 + len(a.Entries[i].Data))
	}
	return n
}

// Reserve sees to it that the appends to come, of together at most n bytes by Append.Size, will not
// fail for want of room: a replica takes from its peers only what it can keep. Nothing is written.
// ErrNotReady: run Job, call Advance, then again. fsync.ErrDiskFull: there is no room; the log stays
// usable. ErrTooLarge: n is more than one batch and more than a segment holds. A reservation replaces
// the one before and lasts until it is used up. Owner only.
func (l *Log) Reserve(n int64) error {
	if err := l.failure(); err != nil {
		return err
	}
	if l.closed {
		return errClosed
	}
	if limit := max(segment.BatchMax, l.segBytes-segment.FirstBatch-voidAllSize); n > limit {
		return fmt.Errorf("wal: group %d: reserve: %w: %d bytes, at most %d", uint64(l.group), ErrTooLarge, n, limit)
	}
	l.reserved = 0
	if err := l.room(n + voidAllSize); err != nil {
		return err
	}
	l.reserved = n + voidAllSize
	return nil
}

// voidAllSize is what an append takes beyond its Size if it is the first behind a snapshot that took the
// log's place: the record that voids what stood in it.
const voidAllSize = segment.HeaderSize + 8
