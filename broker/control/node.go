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
	Incarnation uint64 `json:"incarnation"`
	// Nonce was drawn for that incarnation: a copy of the directory counts to the same number with another one. "" is
	// not known.
	Nonce      string      `json:"nonce,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
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
		return refuse(NotFound, "neither a name nor a fingerprint is %.200q; the nodes are %s", m.Name, s.nodeNames())
	case m.Expected != nil && *m.Expected != o.meta.ResourceVersion:
		return refuse(Conflict, "version %d was expected, and %d stands", *m.Expected, o.meta.ResourceVersion)
	case m.Verb == NodeRemove:
		if why := s.removalFlaw(o.node); why != "" {
			return refuse(Unsafe, "%s", why)
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
		return "it is the only member; a cluster has one at least: to end the cluster, stop the node"
	case stay == 2:
		return "two members would be left, and a cluster has one member, or three and more, for two tolerate no failure: " +
			"add another node with `weida node add` first, and remove this one when the new one is a member"
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

func (s *State) queuesByUID() []*Queue {
	list := make([]*Queue, 0, len(s.queues))
	for _, q := range s.queues {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *Queue) int { return cmp.Compare(a.Metadata.UID, b.Metadata.UID) })
	return list
}
