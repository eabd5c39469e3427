package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
	"weida/raftstore"
)

// patience bounds a hang and decides nothing else.
const clusterPatience = 8 * time.Minute

// clusterRig is some nodes of one cluster in this process, each on a directory of its own, over real QUIC.
type clusterRig struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	configs []broker.Config
	nodes   []*broker.Node // nil: stopped
	key     *endpoint.Identity
	trust   *endpoint.Trust
}

func newCluster(t *testing.T, n int) *clusterRig {
	t.Helper()
	return newClusterWith(t, n, func(*broker.Config) {})
}

func newClusterWith(t *testing.T, n int, change func(*broker.Config)) *clusterRig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	t.Cleanup(cancel)
	r := &clusterRig{t: t, ctx: ctx, dir: t.TempDir(), nodes: make([]*broker.Node, n)}
	r.key = r.identity("client")
	var seeds []control.Seed
	keys := make(map[endpoint.Fingerprint]endpoint.Role)
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		id := r.identity(name)
		keys[id.Fingerprint()] = endpoint.RoleNode
		addr := freeAddr(t)
		seeds = append(seeds, control.Seed{Name: name, Fingerprint: id.Fingerprint().String(), Address: addr})
		r.configs = append(r.configs, broker.Config{
			Dir: filepath.Join(r.dir, "data-"+name), Listen: addr, Identity: id, Name: name,
			Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{r.key.Fingerprint(): endpoint.RoleClient}),
			Log:   logger(t, name),
		})
	}
	r.trust = endpoint.NewTrust(keys)
	for i := range r.configs {
		r.configs[i].Seeds = seeds
		change(&r.configs[i])
		r.start(i)
	}
	t.Cleanup(func() {
		for i := range r.nodes {
			r.stop(i)
		}
	})
	return r
}

// freeAddr is an address on loopback that nobody listens on, and that nobody is given.
func freeAddr(t *testing.T) string {
	t.Helper()
	ports, err := endpoint.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", ports[0])
}

// logger writes to the test's output where WEIDA_LOG is set.
func logger(t *testing.T, name string) *slog.Logger {
	if os.Getenv("WEIDA_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), nil)).With("at", name)
}

func (r *clusterRig) identity(name string) *endpoint.Identity {
	r.t.Helper()
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), r.dir, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *clusterRig) start(i int) {
	r.t.Helper()
	node, err := broker.Open(r.configs[i])
	if err != nil {
		r.t.Fatal(err)
	}
	r.nodes[i] = node
}

func (r *clusterRig) stop(i int) {
	if r.nodes[i] == nil {
		return
	}
	if err := r.nodes[i].Close(); err != nil {
		r.t.Error(err)
	}
	r.nodes[i] = nil
}

// any is a node that runs.
func (r *clusterRig) any() *broker.Node {
	for _, n := range r.nodes {
		if n != nil {
			return n
		}
	}
	r.t.Fatal("no node runs")
	return nil
}

// make applies a queue and waits until it takes messages.
func (r *clusterRig) make(name string, spec control.QueueSpec) {
	r.t.Helper()
	err := r.any().MakeQueue(r.ctx, name, spec)
	for r.unsure(err, control.Apply) {
		err = r.any().MakeQueue(r.ctx, name, spec)
	}
	if err != nil {
		b, _ := json.MarshalIndent(r.any().Registry().Queues, "", "  ")
		r.t.Fatalf("%v: %s", err, b)
	}
}

