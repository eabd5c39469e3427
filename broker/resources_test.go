package broker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

// change proposes a mutation that must be taken.
func (r *rig) change(m control.Mutation) control.Result {
	r.t.Helper()
	result, err := r.node.Mutate(r.ctx, m)
	if err != nil {
		r.t.Fatal(err)
	}
	if result.Err != nil {
		r.t.Fatal(result.Err)
	}
	return result
}

func remove(name string, drain time.Duration) control.Mutation {
	d := control.Duration(drain)
	return control.Mutation{Verb: control.Delete, Kind: control.KindQueue, Name: name, Drain: &d}
}

// gone waits until the queue's record is away.
func (r *rig) gone(name string) {
	r.t.Helper()
	err := r.node.registry.await(r.ctx, func(s *control.State) bool { _, ok := s.Queue(name); return !ok })
	if err != nil {
		r.t.Fatal(err)
	}
}

// Connecting, publishing and consuming never make a queue (T-25).
func TestNothingIsDeclared(t *testing.T) {
	r := newRig(t, nil)
	before := r.node.Registry().Version
	for _, first := range []wire.Frame{
		&wire.OpenProducer{Queue: "nope", Want: wire.Accepted()}, &wire.OpenConsumer{Queue: "nope"},
		&wire.OpenPeek{Queue: "nope"}, &wire.Unsubscribe{Queue: "nope", Subscription: "s"}, &wire.Retire{Queue: "nope"},
	} {
		r.line(r.dial(), first).end(wire.UnknownQueue)
	}
	if after := r.node.Registry().Version; after != before {
		t.Errorf("the control log went from %d to %d", before, after)
	}
}

// Queues survive the node with their ids and their messages; a stale expectation changes nothing (T-14, T-15).
func TestRegistrySurvives(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	before, _ := r.node.registry.queue("demo")
	r.close()
	r.open()
	after, ok := r.node.registry.queue("demo")
	if !ok || after.Metadata != before.Metadata || after.Status.Phase != control.Ready {
		t.Errorf("%+v, was %+v", after, before)
	}
	if p := after.Status.Placement; len(p) != 1 || !p[0].Owner || p[0].Node != r.node.Fingerprint().String() {
		t.Errorf("placement %+v (T-32)", p)
	}
	stale := before.Metadata.ResourceVersion - 1
	result, err := r.node.Mutate(r.ctx, control.Mutation{
		Verb: control.Apply, Kind: control.KindQueue, Name: "demo", Expected: &stale,
		Queue: &control.QueueSpec{Limits: control.QueueLimits{Messages: 1}},
	})
	if err != nil || result.Err == nil || result.Err.Reason != control.Conflict {
		t.Errorf("%+v, %v", result, err)
	}
	r.consumer("s", 1).get(0, 1, "x")
}

// A queue that is deleted takes nothing new, serves what is there until the deadline, ends its streams
// with the reason, leaves no file, and shares nothing with the next of its name (T-19 to T-21, W-28).
func TestDeleteAndMakeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.named("p")
	p.say(1, 1, "old")
	p.stands(1, 0)
	p.say(2, 1, "older")
	p.stands(2, 1)
	c := r.consumer("s", 1)
	d := c.get(0, 1, "old")
	dir := r.groupDir("demo")
	old, _ := r.node.registry.queue("demo")
	r.change(remove("demo", time.Hour))
	p.say(3, 3, "late")
	p.refused(3, wire.QueueClosing)
	r.line(r.dial(), &wire.OpenProducer{Queue: "demo", Want: wire.Accepted()}).end(wire.QueueClosing)
	c.settle(d, wire.Accept, wire.OK) // consumers go on
	again := r.consumer("t", 1)
	again.get(1, 1, "older")
	result, err := r.node.Mutate(r.ctx, control.Mutation{
		Verb: control.Create, Kind: control.KindQueue, Name: "demo", Queue: &control.QueueSpec{},
	})
	if err != nil || result.Err == nil {
		t.Errorf("made beside its deletion: %+v, %v", result, err)
	}
	r.change(remove("demo", time.Millisecond)) // the end of draining comes nearer
	c.end(wire.QueueDeleted)
	again.end(wire.QueueDeleted)
	p.end(wire.QueueDeleted)
	r.gone("demo")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	r.line(r.dial(), &wire.OpenConsumer{Queue: "demo"}).end(wire.UnknownQueue)
	r.close()
	r.open()
	r.line(r.dial(), &wire.OpenConsumer{Queue: "demo"}).end(wire.UnknownQueue)
	r.make("demo", control.QueueSpec{})
	if made, _ := r.node.registry.queue("demo"); made.Metadata.UID <= old.Metadata.UID || made.Metadata.Generation != 1 {
		t.Errorf("%+v after %+v", made.Metadata, old.Metadata)
	}
	p = r.named("p")
	if p.opened.Next != 1 {
		t.Errorf("the producer is known: %+v", p.opened)
	}
	p.say(1, 1, "new")
	p.stands(1, 0)
	r.consumer("s", 5).get(0, 1, "new")
}

