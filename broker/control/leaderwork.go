package control

import "slices"

// cluster looks after the members of the control group, and the nodes that are to be emptied. Here it is this
// node itself that serves the group.
func (r *LeaderReconciler) cluster(t *task, s *State) outcome {
	if len(s.nodes) == 0 {
		return outcome{}
	}
	for _, n := range s.nodesByNumber() {
		if n.Metadata.DeletionTimestamp != 0 || n.Status.State == NodeDraining {
			r.fresh(n.Number())
		}
	}
	g, err := r.rt.ControlGroup()
	switch {
	case err != nil:
		return outcome{wait: r.failed(t)}
	case !g.Serves:
		return outcome{wait: r.o.Poll}
	}
	c := &s.cluster
	if made := held(c.Replicas, g.Members); len(made) > 0 {
		return outcome{command: &Command{Observe: &Observe{Kind: KindCluster, Made: made}}}
	}
	if want := s.controlWanted(r.rt.Reachable); want != nil && c.Step != Switching {
		if place, _ := s.differs(c.Replicas, want); place {
			return outcome{command: &Command{Place: &Place{Kind: KindCluster, Epoch: c.Epoch, Want: want}}}
		}
	}
	members := Members(c.Step, c.Replicas)
	rest, stuck := s.revoked(c.Step, c.Replicas, g.Members)
	switch {
	case stuck && !g.Changing:
		return outcome{command: &Command{Stuck: &Stuck{Kind: KindCluster, Epoch: c.Epoch}}}
	case rest != nil && !g.Changing:
		return r.members(t, rest)
	case g.Changing || !current(c.Step, c.Replicas, g.Members, s.version):
		return outcome{wait: r.o.Poll}
	case c.Step == Switching && !s.risen(c.Replicas, g.Members) && !configured(g.Members, members):
		return outcome{wait: r.o.Poll}
	case !configured(g.Members, members):
		return r.members(t, members)
	case c.Step == Adding && !s.risen(c.Replicas, g.Members):
		return outcome{wait: r.o.Poll}
	case c.Step != Steady:
		return outcome{command: &Command{Reached: &Reached{Kind: KindCluster, Epoch: c.Epoch}}}
	}
	t.fails = 0
	if slices.ContainsFunc(c.Replicas, func(p Replica) bool { return !p.Made }) {
		return outcome{wait: r.o.Poll} // one that learns is a member when it has caught up
	}
	return outcome{}
}

// members asks the control group for its members.
func (r *LeaderReconciler) members(t *task, list []Replica) outcome {
	if err := r.rt.ReconfigureControl(list); err != nil {
		return outcome{wait: r.failed(t)}
	}
	return outcome{wait: r.o.Poll}
}

// held are the replicas that are there and are not known to be.
func held(rows []Replica, have []Member) []uint64 {
	var list []uint64
	for _, p := range rows {
		if m := memberOf(have, p.Replica); m != nil && m.CaughtUp && !p.Made {
			list = append(list, p.Replica)
		}
	}
	return list
}

// hop is a way to move leadership: of this queue from one node to another.
type hop struct{ from, to uint64 }

// balance evens out who leads how much: no node that takes replicas is to lead more than a tenth of the
// average more than another, if that can be had by moving leaderships alone. Preferred leaders stay.
// It decides on one at a time.
func (r *LeaderReconciler) balance(s *State) outcome {
	var nodes []uint64
	total := 0
	for _, n := range s.nodesByNumber() {
		if takes(n) {
			nodes = append(nodes, n.Number())
			total += s.loads[n.Number()].Leads
		}
	}
	if len(nodes) < 2 {
		return outcome{}
	}
	leads := func(n uint64) int { return s.loads[n].Leads }
	slices.SortStableFunc(nodes, func(a, b uint64) int { return leads(b) - leads(a) })
	most, least := leads(nodes[0]), leads(nodes[len(nodes)-1])
	slack := max(1, total/len(nodes)/10)
	if most-least <= slack {
		return outcome{}
	}
	hops := s.hops(r.rt.Sound)
	for _, from := range nodes {
		if leads(from)-least <= slack {
			return outcome{}
		}
		if h, ok := lastHop(from, nodes, hops, func(n uint64) bool { return leads(from)-leads(n) > slack }); ok {
			q := hops[h]
			return outcome{command: &Command{Place: &Place{
				Kind: KindQueue, UID: q.Metadata.UID, Generation: q.Metadata.Generation, Epoch: q.Status.Epoch,
				Want: leadBy(q.Status.Placement, h.to),
			}}}
		}
	}
	return outcome{}
}

// hops are the moves of leadership that are possible, each with the oldest queue that allows it. None goes to a node
// whose disk ails.
func (s *State) hops(sound func(uint64) bool) map[hop]*Queue {
	hops := make(map[hop]*Queue)
	for _, q := range s.queuesByUID() {
		st := &q.Status
		if st.Step != Steady || q.Metadata.DeletionTimestamp != 0 || q.Spec.Placement.PreferredLeader != "" {
			continue
		}
		at := slices.IndexFunc(st.Placement, func(p Replica) bool { return p.Lead })
		if at < 0 {
			continue
		}
		for i := range st.Placement {
			p := &st.Placement[i]
			h := hop{st.Placement[at].Number, p.Number}
			if i != at && s.good(p) && takes(s.nodeOf(p.Number)) && hops[h] == nil && sound(p.Number) {
				hops[h] = q
			}
		}
	}
	return hops
}

// lastHop is the last move of the shortest way from one node to one that is far enough below. The way is gone
// from its end: every move leaves somebody less loaded than before.
func lastHop(from uint64, nodes []uint64, hops map[hop]*Queue, below func(uint64) bool) (hop, bool) {
	came := map[uint64]uint64{from: 0}
	queue := []uint64{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, n := range slices.Backward(nodes) { // the least loaded first
			if _, seen := came[n]; seen || hops[hop{at, n}] == nil {
				continue
			}
			if below(n) {
				return hop{at, n}, true
			}
			came[n] = at
			queue = append(queue, n)
		}
	}
	return hop{}, false
}

// leadBy is the placement that stands, led by another node.
func leadBy(rows []Replica, lead uint64) []Spot {
	spots := make([]Spot, len(rows))
	for i, p := range rows {
		spots[i] = Spot{Number: p.Number, Lead: p.Number == lead}
	}
	return spots
}
