package broker_test

import (
	"errors"
	"path/filepath"
	"testing"

	"weida/broker"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/raftstore"
)

// A node that was removed says so and serves nothing, while it runs and when it starts again.
func TestRemovedNodeSaysSo(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	id, addr := r.identity("n4"), freeAddr(t)
	res := r.change(control.Mutation{
		Verb: control.NodeAdd, Kind: control.KindNode, Name: "n4",
		Node: &control.NodeSpec{Fingerprint: id.Fingerprint().String(), Address: addr},
	})
	c := r.configs[0]
	c.Dir, c.Listen, c.Identity, c.Name = filepath.Join(r.dir, "data-n4"), addr, id, "n4"
	c.Number, c.Wait, c.Log, c.Advertise = raftstore.NodeID(res.Node.Number()), r.ctx, logger(t, "n4"), addr
	r.configs, r.nodes = append(r.configs, c), append(r.nodes, nil)
	r.start(3)
	r.trust = r.trust.With(map[endpoint.Fingerprint]endpoint.Role{id.Fingerprint(): endpoint.RoleNode})
	r.until("n4 is a member", func() bool {
		for _, n := range r.nodes[3].Registry().Nodes {
			if n.Metadata.Name == "n4" && n.Counts() {
				return true
			}
		}
		return false
	})
	r.change(control.Mutation{Verb: control.NodeRemove, Kind: control.KindNode, Name: "n4"})
	for range 2 {
		select {
		case <-r.nodes[3].Displaced():
		case <-r.ctx.Done():
			t.Fatal("a node that was removed does not find out")
		}
		var e *broker.RemovedError
		if err := r.nodes[3].DisplacedBy(); !errors.As(err, &e) || e.Number != c.Number {
			t.Errorf("it says %v", err)
		}
		r.stop(3)
		r.start(3)
	}
	for i := range 3 {
		if err := r.nodes[i].DisplacedBy(); err != nil {
			t.Errorf("node %d: %v", i+1, err)
		}
	}
}
