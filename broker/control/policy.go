package control

import (
	"cmp"
	"fmt"
	"slices"
)

// This file is the policy of placement: where a queue is to be, as a consequence of the registry and
// of which nodes can be reached. A replica stays where it is as long as it may; one that takes the place of a
// damaged one is made on the same disk; any other goes to the least loaded node that has none of the queue,
// which is the one with the fewest replicas, then the fewest to lead, then the smallest number. Pins come first.
// Replicas are not moved to even out their number.

// anywhere takes every node to be reachable.
func anywhere(uint64) bool { return true }

// takes says whether replicas are placed on a node.
func takes(n *Node) bool { return n.Status.State == NodeMember && n.Status.Disk != "" }

// wanted are the nodes that a queue is to be on, or the reason why that cannot be.
func (s *State) wanted(q *Queue, reach func(uint64) bool) ([]Spot, *Condition) {
	rows := s.base(&q.Status)
	if why := s.lostData(&q.Status); why != nil {
		return nil, why
	}
	pick, why := s.pinned(q)
	if why != nil {
		return nil, why
	}
	n := q.Spec.Replicas
	add := func(number uint64) {
		if len(pick) < n && !slices.Contains(pick, number) {
			pick = append(pick, number)
		}
	}
	stay := s.staying(rows, reach)
	for _, r := range stay {
		if takes(s.nodeOf(r.Number)) {
			add(r.Number)
		}
	}
	for _, number := range s.rebuilt(rows, reach) {
		add(number)
	}
	if p := s.nodeNamed(q.Spec.Placement.PreferredLeader); p != nil && takes(p) && len(rows) == 0 {
		add(p.Number())
	}
	for _, number := range s.byLoad(reach) {
		add(number)
	}
	for _, r := range stay {
		if !r.Learner {
			add(r.Number) // on a node that is to be emptied: there is no other yet
		}
	}
	if len(pick) < n {
		return nil, s.tooFew(n)
	}
	return s.led(q, pick, reach), nil
}

// unchanged is the decision to stay with the voters that are, nil if that is none.
func (s *State) unchanged(rows []Replica) []Spot {
	var want []Spot
	lead := 0
	for i := range rows {
		p := &rows[i]
		if p.Learner {
			continue
		}
		if !s.good(p) {
			return nil
		}
		if p.Lead {
			lead = len(want)
		}
		want = append(want, Spot{Number: p.Number})
	}
	if len(want) > 0 {
		want[lead].Lead = true
	}
	return want
}

// pinned are the nodes that the spec names.
func (s *State) pinned(q *Queue) (pick []uint64, why *Condition) {
	for _, name := range q.Spec.Placement.Nodes {
		n := s.nodeNamed(name)
		switch {
		case n == nil:
			return nil, &Condition{CondPlacement, "NoSuchNode", clip(fmt.Sprintf("spec.placement.nodes names %q, and the nodes "+
				"are %s; pin it to these, or pin nothing", q.Spec.Placement.Nodes, s.nodeNames()), messageMax)}
		case slices.ContainsFunc(q.Status.Placement, func(r Replica) bool {
			return r.Number == n.Number() && s.good(&r) && !r.Learner
		}):
			// It is there. A pin outweighs that the node is to be emptied: who removes the node changes the pin first.
		case !takes(n):
			return nil, &Condition{CondPlacement, "NodeNotReady", fmt.Sprintf("spec.placement.nodes names %q, which is %s and "+
				"takes no replicas; pin it elsewhere, or wait until it is a member", name, n.Status.State)}
		}
		if !slices.Contains(pick, n.Number()) {
			pick = append(pick, n.Number())
		}
	}
	return pick, nil
}

// staying are the replicas that may stay: voters first, of those who can be reached, of those who is to lead.
func (s *State) staying(rows []Replica, reach func(uint64) bool) []Replica {
	var list []Replica
	for _, r := range rows {
		if s.good(&r) && (!r.Learner || r.Made || reach(r.Number)) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(rank(a.Learner), rank(b.Learner)),
			cmp.Compare(rank(!reach(a.Number)), rank(!reach(b.Number))), cmp.Compare(rank(!a.Lead), rank(!b.Lead)))
	})
	return list
}

