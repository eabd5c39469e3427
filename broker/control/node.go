package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NodesMax bounds the members of a cluster.
const NodesMax = 64

// NodeState says how far a node belongs to the cluster.
type NodeState string

// The states of nodes. The record of one that was removed is gone.
const (
	NodeJoining  NodeState = "joining"  // known, and not yet counted: it learns the control log
	NodeMember   NodeState = "member"   // queues are placed on it
	NodeDraining NodeState = "draining" // what is on it moves away; it stays a member
	NodeRemoving NodeState = "removing" // likewise, and then it leaves the cluster
)

// NodeSpec says who a node is and where. Its identity is the fingerprint of its key, nothing else (T-7).
type NodeSpec struct {
	Fingerprint string `json:"fingerprint"`
	Address     string `json:"address"` // host:port of the messaging port
	Admin       string `json:"admin"`   // host:port of the admin port; "" if there is none
}

// NodeStatus is what is known of a node.
type NodeStatus struct {
	State NodeState `json:"state"`
	Voter bool      `json:"voter"` // of the control group
	// Disk is the id of its data directory's disk, "" before it has come for the first time.
	Disk string `json:"disk"`
	// Incarnation counts the starts of the node on that disk, as it last registered.
	Incarnation uint64      `json:"incarnation"`
	Conditions  []Condition `json:"conditions,omitempty"`
}

// Node is one member of the cluster. Its Metadata.UID is its number: the index of the entry that added it;
// those that the cluster began with are 1, 2, … in order of their fingerprints. It is never used again.
type Node struct {
	Kind     Kind       `json:"kind"`
	Metadata Metadata   `json:"metadata"`
	Spec     NodeSpec   `json:"spec"`
	Status   NodeStatus `json:"status"`
}

// Number is the node's number.
func (n *Node) Number() uint64 { return n.Metadata.UID }

// Counts says whether a node is a member that stays: not joining any more, and not about to leave.
func (n *Node) Counts() bool {
	return n.Metadata.DeletionTimestamp == 0 && n.Status.State != NodeJoining
}

func (n *Node) clone() Node {
	c := *n
	c.Status.Conditions = cloneList(n.Status.Conditions)
	return c
}

// Register is a node's word about itself: at every start, and when something of it has changed.
type Register struct {
	NodeSpec
	Name        string // used by the first node of an empty registry
	Disk        string
	Incarnation uint64
	At          int64 // milliseconds since 1970
}

// Node returns a copy of the node of that name or fingerprint.
func (s *State) Node(name string) (Node, bool) {
	if n := s.nodeNamed(name); n != nil {
		return n.clone(), true
	}
	return Node{}, false
}

// NodeOf returns a copy of the node with that number.
func (s *State) NodeOf(number uint64) (Node, bool) {
	if n := s.nodeOf(number); n != nil {
		return n.clone(), true
	}
	return Node{}, false
}

// Nodes returns copies of all nodes in order of their numbers.
func (s *State) Nodes() []Node {
	list := make([]Node, 0, len(s.nodes))
	for _, n := range s.nodesByNumber() {
		list = append(list, n.clone())
	}
	return list
}

func (s *State) nodeOf(number uint64) *Node {
	if n, ok := s.names[number]; ok && n.kind == KindNode {
		return s.nodes[n.name]
	}
	return nil
}

func (s *State) nodeNamed(name string) *Node {
	if n := s.nodes[name]; n != nil {
		return n
	}
	for _, n := range s.nodes {
		if n.Spec.Fingerprint == name {
			return n
		}
	}
	return nil
}

func (s *State) nodesByNumber() []*Node {
	list := make([]*Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *Node) int { return cmp.Compare(a.Number(), b.Number()) })
	return list
}

func (s *State) putNode(n *Node) object {
	if s.nodes == nil {
		s.nodes = make(map[string]*Node)
	}
	s.nodes[n.Metadata.Name] = n
	s.note(n.Metadata.UID, named{KindNode, n.Metadata.Name})
	return object{meta: &n.Metadata, node: n}
}

