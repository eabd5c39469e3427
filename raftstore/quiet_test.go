package raftstore

import (
	"testing"

	"weida/fsync/memfs"
)

// quietCluster is a group of three that is quiet on all nodes.
func quietCluster(t *testing.T, seed uint64) (c *cluster, lead *node) {
	c, lead = threeNodes(t, seed)
	lead.kvs[1].must(put("k", "body"))
	c.settle()
	c.tick(40)
	for _, n := range c.nodes {
		if !c.replication(n).Quiesced || n.kvs[1].lastI != lead.kvs[1].lastI {
			t.Fatalf("node %d is not quiet: %+v, applied %d", n.id, c.replication(n), n.kvs[1].lastI)
		}
	}
	return c, lead
}

// An idle group is not ticked and says nothing; its cost does not grow with the number of groups.
func TestQuiet(t *testing.T) {
	c := newCluster(t, 3, 31)
	const groups = 20
	for g := range GroupID(groups) {
		c.openAll(g+1, 3)
	}
	for g := range GroupID(groups) {
		c.leader(g + 1)
	}
	c.tick(60)
	for _, n := range c.nodes {
		for _, s := range n.host.shards {
			if len(s.awake) > 0 {
				t.Errorf("node %d ticks %d groups", n.id, len(s.awake))
			}
		}
	}
	c.drop = func(p *packet) bool {
		t.Errorf("node %d says %s to node %d", p.from, p.kind, p.to)
		return false
	}
	for range 50 {
		c.tickAll()
		for _, n := range c.nodes {
			if n.host.Step() {
				t.Fatalf("node %d works", n.id)
			}
		}
	}
}

// A proposal wakes a quiet group.
func TestQuietWakes(t *testing.T) {
	c, lead := quietCluster(t, 32)
	tag := lead.kvs[1].must(put("again", "x"))
	c.settle()
	if now := lead.kvs[1].now(); now.HeldBy(lead.kvs[1].appended(tag)) != 3 {
		t.Errorf("marks %+v", now)
	}
	c.tick(40)
	c.same(1, true)
	if !c.replication(lead).Quiesced {
		t.Error("it is not quiet again")
	}
}

// A group that is quiet on all nodes elects another leader within one election timeout of its leader's death.
func TestQuietLeaderDies(t *testing.T) {
	for _, power := range []bool{false, true} {
		c, lead := quietCluster(t, 33)
		c.crash(lead, power, memfs.KeepNone)
		ticks := 0
		for ; c.leads(1) == nil && ticks < 15; ticks++ {
			c.tick(1)
		}
		if next := c.leads(1); next == nil || next == lead {
			t.Fatalf("nobody leads after %d ticks", ticks)
		}
		c.start(lead)
		c.open(lead, 1, nil)
		c.tick(60)
		c.same(1, true)
		for _, n := range c.nodes {
			if !c.replication(n).Quiesced {
				t.Errorf("node %d is not quiet again", n.id)
			}
		}
	}
}

// A quiet leader whose node comes back in another incarnation, unnoticed in between, is no leader any more.
func TestQuietLeaderReturns(t *testing.T) {
	c, lead := quietCluster(t, 34)
	lead.disk.Kill()
	clear(lead.kvs)
	c.start(lead) // the others hear only of the new incarnation
	ticks := 0
	for ; c.leads(1) == nil && ticks < 15; ticks++ {
		c.tick(1)
	}
	if c.leads(1) == nil {
		t.Fatalf("nobody leads after %d ticks", ticks)
	}
}

// A word of quiet that comes late, when the group works again, is not taken: a replica that believed it would never
// notice that its leader has fallen silent.
func TestLateQuiet(t *testing.T) {
	c, lead := threeNodes(t, 35)
	var late []packet
	c.drop = func(p *packet) bool {
		if p.kind == "raft" && len(p.frames) == 1 && p.frames[0].Data[0] == quietFrame {
			late = append(late, *p)
			return true
		}
		return false
	}
	for len(late) < 2 {
		c.tick(1)
	}
	c.drop = nil
	lead.kvs[1].must(note("work"))
	c.settle()
	c.net = append(c.net, late...)
	c.settle()
	for _, n := range c.rest(lead) {
		c.cut[[2]NodeID{lead.id, n.id}] = true // it is not down, it is silent
	}
	var next *node
	for range 60 {
		c.tick(1)
		if next = c.leads(1); next != nil && next != lead {
			break
		}
	}
	if next == nil || next == lead {
		t.Error("nobody noticed that the leader is silent")
	}
}

// A member that is down does not keep the others awake; when it is back it gets what it missed, and all are quiet.
func TestQuietWithoutOne(t *testing.T) {
	c, lead := quietCluster(t, 36)
	gone := c.rest(lead)[0]
	c.crash(gone, false, 0)
	lead.kvs[1].must(note("missed"))
	c.settle()
	c.tick(60)
	if !c.replication(lead).Quiesced {
		t.Error("the leader is not quiet")
	}
	c.start(gone)
	c.open(gone, 1, nil)
	c.tick(60)
	c.same(1, true)
	if !c.replication(lead).Quiesced || !c.replication(gone).Quiesced {
		t.Error("they are not quiet together")
	}
}

// Who is silent is so for longer and longer, also while the group is quiet without it, and also when it had everything:
// the times that the leader tells go on. Those of a member that is up stay at now.
func TestQuietTimesGoOn(t *testing.T) {
	c, lead := quietCluster(t, 38)
	gone := c.rest(lead)[0]
	rows := func() (away, there Progress) {
		for _, p := range c.replication(lead).Progress {
			switch p.Node {
			case gone.id:
				away = p
			case lead.id:
			default:
				there = p
			}
		}
		return away, there
	}
	c.crash(gone, false, 0)
	c.settle()
	c.tick(10)
	if away, _ := rows(); c.replication(lead).Quiesced || away.HeardTicks < 9 || away.CaughtUpTicks != away.HeardTicks {
		t.Errorf("it had everything and is silent, in a group that is awake: %+v", away)
	}
	for _, what := range []string{"had everything", "missed something"} {
		c.tick(60)
		if !c.replication(lead).Quiesced {
			t.Fatalf("%s: the leader is not quiet", what)
		}
		before, _ := rows()
		c.tick(100)
		away, there := rows()
		if away.HeardTicks-before.HeardTicks != 100 || away.CaughtUpTicks-before.CaughtUpTicks != 100 ||
			before.HeardTicks < 50 {
			t.Errorf("%s: silent for %d ticks, then for %d; at the end of the log %d and %d ticks ago", what,
				before.HeardTicks, away.HeardTicks, before.CaughtUpTicks, away.CaughtUpTicks)
		}
		if there.HeardTicks != 0 || there.CaughtUpTicks != 0 {
			t.Errorf("%s: who is up is said to be silent: %+v", what, there)
		}
		lead.kvs[1].must(note("missed"))
		c.settle()
	}
	c.start(gone)
	c.open(gone, 1, nil)
	c.tick(60)
	if away, _ := rows(); away.HeardTicks != 0 || away.CaughtUpTicks != 0 {
		t.Errorf("it is back, and said to be silent: %+v", away)
	}
}
