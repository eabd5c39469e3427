package raftstore

import (
	"fmt"
	"testing"
)

// A member that keeps up under a load that never pauses counts as caught up, though something is always on its way to
// it: who does not count gets no leadership, and no vote.
func TestCaughtUpUnderLoad(t *testing.T) {
	c, lead := threeNodes(t, 71)
	m := lead.kvs[1]
	for i := range 60 {
		c.tickAll()
		m.must(note(fmt.Sprint(i)))
		c.pump(func(n *node) bool { return n == lead })
		for _, p := range m.group.Status().Replication.Progress {
			if p.Replica != replicaOn(lead.id) && p.Match >= m.group.Status().Marks.Written {
				t.Fatalf("replica %d is at the end of the log: nothing is on its way", p.Replica)
			}
		}
		for _, n := range c.rest(lead) {
			n.fl.Step()
		}
	}
	for _, p := range m.group.Status().Replication.Progress {
		if p.Replica != replicaOn(lead.id) && (p.CaughtUpTicks < 0 || p.CaughtUpTicks > 3) {
			t.Errorf("replica %d was last caught up %d ticks ago", p.Replica, p.CaughtUpTicks)
		}
	}
	c.settle()
	c.tick(4)
	c.same(1, true)
}
