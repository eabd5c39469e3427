package raftstore

import (
	"context"
	"sync"
)

// push sends a large body to the other members while it comes in, so that they have it when its entry reaches them.
// The body's writer is paced by as many of them as commit it, at most pushWindow behind. For the others it waits when
// they are farther behind than pushCut, but no longer than pushWaitTicks for one body: who is still behind then is
// left, slows nobody, and asks for the body later, when it is on this node's disk.
//
//	client ─▶ Write ─▶ own file
//	              └──▶ lane per member: pieces that wait ─▶ job ─▶ Stream
type push struct {
	pushes  *pushes
	group   GroupID
	need    int // lanes that pace the writer
	ctx     context.Context
	stopAll context.CancelFunc

	mu    sync.Mutex
	moved sync.Cond
	// guarded by mu
	lanes  []*lane
	sum    *Digest // of the whole body: nothing follows
	ended  bool    // given up
	window int64
	cut    int64
}

// lane is the way to one member.
type lane struct {
	to     NodeID
	head   []byte
	stream Stream // of the job that runs; Cancel from anywhere

	// guarded by push.mu
	pieces  [][]byte
	bytes   int64
	running bool
	over    bool // complete, failed or left
	delays  bool // the writer waited for it in this tick
	waited  int  // ticks in which it did
	still   int  // ticks since the last piece, while one waits
}

const (
	pushWindow = 1 << 20 // bytes
	pushCut    = 4 << 20 // bytes
	// pushesMax bounds the bodies that a node pushes at a time; others are fetched when their entries come.
	pushesMax = 8
	// pushWaitTicks is how long one member may keep a body's writer waiting, in all.
	pushWaitTicks = 20
	// pushStallTicks is after how many ticks without taking a piece a member is left.
	pushStallTicks = 20
)

// pushes are those of one node.
type pushes struct {
	transport Transport
	pool      *pool // for jobs that may wait for a peer

	mu sync.Mutex
	// guarded by mu
	list   []*push
	closed bool
}

// pushTo is where a body is pushed.
type pushTo struct {
	self    ReplicaID
	members []Member // without this replica
	need    int      // how many others make a majority with this replica
}

// begin returns the push of a body of n bytes; nil if none is made: there is nobody, or too many are under way.
func (ps *pushes) begin(g GroupID, ref BodyRef, n int64, to *pushTo) *push {
	if to == nil || len(to.members) == 0 || ps.transport == nil {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed || len(ps.list) >= pushesMax {
		return nil
	}
	p := &push{pushes: ps, group: g, need: min(to.need, len(to.members)), window: pushWindow, cut: pushCut}
	p.moved.L = &p.mu
	p.ctx, p.stopAll = context.WithCancel(context.Background())
	for _, m := range to.members {
		h := streamHead{kind: bodyStream, group: g, from: to.self, to: m.Replica, ref: ref, length: n}
		p.lanes = append(p.lanes, &lane{to: m.Node, head: h.encode()})
	}
	ps.list = append(ps.list, p)
	return p
}

// tick leaves members that take nothing any more.
func (ps *pushes) tick() {
	for _, p := range ps.all() {
		p.tick()
	}
}

// stop gives up the pushes of a group: it leads no more, or ends.
func (ps *pushes) stop(g GroupID) {
	for _, p := range ps.all() {
		if p.group == g {
			p.abort()
		}
	}
}

// leave gives up the lanes to a node that is gone.
func (ps *pushes) leave(node NodeID) {
	for _, p := range ps.all() {
		p.mu.Lock()
		for _, l := range p.lanes {
			if l.to == node {
				p.overLocked(l)
			}
		}
		p.mu.Unlock()
	}
}

func (ps *pushes) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	for _, p := range ps.all() {
		p.abort()
	}
}

func (ps *pushes) all() []*push {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return append([]*push(nil), ps.list...)
}

func (ps *pushes) forget(p *push) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, o := range ps.list {
		if o == p {
			ps.list = append(ps.list[:i], ps.list[i+1:]...)
			return
		}
	}
}

