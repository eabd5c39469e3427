package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// identified opens a producer with an id whose queue remembers [low, next) of it; it ends with its connection
// unless it is told otherwise.
func (s *script) identified(o client.ProducerOptions, low, next uint64) (*client.Producer, *side) {
	s.t.Helper()
	o.Want, o.ID = written, "p1"
	if o.Patience == 0 {
		o.Patience = -1
	}
	return s.opened(o, &wire.Opened{
		Offer: flushed, MessageMax: 1 << 30, InFlight: 100, InFlightSize: 1 << 20, Low: low, Next: next,
	})
}

func numbered(seq uint64, body string) client.Message {
	m := message(body)
	m.Seq = seq
	return m
}

func (b *side) publishLow(seq, low uint64) {
	b.t.Helper()
	if f := b.publish(seq); f.Low != low {
		b.t.Fatalf("PUBLISH %d has low %d, want %d", seq, f.Low, low)
	}
}

func refusedWith(t *testing.T, err error, code wire.Code) {
	t.Helper()
	var refused *wire.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Fatalf("got %v, want %v", err, code)
	}
}

// Sequences go on from what the queue knows, and low is the lowest that is not resolved.
func TestSequencesGoOn(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{}, 41, 47)
	if n := p.Next(); n != 47 {
		t.Errorf("Next is %d", n)
	}
	r := s.results()
	s.send(p, r, "a", "b", "c")
	b.publishLow(47, 47)
	b.publishLow(48, 47)
	b.publishLow(49, 47)
	b.send(&wire.EvidenceFrame{First: 48, Count: 1, Evidence: written, Term: 1})
	r.next(48, client.OK)
	s.send(p, r, "d")
	b.publishLow(50, 47)
	b.send(
		&wire.EvidenceFrame{First: 47, Count: 1, Evidence: written, Term: 1},
		&wire.EvidenceFrame{First: 50, Count: 1, Evidence: written, Term: 1}) // by whose result 47 is resolved
	r.next(47, client.OK)
	r.next(50, client.OK)
	if err := p.Send(s.ctx, numbered(60, "e"), r.done); err != nil {
		t.Fatal(err)
	}
	b.publishLow(60, 49)
	if n := p.Next(); n != 61 {
		t.Errorf("Next is %d", n)
	}
	for _, seq := range []uint64{47, 48, 49, 55, 60} {
		if err := p.Send(s.ctx, numbered(seq, "again"), r.done); err == nil {
			t.Errorf("sequence %d is sent although it was passed", seq)
		}
	}
	b.close()
}

// What an earlier process left is sent again first, under its old sequences; older than that is given up.
func TestOldSequencesFirst(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{}, 41, 47)
	r := s.results()
	for _, seq := range []uint64{43, 45, 0} {
		if err := p.Send(s.ctx, numbered(seq, "x"), r.done); err != nil {
			t.Fatal(err)
		}
	}
	b.publishLow(43, 43)
	b.publishLow(45, 43)
	b.publishLow(47, 43)
	refusedWith(t, p.Send(s.ctx, numbered(42, "x"), r.done), wire.SequenceRetired)
	b.close()
}

// A gap, refused or indeterminate, can be filled as long as nobody needs its place: low stays below it
// until then. Without an id there is nothing to fill.
func TestGapsCanBeFilled(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{Window: 4}, 0, 1)
	r := s.results()
	s.send(p, r, "a", "b", "c")
	for seq := uint64(1); seq <= 3; seq++ {
		b.publishLow(seq, 1)
	}
	b.send(
		&wire.Refused{Seq: 1, Code: wire.QueueFull},
		&wire.Indeterminate{Seq: 2, Code: wire.StoreFailed},
		&wire.EvidenceFrame{First: 3, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.Refused)
	r.next(2, client.Indeterminate)
	r.next(3, client.OK)
	if err := p.Flush(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(s.ctx, numbered(2, "b"), r.done); err != nil {
		t.Fatal(err)
	}
	b.publishLow(2, 1)
	b.send(&wire.EvidenceFrame{First: 2, Count: 1, Evidence: written, Offset: 9, Term: 1})
	if res := r.next(2, client.OK); res.Offset != 9 {
		t.Errorf("%+v", res)
	}
	if err := p.Flush(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.send(p, r, "d")
	b.publishLow(4, 1)
	s.send(p, r, "e") // it needs the place of 1
	b.publishLow(5, 4)
	refusedWith(t, p.Send(s.ctx, numbered(1, "a"), r.done), wire.SequenceRetired)
	b.close()

	p, b = s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r = s.results()
	s.send(p, r, "a")
	b.publish(1)
	b.send(&wire.Refused{Seq: 1, Code: wire.QueueFull})
	r.next(1, client.Refused)
	if err := p.Flush(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(s.ctx, numbered(1, "a"), r.done); err == nil {
		t.Error("without an id a sequence is used twice")
	}
	b.close()
}

// What may be stored stays so however often it is refused afterwards, until somebody knows better; a message that takes
// the place, or that was only ever refused, has no part in that.
func TestIndeterminateThenRefused(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{Window: 2}, 0, 1)
	r := s.results()
	again := func(seq uint64, answer wire.Frame, want client.Outcome) client.Result {
		t.Helper()
		if err := p.Send(s.ctx, numbered(seq, "x"), r.done); err != nil {
			t.Fatal(err)
		}
		b.publish(seq)
		b.send(answer)
		res := r.next(seq, want)
		_ = p.Flush(s.ctx) // so that the place is free, or a gap; it tells of what is indeterminate
		return res
	}
	full := func(seq uint64) wire.Frame { return &wire.Refused{Seq: seq, Code: wire.DiskFull, Detail: "2 of 3"} }
	again(1, full(1), client.Refused)
	again(1, full(1), client.Refused)
	again(1, &wire.Indeterminate{Seq: 1, Code: wire.Uncommitted}, client.Indeterminate)
	for range 2 {
		res := again(1, full(1), client.Indeterminate)
		if res.Err.Code != wire.Uncommitted || !strings.Contains(res.Err.Detail, "disk_full (2 of 3)") {
			t.Errorf("%+v", res)
		}
	}
	again(2, full(2), client.Refused)
	again(3, full(3), client.Refused) // in the place of 1
	again(3, &wire.Indeterminate{Seq: 3, Code: wire.Uncommitted}, client.Indeterminate)
	again(3, &wire.EvidenceFrame{First: 3, Count: 1, Evidence: written, Term: 1}, client.OK)
	again(4, full(4), client.Refused)
	again(5, full(5), client.Refused) // in the place of 3
	b.close()
}

// A window with a message in it that is not answered holds a far sequence back.
func TestFarSequenceWaits(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{Window: 4}, 0, 1)
	r := s.results()
	s.send(p, r, "a")
	b.publishLow(1, 1)
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := p.Send(ended, numbered(1000, "z"), r.done); !errors.Is(err, context.Canceled) {
		t.Fatalf("sent beyond the window: %v", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- p.Send(s.ctx, numbered(1000, "z"), r.done) }()
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b.publishLow(1000, 1000)
	b.close()
}
