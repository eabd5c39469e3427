package admin

import (
	"fmt"

	"weida/broker/control"
)

// lostOf are the replicas of a queue that were given up and are not replaced yet.
func lostOf(q *control.Queue) (list []control.Replica) {
	for _, p := range q.Status.Placement {
		if p.Lost != "" {
			list = append(list, p)
		}
	}
	return list
}

// lostReplicas counts them.
func lostReplicas(reg *Registry) (n int) {
	for i := range reg.Queues {
		n += len(lostOf(&reg.Queues[i]))
	}
	return n
}

// judgeLost says of a group that something is missing in that a replica of it was given up.
func (c *Cluster) judgeLost(q *control.Queue, s *GroupState) {
	for _, p := range lostOf(q) {
		s.Why = fmt.Sprintf("replica %d on %s is lost (%s), and another one takes its place", p.Replica,
			c.nameOfKey(p.Node), p.Lost)
		s.Remedy = "wait; the node's log says what was found, and what is left lies aside on its disk"
	}
}
