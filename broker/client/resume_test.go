package client_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

func stands(delivered, limit uint64) *wire.Opened {
	return &wire.Opened{Offer: flushed, Delivered: delivered, Limit: limit}
}

// a durable consumer goes on from where its subscription stands. What it had and did not settle
// is stale, what it had not even handed over is not handed over, and all of that comes again.
func TestConsumerGoesOn(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s", Credit: 4}, 0, 0)
	b.credit(4)
	b.send(delivery(0, "a"), delivery(1, "b"), delivery(2, "c"))
	p := s.pull(k)
	accepted, open := p.get(0), p.get(1)
	b.credit(6)
	if err := accepted.Accept(s.ctx); err != nil {
		t.Fatal(err)
	}
	b.settle(0, wire.Accept, wire.OK)
	if _, err := k.Flush(s.ctx); err != nil { // so everything has come
		t.Fatal(err)
	}
	s.conn.Close()
	b = s.reopened(stands(3, 6))
	refusedWith(t, open.Accept(s.ctx), wire.StaleSettle)
	again := delivery(1, "b")
	again.Attempt = 2
	b.send(again)
	d := p.get(1)
	if d.Attempt != 2 {
		t.Errorf("attempt %d", d.Attempt)
	}
	read(t, d, []byte("b"))
	b.credit(8) // 4 from what was delivered before and now
	if err := d.Release(s.ctx); err != nil {
		t.Fatal(err)
	}
	f, ok := b.next().(*wire.Settle)
	if !ok || f.Offset != 1 || f.Attempt != 2 || f.Verb != wire.Release {
		t.Errorf("got %+v", f)
	}
	b.send(&wire.Settled{Offset: 1, Attempt: 2})
	if stale, err := k.Flush(s.ctx); err != nil || len(stale) > 0 {
		t.Errorf("Flush: %+v, %v", stale, err)
	}
	b.closes(k)
}

// closes ends a consumer that the broker lets go.
func (b *side) closes(k *client.Consumer) {
	b.t.Helper()
	closed := make(chan bool)
	go func() { k.Close(); close(closed) }()
	b.givenUp()
	b.close()
	<-closed
}

// A settle whose answer was lost may have had its effect: Flush says so, and does not wait for ever.
func TestSettlesLostInBetween(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s", Credit: 4}, 0, 0)
	b.credit(4)
	b.send(delivery(0, "a"), delivery(1, "b"))
	p := s.pull(k)
	for offset := range uint64(2) {
		if err := p.get(offset).Accept(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
	b.settle(0, wire.Accept, wire.OK)
	b.send(delivery(2, "c"))
	p.get(2) // so the answer before it has come
	s.conn.Close()
	stale, err := k.Flush(s.ctx)
	if err != nil || len(stale) != 1 || stale[0].Offset != 1 || stale[0].Attempt != 1 ||
		stale[0].Err.Code != wire.ConnectionLost {
		t.Errorf("Flush: %+v, %v", stale, err)
	}
	b = s.reopened(stands(3, 4))
	b.send(delivery(7, "c"))
	p.get(7)
	b.send(&wire.Settled{Offset: 1, Attempt: 1}) // of the stream before: not on this one
	var broke *client.ProtocolError
	p.fails(&broke)
}

// The limit counts what was handed over, on all streams together.
func TestLimitOverTwoStreams(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s", Limit: 3}, 100, 0)
	b.credit(103)
	b.send(delivery(0, "a"), delivery(1, "b"), delivery(2, "c"))
	p := s.pull(k)
	p.get(0)
	s.conn.Close()
	b = s.reopened(stands(103, 103))
	b.credit(105)
	b.send(delivery(1, "b"), delivery(2, "c"))
	p.get(1)
	p.get(2)
	if d, err, ok := p.next(); ok {
		t.Errorf("one more: %+v, %v", d, err)
	}
	b.closes(k)
}

// A large body that was not read is gone with its stream; its message comes again.
func TestLargeDeliveryOverTwoStreams(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s"}, 0, 0)
	body := pattern(200_000)
	digest := digestOf(body)
	head := wire.Append(nil, &wire.BodyHead{Length: uint64(len(body))})
	b.credit(256)
	b.deliverLarge(0, body, digest, whole(head))
	p := s.pull(k)
	d := p.get(0)
	s.conn.Close()
	if _, err := io.ReadAll(d.Body()); err == nil {
		t.Error("the body was whole")
	}
	b = s.reopened(stands(1, 256))
	b.deliverLarge(0, body, digest, whole(head, body, digest[:]))
	read(t, p.get(0), body)
	b.closes(k)
}

// Who lost its subscription to another does not take it back, and an ephemeral one has nothing to go on with.
func TestConsumersThatEnd(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s"}, 0, 0)
	b.send(&wire.ErrorFrame{Code: wire.Superseded})
	var refused *wire.Error
	s.pull(k).fails(&refused)
	k.Close()
	b.close()

	k, b = s.consumer(client.ConsumerOptions{}, 0, 0)
	b.send(&wire.ErrorFrame{Code: wire.Stopping})
	s.pull(k).fails(&refused)
	k.Close()
	b.close()

	s = newScript(t) // that one is left
	k, b = s.consumer(client.ConsumerOptions{Subscription: "s", Patience: time.Millisecond}, 0, 0)
	b.credit(256)
	s.gone()
	var lost *client.LostError
	p := s.pull(k)
	if _, err, ok := p.next(); !ok || !errors.As(err, &lost) || !strings.Contains(err.Error(), "could not be made again") {
		t.Errorf("got %v", err)
	}
	k.Close()
}

// Close does not wait for a connection that is gone.
func TestConsumerClosesWhileLost(t *testing.T) {
	s := newScript(t)
	k, b := s.consumer(client.ConsumerOptions{Subscription: "s", Patience: time.Hour}, 0, 0)
	b.credit(256)
	s.gone()
	k.Close()
	if _, err, ok := s.pull(k).next(); !ok || !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
