package broker_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// disks is a cluster of three whose disks can be made full.
type disks struct {
	*clusterRig
	files []*faultfs.FS
}

func newDisks(t *testing.T) *disks {
	d := &disks{}
	d.clusterRig = newClusterWith(t, 3, func(c *broker.Config) {
		d.files = append(d.files, faultfs.New(fsync.OS()))
		broker.OnFiles(c, d.files[len(d.files)-1])
	})
	t.Cleanup(func() { // before the nodes stop
		for _, f := range d.files {
			f.SetFull(false)
		}
	})
	return d
}

// until waits for something.
func (d *disks) until(what string, so func() bool) {
	d.t.Helper()
	for !so() {
		select {
		case <-d.ctx.Done():
			d.t.Fatalf("it does not come about that %s: %+v", what, d.any().Registry().Queues)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// leader is which node serves a queue.
func (d *disks) leader(queue string) (at int) {
	d.t.Helper()
	d.until(queue+" has a leader", func() bool {
		at = d.leads(queue)
		return at >= 0
	})
	return at
}

func (d *disks) leads(queue string) int {
	list := d.any().Registry().Queues
	i := slices.IndexFunc(list, func(q control.Queue) bool { return q.Metadata.Name == queue })
	if i < 0 {
		return -1
	}
	return slices.IndexFunc(d.nodes, func(n *broker.Node) bool {
		_, serves := n.Live(list[i].Metadata.UID)
		return serves
	})
}

// at is which node has a number in the registry.
func (d *disks) at(number uint64) int {
	return slices.IndexFunc(d.nodes, func(n *broker.Node) bool { return n.Local().Node == number })
}

// full makes some disks full, or gives all others room, and waits until all nodes know.
func (d *disks) full(which ...int) {
	d.t.Helper()
	for i, f := range d.files {
		f.SetFull(slices.Contains(which, i))
	}
	d.until("all nodes know which disks are full", func() bool {
		for i := range d.nodes {
			if d.nodes[i].Local().Disk.State == "full" != slices.Contains(which, i) {
				return false
			}
			for _, g := range d.nodes[i].Local().Groups {
				if g.Replication == nil {
					continue
				}
				for _, f := range g.Replication.Followers {
					if f.Disk == "full" != slices.Contains(which, d.at(f.Node)) {
						return false
					}
				}
			}
		}
		return true
	})
}

// home waits until a queue is led where the registry wants it to be, and returns where that is.
func (d *disks) home(queue string) (at int) {
	d.t.Helper()
	d.placed(queue, func(rows []control.Replica) bool {
		i := slices.IndexFunc(rows, func(p control.Replica) bool { return p.Lead })
		if i < 0 {
			return false
		}
		at = d.at(rows[i].Number)
		return d.leads(queue) == at
	})
	return at
}

// writer publishes with an id and remembers what was confirmed.
type writer struct {
	d       *disks
	p       *client.Producer
	want    wire.Want // of messages; zero is the producer's
	sent    int
	kept    []string // bodies, in order
	refused int
}

func (d *disks) writer(queue string, want wire.Evidence) *writer {
	d.t.Helper()
	p, err := d.client().Producer(d.ctx, queue, client.ProducerOptions{ID: "w", Want: wire.Want(want)})
	if err != nil {
		d.t.Fatal(err)
	}
	return &writer{d: d, p: p}
}

// put publishes n messages, one after the other. Each is confirmed, or refused for want of room, which is counted.
func (w *writer) put(n int) {
	w.d.t.Helper()
	for range n {
		body := fmt.Sprintf("message %d%s", w.sent, strings.Repeat(".", 30<<10))
		w.sent++
		m := client.Message{Bytes: []byte(body), Want: w.want}
		res, err := w.p.Publish(w.d.ctx, m)
		for err == nil && res.Outcome == client.Indeterminate {
			// The stream broke as the leadership moved, and whoever was asked next had no room, which says nothing of
			// the first time: the same sequence tells, once somebody has room.
			m.Seq = res.Seq
			res, err = w.p.Publish(w.d.ctx, m)
		}
		var why *wire.Error
		switch {
		case err != nil:
			w.d.t.Fatal(err)
		case res.Outcome == client.OK:
			w.kept = append(w.kept, body)
		case res.Outcome == client.Refused && errors.As(res.Err, &why) && why.Code == wire.DiskFull:
			w.refused++
		default:
			w.d.t.Fatalf("message %d: %+v", w.sent-1, res)
		}
	}
}

// check fails unless the queue gives back what was confirmed, once and in order, and on all three disks.
func (w *writer) check(queue string) {
	w.d.t.Helper()
	w.d.home(queue) // settles that come while the leadership moves may be refused
	got := w.d.consume(w.d.client(), queue, len(w.kept))
	if !slices.Equal(got, w.kept) {
		w.d.t.Errorf("%d messages came back, %d were confirmed, or not in that order", len(got), len(w.kept))
	}
	w.d.until("all replicas have the same", func() bool {
		last := make(map[uint64]int)
		n := 0
		for _, x := range w.d.nodes {
			for _, g := range x.Local().Groups {
				if g.Queue == queue {
					last[g.Flushed]++
					n++
				}
			}
		}
		return n == 3 && len(last) == 1
	})
}

// A leader whose disk becomes full hands its queue over: publishes go on by way of another one, nothing that was
// confirmed is lost, and the leadership does not come back before there is room; then it does, by itself.
func TestLeaderWithAFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	d.make("q", control.QueueSpec{Replicas: 3})
	w := d.writer("q", wire.Replicated(2, wire.Flushed))
	w.put(20)
	first := d.home("q")
	d.files[first].SetFull(true)
	for d.leads("q") == first || d.leads("q") < 0 {
		w.put(1)
	}
	t.Logf("%d were refused until another one led", w.refused)
	w.refused = 0
	d.full(first)
	w.put(60)
	if w.refused > 0 || d.leader("q") == first {
		t.Errorf("%d refused by the new leader; the old one leads again: %v", w.refused, d.leader("q") == first)
	}
	// Nobody gets it back by asking.
	var why *wire.Error
	uid := d.any().Registry().Queues[0].Metadata.UID
	if err := d.nodes[first].Transfer(d.ctx, uid, d.nodes[first].Local().Node, false); !errors.As(err, &why) ||
		why.Code != wire.Unsafe {
		t.Errorf("a transfer to the full node: %v", err)
	}
	d.full()
	w.want = wire.Want(wire.Replicated(3, wire.Flushed))
	if d.home("q") != first {
		t.Error("it does not lead again")
	}
	w.put(5)
	w.check("q")
}

// A follower whose disk is full does without what it has no room for: the queue goes on with the others, whoever leads
// stays, and with room again the follower catches up by itself. Meanwhile nothing new is placed there.
func TestFollowerWithAFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	d.make("q", control.QueueSpec{Replicas: 3})
	w := d.writer("q", wire.Replicated(2, wire.Flushed))
	w.put(5)
	lead := d.home("q")
	full := (lead + 1) % 3
	d.full(full)
	w.put(60)
	for i := range 4 {
		name := fmt.Sprint("alone", i)
		d.make(name, control.QueueSpec{Replicas: 1})
		rows := d.placed(name, func(rows []control.Replica) bool { return len(rows) == 1 })
		if d.at(rows[0].Number) == full {
			t.Errorf("%s was placed on the full node", name)
		}
	}
	if w.refused > 0 || d.leader("q") != lead {
		t.Errorf("%d refused, the leader was %d and is %d", w.refused, lead, d.leader("q"))
	}
	d.full()
	w.want = wire.Want(wire.Replicated(3, wire.Flushed))
	w.put(5)
	w.check("q")
}

// Field case 57 (pulsar 6969): where two of three disks are full, or all, messages are refused with the typed error,
// what needs no room of a message goes on, the leadership stays where it is, and messages are taken again as soon as a
// majority has room.
func TestTooFewDisksHaveRoom(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	d.make("q", control.QueueSpec{Replicas: 3})
	w := d.writer("q", wire.Replicated(2, wire.Flushed))
	w.put(20)
	lead := d.home("q")
	before := d.terms("q")
	for _, which := range [][]int{{(lead + 1) % 3, (lead + 2) % 3}, {0, 1, 2}} { // the leader last: it could go nowhere
		d.full(which...)
		d.until("messages are refused", func() bool {
			w.put(1)
			return w.refused > 0
		})
		w.refused = 0
		if w.put(5); w.refused != 5 {
			t.Errorf("%v full: %d of 5 refused", which, w.refused)
		}
		w.refused = 0
	}
	got := d.consume(d.client(), "q", 10) // their settles have the room that is kept for them
	if !slices.Equal(got, w.kept[:10]) {
		t.Error("with all disks full other messages came")
	}
	w.kept = w.kept[10:]
	if now := d.terms("q"); now != before || d.leader("q") != lead {
		t.Errorf("the leadership wandered from term %d to %d", before, now)
	}
	d.full((lead + 1) % 3)
	d.until("messages are taken where two have room", func() bool {
		n := len(w.kept)
		w.put(1)
		return len(w.kept) > n
	})
	d.full()
	w.check("q")
}

// What the leader wrote before it knew that the two others have no room is answered in bounded time: it is not known
// whether it will be committed, and why. With room it is there, once, whoever sends it again.
func TestWrittenBeforeTheOthersWereFull(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	d.make("q", control.QueueSpec{Replicas: 3})
	w := d.writer("q", wire.Replicated(2, wire.Flushed))
	w.put(3)
	lead := d.home("q")
	group := fmt.Sprint(d.any().Registry().Queues[0].Metadata.UID)
	for i, f := range d.files {
		if segments := filepath.Join(d.configs[i].Dir, "groups", group, "*.seg"); i != lead {
			f.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, -1, fsync.ErrDiskFull)
		}
	}
	m := client.Message{Bytes: []byte("waits")}
	res, err := w.p.Publish(d.ctx, m)
	var why *wire.Error
	if err != nil || res.Outcome != client.Indeterminate || !errors.As(res.Err, &why) || why.Code != wire.Uncommitted {
		t.Fatalf("%v, %v with %v", err, res, why)
	}
	if !strings.Contains(why.Detail, "2 of 3 voters have no room") || strings.Contains(why.Detail, "nothing was stored") {
		t.Errorf("it says %q", why.Detail)
	}
	m.Seq = res.Seq
	if res, err = w.p.Publish(d.ctx, m); err != nil || res.Outcome != client.Indeterminate {
		t.Errorf("sent again without room: %v, %+v", err, res)
	}
	for _, f := range d.files {
		f.Heal()
	}
	d.until("it is taken where all have room", func() bool {
		res, err = w.p.Publish(d.ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		return res.Outcome == client.OK
	})
	w.kept = append(w.kept, "waits")
	w.put(1)
	w.check("q")
}

// terms is the newest term of a queue's group.
func (d *disks) terms(queue string) (t uint64) {
	for _, n := range d.nodes {
		for _, g := range n.Local().Groups {
			if g.Queue == queue {
				t = max(t, g.Term)
			}
		}
	}
	return t
}
