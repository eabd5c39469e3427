package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/client"
	"weida/broker/wire"
)

func message(body string) client.Message {
	return client.Message{Body: strings.NewReader(body), Length: int64(len(body))}
}

// results gathers what done is called with.
type results struct {
	t   *testing.T
	ctx context.Context
	ch  chan client.Result
}

func (s *script) results() *results { return &results{s.t, s.ctx, make(chan client.Result, 1<<16)} }

func (r *results) done(res client.Result) { r.ch <- res }

func (r *results) next(seq uint64, o client.Outcome) client.Result {
	r.t.Helper()
	select {
	case res := <-r.ch:
		if res.Seq != seq || res.Outcome != o {
			r.t.Fatalf("result %d %s (%v), want %d %s", res.Seq, res.Outcome, res.Err, seq, o)
		}
		if (res.Err == nil) != (o == client.OK) || res.Latency < 0 {
			r.t.Fatalf("result %d %s with error %v after %v", res.Seq, res.Outcome, res.Err, res.Latency)
		}
		return res
	case <-r.ctx.Done():
		r.t.Fatalf("no result %d", seq)
	}
	panic("unreachable")
}

func (s *script) send(p *client.Producer, r *results, bodies ...string) {
	s.t.Helper()
	for _, b := range bodies {
		if err := p.Send(s.ctx, message(b), r.done); err != nil {
			s.t.Fatal(err)
		}
	}
}

// The four outcomes, each with what it must carry (X-4, D-17).
func TestOutcomes(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	s.send(p, r, "a", "b", "c", "d", "e", "f")
	for seq := uint64(1); seq <= 6; seq++ {
		f := b.publish(seq)
		if string(f.Body) != string("abcdef"[seq-1]) || !f.Want.IsZero() || f.Low != 1 {
			t.Errorf("PUBLISH %+v", f)
		}
	}
	b.send(
		&wire.EvidenceFrame{First: 1, Count: 2, Evidence: flushed, Offset: 17, Term: 6},
		&wire.Refused{Seq: 4, Code: wire.DiskFull, Detail: "no room"},
		&wire.Indeterminate{Seq: 3, Code: wire.StoreFailed, Detail: "flush"},
		&wire.Below{Seq: 5, Evidence: written, Offset: 19, Term: 6, Code: wire.NotOffered},
		&wire.EvidenceFrame{First: 6, Count: 1, Evidence: written, Offset: 20, Term: 7})
	for k := range uint64(2) {
		if res := r.next(1+k, client.OK); !res.Committed || res.Offset != 17+k || res.Term != 6 || res.Evidence != flushed {
			t.Errorf("%+v", res)
		}
	}
	if res := r.next(4, client.Refused); res.Committed || res.Err.Code != wire.DiskFull || res.Err.Detail != "no room" {
		t.Errorf("%+v", res)
	}
	if res := r.next(3, client.Indeterminate); res.Committed || res.Err.Code != wire.StoreFailed {
		t.Errorf("%+v", res)
	}
	if res := r.next(5, client.BelowRequest); !res.Committed || res.Offset != 19 || res.Evidence != written {
		t.Errorf("%+v", res)
	}
	if res := r.next(6, client.OK); res.Offset != 20 || res.Term != 7 {
		t.Errorf("%+v", res)
	}
	closing := make(chan error, 1)
	go func() { closing <- p.Close(s.ctx) }()
	b.ended()
	b.close()
	if err := <-closing; err != nil {
		t.Error(err)
	}
	if err := p.Send(s.ctx, message("x"), r.done); err == nil {
		t.Error("a closed producer sends")
	}
}

// what a lost connection leaves without an answer is indeterminate, each message once; never refused.
func TestLostConnection(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	s.send(p, r, "a", "b", "c")
	for seq := uint64(1); seq <= 3; seq++ {
		b.publish(seq)
	}
	b.send(&wire.EvidenceFrame{First: 2, Count: 1, Evidence: written, Offset: 0, Term: 1})
	r.next(2, client.OK)
	s.conn.Close()
	for _, seq := range []uint64{1, 3} {
		if res := r.next(seq, client.Indeterminate); res.Committed || res.Err.Code != wire.ConnectionLost {
			t.Errorf("%+v", res)
		}
	}
	var lost *client.LostError
	if err := p.Flush(s.ctx); !errors.As(err, &lost) {
		t.Errorf("Flush: %v", err)
	}
	if err := p.Send(s.ctx, message("d"), r.done); !errors.As(err, &lost) {
		t.Errorf("Send: %v", err)
	}
	if err := p.Close(s.ctx); !errors.As(err, &lost) {
		t.Errorf("Close: %v", err)
	}
	if len(r.ch) > 0 {
		t.Errorf("a message was answered twice: %+v", <-r.ch)
	}
}

// An ERROR frame refuses the stream, not the messages before it.
func TestStreamEndedByBroker(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	b.send(&wire.ErrorFrame{Code: wire.ReadOnly, Detail: "now"})
	b.close()
	res := r.next(1, client.Indeterminate)
	if res.Err.Code != wire.ConnectionLost || !strings.Contains(res.Err.Detail, "read_only") {
		t.Errorf("%+v", res)
	}
	var ended *wire.Error
	if err := p.Close(s.ctx); !errors.As(err, &ended) || ended.Code != wire.ReadOnly {
		t.Errorf("Close: %v", err)
	}
}

