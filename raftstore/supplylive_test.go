package raftstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weida/segment"
)

// liveStream is a pipe to a receiver on a goroutine of its own.
type liveStream struct {
	*io.PipeWriter
	stop context.CancelFunc
	took chan error
}

// stream opens a stream between two hosts.
func (net *liveNet) stream(ctx context.Context, from, to NodeID, head []byte) (Stream, error) {
	r, w := io.Pipe()
	s := &liveStream{PipeWriter: w, took: make(chan error, 1)}
	ctx, s.stop = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(errLostStream) })
	head = bytes.Clone(head)
	net.done.Go(func() {
		err := net.hosts[to-1].ReceiveStream(from, head, r)
		_ = r.CloseWithError(errLostStream)
		s.took <- err
	})
	return s, nil
}

func (s *liveStream) Close() error {
	if err := s.PipeWriter.Close(); err != nil {
		return err
	}
	err := <-s.took
	s.stop()
	return err
}

func (s *liveStream) Cancel() { s.stop() }

// lockedKV is a kv machine that goroutines may look at.
type lockedKV struct {
	*kv
	cond *sync.Cond
}

func (m lockedKV) do(f func()) {
	m.cond.L.Lock()
	defer m.cond.L.Unlock()
	f()
	m.cond.Broadcast()
}

func (m lockedKV) Appended(tag uint64, t Term, i Index) { m.do(func() { m.kv.Appended(tag, t, i) }) }
func (m lockedKV) Dropped(tag uint64, o Outcome)        { m.do(func() { m.kv.Dropped(tag, o) }) }
func (m lockedKV) Apply(t Term, i Index, items []Item)  { m.do(func() { m.kv.Apply(t, i, items) }) }
func (m lockedKV) Moved(now Marks)                      { m.do(func() { m.kv.Moved(now) }) }
func (m lockedKV) Role(r Role, t Term, l Leader)        { m.do(func() { m.kv.Role(r, t, l) }) }
func (m lockedKV) Halted(err error)                     { m.do(func() { m.kv.Halted(err) }) }
func (m lockedKV) Bodies(yield func(BodyRef) bool)      { m.do(func() { m.kv.Bodies(yield) }) }
func (m lockedKV) Snapshot() (s Source)                 { m.do(func() { s = m.kv.Snapshot() }); return s }

func (m lockedKV) Restore(s Source) (err error) { m.do(func() { err = m.kv.Restore(s) }); return err }

func (m lockedKV) until(holds func() bool) {
	m.cond.L.Lock()
	defer m.cond.L.Unlock()
	for !holds() {
		m.cond.Wait()
	}
}

// propose hands an item to the group, when it leads; its buffers are the group's.
func (m lockedKV) propose(item Item) (tag uint64, err error) {
	m.do(func() {
		m.nextTag++
		tag = m.nextTag
		m.asked[tag] = true
	})
	err = m.group.Propose(&Batch{Tag: tag, Items: []Item{item}})
	return tag, err
}

// Hosts with goroutines: a large body goes to the members while small ones pass; a member that is away is brought
// up by a snapshot with its live bodies, large ones by streams; nothing waits for anything for ever (T-46, W-10).
func TestSupplyLive(t *testing.T) {
	var installed atomic.Int64
	net := liveCluster(t, 3, HostOptions{
		Shards: 2, ElectionTicks: 30, HeartbeatTicks: 1, SnapshotBytes: 300_000,
		Event: func(e Event) {
			if e.Kind == SnapshotInstalled {
				installed.Add(1)
			}
		},
	})
	cond := sync.NewCond(&sync.Mutex{})
	open := func(host int) lockedKV {
		m := lockedKV{newKV(t, fmt.Sprint("n", host+1)), cond}
		m.replica = true
		o := ReplicaOptions{Self: replicaOn(NodeID(host + 1)), Genesis: genesis(3)}
		if _, err := net.hosts[host].OpenReplica(1, m, o); err != nil {
			t.Fatal(err)
		}
		return m
	}
	away := open(2)
	open(1)
	lead := open(0) // the first of the genesis campaigns as soon as it is open
	lead.until(func() bool { return lead.role == LeaderRole })

	held := func(tag uint64, n int) func() bool {
		return func() bool {
			a, ok := lead.answers[tag]
			now := lead.now()
			return ok && (a.outcome.Kind != 0 || now.HeldBy(a.index) >= n)
		}
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 400_000)
	var large sync.WaitGroup
	large.Go(func() {
		tag, err := lead.propose(Item{Command: []byte("plarge:1"), HasBody: true, Large: liveBody(t, lead.group, body)})
		if err != nil {
			t.Error(err)
			return
		}
		lead.until(held(tag, 3))
	})
	for i := range 100 {
		tag, err := lead.propose(put(fmt.Sprint("k", i%10, ":", i), "small"))
		if err != nil {
			t.Fatal(err)
		}
		lead.until(held(tag, 2))
	}
	large.Wait()

	away.group.Stop()
	tag, err := lead.propose(Item{Command: []byte("pmore:1"), HasBody: true, Large: liveBody(t, lead.group, body[:2<<20])})
	if err != nil {
		t.Fatal(err)
	}
	lead.until(held(tag, 2))
	for i := 0; lead.group.Status().First <= away.lastI; i++ {
		if i > 2000 {
			t.Fatal("the log is not trimmed")
		}
		item := put(fmt.Sprint("k", i%10, ":again", i), strings.Repeat("b", segment.InlineMax))
		if tag, err = lead.propose(item); err != nil {
			t.Fatal(err)
		}
		lead.until(held(tag, 2))
	}
	back := open(2)
	if tag, err = lead.propose(put("last:1", "word")); err != nil {
		t.Fatal(err)
	}
	lead.until(held(tag, 3))
	back.until(func() bool { return back.lastI == lead.lastI })
	if installed.Load() == 0 {
		t.Error("it was not brought up by a snapshot")
	}
	for key, want := range map[string]string{"large": string(body), "more": string(body[:2<<20]), "last": "word"} {
		if got := back.read(key); got != want {
			t.Errorf("%s has %d bytes, want %d", key, len(got), len(want))
		}
	}
}

// liveBody streams a body in pieces of the size that a connection has.
func liveBody(t *testing.T, g Group, body []byte) BodyWriter {
	w, err := g.NewBody(int64(len(body)))
	if err != nil {
		t.Error(err)
		return nil
	}
	for at := 0; at < len(body); at += 50_000 {
		if _, err := w.Write(body[at:min(at+50_000, len(body))]); err != nil {
			t.Error(err)
		}
	}
	if err := w.Finish(segment.DigestOf(body)); err != nil {
		t.Error(err)
	}
	return w
}
