package admin

import (
	"cmp"
	"fmt"
	"slices"

	"weida/broker/control"
)

// Cluster is what is known of all groups at one moment: the registry of the node that looks, and the facts of those
// that answered. What follows from it is computed, nothing is asked.
type Cluster struct {
	Now      int64 // milliseconds since 1970
	Registry Registry
	Facts    []Facts
}

const (
	// HeardMaxMS is how long ago a voter's last answer may be for it to count as there, in milliseconds: more than an
	// election takes.
	HeardMaxMS = 5_000
	// stalledMax is for how long a group may have something waiting and commit nothing, in milliseconds.
	stalledMax = 5_000
)

// GroupHealth says in one word how a group is, the worst last.
type GroupHealth string

// The healths.
const (
	Healthy     GroupHealth = "healthy"
	Changing    GroupHealth = "changing"    // its members are being changed
	Degraded    GroupHealth = "degraded"    // it takes messages, and something is missing
	Unknown     GroupHealth = "unknown"     // whoever would know did not answer
	Unavailable GroupHealth = "unavailable" // it takes no messages
)

var healths = []GroupHealth{Healthy, Changing, Degraded, Unknown, Unavailable}

// GroupState is where one group stands, as its leader or owner sees it.
type GroupState struct {
	Group      string      `json:"group"` // control, or queue/NAME
	ID         uint64      `json:"id"`
	Health     GroupHealth `json:"health"`
	Why        string      `json:"why"`        // it is not healthy, "" if it is
	Remedy     string      `json:"remedy"`     // what to do about it
	Leader     string      `json:"leader"`     // name of the leader's or owner's node, "" if it is not known
	LeaderNode uint64      `json:"leaderNode"` // its number, 0 if it is not known
	Term       uint64      `json:"term"`
	Factor     int         `json:"factor"` // voters wanted
	InStep     int         `json:"inStep"` // voters whose nodes answer now, and that are at most a moment behind
	// BehindEntries and BehindMS are of the voter that is furthest behind; -1 is not known, and 0 is told only if all are.
	BehindEntries int64  `json:"behindEntries"`
	BehindMS      int64  `json:"behindMs"`
	Committed     uint64 `json:"committed"` // index
	Waiting       uint64 `json:"waiting"`
	StalledMS     int64  `json:"stalledMs"`
	// CommittedVoters and CurrentVoters are nodes by number.
	CommittedVoters []uint64 `json:"committedVoters"`
	CurrentVoters   []uint64 `json:"currentVoters"`
	Changing        bool     `json:"changing"` // the two differ, or the configuration is joint
}

// view is one group with all that is known of it.
type view struct {
	name   string
	id     uint64
	queue  *control.Queue // nil of the control group
	factor int
	leader *Group // of the node that leads or owns it; nil if none says so
	node   *Facts // that of the leader
	// hint is a group that names a leader that did not answer; nil if there is none.
	hint *Group
	// word is what a replica of the newest term says of the members; nil if none was heard.
	word *Group
	// damaged are the replicas that know of damage on their disk that is not mended.
	damaged []damagedOn
	// several says that somebody knows of a consensus group, whatever is wanted by now.
	several bool
}

// ControlName is what the control group is called.
const ControlName = "control"

// QueueGroup is what a queue's group is called.
func QueueGroup(name string) string { return "queue/" + name }

// controlID is the group id of the control log.
const controlID = 1

// damagedOn is damage that is not mended, and where.
type damagedOn struct {
	node *Facts
	*GroupDamage
}

// views are all groups: the control group, then the queues by name.
func (c *Cluster) views() []*view {
	byID := make(map[uint64]*view, len(c.Registry.Queues)+1)
	list := []*view{{name: ControlName, id: controlID, factor: c.controlFactor()}}
	for i := range c.Registry.Queues {
		q := &c.Registry.Queues[i]
		list = append(list, &view{
			name: QueueGroup(q.Metadata.Name), id: q.Metadata.UID, queue: q, factor: q.Spec.Replicas,
		})
	}
	for _, v := range list {
		byID[v.id] = v
	}
	for i := range c.Facts {
		for j := range c.Facts[i].Groups {
			g := &c.Facts[i].Groups[j]
			if v := byID[g.ID]; v != nil {
				v.see(&c.Facts[i], g)
			}
		}
	}
	return list
}

