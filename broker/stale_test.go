package broker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// A replica whose directory is gone is not begun again under its id by a node that was not told yet that the replica
// was made: it has voted, and what it confirmed counted.
func TestMissingReplicaOfAStaleNode(t *testing.T) {
	t.Parallel()
	r := newClusterWith(t, 3, broker.Impatient)
	const away = 2
	key := r.configs[away].Identity.Fingerprint().String()
	row := func(node *broker.Node, queue string) (p control.Replica, uid uint64) {
		for _, q := range node.Registry().Queues {
			i := slices.IndexFunc(q.Status.Placement, func(p control.Replica) bool { return p.Node == key })
			if q.Metadata.Name == queue && i >= 0 {
				return q.Status.Placement[i], q.Metadata.UID
			}
		}
		return p, 0
	}
	c := r.client()
	for try := 0; ; try++ {
		queue := fmt.Sprint("q", try)
		r.make(queue, control.QueueSpec{Replicas: 3})
		p, err := c.Producer(r.ctx, queue, client.ProducerOptions{Want: wire.Want(wire.Replicated(3, wire.Flushed)), ID: "p"})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := p.Publish(r.ctx, client.Message{Bytes: []byte("x")}); err != nil || res.Err != nil {
			t.Fatal(res, err)
		}
		told, _ := row(r.nodes[away], queue)
		r.stop(away)
		if told.Made { // before it was stopped: another queue
			r.start(away)
			continue
		}
		var was control.Replica
		var uid uint64
		r.until("the others say that it was made", func() bool { was, uid = row(r.nodes[0], queue); return was.Made })
		dir := filepath.Join(r.configs[away].Dir, "groups", fmt.Sprint(uid))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		r.start(away)
		r.until("it is given up", func() bool {
			_, err := os.Stat(dir)
			given := slices.ContainsFunc(r.nodes, func(n *broker.Node) bool {
				now, _ := row(n, queue)
				return now.Replica != was.Replica || now.Lost != ""
			})
			if err == nil && !given {
				t.Fatalf("replica %d was begun again", was.Replica)
			}
			return given
		})
		return
	}
}

// A replica that served before the registry was told that it is made, and whose directory is gone, is not begun again
// under its id either, with the leader dead that would have seen that it forgot.
func TestMissingReplicaThatWasNotMade(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	row := func(by int, queue string) (list []control.Replica, uid uint64) {
		for _, q := range r.nodes[by].Registry().Queues {
			if q.Metadata.Name == queue {
				return q.Status.Placement, q.Metadata.UID
			}
		}
		return nil, 0
	}
	c := r.client()
	for try := 0; ; try++ {
		queue := fmt.Sprint("q", try)
		r.make(queue, control.QueueSpec{Replicas: 3})
		p, err := c.Producer(r.ctx, queue, client.ProducerOptions{Want: wire.Want(wire.Replicated(3, wire.Flushed)), ID: "p"})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := p.Publish(r.ctx, client.Message{Bytes: []byte("x")}); err != nil || res.Err != nil {
			t.Fatal(res, err)
		}
		list, uid := row(0, queue)
		lead, away := -1, -1
		var was control.Replica
		for _, p := range list {
			i := slices.IndexFunc(r.configs, func(c broker.Config) bool { return c.Identity.Fingerprint().String() == p.Node })
			switch {
			case p.Lead:
				lead = i
			case !p.Made:
				away, was = i, p
			}
		}
		if lead < 0 || away < 0 { // it is made already: another queue
			continue
		}
		r.stop(away)
		r.stop(lead)
		dir := filepath.Join(r.configs[away].Dir, "groups", fmt.Sprint(uid))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		r.start(away)
		r.until("it is given up", func() bool {
			_, err := os.Stat(dir)
			list, _ := row(away, queue)
			i := slices.IndexFunc(list, func(p control.Replica) bool { return p.Replica == was.Replica })
			given := len(list) > 0 && (i < 0 || list[i].Lost != "")
			if err == nil && !given {
				t.Fatalf("replica %d was begun again", was.Replica)
			}
			return given
		})
		return
	}
}
