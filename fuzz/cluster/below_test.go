package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// One node of three is dead: what asks for three replicas ends as committed below request with two, and two disks hold
// it; what asks for two is ok. Two are dead: it is refused as no quorum, in bounded time, and a queue that has one
// replica goes on. Both come back, and it goes on by itself (D-11, X-4, T-51, T-52).
func TestNodesAreMissing(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 3)
	r.apply("q", control.QueueSpec{Replicas: 3})
	r.apply("alone", control.QueueSpec{Replicas: 1, Placement: control.PlacementSpec{Nodes: []string{"n1"}}})
	q, err := r.queue("q")
	if err != nil {
		t.Fatal(err)
	}
	l, alone := newLedger(t, "q"), newLedger(t, "alone")
	c := r.client()
	n2, n3 := r.nodes[1], r.nodes[2]

	r.kill(n3)
	r.leader("q")
	for range 5 {
		m := r.send(c, l, wire.Replicated(3, wire.Flushed), 300*time.Millisecond)
		if res := m.result; res.Outcome != client.BelowRequest || res.Evidence != wire.Replicated(2, wire.Flushed) {
			t.Fatalf("three were asked for and two are there: %s with %v, %v", res.Outcome, res.Evidence, res.Err)
		}
		m = r.send(c, l, wire.Replicated(2, wire.Flushed), hang)
		if res := m.result; res.Outcome != client.OK || res.Evidence != wire.Replicated(2, wire.Flushed) {
			t.Fatalf("two were asked for and are there: %s with %v, %v", res.Outcome, res.Evidence, res.Err)
		}
	}

	r.kill(n2)
	began := time.Now()
	r.refused(c, l, wire.NoQuorum)
	t.Logf("refused for want of a quorum %v after the majority was killed", time.Since(began).Round(time.Millisecond))
	for range 5 {
		if m := r.send(c, alone, wire.Stored(wire.Flushed), hang); m.result.Outcome != client.OK {
			t.Errorf("a queue of one replica: %s, %v", m.result.Outcome, m.result.Err)
		}
	}

	r.start(n2, n3)
	p := &producing{r: r, l: l, id: "p", want: wire.Replicated(3, wire.Flushed), size: 100, most: 20, below: true}
	p.run(r.ctx)
	r.healthy(hang)
	if m := r.send(c, l, wire.Replicated(3, wire.Flushed), hang); m.result.Outcome != client.OK {
		t.Errorf("all are back: %s with %v, %v", m.result.Outcome, m.result.Evidence, m.result.Err)
	}
	l.judge(r.peek(c, l))
	r.stop(r.nodes...)
	r.disks(l, q.Metadata.UID)
	r.start(r.nodes...)
	r.finish(l)
	r.finish(alone)
}

// A minority's disk has nothing of what was confirmed without it, and the count says so: what disks are counted to
// hold is not what a node says of itself.
func TestDisksAreCounted(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 3)
	r.apply("q", control.QueueSpec{Replicas: 3})
	q, err := r.queue("q")
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, "q")
	c := r.client()
	dead := r.others(r.leader("q"))[0]
	r.kill(dead)
	for range 20 {
		if m := r.send(c, l, wire.Replicated(2, wire.Flushed), hang); m.result.Outcome != client.OK {
			t.Fatalf("%s, %v", m.result.Outcome, m.result.Err)
		}
	}
	r.stop(r.others(dead)...)
	r.disks(l, q.Metadata.UID)
	all := r.read(history.AtStop)
	if k := all[slices.Index(r.nodes, dead)][q.Metadata.UID]; k != nil && len(k.digests)+len(k.runs) > 0 {
		t.Fatalf("the node that was dead holds %+v", k)
	}
	for _, m := range l.confirmed() {
		m.result.Evidence = wire.Replicated(3, wire.Flushed)
	}
	if short := l.short(all, q.Metadata.UID); len(short) != 20 {
		t.Fatalf("of 20 messages that two disks hold, %d are seen not to be on three", len(short))
	}
}

// send publishes one message, without an id, whose evidence has to be reached within a time, and notes its end.
func (r *rig) send(c *client.Client, l *ledger, want wire.Want, within time.Duration) *message {
	r.t.Helper()
	m := l.next("-", 100, want)
	var prod *client.Producer
	r.within(hang, "queue "+l.queue+" takes a producer", func() (err error) {
		prod, err = c.Producer(r.ctx, l.queue, client.ProducerOptions{Want: want, Patience: -1})
		return err
	})
	ctx, cancel := context.WithTimeout(r.ctx, hang)
	defer cancel()
	res, err := prod.Publish(ctx, client.Message{Bytes: l.body(m), Within: within})
	if err != nil {
		r.t.Fatal(err)
	}
	l.answered(m, res)
	_ = prod.Close(ctx) // the message has its result
	return m
}

// refused publishes until that is refused with a code, which has to be soon. Of a message that a leader had before it
// knew that it leads no more nobody knows the end.
func (r *rig) refused(c *client.Client, l *ledger, code wire.Code) {
	r.t.Helper()
	want := wire.Stored(wire.Flushed)
	r.within(hang, fmt.Sprintf("queue %s refuses with %v", l.queue, code), func() error {
		ctx, cancel := context.WithTimeout(r.ctx, hang)
		defer cancel()
		prod, err := c.Producer(ctx, l.queue, client.ProducerOptions{Want: want, Patience: -1})
		if err == nil {
			m := l.next("-", 100, want)
			res, lost := prod.Publish(ctx, client.Message{Bytes: l.body(m)})
			if err = lost; lost == nil {
				l.answered(m, res)
				err = res.Err
			}
			_ = prod.Close(ctx) // the message has its result
			if res.Outcome == client.OK {
				r.t.Fatalf("%v ended as ok with %v where nothing can be committed", m, res.Evidence)
			}
		}
		var coded *wire.Error
		if errors.As(err, &coded) && coded.Code == code {
			return nil
		}
		return err
	})
}