// client knows all nodes.
func (r *clusterRig) client() *client.Client {
	r.t.Helper()
	var addrs []string
	for _, c := range r.configs {
		addrs = append(addrs, c.Listen)
	}
	o := client.Options{Addrs: addrs, Identity: r.key, Trust: r.trust}
	c, err := client.Dial(r.ctx, o)
	for err != nil && r.ctx.Err() == nil { // a handshake takes its time on a slow machine
		c, err = client.Dial(r.ctx, o)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// Three nodes: a queue of factor 3 confirms with the replicas that hold the message, flushed, and gives it back.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.make("q", control.QueueSpec{Replicas: 3})
	c := r.client()
	p, err := c.Producer(r.ctx, "q", client.ProducerOptions{
		ID: "p", Want: wire.Want(wire.Replicated(3, wire.Flushed)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		res, err := p.Publish(r.ctx, client.Message{Bytes: fmt.Appendf(nil, "message %d", i)})
		if err != nil || res.Outcome != client.OK || res.Evidence != wire.Replicated(3, wire.Flushed) {
			t.Fatalf("message %d: %+v, %v", i, res, err)
		}
	}
	k, err := c.Consumer(r.ctx, "q", client.ConsumerOptions{Subscription: "s", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for d, err := range k.Deliveries(r.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if want := fmt.Sprintf("message %d", n); err != nil || string(b) != want {
			t.Fatalf("%q, want %q: %v", b, want, err)
		}
		if err := d.Accept(r.ctx); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 100 {
		t.Fatalf("%d messages came back", n)
	}
}

// A node is ready whatever queues other nodes have: those with one replica are on one of three.
func TestReadyWithoutAReplica(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.make("q", control.QueueSpec{Replicas: 1})
	for i, n := range r.nodes {
		for {
			queues, ready := n.Registry().Queues, n.Health().Ready
			if len(queues) == 1 && len(queues[0].Status.Placement) == 1 && len(ready) == 0 {
				break
			}
			select {
			case <-r.ctx.Done():
				t.Fatalf("n%d: %+v, %+v", i+1, queues, ready)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// A queue of three replicas becomes one of one, and of three again, while a producer goes on: everything that is
// confirmed is there once and in order (B-229.8, T-34).
func TestFactorChanges(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.make("q", control.QueueSpec{Replicas: 3})
	c := r.client()
	p, err := c.Producer(r.ctx, "q", client.ProducerOptions{ID: "p", Want: wire.Want(wire.Stored(wire.Flushed))})
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			res, err := p.Publish(r.ctx, client.Message{Bytes: fmt.Appendf(nil, "message %d", sent)})
			if err != nil || res.Outcome != client.OK {
				t.Errorf("message %d: %+v, %v", sent, res, err)
				return
			}
			sent++
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for _, factor := range []int{1, 3, 1, 3} {
		r.make("q", control.QueueSpec{Replicas: factor})
	}
	close(stop)
	<-stopped
	t.Log(sent, "messages")
	got := r.consume(c, "q", sent)
	if len(got) != sent {
		t.Fatalf("%d messages of %d", len(got), sent)
	}
	for i, b := range got {
		if want := fmt.Sprintf("message %d", i); b != want {
			t.Fatalf("message %d is %q", i, b)
		}
	}
}

// A fourth node joins three: it is added, comes, learns the control log, and takes queues; it starts again by itself.
func TestNodeJoins(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	id := r.identity("n4")
	addr := freeAddr(t)
	cut := id.Fingerprint().String()[:20]
	res, err := r.mutate(control.Mutation{
		Verb: control.NodeAdd, Kind: control.KindNode, Name: "n4", Node: &control.NodeSpec{Fingerprint: cut},
	})
	if err != nil || res.Err == nil || res.Err.Reason != control.Invalid || res.Err.Field != "spec.fingerprint" {
		t.Fatalf("a key cut short: %+v, %v", res.Err, err)
	}
	res = r.change(control.Mutation{
		Verb: control.NodeAdd, Kind: control.KindNode, Name: "n4",
		Node: &control.NodeSpec{Fingerprint: id.Fingerprint().String(), Address: addr},
	})
	c := r.configs[0]
	c.Dir, c.Listen, c.Identity, c.Name = filepath.Join(r.dir, "data-n4"), addr, id, "n4"
	c.Number, c.Wait, c.Log, c.Advertise = raftstore.NodeID(res.Node.Number()), r.ctx, logger(t, "n4"), addr
	r.configs, r.nodes = append(r.configs, c), append(r.nodes, nil)
	r.start(3)
	r.trust = r.trust.With(map[endpoint.Fingerprint]endpoint.Role{id.Fingerprint(): endpoint.RoleNode})
	r.make("there", control.QueueSpec{Placement: control.PlacementSpec{Nodes: []string{"n4"}}})
	r.make("three", control.QueueSpec{
		Replicas: 3, Placement: control.PlacementSpec{Nodes: []string{"n4", "n1", "n2"}, PreferredLeader: "n4"},
	})
	// Leadership goes back to the node that comes: a producer with an id sends again by itself.
	published := 0
	publish := func(queue string, want wire.Evidence) {
		t.Helper()
		published++
		p, err := r.client().Producer(r.ctx, queue, client.ProducerOptions{
			Want: wire.Want(want), ID: fmt.Sprint("p", published),
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.Publish(r.ctx, client.Message{Bytes: []byte("hello")})
		if err != nil || res.Outcome != client.OK || res.Evidence != want {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	publish("there", wire.Stored(wire.Flushed))
	publish("three", wire.Replicated(3, wire.Flushed))
	r.stop(3)
	r.start(3)
	publish("there", wire.Stored(wire.Flushed))
	publish("three", wire.Replicated(3, wire.Flushed))
}

// A node that nobody has added is not let in, and says so when it gives up.
func TestStrangerDoesNotJoin(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	c := r.configs[0]
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Second)
	defer cancel()
	c.Dir, c.Listen, c.Identity = filepath.Join(r.dir, "data-n4"), freeAddr(t), r.identity("n4")
	c.Name, c.Number, c.Wait = "n4", 4711, ctx
	n, err := broker.Open(c)
	if err == nil {
		t.Fatal("it came in", n.Close())
	}
	if !strings.Contains(err.Error(), "has not let this node in") {
		t.Error(err)
	}
}

// placed returns a queue's placement when it is as wanted.
func (r *clusterRig) placed(queue string, ok func([]control.Replica) bool) []control.Replica {
	r.t.Helper()
	for r.ctx.Err() == nil {
		for _, q := range r.any().Registry().Queues {
			if q.Metadata.Name == queue && ok(q.Status.Placement) {
				return q.Status.Placement
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("the placement of %s does not become as wanted: %+v", queue, r.any().Registry().Queues)
	return nil
}

// A replica whose directory is gone is lost, and never begun again under its id: it would be a group of its own that
// knows nothing of what it had confirmed.
func TestMissingReplicaIsLost(t *testing.T) {
	t.Parallel()
	r := newClusterWith(t, 3, broker.Impatient)
	r.make("q", control.QueueSpec{Replicas: 3})
	rows := r.placed("q", func(rows []control.Replica) bool {
		return !slices.ContainsFunc(rows, func(p control.Replica) bool { return !p.Made })
	})
	i := 1
	key := r.configs[i].Identity.Fingerprint().String()
	was := rows[slices.IndexFunc(rows, func(p control.Replica) bool { return p.Node == key })].Replica
	r.stop(i)
	dir := filepath.Join(r.configs[i].Dir, "groups", fmt.Sprint(r.any().Registry().Queues[0].Metadata.UID))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.start(i)
	r.placed("q", func(rows []control.Replica) bool {
		return slices.ContainsFunc(rows, func(p control.Replica) bool { // another one may be there already
			return p.Node == key && (p.Lost == "Missing" || p.Replica != was)
		})
	})
}
