package raftstore

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"

	"weida/segment"
)

// pushRig pushes bodies to fake members.
type pushRig struct {
	t      *testing.T
	net    *streamNet
	pool   pool
	pushes *pushes
	mu     sync.Mutex
	got    map[NodeID][]byte
}

func newPushRig(t *testing.T) *pushRig {
	p := &pushRig{t: t, got: map[NodeID][]byte{}}
	p.net = &streamNet{t: t, to: map[NodeID]func(NodeID, []byte, io.Reader) error{}, stalled: map[NodeID]bool{}}
	for to := NodeID(2); to <= 5; to++ {
		p.net.to[to] = func(_ NodeID, head []byte, r io.Reader) error {
			h, err := parseStreamHead(head)
			if err != nil || h.to != ReplicaID(to*10) || h.ref != bref(3, 1) {
				t.Errorf("head %+v, %v", h, err)
			}
			b, err := io.ReadAll(&streamReader{r: r, left: h.length})
			if err == nil {
				p.mu.Lock()
				p.got[to] = b
				p.mu.Unlock()
			}
			return err
		}
	}
	p.pushes = &pushes{transport: p.net, pool: &p.pool}
	return p
}

func (p *pushRig) begin(n int64, need int, nodes ...NodeID) *push {
	to := &pushTo{self: 10, need: need}
	for _, m := range nodes {
		to.members = append(to.members, Member{Replica: ReplicaID(m * 10), Node: m})
	}
	return p.pushes.begin(1, bref(3, 1), n, to)
}

func (p *pushRig) run() {
	for p.pool.runInline() {
	}
}

func TestPush(t *testing.T) {
	const n = 3 << 20
	body := fill(bref(3, 1), n)
	p := newPushRig(t)
	x := p.begin(n, 1, 2, 3)
	for piece := range slices.Chunk(body, 50_000) {
		x.write(piece)
	}
	x.finish(segment.DigestOf(body))
	p.run()
	if !bytes.Equal(p.got[2], body) || !bytes.Equal(p.got[3], body) || len(p.pushes.list) != 0 {
		t.Fatalf("got %d and %d bytes, %d pushes left", len(p.got[2]), len(p.got[3]), len(p.pushes.list))
	}
	if p.begin(n, 1) != nil || p.pushes.begin(1, bref(3, 1), n, nil) != nil {
		t.Fatal("a push to nobody")
	}
	var none *push
	none.write(body)
	none.finish(Digest{})
	none.abort()
	for range pushesMax {
		p.begin(n, 1, 2)
	}
	if p.begin(n, 1, 2) != nil {
		t.Fatal("no bound")
	}
	p.pushes.stop(1)
	if len(p.pushes.list) != 0 {
		t.Fatal("pushes of a group that leads no more")
	}
	p.pushes.close()
	if p.begin(n, 1, 2) != nil {
		t.Fatal("a push after close")
	}
}

// A member whose stream fails at any piece is left; the body goes on to the others, and to the own disk.
func TestPushCut(t *testing.T) {
	const n = 500_000
	body := fill(bref(3, 1), n)
	for at := int64(1); at < n; at += 60_000 {
		p := newPushRig(t)
		p.net.cutAt = at
		x := p.begin(n, 2, 2, 3)
		for piece := range slices.Chunk(body, 50_000) {
			x.write(piece)
			p.run()
		}
		x.finish(segment.DigestOf(body))
		p.run()
		if len(p.got) != 0 || len(p.pushes.list) != 0 {
			t.Fatalf("cut at %d: got %d, %d pushes left", at, len(p.got), len(p.pushes.list))
		}
	}
}

// The writer waits for as many members as commit the body, and a while for one that is far behind, which is left then:
// what waits is bounded.
func TestPushPace(t *testing.T) {
	const n = 20 << 20
	p := newPushRig(t)
	p.net.stalled[3] = true
	var running pool
	running.limit = 8
	p.pushes.pool = &running
	spawnPool(t, &running, func() { p.pushes.close() })
	x := p.begin(n, 1, 2, 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := make([]byte, 64<<10)
		for range n / len(piece) {
			x.write(piece)
			x.mu.Lock()
			if a, b := x.lanes[0].bytes, x.lanes[1].bytes; max(a, b) > pushCut || min(a, b) > pushWindow {
				t.Errorf("%d and %d bytes wait", a, b)
			}
			x.mu.Unlock()
		}
	}()
	for waiting := true; waiting; {
		x.mu.Lock()
		late := x.lanes[1].delays && !x.lanes[0].running
		x.mu.Unlock()
		select {
		case <-done:
			waiting = false
		default:
			if late {
				p.pushes.tick()
			}
			runtime.Gosched()
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lanes[0].over || !x.lanes[1].over {
		t.Fatal("the wrong member was left")
	}
}

// A member that is always a piece too late, and never still, keeps the writer waiting no longer than it may in all.
func TestPushPatience(t *testing.T) {
	p := newPushRig(t)
	x := p.begin(1<<30, 1, 2, 3)
	slow := x.lanes[1]
	ticks := 0
	for slow.bytes = pushCut + 1; !x.pacedLocked(); ticks++ {
		slow.bytes = pushCut
		if !x.pacedLocked() {
			t.Fatal("waits for a member that is close behind")
		}
		p.pushes.tick()
		slow.bytes = pushCut + 1
	}
	if ticks != pushWaitTicks+1 {
		t.Fatalf("waited %d ticks", ticks)
	}
	slow.bytes = 0
	if x.lanes[0].bytes = pushCut + 1; x.pacedLocked() {
		t.Fatal("one member's delay counted as the other's")
	}
	p.pushes.close()
}

// A member that is a little slower is waited for: it has the body when its entry comes.
func TestPushWaits(t *testing.T) {
	const n = 20 << 20
	p := newPushRig(t)
	p.net.slow = map[NodeID]chan struct{}{3: make(chan struct{})}
	var running pool
	running.limit = 8
	p.pushes.pool = &running
	spawnPool(t, &running, func() { p.pushes.close() })
	x := p.begin(n, 1, 2, 3)
	go func() {
		piece := make([]byte, 64<<10)
		for range n / len(piece) {
			x.write(piece)
		}
		x.finish(segment.DigestOf(make([]byte, n)))
	}()
	for range n/(64<<10) + 1 {
		p.net.slow[3] <- struct{}{}
	}
	for len(p.pushes.all()) > 0 {
		runtime.Gosched()
	}
	if p.net.opened.Load() != 2 || p.net.took.Load() != 2 {
		t.Fatalf("%d streams, %d taken", p.net.opened.Load(), p.net.took.Load())
	}
}

// When all members stall, the writer goes on once they had their time.
func TestPushStall(t *testing.T) {
	p := newPushRig(t)
	p.net.stalled[2], p.net.stalled[3] = true, true
	var running pool
	running.limit = 8
	p.pushes.pool = &running
	spawnPool(t, &running, func() { p.pushes.close() })
	x := p.begin(4<<20, 1, 2, 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := make([]byte, 64<<10)
		for range 64 {
			x.write(piece)
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			p.pushes.tick()
		}
	}
}

// In a stepped host nobody else runs the jobs: the writer does, and leaves who is stuck.
func TestPushStepped(t *testing.T) {
	p := newPushRig(t)
	p.net.refuse = fmt.Errorf("refused: %w", errNet)
	x := p.begin(4<<20, 1, 2, 3)
	piece := make([]byte, 64<<10)
	for range 64 {
		x.write(piece)
	}
	x.finish(Digest{})
	p.run()
	if len(p.pushes.list) != 0 {
		t.Fatal("the push does not end")
	}
}
