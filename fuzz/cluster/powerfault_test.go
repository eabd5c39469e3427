package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/process"
	"weida/fuzz/powercut"
)

// trouble is what happens to the disk of one node of three, which leads a queue.
type trouble struct {
	name string
	// begin makes it.
	begin func(d *powercut.Disk)
	// ends says that the node has to end by itself.
	ends bool
}

var troubles = []trouble{
	{name: "one queue's blocks fail", begin: func(d *powercut.Disk) {
		d.FailWrites(powercut.Fault{Pattern: []byte("queue a producer")})
	}},
	{name: "one write fails", begin: func(d *powercut.Disk) {
		d.FailWrites(powercut.Fault{Pattern: []byte("producer"), Count: 1})
	}},
	{name: "one flush of the device fails", begin: func(d *powercut.Disk) {
		d.FailFlush(1)
	}},
	{name: "it stalls", begin: func(d *powercut.Disk) {
		d.Stall()
	}},
	{name: "it turns read-only", ends: true, begin: func(d *powercut.Disk) {
		d.FailWrites(powercut.Fault{})
	}},
}

// The disk of a node that leads fails in one way or another: the others serve all queues, and the node serves again
// when the disk does, by itself or after a start. Nothing that was confirmed is missing, also not after a power cut of
// all (rows 6, 8 and 17 of the fault matrix).
func TestPowerTroubles(t *testing.T) {
	eachFS(t, func(t *testing.T, fs string, rng *rand.Rand) {
		r := poweredRig(t, 3, fs, rng)
		for _, x := range troubles {
			t.Run(x.name, func(t *testing.T) {
				outer := r.t
				r.t = t
				defer func() { r.t = outer }()
				r.suffer(rng, x)
			})
			if t.Failed() {
				return
			}
		}
	})
}

// suffer plays one of the troubles.
func (r *rig) suffer(rng *rand.Rand, t trouble) {
	r.t.Helper()
	names := []string{"a", "b", "c"}
	c := newCuts(r, rng, control.QueueSpec{Replicas: 3}, wire.Replicated(2, wire.Flushed), names...)
	c.await("it is confirmed to", 20)
	x := r.leader("a")
	t.begin(x.disk)
	began := time.Now()
	c.await("it is confirmed to by those who are well", 100)
	r.t.Logf("%s led; all queues are confirmed to %v after it began", x.Name, time.Since(began).Round(time.Millisecond))
	if t.ends {
		r.within(hang, x.Name+" ends by itself", func() error {
			if x.Alive() {
				return errors.New("it runs")
			}
			return nil
		})
	}
	r.heal(x, t)
	r.within(hang, "every group is healthy", func() error {
		if !x.Alive() { // its file system may have ended with the fault, and it with its file system
			r.remount(x)
			r.start(x)
		}
		return r.sound()
	})
	r.t.Logf("all is well %v after it began", time.Since(began).Round(time.Millisecond))
	c.once()
	c.end()
	r.drop(names)
}

// heal makes a disk well.
func (r *rig) heal(x *node, t trouble) {
	r.t.Helper()
	x.disk.Heal()
	x.disk.Slow(asDisksAre)
	if t.ends {
		r.refusesReadOnly(x)
	}
}

// refusesReadOnly wants a node not to start on a file system that takes no writes, and to say why.
func (r *rig) refusesReadOnly(x *node) {
	r.t.Helper()
	if err := x.disk.RemountReadOnly(); err != nil {
		r.t.Fatal(err)
	}
	_, err := x.Node.Start()
	var ended *process.EndedError
	if !errors.As(err, &ended) {
		r.t.Fatalf("a start on a read-only file system: %v", err)
	}
	b, err := os.ReadFile(ended.Said)
	if err != nil || !strings.Contains(string(b[max(0, len(b)-1000):]), "read-only") {
		r.t.Errorf("a node on a read-only file system said: %s, %v", b[max(0, len(b)-1000):], err)
	}
}

// drop deletes queues and waits until they are gone.
func (r *rig) drop(names []string) {
	r.t.Helper()
	for _, name := range names {
		r.change("DELETE", queuePath(name)+"?drainDeadline=0s", nil)
		r.within(hang, name+" is gone", func() error {
			a, err := r.ask(r.alive()[0], "GET", queuePath(name), nil)
			if err == nil && a.Status != 404 {
				err = fmt.Errorf("status %d", a.Status)
			}
			return err
		})
	}
}
