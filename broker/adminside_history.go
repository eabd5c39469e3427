package broker

import (
	"cmp"
	"slices"

	"weida/broker/admin"
	"weida/broker/control"
)

// This file is the registry's history as watches read it.

// Changes implements admin.Node.
func (n *Node) Changes(after uint64, most int) admin.Changes {
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	list, held := n.registry.state.Changes(after, most)
	p := admin.Changes{UpTo: n.registry.state.Version(), Gone: !held}
	for _, c := range list {
		p.List = append(p.List, admin.Change{
			Version: c.Version, Type: admin.EventType(c.Event), Kind: c.Kind, Object: objectOf(c),
		})
	}
	if len(list) >= most {
		p.UpTo = list[len(list)-1].Version // there may be more
	}
	return p
}

func objectOf(c control.Change) any {
	switch {
	case c.Queue != nil:
		return c.Queue
	case c.Connector != nil:
		return c.Connector
	default:
		return c.Node
	}
}

// Moved implements admin.Node.
func (n *Node) Moved() <-chan struct{} {
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	return n.registry.moved
}

// members are the nodes of the cluster, sorted by name.
func (r *registry) members() []control.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return byName(r.state.Nodes())
}

func byName(list []control.Node) []control.Node {
	slices.SortFunc(list, func(a, b control.Node) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return list
}
