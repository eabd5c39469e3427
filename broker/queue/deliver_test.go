package queue

import (
	"fmt"
	"testing"
)

// The answer to a settle belongs to who asked, also when another session has the subscription by
// then: the two never learn of each other's settles.
func TestSettleIsAnsweredToWhoAsked(t *testing.T) {
	s := &State{}
	s.Apply(Command{Kind: Publish, Body: Ref{Term: 1, Seq: 1}}, nil)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 9}, nil)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 2, Limit: 9}, nil)
	old := Command{Kind: Settle, Subscription: "a", Session: 1, Attempt: 1, Term: 1, Verb: Accept}
	if e := s.Apply(old, nil); len(e) != 1 || e[0].Kind != Stale || e[0].Session != 1 {
		t.Errorf("session 1 settles what session 2 has: %+v", e)
	}
	now := Command{Kind: Settle, Subscription: "a", Session: 2, Attempt: 2, Term: 1, Verb: Accept}
	if e := s.Apply(now, nil); len(e) != 2 || e[0].Kind != Settled || e[0].Session != 2 {
		t.Errorf("session 2 settles what it has: %+v", e)
	}
}

// A second Attach takes the subscription over, with what was open and all that was delivered.
func TestSecondAttach(t *testing.T) {
	q := newTable(t)
	q.publish(Command{Kind: Publish}, Effect{Kind: Published})
	assigned := func(session, attempt uint64) Effect {
		return Effect{Kind: Assigned, Session: session, Attempt: attempt, Term: 1, Ref: Ref{1, 1}}
	}
	attach := Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 2}
	q.do(attach, Effect{Kind: Attached, Session: 1, Limit: 2}, assigned(1, 1))
	attach.Session, attach.Limit = 2, 0 // a lower limit does not stand
	q.do(attach, Effect{Kind: Superseded, Session: 1}, Effect{Kind: Attached, Session: 2, Delivered: 1, Limit: 2},
		assigned(2, 2))
	q.do(Command{Kind: Detach, Subscription: "a", Session: 1}) // who lost it detaches nobody
	q.counts(Counts{In: 1, Unsettled: 1, Bytes: MessageCost})
	attach.Session = 3 // the limit is reached
	q.do(attach, Effect{Kind: Superseded, Session: 2}, Effect{Kind: Attached, Session: 3, Delivered: 2, Limit: 2})
	attach.Limit = 3 // the same session again is not superseded
	q.do(attach, Effect{Kind: Attached, Session: 3, Delivered: 2, Limit: 3}, assigned(3, 3))
}

// Credit starts at 0, is absolute, never falls, and nothing is delivered beyond it (W-23).
func TestCredit(t *testing.T) {
	q := newTable(t)
	for i := range uint64(5) {
		q.publish(Command{Kind: Publish}, Effect{Kind: Published, Offset: i})
	}
	q.do(Command{Kind: Attach, Subscription: "a", Session: 1}, Effect{Kind: Attached, Session: 1})
	open := func(want uint64) {
		t.Helper()
		if c := q.s.Counts(); c.Unsettled != want {
			t.Errorf("%d open deliveries, want %d", c.Unsettled, want)
		}
	}
	limit := func(n uint64) { q.s.Apply(Command{Kind: Limit, Subscription: "a", Limit: n}, nil) }
	open(0)
	limit(2)
	open(2)
	limit(1)
	limit(2) // it is no delta
	open(2)
	q.settle("a", 0, 1, 1, Accept) // a settle gives no credit back
	open(1)
	limit(3)
	open(2)
	q.settle("a", 1, 1, 1, Release) // a redelivery is a delivery
	open(1)
	limit(4)
	open(2)
	if m := q.s.View().Peek(1, 1)[0]; m.Attempt != 2 || !m.Open {
		t.Errorf("%+v", m)
	}
	q.do(Command{Kind: Unsubscribe, Subscription: "a"}, Effect{Kind: Ended, Session: 1})
	q.do(Command{Kind: Attach, Subscription: "a", Session: 1}, Effect{Kind: Attached, Session: 1}) // from 0 again
	open(0)
	q.do(Command{Kind: Limit, Subscription: "nobody", Limit: 9})
}

// Credit that comes late, of a consumer that lost its subscription, is not its successor's: that one would get more
// than it asked for.
func TestCreditOfWhoLostTheSubscription(t *testing.T) {
	q := newTable(t)
	for range 5 {
		q.body.Seq++
		q.s.Apply(Command{Kind: Publish, Body: q.body}, nil)
	}
	q.attach("a", 1, 0)
	q.attach("a", 2, 1)
	q.do(Command{Kind: Grant, Subscription: "a", Session: 1, Limit: 4})
	if c := q.s.Counts(); c.Unsettled != 1 {
		t.Errorf("credit for 1 message, and %d are under delivery", c.Unsettled)
	}
	q.s.Apply(Command{Kind: Grant, Subscription: "a", Session: 2, Limit: 3}, nil)
	if c := q.s.Counts(); c.Unsettled != 3 {
		t.Errorf("credit for 3 messages, and %d are under delivery", c.Unsettled)
	}
}