// rebuilt are the nodes that have a lost replica, and its disk: another one is made where it was.
func (s *State) rebuilt(rows []Replica, reach func(uint64) bool) (list []uint64) {
	for _, r := range rows {
		n := s.nodeOf(r.Number)
		if r.Lost != "" && n != nil && takes(n) && n.Status.Disk == r.Disk && reach(r.Number) {
			list = append(list, r.Number)
		}
	}
	return list
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// byLoad are the nodes that take replicas, the least loaded first, and last those that cannot be reached.
func (s *State) byLoad(reach func(uint64) bool) []uint64 {
	var list []uint64
	away := make(map[uint64]int)
	for _, n := range s.nodesByNumber() {
		if takes(n) {
			list = append(list, n.Number())
			away[n.Number()] = rank(!reach(n.Number()))
		}
	}
	slices.SortStableFunc(list, func(a, b uint64) int {
		x, y := s.loads[a], s.loads[b]
		return cmp.Or(cmp.Compare(away[a], away[b]), cmp.Compare(x.Replicas, y.Replicas), cmp.Compare(x.Leads, y.Leads))
	})
	return list
}

func (s *State) tooFew(n int) *Condition {
	have := 0
	for _, o := range s.nodes {
		if takes(o) {
			have++
		}
	}
	return &Condition{CondPlacement, "NotEnoughNodes", fmt.Sprintf("%d replicas need %d nodes, and %d take any: add "+
		"nodes, or ask for fewer replicas", n, n, have)}
}

// led are the nodes with the one among them that is to lead: the preferred one, else the one that is to lead
// now, else the one that leads the fewest.
func (s *State) led(q *Queue, pick []uint64, reach func(uint64) bool) []Spot {
	var lead uint64
	if p := s.nodeNamed(q.Spec.Placement.PreferredLeader); p != nil && slices.Contains(pick, p.Number()) && takes(p) {
		lead = p.Number()
	}
	for _, r := range q.Status.Placement {
		if r.Lead && lead == 0 && slices.Contains(pick, r.Number) && s.good(&r) && takes(s.nodeOf(r.Number)) {
			lead = r.Number
		}
	}
	if lead == 0 {
		lead = slices.MinFunc(pick, func(a, b uint64) int {
			return cmp.Or(cmp.Compare(rank(!takes(s.nodeOf(a))), rank(!takes(s.nodeOf(b)))),
				cmp.Compare(rank(!reach(a)), rank(!reach(b))),
				cmp.Compare(s.loads[a].Leads, s.loads[b].Leads), cmp.Compare(a, b))
		})
	}
	spots := make([]Spot, len(pick))
	for i, n := range pick {
		spots[i] = Spot{Number: n, Lead: n == lead}
	}
	return spots
}

// differs says whether a decision changes where something is, or which of its replicas is to lead.
func (s *State) differs(rows []Replica, want []Spot) (place, lead bool) {
	to, gone := s.relocate(rows, want)
	if len(to) != len(rows) || len(gone) > 0 {
		return true, true
	}
	for i := range to {
		lead = lead || to[i].Lead != rows[i].Lead
		to[i].Lead = rows[i].Lead
	}
	return !slices.Equal(to, rows), lead
}

// fits says whether a queue is where its spec wants it, and if it cannot be, why.
func (s *State) fits(q *Queue) (bool, *Condition) {
	want, why := s.wanted(q, anywhere)
	if why != nil {
		return false, why
	}
	place, _ := s.differs(q.Status.Placement, want)
	return !place && q.Status.Step == Steady, nil
}

// warnings are conditions of a queue that is ready all the same.
func (s *State) warnings(q *Queue) []Condition {
	var list []Condition
	if n := q.Spec.Replicas; n%2 == 0 {
		list = append(list, Condition{CondPlacement, "EvenReplicas", fmt.Sprintf(
			"%d replicas tolerate the loss of %d, as %d do: use an odd number", n, (n-1)/2, n-1)})
	}
	name := q.Spec.Placement.PreferredLeader
	if name == "" {
		return list
	}
	n := s.nodeNamed(name)
	if n == nil || !slices.ContainsFunc(q.Status.Placement, func(r Replica) bool { return r.Number == n.Number() }) {
		list = append(list, Condition{CondPlacement, "PreferredLeaderAbsent", clip(fmt.Sprintf(
			"spec.placement.preferredLeader names %q, which holds no replica; the nodes are %s", name, s.nodeNames()),
			messageMax)})
	}
	return list
}

// controlWanted are the members that the control group is to have: every node that has come and is not being
// removed. Of those an odd number votes, at most ControlVotersMax and never two (X-5, T-37): first who does so
// already, then who can be reached; who is to be emptied only if there is nobody else. nil leaves what is.
func (s *State) controlWanted(reach func(uint64) bool) []Spot {
	votes, here := make(map[uint64]bool), make(map[uint64]bool)
	now, fresh := 0, 0
	for _, r := range s.cluster.Replicas {
		here[r.Number] = here[r.Number] || s.good(&r)
		if !r.Learner {
			now++
			votes[r.Number] = votes[r.Number] || s.good(&r)
		}
	}
	var list []*Node
	able := 0
	for _, n := range s.nodesByNumber() {
		if n.Metadata.DeletionTimestamp != 0 || n.Status.Disk == "" && !here[n.Number()] {
			continue
		}
		if !here[n.Number()] {
			if fresh++; fresh > ReplicasPerEntry {
				continue // the next decision takes it in
			}
		}
		list = append(list, n)
		if votes[n.Number()] || reach(n.Number()) {
			able++
		}
	}
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(rank(a.Status.State == NodeDraining), rank(b.Status.State == NodeDraining)),
			cmp.Compare(rank(!votes[a.Number()]), rank(!votes[b.Number()])),
			cmp.Compare(rank(!reach(a.Number())), rank(!reach(b.Number()))))
	})
	voters := max(votersOf(able), 1)
	if voters < min(now, 3) {
		return nil // rather stay until enough can be reached
	}
	elected := make(map[uint64]bool, voters)
	for _, n := range order {
		if len(elected) < voters && (votes[n.Number()] || reach(n.Number())) {
			elected[n.Number()] = true
		}
	}
	spots := make([]Spot, len(list))
	for i, n := range list {
		spots[i] = Spot{Number: n.Number(), Learner: !elected[n.Number()]}
	}
	return spots
}

