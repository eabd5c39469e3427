package main

import (
	"slices"

	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/raftstore"
)

// fault is one kind of misfortune.
type fault struct {
	name string
	do   func(c *cluster)
}

// faults are all kinds. A run has some of them.
var faults = []fault{
	{"kill", func(c *cluster) { c.withDown(c.someUp(), (*node).killed) }},
	{"power", (*cluster).cutPower},
	{"blackout", (*cluster).blackout},
	{"call", (*cluster).killInCall},
	{"oneway", (*cluster).cutOneWay},
	{"partition", (*cluster).partition},
	{"bridge", (*cluster).bridge},
	{"isolate", (*cluster).isolateLeader},
	{"lossy", (*cluster).lossy},
	{"full", (*cluster).fillDisk},
	{"flush", (*cluster).failFlush},
	{"slow", (*cluster).slowDisk},
	{"pause", (*cluster).pause},
	{"clock", (*cluster).clock},
}

// plague causes one fault after the other, until the run is calm.
func (c *cluster) plague(kinds []fault) {
	if c.calm || len(kinds) == 0 {
		return
	}
	pick(c.loop, kinds).do(c)
	c.after(c.between(50*millisecond, 1200*millisecond), func() { c.plague(kinds) })
}

// someUp is a node that is up, nil if there is none.
func (c *cluster) someUp() *node {
	var list []*node
	for _, n := range c.nodes {
		if n.up {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return pick(c.loop, list)
}

// withDown takes a node down, and brings it back later.
func (c *cluster) withDown(n *node, how func(*node)) {
	if n == nil {
		return
	}
	how(n)
	n.after(n.between(50*millisecond, 5*second), n.bootAgain())
}

func (n *node) killed() { n.kill("kill -9") }

func (n *node) powerless() { n.cutPower(n.keeps()) }

func (n *node) powerlessForgets() { n.cutPower(memfs.KeepNone) }

func (n *node) powerlessAstray() { n.cutPower(memfs.KeepAstray) }

// keeps draws what a power cut leaves.
func (n *node) keeps() memfs.Keep {
	return pick(n.loop, []memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll, memfs.KeepAstray})
}

// blackout cuts the power of all nodes at once.
func (c *cluster) blackout() {
	if !c.chance(3) {
		return
	}
	for _, n := range c.nodes {
		if n.up {
			c.withDown(n, (*node).powerless)
		}
	}
}

// cutPower ends a machine: now; in one of its next calls of the file system, or in the place of the next flush of a
// directory, when there is a name under way; or after a while in which its disk was slow, when there is much.
func (c *cluster) cutPower() {
	n := c.someUp()
	switch c.rng.IntN(4) {
	case 0:
		c.withDown(n, (*node).powerless)
	case 1:
		c.dieInCall((*node).powerless)
	case 2:
		if n != nil {
			c.note("%v is to lose power when it flushes a directory", n)
			n.dies = (*node).powerlessForgets
			n.fs.Fail(faultfs.Match{Op: faultfs.OpSyncDir}, 1, 1, faultfs.ErrDied)
		}
	default:
		if n != nil {
			n.flushTakes = c.between(200*millisecond, 2*second)
			c.after(c.between(10*millisecond, second), func() {
				n.flushTakes = quickFlush
				if n.up {
					c.withDown(n, (*node).powerlessAstray)
				}
			})
		}
	}
}

// killInCall ends a process in one of its next calls of the file system.
func (c *cluster) killInCall() { c.dieInCall((*node).killed) }

func (c *cluster) dieInCall(how func(*node)) {
	n := c.someUp()
	if n == nil {
		return
	}
	n.dies = how
	at := n.fs.Ops() + 1 + c.rng.IntN(40)
	switch c.rng.IntN(3) {
	case 0:
		n.fs.DieBefore(at)
	case 1:
		n.fs.DieDuring(at, 1+c.rng.IntN(3))
	default:
		n.fs.DieAfter(at)
	}
	c.note("%v is to die in call %d", n, at)
}

// later mends what cut says, after a while.
func (c *cluster) later(cuts [][2]raftstore.NodeID) {
	for _, p := range cuts {
		c.net.setCut(p[0], p[1], true)
	}
	c.after(c.between(100*millisecond, 8*second), func() {
		for _, p := range cuts {
			c.net.setCut(p[0], p[1], false)
		}
	})
}

func (c *cluster) cutOneWay() {
	a, b := c.anyNode(), c.anyNode()
	if a == b {
		return
	}
	c.stats.fault("one-way cut")
	c.note("n%d does not reach n%d", a, b)
	c.later([][2]raftstore.NodeID{{a, b}})
}

// between2 are both ways between two sets of nodes.
func between2(a, b []raftstore.NodeID) (cuts [][2]raftstore.NodeID) {
	for _, x := range a {
		for _, y := range b {
			if x != y {
				cuts = append(cuts, [2]raftstore.NodeID{x, y}, [2]raftstore.NodeID{y, x})
			}
		}
	}
	return cuts
}

func (c *cluster) shuffled() (ids []raftstore.NodeID) {
	for _, i := range c.rng.Perm(len(c.nodes)) {
		ids = append(ids, raftstore.NodeID(i+1))
	}
	return ids
}

func (c *cluster) partition() {
	ids := c.shuffled()
	k := 1 + c.rng.IntN(len(ids)-1)
	c.stats.fault("partition")
	c.note("partition %v | %v", ids[:k], ids[k:])
	c.later(between2(ids[:k], ids[k:]))
}

// bridge leaves two halves that only one node reaches.
func (c *cluster) bridge() {
	ids := c.shuffled()
	k := 1 + (len(ids)-1)/2
	c.stats.fault("bridge")
	c.note("bridge %d between %v and %v", ids[0], ids[1:k], ids[k:])
	c.later(between2(ids[1:k], ids[k:]))
}

func (c *cluster) isolateLeader() {
	d := c.leader(pick(c.loop, c.groups))
	if d == nil {
		return
	}
	c.stats.fault("leader alone")
	c.note("%v alone", d.node)
	others := slices.DeleteFunc(c.shuffled(), func(id raftstore.NodeID) bool { return id == d.node.id })
	c.later(between2([]raftstore.NodeID{d.node.id}, others))
}

// lossy makes the network bad, or good again.
func (c *cluster) lossy() {
	w := c.net
	w.loss, w.double, w.late, w.spoiled = 0, 0, 0, 0
	if c.chance(2) {
		return
	}
	c.stats.fault("bad network")
	w.loss, w.double, w.late = c.rng.IntN(300), c.rng.IntN(300), c.rng.IntN(300)
	if c.chance(2) {
		w.spoiled = c.rng.IntN(300)
	}
	c.note("network: of 1000 %d lost, %d doubled, %d late", w.loss, w.double, w.late)
}

// fillDisk makes a disk full for a while.
func (c *cluster) fillDisk() {
	n := pick(c.loop, c.nodes)
	c.stats.fault("full disk")
	n.disk.SetCapacity(n.disk.Used() + int64(c.rng.IntN(128<<10)))
	c.note("%v disk full", n)
	c.after(c.between(100*millisecond, 4*second), func() { n.disk.SetCapacity(0) })
}

// failFlush makes a flush of a file fail once: what it was to flush is gone, though it can be read.
func (c *cluster) failFlush() {
	n := c.someUp()
	if n == nil {
		return
	}
	c.stats.fault("failed flush")
	c.check.powerCut(n) // what is written and not flushed may go with it
	if files := n.disk.Files(); c.chance(2) && len(files) > 0 {
		name := pick(c.loop, files)
		c.note("%v write-back of %s is to fail", n, name)
		if err := n.disk.FailWriteback(name); err != nil {
			c.fail("%v %s: %v", n, name, err)
		}
		return
	}
	c.note("%v a flush is to fail", n)
	n.fs.Fail(faultfs.Match{Op: faultfs.OpSync}, 1+c.rng.IntN(5), 1, errInjected)
}

func (c *cluster) slowDisk() {
	n := pick(c.loop, c.nodes)
	c.stats.fault("slow disk")
	n.flushTakes = c.between(50*millisecond, 2*second)
	c.note("%v flushes take %v s", n, n.flushTakes)
	c.after(c.between(second, 6*second), func() { n.flushTakes = quickFlush })
}

func (c *cluster) pause() {
	n := c.someUp()
	if n == nil {
		return
	}
	n.stand(c.now + c.between(millisecond, 6*second))
}

// clock makes a clock run wrong, or jump.
func (c *cluster) clock() {
	n := c.someUp()
	if n == nil {
		return
	}
	c.stats.fault("clock")
	if c.chance(2) {
		n.speed = []float64{0.5, 0.8, 1, 1.25, 2}[c.rng.IntN(5)]
		c.note("%v clock runs %v times as fast", n, n.speed)
		return
	}
	jump := 1 + c.rng.IntN(40)
	c.note("%v clock jumps by %d ticks", n, jump)
	n.tick(jump)
}
