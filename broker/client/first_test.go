package client_test

import (
	"context"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// The leader that the first node sends to has just died, and an election is under way: who opens waits for its end,
// also one whose stream is not replaced later. Nothing was sent that could be done twice.
func TestFirstOpeningOutlivesALeader(t *testing.T) {
	for _, what := range []string{"producer", "consumer"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHall(t, 4)
			h.dial.Addrs = []string{h.nodes[0].addr, h.nodes[1].addr}
			dead := h.nodes[2].to(5)
			h.nodes[2].gone()
			h.nodes[0].says(dead, &wire.ErrorFrame{Code: wire.NoQuorum}, h.nodes[1].to(6))
			h.nodes[1].says(dead, hallOpened)
			var err error
			if what == "producer" {
				_, err = h.client().Producer(h.ctx, "demo", client.ProducerOptions{Want: written})
			} else {
				_, err = h.client().Consumer(h.ctx, "demo", client.ConsumerOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			h.nodes[1].stream()
			h.end()
		})
	}
}

// A node that knows nobody who serves the queue is not the last word: the others are asked, once, before that is it.
func TestFirstOpeningAsksTheOthers(t *testing.T) {
	for _, code := range []wire.Code{wire.NoQuorum, wire.NotReady} {
		h := newHall(t, 4)
		h.dial.Addrs = []string{h.nodes[0].addr, h.nodes[1].addr, h.nodes[2].addr}
		no := &wire.ErrorFrame{Code: code}
		h.nodes[0].says(no)
		h.nodes[1].says(&wire.ErrorFrame{Code: wire.NotReady})
		h.nodes[2].says(no, hallOpened)
		c := h.client()
		_, err := c.Producer(h.ctx, "demo", client.ProducerOptions{Want: written})
		refusedWith(t, err, code) // the first that was asked has the word
		h.asked(1, 1, 1)
		if _, err = c.Producer(h.ctx, "demo", client.ProducerOptions{Want: written}); err != nil {
			t.Error(err)
		}
		h.nodes[2].stream()
		h.end()
	}
}

// Who must not wait says so: by his own time, or by no patience at all.
func TestFirstOpeningEnds(t *testing.T) {
	t.Parallel()
	h := newHall(t, 4)
	dead := h.nodes[2].to(5)
	h.nodes[2].gone()
	h.nodes[0].says(dead)
	c := h.client()
	if _, err := c.Producer(h.ctx, "demo", client.ProducerOptions{Want: written, Patience: -1}); err == nil {
		t.Error("opened")
	}
	h.asked(1)
	ctx, cancel := context.WithTimeout(h.ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := c.Producer(ctx, "demo", client.ProducerOptions{Want: written}); err == nil || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
	h.nodes[0].says(&wire.ErrorFrame{Code: wire.NoLevel})
	_, err := c.Producer(h.ctx, "demo", client.ProducerOptions{Want: written})
	refusedWith(t, err, wire.NoLevel)
}
