package raftstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/cryptotest"

	"weida/fsync"
	"weida/fsync/memfs"
)

// cluster is some nodes on memory disks with a network that loses, delays and reorders what it is told to. Everything
// is stepped on the test's goroutine.
type cluster struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*node
	net   []packet
	cut   map[[2]NodeID]bool // one way
	drop  func(*packet) bool // true loses it
	// cutStream says after how many bytes a stream is lost: 0 when it is opened, below 0 for never. nil: none is.
	cutStream func(*nodeStream) int
	streamed  int64 // bytes of all streams
	streams   int
	opts      HostOptions
}

// node is one node: its rig, and the machines of this life.
type node struct {
	*rig
	c    *cluster
	id   NodeID
	kvs  map[GroupID]*kv
	up   bool
	life uint64
	off  map[GroupID]bool // groups not served
}

// packet is something on its way.
type packet struct {
	from, to NodeID
	life     [2]uint64
	kind     string // raft, beat, payload, refusal
	frames   []Frame
	refused  []Refusal
	data     []byte
}

func newCluster(t *testing.T, n int, seed uint64) *cluster {
	return newClusterWith(t, n, seed, HostOptions{Shards: 1})
}

func newClusterWith(t *testing.T, n int, seed uint64, o HostOptions) *cluster {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 7)), cut: map[[2]NodeID]bool{}, opts: o}
	for i := range n {
		c.addNode(NodeID(i + 1))
	}
	return c
}

func (c *cluster) addNode(id NodeID) *node {
	nd := &node{c: c, id: id, kvs: map[GroupID]*kv{}, off: map[GroupID]bool{}}
	o := c.opts
	o.Node, o.Transport = id, nd
	nd.rig = &rig{t: c.t, disk: memfs.New(), opts: o}
	nd.rig.wal.SegmentBytes = 512 << 10
	nd.rig.flush = fsync.Files
	c.nodes = append(c.nodes, nd)
	c.start(nd)
	return nd
}

func (c *cluster) node(id NodeID) *node { return c.nodes[id-1] }

// start boots a node on what its disk holds; the others hear of it.
func (c *cluster) start(nd *node) {
	c.t.Helper()
	nd.boot()
	nd.up = true
	nd.life++
	for _, o := range c.nodes {
		if o != nd && o.up {
			c.meet(o, nd)
		}
	}
}

func (c *cluster) meet(a, b *node) {
	a.host.PeerUp(b.id, b.life)
	b.host.PeerUp(a.id, a.life)
}

// stop takes a node away like kill -9 does, or a power cut.
func (c *cluster) crash(nd *node, cutPower bool, keep memfs.Keep) {
	if cutPower {
		nd.disk.PowerCut(keep, c.rng)
	} else {
		nd.disk.Kill()
	}
	nd.up = false
	clear(nd.kvs)
	for _, o := range c.nodes {
		if o.up {
			o.host.PeerDown(nd.id)
		}
	}
}

// members are replicas 11, 12, … on nodes 1, 2, …
func members(n int) (list []Member) {
	for i := range n {
		list = append(list, Member{Replica: replicaOn(NodeID(i + 1)), Node: NodeID(i + 1)})
	}
	return list
}

func replicaOn(n NodeID) ReplicaID { return ReplicaID(n) + 10 }

func genesis(n int) *Genesis { return &Genesis{Term: 3, Index: 100, Members: members(n)} }

// open opens a node's replica of a group.
func (c *cluster) open(nd *node, g GroupID, gen *Genesis) *kv {
	c.t.Helper()
	m := newKV(c.t, fmt.Sprintf("node %d group %d life %d", nd.id, g, nd.life))
	m.replica = true
	m.name = fmt.Sprintf("n%d", nd.id)
	if _, err := nd.host.OpenReplica(g, m, ReplicaOptions{Self: replicaOn(nd.id), Genesis: gen}); err != nil {
		c.t.Fatalf("node %d: %v", nd.id, err)
	}
	nd.kvs[g] = m
	return m
}

// openAll opens a group on the first n nodes.
func (c *cluster) openAll(g GroupID, n int) {
	for _, nd := range c.nodes[:n] {
		c.open(nd, g, genesis(n))
	}
}

// Transport.

func (n *node) put(p packet) {
	to := n.c.node(p.to)
	p.from, p.life = n.id, [2]uint64{n.life, to.life}
	if !n.up || !to.up || n.c.cut[[2]NodeID{p.from, p.to}] || n.c.drop != nil && n.c.drop(&p) {
		return
	}
	n.c.net = append(n.c.net, p)
}

