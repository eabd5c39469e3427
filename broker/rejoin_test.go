package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// A node whose control log or control snapshot is damaged, cut short or gone learns it anew under another id, without
// anybody's help and without touching a queue: one with three replicas, and one whose only copy is on that very node,
// are there with all that was confirmed (field cases 4 and 5).
func TestDamagedControlLogIsLearnedAnew(t *testing.T) {
	t.Parallel()
	said := &damageLog{lines: make(map[string][]string)}
	const hurt = 1
	r := newClusterWith(t, 3, func(c *broker.Config) {
		if c.Name == "n2" {
			c.Log = slog.New(said)
		}
	})
	c := r.client()
	r.make("three", control.QueueSpec{Replicas: 3})
	r.make("one", control.QueueSpec{Placement: control.PlacementSpec{Nodes: []string{"n2"}}})
	sent := 0
	publish := func() {
		t.Helper()
		for _, queue := range []string{"three", "one"} {
			p, err := c.Producer(r.ctx, queue, client.ProducerOptions{
				ID: fmt.Sprint("p", sent), Want: wire.Want(wire.Stored(wire.Flushed)),
			})
			if err != nil {
				t.Fatal(err)
			}
			res, err := p.Publish(r.ctx, client.Message{Bytes: fmt.Append(nil, sent)})
			if err != nil || res.Outcome != client.OK {
				t.Fatalf("%s: %+v, %v", queue, res, err)
			}
		}
		sent++
	}
	publish()
	control := filepath.Join(r.configs[hurt].Dir, "groups", "1")
	for i, ruin := range []func() error{
		func() error { return flipLog(t, control) },
		func() error { return os.RemoveAll(control) },
		func() error {
			list, err := filepath.Glob(filepath.Join(control, "*.snap"))
			if err == nil && len(list) == 0 {
				err = fmt.Errorf("no snapshot")
			}
			for _, path := range list {
				err = os.Truncate(path, 10)
			}
			return err
		},
	} {
		r.member(hurt)
		r.stop(hurt)
		if err := ruin(); err != nil {
			t.Fatal(err)
		}
		left := names(t, control)
		r.start(hurt)
		id := r.member(hurt)
		var asides []string
		for _, name := range names(t, filepath.Dir(control)) {
			if strings.HasPrefix(name, "1.lost-") {
				asides = append(asides, name)
			}
		}
		if len(asides) != i+1 || len(said.of("")) != i+1 || slices.Contains(asides, fmt.Sprintf("1.lost-%d", id)) {
			t.Fatalf("after damage %d %d is a member, %v lie aside, and was said: %q", i, id, asides, said.of(""))
		}
		same := func(name string) bool {
			return slices.Equal(names(t, filepath.Join(filepath.Dir(control), name)), left)
		}
		if !slices.ContainsFunc(asides, same) {
			t.Errorf("%v was left, and does not lie aside", left)
		}
		publish()
	}
	r.stop(hurt) // it starts by itself from what it learned
	r.start(hurt)
	id := r.member(hurt)
	r.stop(hurt) // which replica it has now, the others know as well
	joined := filepath.Join(r.configs[hurt].Dir, "joined")
	whole, err := os.ReadFile(joined)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(joined, 3); err != nil {
		t.Fatal(err)
	}
	r.start(hurt)
	if again := r.member(hurt); again != id {
		t.Errorf("with a damaged file it is replica %d, and was %d", again, id)
	}
	if b, err := os.ReadFile(joined); !bytes.Equal(b, whole) {
		t.Errorf("the file is not whole again: %x, %v", b, err)
	}
	if s, err := os.Stat(joined + ".damaged"); err != nil || s.Size() != 3 {
		t.Errorf("what was left of it: %v, %v", s, err)
	}
	if n := len(said.of("")); n != 3 {
		t.Errorf("told %d times: %q", n, said.of(""))
	}
	for _, queue := range []string{"three", "one"} {
		for i, b := range r.consume(c, queue, sent) {
			if b != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %q", queue, i, b)
			}
		}
	}
}

// member waits until the control group has three voters, none of them lost, and a node knows both queues; it returns
// the id of its replica.
func (r *clusterRig) member(i int) uint64 {
	r.t.Helper()
	key := r.configs[i].Identity.Fingerprint().String()
	for r.ctx.Err() == nil {
		local := r.nodes[i].Local()
		voters := 0
		for _, g := range local.Groups {
			if g.Queue != "" || g.Replication == nil || len(r.nodes[i].Registry().Queues) != 2 {
				continue
			}
			id := uint64(0)
			for _, m := range g.Replication.CommittedMembers {
				if !m.Learner {
					voters++
				}
				if m.Node == local.Node && m.Replica == g.Replication.Self && !m.Learner {
					id = m.Replica
				}
			}
			if voters == 3 && id != 0 && len(g.Replication.CommittedMembers) == 3 && g.Replication.LeaderNode != 0 {
				return id
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("%s is not a voter of three: %+v", key, r.nodes[i].Local().Groups)
	return 0
}

// A damaged control log is not given up while the others are no majority: the node says so and moves nothing.
func TestDamagedControlLogAlone(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.registered(0)
	for i := range r.nodes {
		r.stop(i)
	}
	dir := filepath.Join(r.configs[0].Dir, "groups", "1")
	if err := flipLog(t, dir); err != nil {
		t.Fatal(err)
	}
	left := names(t, filepath.Dir(dir))
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Second)
	defer cancel()
	c := r.configs[0]
	c.Wait = ctx
	n, err := broker.Open(c)
	if err == nil {
		t.Fatal("it was opened", n.Close())
	}
	for _, text := range []string{"is corrupt at byte", "have not given it up", "nothing was moved or changed"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in %v", text, err)
		}
	}
	if now := names(t, filepath.Dir(dir)); !slices.Equal(now, left) {
		t.Errorf("%v became %v", left, now)
	}
	r.start(1)
	r.start(2)
	r.configs[0].Wait = r.ctx
	r.start(0) // the two others are a majority, and agree
	if now := names(t, filepath.Dir(dir)); len(now) != len(left)+1 {
		t.Errorf("%v became %v", left, now)
	}
}
