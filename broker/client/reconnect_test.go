package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// reopened takes the client's next connection and the stream that it opens again in place of a lost one.
func (s *script) reopened(answer *wire.Opened) *side {
	s.t.Helper()
	s.connected()
	return s.reopenedStream(answer)
}

func (s *script) reopenedStream(answer *wire.Opened) *side {
	s.t.Helper()
	b, f := s.accept()
	switch open := f.(type) {
	case *wire.OpenProducer:
		if open.Queue != "demo" || open.Producer != "p1" && open.Producer != "" || open.Want != written {
			s.t.Fatalf("opened again with %+v", f)
		}
	case *wire.OpenConsumer:
		if open.Queue != "demo" || open.Subscription != "s" {
			s.t.Fatalf("opened again with %+v", f)
		}
	default:
		s.t.Fatalf("opened again with %+v", f)
	}
	b.send(answer)
	return b
}

func knows(low, next uint64) *wire.Opened {
	return &wire.Opened{Offer: flushed, InFlight: 100, InFlightSize: 1 << 20, Low: low, Next: next}
}

// stubborn is a producer with an id that does not end with its connection.
func (s *script) stubborn() (*client.Producer, *side) {
	s.t.Helper()
	p, b := s.identified(client.ProducerOptions{Patience: patience}, 1, 1)
	s.t.Cleanup(func() {
		ended, cancel := context.WithCancel(s.ctx)
		cancel()
		_ = p.Close(ended) // what it has under way is not what the test is about
	})
	return p, b
}

// What has no answer is sent again in order, what has one is not, and what was sent meanwhile follows.
// An answer to the second sending is the truth about the first.
func TestSentAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a", "b", "c", "d")
	for seq := uint64(1); seq <= 4; seq++ {
		b.publishLow(seq, 1)
	}
	b.send(
		&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1},
		&wire.EvidenceFrame{First: 3, Count: 1, Evidence: written, Offset: 2, Term: 1})
	r.next(1, client.OK)
	r.next(3, client.OK)
	s.conn.Close()
	s.send(p, r, "e")
	b = s.reopened(knows(1, 4))
	b.publishLow(2, 2)
	b.publishLow(4, 2)
	b.publishLow(5, 2)
	b.send(
		&wire.EvidenceFrame{First: 2, Count: 1, Evidence: flushed, Offset: 1, Term: 1},
		&wire.EvidenceFrame{First: 4, Count: 2, Evidence: written, Offset: 3, Term: 2})
	if res := r.next(2, client.OK); res.Offset != 1 || res.Evidence != flushed {
		t.Errorf("%+v", res)
	}
	r.next(4, client.OK)
	r.next(5, client.OK)
	if err := p.Flush(s.ctx); err != nil {
		t.Error(err)
	}
	if len(r.ch) > 0 {
		t.Errorf("answered twice: %+v", <-r.ch)
	}
}

// An answer is only believed on the stream that the message was written to.
func TestAnswerBeforeSentAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a", "b")
	b.publish(1)
	b.publish(2)
	s.conn.Close()
	narrow := knows(1, 1)
	narrow.InFlight = 1
	b = s.reopened(narrow)
	b.publish(1) // and no more are let be under way
	b.send(&wire.EvidenceFrame{First: 2, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.Indeterminate)
	r.next(2, client.Indeterminate)
	var broke *client.ProtocolError
	if err := p.Flush(s.ctx); !errors.As(err, &broke) {
		t.Errorf("Flush: %v", err)
	}
}

// A new stream may let less be under way than the first: in messages and in bytes.
func TestNarrowerSecondStream(t *testing.T) {
	for _, answer := range []*wire.Opened{
		{Offer: flushed, InFlight: 2, InFlightSize: 1 << 20, Low: 1, Next: 1},
		{Offer: flushed, InFlight: 100, InFlightSize: 25, Low: 1, Next: 1},
	} {
		s := newScript(t)
		p, b := s.stubborn()
		r := s.results()
		for range 5 {
			s.send(p, r, "0123456789")
		}
		for seq := range uint64(5) {
			b.publish(seq + 1)
		}
		s.conn.Close()
		b = s.reopened(answer)
		for seq := uint64(1); seq <= 5; seq += 2 {
			b.publish(seq)
			if seq < 5 {
				b.publish(seq + 1)
			}
			b.nothing()
			b.send(&wire.EvidenceFrame{First: seq, Count: min(2, 6-seq), Evidence: written, Offset: seq, Term: 1})
		}
		for seq := range uint64(5) {
			r.next(seq+1, client.OK)
		}
	}
}

