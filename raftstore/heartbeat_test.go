package raftstore

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// An append that a member has taken stands for a heartbeat, so that groups which take messages all the time send none.
func TestAppendsStandForHeartbeats(t *testing.T) {
	c, lead := threeNodes(t, 61)
	beats := 0
	c.drop = func(p *packet) bool {
		if p.kind == "beat" && p.from == lead.id {
			_, err := parseBeats(p.data, func(GroupID, *raftpb.Message) { beats++ })
			if err != nil {
				t.Fatal(err)
			}
		}
		return false
	}
	publish := func(ticks int) (sent int) {
		before := beats
		for i := range ticks {
			lead.kvs[1].must(put(fmt.Sprint(i), "x"))
			c.tick(1)
		}
		return beats - before
	}
	publish(4)
	if n := publish(40); n != 0 {
		t.Errorf("%d heartbeats beside an append a tick", n)
	}
	beats = 0
	c.tick(10)
	if beats == 0 {
		t.Error("no heartbeats without appends")
	}
	c.same(1, true)
}

// A member to which appends are sent that it can't take, for want of bodies, goes on hearing of its leader.
func TestWaitingMemberHearsHeartbeats(t *testing.T) {
	c, lead := threeNodes(t, 62)
	waits := c.rest(lead)[0]
	c.drop = func(p *packet) bool { return p.kind == "payload" && p.to == waits.id }
	for i := range 80 {
		lead.kvs[1].must(put(fmt.Sprint(i), "x"))
		c.tick(1)
		if m := waits.kvs[1]; m.role != Follower || m.leader.Node != lead.id {
			t.Fatalf("tick %d: the member is %v, of leader %d", i, m.role, m.leader.Node)
		}
	}
	c.drop = nil
	c.tick(40)
	c.same(1, true)
}
