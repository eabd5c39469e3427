package control

import "fmt"

// Register is a node's word about itself: at every start, and when something of it has changed.
type Register struct {
	NodeSpec
	Name        string // used by the first node of an empty registry
	Disk        string
	Incarnation uint64
	At          int64 // milliseconds since 1970
	// Nonce was drawn for the incarnation; After is that of the incarnation which stands on this disk, as far as the node
	// knows and comes after it: with another one it is refused, and looks again. "" is one without.
	Nonce, After string
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
	case c.displaces(&o.node.Status):
		return refuse(Conflict, "incarnation %d of it has registered, and %d of a copy of its data directory is another",
			o.node.Status.Incarnation, c.Incarnation)
	}
	n := o.node
	spec := c.over(n.Spec)
	if n.Spec == spec && n.Status.Disk == c.Disk && n.Status.Incarnation == c.Incarnation &&
		n.Status.Nonce == c.Nonce {
		return o.result(false, nil)
	}
	if n.Status.Disk == "" {
		s.cluster.come(n.Number(), c.Disk)
	}
	if n.Status.State == NodeJoining {
		n.Status.Conditions = []Condition{{CondMembership, "Learning", "it has come, and learns the control log"}}
	}
	s.forgetRetired(n.Number(), c.Disk)
	n.Spec, n.Status.Disk, n.Status.Incarnation, n.Status.Nonce = spec, c.Disk, c.Incarnation, c.Nonce
	s.moved(o)
	return o.result(true, nil)
}

// displaces says whether another life of the same disk stands, and this one does not say that it comes after it. A
// register without a nonce is of a build that drew none for the registry.
func (c *Register) displaces(s *NodeStatus) bool {
	return c.Nonce != "" && s.Nonce != "" && c.Disk == s.Disk && c.Nonce != s.Nonce &&
		(c.Incarnation == s.Incarnation || c.After != s.Nonce)
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
		{"nonce", c.Nonce, 0, memberMax},
		{"nonce of before", c.After, 0, memberMax},
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
		Status:   NodeStatus{State: NodeMember, Voter: true, Disk: c.Disk, Incarnation: c.Incarnation, Nonce: c.Nonce},
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