// nothing expects that no frame is here; one that comes late goes unseen, and never fails the test.
func (b *side) nothing() {
	b.t.Helper()
	if b.in.Buffered() {
		b.t.Fatalf("got %+v, want nothing", b.next())
	}
}

// W-72: a refusal of what was sent again says nothing of the first sending. Of what a broker that stops
// did not read there is no first sending.
func TestRefusedWhenSentAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	s.conn.Close()
	b = s.reopened(knows(1, 1))
	b.publish(1)
	b.send(&wire.Refused{Seq: 1, Code: wire.QueueFull, Detail: "10 of 10"})
	res := r.next(1, client.Indeterminate)
	if res.Err.Code != wire.ConnectionLost || !strings.Contains(res.Err.Detail, "queue_full (10 of 10)") {
		t.Errorf("%+v", res)
	}
	s.send(p, r, "b")
	b.publish(2)
	b.send(&wire.ErrorFrame{Code: wire.Stopping})
	b = s.reopened(knows(1, 1))
	b.publishLow(2, 1) // 1 may be sent again
	b.send(&wire.Refused{Seq: 2, Code: wire.QueueFull})
	r.next(2, client.Refused)
	if err := p.Send(s.ctx, numbered(1, "a"), r.done); err != nil {
		t.Fatal(err)
	}
	b.publishLow(1, 1)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)
}

// A broker that stops is left at once, although others have answers to come on its connection; that ends
// with the last of them.
func TestStoppingBrokerIsLeft(t *testing.T) {
	s := newScript(t)
	other, o := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	p, b := s.stubborn()
	r := s.results()
	b.send(&wire.ErrorFrame{Code: wire.Stopping})
	b.givenUp()
	s.send(p, r, "a")
	old, quiet := s.conn, make(chan bool)
	go func() {
		if _, err := old.AcceptStream(s.ctx); err == nil {
			t.Error("a broker that stops is asked once more")
		}
		close(quiet)
	}()
	b = s.reopened(knows(1, 1))
	b.publish(1)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)
	s.send(other, r, "b")
	o.publish(1)
	o.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1}, &wire.ErrorFrame{Code: wire.Stopping})
	r.next(1, client.OK)
	select {
	case <-old.Context().Done():
	case <-s.ctx.Done():
		t.Error("the old connection does not end")
	}
	<-quiet
}

// givenUp expects the client to have given its side up.
func (b *side) givenUp() {
	b.t.Helper()
	for {
		if _, err := b.in.Next(); err != nil {
			return
		}
	}
}

// A queue that has forgotten what it stored of the producer would store it again: nothing is sent.
func TestForgottenProducer(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a", "b")
	b.publish(1)
	b.publish(2)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)
	s.conn.Close()
	b = s.reopened(knows(1, 1))
	if res := r.next(2, client.Indeterminate); !strings.Contains(res.Err.Detail, "unknown_producer") {
		t.Errorf("%+v", res)
	}
	refusedWith(t, p.Flush(s.ctx), wire.UnknownProducer)
	refusedWith(t, p.Send(s.ctx, message("c"), r.done), wire.UnknownProducer)
	if f, err := b.in.Next(); err == nil {
		t.Errorf("it sent %+v", f)
	}
}

// What cannot pass ends the producer at once; what it sent is indeterminate.
func TestRefusedAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	s.conn.Close()
	s.connected()
	for _, code := range []wire.Code{wire.DiskFull, wire.Overloaded, wire.UnknownQueue} { // the last does not pass
		b, _ := s.accept()
		b.send(&wire.ErrorFrame{Code: code})
		b.close()
	}
	r.next(1, client.Indeterminate)
	refusedWith(t, p.Flush(s.ctx), wire.UnknownQueue)
}

// A broker that breaks the protocol is not asked again.
func TestBrokenProtocolIsFinal(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	b.send(&wire.Settled{Offset: 1, Attempt: 1})
	r.next(1, client.Indeterminate)
	var broke *client.ProtocolError
	if err := p.Flush(s.ctx); !errors.As(err, &broke) {
		t.Errorf("Flush: %v", err)
	}
}

