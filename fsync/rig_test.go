package fsync_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// runs is how many random histories a test plays: def, or WEIDA_RUNS.
func runs(t *testing.T, def int) int {
	t.Helper()
	s := os.Getenv("WEIDA_RUNS")
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("WEIDA_RUNS=%q: %v", s, err)
	}
	return n
}

// rig is a Flusher on a disk in memory that fails on order.
type rig struct {
	*testing.T
	*fsync.Flusher
	disk  *memfs.FS
	fs    *faultfs.FS
	clock *clock

	mu     sync.Mutex
	events []fsync.Event
}

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// newRig returns a stepped Flusher. Without o.Now its clock is rig.clock.
func newRig(t *testing.T, o fsync.Options) *rig {
	t.Helper()
	r := &rig{T: t, disk: memfs.New(), clock: &clock{now: time.Unix(1e9, 0)}}
	r.fs = faultfs.New(r.disk)
	root, err := r.fs.OpenDir("/")
	r.ok(err)
	o.Root = root
	if o.Now == nil {
		o.Now = r.clock.Now
	}
	o.Event = func(e fsync.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}
	r.Flusher = fsync.NewFlusher(o)
	return r
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// seen counts the events of a kind.
func (r *rig) seen(kind string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// calls counts the calls of a kind so far, on a path or on all.
func (r *rig) calls(op faultfs.Op, path string) (n int) {
	for _, c := range r.fs.Trace() {
		if c.Op == op && (path == "" || c.Path == path) {
			n++
		}
	}
	return n
}

// group is a target with one file.
type group struct {
	*rig
	*fsync.Target
	file fsync.File
	name string
	mark uint64
	wake chan struct{}
}

// Wake makes a group a Waker of its own.
func (g *group) Wake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (r *rig) group(name string) *group {
	r.Helper()
	f, err := r.fs.Create("/" + name)
	r.ok(err)
	g := &group{rig: r, file: f, name: "/" + name, wake: make(chan struct{}, 1)}
	g.Target = r.NewTarget(name, g)
	return g
}

func (r *rig) groups(n int) (list []*group) {
	r.Helper()
	for i := range n {
		list = append(list, r.group(fmt.Sprintf("g%d", i)))
	}
	return list
}

// write puts the next mark into the file and makes it dirty.
func (g *group) write() {
	g.Helper()
	g.mark++
	_, err := g.file.WriteAt([]byte{byte(g.mark)}, 0)
	g.ok(err)
	g.Dirty(g.file)
}

// request writes the next mark and asks for it.
func (g *group) request() {
	g.Helper()
	g.write()
	g.Request(g.mark)
}

func (g *group) flushed(want uint64) {
	g.Helper()
	if got := g.Flushed(); got != want {
		g.Fatalf("%s is flushed to %d, want %d (error %v)", g.name, got, want, g.Err())
	}
}

// until waits for a wake that finds the mark flushed or the target poisoned.
func (g *group) until(mark uint64) {
	g.Helper()
	for g.Flushed() < mark && g.Err() == nil {
		<-g.wake
	}
	g.flushed(mark)
}

// settle waits until the last mark is flushed or never will be.
func (g *group) settle() {
	for g.Flushed() < g.mark && g.Err() == nil {
		select {
		case <-g.wake:
		case <-g.Failed():
			return
		}
	}
}

func (g *group) poisoned() {
	g.Helper()
	if err := g.Err(); !errors.Is(err, fsync.ErrPoisoned) {
		g.Fatalf("%s has error %v, want ErrPoisoned", g.name, err)
	}
}

func (g *group) healthy() {
	g.Helper()
	g.ok(g.Err())
}

func stepAll(r *rig) {
	for r.Step() {
	}
}

// eachStrategy runs a test with file by file and with one call for all forced.
func eachStrategy(t *testing.T, test func(t *testing.T, o fsync.Options, op faultfs.Op)) {
	t.Run("Files", func(t *testing.T) { test(t, fsync.Options{Strategy: fsync.Files}, faultfs.OpSync) })
	t.Run("Whole", func(t *testing.T) { test(t, fsync.Options{Strategy: fsync.Whole}, faultfs.OpSyncFS) })
}
