package raftstore

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"weida/wal"
)

// courierRig is a courier whose jobs run when the test says so.
type courierRig struct {
	*courier
	t     *testing.T
	net   *streamNet
	pool  pool
	ended map[transferKey][]error
	got   map[NodeID][][]byte
	fail  error // of receivers
}

func newCourierRig(t *testing.T, atATime int, perTick int64) *courierRig {
	c := &courierRig{t: t, ended: map[transferKey][]error{}, got: map[NodeID][][]byte{}}
	c.net = &streamNet{t: t, to: map[NodeID]func(NodeID, []byte, io.Reader) error{}}
	for to := NodeID(1); to < 10; to++ {
		c.net.to[to] = func(_ NodeID, head []byte, r io.Reader) error {
			h, err := parseStreamHead(head)
			if err != nil {
				t.Error(err)
			}
			b, err := io.ReadAll(&streamReader{r: r, left: h.length})
			if err != nil {
				return err
			}
			c.got[to] = append(c.got[to], b)
			return c.fail
		}
	}
	c.courier = newCourier(c.net, c.pool.submit, atATime, perTick)
	return c
}

type closer struct {
	io.Reader
	closed *int
}

func (c closer) Close() error {
	*c.closed++
	return nil
}

// transfer is a snapshot of n bytes for a node; announced says how many the head names.
func (c *courierRig) transfer(to NodeID, n, announced int) (t *transfer, closed *int) {
	closed = new(int)
	key := transferKey{group: 1, to: to}
	return &transfer{
		key: key,
		open: func() (*streamHead, io.ReadCloser, error) {
			h := &streamHead{
				kind: snapshotStream, group: 1, from: 1, to: 2, term: 4, mark: wal.Mark{Term: 3, Index: 77},
				length: int64(announced),
			}
			return h, closer{bytes.NewReader(fill(bref(2, 9), n)), closed}, nil
		},
		ended: func(err error) { c.ended[key] = append(c.ended[key], err) },
	}, closed
}

func (c *courierRig) run() {
	for c.pool.runInline() {
	}
}

func (c *courierRig) endedOnce(to NodeID) (err error, ok bool) {
	list := c.ended[transferKey{group: 1, to: to}]
	if len(list) > 1 {
		c.t.Fatalf("told %d times: %v", len(list), list)
	}
	if len(list) == 0 {
		return nil, false
	}
	return list[0], true
}

// Transfers share the bytes of a tick and the places of the node, and arrive whole.
func TestCourierBounds(t *testing.T) {
	const n, perTick = 300_000, 100_000
	c := newCourierRig(t, 2, perTick)
	for to := NodeID(1); to <= 5; to++ {
		tr, _ := c.transfer(to, n, n)
		if err := c.send(tr); err != nil {
			t.Fatal(err)
		}
		again, _ := c.transfer(to, n, n)
		if err := c.send(again); !errors.Is(err, errOnItsWay) {
			t.Fatalf("twice to one node: %v", err)
		}
	}
	ticks := 0
	for ; c.sending(); ticks++ {
		before := c.net.written.Load()
		c.run()
		if d := c.net.written.Load() - before; d > perTick+2*int64(digestSize) {
			t.Fatalf("%d bytes in a tick of %d", d, perTick)
		}
		if n := int(c.net.opened.Load()) - len(c.ended); n > 2 {
			t.Fatalf("%d transfers at a time", n)
		}
		c.tick()
		if ticks > 100 {
			t.Fatal("transfers do not end")
		}
	}
	if ticks < 5*n/perTick {
		t.Fatalf("%d ticks", ticks)
	}
	for to := NodeID(1); to <= 5; to++ {
		if err, ok := c.endedOnce(to); err != nil || !ok {
			t.Fatalf("to %d: %v %v", to, err, ok)
		}
		if len(c.got[to]) != 1 || !bytes.Equal(c.got[to][0], fill(bref(2, 9), n)) {
			t.Fatalf("to %d came something else", to)
		}
	}
}

