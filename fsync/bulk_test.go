package fsync_test

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
)

func TestStrategyByFilesAndBulk(t *testing.T) {
	r := newRig(t, fsync.Options{BulkDirtyMax: 3 << 20})
	list := r.groups(5)
	round := func(n int, want faultfs.Op) {
		t.Helper()
		before := len(r.fs.Trace())
		for _, g := range list[:n] {
			g.request()
		}
		r.Step()
		for _, c := range r.fs.Trace()[before:] {
			if (c.Op == faultfs.OpSync || c.Op == faultfs.OpSyncFS) && c.Op != want {
				t.Fatalf("%d files: %v, want %s", n, c, want)
			}
		}
	}
	round(1, faultfs.OpSync)
	round(2, faultfs.OpSync)
	round(3, faultfs.OpSyncFS)
	var bulks []*fsync.Bulk
	for i := range 4 { // 3.6 MiB, no piece of 1 MiB complete
		f, err := r.fs.Create(fmt.Sprintf("/bulk%d", i))
		r.ok(err)
		b := r.NewBulk()
		bulks = append(bulks, b)
		r.ok(b.Wrote(f, 0, 900<<10))
	}
	if n := r.calls(faultfs.OpStartWrite, ""); n != 1 {
		t.Fatalf("%d write-backs were started beyond the limit, want 1", n)
	}
	round(3, faultfs.OpSyncFS) // the fourth started its own and is below the limit
	for _, b := range bulks {
		b.Done()
	}
	s := r.Stats()
	if s.FilesRounds != 2 || s.WholeRounds != 2 || s.Marks != 9 || s.RoundFiles.Count != 4 || s.RoundFiles.Sum != 9 {
		t.Fatalf("%+v", s)
	}
}

// stuckWriteBack is a file whose write-back does not start.
type stuckWriteBack struct{ fsync.File }

func (stuckWriteBack) StartWrite(_, _ int64) error {
	return fsync.NewError("sync_file_range", "x", syscall.EIO)
}

// The dirty-bytes rule: SyncFS would have to write what bulk writers left, so while that is too much,
// rounds go file by file.
func TestBulkBytesForceFiles(t *testing.T) {
	r := newRig(t, fsync.Options{BulkDirtyMax: 1 << 20})
	list := r.groups(5)
	round := func(want int) {
		t.Helper()
		for _, g := range list {
			g.request()
		}
		r.Step()
		if n := r.calls(faultfs.OpSyncFS, ""); n != want {
			t.Fatalf("%d SyncFS so far, want %d", n, want)
		}
	}
	f, err := r.fs.Create("/bulk")
	r.ok(err)
	gate := r.fs.Gate(faultfs.Match{Op: faultfs.OpStartWrite})
	bulks := []*fsync.Bulk{r.NewBulk(), r.NewBulk()}
	r.ok(bulks[0].Wrote(f, 0, 1<<20-1))
	round(1)
	var wg sync.WaitGroup
	wg.Go(func() { r.ok(bulks[1].Wrote(f, 1<<20, 1<<19)) })
	<-gate.Entered() // above the limit it starts at once, and the device takes its time
	round(1)
	gate.Open()
	wg.Wait()
	round(2)
	r.ok(bulks[1].Wrote(f, 1<<21, 1<<19)) // more starts are needed for more bytes only
	for _, b := range bulks {
		b.Done()
	}
	round(3)
	if err := r.NewBulk().Wrote(stuckWriteBack{f}, 0, 1<<20); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a write-back that did not start: %v", err)
	}
}

// A bulk writer does not run ahead of the disk: others would wait for all that it left there.
func TestBulkWriterWaitsForTheDisk(t *testing.T) {
	r := newRig(t, fsync.Options{})
	f, err := r.fs.Create("/bulk")
	r.ok(err)
	b := r.NewBulk()
	const piece = 64 << 10
	for off := int64(0); off < 16<<20; off += piece {
		r.ok(b.Wrote(f, off, piece))
		if written, flushed := (off+piece)>>20, int64(r.calls(faultfs.OpSync, "/bulk"))*2; written-flushed > 2 {
			t.Fatalf("%d MiB are written and %d were flushed", written, flushed)
		}
	}
	b.Done()
}

// What that flush is told of lost writes is final, and explains what SyncFS says of the same.
func TestBulkWriterLosesWrites(t *testing.T) {
	r := newRig(t, fsync.Options{})
	list := r.groups(4)
	f, err := r.fs.Create("/bulk")
	r.ok(err)
	b := r.NewBulk()
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: "bulk"}, 1, 1, syscall.EIO)
	if err := b.Wrote(f, 0, 2<<20); !errors.Is(err, fsync.ErrPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("a loss that was reported: %v", err)
	}
	if err := b.Wrote(f, 2<<20, 1); !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("written all the same: %v", err)
	}
	b.Done()
	r.fs.Fail(faultfs.Match{Op: faultfs.OpSyncFS}, 1, 1, syscall.EIO)
	for _, g := range list {
		g.request()
	}
	stepAll(r)
	for _, g := range list {
		g.flushed(1)
	}
	r.ok(r.Flusher.Err())
	if err := r.Flush("bulk", f); !errors.Is(err, fsync.ErrPoisoned) {
		t.Fatalf("a later flush of the file: %v", err)
	}
}
