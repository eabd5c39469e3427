package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"weida/segment"
)

// courier sends what is long and nobody waits for with a message in his hand: snapshots, and large bodies that a
// replica asked for. It is one per node: some transfers at a time, and so many bytes a tick together, so that
// bringing up a node does not take the others' messages their disk and their network. A transfer is carried on by
// jobs of the host's pool, each as far as the tick's bytes go; none waits for anything but its stream.
type courier struct {
	transport Transport
	submit    func(func()) // to the pool for jobs that may wait for a peer
	atATime   int
	perTick   int64
	ctx       context.Context
	cancelAll context.CancelFunc

	mu sync.Mutex
	// guarded by mu
	credit  int64
	waiting []*transfer
	active  []*transfer
	closed  bool
}

// courierWaitMax bounds the transfers that wait: what is more is refused, and asked for again.
const courierWaitMax = 1024

// courierStallTicks is after how many ticks without a byte a transfer makes way for others.
const courierStallTicks = 100

// transfer is one content on its way to one node.
type transfer struct {
	key transferKey
	// open returns the head and the content, whose length the head names. On a worker, once.
	open func() (*streamHead, io.ReadCloser, error)
	// ended is told once how it ended, on any goroutine: nil when the receiver has said that it has all of it.
	ended func(error)

	// owned by the job that runs
	stream  Stream
	content io.ReadCloser
	digest  segment.Hasher
	left    int64
	piece   []byte

	// guarded by courier.mu
	running bool
	still   int       // ticks since it moved, while its job runs
	given   error     // why it was given up
	cancels canceller // of the stream while a job may wait for it
	stop    context.CancelFunc
}

type canceller interface{ Cancel() }

// transferKey says what goes where. One transfer of a key is under way at a time.
type transferKey struct {
	group GroupID
	to    NodeID
	ref   BodyRef // zero for a snapshot
}

var (
	errStalled    = errors.New("raftstore: the receiver takes nothing any more; the transfer was given up")
	errGivenUp    = errors.New("raftstore: the transfer was given up; the receiver begins again")
	errBusy       = errors.New("raftstore: as many transfers wait as may; the receiver asks again")
	errOnItsWay   = errors.New("raftstore: the same is on its way already")
	errWrongBytes = errors.New("raftstore: the content has another length than was announced")
)

func newCourier(t Transport, submit func(func()), atATime int, perTick int64) *courier {
	c := &courier{transport: t, submit: submit, atATime: atATime, perTick: perTick, credit: perTick}
	c.ctx, c.cancelAll = context.WithCancel(context.Background())
	return c
}

// send takes a transfer; on an error it was not taken, and ended is not called.
func (c *courier) send(t *transfer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errGivenUp
	}
	for _, list := range [][]*transfer{c.active, c.waiting} {
		for _, o := range list {
			if o.key == t.key && o.given == nil {
				return errOnItsWay
			}
		}
	}
	if len(c.waiting) >= courierWaitMax {
		return errBusy
	}
	c.waiting = append(c.waiting, t)
	c.pumpLocked()
	return nil
}

// tick gives the bytes of the next tick. What was not used is not saved up.
func (c *courier) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credit = c.perTick
	for _, t := range c.active {
		if !t.running {
			t.still = 0
		} else if t.still++; t.still > courierStallTicks {
			t.giveUp(errStalled)
		}
	}
	c.pumpLocked()
}

// giveUp makes the job of a transfer end, also if it waits for the stream. courier.mu is held.
func (t *transfer) giveUp(why error) {
	if t.given != nil {
		return
	}
	t.given = why
	if t.cancels != nil {
		t.cancels.Cancel()
	}
	if t.stop != nil {
		t.stop()
	}
}

