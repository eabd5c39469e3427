package main

import (
	"errors"
	"slices"

	"weida/raftstore"
)

// operate changes the membership of a group, as a control plane does: one goal at a time, learners first, one joint
// step, and what is no member any more is removed.
func (c *cluster) operate(g *group) {
	d := c.leader(g)
	if d != nil && d.marks.Applied >= c.check.ledger(g.id).highest {
		c.change(g, d)
	}
	c.after(c.between(100*millisecond, 400*millisecond), func() { c.operate(g) })
}

// change goes one step on.
func (c *cluster) change(g *group, d *desk) {
	rep := d.group.Status().Replication
	if rep == nil || rep.Joint || !slices.Equal(rep.Committed, rep.Current) {
		return
	}
	switch {
	case g.goal == nil:
		c.wish(g, d, rep)
	case equalMembers(rep.Committed, g.goal):
		c.attained(g)
	default:
		c.approach(g, d, rep)
	}
}

func equalMembers(a, b []raftstore.Member) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(m raftstore.Member) bool { return !slices.Contains(b, m) })
}

// wish sets a goal, now and then.
func (c *cluster) wish(g *group, d *desk, rep *raftstore.Replication) {
	if c.calm || !c.o.members || !c.chance(6) {
		return
	}
	if m := pick(c.loop, rep.Current); c.chance(2) && m.Replica != rep.Self && !m.Learner {
		c.note("g%d: leadership to r%d on n%d: %v", g.id, m.Replica, m.Node,
			d.group.Reconfigure(raftstore.Change{TransferTo: m.Replica}))
		c.stats.fault("leadership moved")
		d.wake()
		return
	}
	size := pick(c.loop, []int{1, 3, 3, 3, 5})
	if size > len(c.nodes) {
		size = 3
	}
	for _, id := range c.shuffled()[:size] {
		rid := g.replicas[id]
		if rid == 0 || !slices.ContainsFunc(rep.Current, func(m raftstore.Member) bool { return m.Replica == rid }) {
			c.replicas++
			rid = c.replicas
		}
		g.goal = append(g.goal, raftstore.Member{Replica: rid, Node: id})
	}
	g.patience = 80
	c.stats.fault("membership")
	if len(c.net.cut) > 0 {
		c.stats.fault("membership in a cut")
	}
	c.note("g%d: members are to be %v", g.id, g.goal)
}

// approach takes the next step towards the goal.
func (c *cluster) approach(g *group, d *desk, rep *raftstore.Replication) {
	if g.patience--; g.patience < 0 {
		c.giveUp(g, rep)
	}
	learners := slices.Clone(rep.Current)
	for _, m := range g.goal {
		if g.replicas[m.Node] != m.Replica && !slices.ContainsFunc(rep.Current, sameNode(m)) {
			g.replicas[m.Node] = m.Replica // what was there before is removed
			if n := c.node(m.Node); n.up {
				n.open(g)
			}
		}
		if !slices.ContainsFunc(rep.Current, sameReplica(m)) && !slices.ContainsFunc(rep.Current, sameNode(m)) {
			m.Learner = true
			learners = append(learners, m)
		}
	}
	goal := learners
	if len(learners) == len(rep.Current) {
		goal = g.goal
	}
	err := d.group.Reconfigure(raftstore.Change{Members: goal})
	var change *raftstore.ChangeError
	var not *raftstore.NotLeaderError
	switch {
	case err == nil:
		c.note("g%d: asked for %v", g.id, goal)
		d.wake()
	case errors.As(err, &change), errors.As(err, &not): // asked again
	case errors.Is(err, raftstore.ErrChangePending), errors.Is(err, raftstore.ErrReadOnly):
	default:
		c.fail("g%d: %v", g.id, err)
	}
}

// giveUp makes the voters of now the goal.
func (c *cluster) giveUp(g *group, rep *raftstore.Replication) {
	g.goal = nil
	for _, m := range rep.Current {
		if !m.Learner {
			g.goal = append(g.goal, m)
		}
	}
	g.patience = 80
	c.note("g%d: given up, members are to be %v", g.id, g.goal)
}

func sameReplica(m raftstore.Member) func(raftstore.Member) bool {
	return func(o raftstore.Member) bool { return o.Replica == m.Replica }
}

func sameNode(m raftstore.Member) func(raftstore.Member) bool {
	return func(o raftstore.Member) bool { return o.Node == m.Node }
}

// attained removes what is no member.
func (c *cluster) attained(g *group) {
	c.note("g%d: members are %v", g.id, g.goal)
	for _, id := range sortedKeys(g.replicas) {
		if !slices.ContainsFunc(g.goal, func(m raftstore.Member) bool { return m.Replica == g.replicas[id] }) {
			delete(g.replicas, id)
			if n := c.node(id); n.up {
				n.open(g)
			}
		}
	}
	g.goal = nil
}