// A broker that stops has answered all that it read: the rest was not stored, and nobody is in doubt.
func TestBrokerStops(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	s.send(p, r, "a", "b")
	b.publish(1)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1}, &wire.ErrorFrame{Code: wire.Stopping})
	b.close()
	r.next(1, client.OK)
	if res := r.next(2, client.Refused); res.Err.Code != wire.Stopping {
		t.Errorf("%+v", res)
	}
	var stopping *wire.Error
	if err := p.Send(s.ctx, message("c"), r.done); !errors.As(err, &stopping) || stopping.Code != wire.Stopping {
		t.Errorf("Send: %v", err)
	}
	if err := p.Close(s.ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// D-17: less than was asked is never a success; a broker that answers wrongly is not listened to any more.
func TestBrokerBreaksTheProtocol(t *testing.T) {
	cases := []struct {
		name   string
		frames []wire.Frame
		first  client.Outcome // of message 1
		rest   client.Outcome // of message 2
	}{
		{
			"less than was asked",
			[]wire.Frame{&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1}},
			client.BelowRequest, client.Indeterminate,
		},
		{
			"accepted where stored was asked",
			[]wire.Frame{&wire.EvidenceFrame{First: 1, Count: 2, Evidence: wire.Accepted()}},
			client.Indeterminate, client.Indeterminate,
		},
		{
			"another axis",
			[]wire.Frame{&wire.EvidenceFrame{First: 1, Count: 1, Evidence: wire.Replicated(3, wire.Written), Term: 1}},
			client.BelowRequest, client.Indeterminate,
		},
		{"an answer twice", []wire.Frame{
			&wire.EvidenceFrame{First: 1, Count: 1, Evidence: flushed, Term: 1},
			&wire.Refused{Seq: 1, Code: wire.DiskFull},
		}, client.OK, client.Indeterminate},
		{
			"a range beyond what was sent",
			[]wire.Frame{&wire.EvidenceFrame{First: 1, Count: 1 << 40, Evidence: flushed, Term: 1}},
			client.OK, client.OK,
		},
		{
			"an answer to nothing",
			[]wire.Frame{&wire.Indeterminate{Seq: 3, Code: wire.StoreFailed}},
			client.Indeterminate, client.Indeterminate,
		},
		{"sequence 0", []wire.Frame{&wire.Refused{Seq: 0, Code: wire.DiskFull}}, client.Indeterminate, client.Indeterminate},
		{
			"a consumer's frame",
			[]wire.Frame{&wire.Settled{Offset: 1, Attempt: 1}},
			client.Indeterminate, client.Indeterminate,
		},
	}
	s := newScript(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, b := s.producer(client.ProducerOptions{Want: flushed}, 100, 1<<20)
			r := s.results()
			s.send(p, r, "a", "b")
			b.publish(1)
			b.publish(2)
			b.send(c.frames...)
			r.next(1, c.first)
			r.next(2, c.rest)
			var broke *client.ProtocolError
			err := p.Send(s.ctx, message("c"), r.done)
			if !errors.As(err, &broke) {
				// The last frame may not have been read yet; then this message ends with the stream.
				if r.next(3, client.Indeterminate); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
			if err := p.Close(s.ctx); err != nil && !errors.As(err, &broke) {
				t.Errorf("Close: %v", err)
			}
			if err := p.Send(s.ctx, message("d"), r.done); !errors.As(err, &broke) {
				t.Errorf("Send after Close: %v", err)
			}
			b.close()
		})
	}
}

// Flush returns when every done has returned, not when the answers came.
func TestFlushWaitsForDone(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	called, proceed, flushedCh := make(chan bool), make(chan bool), make(chan error, 1)
	if err := p.Send(s.ctx, message("a"), func(client.Result) { close(called); <-proceed }); err != nil {
		t.Fatal(err)
	}
	b.publish(1)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	<-called
	go func() { flushedCh <- p.Flush(s.ctx) }()
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := p.Flush(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush while done runs: %v", err)
	}
	select {
	case err := <-flushedCh:
		t.Fatalf("Flush returned (%v) while done runs", err)
	default:
	}
	close(proceed)
	if err := <-flushedCh; err != nil {
		t.Error(err)
	}
}