// mutateNode does what an operator asks of a node. A verb that was done before changes nothing.
func (s *State) mutateNode(m *Mutation) Result {
	var o object
	if n := s.nodeNamed(m.Name); n != nil {
		o = object{meta: &n.Metadata, node: n}
	}
	if m.Verb == NodeAdd {
		return s.addNode(m, o)
	}
	refuse := func(r Reason, format string, args ...any) Result {
		err := &Error{Reason: r, Kind: KindNode, Name: m.Name, Message: fmt.Sprintf(format, args...)}
		if o.meta != nil {
			err.Now = o.meta.ResourceVersion
		}
		if r == Conflict {
			err.Expected = *m.Expected
		}
		return o.result(false, err)
	}
	switch {
	case o.meta == nil:
		return refuse(NotFound, "there is none of that name or fingerprint; the nodes are %s", s.nodeNames())
	case m.Expected != nil && *m.Expected != o.meta.ResourceVersion:
		return refuse(Conflict, "version %d was expected, and %d stands", *m.Expected, o.meta.ResourceVersion)
	case m.Verb == NodeRemove:
		if why := s.removalFlaw(o.node); why != "" {
			return refuse(Invalid, "%s", why)
		}
		return s.removeNode(m, o)
	case o.meta.DeletionTimestamp != 0:
		return refuse(Removing, "it is being removed; that cannot be taken back")
	case o.node.Status.State == NodeJoining:
		return refuse(Invalid, "it is joining and has nothing yet; %s it when it is a member, or remove it", m.Verb)
	}
	to, conds := NodeMember, []Condition(nil)
	if m.Verb == NodeDrain {
		to, conds = NodeDraining, []Condition{{CondRemoval, "Draining", "what is on it moves to other nodes"}}
	}
	if o.node.Status.State == to {
		return o.result(false, nil)
	}
	o.node.Status.State, o.node.Status.Conditions = to, conds
	s.moved(o)
	return o.result(true, nil)
}

func (s *State) nodeNames() string {
	var names []string
	for _, n := range s.nodesByNumber() {
		names = append(names, n.Metadata.Name)
	}
	return strings.Join(names, ", ")
}

// addNode makes a node known, so that it may come.
func (s *State) addNode(m *Mutation, o object) Result {
	refuse := func(r Reason, format string, args ...any) Result {
		return o.result(false, &Error{Reason: r, Kind: KindNode, Name: m.Name, Message: fmt.Sprintf(format, args...)})
	}
	same := s.nodeNamed(m.Node.Fingerprint)
	switch {
	case m.Expected != nil && o.meta == nil && *m.Expected != 0:
		res := refuse(Conflict, "version %d was expected, and there is none of that name", *m.Expected)
		res.Err.Expected = *m.Expected
		return res
	case o.meta == nil && same != nil:
		return refuse(Exists, "the key %s is that of node %q; a key is one node", m.Node.Fingerprint, same.Metadata.Name)
	case o.meta != nil && o.node.Spec.Fingerprint != m.Node.Fingerprint:
		return refuse(Exists, "the name is taken by number %d with the key %s; use another, or remove that one first",
			o.meta.UID, o.node.Spec.Fingerprint)
	case o.meta != nil && o.meta.DeletionTimestamp != 0:
		return refuse(Exists, "it is being removed; add it when that is over, it will be another node then")
	case o.meta != nil:
		return o.result(false, nil) // it says itself where it is
	case len(s.nodes) == 0:
		return refuse(Invalid, "the cluster has no node yet; the first one registers itself")
	case len(s.nodes) >= NodesMax:
		return refuse(TooMany, "the cluster has %d nodes and takes no more; remove one first", len(s.nodes))
	}
	n := &Node{
		Kind: KindNode,
		Metadata: Metadata{
			Name: m.Name, UID: s.version, Generation: 1, ResourceVersion: s.version, CreationTimestamp: m.At,
		},
		Spec: *m.Node,
		Status: NodeStatus{State: NodeJoining, Conditions: []Condition{{
			CondMembership, "NotCome", "it is known and may come; it has not registered yet",
		}}},
	}
	o = s.putNode(n)
	s.touch(Added, o)
	return o.result(true, nil)
}

// removalFlaw is why a node cannot be removed, "" if it can (T-37).
func (s *State) removalFlaw(n *Node) string {
	stay := 0
	for _, o := range s.nodes {
		if o != n && o.Counts() {
			stay++
		}
	}
	switch {
	case !n.Counts():
		return "" // it joins, or leaves already
	case stay == 0:
		return "it is the only member; a cluster has one at least"
	case stay == 2:
		return "two members would be left, and a cluster of two tolerates no failure: add another node first, " +
			"and remove this one when the new one is a member"
	}
	return ""
}

func (s *State) removeNode(m *Mutation, o object) Result {
	if o.meta.DeletionTimestamp != 0 {
		return o.result(false, nil)
	}
	o.meta.DeletionTimestamp, o.meta.DrainUntil = m.At, m.At
	o.node.Status.State = NodeRemoving
	o.node.Status.Conditions = []Condition{{
		CondRemoval, "Draining", "what is on it moves to other nodes; then it leaves the cluster",
	}}
	s.moved(o)
	return o.result(true, nil)
}

