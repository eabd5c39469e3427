package raftstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"weida/fsync/memfs"
)

func alone(n NodeID) []Member { return []Member{{Replica: replicaOn(n), Node: n}} }

func (c *cluster) openOwner(nd *node, g GroupID, o OwnerOptions) *kv {
	c.t.Helper()
	m := newKV(c.t, fmt.Sprintf("owner n%d", nd.id))
	m.replica = true
	if _, err := nd.host.OpenOwner(g, m, o); err != nil {
		c.t.Fatal(err)
	}
	nd.kvs[g] = m
	return m
}

func (c *cluster) close(nd *node, g GroupID) {
	nd.kvs[g].group.Stop()
	nd.kvs[g].complete()
	delete(nd.kvs, g)
}

// A group with an owner grows to three replicas, shrinks to one, has an owner again, and grows again: nothing is lost,
// nothing twice, terms rise and refs are never used again (X-1, X-5, G-4).
func TestOwnerAndReplicas(t *testing.T) {
	c := newCluster(t, 3, 61)
	home := c.node(1)
	var want []string
	term := Term(0)
	say := func(m *kv, text string) {
		t.Helper()
		if m.term <= term && len(want) > 0 && m.role != LeaderRole {
			t.Errorf("%s: term %d after %d", text, m.term, term)
		}
		term = m.term
		m.must(put("k"+text, text))
		c.settle()
		want = append(want, "pk"+text)
		if got := fmt.Sprint(m.applied); got != fmt.Sprint(want) {
			t.Errorf("%s: applied %s, want %v", text, got, want)
		}
	}
	say(c.openOwner(home, 1, OwnerOptions{Create: true}), "owner")
	for round := range 2 {
		c.close(home, 1)
		m := c.open(home, 1, &Genesis{Members: alone(1), Term: 1, Index: 1})
		c.leader(1)
		say(m, fmt.Sprint("one", round))
		for _, n := range c.nodes[1:] {
			c.open(n, 1, &Genesis{})
		}
		list := members(3)
		list[1].Learner, list[2].Learner = true, true
		c.reconfigure(home, list)
		c.tick(30)
		c.reconfigure(home, members(3))
		c.settle()
		c.tick(4)
		say(c.leader(1).kvs[1], fmt.Sprint("three", round))
		c.tick(4)
		c.same(1, true)
		c.bodies(1)
		c.reconfigure(c.leader(1), alone(1))
		c.tick(10)
		c.config(home, []int{11}, []int{11}, false)
		say(home.kvs[1], fmt.Sprint("left", round))
		for _, n := range c.nodes[1:] {
			c.close(n, 1)
			c.crash(n, true, memfs.KeepNone)
			n.disk = memfs.New()
			c.start(n)
		}
		c.close(home, 1)
		x := newKV(t, "x")
		x.replica = true
		if _, err := home.host.OpenOwner(1, x, OwnerOptions{}); !errors.Is(err, errNotDissolved) {
			t.Errorf("a replica's log: %v", err)
		}
		say(c.openOwner(home, 1, OwnerOptions{Dissolved: true}), fmt.Sprint("owner", round))
		c.bodies(1)
		c.crash(home, true, memfs.KeepNone)
		c.start(home)
		say(c.openOwner(home, 1, OwnerOptions{}), fmt.Sprint("again", round))
	}
}

// The log of a group with others in it gets no owner, and an owner's log becomes a replica's only of a group of one.
func TestNoConversion(t *testing.T) {
	c, lead := threeNodes(t, 62)
	c.close(lead, 1)
	x := newKV(t, "x")
	x.replica = true
	if _, err := lead.host.OpenOwner(1, x, OwnerOptions{Dissolved: true}); !errors.Is(err, errNotDissolved) {
		t.Errorf("a group of three: %v", err)
	}
	m := c.openOwner(lead, 2, OwnerOptions{Create: true})
	m.must(note("n"))
	c.settle()
	c.close(lead, 2)
	for _, g := range []*Genesis{nil, {}, genesis(3)} {
		o := ReplicaOptions{Self: replicaOn(lead.id), Genesis: g}
		if _, err := lead.host.OpenReplica(2, newKV(t, "x"), o); !errors.Is(err, errOwnersLog) {
			t.Errorf("genesis %+v: %v", g, err)
		}
	}
	c.openOwner(lead, 2, OwnerOptions{})
}

// A crash at any moment of a conversion leaves a log that is the one or the other, with everything in it.
func TestConversionCrashes(t *testing.T) {
	for _, toReplica := range []bool{true, false} {
		done := false
		for n := 1; !done; n++ {
			c := newCluster(t, 1, uint64(n))
			home := c.node(1)
			m := c.openOwner(home, 1, OwnerOptions{Create: true})
			for i := range 3 {
				m.must(put(fmt.Sprint("k", i), "body"))
			}
			c.settle()
			c.close(home, 1)
			if !toReplica {
				c.open(home, 1, &Genesis{Members: alone(1), Term: 1, Index: 1})
				c.leader(1)
				c.close(home, 1)
			}
			home.fs.DieBefore(home.fs.Ops() + n)
			x := newKV(t, "dies")
			x.replica = true
			var err error
			if toReplica {
				o := ReplicaOptions{Self: 11, Genesis: &Genesis{Members: alone(1), Term: 1, Index: 1}}
				_, err = home.host.OpenReplica(1, x, o)
			} else {
				_, err = home.host.OpenOwner(1, x, OwnerOptions{Dissolved: true})
			}
			done = !home.fs.Dead()
			if done != (err == nil) {
				t.Fatalf("operation %d: %v", n, err)
			}
			keep := []memfs.Keep{memfs.KeepNone, memfs.KeepAll}[n%2]
			c.crash(home, n%3 > 0, keep)
			c.start(home)
			m = c.openOwner(home, 1, OwnerOptions{Dissolved: true})
			if !slices.Equal(m.applied, []string{"pk0", "pk1", "pk2"}) {
				t.Fatalf("operation %d: applied %v", n, m.applied)
			}
			c.bodies(1)
			c.close(home, 1)
			m = c.open(home, 1, &Genesis{Members: alone(1), Term: 1, Index: 1})
			c.leader(1)
			if !slices.Equal(m.applied, []string{"pk0", "pk1", "pk2"}) {
				t.Fatalf("operation %d, as a replica: applied %v", n, m.applied)
			}
			c.bodies(1)
		}
	}
}
