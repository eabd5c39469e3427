package connector_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weida/broker/connector"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// patience bounds a hang and decides nothing else.
const patience = 5 * time.Minute

// rig is a real node with the queue "q", which may stop and start, and a directory for connectors.
type rig struct {
	t        *testing.T
	ctx      context.Context
	c        broker.Config
	key, own *endpoint.Identity
	n        *broker.Node // nil while it is down
	dir      string
	keys     string
	queue    string // that is looked at
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: t.TempDir(), keys: t.TempDir(), queue: "q"}
	r.key, r.own = r.identity("client"), r.identity("node")
	r.c = broker.Config{
		Dir: filepath.Join(r.keys, "n1"), Listen: "127.0.0.1:0", Identity: r.own,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{r.key.Fingerprint(): endpoint.RoleAdmin}),
	}
	r.start()
	r.c.Listen = r.n.Addr().String()
	t.Cleanup(r.stop)
	r.make("q")
	return r
}

func (r *rig) identity(name string) *endpoint.Identity {
	r.t.Helper()
	i, err := endpoint.LoadOrCreateIdentity(fsync.OS(), r.keys, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return i
}

func (r *rig) start() {
	r.t.Helper()
	n, err := broker.Open(r.c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.n = n
}

func (r *rig) stop() {
	r.t.Helper()
	if r.n == nil {
		return
	}
	if err := r.n.Close(); err != nil {
		r.t.Error(err)
	}
	r.n = nil
}

func (r *rig) make(queue string) {
	r.t.Helper()
	if err := r.n.MakeQueue(r.ctx, queue, control.QueueSpec{}); err != nil {
		r.t.Fatal(err)
	}
}

func options(addr string, key, own *endpoint.Identity) client.Options {
	return client.Options{
		Addrs: []string{addr}, Identity: key,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{own.Fingerprint(): endpoint.RoleNode}),
	}
}

func (r *rig) client() *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.ctx, options(r.c.Listen, r.key, r.own))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

func sourceSpec() control.ConnectorSpec {
	return control.ConnectorSpec{
		Protocol: connector.Protocol, Direction: "source", Address: "f", Queue: "q", Evidence: "stored:flushed", Loss: "none",
	}
}

func sinkSpec() control.ConnectorSpec {
	return control.ConnectorSpec{
		Protocol: connector.Protocol, Direction: "sink", Address: "f", Queue: "q", Evidence: "flushed", Loss: "duplicates",
	}
}

func with(s control.ConnectorSpec, policy ...string) control.ConnectorSpec {
	s.Policy = make(map[string]string)
	for i := 0; i < len(policy); i += 2 {
		s.Policy[policy[i]] = policy[i+1]
	}
	return s
}

func (r *rig) options(spec control.ConnectorSpec) connector.Options {
	return connector.Options{
		UID: 7, Spec: spec, Dir: r.dir, Client: options(r.c.Listen, r.key, r.own),
		Poll: 2 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
	}
}

// run is a connector that runs.
type run struct {
	connector.Connector
	r    *rig
	end  context.CancelFunc
	done chan error
}

func (r *rig) run(o connector.Options) *run {
	ctx, end := context.WithCancel(r.ctx)
	u := &run{r: r, end: end, done: make(chan error, 1)}
	u.Connector = connector.New(o)
	go func() { u.done <- u.Run(ctx) }()
	r.t.Cleanup(end)
	return u
}

// stop ends it and waits.
func (u *run) stop() {
	u.r.t.Helper()
	u.end()
	u.finished()
}

func (u *run) finished() {
	u.r.t.Helper()
	select {
	case err := <-u.done:
		if err != nil {
			u.r.t.Fatal(err)
		}
	case <-u.r.ctx.Done():
		u.r.t.Fatalf("it does not end: %+v", u.Status())
	}
}

// until waits until the status is as wanted.
func (u *run) until(what string, ok func(connector.Status) bool) connector.Status {
	u.r.t.Helper()
	for {
		s := u.Status()
		if ok(s) {
			return s
		}
		if u.r.ctx.Err() != nil {
			u.r.t.Fatalf("never %s: %+v", what, s)
		}
		connector.Pause(u.r.ctx, time.Millisecond)
	}
}

func (u *run) untilAt(position uint64) {
	u.r.t.Helper()
	u.until(fmt.Sprint("at ", position), func(s connector.Status) bool { return s.Position >= position })
}

func (u *run) untilWhy(phase control.Phase, reason string) connector.Status {
	u.r.t.Helper()
	return u.until(reason, func(s connector.Status) bool { return s.Phase == phase && s.Reason == reason })
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) grow(name, text string) {
	r.t.Helper()
	f, err := os.OpenFile(r.path(name), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

const stateName = ".weida-connector-7.state"

// message is one that is in the queue.
type message struct {
	seq  uint64
	body string
}

// inQueue is what is in the queue, in order.
func (r *rig) inQueue() (list []message) {
	r.t.Helper()
	for d, err := range r.client().Peek(r.ctx, r.queue, client.PeekOptions{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil {
			r.t.Fatal(err)
		}
		if d.Producer != "connector-7" {
			r.t.Errorf("message %d is from %q", d.Offset, d.Producer)
		}
		list = append(list, message{d.Seq, string(b)})
	}
	return list
}

// holds compares the queue with lines, the first of which is number first.
func (r *rig) holds(first uint64, lines ...string) {
	r.t.Helper()
	got := r.inQueue()
	if len(got) != len(lines) {
		r.t.Fatalf("%d messages, want %d", len(got), len(lines))
	}
	for i, m := range got {
		if m.seq != first+uint64(i) || m.body != lines[i] {
			r.t.Fatalf("message %d is %d %.40q, want %d %.40q", i, m.seq, m.body, first+uint64(i), lines[i])
		}
	}
}

// publish sends messages without a connector.
func (r *rig) publish(bodies ...string) {
	r.t.Helper()
	p, err := r.client().Producer(r.ctx, "q", client.ProducerOptions{Want: wire.Stored(wire.Written)})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, b := range bodies {
		m := client.Message{Body: strings.NewReader(b), Length: int64(len(b))}
		if err := p.Send(r.ctx, m, func(res client.Result) {
			if res.Outcome != client.OK {
				r.t.Errorf("%+v", res)
			}
		}); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := p.Close(r.ctx); err != nil {
		r.t.Fatal(err)
	}
}

// numbered is n lines that tell their number.
func numbered(from, n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprint("line ", from+i))
	}
	return lines
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// drain accepts n messages of a queue.
func (r *rig) drain(queue string, n int) (bodies []string) {
	r.t.Helper()
	k, err := r.client().Consumer(r.ctx, queue, client.ConsumerOptions{Subscription: "drain", Limit: uint64(n)})
	if err != nil {
		r.t.Fatal(err)
	}
	defer k.Close()
	for d, err := range k.Deliveries(r.ctx) {
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil {
			r.t.Fatal(err)
		}
		bodies = append(bodies, string(b))
		if err := d.Accept(r.ctx); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := k.Flush(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	return bodies
}
