package broker_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// flip damages one bit of a node's files in which what is found stands.
func (r *clusterRig) flip(i int, what string) (path string) {
	r.t.Helper()
	list, err := filepath.Glob(filepath.Join(r.configs[i].Dir, "groups", "*", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it went
		}
		at := bytes.Index(b, []byte(what))
		if at < 0 {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{b[at+1] ^ 4}, int64(at+1))
		if err := f.Close(); err != nil {
			r.t.Fatal(err)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		return path
	}
	r.t.Fatalf("node %d does not have %q", i+1, what)
	return ""
}

// leads is the index of the node that leads a queue.
func (r *clusterRig) leads(queue string) (at int) {
	r.t.Helper()
	r.until("somebody leads", func() bool {
		at = slices.IndexFunc(r.nodes, func(n *broker.Node) bool { return roleOf(n, queue) == admin.RoleLeader })
		return at >= 0
	})
	return at
}

func roleOf(n *broker.Node, queue string) admin.Role {
	for _, g := range n.Local().Groups {
		if g.Queue == queue {
			return g.Role
		}
	}
	return ""
}

// Bits are flipped in the files of the leader and of a follower while they run: every message comes to the consumer
// once and whole, nothing is deleted, and each node has its bytes back from the others.
func TestDamageHealsItself(t *testing.T) {
	t.Parallel()
	r := newClusterWith(t, 3, func(c *broker.Config) { c.ScrubEvery = 300 * time.Millisecond })
	r.make("q", control.QueueSpec{Replicas: 3})
	c := r.client()
	p, err := c.Producer(r.ctx, "q", client.ProducerOptions{
		ID: "p", Want: wire.Want(wire.Replicated(3, wire.Flushed)),
	})
	if err != nil {
		t.Fatal(err)
	}
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("<message %d>", i), 100+i) }
	publish := func(i int, body io.Reader, n int64) {
		t.Helper()
		m := client.Message{Bytes: []byte(text(i))}
		if body != nil {
			m = client.Message{Body: body, Length: n}
		}
		if res, err := p.Publish(r.ctx, m); err != nil || res.Outcome != client.OK {
			t.Fatalf("message %d: %+v, %v", i, res, err)
		}
	}
	for i := range 20 {
		publish(i, nil, 0)
	}
	large := strings.Repeat("a large message ", 20_000)
	publish(20, strings.NewReader(large), int64(len(large)))
	lead := r.leads("q")
	follower := (lead + 1) % 3
	r.flip(lead, text(3))
	r.flip(lead, large[:10_000])
	r.flip(follower, text(7))
	got := map[string]int{}
	k, err := c.Consumer(r.ctx, "q", client.ConsumerOptions{Subscription: "s", Limit: 30})
	if err != nil {
		t.Fatal(err)
	}
	for d, err := range k.Deliveries(r.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil { // a large one is found damaged on the way, and comes again
			if !strings.Contains(err.Error(), "3003") || d.Offset != 20 {
				t.Fatalf("message %d: %v", d.Offset, err)
			}
			time.Sleep(20 * time.Millisecond)
			if err := d.Release(r.ctx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := d.Accept(r.ctx); err != nil {
			t.Fatal(err)
		}
		if got[string(b)]++; len(got) == 21 {
			break
		}
	}
	for i := range 21 {
		want := text(i)
		if i == 20 {
			want = large
		}
		if got[want] != 1 {
			t.Errorf("message %d came %d times", i, got[want])
		}
	}
	for _, i := range []int{lead, follower} {
		r.until("it is mended", func() bool {
			s := r.nodes[i].Counters().Scrub
			return s.Found > 0 && s.Open == 0 && s.Mended == s.Found
		})
	}
	if s := r.nodes[(lead+2)%3].Counters().Scrub; s.Found != 0 {
		t.Errorf("a node whose files nobody touched: %+v", s)
	}
	if at := r.leads("q"); at != lead {
		t.Errorf("n%d leads, it was n%d", at+1, lead+1)
	}
}

// With one replica the message whose body is damaged ends with the reason and can be settled, and the status names its
// file; the others come, and more are taken.
func TestDamageOfTheOnlyReplica(t *testing.T) {
	t.Parallel()
	r := newClusterWith(t, 1, func(c *broker.Config) { c.ScrubEvery = 300 * time.Millisecond })
	r.make("q", control.QueueSpec{Replicas: 1})
	c := r.client()
	p, err := c.Producer(r.ctx, "q", client.ProducerOptions{Want: wire.Want(wire.Stored(wire.Flushed))})
	if err != nil {
		t.Fatal(err)
	}
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("<message %d>", i), 100) }
	for i := range 10 {
		if res, err := p.Publish(r.ctx, client.Message{Bytes: []byte(text(i))}); err != nil || res.Outcome != client.OK {
			t.Fatal(err, res)
		}
	}
	path := r.flip(0, text(4))
	r.until("it is found", func() bool { return r.nodes[0].Counters().Scrub.Open == 1 })
	shown := slices.ContainsFunc(r.nodes[0].Local().Groups, func(g admin.Group) bool {
		d := g.Damage
		return g.Queue == "q" && d != nil && d.Open == 1 && strings.Contains(d.Why, path) && g.Trouble == ""
	})
	if !shown {
		t.Errorf("the status does not say so: %+v", r.nodes[0].Local().Groups)
	}
	k, err := c.Consumer(r.ctx, "q", client.ConsumerOptions{Subscription: "s", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for d, err := range k.Deliveries(r.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		switch {
		case i == 4 && (err == nil || !strings.Contains(err.Error(), "3003")):
			t.Errorf("the damaged message: %q, %v", b, err)
		case i != 4 && (err != nil || string(b) != text(i)):
			t.Errorf("message %d is another: %v", i, err)
		}
		settle := d.Accept
		if i == 4 {
			settle = d.Reject
		}
		if err := settle(r.ctx); err != nil {
			t.Fatal(err)
		}
		i++
	}
	if res, err := p.Publish(r.ctx, client.Message{Bytes: []byte("more")}); err != nil || res.Outcome != client.OK {
		t.Fatal(err, res)
	}
}
