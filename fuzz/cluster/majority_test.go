package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// pinned is a queue with a replica on each of some nodes.
func pinned(names ...string) control.QueueSpec {
	return control.QueueSpec{Replicas: len(names), Placement: control.PlacementSpec{Nodes: names}}
}

// The majority of the control group is killed. Every change of resources and members is refused, with the reason, and
// every queue that has its own majority takes and delivers messages, also after a survivor was killed and started
// again, with nobody to ask (B-230.1, B-230.2, B-230.4, T-47, T-48, T-50).
func TestControlMajorityIsKilled(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 5)
	r.apply("three", pinned("n1", "n4", "n5"))
	r.apply("alone", pinned("n4"))
	r.voters(5)
	ledgers := []*ledger{newLedger(t, "three"), newLedger(t, "alone")}
	k3, k1 := &consuming{r: r, l: ledgers[0], id: "k"}, &consuming{r: r, l: ledgers[1], id: "k"}
	stopConsuming := r.background(k3.run, k1.run)
	p3 := &producing{r: r, l: ledgers[0], id: "p", want: wire.Stored(wire.Flushed), size: 100, every: 5 * time.Millisecond}
	p1 := &producing{r: r, l: ledgers[1], id: "p", want: wire.Stored(wire.Flushed), size: 100, every: 5 * time.Millisecond}
	stopProducing := r.background(p3.run, p1.run)
	goOn := func() {
		for _, l := range ledgers {
			before, _ := l.tally()
			r.await(l, "messages are confirmed and settled", func(c tally) bool {
				return c.confirmed > before.confirmed+100 && c.settled > before.settled+100
			})
		}
	}
	goOn()
	r.kill(r.nodes[:3]...)
	goOn()
	r.within(hang, "a change is refused", func() error { // what a leader had before may be made later
		a, err := r.ask(r.nodes[3], http.MethodPut, queuePath("perhaps"), map[string]any{"spec": pinned("n4")})
		if err == nil && a.Code != wire.NotCommitted {
			err = fmt.Errorf("status %d, %s", a.Status, a.Body)
		}
		return err
	})
	r.refusals()
	goOn()
	n4 := r.nodes[3]
	r.kill(n4)
	r.start(n4)
	goOn()
	r.refusals()
	r.start(r.nodes[:3]...)
	r.change(http.MethodPut, queuePath("new"), map[string]any{"spec": pinned("n2")})
	r.observed("new")
	for _, path := range []string{queuePath("fresh"), queuePath("made"), "/v1/connectors/c"} {
		if a, err := r.ask(n4, http.MethodGet, path, nil); err != nil || a.Status != http.StatusNotFound {
			t.Errorf("%s was refused and is there: status %d, %s, %v", path, a.Status, a.Body, err)
		}
	}
	stopProducing()
	for _, l := range ledgers {
		r.await(l, "all are accepted", func(c tally) bool { return c.accepted == c.sent })
	}
	stopConsuming()
	for _, l := range ledgers {
		r.finish(l)
		r.owned(l)
	}
}

// voters waits until the control group has so many.
func (r *rig) voters(n int) {
	r.t.Helper()
	r.within(hang, fmt.Sprintf("the control group has %d voters", n), func() error {
		g, err := r.group("control")
		if err == nil && len(g.CommittedVoters) != n {
			err = fmt.Errorf("it has %v", g.CommittedVoters)
		}
		return err
	})
}

// refusals tries every change of resources and members at once, on a node that runs, and wants each refused as not
// committed, which is to say that nothing was changed.
func (r *rig) refusals() {
	r.t.Helper()
	type ask struct {
		method, path string
		body         any
	}
	spec := func(v any) map[string]any { return map[string]any{"spec": v} }
	connector := control.ConnectorSpec{
		Protocol: "file", Direction: "sink", Address: "out", Queue: "alone", Evidence: "flushed", Loss: "duplicates",
	}
	list := []ask{
		{http.MethodPut, queuePath("fresh"), spec(pinned("n4"))},
		{http.MethodPost, "/v1/queues", map[string]any{"metadata": map[string]any{"name": "made"}, "spec": pinned("n4")}},
		{http.MethodPut, queuePath("alone"), spec(pinned("n5"))},
		{http.MethodPut, queuePath("three"), spec(pinned("n4"))},
		{http.MethodDelete, queuePath("alone"), nil},
		{http.MethodPut, "/v1/connectors/c", spec(connector)},
		{http.MethodPost, "/v1/nodes/n5/drain", nil},
	}
	began := time.Now()
	var asked sync.WaitGroup
	for _, q := range list {
		asked.Go(func() {
			a, err := r.ask(r.nodes[3], q.method, q.path, q.body)
			switch {
			case err != nil:
				r.t.Errorf("%s %s: %v", q.method, q.path, err)
			case a.Code != wire.NotCommitted || !strings.Contains(a.Message, "a majority of its members is not there"):
				r.t.Errorf("%s %s without control quorum: status %d, %s", q.method, q.path, a.Status, a.Body)
			}
		})
	}
	asked.Wait()
	r.t.Logf("%d changes were refused in %v", len(list), time.Since(began).Round(time.Millisecond))
}

// The majority of one queue's replicas is killed: it alone takes and delivers nothing. Another queue goes on, and
// queues are made and deleted. When the nodes are back, it goes on by itself (B-230.3, B-230.4, T-51, T-53).
func TestQueueMajorityIsKilled(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 5)
	r.apply("broken", pinned("n1", "n2", "n3"))
	r.apply("whole", pinned("n3", "n4", "n5"))
	r.voters(5)
	broken, whole := newLedger(t, "broken"), newLedger(t, "whole")
	c := r.client()
	for range 5 {
		r.send(c, broken, wire.Replicated(2, wire.Flushed), hang)
	}
	k := &consuming{r: r, l: whole, id: "k"}
	p := &producing{r: r, l: whole, id: "p", want: wire.Replicated(2, wire.Flushed), size: 100}
	p.every = 5 * time.Millisecond
	stopConsuming := r.background(k.run)
	stopProducing := r.background(p.run)
	r.kill(r.nodes[:2]...)
	r.refused(c, broken, wire.NoQuorum)
	before, _ := whole.tally()
	r.await(whole, "messages are confirmed and settled", func(c tally) bool {
		return c.confirmed > before.confirmed+100 && c.settled > before.settled+100
	})
	r.change(http.MethodPut, queuePath("made"), map[string]any{"spec": pinned("n3", "n4", "n5")})
	r.observed("made")
	r.change(http.MethodDelete, queuePath("made")+"?drainDeadline=0s", nil)
	r.refused(c, broken, wire.NoQuorum)
	r.start(r.nodes[:2]...)
	r.leader("broken")
	r.within(hang, "it is taken again", func() error { // the leadership may move once more before it stays
		m := r.send(c, broken, wire.Replicated(2, wire.Flushed), hang)
		if m.result.Outcome != client.OK {
			return fmt.Errorf("all are back: %s, %w", m.result.Outcome, m.result.Err)
		}
		return nil
	})
	stopProducing()
	r.await(whole, "all are accepted", func(c tally) bool { return c.accepted == c.sent })
	stopConsuming()
	r.finish(broken)
	r.finish(whole)
	r.owned(whole)
}