// However a transfer fails, it is told once, its content is closed and its place is free.
func TestCourierFails(t *testing.T) {
	const n = 200_000
	for name, prepare := range map[string]func(*courierRig, *transfer){
		"no stream": func(c *courierRig, _ *transfer) { c.net.refuse = errNet },
		"refused":   func(c *courierRig, _ *transfer) { c.fail = errDockFull },
		"no content": func(_ *courierRig, tr *transfer) {
			tr.open = func() (*streamHead, io.ReadCloser, error) { return nil, nil, errNet }
		},
		"too short": func(c *courierRig, tr *transfer) { o, _ := c.transfer(1, n-1, n); tr.open = o.open },
		"too long":  func(c *courierRig, tr *transfer) { o, _ := c.transfer(1, n+1, n); tr.open = o.open },
	} {
		c := newCourierRig(t, 1, 1<<30)
		tr, _ := c.transfer(1, n, n)
		prepare(c, tr)
		if err := c.send(tr); err != nil {
			t.Fatal(err)
		}
		c.run()
		if err, ok := c.endedOnce(1); err == nil || !ok || c.sending() {
			t.Fatalf("%s: %v %v", name, err, ok)
		}
		c.net.refuse, c.fail = nil, nil
		next, _ := c.transfer(2, n, n)
		if err := c.send(next); err != nil {
			t.Fatal(err)
		}
		c.run()
		if err, ok := c.endedOnce(2); err != nil || !ok {
			t.Fatalf("after %s: %v %v", name, err, ok)
		}
	}
	for at := int64(1); at < n+int64(digestSize); at += 30_000 {
		c := newCourierRig(t, 1, 1<<30)
		c.net.cutAt = at
		tr, closed := c.transfer(1, n, n)
		if err := c.send(tr); err != nil {
			t.Fatal(err)
		}
		c.run()
		if err, ok := c.endedOnce(1); !errors.Is(err, errNet) || !ok || *closed != 1 || len(c.got) != 0 {
			t.Fatalf("cut at %d: %v %v, closed %d", at, err, ok, *closed)
		}
	}
}

// What is given up ends at once, waiting, between two ticks or before its stream was opened.
func TestCourierGiveUp(t *testing.T) {
	const n = 300_000
	c := newCourierRig(t, 1, 100_000)
	first, closed := c.transfer(1, n, n)
	second, _ := c.transfer(2, n, n)
	third, _ := c.transfer(3, n, n)
	for _, tr := range []*transfer{first, second, third} {
		if err := c.send(tr); err != nil {
			t.Fatal(err)
		}
	}
	c.run()
	c.giveUp(func(k transferKey) bool { return k.to != 3 })
	c.run()
	for to := NodeID(1); to <= 2; to++ {
		if err, ok := c.endedOnce(to); !errors.Is(err, errGivenUp) || !ok {
			t.Fatalf("to %d: %v %v", to, err, ok)
		}
	}
	if *closed != 1 {
		t.Fatal("the content is open")
	}
	again, _ := c.transfer(1, n, n)
	if err := c.send(again); err != nil {
		t.Fatal(err)
	}
	c.close()
	c.run()
	if err, ok := c.endedOnce(3); !errors.Is(err, errGivenUp) || !ok {
		t.Fatalf("%v %v", err, ok)
	}
	if err := c.send(first); !errors.Is(err, errGivenUp) {
		t.Fatalf("taken after close: %v", err)
	}
	if len(c.active)+len(c.waiting) != 0 || len(c.got) != 0 {
		t.Fatal("something is left")
	}
}

// A receiver that takes nothing any more does not keep its place for ever.
func TestCourierStall(t *testing.T) {
	c := newCourierRig(t, 1, 1<<30)
	c.net.stalled = map[NodeID]bool{1: true}
	tr, _ := c.transfer(1, 100_000, 100_000)
	if err := c.send(tr); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run()
	}()
	for {
		select {
		case <-done:
			if err, ok := c.endedOnce(1); !errors.Is(err, errStalled) || !ok {
				t.Fatalf("%v %v", err, ok)
			}
			return
		default:
			c.tick()
		}
	}
}
