package control

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// TestRandomFleets lets users, operators, nodes and the control group do anything at any time, with copies of the
// registry that are behind, two that lead at once, lost proposals, deaths and lost disks, and then holds what is
// there to the registry. WEIDA_RUNS is the number of lives.
func TestRandomFleets(t *testing.T) {
	seeds := 150
	if v := os.Getenv("WEIDA_RUNS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	first := 0
	if v := os.Getenv("WEIDA_SEED"); v != "" {
		first, _ = strconv.Atoi(v)
	}
	for seed := first; seed < first+seeds; seed++ {
		randomFleet(t, uint64(seed))
	}
}

// chaos is a fleet with what users were told.
type chaos struct {
	*fleet
	kept map[uint64]int // confirmed messages by uid
}

func randomFleet(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := &chaos{newFleet(t, 3+2*rnd.IntN(2), 2), map[uint64]int{}}
	c.note("seed %d", seed)
	c.settle("beginning")
	c.rnd = rnd
	for range 150 {
		if c.at <= c.calls && rnd.IntN(4) == 0 {
			c.at, c.fault = c.calls+1+rnd.IntN(10), fault(rnd.IntN(int(faultsEnd)))
		}
		switch rnd.IntN(10) {
		case 0, 1, 2:
			c.user1(rnd)
		case 3:
			c.operator(rnd)
		case 4:
			c.hardware(rnd)
		case 5, 6:
			c.publish(rnd)
		}
		c.round()
	}
	c.end()
}

func (c *chaos) queue(rnd *rand.Rand) string { return string(rune('a' + rnd.IntN(3))) }

// user1 is a user's doing; a refusal is fine.
func (c *chaos) user1(rnd *rand.Rand) {
	m := Mutation{Verb: Apply, Kind: KindQueue, Name: c.queue(rnd), Queue: &QueueSpec{
		Replicas: []int{1, 1, 3, 3, 5}[rnd.IntN(5)],
	}}
	switch rnd.IntN(8) {
	case 0:
		m.Queue.Placement.PreferredLeader = fmt.Sprint("n", 1+rnd.IntN(5))
	case 1:
		m.Queue.Placement.Nodes = []string{fmt.Sprint("k", 1+rnd.IntN(5))}
	case 2:
		m.Verb, m.Queue = Delete, nil
		m.Drain = new(Duration(rnd.IntN(3)) * 1e9)
	case 3:
		spec := connectorSpec()
		spec.Queue = c.queue(rnd)
		m = Mutation{Verb: Apply, Kind: KindConnector, Name: "x", Connector: &spec}
		if rnd.IntN(3) == 0 {
			m.Verb, m.Connector = Delete, nil
		}
	}
	c.user(m)
}

// operator is an operator's doing; a refusal is fine.
func (c *chaos) operator(rnd *rand.Rand) {
	i := rnd.IntN(len(c.nodes))
	n := c.nodes[i]
	m := Mutation{Kind: KindNode, Name: n.o.Name}
	switch m.Verb = []Verb{NodeAdd, NodeAdd, NodeDrain, NodeUndrain, NodeUndrain, NodeRemove}[rnd.IntN(6)]; m.Verb {
	case NodeAdd:
		m.Node = &NodeSpec{Fingerprint: n.o.Node}
		if n.number != 0 && c.truth.nodeNamed(n.o.Node) == nil {
			// What was removed comes again with another disk, as another node.
			if n.up {
				n.die()
			}
			n.wipe()
			n.number = 0
		}
	case NodeRemove:
		for _, r := range n.groups {
			if r.owner {
				return // its messages would have to move first, and may not come to
			}
		}
	}
	c.user(m)
}

// hardware kills nodes, brings them back, and takes disks away where others have it all.
func (c *chaos) hardware(rnd *rand.Rand) {
	n := c.nodes[rnd.IntN(len(c.nodes))]
	switch {
	case !n.up:
		if rnd.IntN(8) == 0 && c.spared(n) {
			c.note("%s loses its disk", n.o.Name)
			n.wipe()
		} else if rnd.IntN(4) == 0 && c.spared(n) {
			for _, uid := range slices.Sorted(maps.Keys(n.groups))[:min(1, len(n.groups))] {
				c.note("%s loses its replica of %d", n.o.Name, uid)
				delete(n.groups, uid)
			}
		}
		n.boot()
	case rnd.IntN(2) == 0:
		n.die()
	default:
		c.noQuorum = !c.noQuorum
	}
}

// spared says whether the loss of a disk is one that has to be survived: no other is lost or behind, and it
// owns nothing.
func (c *chaos) spared(n *fnode) bool {
	for _, q := range c.truth.queues { // what is switched to a node alone cannot do without it any more
		for _, p := range q.Status.Placement {
			if q.Status.Step == Switching && p.Number == n.number && p.Next == Stays {
				return false
			}
		}
	}
	for uid, g := range c.groups {
		for _, m := range slices.Concat(g.config, g.next) {
			if o := c.nodeOf(m.Number); m.Number != n.number && !m.Learner && (o == nil || c.lacks(o, uid, m.Replica, g)) {
				return false
			}
		}
		voters := slices.DeleteFunc(slices.Clone(g.config), func(m Member) bool { return m.Learner })
		if len(voters) < 3 {
			return false
		}
	}
	for _, r := range n.groups {
		if r.owner {
			return false
		}
	}
	return true
}

func (c *chaos) lacks(n *fnode, uid, replica uint64, g *fgroup) bool {
	if uid == 0 {
		return c.holds(0, Member{Replica: replica, Number: n.number}) == nil
	}
	r := n.groups[uid]
	return r == nil || r.replica != replica || r.have < g.entries
}

func (c *chaos) publish(rnd *rand.Rand) {
	name := c.queue(rnd)
	if q, ok := c.truth.Queue(name); ok && c.put(name) {
		c.kept[q.Metadata.UID]++
	}
}

// end lets all be well again, and looks at what there is.
func (c *chaos) end() {
	c.at, c.noQuorum, c.rnd = 0, false, nil
	for _, n := range c.nodes {
		if !n.up {
			n.boot()
		}
	}
	for _, n := range c.truth.Nodes() { // so that there are enough
		c.user(Mutation{Verb: NodeUndrain, Kind: KindNode, Name: n.Metadata.Name})
	}
	c.settle("end")
	c.check(len(c.truth.retired) == 0, "retired: %+v", c.truth.retired)
	takers := 0
	for _, n := range c.truth.Nodes() {
		if takes(&n) {
			takers++
		}
		c.check(n.Status.State != NodeRemoving || c.truth.LoadOf(n.Number()).Replicas > 0, "%+v stays", n)
	}
	for _, q := range c.truth.Queues() {
		uid := q.Metadata.UID
		c.check(q.Metadata.DeletionTimestamp == 0, "%s is never gone: %+v", q.Metadata.Name, q)
		fits, why := c.truth.fits(&q)
		c.check(fits || why != nil, "%s: %s, group %+v", q.Metadata.Name, c.placed(q.Metadata.Name), c.groups[uid])
		c.check(!fits || q.Status.Phase == Ready && q.Status.ObservedGeneration == q.Metadata.Generation,
			"%s: %s: %+v", q.Metadata.Name, c.placed(q.Metadata.Name), q)
		c.check(fits || why.Reason == "NoSuchNode" || why.Reason == "NodeNotReady" || q.Spec.Replicas > takers,
			"%s: %+v with %d nodes", q.Metadata.Name, why, takers)
		if c.truth.base(&q.Status) != nil {
			c.check(c.stored(uid) >= c.kept[uid], "%s has %d of %d", q.Metadata.Name, c.stored(uid), c.kept[uid])
		}
	}
	c.tidy()
}

// tidy asserts that disks hold what the registry says, and nothing else.
func (c *chaos) tidy() {
	for _, n := range c.nodes {
		if c.truth.nodeOf(n.number) == nil {
			continue // it is not in the cluster
		}
		c.check(len(n.aside) == 0, "%s keeps aside %v", n.o.Name, n.aside)
		for uid, r := range n.groups {
			q, _ := c.truth.QueueOf(uid)
			c.check(slices.ContainsFunc(q.Status.Placement, func(p Replica) bool {
				return p.Replica == r.replica && p.Number == n.number && p.Owner == r.owner
			}), "%s has %+v of %d: %+v", n.o.Name, r, uid, q.Status.Placement)
		}
	}
	for _, k := range c.truth.Connectors() {
		running := 0
		for _, n := range c.nodes {
			if n.runs[k.Metadata.UID] {
				running++
			}
		}
		c.check(running == 1 == (k.Status.Phase == Ready) && running < 2, "connector runs %d times: %+v", running, k)
	}
}