// The window holds Send back by messages and by bytes, and never lets more under way than the broker allows.
func TestWindow(t *testing.T) {
	cases := []struct {
		name    string
		o       client.ProducerOptions
		n, size uint64
		fit     int // messages of 10 bytes
	}{
		{"the producer's messages", client.ProducerOptions{Window: 3}, 100, 1 << 20, 3},
		{"the broker's messages", client.ProducerOptions{Window: 100}, 4, 1 << 20, 4},
		{"the broker's messages, nothing said", client.ProducerOptions{}, 5, 1 << 20, 5},
		{"the producer's bytes", client.ProducerOptions{WindowBytes: 25}, 100, 1 << 20, 2},
		{"the broker's bytes", client.ProducerOptions{}, 100, 60, 6},
		{"one larger than the window", client.ProducerOptions{WindowBytes: 1}, 100, 1 << 20, 1},
	}
	s := newScript(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.o.Want = written
			p, b := s.producer(c.o, c.n, c.size)
			r := s.results()
			for range c.fit {
				s.send(p, r, "0123456789")
			}
			ended, cancel := context.WithCancel(s.ctx)
			cancel()
			if err := p.Send(ended, message("0123456789"), r.done); !errors.Is(err, context.Canceled) {
				t.Fatalf("one more than %d was sent: %v", c.fit, err)
			}
			sent := make(chan error, 1)
			go func() { sent <- p.Send(s.ctx, message("0123456789"), r.done) }()
			for seq := range c.fit {
				b.publish(uint64(seq + 1))
			}
			b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if f := b.publish(uint64(c.fit + 1)); f.Low != 2 {
				t.Errorf("low is %d", f.Low)
			}
			b.close()
			_ = p.Close(s.ctx) // its messages are indeterminate; TestLostConnection looks at that
		})
	}
}

// A broker that lets nothing be under way would hang the producer.
func TestNoWindowAtAll(t *testing.T) {
	s := newScript(t)
	got := make(chan error, 1)
	go func() {
		_, err := s.c.Producer(s.ctx, "demo", client.ProducerOptions{Want: written})
		got <- err
	}()
	b, _ := s.accept()
	b.send(&wire.Opened{Offer: flushed})
	var broke *client.ProtocolError
	if err := <-got; !errors.As(err, &broke) {
		t.Errorf("got %v", err)
	}
}

// What cannot be opened gives its stream back: more are refused than a connection has streams.
func TestRefusedOpens(t *testing.T) {
	s := newScript(t)
	for i := range 100 {
		got := make(chan error, 1)
		go func() {
			var err error
			if i%2 == 0 {
				_, err = s.c.Producer(s.ctx, "nope", client.ProducerOptions{Want: written})
			} else {
				_, err = s.c.Consumer(s.ctx, "nope", client.ConsumerOptions{})
			}
			got <- err
		}()
		b, _ := s.accept()
		b.send(&wire.ErrorFrame{Code: wire.UnknownQueue, Detail: fmt.Sprint(i)})
		var given *quic.StreamError
		if f, err := b.in.Next(); !errors.As(err, &given) {
			t.Fatalf("after a refusal the client does not give the stream up: %v, %v", f, err)
		}
		b.close()
		var refused *wire.Error
		if err := <-got; !errors.As(err, &refused) || refused.Code != wire.UnknownQueue || refused.Detail != fmt.Sprint(i) {
			t.Fatalf("open %d: %v", i, err)
		}
	}
	ended, cancel := context.WithCancel(s.ctx)
	got := make(chan error, 1)
	go func() {
		_, err := s.c.Producer(ended, "demo", client.ProducerOptions{Want: written})
		got <- err
	}()
	s.accept()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("an open that nobody answers: %v", err)
	}
}

// What cannot be right is refused here, before anything is sent.
func TestRefusedLocally(t *testing.T) {
	s := newScript(t)
	code := func(err error) wire.Code {
		var refused *wire.Error
		if errors.As(err, &refused) {
			return refused.Code
		}
		return wire.OK
	}
	_, err := s.c.Producer(s.ctx, "demo", client.ProducerOptions{})
	if code(err) != wire.NoLevel {
		t.Errorf("D-4: no want: %v", err)
	}
	_, err = s.c.Producer(s.ctx, strings.Repeat("q", wire.QueueMax+1), client.ProducerOptions{Want: written})
	if code(err) != wire.UnknownQueue {
		t.Errorf("a long queue name: %v", err)
	}
	_, err = s.c.Consumer(s.ctx, "demo", client.ConsumerOptions{Subscription: strings.Repeat("s", wire.IDMax+1)})
	if code(err) == wire.OK {
		t.Errorf("a long subscription: %v", err)
	}
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	for name, m := range map[string]client.Message{
		"a want without a level": {Body: strings.NewReader("x"), Length: 1, Want: wire.Want{Replicas: 1}},
		"a body that is short":   {Body: strings.NewReader("x"), Length: 2},
		"a body without end":     {Body: strings.NewReader(strings.Repeat("x", wire.InlineMax+1)), Length: -1},
	} {
		if err := p.Send(s.ctx, m, r.done); err == nil {
			t.Errorf("%s was sent", name)
		}
	}
	s.send(p, r, "fine")
	if err := p.Send(s.ctx, client.Message{Body: strings.NewReader("to its end"), Length: -1}, nil); err != nil {
		t.Error(err)
	}
	if f := b.publish(1); string(f.Body) != "fine" {
		t.Errorf("the first PUBLISH is %+v", f)
	}
	if f := b.publish(2); string(f.Body) != "to its end" {
		t.Errorf("the second PUBLISH is %+v", f)
	}
	if len(r.ch) > 0 {
		t.Errorf("done was called: %+v", <-r.ch)
	}
}
