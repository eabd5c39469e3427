package broker

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/quic-go/quic-go"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is what a hostile client must not get: memory that stays, or a shard for itself.

// A consumer that is gone leaves nothing behind, also on a queue to which nothing comes any more: the list of
// settles that were answered kept it, with all the answers that it had not read.
func TestConsumerThatIsGoneIsForgotten(t *testing.T) {
	r := newRig(t, nil)
	c := r.consumer("s", 0)
	q := r.node.lookup("demo")
	q.mu.Lock()
	var gone weak.Pointer[consumer]
	for _, k := range q.consumers {
		gone = weak.Make(k)
	}
	q.mu.Unlock()
	c.settle(&wire.Deliver{Offset: 7, Attempt: 1, Term: 1}, wire.Accept, wire.StaleSettle)
	c.conn.Close()
	for until := time.Now().Add(patience); gone.Value() != nil; runtime.GC() {
		if time.Now().After(until) {
			t.Fatal("the queue still holds a consumer that is gone")
		}
		time.Sleep(time.Millisecond)
	}
}

// The lists of the shard give back what one command had much of.
func TestListsOfTheShardShrink(t *testing.T) {
	list := make([]settleAnswer, 5*keptMax)
	if list = behind(list, 1); len(list) != 5*keptMax-1 {
		t.Fatalf("%d are left", len(list))
	}
	if list = behind(list, len(list)); list != nil {
		t.Errorf("an empty list keeps %d places", cap(list))
	}
	if cap(behind(make([]settleAnswer, 3), 3)) == 0 {
		t.Error("a short list is made anew for each settle")
	}
}

// A settle of a delivery that was never made is answered without the log: nobody else waits for it.
func TestSettlesOfNothingStayOutOfTheLog(t *testing.T) {
	r := newRig(t, nil)
	c := r.consumer("s", 10)
	settle := func(attempt uint64) wire.Frame {
		return &wire.Settle{Offset: 0, Attempt: attempt, Term: 1, Verb: wire.Accept}
	}
	before := r.index("demo")
	for range 3 {
		c.send(settle(1), settle(2), settle(1))
	}
	for range 9 {
		if f := frame[*wire.Settled](c); f.Code != wire.StaleSettle {
			t.Fatalf("%+v", f)
		}
	}
	if now := r.index("demo"); now != before {
		t.Errorf("%d entries in the log for settles of nothing", now-before)
	}

	// With one delivery open one settle is under way at a time, and answers come in the order of the settles.
	r.producer(wire.Stored(wire.Written)).put(1, "x")
	d := c.get(0, 1, "x")
	real := &wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: wire.Accept}
	c.send(settle(7), settle(8), real, settle(9), real)
	for k, want := range []wire.Settled{
		{Attempt: 7, Code: wire.StaleSettle},
		{Attempt: 8, Code: wire.StaleSettle},
		{Attempt: 1},
		{Attempt: 9, Code: wire.StaleSettle},
		{Attempt: 1, Code: wire.StaleSettle},
	} {
		if f := *frame[*wire.Settled](c); f != want {
			t.Errorf("answer %d: %+v, want %+v", k, f, want)
		}
	}
}

// Of credit that comes together only the highest goes into the log, and none that raises nothing.
func TestCreditIsGathered(t *testing.T) {
	r := newRig(t, nil)
	c := r.consumer("s", 0)
	size := func() int64 { return r.node.lookup("demo").group.Status().Store.LogBytes }
	const credits = 4000
	before := size()
	var flood []wire.Frame
	for k := range uint64(credits) {
		flood = append(flood, &wire.Credit{Limit: k/2 + 1})
	}
	c.send(flood...)
	c.send(&wire.Credit{Limit: 1}, &wire.Credit{Limit: credits / 2})
	r.producer(wire.Stored(wire.Written)).put(1, "x")
	c.settle(c.get(0, 1, "x"), wire.Accept, wire.OK) // answered behind them
	if grown := size() - before; grown > 5*credits {
		t.Errorf("%d bytes of log for %d credits", grown, credits)
	}
	if again := r.consumer("s", 0); again.opened.Limit != credits/2 {
		t.Errorf("credit of %d, want %d", again.opened.Limit, credits/2)
	}
}