// connectorWanted is the node that a connector is to run on, 0 with the reason if there is none. Its policy may
// pin it to one as "node".
func (s *State) connectorWanted(c *Connector, reach func(uint64) bool) (uint64, *Condition) {
	if name := c.Spec.Policy["node"]; name != "" {
		n := s.nodeNamed(name)
		if n == nil || n.Metadata.DeletionTimestamp != 0 || n.Status.Disk == "" {
			return 0, &Condition{CondPlacement, "NoSuchNode", clip(fmt.Sprintf("spec.policy.node names %q, and the nodes are %s",
				name, s.nodeNames()), messageMax)}
		}
		return n.Number(), nil
	}
	for _, r := range c.Status.Placement {
		if s.good(&r) && takes(s.nodeOf(r.Number)) {
			return r.Number, nil
		}
	}
	if why := s.unattached(c); why != nil && len(c.Status.Placement) == 0 {
		return 0, why
	}
	best, found := uint64(0), false
	for _, n := range s.nodesByNumber() {
		worse := func() int {
			return cmp.Or(cmp.Compare(rank(!reach(n.Number())), rank(!reach(best))),
				cmp.Compare(s.loads[n.Number()].Connectors, s.loads[best].Connectors))
		}
		if takes(n) && (!found || worse() < 0) {
			best, found = n.Number(), true
		}
	}
	if !found {
		return 0, &Condition{CondPlacement, "NotEnoughNodes", "no node takes connectors; add one, or end draining"}
	}
	return best, nil
}
