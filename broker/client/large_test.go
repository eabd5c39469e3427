package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/quic-go/quic-go"
	"github.com/zeebo/xxh3"

	"weida/broker/client"
	"weida/broker/wire"
)

func digestOf(b []byte) [16]byte { return xxh3.Hash128(b).Bytes() }

// pattern is n bytes that repeat late.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// take takes the body's stream that a PUBLISH names.
func (b *side) take(f *wire.Publish) *quic.ReceiveStream {
	b.t.Helper()
	if !f.Large {
		b.t.Fatalf("%+v is not large", f)
	}
	s, err := b.script.in.Take(b.ctx, f.Stream)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// A large body follows on a stream of its own: length, bytes, digest, end.
func TestLargeBody(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	body := pattern(1<<20 + 17)
	sent := make(chan error, 1)
	go func() {
		sent <- p.Send(s.ctx, client.Message{Body: bytes.NewReader(body), Length: int64(len(body)), Want: flushed}, r.done)
	}()
	f := b.publish(1)
	if f.Length != uint64(len(body)) || f.Want != flushed {
		t.Errorf("PUBLISH %+v", f)
	}
	in := wire.NewReader(b.take(f))
	head, err := in.Next()
	if h, ok := head.(*wire.BodyHead); err != nil || !ok || h.Length != f.Length {
		t.Fatalf("the stream begins with %+v, %v", head, err)
	}
	got, err := io.ReadAll(in.Rest())
	digest := digestOf(body)
	if err != nil || !bytes.Equal(got, append(body, digest[:]...)) {
		t.Fatalf("%d bytes came, %v; want %d and a digest", len(got), err, len(body))
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: flushed, Offset: 3, Term: 1})
	r.next(1, client.OK)
	b.close()
}

// Whatever ends a large body early, its message has one answer, its stream gives its place back, and
// the producer goes on. 40 bodies are more than a connection has body streams.
func TestLargeBodiesThatEnd(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	broken := errors.New("disk gone")
	short := func() io.Reader { return strings.NewReader(strings.Repeat("x", 100_000)) }
	cases := []struct {
		name, says string
		body       func(cancel func()) io.Reader
		code       wire.Code
	}{
		{
			"the reader fails", "disk gone", func(func()) io.Reader { return io.MultiReader(short(), iotest.ErrReader(broken)) },
			wire.BodyBroken,
		},
		{"the reader ends", "unexpected EOF", func(func()) io.Reader { return short() }, wire.BodyBroken},
		{
			"ctx ends", "canceled", func(cancel func()) io.Reader { return io.MultiReader(short(), &canceller{cancel}) },
			wire.BodyBroken,
		},
		{"the broker does not want it", "", func(func()) io.Reader { return zeros{} }, wire.TooLarge},
	}
	for seq := uint64(1); seq <= 40; seq++ {
		c := cases[seq%4]
		ctx, cancel := context.WithCancel(s.ctx)
		sent := make(chan error, 1)
		m := client.Message{Body: c.body(cancel), Length: 1 << 30}
		go func() { sent <- p.Send(ctx, m, r.done) }()
		stream := b.take(b.publish(seq))
		if c.code == wire.TooLarge {
			stream.CancelRead(quic.StreamErrorCode(c.code))
		} else if _, err := io.Copy(io.Discard, stream); err == nil {
			t.Fatalf("%s: the body seems whole", c.name)
		}
		stream.ReleaseStreamCredit()
		if err := <-sent; err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		b.send(&wire.Refused{Seq: seq, Code: c.code, Detail: "100000 of 1073741824 bytes came"})
		if res := r.next(seq, client.Refused); res.Err.Code != c.code || !strings.Contains(res.Err.Detail, c.says) {
			t.Errorf("%s: %v", c.name, res.Err)
		}
		cancel()
	}
	b.close()
	_ = p.Close(s.ctx) // the stream's end is not what this is about
}

// A broker that refuses a large message at its frame, before Send has come to its body, holds nothing up.
func TestLargeRefusedAtOnce(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	for seq := uint64(1); seq < 120; seq += 2 {
		sent := make(chan error, 1)
		go func() { sent <- p.Send(s.ctx, client.Message{Body: zeros{}, Length: 1 << 30}, r.done) }()
		f := b.publish(seq)
		b.send(&wire.Refused{Seq: seq, Code: wire.TooLarge})
		r.next(seq, client.Refused)
		stream := b.take(f)
		stream.CancelRead(quic.StreamErrorCode(wire.TooLarge))
		stream.ReleaseStreamCredit()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		s.send(p, r, "small")
		b.publish(seq + 1)
		b.send(&wire.EvidenceFrame{First: seq + 1, Count: 1, Evidence: written, Term: 1})
		r.next(seq+1, client.OK)
	}
	b.close()
}

// A body whose message has no place in the window has no stream either: nobody would ever read it.
func TestLargeBodyWithoutRoom(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written, Window: 1}, 100, 1<<20)
	r := s.results()
	s.send(p, r, "a")
	b.publish(1)
	for range 40 {
		inner, cancel := context.WithCancel(s.ctx)
		ctx := &watched{inner, make(chan bool, 10)}
		sent := make(chan error, 1)
		go func() { sent <- p.Send(ctx, client.Message{Body: zeros{}, Length: 1 << 20}, r.done) }()
		<-ctx.waits // for its turn
		<-ctx.waits // for room
		cancel()
		if err := <-sent; !errors.Is(err, context.Canceled) {
			t.Fatalf("Send without room: %v", err)
		}
	}
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 1})
	r.next(1, client.OK)
	go func() { _ = p.Send(s.ctx, client.Message{Body: zeros{}, Length: 1 << 20}, r.done) }() // its result tells
	f := b.publish(2)
	if f.Stream != 2 {
		t.Errorf("the first body has stream %d: others were opened before", f.Stream)
	}
	if _, err := io.Copy(io.Discard, b.take(f)); err != nil {
		t.Error(err)
	}
	b.send(&wire.EvidenceFrame{First: 2, Count: 1, Evidence: written, Offset: 1, Term: 1})
	r.next(2, client.OK)
	b.close()
}

// A body under way when its stream fails does not hold Send up: nobody reads it any more.
func TestStreamEndsUnderLargeBody(t *testing.T) {
	s := newScript(t)
	p, b := s.producer(client.ProducerOptions{Want: written}, 100, 1<<20)
	r := s.results()
	sent := make(chan error, 1)
	go func() { sent <- p.Send(s.ctx, client.Message{Body: zeros{}, Length: 1 << 30}, r.done) }()
	b.publish(1)
	b.send(&wire.ErrorFrame{Code: wire.ReadOnly})
	b.close()
	if res := r.next(1, client.Refused); res.Err.Code != wire.BodyBroken { // it never was whole
		t.Errorf("%+v", res)
	}
	if err := <-sent; err != nil || s.ctx.Err() != nil {
		t.Error(err, s.ctx.Err())
	}
}

// watched tells when somebody begins to wait for its end.
type watched struct {
	context.Context
	waits chan bool
}

func (w *watched) Done() <-chan struct{} {
	select {
	case w.waits <- true:
	default:
	}
	return w.Context.Done()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// canceller ends a context when it is read, and then goes on for ever.
type canceller struct{ cancel func() }

func (c *canceller) Read(b []byte) (int, error) { c.cancel(); return len(b), nil }
