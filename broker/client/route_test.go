package client_test

import (
	"errors"
	"strings"
	"testing"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

// ask is a request that has one answer.
func (h *hall) ask(c *client.Client) error { return c.Unsubscribe(h.ctx, "demo", "s") }

// W-43: two redirects are followed, and what was learned is used the next time.
func TestRedirectsAreFollowed(t *testing.T) {
	h := newHall(t, 4)
	h.nodes[0].says(h.nodes[1].to(0)) // has no replica, and knows one
	h.nodes[1].says(h.nodes[2].to(5))
	h.nodes[2].says(&wire.Done{})
	c := h.client()
	for range 2 {
		if err := h.ask(c); err != nil {
			t.Fatal(err)
		}
	}
	h.asked(1, 1, 2, 0)
	// What is known is of one queue, and the redirects are of "demo".
	if err := c.Retire(h.ctx, "other", "p1"); err == nil {
		t.Error("a redirect of another queue was followed")
	}
	h.asked(2, 1, 2, 0)
}

// W-43: after two redirects there is an end, also in a ring, and the last error says where it led.
func TestThirdRedirectIsTheEnd(t *testing.T) {
	h := newHall(t, 4)
	h.nodes[0].says(h.nodes[1].to(5))
	h.nodes[1].says(h.nodes[2].to(5))
	h.nodes[2].says(h.nodes[0].to(5))
	err := h.ask(h.client())
	refusedWith(t, err, wire.LedElsewhere)
	if !strings.Contains(err.Error(), h.nodes[0].addr) {
		t.Errorf("%v", err)
	}
	h.asked(1, 1, 1, 0)
}

// W-43: what is said of an older term than is known leads nowhere.
func TestOlderTermIsDiscarded(t *testing.T) {
	h := newHall(t, 4)
	h.nodes[0].says(h.nodes[1].to(6))
	h.nodes[1].says(&wire.Done{}, h.nodes[2].to(5), h.nodes[2].to(6), &wire.Done{})
	h.nodes[2].says(&wire.Done{})
	c := h.client()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, h.ask(c), wire.LedElsewhere)
	h.asked(1, 2, 0, 0)
	if err := h.ask(c); err != nil { // of the same term: somebody may have been mistaken about the address
		t.Fatal(err)
	}
	h.asked(1, 3, 1, 0)
}

// W-44: a redirect to a key that is not trusted fails without a try, and so does one to a node that proves another key.
func TestUntrustedRedirect(t *testing.T) {
	h := newHall(t, 4)
	stranger := h.nodes[3]
	stranger.says(&wire.Done{})
	h.nodes[0].says(stranger.to(5))
	c := h.client()
	refusedWith(t, h.ask(c), wire.Untrusted)
	h.asked(1, 0, 0, 0)
	if stranger.contacted() {
		t.Error("the stranger was contacted")
	}
	swapped := h.nodes[1].to(5) // the address of the stranger, with a trusted key
	swapped.Host, swapped.Port = stranger.to(5).Host, stranger.to(5).Port
	h.nodes[0].says(swapped)
	var untrusted *endpoint.UntrustedError
	if err := h.ask(c); !errors.As(err, &untrusted) || untrusted.Peer != stranger.id.Fingerprint() {
		t.Errorf("%v", err)
	}
	other := h.nodes[2].to(5) // the address of one trusted node, with the key of another
	other.Node = [32]byte(h.nodes[1].id.Fingerprint())
	h.nodes[0].says(other)
	h.nodes[2].says(&wire.Done{})
	if err := h.ask(c); !errors.As(err, &untrusted) {
		t.Errorf("%v", err)
	}
	h.asked(3, 0, 0, 0)
}

// A leader that is gone is forgotten, its term is not: the node at hand is asked again.
func TestLeaderIsGone(t *testing.T) {
	h := newHall(t, 4)
	h.nodes[0].says(h.nodes[1].to(5), h.nodes[1].to(4), h.nodes[2].to(6))
	h.nodes[1].says(&wire.Done{})
	h.nodes[2].says(&wire.Done{})
	c := h.client()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	h.nodes[1].gone()
	refusedWith(t, h.ask(c), wire.LedElsewhere) // of an older term
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	h.asked(3, 1, 1, 0)
}

// W-40: a client that knows one node only says so, and is not led away.
func TestSingle(t *testing.T) {
	h := newHall(t, 3)
	h.dial.Single = true
	h.nodes[0].says(&wire.Done{}, h.nodes[1].to(5))
	c := h.client()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, h.ask(c), wire.LedElsewhere)
	h.asked(6, 0, 0) // twice for the second, and each with what goes before it
	if _, ok := h.nodes[0].asked[0].(*wire.Single); !ok {
		t.Errorf("the stream starts with %+v", h.nodes[0].asked[0])
	}
}

// A request that meets the end of a leadership is made once more, if that is safe.
func TestAskedOnceMoreAfterALeadership(t *testing.T) {
	h := newHall(t, 2)
	changed := &wire.ErrorFrame{Code: wire.LeaderChanged}
	h.nodes[0].says(changed, &wire.Done{}, changed, changed, changed, &wire.Purged{})
	c := h.client()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, h.ask(c), wire.LeaderChanged)
	_, err := c.Purge(h.ctx, "demo") // could take what came since
	refusedWith(t, err, wire.LeaderChanged)
	h.asked(5)
}

var hallOpened = &wire.Opened{
	Offer: wire.Replicated(3, wire.Flushed), MessageMax: 1 << 20, InFlight: 100, InFlightSize: 1 << 20, Low: 1, Next: 1,
}