// index is the last entry that a queue applied.
func (r *rig) index(queue string) uint64 {
	r.t.Helper()
	return uint64(r.node.lookup(queue).group.Status().Marks.Applied)
}

// Who lost a subscription holds none of its deliveries any more and is on its way out, whether it reads or not.
func TestSupersededConsumerLetsGo(t *testing.T) {
	var aborted bool
	key := new(brake)
	s := &session{caller: caller{brake: key}}
	c := &consumer{session: s, bell: make(chan struct{}, 1), abort: func() { aborted = true }}
	c.room = sync.NewCond(&c.mu)
	c.room = sync.NewCond(&c.mu)
	for k := range uint64(1000) {
		c.event(queue.Effect{Kind: queue.Assigned, Offset: k})
	}
	c.event(queue.Effect{Kind: queue.Superseded})
	if len(c.events) > 0 || !aborted || c.failed() == nil || c.failed().Code != wire.Superseded {
		t.Errorf("%d deliveries are kept, stream ended: %v, because of %v", len(c.events), aborted, c.failed())
	}
	if owed := time.Until(key.paid); owed < 1000*againCost {
		t.Errorf("the key owes %v for 1000 deliveries that were given back", owed)
	}
}

// Who has credit for all gets all, though one command assigns only some: nobody has to ask for the rest.
func TestCreditForMoreThanOneCommandAssigns(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	const messages = 3*queue.AssignMax + 1
	for seq := range uint64(messages) {
		p.send(&wire.Publish{Seq: seq + 1, Low: seq + 1, Body: []byte("x")})
	}
	for n := uint64(0); n < messages; {
		n += frame[*wire.EvidenceFrame](p).Count
	}
	before := r.index("demo")
	for life := range uint64(3) {
		c := r.consumer("s", 1<<40)
		for offset := range uint64(messages) {
			c.get(offset, life+1, "x")
		}
	}
	if n := r.index("demo") - before; n > 3*(2+messages/queue.AssignMax) {
		t.Errorf("%d entries in the log for three consumers of %d messages", n, messages)
	}
}

// counted is a group that takes proposals and does nothing with them.
type counted struct {
	raftstore.Group
	proposals int
}

func (g *counted) Propose(*raftstore.Batch) error { g.proposals++; return nil }

// The next assignments wait until the last ones are flushed: credit for everything does not fill the shard.
func TestAssignmentsGoOnOncePerFlush(t *testing.T) {
	q := newNodeQueue("paced", 1, control.QueueSpec{}, slog.New(slog.DiscardHandler), func(uint64) {})
	group := new(counted)
	q.group = group
	q.Role(raftstore.Owner, 1, raftstore.Leader{})
	for seq := range uint64(4 * queue.AssignMax) {
		q.state.Apply(queue.Command{Kind: queue.Publish, Body: queue.Ref{Term: 1, Seq: seq + 1}}, nil)
	}
	q.state.Apply(queue.Command{Kind: queue.Attach, Subscription: "s", Session: 1, Limit: 1 << 40}, nil)
	proposed := func(flushed raftstore.Index, want int) {
		t.Helper()
		if q.goOn(flushed); group.proposals != want {
			t.Errorf("%d proposals when %d is flushed, want %d", group.proposals, flushed, want)
		}
	}
	proposed(1, 0) // whoever is attached is of an earlier life
	q.serves.Store(true)
	proposed(1, 1)
	proposed(9, 1) // it has no entry yet
	more := queue.Continue()
	q.Apply(1, 10, []raftstore.Item{{Command: more.Append(nil)}})
	proposed(9, 1)
	proposed(10, 2)
	q.Apply(1, 11, []raftstore.Item{{Command: more.Append(nil)}})
	q.Apply(1, 12, []raftstore.Item{{Command: more.Append(nil)}})
	proposed(12, 2) // all of it is assigned
}

