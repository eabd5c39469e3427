package history

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
	"weida/segment"
)

// cluster is three real nodes in this process, with a history of what is done to their queue.
type cluster struct {
	t     *testing.T
	ctx   context.Context
	dirs  []string
	nodes []*broker.Node
	c     *client.Client
	lines []Line
	ref   uint64
	q     Queue
}

func newCluster(t *testing.T) *cluster {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	x, dir := &cluster{t: t, ctx: ctx}, t.TempDir()
	identity := func(name string) *endpoint.Identity {
		id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	key := identity("client")
	trust := endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleClient})
	var configs []broker.Config
	var seeds []control.Seed
	var addrs []string
	roles := make(map[endpoint.Fingerprint]endpoint.Role)
	for _, name := range []string{"n1", "n2", "n3"} {
		ports, err := endpoint.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		addr, id := fmt.Sprint("127.0.0.1:", ports[0]), identity(name)
		roles[id.Fingerprint()] = endpoint.RoleNode
		seeds = append(seeds, control.Seed{Name: name, Fingerprint: id.Fingerprint().String(), Address: addr})
		addrs = append(addrs, addr)
		x.dirs = append(x.dirs, filepath.Join(dir, "data-"+name))
		configs = append(configs, broker.Config{
			Dir: filepath.Join(dir, "data-"+name), Listen: addr, Identity: id, Name: name, Trust: trust,
		})
	}
	for i := range configs {
		configs[i].Seeds = seeds
		n, err := broker.Open(configs[i])
		if err != nil {
			t.Fatal(err)
		}
		x.nodes = append(x.nodes, n)
	}
	t.Cleanup(x.stop)
	if err := x.nodes[0].MakeQueue(ctx, "q", control.QueueSpec{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	x.q = Queue{"q", x.nodes[0].Registry().Queues[0].Metadata.UID}
	var err error
	x.c, err = client.Dial(ctx, client.Options{Addrs: addrs, Identity: key, Trust: endpoint.NewTrust(roles)})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *cluster) stop() {
	if x.c != nil {
		x.c.Close()
		x.c = nil
	}
	for _, n := range x.nodes {
		if err := n.Close(); err != nil {
			x.t.Error(err)
		}
	}
	x.nodes = nil
}

func (x *cluster) note(e Event) { x.lines = append(x.lines, Line{T: Now(), Client: "c", Event: e}) }

// publish sends bodies, small ones and some in files of their own.
func (x *cluster) publish(n int) {
	for _, id := range []string{"p", ""} {
		want := wire.Replicated(3, wire.Flushed)
		p, err := x.c.Producer(x.ctx, "q", client.ProducerOptions{ID: id, Want: want})
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range n {
			body := bytes.Repeat(fmt.Appendf(nil, "%s %d ", id, i), 1+i%3)
			if i%10 == 9 {
				body = bytes.Repeat(body, segment.InlineMax/len(body)+1)
			}
			m := Message{Producer: id, Length: int64(len(body)), Digest: DigestOf(body)}
			if id != "" {
				m.Seq = p.Next()
			}
			x.ref++
			x.note(&Publish{Ref: x.ref, Queue: x.q, Message: m, Stream: "s" + id, Want: Of(want)})
			r, err := p.Publish(x.ctx, client.Message{Body: bytes.NewReader(body), Length: int64(len(body))})
			if err != nil || r.Outcome != client.OK {
				x.t.Fatalf("%+v, %v", r, err)
			}
			x.note(&Answer{
				Ref: x.ref, Outcome: r.Outcome, Evidence: Of(r.Evidence), Committed: r.Committed, Offset: r.Offset,
				Term: r.Term,
			})
		}
	}
}

// What three stopped nodes hold is read from their directories: every message is where it was confirmed, on as many
// disks as its evidence says; the directories are not changed by it.
func TestDumpDisk(t *testing.T) {
	x := newCluster(t)
	x.publish(40)
	x.stop()
	before := x.tree()
	for _, at := range []DumpAt{AtStop, AtPowerCut} {
		lines := slices.Clone(x.lines)
		for i, dir := range x.dirs {
			o := DiskOptions{Node: fmt.Sprint("n", i+1), At: at, Scratch: t.TempDir()}
			err := DumpDisk(dir, o, func(e Event) { x.note(e) })
			if err != nil {
				t.Fatal(err)
			}
		}
		r := judge(x.lines, 0)
		if !r.OK() || r.Counted.Dumps != 3 || r.Rules[Held].Judged < 160 || r.Rules[Agreement].Judged < 240 {
			t.Fatalf("%s\n%v", r.Table(), r.Safety)
		}
		// One replica too many, and it is seen.
		for i := range x.lines {
			if a, ok := x.lines[i].Event.(*Answer); ok {
				c := *a
				c.Evidence = Of(wire.Replicated(4, wire.Flushed))
				x.lines[i].Event = &c
			}
		}
		if r := judge(x.lines, 0); r.Rules[Held].Broken != 80 {
			t.Errorf("%d messages are on fewer disks than was said, and %d are seen", 80, r.Rules[Held].Broken)
		}
		x.lines = lines
	}
	if after := x.tree(); after != before {
		t.Errorf("the directories were changed: %s, and then %s", before, after)
	}
}

// tree is the names and sizes of all files.
func (x *cluster) tree() string {
	var b bytes.Buffer
	for _, dir := range x.dirs {
		list, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
		if err != nil {
			x.t.Fatal(err)
		}
		for _, name := range list {
			text, err := os.ReadFile(name)
			if err != nil {
				x.t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %v\n", filepath.Base(name), DigestOf(text))
		}
	}
	return b.String()
}
