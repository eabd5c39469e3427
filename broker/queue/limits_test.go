package queue

import (
	"math"
	"testing"
)

func (t *table) counts(want Counts) {
	t.Helper()
	if got := t.s.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// Beyond a limit a publish is refused and its body freed; nothing that was confirmed makes room (W-26, W-27).
func TestLimits(t *testing.T) {
	full := Effect{Kind: Refused, Reason: Full}
	plain := Command{Kind: Publish, Length: 44}
	t.Run("messages", func(t *testing.T) {
		q := newTable(t)
		q.do(Command{Kind: Configure, MaxMessages: 2})
		q.publish(plain, Effect{Kind: Published})
		q.publish(plain, Effect{Kind: Published, Offset: 1})
		q.publish(plain, full)
		q.counts(Counts{In: 2, Ready: 2, Bytes: 600})
	})
	t.Run("bytes", func(t *testing.T) {
		q := newTable(t)
		q.do(Command{Kind: Configure, MaxBytes: 600})
		q.publish(plain, Effect{Kind: Published})
		q.publish(Command{Kind: Publish, Length: 45}, full)
		q.publish(Command{Kind: Publish, Length: math.MaxInt64}, full)
		q.publish(plain, Effect{Kind: Published, Offset: 1})
		q.publish(Command{Kind: Publish}, full)
		q.counts(Counts{In: 2, Ready: 2, Bytes: 600})
	})
	t.Run("an open delivery counts, a settled one does not", func(t *testing.T) {
		q := newTable(t)
		q.do(Command{Kind: Configure, MaxMessages: 1})
		q.publish(plain, Effect{Kind: Published})
		q.attach("a", 1, 1)
		q.publish(plain, full)
		q.settle("a", 0, 1, 1, Accept)
		q.publish(plain, Effect{Kind: Published, Offset: 1})
		q.counts(Counts{In: 2, Ready: 1, Accepted: 1, Bytes: 300})
	})
	t.Run("lowered below what is there", func(t *testing.T) {
		for _, low := range []Command{{MaxMessages: 1}, {MaxBytes: 1}, {MaxMessages: 2, MaxBytes: 400}} {
			q := newTable(t)
			q.publish(plain, Effect{Kind: Published})
			q.publish(plain, Effect{Kind: Published, Offset: 1})
			low.Kind = Configure
			q.do(low)
			q.counts(Counts{In: 2, Ready: 2, Bytes: 600})
			q.publish(plain, full)
			q.do(Command{Kind: Configure})
			q.publish(plain, Effect{Kind: Published, Offset: 2})
		}
	})
	t.Run("no more than can be counted", func(t *testing.T) {
		q := newTable(t)
		huge := Command{Kind: Publish, Length: math.MaxInt64}
		q.publish(huge, Effect{Kind: Published})
		q.publish(huge, full)
		q.counts(Counts{In: 1, Ready: 1, Bytes: math.MaxInt64 + MessageCost})
	})
}

// A body whose length is no length is a bug of the caller's.
func TestNegativeLength(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a body of -1 bytes")
		}
	}()
	new(State).Apply(Command{Kind: Publish, Length: -1}, nil)
}

// A closed queue takes nothing and delivers what it has (W-28).
func TestClosed(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.publish(Command{Kind: Publish}, Effect{Kind: Published})
	q.do(Command{Kind: Configure, Closed: true, MaxMessages: 1})
	q.publish(Command{Kind: Publish}, Effect{Kind: Refused, Reason: Closed})
	q.publish(Command{Slot: 1, Seq: 1}, Effect{Kind: Refused, Reason: Closed, Low: 1})
	if e := q.attach("a", 1, 1); len(e) != 2 || e[1].Kind != Assigned {
		t.Errorf("attach: %+v", e)
	}
	q.do(Command{Kind: Configure})
	q.publish(Command{Slot: 1, Seq: 1}, Effect{Kind: Published, Offset: 1})
}

// Purge takes out what is ready and what came back; what is under delivery stays with who has it.
func TestPurgeBesideOpenDeliveries(t *testing.T) {
	q := newTable(t)
	for i := range uint64(200) {
		q.body.Seq++
		c := Command{Kind: Publish, Body: q.body, Length: 100}
		if i == 50 {
			c.Large = &Large{Length: 100}
		}
		q.s.Apply(c, nil)
	}
	q.attach("a", 1, 4) // 0, 1, 2, 3
	q.attach("b", 2, 2) // 4, 5
	q.settle("a", 0, 1, 1, Accept)
	q.s.Apply(Command{Kind: Detach, Subscription: "b", Session: 2}, nil) // 4, 5 come back
	q.settle("a", 2, 1, 1, Release)                                      // … and 2
	q.do(Command{Kind: Purge, Session: 9},
		Effect{Kind: Purged, Session: 9, Count: 197, Left: 2},
		Effect{Kind: Freed, Ref: Ref{1, 3}, Count: 1}, Effect{Kind: Freed, Ref: Ref{1, 5}, Count: 196})
	q.counts(Counts{In: 200, Unsettled: 2, Accepted: 1, Purged: 197, Released: 1, Bytes: 2 * (100 + MessageCost)})
	if got := q.settle("a", 1, 1, 1, Release); got != Settled {
		t.Error(got)
	}
	// What goes back after it is offered again, with the next attempt; and what comes new follows.
	q.publish(Command{Kind: Publish}, Effect{Kind: Published, Offset: 200})
	e := q.attach("c", 3, 9)
	if len(e) != 3 || e[1].Offset != 1 || e[1].Attempt != 2 || e[2].Offset != 200 || e[2].Attempt != 1 {
		t.Errorf("assigned %+v", e)
	}
	if got := q.settle("a", 3, 1, 1, Accept); got != Settled {
		t.Error(got)
	}
	q.do(Command{Kind: Purge, Session: 9}, Effect{Kind: Purged, Session: 9, Left: 2})
}

// Peek tells what is there without touching it.
func TestPeek(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.publish(Command{Slot: 1, Seq: 4, Length: 10}, Effect{Kind: Published})
	q.publish(Command{Kind: Publish, Length: 20}, Effect{Kind: Published, Offset: 1})
	large := &Large{Length: 1 << 20, Digest: [16]byte{1}}
	q.publish(Command{Kind: Publish, Length: 1 << 20, Large: large}, Effect{Kind: Published, Offset: 2})
	q.attach("a", 1, 2)
	q.settle("a", 0, 1, 1, Release)
	before := q.s.Counts()
	want := []Message{
		{Offset: 0, Attempt: 1, Ref: Ref{1, 1}, Length: 10, Producer: "p", Seq: 4},
		{Offset: 1, Attempt: 1, Open: true, Ref: Ref{1, 2}, Length: 20},
		{Offset: 2, Ref: Ref{1, 3}, Length: 1 << 20, Large: large},
	}
	for from := range 4 {
		for n := range 5 {
			got := q.s.View().Peek(uint64(from), n)
			if w := want[min(from, 3):min(from+n, 3)]; len(got)+len(w) > 0 && !sameMessages(got, w) {
				t.Errorf("%d from %d: %+v", n, from, got)
			}
		}
	}
	if got := q.s.View().Peek(0, -1); got != nil {
		t.Errorf("%+v", got)
	}
	q.counts(before)
}

func sameMessages(a, b []Message) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if (x.Large == nil) != (y.Large == nil) || x.Large != nil && *x.Large != *y.Large {
			return false
		}
		if x.Large, y.Large = nil, nil; x != y {
			return false
		}
	}
	return true
}
