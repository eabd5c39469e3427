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
	"sync"
	"syscall"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// damageLog keeps what a node says of damage, by queue.
type damageLog struct {
	mu    sync.Mutex
	lines map[string][]string // guarded by mu
}

func (l *damageLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *damageLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *damageLog) WithGroup(string) slog.Handler            { return l }

func (l *damageLog) Handle(_ context.Context, rec slog.Record) error {
	if rec.Message != "replica damaged" && rec.Message != "control log damaged" {
		return nil
	}
	queue, line := "", rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "queue" {
			queue = a.Value.String()
		}
		line += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[queue] = append(l.lines[queue], line)
	return nil
}

func (l *damageLog) of(queue string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines[queue])
}

// written is the length of a file up to its last byte that is not zero.
func written(t *testing.T, path string) (b []byte, n int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, len(bytes.TrimRight(b, "\x00"))
}

// rot turns one byte of every so many of a file, from one on.
func rot(t *testing.T, path string, from, every int) {
	t.Helper()
	b, _ := written(t, path)
	for i := from; i < len(b); i += every {
		b[i] ^= 0x10
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ruins are the damages that a replica's directory can meet.
var ruins = []struct {
	name string
	led  bool // by the node whose replica it is
	ruin func(t *testing.T, dir string) error
}{
	{"flipped", false, flipLog},
	{"flipped-leader", true, flipLog},
	{"truncated", false, func(t *testing.T, dir string) error {
		_, n := written(t, filepath.Join(dir, "00000001.seg"))
		return os.Truncate(filepath.Join(dir, "00000001.seg"), int64(n/2))
	}},
	{"no-segment", false, func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, "00000001.seg")) }},
	{"no-directory", true, func(_ *testing.T, dir string) error { return os.RemoveAll(dir) }},
	{"manifest", false, func(t *testing.T, dir string) error {
		rot(t, filepath.Join(dir, "manifest"), 70, 512)
		return nil
	}},
	{"hard-state", false, func(t *testing.T, dir string) error {
		rot(t, filepath.Join(dir, "hardstate"), 50, 4096)
		return nil
	}},
	{"snapshot", true, func(t *testing.T, dir string) error {
		list, err := filepath.Glob(filepath.Join(dir, "*.snap"))
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("no snapshot in %s", dir)
		}
		for _, path := range list {
			_, n := written(t, path)
			rot(t, path, n/2, 1<<20)
		}
		return err
	}},
}

func flipLog(t *testing.T, dir string) error {
	_, n := written(t, filepath.Join(dir, "00000001.seg"))
	rot(t, filepath.Join(dir, "00000001.seg"), n/2, 1<<30)
	return nil
}

