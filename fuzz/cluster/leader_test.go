package cluster

import (
	"testing"

	"weida/broker/control"
	"weida/broker/wire"
)

// The leader is killed in the middle of publishes: every message ends as ok, and is there once and in order, on as
// many disks as its evidence says (T-52, B-229, D-1).
func TestLeaderIsKilledWhilePublishing(t *testing.T) {
	r := newRig(t, 3)
	r.apply("q", control.QueueSpec{Replicas: 3})
	q, err := r.queue("q")
	if err != nil {
		t.Fatal(err)
	}
	l, n := newLedger(t, "q"), count(3_000, 50_000)
	p := &producing{r: r, l: l, id: "p", want: wire.Replicated(2, wire.Flushed), size: 256, most: n}
	stop := r.background(p.run)
	r.await(l, "a third is answered", func(c tally) bool { return c.answered > n/3 })
	x := r.leader("q")
	r.kill(x)
	c, _ := l.tally()
	t.Logf("%s led and is dead; %+v", x.Name, c)
	r.await(l, "two thirds are answered", func(c tally) bool { return c.answered > 2*n/3 })
	r.start(x)
	r.await(l, "all are answered", func(c tally) bool { return c.answered == n })
	stop()
	l.judge(r.peek(r.client(), l))
	r.stop(r.nodes...)
	r.disks(l, q.Metadata.UID)
	r.start(r.nodes...)
	r.finish(l)
}
