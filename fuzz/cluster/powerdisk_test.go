package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// ailing waits until the cluster says of a node's disk that it is in a state.
func (r *rig) ailing(x *node, state string) {
	r.t.Helper()
	r.within(hang, "the disk of "+x.Name+" is told as "+state, func() error {
		s, err := r.status()
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if n.Metadata.Name != x.Name || n.Live == nil || n.Live.Disk == nil {
				continue
			}
			if n.Live.Disk.State == state {
				return nil
			}
			err = fmt.Errorf("it is %+v", *n.Live.Disk)
		}
		return err
	})
}

// moved waits until a queue is led by another node, or by this one again.
func (r *rig) moved(queue string, x *node, back bool) {
	r.t.Helper()
	r.within(hang, fmt.Sprintf("%s is led by %s: %v", queue, x.Name, back), func() error {
		if y := r.leader(queue); (y == x) != back {
			return fmt.Errorf("%s leads it", y.Name)
		}
		return nil
	})
}

// A foreign file takes all the room of the disk under the leader: the queue, and the control group if it was led there,
// go on by way of another node, and no publish ends otherwise than confirmed. When the file is gone the replica catches
// up, leads again, and all three disks hold the same (rows 9 and 35 of the fault matrix).
func TestPowerFullLeader(t *testing.T) {
	eachFS(t, func(t *testing.T, fs string, rng *rand.Rand) {
		r := poweredRig(t, 3, fs, rng)
		r.apply("q", control.QueueSpec{Replicas: 3})
		q, err := r.queue("q")
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger(t, "q")
		p := &producing{r: r, l: l, id: "p", want: wire.Replicated(2, wire.Flushed), size: 2_000, every: time.Millisecond}
		stop := r.background(p.run)
		goOn := func(what string, n int) {
			before, _ := l.tally()
			r.await(l, what, func(c tally) bool { return c.confirmed > before.confirmed+n })
		}
		goOn("messages are confirmed", 100)
		x := r.leader("q")
		if err := x.disk.Fill(0); err != nil {
			t.Fatal(err)
		}
		r.moved("q", x, false)
		r.ailing(x, "full")
		goOn("messages are confirmed with the leader's disk full", 1_000)
		if y := r.leader("q"); y == x {
			t.Errorf("%s leads again without room", x.Name)
		}
		r.change("PUT", queuePath("another"), map[string]any{"spec": control.QueueSpec{Replicas: 1}})
		if err := x.disk.Free(); err != nil {
			t.Fatal(err)
		}
		r.ailing(x, "ok")
		r.moved("q", x, true)
		goOn("messages are confirmed by the first leader", 100)
		stop()
		l.judge(r.peek(r.client(), l))
		r.healthy(hang)
		r.stop(r.nodes...)
		r.disks(l, q.Metadata.UID)
		r.alike(q.Metadata.UID)
	})
}

// alike fails unless the disks of all nodes, which are stopped, hold the same messages of a group.
func (r *rig) alike(group uint64) {
	r.t.Helper()
	var first map[uint64]bool
	for i, d := range r.read(history.AtStop) {
		k := d[group].offsets()
		if i == 0 {
			first = k
		}
		if !maps.Equal(first, k) {
			r.t.Errorf("%s holds %d messages, %s %d, or others", r.nodes[i].Name, len(k), r.nodes[0].Name, len(first))
		}
	}
}

// The disk under the leader becomes slow, and is never still for as long as an election takes: the leader hands over,
// and what is published goes on as fast as the other disks are (row 17 of the fault matrix).
func TestPowerSlowLeader(t *testing.T) {
	eachFS(t, func(t *testing.T, fs string, rng *rand.Rand) {
		r := poweredRig(t, 3, fs, rng)
		r.apply("q", control.QueueSpec{Replicas: 3})
		l := newLedger(t, "q")
		p := &producing{r: r, l: l, id: "p", want: wire.Replicated(2, wire.Flushed), size: 200, every: time.Millisecond}
		stop := r.background(p.run)
		x := r.leader("q")
		x.disk.Slow(400 * time.Millisecond)
		r.moved("q", x, false)
		r.ailing(x, "slow")
		before, _ := l.tally()
		r.await(l, "messages are confirmed with the disk slow", func(c tally) bool {
			return c.confirmed > before.confirmed+200
		})
		if y := r.leader("q"); y == x {
			t.Errorf("%s leads again with a slow disk", x.Name)
		}
		x.disk.Slow(asDisksAre)
		stop()
		l.judge(r.peek(r.client(), l))
	})
}
