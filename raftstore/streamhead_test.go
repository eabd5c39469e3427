package raftstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"weida/segment"
	"weida/wal"
)

// streamNet is a Transport whose streams reach their receiver when they are closed, on the caller's goroutine:
// nothing has to run beside. It can cut, refuse, change and hold up.
type streamNet struct {
	t       testing.TB
	to      map[NodeID]func(from NodeID, head []byte, r io.Reader) error
	from    NodeID
	payload func(to NodeID, frames []Frame)

	cutAt   int64 // a stream fails once it has carried that many bytes; 0 for never
	change  func([]byte)
	refuse  error // of Stream
	opened  atomic.Int64
	written atomic.Int64
	stalled map[NodeID]bool // Write waits for Cancel
	slow    map[NodeID]chan struct{}
	took    atomic.Int64 // streams that were taken
}

func (n *streamNet) Raft(NodeID, int, []Frame) {}
func (n *streamNet) Beat(NodeID, []byte)       {}

func (n *streamNet) Payload(to NodeID, _ int, frames []Frame) {
	if n.payload != nil {
		n.payload(to, frames)
	}
}

func (n *streamNet) Stream(ctx context.Context, to NodeID, head []byte) (Stream, error) {
	if n.refuse != nil {
		return nil, n.refuse
	}
	n.opened.Add(1)
	ctx, stop := context.WithCancel(ctx)
	return &netStream{net: n, ctx: ctx, stop: stop, to: to, head: slices.Clone(head)}, nil
}

type netStream struct {
	net   *streamNet
	ctx   context.Context
	stop  context.CancelFunc
	to    NodeID
	head  []byte
	b     bytes.Buffer
	ended bool
}

var errNet = errors.New("the network is gone")

func (s *netStream) Write(p []byte) (int, error) {
	if s.net.stalled[s.to] {
		<-s.ctx.Done()
	}
	if c := s.net.slow[s.to]; c != nil { // Write waits for its turn
		select {
		case <-c:
		case <-s.ctx.Done():
		}
	}
	if s.ctx.Err() != nil {
		return 0, s.ctx.Err()
	}
	if at := s.net.cutAt; at > 0 && int64(s.b.Len()+len(p)) > at {
		n, _ := s.b.Write(p[:at-int64(s.b.Len())])
		s.net.written.Add(int64(n))
		return n, errors.Join(errNet, s.deliver(errNet))
	}
	s.net.written.Add(int64(len(p)))
	return s.b.Write(p)
}

// deliver lets the receiver read what was written, and then the end, or an error.
func (s *netStream) deliver(end error) error {
	s.ended = true
	if s.net.change != nil {
		s.net.change(s.b.Bytes())
	}
	var r io.Reader = bytes.NewReader(s.b.Bytes())
	if end != nil {
		r = io.MultiReader(r, iotest.ErrReader(end))
	}
	receive := s.net.to[s.to]
	if receive == nil {
		return errNet
	}
	return receive(s.net.from, s.head, r)
}

func (s *netStream) Close() error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	err := s.deliver(nil)
	if err == nil {
		s.net.took.Add(1)
	}
	return err
}

func (s *netStream) Cancel() { s.stop() }

func TestStreamHead(t *testing.T) {
	heads := []streamHead{
		{kind: bodyStream, group: 7, from: 1, to: 2, ref: bref(3, 4), length: 1 << 40},
		{kind: snapshotStream, group: 7, from: 1, to: 2, term: 9, mark: wal.Mark{Term: 8, Index: 100}, length: 0},
	}
	for _, h := range heads {
		b := h.encode()
		if got, err := parseStreamHead(b); err != nil || got != h {
			t.Fatalf("%+v, %v", got, err)
		}
		for n := range b {
			if _, err := parseStreamHead(b[:n]); !errors.Is(err, errStreamHead) {
				t.Fatalf("cut to %d bytes: %v", n, err)
			}
		}
		if _, err := parseStreamHead(append(b, 0)); !errors.Is(err, errStreamHead) {
			t.Fatalf("a byte more: %v", err)
		}
	}
	for _, change := range []func(*streamHead){
		func(h *streamHead) { h.group = 0 },
		func(h *streamHead) { h.to = h.from },
		func(h *streamHead) { h.length = segment.InlineMax },
		func(h *streamHead) { h.ref.Seq = 0 },
		func(h *streamHead) { h.kind = 3 },
	} {
		h := heads[0]
		change(&h)
		if _, err := parseStreamHead(h.encode()); !errors.Is(err, errStreamHead) {
			t.Fatalf("%+v: %v", h, err)
		}
	}
	h := heads[1]
	h.mark.Term = 10
	if _, err := parseStreamHead(h.encode()); !errors.Is(err, errStreamHead) {
		t.Fatalf("a snapshot of a later term than its sender: %v", err)
	}
}

func FuzzStreamHead(f *testing.F) {
	f.Add((&streamHead{kind: bodyStream, group: 7, from: 1, to: 2, ref: bref(3, 4), length: 1 << 40}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseStreamHead(b)
		if err == nil && h.length < 0 {
			t.Fatalf("%+v", h)
		}
		if err == nil {
			if again, err := parseStreamHead(h.encode()); err != nil || again != h {
				t.Fatalf("%+v, then %+v, %v", h, again, err)
			}
		}
	})
}

// A stream counts only when its whole content came with its digest and nothing after it: cut at every byte, changed
// at every byte or with one too many it is an error.
func TestStreamReader(t *testing.T) {
	content := fill(bref(3, 5), 300)
	sum := segment.DigestOf(content)
	whole := append(slices.Clone(content), sum[:]...)
	read := func(r io.Reader) error {
		s := &streamReader{r: r, left: int64(len(content))}
		b, err := io.ReadAll(s)
		if err == nil && (!bytes.Equal(b, content) || s.sum != sum) {
			t.Fatal("other bytes")
		}
		return err
	}
	for _, r := range []io.Reader{
		bytes.NewReader(whole), iotest.OneByteReader(bytes.NewReader(whole)), iotest.DataErrReader(bytes.NewReader(whole)),
	} {
		if err := read(r); err != nil {
			t.Fatal(err)
		}
	}
	for n := range whole {
		if err := read(bytes.NewReader(whole[:n])); !errors.Is(err, errCut) {
			t.Fatalf("cut to %d: %v", n, err)
		}
		broken := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(errNet))
		if err := read(broken); !errors.Is(err, errNet) {
			t.Fatalf("broken at %d: %v", n, err)
		}
		bad := slices.Clone(whole)
		bad[n] ^= 1
		if err := read(bytes.NewReader(bad)); !errors.Is(err, errStreamDigest) {
			t.Fatalf("changed at %d: %v", n, err)
		}
	}
	if err := read(bytes.NewReader(append(whole, 0))); !errors.Is(err, errCut) {
		t.Fatalf("a byte more: %v", err)
	}
}

// spawnPool runs a pool's jobs on goroutines until the test ends; unblock makes those end that wait.
func spawnPool(t *testing.T, p *pool, unblock func()) {
	var wg sync.WaitGroup
	p.spawn(&wg)
	t.Cleanup(func() {
		unblock()
		wg.Wait()
	})
}
