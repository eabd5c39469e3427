package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
	"weida/fuzz/powercut"
)

// powered skips a test that needs disks of its own, unless it is asked for and they can be made.
func powered(t *testing.T) {
	t.Helper()
	if !long && os.Getenv("WEIDA_POWERCUT") == "" {
		t.Skip("WEIDA_POWERCUT=1 runs the tests on disks whose power is cut")
	}
	if err := powercut.Available(); err != nil {
		t.Skip(err)
	}
}

// seeded is a test's randomness; WEIDA_SEED repeats it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64() >> 16
	if text := os.Getenv("WEIDA_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 63); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d; repeat with WEIDA_SEED=%d", seed, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// poweredRig is a cluster whose nodes have a disk each.
func poweredRig(t *testing.T, n int, fs string, rng *rand.Rand) *rig {
	t.Helper()
	return poweredRigOf(t, weida, n, fs, rng)
}

// poweredRigOf is one of nodes of this binary.
func poweredRigOf(t *testing.T, bin string, n int, fs string, rng *rand.Rand) *rig {
	t.Helper()
	dir := directory(t)
	var disks []*powercut.Disk
	for i := range n {
		d, err := powercut.New(filepath.Join(dir, fmt.Sprintf("disk%d", i)), powercut.Options{FS: fs, Seed: rng.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		d.Slow(asDisksAre)
		disks = append(disks, d)
	}
	return newRigOn(t, bin, disks)
}

// asDisksAre is what a write and a flush take: at any moment something is on its way.
const asDisksAre = 2 * time.Millisecond

// cut takes the power of some nodes at one moment, at which something is on its way if it can be, and gives it back to
// their disks. The nodes are dead then.
func (r *rig) cut(rng *rand.Rand, list ...*node) (sum powercut.Loss) {
	r.t.Helper()
	looking := time.After(100 * time.Millisecond)
	for waits := true; waits; {
		select {
		case <-looking:
			waits = false
		case <-time.After(time.Duration(rng.IntN(2_000)) * time.Microsecond):
			waits = list[rng.IntN(len(list))].disk.Stats().Unflushed == 0
		}
	}
	for _, x := range list { // nothing ends any more, and nobody learns of it
		x.disk.Stall()
	}
	for _, x := range list {
		if err := x.Strike(); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, x := range list {
		one := x.disk.Cut(powercut.Keep(rng.IntN(3)))
		sum.Unflushed, sum.Kept = sum.Unflushed+one.Unflushed, sum.Kept+one.Kept
	}
	for _, x := range list {
		x.Gone()
	}
	r.remount(list...)
	return sum
}

// remount gives the power back to disks.
func (r *rig) remount(list ...*node) {
	r.t.Helper()
	done := make(chan error)
	for _, x := range list {
		go func() {
			x.disk.Slow(0)
			err := x.disk.Remount()
			x.disk.Slow(asDisksAre)
			done <- err
		}()
	}
	for range list {
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// eachFS plays a story on each kind of file system.
func eachFS(t *testing.T, story func(t *testing.T, fs string, rng *rand.Rand)) {
	powered(t)
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) { story(t, fs, seeded(t)) })
	}
}

// cuts is a story of many cuts of all nodes under load.
type cuts struct {
	r       *rig
	rng     *rand.Rand
	queues  []*ledger
	groups  map[*ledger]uint64
	done    int
	total   powercut.Loss
	stop    func()
	service time.Duration // the longest from the start of the nodes to the first confirmation of every queue
}

// newCuts makes queues, with producers at all of them and a consumer at the last.
func newCuts(r *rig, rng *rand.Rand, spec control.QueueSpec, want wire.Want, names ...string) *cuts {
	r.t.Helper()
	r.applyAll(spec, names...)
	c := &cuts{r: r, rng: rng, groups: make(map[*ledger]uint64)}
	var work []func(context.Context)
	for i, name := range names {
		l := newLedger(r.t, name)
		l.early = spec.Replicas == 1
		q, err := r.queue(name)
		if err != nil {
			r.t.Fatal(err)
		}
		c.queues, c.groups[l] = append(c.queues, l), q.Metadata.UID
		for k := range 2 {
			p := &producing{r: r, l: l, id: fmt.Sprintf("p%d", k), want: want, size: 100 + 9900*k, window: 32}
			p.every = 5 * time.Millisecond
			work = append(work, p.run)
		}
		if i == len(names)-1 {
			work = append(work, (&consuming{r: r, l: l, id: "k"}).run)
		}
	}
	c.stop = r.background(work...)
	return c
}

// once loads, cuts, counts and starts the nodes again.
func (c *cuts) once() {
	c.r.t.Helper()
	for _, why := range c.strike() {
		c.queues[0].fault("%s", why)
	}
	c.serve()
}

// strike loads every queue for a moment, cuts all nodes, and says what of the confirmed is on too few disks.
func (c *cuts) strike() (short []string) {
	r := c.r
	r.t.Helper()
	c.await("some more are confirmed", 1+c.rng.IntN(60))
	loss := r.cut(c.rng, r.nodes...)
	c.total.Unflushed, c.total.Kept = c.total.Unflushed+loss.Unflushed, c.total.Kept+loss.Kept
	c.done++
	disks := r.read(history.AtPowerCut)
	for _, l := range c.queues {
		for _, why := range l.short(disks, c.groups[l]) {
			short = append(short, fmt.Sprintf("cut %d: %s", c.done, why))
		}
	}
	return short
}

// await waits until every queue has so many more messages confirmed.
func (c *cuts) await(what string, more int) {
	c.r.t.Helper()
	for _, l := range c.queues {
		before, _ := l.tally()
		c.r.await(l, what, func(n tally) bool { return n.confirmed >= before.confirmed+more })
	}
}

// serve starts all nodes and waits until every queue confirms again.
func (c *cuts) serve() {
	r := c.r
	r.t.Helper()
	began := time.Now()
	r.start(r.nodes...)
	c.await("it is confirmed to again", 1)
	c.service = max(c.service, time.Since(began))
}

// end stops the load and judges.
func (c *cuts) end() {
	c.r.t.Helper()
	c.stop()
	confirmed := 0
	for _, l := range c.queues {
		n, _ := l.tally()
		confirmed += n.confirmed
		c.r.finish(l)
	}
	c.r.t.Logf("%d cuts of %d disks, %d of %d sectors that no flush had reached were kept; %d messages confirmed; "+
		"service back after %v at most", c.done, len(c.r.nodes), c.total.Kept, c.total.Unflushed, confirmed,
		c.service.Round(time.Millisecond))
	if c.total.Unflushed == 0 {
		c.r.t.Error("no cut took anything: the test shows nothing")
	}
}

// play cuts so many times, each few of them with queues of their own.
func (r *rig) play(rng *rand.Rand, n int, spec control.QueueSpec, want wire.Want) {
	r.t.Helper()
	for round := 0; n > 0; round++ {
		var names []string
		for _, x := range []string{"a", "b", "c"} {
			names = append(names, fmt.Sprintf("%s%d", x, round))
		}
		c := newCuts(r, rng, spec, want, names...)
		for range min(n, 10) {
			c.once()
		}
		n -= c.done
		c.end()
		if r.t.Failed() {
			return
		}
		r.drop(names)
	}
}

// The power of a node alone is cut again and again, at any moment: what was confirmed as stored and flushed is there,
// and nothing else (D-3, T-30).
func TestPowerOfOneNode(t *testing.T) {
	eachFS(t, func(t *testing.T, fs string, rng *rand.Rand) {
		r := poweredRig(t, 1, fs, rng)
		r.play(rng, count(5, 100), control.QueueSpec{Replicas: 1}, wire.Stored(wire.Flushed))
	})
}

// The power of all three nodes is cut at one moment, again and again, under load: as many disks as the evidence says
// hold what was confirmed as replicated and flushed, and the cluster serves again by itself (field case 1: nats-server
// 7564).
func TestPowerOfAllNodes(t *testing.T) {
	eachFS(t, func(t *testing.T, fs string, rng *rand.Rand) {
		r := poweredRig(t, 3, fs, rng)
		r.play(rng, count(4, 100), control.QueueSpec{Replicas: 3}, wire.Replicated(2, wire.Flushed))
	})
}