// A deletion that was asked for just before the node went goes on in its next life (T-20).
func TestDeletionGoesOn(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	r.change(remove("demo", time.Hour))
	r.close()
	r.open()
	q, ok := r.node.registry.queue("demo")
	if !ok || q.Status.Phase != control.Deleting && q.Metadata.DeletionTimestamp == 0 {
		t.Fatalf("%+v", q)
	}
	c := r.consumer("s", 1)
	c.settle(c.get(0, 1, "x"), wire.Accept, wire.OK) // drained: it need not wait for the deadline
	r.gone("demo")
}

// Many queues come and go side by side, one entry of the control log each.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const n = 50
	for i := range n {
		r.change(control.Mutation{
			Verb: control.Create, Kind: control.KindQueue, Name: fmt.Sprintf("q/%d", i), Queue: &control.QueueSpec{},
		})
	}
	seen := make(map[uint64]bool)
	for _, q := range r.node.registry.queues() {
		if seen[q.Metadata.UID] || q.Metadata.UID <= uint64(controlGroup) {
			t.Fatalf("uid %d twice, or of the control log", q.Metadata.UID)
		}
		seen[q.Metadata.UID] = true
	}
	for i := range n {
		r.make(fmt.Sprintf("q/%d", i), control.QueueSpec{})
	}
	for i := range n {
		r.change(remove(fmt.Sprintf("q/%d", i), time.Millisecond))
	}
	for i := range n {
		r.gone(fmt.Sprintf("q/%d", i))
	}
	if left := r.node.registry.queues(); len(left) != 2 {
		t.Errorf("%d queues are left", len(left))
	}
}

// A request of the admin side that does not end keeps no node from an orderly stop, which says what became of it.
func TestStopBesideARequest(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	r := newRig(t, func(c *Config) {
		c.Admin = "127.0.0.1:0"
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	conn, err := net.Dial("tcp", r.node.AdminAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Half of a body: the server waits for the other half longer than a stop lasts.
	if _, err := io.WriteString(conn, "PUT /v1/queues/demo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"+
		"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil { // it is being served
		t.Fatal(err)
	}
	r.close()
	if !strings.Contains(log.String(), "did not end in time") {
		t.Errorf("logged: %q", log.String())
	}
}

// A node with an HTTP side stops without waiting for it, and answers there until then.
func TestStopWithAdmin(t *testing.T) {
	var log strings.Builder
	r := newRig(t, func(c *Config) {
		c.Admin = "127.0.0.1:0"
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	answer, err := http.Get("http://" + r.node.AdminAddr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", answer.Status, err)
	}
	r.close()
	if log.Len() > 0 {
		t.Errorf("a stop without sessions warned: %s", log.String())
	}
	c := r.config
	c.Admin = "0.0.0.0:0"
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Errorf("an admin side for everybody: %v", err)
	}
}

// Who dials a node that stops is not let in, while it still answers those it has.
func TestDialingAStoppingNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "x")
	node := r.node
	stopped := make(chan error, 1)
	go func() { stopped <- node.Close() }()
	p.end(wire.Stopping)
	c, err := endpoint.Dial(r.ctx, node.Addr().String(), endpoint.DialOptions{Identity: r.client, Trust: r.trust})
	if err == nil {
		c.Close()
		t.Error("a node that stops let a client in")
	}
	for _, conn := range r.conns {
		conn.Close()
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	r.node = nil
}

// Who waits for the phase Ready is let in.
func TestReadyMeansServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	conn := r.dial()
	for i := range 30 {
		name := fmt.Sprint("ready", i)
		r.change(control.Mutation{
			Verb: control.Create, Kind: control.KindQueue, Name: name, Queue: &control.QueueSpec{},
		})
		err := r.node.registry.await(r.ctx, func(s *control.State) bool {
			q, _ := s.Queue(name)
			return q.Status.Phase == control.Ready
		})
		if err != nil {
			t.Fatal(err)
		}
		l := r.line(conn, &wire.OpenProducer{Queue: name, Want: wire.Accepted()})
		frame[*wire.Opened](l)
		if err := l.stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