// names are what lies in a directory; nothing where there is none.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// A replica whose files are damaged, whatever of them, is replaced on its node without anybody's help: the queue goes
// on meanwhile, every confirmed message is on all three again, what is left of the old one lies aside, whole, and is
// told of once (field cases 3, 9, 10, 18: nats-server 7549, rabbitmq-server 4251, rabbitmq-server 10808; T-52).
func TestDamagedReplicasAreRebuilt(t *testing.T) {
	t.Parallel()
	said := &damageLog{lines: make(map[string][]string)}
	r := newClusterWith(t, 3, func(c *broker.Config) {
		broker.Impatient(c)
		if c.Name == "n2" {
			c.Log = slog.New(said)
		} else if os.Getenv("WEIDA_LOG") != "" {
			c.Log = logger(t, c.Name)
		}
	})
	const hurt, each = 1, 5
	c := r.client()
	producers := make(map[string]*client.Producer)
	sent := make(map[string]int)
	publish := func(queue string, n int) {
		t.Helper()
		for range n {
			m := client.Message{Bytes: fmt.Appendf(nil, "%s %d", queue, sent[queue])}
			res, err := producers[queue].Publish(r.ctx, m)
			if err != nil || res.Outcome != client.OK {
				t.Fatalf("%s: %+v, %v", queue, res, err)
			}
			sent[queue]++
		}
	}
	for _, x := range ruins {
		lead := "n1"
		if x.led {
			lead = r.configs[hurt].Name
		}
		r.make(x.name, control.QueueSpec{Replicas: 3, Placement: control.PlacementSpec{PreferredLeader: lead}})
		two := wire.Want(wire.Replicated(2, wire.Flushed))
		p, err := c.Producer(r.ctx, x.name, client.ProducerOptions{ID: "p", Want: two})
		if err != nil {
			t.Fatal(err)
		}
		producers[x.name] = p
		publish(x.name, each)
	}
	was := make(map[string]control.Replica)
	key := r.configs[hurt].Identity.Fingerprint().String()
	here := func(rows []control.Replica) *control.Replica {
		i := slices.IndexFunc(rows, func(p control.Replica) bool { return p.Node == key && p.Lost == "" })
		if i < 0 {
			return nil
		}
		return &rows[i]
	}
	for _, x := range ruins {
		rows := r.placed(x.name, func(rows []control.Replica) bool { p := here(rows); return p != nil && p.Made })
		was[x.name] = *here(rows)
	}
	r.stop(hurt)
	left := make(map[string][]string)
	dirs := make(map[string]string)
	for _, q := range r.any().Registry().Queues {
		dirs[q.Metadata.Name] = filepath.Join(r.configs[hurt].Dir, "groups", fmt.Sprint(q.Metadata.UID))
	}
	for _, x := range ruins {
		if err := x.ruin(t, dirs[x.name]); err != nil {
			t.Fatal(err)
		}
		left[x.name] = names(t, dirs[x.name])
		publish(x.name, 1)
	}
	r.start(hurt)
	began := time.Now()
	for _, x := range ruins {
		publish(x.name, 1)
	}
	for _, x := range ruins {
		r.whole(x.name, was[x.name])
	}
	t.Log("whole again after", time.Since(began).Round(time.Millisecond))
	for _, x := range ruins {
		publish(x.name, 1)
		rows := r.placed(x.name, func(rows []control.Replica) bool { return here(rows) != nil })
		if now := here(rows); now.Replica == was[x.name].Replica || now.Disk != was[x.name].Disk {
			t.Errorf("%s: %+v took the place of %+v", x.name, now, was[x.name])
		}
		aside := fmt.Sprintf("%s.lost-%d", dirs[x.name], was[x.name].Replica)
		if list := names(t, aside); !slices.Equal(list, left[x.name]) {
			t.Errorf("%s: %v lies aside, %v was left", x.name, list, left[x.name])
		}
		if _, err := os.Stat(aside); err != nil {
			t.Error(err)
		}
		if lines := said.of(x.name); len(lines) != 1 {
			t.Errorf("%s: told %d times: %q", x.name, len(lines), lines)
		} else {
			t.Log(lines[0])
		}
	}
	for _, x := range ruins {
		r.ledBy(x.name, hurt)
		for i, b := range r.consume(c, x.name, sent[x.name]) {
			if want := fmt.Sprintf("%s %d", x.name, i); b != want {
				t.Fatalf("message %d is %q", i, b)
			}
		}
	}
}

