package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// waiter is a machine that lets goroutines wait for the fate of their proposals. Unlike kv it is read
// from outside the shard, so it locks.
type waiter struct {
	mu      sync.Mutex
	cond    *sync.Cond
	group   Group
	index   map[uint64]Index
	dropped map[uint64]Outcome
	marks   Marks
	lines   []string
	bodies  map[string]segment.Commit
	last    Index
	stopped atomic.Bool
	bad     error
}

func newWaiter() *waiter {
	w := &waiter{index: map[uint64]Index{}, dropped: map[uint64]Outcome{}, bodies: map[string]segment.Commit{}}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *waiter) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped.Load() {
		w.bad = errors.New("called after Stop")
	}
	f()
	w.cond.Broadcast()
}

func (w *waiter) Attach(g Group)                       { w.group = g }
func (w *waiter) Appended(tag uint64, _ Term, i Index) { w.do(func() { w.index[tag] = i }) }
func (w *waiter) Dropped(tag uint64, o Outcome)        { w.do(func() { w.dropped[tag] = o }) }
func (w *waiter) Moved(m Marks)                        { w.do(func() { w.marks = m }) }
func (w *waiter) Role(Role, Term, Leader)              {}
func (w *waiter) Snapshot() Source                     { panic("no snapshots of a waiter") }
func (w *waiter) Restore(Source) error                 { return errors.New("no snapshots of a waiter") }

func (w *waiter) Apply(_ Term, i Index, items []Item) {
	w.do(func() {
		if i != w.last+1 {
			w.bad = fmt.Errorf("entry %d after %d", i, w.last)
		}
		w.last = i
		for _, it := range items {
			w.lines = append(w.lines, string(it.Command))
			w.bodies[string(it.Command)] = it.Body
		}
	})
}

// flushed waits until a proposal's entry is flushed.
func (w *waiter) flushed(tag uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if o, ok := w.dropped[tag]; ok {
			return o.Err
		}
		if i, ok := w.index[tag]; ok && i <= w.marks.Flushed {
			return nil
		}
		w.cond.Wait()
	}
}

// flushedUpTo waits until an entry is flushed.
func (w *waiter) flushedUpTo(i Index) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.marks.Flushed < i {
		w.cond.Wait()
	}
	return w.bad
}

