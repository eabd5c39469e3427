package admin

import (
	"net/http"

	"weida/broker/control"
	"weida/broker/wire"
)

var nodes = kind{
	kind: control.KindNode, plural: "nodes",
	list:  "NodeList",
	count: func(r *Registry) int { return len(r.Nodes) },
	meta:  func(r *Registry, i int) *control.Metadata { return &r.Nodes[i].Metadata },
	view:  func(s *sight, i int) any { return s.member(s.reg.Nodes[i]) },
}

// NodeRequest is what a client sends to add a node.
type NodeRequest struct {
	Kind     control.Kind      `json:"kind,omitempty"`
	Metadata requestMeta       `json:"metadata"`
	Spec     *control.NodeSpec `json:"spec,omitempty"`
	Status   ignored           `json:"status,omitzero"`
	Live     ignored           `json:"live,omitzero"`
	Changed  ignored           `json:"changed,omitzero"`
	DryRun   ignored           `json:"dryRun,omitzero"`
}

// NodeAnswer is what a change of the members did, or would do.
type NodeAnswer struct {
	Node    Member  `json:"node"`
	Changed bool    `json:"changed"`
	DryRun  bool    `json:"dryRun"`
	Verdict Verdict `json:"verdict"` // of remove and drain: whether the groups can do without the node now
}

// nodeRoutes are those of the members.
func (h *handler) nodeRoutes() []route {
	list := []param{
		{"limit", "at most so many"},
		{"after", "only names behind this one"},
		{"watch", "1 answers with every change behind resourceVersion, as server-sent events"},
		{"resourceVersion", "where a watch begins"},
	}
	change := []param{paramExpected, paramDryRun}
	routes := []route{
		{
			"GET", "/v1/nodes", "all nodes, sorted by name; or a watch", list, nil,
			[]answered{{http.StatusOK, List[Member]{}, ""}, {http.StatusOK, Event{}, eventKind}},
			func(w http.ResponseWriter, c *call) error { return h.all(w, c, nodes) },
		},
		{
			"POST", "/v1/nodes", "adds a node, which joins when it starts", change, NodeRequest{}, ok(NodeAnswer{}), h.addNode,
		},
		{
			"GET", "/v1/nodes/{name}", "one of them", nil, nil, ok(Member{}),
			func(w http.ResponseWriter, c *call) error { return h.one(w, c, nodes) },
		},
	}
	for _, v := range []struct {
		verb control.Verb
		does string
	}{
		{control.NodeDrain, "moves replicas and leaderships away from the node"},
		{control.NodeUndrain, "lets the node have replicas again"},
		{control.NodeRemove, "takes the node out of the cluster, for good"},
	} {
		routes = append(routes, route{
			"POST", "/v1/nodes/{name}/" + string(v.verb), v.does, change, nil, ok(NodeAnswer{}),
			func(w http.ResponseWriter, c *call) error {
				return h.changeNode(w, c, control.Mutation{Verb: v.verb, Kind: control.KindNode, Name: c.name})
			},
		})
	}
	return routes
}

// addNode reads who is to be added.
func (h *handler) addNode(w http.ResponseWriter, c *call) error {
	var q NodeRequest
	if err := h.body(w, c, &q); err != nil {
		return err
	}
	switch {
	case q.Kind != "" && q.Kind != control.KindNode:
		return wrongField("kind", "%q is not what the path names: %s", clip(string(q.Kind)), control.KindNode)
	case q.Metadata.Name == "":
		return wrongField("metadata.name", "a name is missing")
	case q.Spec == nil || q.Spec.Fingerprint == "":
		return wrongField("spec.fingerprint", "the node's fingerprint is missing: it is the node's identity")
	}
	return h.changeNode(w, c, control.Mutation{
		Verb: control.NodeAdd, Kind: control.KindNode, Name: q.Metadata.Name, Node: q.Spec,
	})
}

// changeNode asks for a change of the members, or says what it would be.
func (h *handler) changeNode(w http.ResponseWriter, c *call, m control.Mutation) error {
	dry, err := c.flag("dryRun")
	if err != nil {
		return err
	}
	if m.Expected, err = version(c.query); err != nil {
		return err
	}
	done, err := h.begin()
	if err != nil {
		return err
	}
	defer done()
	a := NodeAnswer{DryRun: dry, Verdict: *newVerdict("")}
	if m.Verb == control.NodeDrain || m.Verb == control.NodeRemove {
		if a.Verdict, err = h.cluster(c, true).leaving(m, dry); err != nil {
			return err
		}
	}
	res, err := h.propose(c, nodes, m, dry)
	if err != nil {
		return err
	}
	if res.Err != nil {
		now, _ := h.result(&res, answerOf{})
		return refusedBy(res.Err, now)
	}
	a.Changed = res.Changed
	if res.Node != nil {
		a.Node.Node = *res.Node
	}
	writeJSON(w, http.StatusOK, a)
	return nil
}

// leaving judges whether a node may go: to be drained it may be needed, that is what draining is for; to be removed it
// may not.
func (c *Cluster) leaving(m control.Mutation, dry bool) (Verdict, error) {
	n := c.nodeNamed(m.Name)
	if n == nil {
		return Verdict{}, refuse(http.StatusNotFound, wire.NoSuchResource, "Node %q", clip(m.Name))
	}
	v := c.CanStop(n.Number())
	if m.Verb == control.NodeDrain || dry {
		return v, nil
	}
	if !v.OK {
		f := v.Findings[0]
		return v, refuse(http.StatusConflict, wire.Unsafe, "%d groups stand against it, the first is %s: %s; needed: %s",
			len(v.Findings), f.Group, f.Why, f.Needed)
	}
	if len(v.Pauses) > 0 {
		return v, refuse(http.StatusConflict, wire.Unsafe, "the only copy of %d queues is on it, the first is %s; needed: "+
			"`weida node drain %s`, and wait until it has none", len(v.Pauses), v.Pauses[0], n.Metadata.Name)
	}
	return v, nil
}

// nodeNamed is the node of that name or fingerprint, nil if there is none.
func (c *Cluster) nodeNamed(name string) *control.Node {
	for i := range c.Registry.Nodes {
		if n := &c.Registry.Nodes[i]; n.Metadata.Name == name || n.Spec.Fingerprint == name {
			return n
		}
	}
	return nil
}
