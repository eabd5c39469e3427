package raftstore

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// Three replicas elect a leader; what it takes is on all of them, bodies included, and the evidence says so (T-2, X-8).
func TestReplicate(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.openAll(1, 3)
	n := c.leader(1)
	m := n.kvs[1]
	for i := range 20 {
		m.must(put(fmt.Sprint("k", i), strings.Repeat("x", 1000*i)), note("n"))
	}
	c.settle()
	c.tick(4)
	c.same(1, true)
	c.bodies(1)
	now := m.now()
	if now.Applied != now.Written || now.HeldBy(now.Written) != 3 {
		t.Errorf("marks %+v", now)
	}
	m.complete()
	for _, o := range c.nodes {
		if len(o.kvs[1].applied) != 40 {
			t.Errorf("node %d applied %d lines", o.id, len(o.kvs[1].applied))
		}
	}
	for _, o := range c.nodes {
		o.rig.stop()
	}
}

// A group that is being made has a leader soon, in whatever order its members open it: the first of them asks again.
func TestNewGroupElects(t *testing.T) {
	for first := range 3 {
		c := newCluster(t, 3, uint64(71+first))
		for i := range 3 {
			c.open(c.nodes[(first+i)%3], 1, genesis(3))
			c.tick(1)
		}
		c.tick(4)
		if n := c.leads(1); n == nil || n.id != 1 {
			t.Errorf("opened from node %d on: led by %v", first+1, n)
		}
	}
}

// What is to be said and waits for no disk is said in the round in which it was asked for, not at the next tick.
func TestAnswerAtOnce(t *testing.T) {
	c, lead := threeNodes(t, 75)
	n := c.rest(lead)[0]
	r := c.group(n, 1)
	last := r.log.Last()
	m := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(replicaOn(lead.id))), To: new(uint64(r.rid)),
		Term: new(uint64(r.term)), Index: new(uint64(last.Index)), LogTerm: new(uint64(last.Term)),
		Commit: new(uint64(last.Index)),
	}
	n.host.ReceiveRaft(lead.id, []Frame{{1, appendMessage(nil, m)}})
	n.host.shardOf(1).round()
	if len(c.net) != 1 || c.net[0].from != n.id || len(messages(t, &c.net[0])) != 1 {
		t.Errorf("said in one round: %+v", c.net)
	}
}
