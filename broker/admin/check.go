package admin

import (
	"fmt"
	"slices"
)

// Verdict is the answer of a check.
type Verdict struct {
	Check    string    `json:"check"` // as it was asked for
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"` // why not; none if it is ok
	// Pauses are one-replica queues that the node owns: nobody serves them while it is away. They had no majority to
	// lose, so they are no finding.
	Pauses []string `json:"pauses"`
}

// Finding is one group for which a check does not hold.
type Finding struct {
	Group  string `json:"group"`
	Why    string `json:"why"`
	Needed string `json:"needed"` // for it to hold
}

// Checks of a cluster.
const (
	CheckCanStop         = "can-stop"
	CheckLeaderless      = "leaderless"
	CheckUnderReplicated = "under-replicated"
)

func newVerdict(check string) *Verdict {
	return &Verdict{Check: check, Findings: []Finding{}, Pauses: []string{}}
}

func (v *Verdict) find(group, needed, why string, args ...any) {
	v.Findings = append(v.Findings, Finding{group, fmt.Sprintf(why, args...), needed})
}

func (v *Verdict) done() Verdict {
	v.OK = len(v.Findings) == 0
	return *v
}

// CanStop says whether every group keeps a majority of its committed voters while a node is stopped. What cannot
// be shown is not so: a group whose members are being changed, or whose leader did not answer, is a finding.
func (c *Cluster) CanStop(node uint64) Verdict {
	v := newVerdict(CheckCanStop)
	for _, g := range c.views() {
		c.canLose(v, g, node)
	}
	return v.done()
}

func (c *Cluster) canLose(v *Verdict, g *view, node uint64) {
	if g.leader == nil {
		if o := g.owner(); o != nil { // it has no majority to lose, whatever came of its only copy
			if !c.ownedElsewhere(g, node) {
				v.Pauses = append(v.Pauses, g.queue.Metadata.Name)
			}
			return
		}
		s := c.state(g)
		if slices.Contains(s.CommittedVoters, node) || len(s.CommittedVoters) == 0 && s.Health != Changing &&
			!c.ownedElsewhere(g, node) {
			v.find(g.name, "a leader that answers", "it cannot be told whether it needs the node: %s", s.Why)
		}
		return
	}
	r := g.leader.Replication
	if r == nil {
		if g.node.Node == node && g.queue != nil {
			v.Pauses = append(v.Pauses, g.queue.Metadata.Name)
		}
		return
	}
	if !names(r.CommittedMembers, node) && !names(r.CurrentMembers, node) {
		return
	}
	if changing(r) {
		v.find(g.name, "wait until the change is done", "a change of its members is under way: committed voters are %v, "+
			"current ones %v", c.names(voterNodes(r.CommittedMembers)), c.names(voterNodes(r.CurrentMembers)))
		return
	}
	voters := voterNodes(r.CommittedMembers)
	if !slices.Contains(voters, node) {
		return // a learner is no loss
	}
	left := 0
	for _, f := range r.Followers {
		if !f.Learner && f.Node != node && c.inStep(g.leader, f) {
			left++
		}
	}
	if need := len(voters)/2 + 1; left < need {
		v.find(g.name, fmt.Sprintf("%d more voters in step", need-left),
			"without the node %d of its %d committed voters are in step, a majority is %d", left, len(voters), need)
	}
}

// ownedElsewhere says whether a queue with one replica is known to be on other nodes than this one.
func (c *Cluster) ownedElsewhere(g *view, node uint64) bool {
	if g.queue == nil || len(g.queue.Status.Placement) == 0 {
		return g.queue != nil
	}
	for _, p := range g.queue.Status.Placement {
		for _, m := range c.Registry.Nodes {
			if m.Spec.Fingerprint == p.Node && m.Metadata.UID == node {
				return false
			}
		}
	}
	return true
}

func names(list []Replica, node uint64) bool {
	return slices.ContainsFunc(list, func(m Replica) bool { return m.Node == node })
}

func (c *Cluster) names(nodes []uint64) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = c.nameOfNode(n)
	}
	return list
}

// Leaderless finds the groups that nobody leads, as far as it can be told.
func (c *Cluster) Leaderless() Verdict {
	v := newVerdict(CheckLeaderless)
	for _, g := range c.views() {
		if g.leader != nil {
			continue
		}
		if s := c.state(g); s.Health != Changing {
			v.find(g.name, s.Remedy, "%s", s.Why)
		}
	}
	return v.done()
}

// UnderReplicated finds the groups that have fewer voters in step than are wanted.
func (c *Cluster) UnderReplicated() Verdict {
	v := newVerdict(CheckUnderReplicated)
	for _, g := range c.views() {
		s := c.state(g)
		if s.InStep < s.Factor {
			why := fmt.Sprintf("%d of %d voters are in step", s.InStep, s.Factor)
			switch s.Why {
			case why:
			case "":
				why += ": its members are being changed"
			default:
				why += ": " + s.Why
			}
			v.find(g.name, s.Remedy, "%s", why)
		}
	}
	return v.done()
}
