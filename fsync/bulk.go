package fsync

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// bulkPiece is how much a bulk writer gathers before it starts write-back, in bytes.
const bulkPiece = 1 << 20

// bulkAhead is how much a bulk writer writes before it waits until that is durable, in bytes. What a disk
// has taken and not made durable is what the next flush of anybody waits for; without a bound that is as
// much as kernel and device will hold, which takes them seconds.
const bulkAhead = 2 << 20

// Bulk keeps account of a writer of much data: body files, snapshots, compaction. It starts
// write-back early and does not run far ahead of the disk, so that the flushes of others do not have to
// wait for it. One goroutine uses it.
type Bulk struct {
	f *Flusher

	mu           sync.Mutex
	file         File
	first, limit int64 // written, write-back not started
	ahead        int64 // written since the file was flushed
	err          error
}

// NewBulk registers a bulk writer. Done must be called.
func (f *Flusher) NewBulk() *Bulk {
	b := &Bulk{f: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bulks = append(f.bulks, b)
	return b
}

// Wrote says that [off, off+n) of file was just written. It starts write-back in pieces of 1 MiB, or
// at once while all bulk writers together have more than Options.BulkDirtyMax unstarted; every 2 MiB it
// waits until they are durable. An error that wraps ErrPoisoned means that written bytes are lost: give
// the file up.
func (b *Bulk) Wrote(file File, off, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if b.file != file || off != b.limit {
		if err := b.startLocked(); err != nil {
			return err
		}
		b.file, b.first, b.limit, b.ahead = file, off, off, 0
	}
	b.limit += n
	b.ahead += n
	sum := b.f.bulkSum.Add(n)
	if b.limit-b.first < bulkPiece && sum <= b.f.o.BulkDirtyMax {
		return nil
	}
	if err := b.startLocked(); err != nil || b.ahead < bulkAhead {
		return err
	}
	return b.flushLocked()
}

// flushLocked waits until what was written is durable. Nobody else flushes the file meanwhile: it is no
// target's yet, and who asks it waits.
func (b *Bulk) flushLocked() error {
	b.ahead = 0
	err := b.file.Sync()
	if err == nil {
		return nil
	}
	b.f.mu.Lock()
	b.f.poisonSeq++ // SyncFS will report the same loss, and the file, if it is still there, will not
	b.f.mu.Unlock()
	b.lostLocked(err)
	return b.err
}

// lostLocked gives the file up.
func (b *Bulk) lostLocked(err error) {
	path := pathOf(b.file)
	b.f.spoil(b.file, path, err)
	b.err = fmt.Errorf("fsync: write %s: %w: %w; the file is incomplete and must be given up", path, ErrPoisoned, err)
}

func (b *Bulk) startLocked() error {
	n := b.limit - b.first
	if n == 0 {
		return nil
	}
	first := b.first
	b.first = b.limit
	err := b.file.StartWrite(first, n) // may wait for the device's queue
	b.f.bulkSum.Add(-n)
	return err
}

// Done ends the account. Hand the file to a target before (Dirty, Flush): until then the Flusher asks
// it about lost writes through b. What is left is flushed with the file.
func (b *Bulk) Done() {
	b.mu.Lock()
	b.f.bulkSum.Add(b.first - b.limit)
	b.first, b.file = b.limit, nil
	b.mu.Unlock()
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for i, other := range b.f.bulks {
		if other == b {
			b.f.bulks = append(b.f.bulks[:i], b.f.bulks[i+1:]...)
			return
		}
	}
}

// ask flushes the file that is being written to learn whether it lost writes.
func (b *Bulk) ask() (found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return false
	}
	b.f.asking.Lock() // until spoil has told what this flush was told
	defer b.f.asking.Unlock()
	err := b.file.Sync()
	if err == nil || errors.Is(err, os.ErrClosed) {
		return false
	}
	b.lostLocked(err)
	return true
}