// write takes bytes that are in the own file. It waits until enough members are close behind. A nil push does
// nothing.
func (p *push) write(b []byte) {
	if p == nil || len(b) == 0 {
		return
	}
	piece := append([]byte(nil), b...)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if !l.over {
			l.pieces = append(l.pieces, piece)
			l.bytes += int64(len(piece))
			p.runLocked(l)
		}
	}
	for !p.pacedLocked() {
		p.waitLocked()
	}
	for _, l := range p.lanes {
		if !l.over && l.bytes > p.cut {
			p.overLocked(l)
		}
	}
}

// pacedLocked says whether as many members are close behind as the writer has to wait for.
func (p *push) pacedLocked() bool {
	near, alive, behind := 0, 0, 0
	for _, l := range p.lanes {
		if l.over {
			continue
		}
		alive++
		if l.bytes <= p.window {
			near++
		}
		if l.bytes > p.cut && l.waited <= pushWaitTicks {
			l.delays = true
			behind++
		}
	}
	return p.ended || near >= min(p.need, alive) && behind == 0
}

// waitLocked waits for a lane to move. In a stepped host nobody else runs the jobs.
func (p *push) waitLocked() {
	if p.pushes.pool.spawned() {
		p.moved.Wait()
		return
	}
	p.mu.Unlock()
	worked := p.pushes.pool.runInline()
	p.mu.Lock()
	if worked {
		return
	}
	for _, l := range p.lanes {
		if l.bytes > p.window {
			p.overLocked(l)
		}
	}
}

// finish says that all of the body was written.
func (p *push) finish(d Digest) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum = &d
	for _, l := range p.lanes {
		p.runLocked(l)
	}
	p.doneLocked()
}

// abort gives the push up: the body is not wanted any more, or this replica leads no more.
func (p *push) abort() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, l := range p.lanes {
		p.overLocked(l)
	}
	p.stopAll()
	p.doneLocked()
}

func (p *push) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if l.delays {
			l.delays = false
			l.waited++
		}
		if !l.running || l.over {
			l.still = 0
		} else if l.still++; l.still > pushStallTicks {
			p.overLocked(l)
		}
	}
	p.moved.Broadcast()
}

// overLocked leaves a lane.
func (p *push) overLocked(l *lane) {
	if l.over {
		return
	}
	l.over, l.pieces, l.bytes = true, nil, 0
	if l.stream != nil {
		l.stream.Cancel()
	}
	p.moved.Broadcast()
	p.doneLocked()
}

// doneLocked forgets a push that has nothing to do any more.
func (p *push) doneLocked() {
	if p.sum == nil && !p.ended {
		return
	}
	for _, l := range p.lanes {
		if !l.over {
			return
		}
	}
	p.stopAll()
	p.pushes.forget(p)
}

func (p *push) runLocked(l *lane) {
	if !l.running && !l.over {
		l.running = true
		p.pushes.pool.submit(func() { p.carry(l) })
	}
}

// carry sends what waits in a lane.
func (p *push) carry(l *lane) {
	err := p.open(l)
	for err == nil {
		piece, last, ok := p.next(l)
		if !ok {
			return
		}
		if _, err = l.stream.Write(piece); err == nil && last {
			err = l.stream.Close() // if the member did not take it, it asks when the entry comes
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		l.stream = nil // nothing to cancel
	}
	p.overLocked(l)
}

func (p *push) open(l *lane) error {
	if l.stream != nil {
		return nil
	}
	s, err := p.pushes.transport.Stream(p.ctx, l.to, l.head)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.over {
		s.Cancel()
		return errGivenUp
	}
	l.stream = s
	return nil
}

// next takes the next piece out of a lane; the last is the digest. ok is false if nothing waits: the job ends then.
func (p *push) next(l *lane) (piece []byte, last, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.still = 0
	switch {
	case l.over:
	case len(l.pieces) > 0:
		piece = l.pieces[0]
		l.pieces[0] = nil
		l.pieces = l.pieces[1:]
		l.bytes -= int64(len(piece))
		p.moved.Broadcast()
		return piece, false, true
	case p.sum != nil:
		return p.sum[:], true, true
	}
	l.running = false
	return nil, false, false
}

// spawned says whether goroutines run the jobs; else whoever waits for one has to run it.
func (p *pool) spawned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers != nil
}
