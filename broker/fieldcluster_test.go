package broker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/wal"
)

// controlRuins are damages of each kind of file of the control log; a snapshot is made first where there is none.
var controlRuins = map[string]func(t *testing.T, dir string){
	"Log": func(t *testing.T, dir string) {
		if err := flipLog(t, dir); err != nil {
			t.Fatal(err)
		}
	},
	"LogCut": func(t *testing.T, dir string) {
		_, n := written(t, filepath.Join(dir, "00000001.seg"))
		if err := os.Truncate(filepath.Join(dir, "00000001.seg"), int64(n/2)); err != nil {
			t.Fatal(err)
		}
	},
	"Manifest":  func(t *testing.T, dir string) { rot(t, filepath.Join(dir, "manifest"), 70, 512) },
	"HardState": func(t *testing.T, dir string) { rot(t, filepath.Join(dir, "hardstate"), 50, 4096) },
	"Snapshot":  func(t *testing.T, dir string) { everySnapshot(t, dir, func(path string) { rot(t, path, 300, 1<<20) }) },
	"SnapshotOfTenBytes": func(t *testing.T, dir string) {
		everySnapshot(t, dir, func(path string) {
			if err := os.Truncate(path, 10); err != nil {
				t.Fatal(err)
			}
		})
	},
}

func everySnapshot(t *testing.T, dir string, do func(path string)) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.snap"))
	if err != nil || len(list) == 0 {
		t.Fatal("no snapshot in ", dir, err)
	}
	for _, path := range list {
		do(path)
	}
}

// Field cases 4 and 5 (nats-server 7556, nats-server 4410, nats-server 6188): the control log of one node is damaged,
// whatever of it, so that the node does not know which queues there are. Nobody deletes anything for that: the others
// serve every queue, and of the node's own replicas not a file is gone, whether it starts or says why it does not.
func TestDamagedControlLogDeletesNothing(t *testing.T) {
	for name, ruin := range controlRuins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newCluster(t, 3)
			c := r.client()
			p := r.filled(c, "q", 20)
			const hurt = 1
			uid := r.any().Registry().Queues[0].Metadata.UID
			r.stop(hurt)
			groups := filepath.Join(r.configs[hurt].Dir, "groups")
			mine := filepath.Join(groups, fmt.Sprint(uid))
			had := names(t, mine)
			ruin(t, filepath.Join(groups, "1"))
			r.publish(p, 20, 10)
			n, err := broker.Open(r.configs[hurt])
			if err == nil {
				r.nodes[hurt] = n
			}
			t.Logf("it starts: %v", err)
			r.publish(p, 30, 10)
			got := r.consume(c, "q", 40)
			for i, b := range got {
				if b != fmt.Sprintf("message %d", i) {
					t.Fatalf("message %d is %q", i, b)
				}
			}
			for _, other := range []int{0, 2} {
				r.until("the others know the queue", func() bool {
					q := r.nodes[other].Registry().Queues
					return len(q) == 1 && q[0].Metadata.UID == uid
				})
			}
			r.stop(hurt)
			kept := names(t, mine)
			for _, aside := range asides(t, mine) {
				kept = append(kept, names(t, aside)...)
			}
			for _, name := range had {
				if !slices.Contains(kept, name) {
					t.Errorf("%s of the queue's replica is gone; there are %v", name, kept)
				}
			}
		})
	}
}

// asides are what was set aside of a directory.
func asides(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(dir + ".*")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// filled makes a queue with n messages, which all three nodes hold, and returns a producer that wants two.
func (r *clusterRig) filled(c *client.Client, queue string, n int) *client.Producer {
	r.t.Helper()
	r.make(queue, control.QueueSpec{Replicas: 3})
	p, err := c.Producer(r.ctx, queue, client.ProducerOptions{ID: "p", Want: wire.Replicated(2, wire.Flushed)})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range n {
		res, err := p.Publish(r.ctx, client.Message{
			Bytes: fmt.Appendf(nil, "message %d", i), Want: wire.Replicated(3, wire.Flushed), Within: time.Minute,
		})
		if err != nil || res.Outcome != client.OK {
			r.t.Fatalf("message %d: %+v, %v", i, res, err)
		}
	}
	return p
}

// publish publishes n messages, of which the first is number from.
func (r *clusterRig) publish(p *client.Producer, from, n int) {
	r.t.Helper()
	for i := range n {
		res, err := p.Publish(r.ctx, client.Message{Bytes: fmt.Appendf(nil, "message %d", from+i)})
		if err != nil || res.Outcome != client.OK {
			r.t.Fatalf("message %d: %+v, %v", from+i, res, err)
		}
	}
}

// Field case 11 (ra 175): nodes are stopped and started one after the other under load, and every byte of each is
// verified while it is down. WEIDA_RUNS sets how many times each.
func TestRollingRestartsVerified(t *testing.T) {
	t.Parallel()
	rounds := 1
	if text := os.Getenv("WEIDA_RUNS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	r := newCluster(t, 3)
	c := r.client()
	p := r.filled(c, "q", 10)
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan int)
	go func() {
		sent := 10
		for ctx.Err() == nil {
			res, err := p.Publish(r.ctx, client.Message{Bytes: fmt.Appendf(nil, "message %d", sent)})
			if err != nil || res.Outcome != client.OK {
				t.Errorf("message %d: %+v, %v", sent, res, err)
				break
			}
			sent++
		}
		ended <- sent
	}()
	for range rounds {
		for i := range r.nodes {
			r.stop(i)
			sum, err := wal.VerifyStore(fsync.OS(), r.configs[i].Dir, func(f wal.Finding) {
				if !f.Survived {
					t.Errorf("n%d: %v", i+1, f.Err)
				}
			})
			if err != nil || sum.Records == 0 {
				t.Fatalf("n%d: %+v, %v", i+1, sum, err)
			}
			r.start(i)
			r.confirmsThree(c, "all")
		}
	}
	stop()
	sent := <-ended
	t.Log(sent, "messages")
	for i, b := range r.consume(c, "q", sent) {
		if b != fmt.Sprintf("message %d", i) {
			t.Fatalf("message %d is %q", i, b)
		}
	}
}

// confirmsThree waits until all three nodes hold what is published to a queue. Leadership may go back to a node that
// has just come: a producer with an id sends again by itself.
func (r *clusterRig) confirmsThree(c *client.Client, queue string) {
	r.t.Helper()
	r.make(queue, control.QueueSpec{Replicas: 3})
	p, err := c.Producer(r.ctx, queue, client.ProducerOptions{
		ID: fmt.Sprint("sure", time.Now().UnixNano()), Want: wire.Replicated(3, wire.Flushed),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		res, err := p.Publish(r.ctx, client.Message{Bytes: []byte("x"), Within: time.Second})
		if err == nil && res.Outcome == client.OK {
			break
		}
		if r.ctx.Err() != nil || err != nil {
			r.t.Fatalf("%+v, %v", res, err)
		}
	}
	if err := p.Close(r.ctx); err != nil {
		r.t.Error(err)
	}
}
