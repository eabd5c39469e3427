package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// A disk that is full for a while in the middle of a deletion holds it up and no more, wherever it strikes:
// in the queue's log, in the control log, or in both.
func TestDeletionOnAFullDisk(t *testing.T) {
	for name, path := range map[string]string{"queue": "", "control": "1/*.seg", "both": "*.seg"} {
		for _, nth := range []int{1, 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				files := faultfs.New(fsync.OS())
				r := newRig(t, func(c *Config) { c.files = files })
				r.producer(wire.Stored(wire.Flushed)).put(1, "x")
				dir := r.groupDir("demo")
				pattern := filepath.Join(filepath.Dir(dir), path)
				switch path {
				case "":
					pattern = filepath.Join(dir, "*.seg")
				case "*.seg":
					pattern = path
				}
				c := r.consumer("s", 1)
				d := c.get(0, 1, "x")
				r.change(remove("demo", time.Hour))
				files.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: pattern}, nth, 3, fsync.ErrDiskFull)
				c.send(&wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: wire.Accept})
				for {
					result, err := r.node.Mutate(r.ctx, remove("demo", 0))
					if err == nil && (result.Err == nil || result.Err.Reason == control.NotFound) {
						break
					}
					var no *wire.Error
					if !errors.As(err, &no) || no.Code != wire.NotCommitted {
						t.Fatalf("%+v, %v", result, err)
					}
				}
				r.gone("demo")
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is still there: %v", dir, err)
				}
				r.make("demo", control.QueueSpec{})
				if e := r.producer(wire.Stored(wire.Flushed)).put(1, "new"); e.Offset != 0 {
					t.Errorf("%+v", e)
				}
				// A group that could not be closed in order before it was removed is told of here.
				if err := r.node.Close(); err != nil && !errors.Is(err, fsync.ErrDiskFull) {
					t.Error(err)
				}
				r.node = nil
			})
		}
	}
}

// A control log whose flush fails takes nothing any more and says so, at once and for good; queues go on,
// and nothing that is not flushed is acted upon.
func TestControlLogFails(t *testing.T) {
	t.Parallel()
	for try := 1; !controlLogFails(t); try++ {
		if try == 20 {
			t.Fatal("each time it was the flush of something else that failed")
		}
	}
}

// controlLogFails says whether the flush that failed was that of the change: on a slow machine what the node has found
// is still being written down.
func controlLogFails(t *testing.T) bool {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	dir := r.groupDir("demo")
	segments := filepath.Join(filepath.Dir(dir), "1", "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpSync, Path: segments}, 1, -1, errors.New("input/output error"))
	_, err := r.node.Mutate(r.ctx, remove("demo", 0))
	var no *wire.Error
	if errors.As(err, &no) && no.Code == wire.NotCommitted {
		r.closeBroken()
		return false
	}
	if !errors.As(err, &no) || no.Code != wire.MutationIndeterminate {
		t.Errorf("the one whose flush failed: %v", err)
	}
	if _, err = r.node.Mutate(r.ctx, remove("other", 0)); !errors.As(err, &no) || no.Code != wire.NotCommitted {
		t.Errorf("the next one: %v", err)
	}
	if e := r.producer(wire.Stored(wire.Flushed)).put(1, "fine"); e.Evidence != wire.Stored(wire.Flushed) {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a deletion that is not flushed was done: %v", err)
	}
	r.closeBroken()
	return true
}

// Mutations that meet the node's end are answered, each.
func TestMutationsMeetTheEnd(t *testing.T) {
	r := newRig(t, nil)
	var all sync.WaitGroup
	started := make(chan struct{}, 1024)
	for range 8 {
		node := r.node
		all.Go(func() {
			for {
				_, err := node.Mutate(context.Background(), control.Mutation{
					Verb: control.Apply, Kind: control.KindQueue, Name: "demo",
					Queue: &control.QueueSpec{Limits: control.QueueLimits{Messages: uint64(time.Now().UnixNano())}},
				})
				var no *wire.Error
				switch {
				case errors.As(err, &no) && (no.Code == wire.NotCommitted || no.Code == wire.MutationIndeterminate):
					return
				case err != nil:
					t.Error(err)
					return
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 50 {
		<-started
	}
	r.close()
	all.Wait()
	r.open()
	r.make("demo", control.QueueSpec{})
}

// A queue whose storage failed can be deleted, and the next of its name is as good as any.
func TestDeletionOfABrokenQueue(t *testing.T) {
	t.Parallel()
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	dir := r.groupDir("demo")
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "x")
	segments := filepath.Join(dir, "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpSync, Path: segments}, 1, 1, errors.New("input/output error"))
	p.send(&wire.Publish{Seq: 2, Low: 1, Body: []byte("unknown")})
	frame[*wire.Indeterminate](p)
	r.line(r.dial(), &wire.OpenConsumer{Queue: "demo", Subscription: "s"}).end(wire.ReadOnly)
	r.deletes()
	p.end(wire.QueueDeleted)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	r.make("demo", control.QueueSpec{})
	if e := r.producer(wire.Stored(wire.Flushed)).put(1, "new"); e.Offset != 0 {
		t.Errorf("%+v", e)
	}
	r.closeBroken()
}

// A queue that could not be opened can be deleted; what was moved away is not touched.
func TestDeletionOfAQueueThatIsNotOpen(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	here, away := r.groupDir("demo"), filepath.Join(filepath.Dir(r.config.Dir), "elsewhere")
	r.close()
	move(t, here, away)
	r.open()
	r.deletes()
	r.make("demo", control.QueueSpec{})
	if e := r.producer(wire.Stored(wire.Flushed)).put(1, "new"); e.Offset != 0 {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(filepath.Join(away, "manifest")); err != nil {
		t.Error(err)
	}
}