// Patience ends: what was under way is indeterminate, and the error says what was lost and what was tried.
func TestPatienceEnds(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{Patience: time.Millisecond}, 1, 1)
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	s.gone()
	r.next(1, client.Indeterminate)
	var lost *client.LostError
	if err := p.Close(s.ctx); !errors.As(err, &lost) || !strings.Contains(err.Error(), "could not be made again") {
		t.Errorf("Close: %v", err)
	}
	if err := p.Send(s.ctx, message("b"), r.done); !errors.As(err, &lost) {
		t.Errorf("Send: %v", err)
	}
}

// Close does not wait for a connection longer than its ctx, nor at all when nothing is unanswered.
func TestCloseWhileLost(t *testing.T) {
	s := newScript(t)
	p, _ := s.identified(client.ProducerOptions{Patience: time.Hour}, 1, 1)
	s.conn.Close()
	if err := p.Close(s.ctx); err != nil {
		t.Errorf("Close of an idle producer: %v", err)
	}
	p, b := s.identifiedAgain(client.ProducerOptions{Patience: time.Hour})
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	s.gone()
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := p.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	r.next(1, client.Indeterminate)
}

// identifiedAgain opens a producer on the client's next connection.
func (s *script) identifiedAgain(o client.ProducerOptions) (*client.Producer, *side) {
	s.t.Helper()
	next := make(chan bool)
	go func() { s.connected(); close(next) }()
	p, err := make(chan *client.Producer, 1), make(chan error, 1)
	go func() {
		o.Want, o.ID = written, "p1"
		made, e := s.c.Producer(s.ctx, "demo", o)
		p <- made
		err <- e
	}()
	<-next
	b := s.reopenedStream(knows(1, 1))
	made := <-p
	if e := <-err; e != nil {
		s.t.Fatal(e)
	}
	return made, b
}

// A closed client is no reason to wait.
func TestClientClosesWhileLost(t *testing.T) {
	s := newScript(t)
	p, b := s.identified(client.ProducerOptions{Patience: time.Hour}, 1, 1)
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	s.c.Close()
	r.next(1, client.Indeterminate)
	var lost *client.LostError
	if err := p.Close(s.ctx); !errors.As(err, &lost) {
		t.Errorf("Close: %v", err)
	}
	if _, err := s.c.Purge(s.ctx, "demo"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Purge: %v", err)
	}
}

// Without an id nothing is sent twice, with patience or without; with it, later messages have a stream again.
func TestWithoutIDNothingIsSentAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written, Patience: patience}, 100, 1<<20)
	r := s.results()
	s.send(p, r, "a", "b")
	b.publish(1)
	b.publish(2)
	s.conn.Close()
	r.next(1, client.Indeterminate)
	r.next(2, client.Indeterminate)
	var lost *client.LostError
	if err := p.Flush(s.ctx); !errors.As(err, &lost) {
		t.Errorf("Flush: %v", err)
	}
	if err := p.Flush(s.ctx); err != nil {
		t.Errorf("Flush again: %v", err)
	}
	s.send(p, r, "c")
	b = s.reopened(&wire.Opened{Offer: flushed, InFlight: 100, InFlightSize: 1 << 20})
	b.publishLow(3, 3)
	b.send(&wire.EvidenceFrame{First: 3, Count: 1, Evidence: written, Term: 1})
	r.next(3, client.OK)
	closing := make(chan error, 1)
	go func() { closing <- p.Close(s.ctx) }()
	b.ended()
	b.close()
	if err := <-closing; err != nil {
		t.Error(err)
	}
}