// A peek that is not read keeps only some of what it asked for, and one that is read shows everything in order.
func TestUnreadPeeksAreSmall(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	const messages = peekMax + 10
	body := pattern(8 << 10)
	for seq := range uint64(messages) {
		p.send(&wire.Publish{Seq: seq + 1, Low: seq + 1, Body: body})
	}
	for n := uint64(0); n < messages; {
		n += frame[*wire.EvidenceFrame](p).Count
	}
	l := r.line(r.dial(), &wire.OpenPeek{Queue: "demo", From: 5, Count: 1 << 40})
	for offset := range uint64(peekMax) {
		l.get(5+offset, 0, string(body))
	}
	if e := frame[*wire.PeekEnd](l); !e.More || e.Next != 5+peekMax {
		t.Errorf("it ends with %+v", e)
	}
	l = r.line(r.dial(), &wire.OpenPeek{Queue: "demo", From: 900, Count: 1 << 40})
	for offset := uint64(900); offset < messages; offset++ {
		l.get(offset, 0, string(body))
	}
	if e := frame[*wire.PeekEnd](l); e.More || e.Next != messages {
		t.Errorf("it ends with %+v", e)
	}
	// Nobody reads this one, and the client's windows do not take it all: the last pieces are not looked up yet.
	l = r.line(r.dial(), &wire.OpenPeek{Queue: "demo", From: 500, Count: 1 << 40})
	l.get(500, 0, string(body))
	p.put(messages+1, "late")
	for offset := uint64(501); offset < messages; offset++ {
		l.get(offset, 0, string(body))
	}
	l.get(messages, 0, "late")
}

// One key does not get all connections: beyond its share it is told so, and others come in.
func TestConnectionsOfOneKeyAreBounded(t *testing.T) {
	r := newRig(t, nil)
	var crowd []*endpoint.Conn // of a key of zeroes, who never came over the network
	for range oneKeyMax {
		crowd = append(crowd, new(endpoint.Conn))
		if _, why := r.node.enter(crowd[len(crowd)-1]); why != nil {
			t.Fatalf("connection %d is refused: %v", len(crowd), why)
		}
	}
	if _, why := r.node.enter(new(endpoint.Conn)); why == nil || why.Code != wire.Overloaded {
		t.Errorf("one more: %v", why)
	}
	r.producer(wire.Stored(wire.Written)).put(1, "of another key")

	r.node.mu.Lock()
	r.node.keys[r.client.Fingerprint()].conns += oneKeyMax
	r.node.mu.Unlock()
	conn := r.dial()
	<-conn.Context().Done()
	var closed *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != 2003 ||
		!strings.Contains(closed.ErrorMessage, "256") {
		t.Errorf("the connection ended with %v", err)
	}
	r.node.mu.Lock()
	r.node.keys[r.client.Fingerprint()].conns -= oneKeyMax
	r.node.mu.Unlock()
	for _, c := range crowd {
		r.node.leave(c)
	}
	if n := r.node.keys[endpoint.Fingerprint{}].conns; n != 0 {
		t.Errorf("%d connections are counted of a key that has none", n)
	}
}

// A connection that ended is let go at once, whatever its streams were waiting for: its streams learn of the end a
// moment before the connection says so, and were then waited for as if the node stopped.
func TestConnectionThatEndedIsLetGo(t *testing.T) {
	r := newRig(t, nil)
	for range 100 {
		conn := r.dial()
		p := r.line(conn, &wire.OpenProducer{Queue: "demo", Want: wire.Stored(wire.Written)},
			&wire.Publish{Seq: 1, Low: 1, Large: true, Stream: 402, Length: 1 << 20}) // a body that never comes
		frame[*wire.Opened](p)
		conn.Close()
	}
	for until := time.Now().Add(bodyStall / 2); ; time.Sleep(time.Millisecond) {
		n := r.node.Counters().Connections
		if n == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d connections that ended are still served", n)
		}
	}
}