func (c *Cluster) controlFactor() int {
	n := 0
	for _, m := range c.Registry.Nodes {
		if m.Status.Voter {
			n++
		}
	}
	return max(n, 1)
}

// see takes one replica's word. Of two leaders the one of the higher term counts.
func (v *view) see(f *Facts, g *Group) {
	v.several = v.several || g.Replication != nil
	if g.Replication != nil && (v.word == nil || g.Term > v.word.Term) {
		v.word = g
	}
	if g.Damage != nil && g.Damage.Open > 0 {
		v.damaged = append(v.damaged, damagedOn{f, g.Damage})
	}
	switch {
	case g.Role == RoleLeader || g.Role == RoleOwner:
		if v.leader == nil || g.Term > v.leader.Term {
			v.leader, v.node = g, f
		}
	case g.Replication != nil && g.Replication.LeaderNode != 0:
		if v.hint == nil || g.Term > v.hint.Term {
			v.hint = g
		}
	}
}

// Groups are the states of all groups, the worst first.
func (c *Cluster) Groups() []GroupState {
	views := c.views()
	list := make([]GroupState, 0, len(views))
	for _, v := range views {
		list = append(list, c.state(v))
	}
	slices.SortStableFunc(list, func(a, b GroupState) int {
		return cmp.Or(
			-cmp.Compare(slices.Index(healths, a.Health), slices.Index(healths, b.Health)),
			-cmp.Compare(a.BehindMS, b.BehindMS), -cmp.Compare(a.BehindEntries, b.BehindEntries),
			cmp.Compare(a.Group, b.Group),
		)
	})
	return list
}

// state judges one group.
func (c *Cluster) state(v *view) GroupState {
	s := GroupState{
		Group: v.name, ID: v.id, Health: Healthy, Factor: v.factor, BehindEntries: -1, BehindMS: -1,
		CommittedVoters: []uint64{}, CurrentVoters: []uint64{},
	}
	g := v.leader
	if g == nil {
		c.leaderless(v, &s)
		return s
	}
	s.Leader, s.LeaderNode, s.Term = c.nameOf(v.node), v.node.Node, g.Term
	s.Committed, s.Waiting, s.StalledMS = g.Committed, g.Waiting, g.StalledMS
	heard := 1
	if r := g.Replication; r != nil {
		s.CommittedVoters, s.CurrentVoters = voterNodes(r.CommittedMembers), voterNodes(r.CurrentMembers)
		s.Changing = changing(r)
		heard = c.follow(&s, g)
	} else {
		s.InStep, s.BehindEntries, s.BehindMS = 1, 0, 0
		s.CommittedVoters, s.CurrentVoters = []uint64{s.LeaderNode}, []uint64{s.LeaderNode}
	}
	s.judge(g, heard)
	if s.Health == Healthy && v.queue != nil {
		s.await(v.queue)
	}
	if len(v.damaged) > 0 && (s.Health == Healthy || s.Health == Changing) {
		c.judgeDamage(v, &s)
	}
	if v.queue != nil && (s.Health == Degraded || s.Health == Changing) {
		c.judgeLost(v.queue, &s)
	}
	return s
}

// judgeDamage says that a group that serves has damage on a disk.
func (c *Cluster) judgeDamage(v *view, s *GroupState) {
	d := v.damaged[0]
	s.Health = Degraded
	s.Why = fmt.Sprintf("%d damages on the disk of %s are not mended: %s", d.Open, c.nameOf(d.node), d.Why)
	switch {
	case !v.several:
		s.Remedy = "release or reject the messages that can't be read, or stop the node and put back a copy of the directory"
	case d.Stays != "":
		s.Remedy = "look at that node's disk; its replica is made anew from the others"
	default:
		s.Remedy = "wait: it comes again from the other replicas"
	}
}