func copyFrames(list []Frame) (out []Frame) {
	for _, f := range list {
		out = append(out, Frame{Group: f.Group, Data: bytes.Clone(f.Data)})
	}
	return out
}

func (n *node) Raft(to NodeID, _ int, frames []Frame) {
	n.put(packet{to: to, kind: "raft", frames: copyFrames(frames)})
}

func (n *node) Beat(to NodeID, data []byte) {
	n.put(packet{to: to, kind: "beat", data: bytes.Clone(data)})
}

func (n *node) Payload(to NodeID, _ int, frames []Frame) {
	n.put(packet{to: to, kind: "payload", frames: copyFrames(frames)})
}

func (n *node) Stream(ctx context.Context, to NodeID, head []byte) (Stream, error) {
	return n.stream(ctx, to, head)
}

// deliver hands the i-th packet over.
func (c *cluster) deliver(i int) {
	p := c.net[i]
	c.net = append(c.net[:i], c.net[i+1:]...)
	from, to := c.node(p.from), c.node(p.to)
	if !from.up || !to.up || p.life != [2]uint64{from.life, to.life} || c.cut[[2]NodeID{p.from, p.to}] {
		return
	}
	switch p.kind {
	case "raft":
		if list := to.host.ReceiveRaft(p.from, p.frames); len(list) > 0 {
			to.put(packet{to: p.from, kind: "refusal", refused: list})
		}
	case "refusal":
		to.host.ReceiveRefusals(p.from, p.refused)
	case "beat":
		to.host.ReceiveBeat(p.from, p.data)
	case "payload":
		to.host.ReceivePayload(p.from, p.frames)
	}
}

// settle goes on until nobody has anything to do and nothing is on its way.
func (c *cluster) settle() {
	c.t.Helper()
	for range 100_000 {
		worked := false
		for len(c.net) > 0 {
			c.deliver(0)
			worked = true
		}
		for _, n := range c.nodes {
			if n.up {
				worked = n.host.Step() || worked
				worked = n.fl.Step() || worked
			}
		}
		if !worked {
			return
		}
	}
	c.t.Fatal("the cluster does not come to rest")
}

// tick lets n ticks go by on every node, with rest in between.
func (c *cluster) tick(n int) {
	c.t.Helper()
	for range n {
		for _, nd := range c.nodes {
			if nd.up {
				nd.host.Tick()
			}
		}
		c.settle()
	}
}

// leader waits until a group has a leader that serves, and returns its node.
func (c *cluster) leader(g GroupID) *node {
	c.t.Helper()
	c.settle()
	for range 200 {
		if n := c.leads(g); n != nil {
			return n
		}
		c.tick(1)
	}
	c.t.Fatalf("group %d elects nobody", g)
	return nil
}

// leads is the node whose replica leads in the highest term, nil if none does.
func (c *cluster) leads(g GroupID) (best *node) {
	for _, n := range c.nodes {
		if m := n.kvs[g]; n.up && m != nil && m.role == LeaderRole && (best == nil || m.term > best.kvs[g].term) {
			best = n
		}
	}
	return best
}

// same fails unless all replicas of a group applied the same, as far as each came; with all, equally far.
func (c *cluster) same(g GroupID, all bool) {
	c.t.Helper()
	var longest *kv
	for _, n := range c.nodes {
		if m := n.kvs[g]; m != nil && (longest == nil || m.lastI > longest.lastI) {
			longest = m
		}
	}
	for _, n := range c.nodes {
		m := n.kvs[g]
		if m == nil || m == longest {
			continue
		}
		if all && m.lastI != longest.lastI {
			c.t.Errorf("%s applied up to %d, %s up to %d", m.name, m.lastI, longest.name, longest.lastI)
		}
		if k := len(m.applied); k > len(longest.applied) || fmt.Sprint(m.applied) != fmt.Sprint(longest.applied[:k]) {
			c.t.Errorf("%s applied %v, %s %v", m.name, m.applied, longest.name, longest.applied)
		}
		for i, t := range m.terms {
			if u, ok := longest.terms[i]; ok && u != t {
				c.t.Errorf("entry %d has term %d on %s and %d on %s", i, t, m.name, u, longest.name)
			}
		}
	}
}

// bodies fails unless every live body is whole on every replica.
func (c *cluster) bodies(g GroupID) {
	c.t.Helper()
	for _, n := range c.nodes {
		if m := n.kvs[g]; m != nil {
			for _, key := range sortedKeys(m.state) {
				m.read(key)
			}
		}
	}
}

func (c *cluster) group(n *node, g GroupID) *replica { return n.kvs[g].group.(*replica) }
