package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/client"
	"weida/broker/wire"
)

func delivery(offset uint64, body string) *wire.Deliver {
	return &wire.Deliver{Offset: offset, Attempt: 1, Term: 6, Digest: digestOf([]byte(body)), Body: []byte(body)}
}

// credit expects the next CREDIT.
func (b *side) credit(limit uint64) {
	b.t.Helper()
	if f, ok := b.next().(*wire.Credit); !ok || f.Limit != limit {
		b.t.Fatalf("got %+v, want CREDIT %d", f, limit)
	}
}

// settle expects the next SETTLE and answers it.
func (b *side) settle(offset uint64, v wire.Verb, code wire.Code) {
	b.t.Helper()
	f, ok := b.next().(*wire.Settle)
	if !ok || f.Offset != offset || f.Attempt != 1 || f.Term != 6 || f.Verb != v {
		b.t.Fatalf("got %+v, want %v of %d", f, v, offset)
	}
	b.send(&wire.Settled{Offset: f.Offset, Attempt: f.Attempt, Code: code})
}

// puller takes deliveries one at a time.
type puller struct {
	t    *testing.T
	next func() (*client.Delivery, error, bool)
}

func (s *script) pull(k *client.Consumer) *puller {
	next, stop := iter.Pull2(k.Deliveries(s.ctx))
	s.t.Cleanup(stop)
	return &puller{s.t, next}
}

func (p *puller) get(offset uint64) *client.Delivery {
	p.t.Helper()
	d, err, ok := p.next()
	if !ok || err != nil || d.Offset != offset {
		p.t.Fatalf("got %+v, %v, %v; want offset %d", d, err, ok, offset)
	}
	return d
}

func (p *puller) fails(want any) {
	p.t.Helper()
	if d, err, ok := p.next(); !ok || d != nil || !errors.As(err, want) {
		p.t.Fatalf("got %+v, %v, %v; want a %T", d, err, ok, want)
	}
	if d, err, ok := p.next(); ok {
		p.t.Fatalf("after the error: %+v, %v", d, err)
	}
}

func read(t *testing.T, d *client.Delivery, want []byte) {
	t.Helper()
	got, err := io.ReadAll(d.Body())
	if err != nil || !bytes.Equal(got, want) || d.Length != int64(len(want)) {
		t.Fatalf("offset %d: %d bytes of %d, %v; want %d", d.Offset, len(got), d.Length, err, len(want))
	}
}

// W-23: credit is an absolute limit, granted again as deliveries are taken, from where the subscription stands.
func TestCreditIsGrantedAgain(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s", Credit: 4, Patience: -1}, 100, 0)
	b.credit(104)
	p := s.pull(k)
	b.send(delivery(7, "a"), delivery(8, ""), delivery(9, "c"), delivery(10, "d"))
	read(t, p.get(7), []byte("a"))
	read(t, p.get(8), nil)
	b.credit(106)
	p.get(9)
	p.get(10)
	b.credit(108)
	b.close()
	var lost *client.LostError
	p.fails(&lost)
}

// An earlier consumer may have granted more than this one would: all of that can still come, and
// settles are answered meanwhile.
func TestCreditOfAnEarlierConsumer(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s", Credit: 1}, 0, 50)
	p := s.pull(k)
	for i := range uint64(50) {
		b.send(delivery(i, "x"))
	}
	d := p.get(0)
	if err := d.Accept(s.ctx); err != nil {
		t.Fatal(err)
	}
	b.settle(0, wire.Accept, wire.OK)
	if stale, err := k.Flush(s.ctx); err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
	for i := uint64(1); i < 50; i++ {
		p.get(i)
	}
	b.credit(51)
	b.send(delivery(50, "x"), delivery(51, "x"))
	p.get(50)
	var broke *client.ProtocolError
	p.fails(&broke) // 51 had no credit
}