// pumpLocked begins what may begin and goes on with what has bytes to go on.
func (c *courier) pumpLocked() {
	for len(c.active) < c.atATime && len(c.waiting) > 0 {
		c.active = append(c.active, c.waiting[0])
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
	}
	for _, t := range c.active {
		if !t.running && (c.credit > 0 || t.given != nil) {
			t.running = true
			c.submit(func() { c.carry(t) })
		}
	}
}

// giveUp ends the transfers that match: those of a replica that stops or leads no more, or to a node that is gone.
func (c *courier) giveUp(match func(transferKey) bool) {
	var ended []*transfer
	c.mu.Lock()
	kept := c.waiting[:0]
	for _, t := range c.waiting {
		if match(t.key) {
			ended = append(ended, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(c.waiting[len(kept):])
	c.waiting = kept
	for _, t := range c.active {
		if match(t.key) {
			t.giveUp(errGivenUp)
		}
	}
	c.pumpLocked()
	c.mu.Unlock()
	for _, t := range ended {
		t.ended(errGivenUp)
	}
}

// close gives everything up; nothing is taken any more.
func (c *courier) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancelAll()
	c.giveUp(func(transferKey) bool { return true })
}

// carry goes on with a transfer as far as the tick's bytes go.
func (c *courier) carry(t *transfer) {
	done, err := c.carryOn(t)
	if !done && err == nil {
		c.mu.Lock()
		t.running = false
		c.pumpLocked()
		c.mu.Unlock()
		return
	}
	if t.content != nil {
		err = errors.Join(err, t.content.Close())
	}
	if err != nil && t.stream != nil {
		t.stream.Cancel()
	}
	c.mu.Lock()
	if t.given != nil && err != nil {
		err = t.given
	}
	if t.stop != nil {
		t.stop()
	}
	for i, o := range c.active {
		if o == t {
			c.active = append(c.active[:i], c.active[i+1:]...)
			break
		}
	}
	c.pumpLocked()
	c.mu.Unlock()
	t.ended(err)
}

// carryOn returns done when the receiver has all of it.
func (c *courier) carryOn(t *transfer) (done bool, err error) {
	if t.stream == nil {
		if err := c.begin(t); err != nil {
			return false, err
		}
	}
	for t.left > 0 {
		n, err := c.allowance(t)
		if n == 0 || err != nil {
			return false, err
		}
		p := t.piece[:min(n, t.left)]
		if _, err := io.ReadFull(t.content, p); err != nil {
			return false, fmt.Errorf("%w: %w", errWrongBytes, err)
		}
		if _, err := t.stream.Write(p); err != nil {
			return false, err
		}
		if _, err := t.digest.Write(p); err != nil {
			return false, err
		}
		t.left -= int64(len(p))
	}
	if n, err := io.ReadFull(t.content, t.piece[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return false, errors.Join(errWrongBytes, err)
	}
	sum := t.digest.Sum()
	if _, err := t.stream.Write(sum[:]); err != nil {
		return false, err
	}
	return true, t.stream.Close()
}

// begin opens content and stream.
func (c *courier) begin(t *transfer) (err error) {
	h, content, err := t.open()
	if err != nil {
		return err
	}
	t.content, t.left, t.piece = content, h.length, make([]byte, pieceBytes)
	c.mu.Lock()
	ctx, stop := context.WithCancel(c.ctx)
	t.stop = stop
	if t.given != nil {
		stop()
	}
	c.mu.Unlock()
	stream, err := c.transport.Stream(ctx, t.key.to, h.encode())
	if err != nil {
		return err
	}
	t.stream = stream
	c.mu.Lock()
	defer c.mu.Unlock()
	t.cancels = stream
	return t.given
}

// allowance is how many bytes the transfer may send now.
func (c *courier) allowance(t *transfer) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.given != nil {
		return 0, t.given
	}
	n := min(c.credit, pieceBytes)
	c.credit -= n
	t.still = 0
	return n, nil
}

// sending says whether something is under way or waits.
func (c *courier) sending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.active)+len(c.waiting) > 0
}