// When the leadership moves under a producer with an id, what has no answer goes to the new leader, under the same
// sequences, in order; without an id it is indeterminate, and says why.
func TestLeadershipMovesUnderAProducer(t *testing.T) {
	for _, id := range []string{"p1", ""} {
		h := newHall(t, 3)
		h.nodes[0].says(hallOpened)
		h.nodes[1].says(knows(1, 4))
		p, err := h.client().Producer(h.ctx, "demo", client.ProducerOptions{
			Want: wire.Replicated(2, wire.Flushed), ID: id, Patience: patience,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := (&script{t: t, ctx: h.ctx}).results()
		send := func(body string) {
			if err := p.Send(h.ctx, message(body), r.done); err != nil {
				t.Fatal(err)
			}
		}
		b := h.nodes[0].stream()
		send("a")
		send("b")
		send("c")
		for seq := range uint64(3) {
			b.publish(seq + 1)
		}
		b.send(&wire.EvidenceFrame{First: 2, Count: 1, Evidence: wire.Replicated(2, wire.Flushed), Offset: 1, Term: 5})
		r.next(2, client.OK)
		b.send(h.nodes[1].to(6))
		if id == "" {
			for _, seq := range []uint64{1, 3} {
				if res := r.next(seq, client.Indeterminate); res.Err.Code != wire.LeaderChanged {
					t.Errorf("%+v", res)
				}
			}
			continue
		}
		b = h.nodes[1].stream()
		b.publishLow(1, 1)
		b.publishLow(3, 1)
		b.send(
			&wire.EvidenceFrame{First: 1, Count: 1, Evidence: wire.Replicated(3, wire.Flushed), Term: 5},
			&wire.EvidenceFrame{First: 3, Count: 1, Evidence: wire.Replicated(2, wire.Flushed), Offset: 2, Term: 6})
		r.next(1, client.OK)
		r.next(3, client.OK)
		h.asked(1, 1, 0)
	}
}

// A leader that dies: the nodes that are left are asked until one of them leads. What they say meanwhile passes.
func TestLeaderDiesUnderAProducer(t *testing.T) {
	h := newHall(t, 4)
	h.dial.Addrs = []string{h.nodes[0].addr, h.nodes[1].addr, h.nodes[2].addr}
	quorum := &wire.ErrorFrame{Code: wire.NoQuorum}
	h.nodes[0].says(hallOpened)
	h.nodes[1].says(quorum, &wire.ErrorFrame{Code: wire.LeaderChanged}, h.nodes[0].to(5), h.nodes[2].to(6))
	h.nodes[2].says(quorum, h.nodes[1].to(0), hallOpened)
	p, err := h.client().Producer(h.ctx, "demo", client.ProducerOptions{Want: written, ID: "p1", Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	r := (&script{t: t, ctx: h.ctx}).results()
	b := h.nodes[0].stream()
	if err := p.Send(h.ctx, message("a"), r.done); err != nil {
		t.Fatal(err)
	}
	b.publish(1)
	h.nodes[0].gone()
	b = h.nodes[2].stream()
	b.publish(1)
	b.send(&wire.EvidenceFrame{First: 1, Count: 1, Evidence: written, Term: 6})
	r.next(1, client.OK)
}

// a consumer goes on with its subscription at the new leader; one without ends, and is told where the queue is.
func TestLeadershipMovesUnderAConsumer(t *testing.T) {
	for _, sub := range []string{"s", ""} {
		h := newHall(t, 3)
		h.nodes[0].says(&wire.Opened{Offer: flushed, Limit: 0})
		h.nodes[1].says(&wire.Opened{Offer: flushed, Delivered: 2, Limit: 256})
		k, err := h.client().Consumer(h.ctx, "demo", client.ConsumerOptions{Subscription: sub})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		defer h.end() // else the consumer waits for the model to end its stream
		b := h.nodes[0].stream()
		if f, ok := b.next().(*wire.Credit); !ok || f.Limit != 256 {
			t.Fatalf("%+v", f)
		}
		b.send(delivery(0, "a"), h.nodes[1].to(6))
		if sub == "" {
			for d, err := range k.Deliveries(h.ctx) {
				if err != nil {
					refusedWith(t, err, wire.LedElsewhere)
				} else if d.Offset != 0 {
					t.Errorf("%+v", d)
				}
			}
			continue
		}
		b = h.nodes[1].stream()
		again := delivery(0, "a")
		again.Attempt = 2
		b.send(again)
		for d, err := range k.Deliveries(h.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Attempt == 2 {
				break
			}
		}
		h.asked(1, 1, 0)
	}
}

// A stream that ends with a redirect to a stranger is the producer's end: there is no second try (W-44).
func TestUntrustedRedirectUnderAProducer(t *testing.T) {
	h := newHall(t, 3)
	h.nodes[0].says(hallOpened)
	p, err := h.client().Producer(h.ctx, "demo", client.ProducerOptions{Want: written, ID: "p1", Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	r := (&script{t: t, ctx: h.ctx}).results()
	if err := p.Send(h.ctx, message("a"), r.done); err != nil {
		t.Fatal(err)
	}
	b := h.nodes[0].stream()
	b.publish(1)
	b.send(h.nodes[2].to(6))
	r.next(1, client.Indeterminate)
	refusedWith(t, p.Close(h.ctx), wire.Untrusted)
	h.asked(1, 0, 0)
	if h.nodes[2].contacted() {
		t.Error("the stranger was contacted")
	}
}
