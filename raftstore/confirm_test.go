package raftstore

import (
	"errors"
	"testing"
)

// asked asks a node to confirm that it leads, and returns the answers so far.
func (c *cluster) asked(n *node) *[]error {
	c.t.Helper()
	answers := &[]error{}
	if err := n.kvs[1].group.(Confirmer).Confirm(func(err error) { *answers = append(*answers, err) }); err != nil {
		c.t.Fatal(err)
	}
	return answers
}

// A leader that a majority hears may show what it has; one that was cut off may not, and hears so in bounded time
// (X-11, row 19 of the fault matrix).
func TestConfirm(t *testing.T) {
	c, lead := threeNodes(t, 81)
	lead.kvs[1].must(put("k", "x"))
	first, second := c.asked(lead), c.asked(lead)
	c.settle()
	if len(*first) != 1 || (*first)[0] != nil || len(*second) != 1 || (*second)[0] != nil {
		t.Errorf("confirmed: %v, %v", *first, *second)
	}
	for _, n := range c.rest(lead) {
		c.cut[[2]NodeID{n.id, lead.id}] = true
		var not *NotLeaderError
		if err := n.kvs[1].group.(Confirmer).Confirm(func(error) {}); !errors.As(err, &not) || not.Leader.Node != lead.id {
			t.Errorf("at a follower: %v", err)
		}
	}
	answers := c.asked(lead)
	c.tick(3)
	if len(*answers) != 0 {
		t.Errorf("nobody hears it, and it is confirmed: %v", *answers)
	}
	c.tick(40)
	var not *NotLeaderError
	if len(*answers) != 1 || !errors.As((*answers)[0], &not) {
		t.Errorf("cut off: %v", *answers)
	}
}

// A quiet group confirms too, and one with a single voter; a stop answers those who wait.
func TestConfirmQuiet(t *testing.T) {
	c, lead := quietCluster(t, 82)
	answers := c.asked(lead)
	c.settle()
	if len(*answers) != 1 || (*answers)[0] != nil {
		t.Errorf("quiet: %v", *answers)
	}
	one := newCluster(t, 1, 83)
	one.openAll(1, 1)
	n := one.leader(1)
	answers = one.asked(n)
	one.settle()
	if len(*answers) != 1 || (*answers)[0] != nil {
		t.Errorf("alone: %v", *answers)
	}
	for _, o := range c.rest(lead) {
		c.crash(o, false, 0)
	}
	answers = c.asked(lead)
	lead.kvs[1].group.Stop()
	if len(*answers) != 1 || !errors.Is((*answers)[0], ErrStopped) {
		t.Errorf("stopped: %v", *answers)
	}
}