func TestLimit(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Credit: 100, Limit: 3}, 0, 0)
	b.credit(3)
	b.send(delivery(0, "a"), delivery(1, "b"), delivery(2, "c"))
	n := 0
	for d, err := range k.Deliveries(s.ctx) {
		if err != nil || d.Offset != uint64(n) {
			t.Fatal(d, err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d deliveries", n)
	}
	closed := make(chan bool)
	go func() { k.Close(); close(closed) }()
	b.ended()
	b.close()
	<-closed
}

// Every settle is answered; the refused ones are handed over, once.
func TestSettles(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Credit: 4}, 0, 0)
	b.credit(4)
	b.send(delivery(0, "a"), delivery(1, "b"), delivery(2, "c"))
	p := s.pull(k)
	for _, err := range []error{p.get(0).Accept(s.ctx), p.get(1).Release(s.ctx), p.get(2).Reject(s.ctx)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := k.Flush(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush before the answers: %v", err)
	}
	b.settle(0, wire.Accept, wire.OK)
	b.credit(6)
	b.settle(1, wire.Release, wire.StaleSettle)
	b.settle(2, wire.Reject, wire.OK)
	stale, err := k.Flush(s.ctx)
	if err != nil || len(stale) != 1 || stale[0].Offset != 1 || stale[0].Err.Code != wire.StaleSettle {
		t.Errorf("Flush: %+v, %v", stale, err)
	}
	if stale, err := k.Flush(s.ctx); err != nil || len(stale) > 0 {
		t.Errorf("Flush again: %+v, %v", stale, err)
	}
	b.send(&wire.Settled{Offset: 9, Attempt: 1})
	var broke *client.ProtocolError
	p.fails(&broke)
}

// What was not answered when the connection went is an error of Flush, never silence.
func TestSettlesOnALostConnection(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Credit: 4}, 0, 0)
	b.credit(4)
	b.send(delivery(0, "a"))
	p := s.pull(k)
	d := p.get(0)
	if err := d.Accept(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.conn.Close()
	var lost *client.LostError
	if _, err := k.Flush(s.ctx); !errors.As(err, &lost) {
		t.Errorf("Flush: %v", err)
	}
	p.fails(&lost)
	if err := d.Accept(s.ctx); !errors.As(err, &lost) {
		t.Errorf("Accept: %v", err)
	}
	k.Close()
}

// A subscription that another consumer took says so.
func TestSuperseded(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s"}, 0, 0)
	b.credit(256)
	b.send(delivery(0, "a"), &wire.ErrorFrame{Code: wire.Superseded})
	p := s.pull(k)
	p.get(0)
	var refused *wire.Error
	p.fails(&refused)
	if refused.Code != wire.Superseded {
		t.Error(refused)
	}
}