// whole waits until a queue has three replicas that hold all of it, without one that was given up, and is ready.
func (r *clusterRig) whole(queue string, but control.Replica) {
	r.t.Helper()
	var last control.Queue
	for r.ctx.Err() == nil {
		for _, q := range r.any().Registry().Queues {
			rows := q.Status.Placement
			if q.Metadata.Name != queue {
				continue
			}
			last = q
			bad := slices.ContainsFunc(rows, func(p control.Replica) bool {
				return p.Lost != "" || p.Learner || !p.Made || p.Replica == but.Replica
			})
			if !bad && len(rows) == 3 && q.Status.Step == control.Steady && q.Status.Phase == control.Ready {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("%s does not become whole: %+v", queue, last.Status)
}

// ledBy has a node lead a queue, and waits for it.
func (r *clusterRig) ledBy(queue string, i int) {
	r.t.Helper()
	name := r.configs[i].Name
	r.make(queue, control.QueueSpec{Replicas: 3, Placement: control.PlacementSpec{PreferredLeader: name}})
	for r.ctx.Err() == nil {
		for _, q := range r.nodes[i].Registry().Queues {
			if live, ok := r.nodes[i].Live(q.Metadata.UID); ok && q.Metadata.Name == queue && live.Leader == name {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("%s is not led by %s", queue, name)
}

// A leader and a follower whose flush fails while they run step out, and others take their places on the same node,
// where the rest of the disk is sound: every confirmed message is there, and producers go on (matrix 6, 56).
func TestPoisonedReplicasAreRebuilt(t *testing.T) {
	t.Parallel()
	said := &damageLog{lines: make(map[string][]string)}
	files := faultfs.New(fsync.OS())
	const hurt = 1
	r := newClusterWith(t, 3, func(c *broker.Config) {
		broker.Impatient(c)
		if c.Name == "n2" {
			c.Log = slog.New(said)
			broker.OnFiles(c, files)
		}
	})
	c := r.client()
	key := r.configs[hurt].Identity.Fingerprint().String()
	for _, queue := range []string{"leads", "follows"} {
		lead := map[string]string{"leads": "n2", "follows": "n1"}[queue]
		r.make(queue, control.QueueSpec{Replicas: 3, Placement: control.PlacementSpec{PreferredLeader: lead}})
		two := wire.Want(wire.Replicated(2, wire.Flushed))
		p, err := c.Producer(r.ctx, queue, client.ProducerOptions{ID: "p", Want: two})
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		publish := func() {
			res, err := p.Publish(r.ctx, client.Message{Bytes: fmt.Append(nil, sent)})
			if err != nil || res.Outcome != client.OK && res.Outcome != client.BelowRequest {
				t.Fatalf("%s: %+v, %v", queue, res, err)
			}
			sent++
		}
		publish()
		row := func(p control.Replica) bool { return p.Node == key && p.Made }
		rows := r.placed(queue, func(rows []control.Replica) bool { return slices.ContainsFunc(rows, row) })
		was := rows[slices.IndexFunc(rows, row)]
		dir := ""
		for _, q := range r.nodes[hurt].Registry().Queues {
			if q.Metadata.Name == queue {
				dir = filepath.Join(r.configs[hurt].Dir, "groups", fmt.Sprint(q.Metadata.UID))
			}
		}
		files.Fail(faultfs.Match{Op: faultfs.OpSync, Path: filepath.Join(dir, "*.seg")}, 1, 1, syscall.EIO)
		for len(said.of(queue)) == 0 {
			publish()
		}
		r.whole(queue, was)
		publish()
		if list := said.of(queue); len(list) != 1 || !strings.Contains(list[0], "reason=Poisoned") {
			t.Errorf("%s: %q", queue, list)
		}
		if list := names(t, fmt.Sprintf("%s.lost-%d", dir, was.Replica)); !slices.Contains(list, "00000001.seg") {
			t.Errorf("%s: %v lies aside", queue, list)
		}
		r.ledBy(queue, hurt)
		for i, b := range r.consume(c, queue, sent) {
			if b != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %q", queue, i, b)
			}
		}
	}
}

// The only copy of a queue is never given up, however damaged: it is told of, nothing is moved, and the queue can be
// deleted.
func TestDamagedOwnerIsLeft(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.make("one", control.QueueSpec{Placement: control.PlacementSpec{Nodes: []string{"n2"}}})
	p, err := r.client().Producer(r.ctx, "one", client.ProducerOptions{Want: wire.Want(wire.Stored(wire.Flushed))})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		res, err := p.Publish(r.ctx, client.Message{Bytes: []byte("the only copy")})
		if err != nil || res.Outcome != client.OK {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	q := r.any().Registry().Queues[0]
	groups := filepath.Join(r.configs[1].Dir, "groups")
	dir := filepath.Join(groups, fmt.Sprint(q.Metadata.UID))
	r.stop(1)
	if err := flipLog(t, dir); err != nil {
		t.Fatal(err)
	}
	left, inside := names(t, groups), names(t, dir)
	r.start(1)
	until := func(what string, ok func([]control.Queue) bool) {
		t.Helper()
		for !ok(r.any().Registry().Queues) {
			if r.ctx.Err() != nil {
				t.Fatalf("it is not so that %s: %+v", what, r.any().Registry().Queues)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	until("it is told of", func(list []control.Queue) bool {
		st := list[0].Status
		return st.Phase == control.Degraded && len(st.Conditions) > 0 && st.Conditions[0].Reason == "Corrupt" &&
			strings.Contains(st.Conditions[0].Message, "nothing was moved or changed") && st.Placement[0].Lost == ""
	})
	if now := names(t, groups); !slices.Equal(now, left) || !slices.Equal(names(t, dir), inside) {
		t.Errorf("%v became %v, and %v %v", left, now, inside, names(t, dir))
	}
	zero := control.Duration(0)
	r.change(control.Mutation{Verb: control.Delete, Kind: control.KindQueue, Name: "one", Drain: &zero})
	until("it is gone", func(list []control.Queue) bool { return len(list) == 0 })
}