// await says what the registry wants of a sound queue and its node has not made true yet.
func (s *GroupState) await(q *control.Queue) {
	switch m := q.Metadata; {
	case m.DeletionTimestamp != 0:
		s.Health, s.Why, s.Remedy = Changing, "it is being deleted", "wait"
	case q.Status.ObservedGeneration < m.Generation:
		s.Health, s.Remedy = Changing, "wait; `weida describe "+s.Group+"` says more"
		s.Why = fmt.Sprintf("generation %d of its spec is wanted, and %d is in force", m.Generation,
			q.Status.ObservedGeneration)
	}
}

func changing(r *Replication) bool {
	return r.Joint || !slices.Equal(members(r.CommittedMembers), members(r.CurrentMembers))
}

// members are a configuration's replicas in order, so that two can be compared.
func members(list []Replica) []Replica {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Replica) int { return cmp.Compare(a.Replica, b.Replica) })
	return list
}

func voterNodes(list []Replica) []uint64 {
	nodes := []uint64{}
	for _, m := range list {
		if !m.Learner {
			nodes = append(nodes, m.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// judge says how a group that has a leader is. heard is how many voters its leader counts on; those whose nodes do not
// answer now are not in step, for nobody has shown that they are.
func (s *GroupState) judge(g *Group, heard int) {
	say := func(h GroupHealth, why, remedy string, args ...any) {
		s.Health, s.Why, s.Remedy = h, fmt.Sprintf(why, args...), remedy
	}
	voters := len(s.CommittedVoters)
	switch {
	case g.Trouble != "" && g.DiskFull:
		say(Unavailable, "it takes no messages on %s: %s", "free some space; it goes on by itself", s.Leader, g.Trouble)
	case g.Trouble != "":
		say(Unavailable, "it takes no proposals on %s: %s", "mend the disk, then restart that node", s.Leader, g.Trouble)
	case s.StalledMS >= stalledMax:
		say(Unavailable, "%d proposals wait and nothing was committed for %d ms", "bring back the voters that do not answer",
			s.Waiting, s.StalledMS)
	case g.Replication != nil && s.InStep < voters/2+1 && heard >= voters/2+1:
		say(Unknown, "%d of %d voters answer now, a majority is %d", "bring back the nodes of the voters that do not answer",
			s.InStep, voters, voters/2+1)
	case g.Replication != nil && s.InStep < voters/2+1:
		say(Unavailable, "%d of %d voters answer, a majority is %d", "bring back the voters that do not answer",
			s.InStep, voters, voters/2+1)
	case s.InStep < min(s.Factor, voters):
		say(Degraded, "%d of %d voters are in step", "bring back the node of the voter that is not, or wait until it has "+
			"caught up", s.InStep, voters)
	case s.Changing:
		say(Changing, "a change of its members is under way", "wait")
	case voters < s.Factor:
		say(Degraded, "it has %d voters and %d are wanted", "add a node, or wait until it has been placed", voters, s.Factor)
	}
}

// away says whether the node with that fingerprint did not answer.
func (c *Cluster) away(fingerprint string) bool {
	n := c.nodeNamed(fingerprint)
	if n == nil {
		return false
	}
	f := c.factsOf(n.Number())
	return f == nil || f.Why != ""
}

func (c *Cluster) factsOf(node uint64) *Facts {
	for i := range c.Facts {
		if c.Facts[i].Node == node {
			return &c.Facts[i]
		}
	}
	return nil
}

func (c *Cluster) nameOf(f *Facts) string {
	if f.Name != "" {
		return f.Name
	}
	return c.nameOfNode(f.Node)
}

func (c *Cluster) nameOfNode(number uint64) string {
	for i := range c.Registry.Nodes {
		if m := &c.Registry.Nodes[i]; m.Metadata.UID == number {
			return m.Metadata.Name
		}
	}
	return fmt.Sprintf("node %d", number)
}

// nameOfKey is the name of the node with that fingerprint, or the fingerprint.
func (c *Cluster) nameOfKey(fingerprint string) string {
	for i := range c.Registry.Nodes {
		if m := &c.Registry.Nodes[i]; m.Spec.Fingerprint == fingerprint {
			return m.Metadata.Name
		}
	}
	return fingerprint
}
