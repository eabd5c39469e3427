package control

import (
	"fmt"
	"slices"
)

// This file is how a replica is given up whose files are damaged or gone. What is left of it is set aside by its
// node; another one, with an id of its own, takes its place.

// lost notes that a replica will not come back.
func (s *State) lost(c *Lost) Result {
	if c.Kind == KindCluster {
		return s.lostMember(c)
	}
	o := s.findUID(KindQueue, c.UID)
	if o.meta == nil || c.Kind != "" && c.Kind != KindQueue {
		return Result{Err: gone(KindQueue, c.UID)}
	}
	rows, why := s.withoutLost(c, o.status.Step, o.status.Placement)
	if why != nil || rows == nil {
		if why != nil {
			why.Kind, why.Name, why.Now = KindQueue, o.meta.Name, o.meta.ResourceVersion
		}
		return o.result(false, why)
	}
	s.setRows(o, rows)
	s.moved(o)
	return o.result(true, nil)
}

// lostMember notes that a node's replica of the control log will not come back.
func (s *State) lostMember(c *Lost) Result {
	rows, why := s.withoutLost(c, s.cluster.Step, s.cluster.Replicas)
	if why != nil || rows == nil {
		if why != nil {
			why.Kind = KindCluster
		}
		return Result{Err: why}
	}
	s.cluster.Replicas = rows
	s.seat()
	return Result{Changed: true}
}

// withoutLost is a placement in which a replica is lost, nil if it is so already.
func (s *State) withoutLost(c *Lost, step Step, rows []Replica) ([]Replica, *Error) {
	at := slices.IndexFunc(rows, func(r Replica) bool { return r.Replica == c.Replica })
	switch {
	case at < 0:
		err := &Error{Reason: Conflict, Message: fmt.Sprintf("it has no replica %d", c.Replica)}
		if c.Kind != "" {
			err.Reason = NotFound
		}
		return nil, err
	case rows[at].Owner:
		return nil, &Error{Reason: Invalid, Message: "it has an owner alone: nothing can take the place of its messages"}
	case flaw(c.Reason, 1, wordMax) != "":
		return nil, &Error{Reason: Invalid, Message: "the reason " + flaw(c.Reason, 1, wordMax)}
	case rows[at].Lost != "":
		return nil, nil
	}
	rows = slices.Clone(rows)
	rows[at].Lost = c.Reason
	if c.Kind != "" && !rows[at].Learner && (s.mostLost(rows) || s.mostLost(Members(step, rows))) {
		return nil, &Error{Reason: Conflict, Message: fmt.Sprintf("replica %d cannot be given up: of the voters, too few "+
			"would be left to go on without it; nothing was moved or changed, and its files may be all there is; bring "+
			"another replica back first, or restore its files", c.Replica)}
	}
	return rows, nil
}
