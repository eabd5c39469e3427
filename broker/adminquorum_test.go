package broker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// look is what the HTTP side of nodes of a trio would know of its queue's group: of all of them, or of some.
func (tr *trio) look(seats ...int) *admin.Cluster {
	c := &admin.Cluster{Now: time.Now().UnixMilli(), Registry: admin.Registry{Version: trioGroup}}
	for i := range tr.seats {
		n := control.Node{Kind: control.KindNode, Metadata: control.Metadata{Name: fmt.Sprint("n", i+1), UID: uint64(i + 1)}}
		n.Spec.Fingerprint, n.Status.State = tr.seats[i].at.Fingerprint.String(), control.NodeMember
		c.Registry.Nodes = append(c.Registry.Nodes, n)
		if len(seats) == 0 || slices.Contains(seats, i) {
			c.Facts = append(c.Facts, admin.Facts{
				Node: uint64(i + 1), Name: fmt.Sprint("n", i+1), At: c.Now,
				Groups: []admin.Group{admin.GroupOf(tr.seats[i].q.group.Status(), "far", tickTime)},
			})
		}
	}
	q := control.Queue{Kind: control.KindQueue, Metadata: control.Metadata{Name: "far", UID: trioGroup}}
	q.Spec.Replicas = 3
	c.Registry.Queues = []control.Queue{q}
	return c
}

const farGroup = "queue/far"

func (tr *trio) state() admin.GroupState {
	for _, g := range tr.look().Groups() {
		if g.Group == farGroup {
			return g
		}
	}
	return admin.GroupState{}
}

// until waits for something to hold.
func (tr *trio) until(what string, holds func() bool) {
	tr.t.Helper()
	for !holds() {
		if tr.ctx.Err() != nil {
			tr.t.Fatalf("never: %s; the group is %+v", what, tr.state())
		}
		time.Sleep(time.Millisecond)
	}
}

func voterIDs(list []admin.ReplicaState) string {
	var ids []int32
	for _, s := range list {
		ids = append(ids, s.ReplicaID)
	}
	slices.Sort(ids)
	return fmt.Sprint(ids)
}

// Over real replicas: only the leader answers for its group, and the others name it; current and committed are
// one in a steady state; a change that nobody has committed is in the current members and not in the committed
// ones, a node may not be stopped meanwhile, and taken back it never was in the committed ones
//
func TestQuorumOfReplicas(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	l := tr.leader()
	tr.until("it is healthy", func() bool { return tr.state().Health == admin.Healthy })
	for i := range tr.seats {
		tr.until("everybody knows the leader", func() bool {
			r := tr.look(i).Describe([]string{farGroup})
			info, err := r.Info(farGroup)
			if i == l {
				return err == nil && info.LeaderID == int32(l+1) && voterIDs(info.Voters) == "[1 2 3]" &&
					voterIDs(info.CommittedVoters) == "[1 2 3]" && len(info.Observers) == 0 && info.HighWatermark > 1
			}
			var no *wire.Error
			return errors.As(err, &no) && no.Code == wire.NotLeader && r.Groups[0].LeaderID == int32(l+1)
		})
		if v := tr.look().CanStop(uint64(i + 1)); !canStopFar(v) {
			t.Errorf("n%d may not be stopped: %+v", i+1, v)
		}
	}

	// The leader is alone, and does not know it yet.
	tr.net.cut(raftstore.NodeID(l + 1))
	group := tr.seats[l].q.group
	members := slices.Clone(group.Status().Replication.Current)
	members = append(members, raftstore.Member{Replica: 9, Node: 4, Learner: true})
	if err := group.Reconfigure(raftstore.Change{Members: members}); err != nil {
		t.Fatal(err)
	}
	tr.until("the change is pending", func() bool {
		r := group.Status().Replication
		return len(r.Current) == 4 && len(r.Committed) == 3
	})
	res := tr.look(l).Describe([]string{farGroup})
	g := res.Groups[0]
	if g.ErrorCode == 0 && (voterIDs(g.Observers) != "[4]" || voterIDs(g.CommittedVoters) != "[1 2 3]") {
		t.Errorf("a pending change is told as %+v", g)
	}
	if v := tr.look(l).CanStop(uint64((l+1)%3 + 1)); canStopFar(v) {
		t.Errorf("while members are being changed a node may be stopped: %+v", v)
	}

	// The others elect another leader, which knows nothing of the change; the old one comes back.
	tr.until("another one leads", func() bool {
		s := tr.state()
		return s.LeaderNode != 0 && s.LeaderNode != uint64(l+1) && s.Term > uint64(1)
	})
	tr.net.plug(tr.seats)
	tr.until("it is healthy again", func() bool {
		for i := range tr.seats {
			if r := tr.seats[i].q.group.Status().Replication; len(r.Committed) != 3 {
				t.Fatalf("n%d: a change that was taken back is committed: %+v", i+1, r)
			}
		}
		s := tr.state()
		return s.Health == admin.Healthy && s.InStep == 3 && len(tr.seats[l].q.group.Status().Replication.Current) == 3
	})
}

// canStopFar looks at the queue alone: the control group of a trio is not there.
func canStopFar(v admin.Verdict) bool {
	return !slices.ContainsFunc(v.Findings, func(f admin.Finding) bool { return f.Group == farGroup })
}
