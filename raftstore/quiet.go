package raftstore

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// This file holds quiescence: a group that has nothing to do is not ticked.

// hush takes a leader's word that the group is idle.
func (r *replica) hush(*letter) {}

// wake ends the quiet.
func (r *replica) wake() { r.hushed = false }

// news says that a node came or went. It reports whether the replica has something to do.
func (r *replica) news(n NodeID) bool {
	r.unreachable(n)
	return r.leads()
}

// takePayload takes what came on the payload connection.
func (r *replica) takePayload(l *letter) {
	if l.body.kind == bodyFrame {
		r.gate.room.putBody(l.from, l.body.body.Ref, l.body.body.Digest, l.body.bytes)
	}
}

// sendSnapshot sends the newest snapshot to a member that the log does not reach any more.
func (r *replica) sendSnapshot(_ NodeID, m *raftpb.Message) {
	r.guard(func() { r.node.ReportSnapshot(m.GetTo(), raft.SnapshotFailure) })
}