// register takes a node's word about itself.
func (s *State) register(c *Register) Result {
	var o object
	if n := s.nodeNamed(c.Fingerprint); n != nil && n.Spec.Fingerprint == c.Fingerprint {
		o = object{meta: &n.Metadata, node: n}
	}
	refuse := func(r Reason, format string, args ...any) Result {
		return o.result(false, &Error{
			Reason: r, Kind: KindNode, Name: clip(c.Fingerprint, memberMax), Message: fmt.Sprintf(format, args...),
		})
	}
	if why := c.flaw(); why != "" {
		return refuse(Invalid, "%s", why)
	}
	for _, n := range s.nodesByNumber() {
		if n.Status.Disk == c.Disk && n.Spec.Fingerprint != c.Fingerprint {
			return refuse(Conflict, "disk %q is that of node %q: a data directory serves one node; a copy of one has to get "+
				"an id of its own", c.Disk, n.Metadata.Name)
		}
	}
	switch {
	case len(s.nodes) == 0 && s.names[1].kind != "":
		return refuse(Invalid, "the log has given number 1 away")
	case len(s.nodes) == 0:
		return s.registerFirst(c)
	case o.meta == nil:
		return refuse(NotFound, "no node has this key: it was never added, or it was removed; an operator adds it")
	case c.Disk == o.node.Status.Disk && c.Incarnation < o.node.Status.Incarnation:
		return refuse(Conflict, "incarnation %d of it has registered, %d is an earlier one", o.node.Status.Incarnation,
			c.Incarnation)
	}
	n := o.node
	spec := c.over(n.Spec)
	if n.Spec == spec && n.Status.Disk == c.Disk && n.Status.Incarnation == c.Incarnation {
		return o.result(false, nil)
	}
	if n.Status.Disk == "" {
		s.cluster.come(n.Number(), c.Disk)
	}
	if n.Status.State == NodeJoining {
		n.Status.Conditions = []Condition{{CondMembership, "Learning", "it has come, and learns the control log"}}
	}
	s.forgetRetired(n.Number(), c.Disk)
	n.Spec, n.Status.Disk, n.Status.Incarnation = spec, c.Disk, c.Incarnation
	s.moved(o)
	return o.result(true, nil)
}

// over is the spec that stands with what the node says: an address that it does not know stays.
func (c *Register) over(s NodeSpec) NodeSpec {
	to := c.NodeSpec
	if to.Address == "" {
		to.Address = s.Address
	}
	if to.Admin == "" {
		to.Admin = s.Admin
	}
	return to
}

func (c *Register) flaw() string {
	for _, f := range []struct {
		name, text  string
		least, most int
	}{
		{"fingerprint", c.Fingerprint, 1, memberMax},
		{"name", c.Name, 0, memberMax},
		{"disk", c.Disk, 1, memberMax},
		{"address", c.Address, 0, textMax},
		{"admin", c.Admin, 0, textMax},
	} {
		if why := flaw(f.text, f.least, f.most); why != "" {
			return "its " + f.name + " " + why
		}
	}
	if c.At <= 0 {
		return "it registers at no time"
	}
	return ""
}

// registerFirst makes the one node of a registry that has none: number 1. What is older than nodes is put
// where it has to be, for there was no other place.
func (s *State) registerFirst(c *Register) Result {
	name := c.Name
	if name == "" {
		name = "node-1"
	}
	n := &Node{
		Kind:     KindNode,
		Metadata: Metadata{Name: name, UID: 1, Generation: 1, ResourceVersion: s.version, CreationTimestamp: c.At},
		Spec:     c.NodeSpec,
		Status:   NodeStatus{State: NodeMember, Voter: true, Disk: c.Disk, Incarnation: c.Incarnation},
	}
	o := s.putNode(n)
	s.touch(Added, o)
	s.cluster = Cluster{
		ID: clusterID([]string{c.Fingerprint}), Epoch: 1,
		Replicas: []Replica{{Replica: 1, Number: 1, Node: c.Fingerprint, Disk: c.Disk, Made: true}},
	}
	for _, q := range s.queuesByUID() {
		rows := cloneList(q.Status.Placement)
		if rows == nil {
			rows = []Replica{{Node: c.Fingerprint, Disk: c.Disk, Owner: true}}
		}
		for i := range rows {
			rows[i].Replica = q.Metadata.UID*ReplicasPerEntry + uint64(i)
			rows[i].Lead, rows[i].Made = rows[i].Owner, q.Status.ObservedGeneration > 0
			if rows[i].Node == c.Fingerprint {
				rows[i].Number = 1
			}
		}
		qo := object{meta: &q.Metadata, status: &q.Status, queue: q}
		s.setRows(qo, rows)
		q.Status.Epoch = 1
		s.moved(qo)
	}
	return o.result(true, nil)
}

func (s *State) queuesByUID() []*Queue {
	list := make([]*Queue, 0, len(s.queues))
	for _, q := range s.queues {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *Queue) int { return cmp.Compare(a.Metadata.UID, b.Metadata.UID) })
	return list
}