// A large body is sent again from where it stood if it can be; else, once whole, nobody knows, and
// before that it was not stored.
func TestLargeSentAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	body := string(pattern(100_000))
	seekable := strings.NewReader("skip" + body)
	if _, err := seekable.Seek(4, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	read := func(f *wire.Publish) {
		t.Helper()
		in := wire.NewReader(b.take(f))
		if _, err := in.Next(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in.Rest()); err != nil || string(got[:len(got)-16]) != body {
			t.Fatalf("%d bytes came, %v", len(got), err)
		}
	}
	for _, in := range []io.Reader{seekable, io.MultiReader(strings.NewReader(body))} {
		if err := p.Send(s.ctx, client.Message{Body: in, Length: 100_000}, r.done); err != nil {
			t.Fatal(err)
		}
	}
	read(b.publish(1))
	read(b.publish(2))
	s.conn.Close()
	if res := r.next(2, client.Indeterminate); res.Err.Code != wire.ConnectionLost {
		t.Errorf("%+v", res)
	}
	b = s.reopened(knows(1, 1))
	read(b.publish(1))
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)

	sent := make(chan error, 1)
	endless := client.Message{Body: struct{ io.Reader }{zeros{}}, Length: 1 << 30}
	go func() { sent <- p.Send(s.ctx, endless, r.done) }()
	b.publish(3)
	s.conn.Close()
	if res := r.next(3, client.Refused); res.Err.Code != wire.BodyBroken {
		t.Errorf("%+v", res)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A body that Send is still at when the connection ends goes on on the next.
func TestLargeUnderWaySentAgain(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	body := pattern(12 << 20)
	sent := make(chan error, 1)
	go func() { sent <- p.Send(s.ctx, message(string(body)), r.done) }()
	b.take(b.publish(1))
	s.conn.Close()
	b = s.reopened(knows(1, 1))
	n, err := io.Copy(io.Discard, b.take(b.publish(1)))
	if err != nil || n < int64(len(body)) {
		t.Fatal(n, err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)
}

// A Send that gives up between two connections leaves nothing that could be stored.
func TestLargeGivenUpWhileLost(t *testing.T) {
	s := newScript(t)
	p, b := s.stubborn()
	r := s.results()
	ctx, cancel := context.WithCancel(s.ctx)
	sent := make(chan error, 1)
	go func() { sent <- p.Send(ctx, message(string(pattern(30<<20))), r.done) }()
	b.take(b.publish(1))
	s.conn.Close()
	s.connected()
	cancel()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b = s.reopenedStream(knows(1, 1))
	if _, err := io.Copy(io.Discard, b.take(b.publish(1))); err == nil {
		t.Error("it was sent whole")
	}
	b.send(&wire.Refused{Seq: 1, Code: wire.BodyBroken})
	if res := r.next(1, client.Refused); !strings.Contains(res.Err.Detail, "canceled") {
		t.Errorf("%+v", res)
	}
}

// Addresses are tried in turn: a node that is gone for good does not hold up who knows another.
func TestAnotherAddress(t *testing.T) {
	s, second := newScripts(t)
	p, b := s.stubborn()
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	s.gone()
	s.connectedAt(second)
	b = s.reopenedStream(knows(1, 1))
	b.publish(1)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)
}

// What is asked for when the connection has ended without anybody noticing is asked for once more on
// another, if that is safe: a purge could take what came since.
func TestAskedAfterTheEnd(t *testing.T) {
	s := newScript(t)
	shown := make(chan bool, 2)
	calls := map[wire.Type]func() error{
		wire.TypeRetire:      func() error { return s.c.Retire(s.ctx, "demo", "p1") },
		wire.TypeUnsubscribe: func() error { return s.c.Unsubscribe(s.ctx, "demo", "s") },
		wire.TypeOpenPeek: func() error {
			n := 0
			for d, err := range s.c.Peek(s.ctx, "demo", client.PeekOptions{Count: 2}) {
				if n++; err != nil || d.Offset != uint64(n) {
					return fmt.Errorf("%v, %w", d, err)
				}
				shown <- true
			}
			return nil
		},
		wire.TypePurge: func() error { _, err := s.c.Purge(s.ctx, "demo"); return err },
	}
	for kind, call := range calls {
		got := make(chan error, 1)
		go func() { got <- call() }()
		b, f := s.accept()
		if f.Type() != kind {
			t.Fatalf("asked %+v", f)
		}
		if kind == wire.TypeOpenPeek {
			b.send(delivery(1, "a"))
			<-shown
		}
		s.conn.Close()
		if kind == wire.TypePurge {
			var lost *client.LostError
			if err := <-got; !errors.As(err, &lost) {
				t.Errorf("%v: %v", kind, err)
			}
			go func() { got <- call() }()
		}
		s.connected()
		b, f = s.accept()
		switch f := f.(type) {
		case *wire.Purge:
			b.send(&wire.Purged{})
		case *wire.OpenPeek:
			if f.From != 2 || f.Count != 1 {
				t.Errorf("asked again: %+v", f)
			}
			b.send(delivery(2, "b"), &wire.PeekEnd{Next: 3})
		default:
			b.send(&wire.Done{})
		}
		b.close()
		if err := <-got; err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
}
