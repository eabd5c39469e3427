package broker_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"weida/broker/control"
	"weida/broker/wire"
)

// Changes that are asked for before the nodes of a cluster have found each other wait for its beginning, or are
// refused: one that came into the log first made a cluster of one node, which the others never joined.
func TestChangesWaitForTheBeginning(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	var asked sync.WaitGroup
	for i, n := range r.nodes {
		for k := range 8 {
			asked.Go(func() {
				m := control.Mutation{
					Verb: control.Create, Kind: control.KindQueue, Name: fmt.Sprint("q", i, k), Queue: &control.QueueSpec{},
				}
				var no *wire.Error
				for {
					res, err := n.Mutate(r.ctx, m)
					if err == nil {
						if res.Err != nil {
							t.Errorf("%s: %v", m.Name, res.Err)
						}
						return
					}
					if !errors.As(err, &no) || no.Code != wire.NotCommitted {
						t.Errorf("%s: %v", m.Name, err)
						return
					}
				}
			})
		}
	}
	asked.Wait()
	for i, n := range r.nodes {
		reg := n.Registry()
		if len(reg.Nodes) != 3 {
			t.Errorf("n%d knows %d nodes: %+v", i+1, len(reg.Nodes), reg.Nodes)
		}
	}
}
