package control

import (
	"strings"
	"testing"
)

// TestLostKeepsAMajority: a replica is given up only while the others are enough to go on without it, in what stands
// and in what it is changed to. Two nodes that see their disks fail at once must not give up the only copies there are.
func TestLostKeepsAMajority(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(4)
	three := &QueueSpec{Replicas: 3}
	uid := r.must(r.mutate(Mutation{Verb: Create, Kind: KindQueue, Name: "a", Queue: three})).Metadata.UID
	rows := r.must(r.place(uid, n[0], n[1], n[2])).Status.Placement
	lose := func(i int) Result {
		return r.do(Command{Lost: &Lost{KindQueue, uid, rows[i].Replica, "Corrupt"}})
	}
	q := r.must(lose(0))
	if q.Status.Placement[0].Lost != "Corrupt" {
		t.Fatalf("%+v", q.Status)
	}
	if err := r.refused(lose(1), Conflict); !strings.Contains(err.Message, "too few would be left") {
		t.Error(err)
	}
	if res := lose(0); res.Err != nil || res.Changed {
		t.Errorf("again: %+v", res)
	}
	old := Command{Lost: &Lost{UID: uid, Replica: rows[1].Replica, Reason: "Corrupt"}}
	if q := r.must(r.do(old)); q.Status.Placement[1].Lost != "Corrupt" { // as it was judged when it was written
		t.Errorf("%+v", q.Status)
	}
	_ = r.refused(r.do(Command{Lost: &Lost{KindConnector, uid, rows[2].Replica, "Corrupt"}}), NotFound)
}

// TestLostInASwitching: who is to be the only replica is not given up because those are there who leave.
func TestLostInASwitching(t *testing.T) {
	r := newRegistry(t)
	n := r.nodes(3)
	three := &QueueSpec{Replicas: 3}
	uid := r.must(r.mutate(Mutation{Verb: Create, Kind: KindQueue, Name: "a", Queue: three})).Metadata.UID
	r.must(r.place(uid, n[0], n[1], n[2]))
	q := r.must(r.place(uid, n[0]))
	q = r.must(r.do(Command{Reached: &Reached{KindQueue, uid, q.Status.Epoch}}))
	if q.Status.Step != Switching {
		t.Fatalf("%+v", q.Status)
	}
	for i, p := range q.Status.Placement {
		res := r.do(Command{Lost: &Lost{KindQueue, uid, p.Replica, "Corrupt"}})
		if p.Number == n[0] {
			_ = r.refused(res, Conflict)
		} else if i < 2 {
			r.must(res)
		}
	}
}

// TestLostMember: a replica of the control log that is damaged is replaced on its node as a learner with another id,
// and the old one never is a member again.
func TestLostMember(t *testing.T) {
	f := newFleet(t, 3, 0)
	f.settle("begun")
	c := f.truth.Cluster()
	old := c.Replicas[1]
	f.append(Command{Lost: &Lost{Kind: KindCluster, Replica: old.Replica, Reason: "Corrupt"}})
	c = f.truth.Cluster()
	f.check(c.Replicas[1].Lost == "Corrupt", "%+v", c)
	if n, _ := f.truth.NodeOf(old.Number); n.Status.Voter {
		t.Errorf("%+v", n.Status)
	}
	before := f.truth.Version()
	f.append(Command{Lost: &Lost{Kind: KindCluster, Replica: c.Replicas[2].Replica, Reason: "Corrupt"}})
	f.check(f.truth.Cluster().Replicas[2].Lost == "" && f.truth.Version() > before, "a second one is given up")
	f.settle("replaced")
	c = f.truth.Cluster()
	f.check(len(c.Replicas) == 3 && c.Step == Steady && memberAt(c.Replicas, old.Replica) < 0, "%+v", c)
	for _, p := range c.Replicas {
		f.check(p.Lost == "" && !p.Learner && p.Made, "%+v", c)
	}
}

func memberAt(rows []Replica, id uint64) int {
	for i, r := range rows {
		if r.Replica == id {
			return i
		}
	}
	return -1
}

// TestRebuiltWhereItWas: what takes the place of a damaged replica is made on the same node and disk, also where
// another node has less to carry.
func TestRebuiltWhereItWas(t *testing.T) {
	f := newFleet(t, 5, 0)
	f.apply("a", QueueSpec{Replicas: 3})
	f.settle("made")
	q, _ := f.truth.Queue("a")
	was := q.Status.Placement
	n := f.nodeOf(was[1].Number)
	n.die()
	delete(n.groups, q.Metadata.UID)
	n.boot()
	f.settle("damaged")
	q, _ = f.truth.Queue("a")
	f.check(q.Status.Phase == Ready && memberAt(q.Status.Placement, was[1].Replica) < 0, "%+v", q.Status)
	there := false
	for _, p := range q.Status.Placement {
		there = there || p.Number == was[1].Number && p.Disk == was[1].Disk
	}
	f.check(there, "%+v", q.Status.Placement)
}