// One command assigns no more than AssignMax: a subscription that takes everything holds nobody up. The rest follows,
// in order, and a state that was restored in between goes on in the same way.
func TestAssignmentsOfOneCommand(t *testing.T) {
	q := newTable(t)
	const messages = 2*AssignMax + 7
	for range messages {
		q.body.Seq++
		q.s.Apply(Command{Kind: Publish, Body: q.body}, nil)
	}
	if q.s.Behind() {
		t.Error("nobody takes anything, and the state is behind")
	}
	out := q.s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: messages - 2}, nil)
	if len(out) != 1+AssignMax {
		t.Fatalf("%d effects of one command", len(out))
	}
	if !q.s.Behind() {
		t.Fatal("the state does not say that it is behind")
	}
	q.do(Command{Kind: Configure}) // which assigns nothing, and takes the state through a snapshot
	next := uint64(AssignMax)
	for rounds := 0; q.s.Behind(); rounds++ {
		if rounds == 5 {
			t.Fatal("it does not come to an end")
		}
		for _, e := range q.s.Apply(Continue(), nil) {
			if e.Kind != Assigned || e.Offset != next {
				t.Fatalf("%+v, want offset %d to be assigned", e, next)
			}
			next++
		}
	}
	if c := q.s.Counts(); c.Unsettled != messages-2 || c.Ready != 2 {
		t.Errorf("counts %+v", c)
	}
}

// However much credit there is, the open deliveries of a subscription are bounded; a settle makes room for the next.
func TestUnsettledIsBounded(t *testing.T) {
	q := newTable(t)
	for range UnsettledMax + 2 {
		q.body.Seq++
		q.s.Apply(Command{Kind: Publish, Body: q.body}, nil)
	}
	q.attach("a", 1, 1<<40)
	for q.s.Behind() {
		q.s.Apply(Continue(), nil)
	}
	if c := q.s.Counts(); c.Unsettled != UnsettledMax || c.Ready != 2 {
		t.Fatalf("counts %+v", c)
	}
	q.do(Command{Kind: Settle, Subscription: "a", Session: 1, Offset: 77, Attempt: 1, Term: 1, Verb: Accept},
		Effect{Kind: Settled, Session: 1, Offset: 77, Attempt: 1}, Effect{Kind: Freed, Ref: Ref{1, 78}, Count: 1},
		Effect{Kind: Assigned, Session: 1, Offset: UnsettledMax, Attempt: 1, Term: 1, Ref: Ref{1, UnsettledMax + 1}})
	q.do(Command{Kind: DetachAll})
	if c := q.s.Counts(); c.Unsettled != 0 || c.Ready != UnsettledMax+1 {
		t.Errorf("counts %+v", c)
	}
	if m := q.s.View().Peek(0, 1)[0]; m.Attempt != 1 || m.Open {
		t.Errorf("%+v", m)
	}
}

// Subscriptions take turns, and none gets what another has (W-25).
func TestTurns(t *testing.T) {
	q := newTable(t)
	q.attach("a", 1, 9)
	q.attach("b", 2, 2)
	q.attach("c", 3, 0)
	var got []uint64
	for range 6 {
		q.body.Seq++
		for _, e := range q.s.Apply(Command{Kind: Publish, Body: q.body}, nil) {
			if e.Kind == Assigned {
				got = append(got, e.Session)
			}
		}
	}
	if fmt.Sprint(got) != "[1 2 1 2 1 1]" {
		t.Errorf("taken by %v", got)
	}
}

// TestSubscriptionsAreBounded: one too many is refused, those that exist go on, and room that is made is used.
func TestSubscriptionsAreBounded(t *testing.T) {
	s := &State{}
	attach := func(i int) EffectKind {
		return s.Apply(Command{Kind: Attach, Subscription: fmt.Sprint(i), Session: uint64(i) + 1}, nil)[0].Kind
	}
	for i := range SubscriptionsMax {
		if kind := attach(i); kind != Attached {
			t.Fatalf("subscription %d: effect %d", i, kind)
		}
	}
	if kind := attach(SubscriptionsMax); kind != Crowded {
		t.Errorf("one too many: effect %d", kind)
	}
	if kind := attach(0); kind != Attached {
		t.Errorf("one that exists: effect %d", kind)
	}
	s.Apply(Command{Kind: Unsubscribe, Subscription: "0"}, nil)
	if kind := attach(SubscriptionsMax); kind != Attached {
		t.Errorf("after one left: effect %d", kind)
	}
}

// TestLostTailSettle is the case of a settle that names a delivery of a message whose entry was lost: the
// offset was given again, to another message in a later term.
func TestLostTailSettle(t *testing.T) {
	s := &State{}
	s.Apply(Command{Kind: Publish, Body: Ref{Term: 2, Seq: 1}}, nil)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 9}, nil)
	old := Command{Kind: Settle, Subscription: "a", Offset: 0, Attempt: 1, Term: 1, Verb: Accept}
	if e := s.Apply(old, nil); len(e) != 1 || e[0].Kind != Stale {
		t.Errorf("a settle of term 1 hit a message of term 2: %+v", e)
	}
	if s.Counts().Unsettled != 1 {
		t.Error("the message is gone")
	}
}

// A settle that names anything but the very delivery that is open changes nothing (W-55).
func TestStaleSettles(t *testing.T) {
	q := newTable(t)
	q.publish(Command{Kind: Publish}, Effect{Kind: Published})
	q.publish(Command{Kind: Publish}, Effect{Kind: Published, Offset: 1})
	q.attach("a", 1, 1)
	q.attach("b", 2, 0)
	before := q.s.Snapshot()
	for _, c := range []struct {
		sub                   string
		offset, attempt, term uint64
	}{
		{"b", 0, 1, 1}, {"nobody", 0, 1, 1}, {"a", 1, 1, 1}, {"a", 2, 1, 1}, {"a", 0, 0, 1}, {"a", 0, 2, 1}, {"a", 0, 1, 2},
	} {
		if got := q.settle(c.sub, c.offset, c.attempt, c.term, Accept); got != Stale {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if string(q.s.Snapshot()) != string(before) {
		t.Error("a stale settle changed the queue")
	}
	if got := q.settle("a", 0, 1, 1, Accept); got != Settled {
		t.Error(got)
	}
	if got := q.settle("a", 0, 1, 1, Accept); got != Stale {
		t.Errorf("settled twice: %d", got)
	}
}
