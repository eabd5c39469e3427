package admin

import (
	"fmt"

	"weida/broker/control"
)

// This file judges groups that nobody leads, as far as those who answered know.

// leaderless judges a group of which nobody who answered is the leader.
func (c *Cluster) leaderless(v *view, s *GroupState) {
	if v.word != nil {
		r := v.word.Replication
		s.Term, s.Committed = v.word.Term, v.word.Committed
		s.CommittedVoters, s.CurrentVoters = voterNodes(r.CommittedMembers), voterNodes(r.CurrentMembers)
		s.Changing = changing(r)
	}
	if v.hint != nil {
		s.Term, s.Committed = v.hint.Term, v.hint.Committed
		if node := v.hint.Replication.LeaderNode; !c.answers(node) {
			s.Health = Unknown
			s.Why = fmt.Sprintf("its leader is said to be %s, which did not answer", c.nameOfNode(node))
			s.Remedy = "look at that node; if it is gone the others elect another leader"
			return
		}
	}
	s.Health, s.Why, s.Remedy = Unavailable, "no node leads it", "bring back the nodes of its voters"
	if there, of := c.present(v); of > 0 {
		s.Why += fmt.Sprintf(": %d of %d voters answer, a majority is %d", there, of, of/2+1)
		if there > of/2 {
			s.Why = fmt.Sprintf("no node leads it yet: %d of %d voters answer, and an election is under way", there, of)
			s.Remedy = "wait a moment; if it lasts, the logs of these nodes say why"
		}
	}
	if v.queue != nil {
		c.unserved(v, s)
	}
}

// unserved says what the registry knows of a queue that nobody serves.
func (c *Cluster) unserved(v *view, s *GroupState) {
	st := v.queue.Status
	owner := v.owner()
	switch {
	case v.queue.Metadata.DeletionTimestamp != 0:
		s.Health, s.Why, s.Remedy = Changing, "it is being deleted", "wait"
	case owner != nil && c.away(owner.Node):
		s.Why = fmt.Sprintf("its owner, %s, does not answer", c.nameOfKey(owner.Node))
		s.Remedy = "bring that node back: the only copy is there"
	case st.ObservedGeneration == 0 && len(st.Conditions) > 0:
		s.Why, s.Remedy = st.Conditions[0].Message, "`weida describe "+v.name+"` says more"
	case owner != nil:
		s.Why = fmt.Sprintf("its owner, %s, does not serve it", c.nameOfKey(owner.Node))
		s.Remedy = "`weida describe " + v.name + "` says more"
		for _, said := range st.Conditions {
			if said.Type == control.CondGroup && damageReasons[said.Reason] {
				s.Why = fmt.Sprintf("its only copy, on %s, is damaged (%s): %s", c.nameOfKey(owner.Node), said.Reason,
					said.Message)
				s.Remedy = "stop that node and put back a copy of the queue's directory, then start it"
			}
		}
	}
}

// damageReasons are the reasons of conditions that say that a replica can't be opened as it is.
var damageReasons = map[string]bool{
	"Missing": true, "Corrupt": true, "Unreadable": true, "Poisoned": true, "Forgot": true,
}

// owner is where the only copy of a queue is; nil if it has several, or none yet.
func (v *view) owner() *control.Replica {
	if v.queue == nil || v.factor != 1 || v.several || len(v.queue.Status.Placement) != 1 {
		return nil
	}
	return &v.queue.Status.Placement[0]
}

// present is how many of a group's voters have a replica on a node that answers and runs it, and how many there are;
// 0 of 0 if nobody knows, or it has an owner.
func (c *Cluster) present(v *view) (there, of int) {
	var nodes []uint64
	switch {
	case v.word != nil:
		nodes = voterNodes(v.word.Replication.CurrentMembers)
	case v.queue != nil && v.factor > 1:
		for _, p := range v.queue.Status.Placement {
			if !p.Learner {
				nodes = append(nodes, p.Number)
			}
		}
	}
	for _, n := range nodes {
		if f := c.factsOf(n); f != nil && f.runs(v.id) {
			there++
		}
	}
	return there, len(nodes)
}

// runs says whether a node told of its replica of a group.
func (f *Facts) runs(id uint64) bool {
	for i := range f.Groups {
		if f.Groups[i].ID == id {
			return f.Why == ""
		}
	}
	return false
}

// NotServed is the type of the condition of a queue that nobody who was asked serves, as far as it can be seen. It is
// no part of the registry.
const NotServed = "Service"

// unseen is the condition of a queue that nobody who answered serves; false if it is served, or is not to be yet.
func (c *Cluster) unseen(v *view) (control.Condition, bool) {
	q := v.queue
	if q == nil || q.Status.ObservedGeneration == 0 || q.Metadata.DeletionTimestamp != 0 {
		return control.Condition{}, false
	}
	s := c.state(v)
	reason := ""
	switch s.Health {
	case Unavailable:
		reason = "NotServed"
	case Unknown:
		reason = "OutOfSight"
	default:
		return control.Condition{}, false
	}
	if v.leader != nil && v.leader.Trouble != "" {
		return control.Condition{}, false // that is told as its trouble
	}
	return control.Condition{Type: NotServed, Reason: reason, Message: s.Why + "; " + s.Remedy}, true
}
