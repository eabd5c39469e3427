package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	mathrand "math/rand/v2"
	"slices"
	"syscall"

	"weida/raftstore"
)

// options say what one run is like. The zero value is filled by the seed.
type options struct {
	seed          uint64
	nodes         int    // 0: 3 or 5, as the seed says
	faultTime     micros // 0: as the seed says
	snapshotBytes int64
	transfer      int64  // bytes of snapshots and fetched bodies that a node sends a tick
	pace          micros // between messages of a producer
	big           int    // of a thousand messages so many are large
	fat           bool   // messages are so long that segments are rolled
	heldEvery     int    // once in so many moves of a leader's marks they are proved; 0: never
	members       bool   // membership changes
	mutate        mutations
}

// mutations break the run itself, so that a test can show that it is noticed. The zero value breaks nothing.
type mutations struct {
	overstate   int  // evidence names so many replicas more
	keepHeld    bool // what a leader knew of its replicas is kept when it leads no more
	ignoreFlush bool // flushes of segments do nothing
	ignoreDirs  bool // flushes of directories do nothing
	staleFrames bool // what an earlier incarnation sent arrives
	drop        bool // some messages are acknowledged and not proposed
	swap        bool // some deliveries have each other's offset
	twice       bool // retries are stored as new
	flip        bool // some bodies change
	early       bool // some deliveries are of a message that comes later
	again       bool // some settles are confirmed and do nothing
}

// errInjected is the error of a call that was made to fail.
var errInjected error = syscall.EIO

// group is one queue, as the control plane knows it.
type group struct {
	id       raftstore.GroupID
	owned    bool
	founders []raftstore.Member
	replicas map[raftstore.NodeID]raftstore.ReplicaID // that are to exist
	onDisk   map[raftstore.NodeID]raftstore.ReplicaID // that have a log
	goal     []raftstore.Member                       // of a change of membership; nil: none is under way
	patience int                                      // looks after which the goal is given up
	removed  map[raftstore.NodeID]bool                // where a replica was taken down
	past     []raftstore.Index                        // up to where those held the log, flushed
}

// genesisOf is how a replica begins.
func (g *group) genesisOf(r raftstore.ReplicaID) *raftstore.Genesis {
	for _, m := range g.founders {
		if m.Replica == r {
			return &raftstore.Genesis{Term: 3, Index: 100, Members: g.founders}
		}
	}
	return &raftstore.Genesis{}
}

// cluster is the whole world of one run.
type cluster struct {
	*loop
	o         options
	nodes     []*node
	groups    []*group
	net       *network
	check     *checker
	oracle    *oracle
	stats     stats
	producers []*producer
	consumers []*consumer
	nameless  uint64 // messages without a producer
	replicas  raftstore.ReplicaID
	draining  bool // consumers accept everything
	calm      bool // no more faults
}

func newCluster(o options) *cluster {
	l := &loop{seed: o.seed, rng: mathrand.New(mathrand.NewPCG(o.seed, 99))}
	c := &cluster{loop: l, o: o, replicas: 10}
	c.stats = newStats()
	c.net, c.check, c.oracle = newNetwork(c), newChecker(c), &oracle{cluster: c}
	c.net.stale = o.mutate.staleFrames
	for i := range o.nodes {
		c.nodes = append(c.nodes, newNode(c, raftstore.NodeID(i+1)))
	}
	return c
}

// seeded runs fn with raft's own randomness seeded.
func seeded(seed uint64, fn func()) {
	was := rand.Reader
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	rand.Reader = mathrand.NewChaCha8(key)
	defer func() { rand.Reader = was }()
	fn()
}

func (c *cluster) node(id raftstore.NodeID) *node { return c.nodes[id-1] }

func (c *cluster) anyNode() raftstore.NodeID { return raftstore.NodeID(1 + c.rng.IntN(len(c.nodes))) }

// addGroup makes a queue with replicas on the first n nodes behind at, counted around; n = 0 makes one with an owner.
func (c *cluster) addGroup(at, n int) *group {
	g := &group{
		id: raftstore.GroupID(len(c.groups) + 1), owned: n == 0,
		replicas: map[raftstore.NodeID]raftstore.ReplicaID{}, onDisk: map[raftstore.NodeID]raftstore.ReplicaID{},
		removed: map[raftstore.NodeID]bool{},
	}
	for i := range max(n, 1) {
		id := raftstore.NodeID(1 + (at+i)%len(c.nodes))
		c.replicas++
		g.replicas[id] = c.replicas
		g.founders = append(g.founders, raftstore.Member{Replica: c.replicas, Node: id})
	}
	c.groups = append(c.groups, g)
	return g
}

// start boots all nodes.
func (c *cluster) start() {
	for _, n := range c.nodes {
		n.boot()
	}
}

// leader is the desk that serves a group in the highest term, nil if none does.
func (c *cluster) leader(g *group) (best *desk) {
	for _, n := range c.nodes {
		if d := n.desks[g.id]; n.up && d != nil && d.reigns && (best == nil || d.term > best.term) {
			best = d
		}
	}
	return best
}

// toNode carries what a client says to a node, unless that dies before it arrives.
func (c *cluster) toNode(n *node, fn func()) {
	if !n.up {
		return
	}
	n.alive(c.between(50, 500), func() {
		fn()
		n.wake()
	})
}