// realHost opens a host with goroutines on real files.
func realHost(t testing.TB, dir string, o HostOptions) (*Host, *wal.Store) {
	t.Helper()
	root, err := fsync.OS().OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := fsync.BootID(dir)
	if err != nil {
		t.Fatal(err)
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root})
	fl.Start()
	store, err := wal.OpenStore(fsync.OS(), dir+"/data", wal.Options{Flusher: fl, Boot: segment.Boot(boot)})
	if err != nil {
		t.Fatal(err)
	}
	o.Store = store
	h := NewHost(o)
	h.Start()
	t.Cleanup(func() {
		if err := fl.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, store
}

// Many groups, many goroutines, real files: every proposal is answered, flushed and applied in the
// order of its producer; run it with -race.
func TestStartedHost(t *testing.T) {
	const groups, producers, messages = 6, 4, 60
	dir := t.TempDir()
	h, store := realHost(t, dir, HostOptions{Shards: 2, ParkTicks: 1})
	machines := make([]*waiter, groups)
	var wg sync.WaitGroup
	for i := range machines {
		machines[i] = newWaiter()
		wg.Go(func() {
			if _, err := h.OpenOwner(GroupID(i+1), machines[i], OwnerOptions{Create: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, m := range machines {
		for p := range producers {
			wg.Go(func() { produce(t, m, p, messages) })
		}
	}
	wg.Wait()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		m.stopped.Store(true)
		checkOrder(t, m.lines, producers, messages)
		if m.bad != nil {
			t.Error(m.bad)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	h, store = realHost(t, dir, HostOptions{})
	for i := range machines {
		m := newWaiter()
		if _, err := h.OpenOwner(GroupID(i+1), m, OwnerOptions{}); err != nil {
			t.Fatal(err)
		}
		checkOrder(t, m.lines, producers, messages)
	}
	if err := errors.Join(h.Stop(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, m *waiter, p, messages int) {
	var tags []uint64
	for i := range messages {
		tag := uint64(p)<<32 | uint64(i)
		it := Item{Command: fmt.Appendf(nil, "%d/%d", p, i), HasBody: true, Inline: fmt.Appendf(nil, "body %d of %d", i, p)}
		for {
			err := m.group.Propose(&Batch{Tag: tag, Items: []Item{it}})
			if err == nil {
				break
			}
			if !errors.Is(err, ErrFull) {
				t.Error(err)
				return
			}
		}
		tags = append(tags, tag)
		if i%20 == 19 {
			if err := m.flushed(tag); err != nil {
				t.Error(err)
				return
			}
			m.mu.Lock()
			c := m.bodies[string(it.Command)]
			m.mu.Unlock()
			b, err := readBody(m.group, c)
			if err != nil || string(b) != string(it.Inline) {
				t.Errorf("body %q, %v", b, err)
			}
		}
	}
	for _, tag := range tags {
		if err := m.flushed(tag); err != nil {
			t.Error(err)
		}
	}
}

func checkOrder(t *testing.T, lines []string, producers, messages int) {
	t.Helper()
	next := make([]int, producers)
	for _, line := range lines {
		var p, i int
		if _, err := fmt.Sscanf(line, "%d/%d", &p, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[p] {
			t.Fatalf("producer %d: message %d, want %d", p, i, next[p])
		}
		next[p]++
	}
	for p, n := range next {
		if n != messages {
			t.Errorf("producer %d: %d messages, want %d", p, n, messages)
		}
	}
}

// Stop under load: every proposal that was taken is answered once, and after Stop the machine is left
// alone.
func TestStopUnderLoad(t *testing.T) {
	h, store := realHost(t, t.TempDir(), HostOptions{Shards: 2, InboxMessages: 50})
	m := newWaiter()
	if _, err := h.OpenOwner(1, m, OwnerOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var taken [4]uint64
	for p := range taken {
		wg.Go(func() {
			for i := uint64(0); ; {
				err := m.group.Propose(&Batch{Tag: uint64(p)<<32 | i, Items: []Item{note("x")}})
				if errors.Is(err, ErrStopped) {
					taken[p] = i
					return
				}
				if err == nil {
					i++
				} else if !errors.Is(err, ErrFull) {
					t.Error(err)
					return
				}
			}
		})
	}
	if err := m.flushedUpTo(20); err != nil {
		t.Fatal(err)
	}
	m.group.Stop()
	m.stopped.Store(true)
	wg.Wait()
	if err := errors.Join(h.Stop(), store.Close()); err != nil {
		t.Fatal(err)
	}
	if m.bad != nil {
		t.Fatal(m.bad)
	}
	n := 0
	for p, limit := range taken {
		n += int(limit)
		for i := range limit {
			tag := uint64(p)<<32 | i
			_, written := m.index[tag]
			out, dropped := m.dropped[tag]
			if written == dropped || dropped && out.Kind != Refused {
				t.Fatalf("proposal %d of %d: written %v, dropped %v", i, p, written, out)
			}
		}
	}
	if len(m.index)+len(m.dropped) != n {
		t.Fatalf("%d answers for %d proposals", len(m.index)+len(m.dropped), n)
	}
}

// While the flush of one group hangs, another group of the same shard is written, applied and flushed
// (T-30).
func TestStalledFlushDelaysNobody(t *testing.T) {
	fs := faultfs.New(memfs.New())
	root, err := fs.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root, Strategy: fsync.Files, LateAfter: time.Millisecond})
	fl.Start()
	store, err := wal.OpenStore(fs, rigDir, wal.Options{Flusher: fl, Boot: segment.Boot{1}})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(HostOptions{Store: store, Shards: 1})
	h.Start()
	stalled, other := newWaiter(), newWaiter()
	for g, m := range map[GroupID]*waiter{1: stalled, 2: other} {
		if _, err := h.OpenOwner(g, m, OwnerOptions{Create: true}); err != nil {
			t.Fatal(err)
		}
		if err := m.group.Propose(&Batch{Tag: 1, Items: []Item{note("make the segment")}}); err != nil {
			t.Fatal(err)
		}
		if err := m.flushed(1); err != nil {
			t.Fatal(err)
		}
	}
	gate := fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: groupFiles(1)})
	if err := stalled.group.Propose(&Batch{Tag: 2, Items: []Item{note("stalls")}}); err != nil {
		t.Fatal(err)
	}
	<-gate.Entered()
	for tag := range uint64(20) {
		if err := other.group.Propose(&Batch{Tag: 10 + tag, Items: []Item{note("goes on")}}); err != nil {
			t.Fatal(err)
		}
		if err := other.flushed(10 + tag); err != nil {
			t.Fatal(err)
		}
	}
	if now := stalled.group.Status().Marks; now.Written != 2 || now.Applied != 2 || now.Flushed != 1 {
		t.Errorf("the stalled group's marks %+v", now)
	}
	gate.Open()
	if err := stalled.flushed(2); err != nil {
		t.Error(err)
	}
	if err := errors.Join(h.Stop(), store.Close(), fl.Close()); err != nil {
		t.Fatal(err)
	}
}
