package admin

import (
	"slices"
	"sync"

	"weida/broker/control"
)

// sight is the registry with what is known of the queues as they run: by this node, and by the others if there are
// some.
type sight struct {
	node Node
	reg  Registry
	led  map[uint64]*view // by uid; nil where there is no other node, or none was asked
	k    *Cluster         // nil likewise
	// alone is what this node knows; nil where nobody was to be asked.
	alone func() *Cluster
}

// look asks the other nodes for what they lead. Without a call nobody is asked: an answer to a change does not wait.
func (h *handler) look(c *call, reg Registry) *sight {
	s := &sight{node: h.node, reg: reg}
	if c == nil {
		return s
	}
	if len(reg.Nodes) < 2 {
		s.alone = sync.OnceValue(func() *Cluster { return h.cluster(c, false) })
		return s
	}
	s.k = h.cluster(c, true)
	s.k.Registry = reg
	s.led = make(map[uint64]*view, len(reg.Queues)+1)
	for _, v := range s.k.views() {
		s.led[v.id] = v
	}
	return s
}

// member is a node as it is answered.
func (s *sight) member(n control.Node) *Member {
	m := Member{Node: n}
	switch {
	case s.k != nil:
		m.Live = s.k.live(n.Number())
	case s.alone != nil:
		m.Live = s.alone().live(n.Number())
	}
	return &m
}

// queue is one as it is answered.
func (s *sight) queue(q *control.Queue, how answerOf) *Queue {
	out := &Queue{Queue: *q, Status: QueueStatus{Status: q.Status}, Changed: how.changed, DryRun: how.dry}
	if l, ok := s.node.Live(q.Metadata.UID); ok {
		out.Live = &l
	}
	v := s.led[q.Metadata.UID]
	switch {
	case out.Live != nil: // this node leads it
	case v != nil && v.leader != nil:
		out.Live = v.leader.Live
	case v != nil && v.hint != nil:
		out.Status.Leader = s.k.nameOfNode(v.hint.Replication.LeaderNode)
	}
	if out.Live != nil {
		out.Status.Leader = out.Live.Leader
	}
	if v != nil {
		if said, ok := s.k.unseen(v); ok {
			out.Status.Conditions = append(slices.Clone(q.Status.Conditions), said)
		}
	}
	return out
}