// deliverLarge sends a DELIVER and its body's stream, which write fills.
func (b *side) deliverLarge(offset uint64, body []byte, digest [16]byte, write func(*quic.SendStream)) {
	b.t.Helper()
	to, err := b.conn.OpenUniStreamSync(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	b.send(&wire.Deliver{
		Offset: offset, Attempt: 1, Term: 6, Digest: digest, Large: true,
		Stream: uint64(to.StreamID()), Length: uint64(len(body)),
	})
	go write(to)
}

func whole(parts ...[]byte) func(*quic.SendStream) {
	return func(to *quic.SendStream) {
		for _, p := range parts {
			if _, err := to.Write(p); err != nil {
				return // the consumer did not want it
			}
		}
		_ = to.Close() // likewise
	}
}

// More large bodies than a connection has streams: read whole, read in part, not read, or not even taken.
func TestLargeDeliveries(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Credit: 100}, 0, 0)
	b.credit(100)
	p := s.pull(k)
	body := pattern(300_000)
	digest := digestOf(body)
	head := wire.Append(nil, &wire.BodyHead{Length: uint64(len(body))})
	var last *client.Delivery
	for i := range uint64(48) {
		b.deliverLarge(i, body, digest, whole(head, body, digest[:]))
		d := p.get(i)
		if last != nil && i%3 != 1 {
			if n, err := last.Body().Read(make([]byte, 10)); !errors.Is(err, client.ErrBodyGone) {
				t.Fatalf("the body before, read too late: %d, %v", n, err)
			}
		}
		switch i % 3 {
		case 0:
			read(t, d, body)
			last = nil
			continue
		case 1:
			if _, err := io.ReadFull(d.Body(), make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		last = d
	}
	b.send(delivery(48, "small"))
	d := p.get(48)
	for i := range uint64(16) { // all that a connection has
		b.deliverLarge(49+i, body, digest, whole(head, body, digest[:]))
	}
	if err := d.Accept(s.ctx); err != nil {
		t.Fatal(err)
	}
	b.settle(48, wire.Accept, wire.OK)
	if _, err := k.Flush(s.ctx); err != nil { // so the deliveries before the answer are here
		t.Fatal(err)
	}
	closed := make(chan bool)
	go func() { k.Close(); close(closed) }()
	for { // credit, then the end
		if _, err := b.in.Next(); err != nil {
			break
		}
	}
	b.close()
	<-closed
	if d, err, ok := p.next(); ok && err == nil {
		t.Errorf("after Close: %+v", d)
	}
	// The connection is as good as new: every place of a body's stream is free.
	k, b = s.consumer(client.ConsumerOptions{Credit: 100}, 0, 0)
	p = s.pull(k)
	for i := range uint64(20) {
		b.deliverLarge(i, body, digest, whole(head, body, digest[:]))
		read(t, p.get(i), body)
	}
}

// A body that is not what its digest says is never given whole.
func TestDamagedBodies(t *testing.T) {
	body := pattern(200_000)
	digest := digestOf(body)
	other := bytes.Clone(body)
	other[123_456] ^= 1
	head := wire.Append(nil, &wire.BodyHead{Length: uint64(len(body))})
	var badDigest *client.DigestError
	var broke *client.ProtocolError
	cases := []struct {
		name  string
		write func(*quic.SendStream)
		want  any
		is    error
	}{
		{"a bit is wrong", whole(head, other, digest[:]), &badDigest, nil},
		{"the digest at its end is wrong", whole(head, body, make([]byte, 16)), &badDigest, nil},
		{"bytes are missing", whole(head, body[:150_000]), nil, io.ErrUnexpectedEOF},
		{"the digest is missing", whole(head, body, digest[:7]), nil, io.ErrUnexpectedEOF},
		{"it goes on", whole(head, body, digest[:], []byte{1}), &broke, nil},
		{"another length", whole(wire.Append(nil, &wire.BodyHead{Length: 1}), body, digest[:]), &broke, nil},
		{"no head", whole(wire.Append(nil, &wire.Credit{Limit: uint64(len(body))}), body, digest[:]), &broke, nil},
		{"reset", func(to *quic.SendStream) { whole(head)(to); to.CancelWrite(1) }, nil, nil},
	}
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Credit: 100}, 0, 0)
	b.credit(100)
	p := s.pull(k)
	for i, c := range cases {
		b.deliverLarge(uint64(i), body, digest, c.write)
		got := make([]byte, len(body))
		n, err := io.ReadFull(p.get(uint64(i)).Body(), got)
		if err == nil || n == len(body) || c.want != nil && !errors.As(err, c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %d of %d bytes, %v", c.name, n, len(body), err)
		}
	}
	small := delivery(100, "hello")
	small.Body = []byte("hallo")
	empty := delivery(101, "")
	empty.Digest[3]++
	b.send(small, empty)
	for i := range uint64(2) {
		if got, err := io.ReadAll(p.get(100 + i).Body()); !errors.As(err, &badDigest) {
			t.Errorf("small: %q, %v", got, err)
		}
	}
	b.close()
}

// A consumer that was closed, here on a lost connection, stays so.
func TestClosedConsumer(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{}, 0, 0)
	b.credit(256)
	b.send(delivery(0, "a"), delivery(1, "b"))
	p := s.pull(k)
	d := p.get(0)
	s.conn.Close()
	k.Close()
	if err := d.Accept(s.ctx); err == nil {
		t.Error("a closed consumer settles")
	}
	if d, err, ok := p.next(); ok && err == nil {
		t.Errorf("a closed consumer gives %+v", d)
	}
}