// fromNode carries what a node says to a client.
func (c *cluster) fromNode(n *node, fn func()) {
	life := n.life
	c.after(c.between(50, 500), func() {
		if n.life == life {
			fn()
		}
	})
}

// ask brings a question to the desk of a group on a node, and the answer back.
func (c *cluster) ask(g *group, to raftstore.NodeID, fn func(d *desk, answer func(result)), reply func(result)) {
	c.after(c.between(10, 400), func() { c.askNow(g, to, fn, reply) })
}

// askNow is ask without the way there.
func (c *cluster) askNow(g *group, to raftstore.NodeID, fn func(d *desk, answer func(result)), reply func(result)) {
	n := c.node(to)
	if !n.up {
		c.after(c.between(millisecond, 20*millisecond), func() { reply(result{kind: refused}) })
		return
	}
	n.alive(0, func() {
		defer n.wake()
		answer := func(r result) { c.fromNode(n, func() { reply(r) }) }
		if d := n.desks[g.id]; d != nil {
			fn(d, answer)
			return
		}
		answer(result{kind: refused})
	})
}

// heal ends all faults: from here on everything has to go well by itself.
func (c *cluster) heal() {
	c.note("healed")
	c.calm, c.draining = true, true
	c.net.heal()
	c.net.loss, c.net.double, c.net.late, c.net.streamCuts, c.net.spoiled, c.net.stalls = 0, 0, 0, 0, 0, 0
	for _, n := range c.nodes {
		n.disk.SetCapacity(0)
		n.speed, n.flushTakes = 1, quickFlush
		if n.up {
			n.fs.DieBefore(0) // what is dead already is noticed at the next step
			n.wake()
		} else {
			n.boot()
		}
	}
	for _, p := range c.producers {
		p.quota = p.seq
	}
}

// settledDown says that everything that was asked has an answer, and every queue is empty and the same everywhere.
func (c *cluster) settledDown() bool {
	for _, p := range c.producers {
		if !p.finished() {
			return false
		}
	}
	for _, g := range c.groups {
		d := c.leader(g)
		if d == nil || g.goal != nil {
			return false
		}
		if n := d.state.Counts(); n.Ready+n.Unsettled > 0 {
			return false
		}
		for id := range g.replicas {
			o := c.node(id).desks[g.id]
			if o == nil || o.marks.Applied != d.marks.Applied || d.marks.Applied != d.marks.Written {
				return false
			}
		}
	}
	return true
}

// finish compares the books (Q2, Q4, Q5, Q9, Q11).
func (c *cluster) finish() {
	for _, g := range c.groups {
		l := c.check.ledger(g.id)
		c.check.books(g, l)
		lead := c.leader(g)
		if lead == nil {
			continue
		}
		want := lead.state.Snapshot()
		for _, id := range sortedKeys(g.replicas) {
			if d := c.node(id).desks[g.id]; d != nil && !bytes.Equal(d.state.Snapshot(), want) {
				c.fail("Q4 g%d: the state of n%d differs from that of n%d", g.id, id, lead.node.id)
			}
		}
		if n := lead.state.Counts(); int(n.In) != len(l.stored) ||
			n.In != n.Ready+n.Unsettled+n.Accepted+n.Rejected+n.Purged {
			c.fail("Q11 g%d: the books say %+v, %d messages were stored", g.id, n, len(l.stored))
		}
	}
}

// books compares what was told with what is stored.
func (k *checker) books(g *group, l *ledger) {
	k.order(g, l)
	for _, a := range l.acks {
		s := l.stored[a.offset]
		if s == nil || s.m.key() != a.m.key() {
			k.fail("Q2 g%d: %v was acknowledged at offset %d, there is %+v", g.id, a.m, a.offset, s)
			continue
		}
		if k.draining && s.out == 0 {
			k.fail("Q2 g%d: %v at offset %d was never settled, and the queue is empty", g.id, a.m, a.offset)
		}
	}
	for _, key := range sortedKeys(l.tries) {
		t := l.tries[key]
		if _, ok := l.byKey[key]; ok && t.sent == t.refused {
			k.fail("Q9 g%d: all %d attempts of %s were refused, and it is stored", g.id, t.sent, key)
		}
	}
}

// order compares the sequence of a producer with the offsets: messages of one term that were sent once, by one
// connection, stand in the order in which they were sent (Q5).
func (k *checker) order(g *group, l *ledger) {
	type reign struct {
		producer string
		term     raftstore.Term
	}
	list := map[reign][]ack{}
	for _, a := range l.acks {
		s := l.stored[a.offset]
		if t := l.tries[a.m.key()]; s != nil && a.m.producer != "" && t.sent == 1 && !t.overtaken {
			at := reign{a.m.producer, s.term}
			list[at] = append(list[at], a)
		}
	}
	for at, acks := range list {
		slices.SortFunc(acks, func(a, b ack) int { return cmp.Compare(a.m.seq, b.m.seq) })
		for i := 1; i < len(acks); i++ {
			if acks[i].offset <= acks[i-1].offset {
				k.fail("Q5 g%d term %d: %v stands at offset %d, behind it %v at %d", g.id, at.term, acks[i-1].m,
					acks[i-1].offset, acks[i].m, acks[i].offset)
			}
		}
	}
}
