package connector

import (
	"context"
	"errors"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// Answers come out of turn: what is confirmed is what has nothing open below. A line that was stored with less than was
// asked has its place, and ends the attempt; a refused one has none.
func TestTracker(t *testing.T) {
	ok := client.Result{Outcome: client.OK}
	below := client.Result{Outcome: client.BelowRequest, Err: &wire.Error{Code: wire.NotReached}}
	retired := client.Result{Outcome: client.Refused, Err: &wire.Error{Code: wire.SequenceRetired}}
	full := client.Result{Outcome: client.Refused, Err: &wire.Error{Code: wire.QueueFull}}
	unknown := client.Result{Outcome: client.Indeterminate, Err: &wire.Error{Code: wire.ConnectionLost}}
	type answer struct {
		seq uint64
		client.Result
	}
	for _, c := range []struct {
		what      string
		answers   []answer
		confirmed uint64
		counted   int
		below     int
		failed    uint64
	}{
		{"in turn", []answer{{11, ok}, {12, ok}}, 12, 2, 0, 0},
		{"out of turn", []answer{{12, ok}, {13, ok}, {11, ok}}, 13, 3, 0, 0},
		{"one is open", []answer{{12, ok}, {13, ok}}, 10, 2, 0, 0},
		{"retired", []answer{{11, retired}, {12, ok}}, 12, 1, 0, 0},
		{"below", []answer{{11, below}, {12, below}, {13, ok}}, 13, 3, 2, 11},
		{"refused", []answer{{11, ok}, {12, full}, {13, ok}}, 11, 2, 0, 12},
		{"indeterminate", []answer{{11, unknown}, {12, ok}}, 10, 1, 0, 11},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		counted, low := 0, 0
		tr := newTracker(10, 100, stop, func(below bool) {
			counted++
			if below {
				low++
			}
		})
		for seq := uint64(11); seq <= 14; seq++ {
			if err := tr.enter(ctx, int64(seq*10)); err != nil {
				t.Fatal(c.what, err)
			}
		}
		for _, a := range c.answers {
			a.Seq = a.seq
			tr.result(a.Result)
		}
		lines, end, err := tr.at()
		if lines != c.confirmed || end != int64(c.confirmed*10) || counted != c.counted || low != c.below {
			t.Errorf("%s: line %d at %d, %d counted, %d below", c.what, lines, end, counted, low)
		}
		var failed *LineError
		switch {
		case c.failed == 0 && (err != nil || ctx.Err() != nil):
			t.Errorf("%s: %v, %v", c.what, err, ctx.Err())
		case c.failed == 0:
		case !errors.As(err, &failed) || failed.Line != c.failed || !errors.Is(context.Cause(ctx), err):
			t.Errorf("%s: %v, %v", c.what, err, context.Cause(ctx))
		case !errors.Is(tr.enter(t.Context(), 0), err):
			t.Errorf("%s: another line was taken", c.what)
		}
		stop(nil)
	}
}

// No more lines are under way than leave the producer's window room: a line waits.
func TestTrackerIsBounded(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	tr := newTracker(0, 0, stop, func(bool) {})
	for i := range flightMax {
		if err := tr.enter(ctx, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for seq := uint64(2); seq <= flightMax; seq++ {
		tr.result(client.Result{Seq: seq, Outcome: client.OK})
	}
	over, end := context.WithCancel(ctx)
	end()
	if err := tr.enter(over, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("a line too many: %v", err)
	}
	tr.result(client.Result{Seq: 1, Outcome: client.OK})
	if err := tr.enter(ctx, 0); err != nil {
		t.Fatal(err)
	}
}
