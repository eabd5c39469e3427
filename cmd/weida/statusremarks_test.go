package main

import (
	"bytes"
	"fmt"
	"testing"

	"weida/broker/admin"
	"weida/broker/control"
)

// TestRemarks: what is true of many groups is said once, with the nodes that are away, and what it means.
func TestRemarks(t *testing.T) {
	member := func(number uint64, reached bool) admin.Member {
		name := fmt.Sprintf("n%d", number)
		return admin.Member{
			Node: control.Node{Metadata: control.Metadata{Name: name, UID: number}},
			Live: &admin.MemberLive{Reached: reached},
		}
	}
	c := &admin.ClusterStatus{Nodes: []admin.Member{member(1, true), member(2, false), member(3, true), member(4, false)}}
	add := func(name string, health admin.GroupHealth, why, remedy string, voters ...uint64) {
		c.Groups = append(c.Groups, admin.GroupState{
			Group: name, Health: health, Why: why, Remedy: remedy, CurrentVoters: voters,
		})
	}
	add("queue/one", admin.Unavailable, "its owner, n2, does not answer", "bring it back", 2)
	for i := range 7 {
		add(fmt.Sprintf("queue/q%d", i), admin.Degraded, "2 of 3 voters are in step", "wait", 1, 2, 3)
	}
	add("queue/both", admin.Degraded, "3 of 5 voters are in step", "wait", 1, 2, 3, 4)
	add("queue/here", admin.Degraded, "2 of 3 voters are in step", "wait", 1, 3)
	add("queue/fine", admin.Healthy, "", "", 1, 2, 3)
	var b bytes.Buffer
	writeRemarks(&b, c)
	const want = `! queue/one takes nothing: its owner, n2, does not answer; bring it back
! queue/q0, queue/q1, queue/q2, queue/q3, queue/q4 and 2 more go on: 2 of 3 voters are in step, n2 does not answer; wait
! queue/both goes on: 3 of 5 voters are in step, n2 and n4 do not answer; wait
! queue/here goes on: 2 of 3 voters are in step; wait
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
