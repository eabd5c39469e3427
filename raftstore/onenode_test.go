package raftstore

import (
	"testing"

	"weida/fsync/memfs"
	"weida/wal"
)

// A replica whose data is given up is replaced on its own node: the new one learns beside the old one, which still
// votes in the configuration and never speaks again, and one joint step lets the one in and the other out. Two voters
// on one node are refused, and a node counts once for what it holds.
func TestReplacedOnItsNode(t *testing.T) {
	c := newCluster(t, 3, 31)
	c.openAll(1, 3)
	lead := c.leader(1)
	tag := lead.kvs[1].must(put("k", "body"))
	c.settle()
	c.tick(4)
	if now := lead.kvs[1].now(); now.HeldBy(lead.kvs[1].appended(tag)) != 3 {
		t.Fatalf("%+v", now)
	}
	hurt := c.rest(lead)[0]
	old, fresh := replicaOn(hurt.id), ReplicaID(99)
	hurt.kvs[1].group.Stop()
	if err := hurt.store.SetAside(wal.Aside{Group: 1, Replica: uint64(old)}); err != nil {
		t.Fatal(err)
	}
	m := newKV(t, "in its place")
	m.replica, m.name = true, "in its place"
	_, err := hurt.host.OpenReplica(1, m, ReplicaOptions{Self: fresh, Genesis: &Genesis{Term: 1, Index: 1}})
	if err != nil {
		t.Fatal(err)
	}
	hurt.kvs[1] = m
	twice := append(members(3), Member{Replica: fresh, Node: hurt.id})
	if err := lead.kvs[1].group.Reconfigure(Change{Members: twice}); err == nil {
		t.Error("two voters on one node are taken")
	}
	twice[3].Learner = true
	c.reconfigure(lead, twice)
	c.tick(40)
	tag = lead.kvs[1].must(put("k", "body of two"))
	c.settle()
	c.tick(4)
	if now := lead.kvs[1].now(); now.HeldBy(lead.kvs[1].appended(tag)) != 2 {
		t.Errorf("one learns, and what lies aside holds nothing new: %+v", now)
	}
	list := members(3)
	for i := range list {
		if list[i].Replica == old {
			list[i].Replica = fresh
		}
	}
	c.reconfigure(lead, list)
	c.settle()
	c.tick(40)
	tag = lead.kvs[1].must(put("k", "body of three"))
	c.settle()
	if now := lead.kvs[1].now(); now.HeldBy(lead.kvs[1].appended(tag)) != 3 {
		t.Errorf("%+v", now)
	}
	c.crash(lead, true, memfs.KeepNone)
	next := c.leader(1)
	next.kvs[1].must(note("without the first"))
	c.settle()
	c.start(lead)
	c.open(lead, 1, nil)
	c.tick(10)
	c.same(1, true)
}
