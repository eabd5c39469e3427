package main

import (
	"strings"
	"testing"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/segment"
)

// told is a history that is told to the checkers by hand.
type told struct {
	*cluster
	g *group
	d *desk
	c *consumer
}

func newTold() *told {
	c := newCluster(options{seed: 1, nodes: 3})
	g := c.addGroup(0, 3)
	d := newDesk(c.nodes[0], g, g.replicas[1])
	return &told{cluster: c, g: g, d: d, c: newConsumer(c, g, "s")}
}

// made is the nth message of a producer, sent once.
func (h *told) made(n uint64) *message {
	m := newMessage(h.g.id, "p", n, 50)
	h.check.made(m)
	h.check.sent(m)
	return m
}

// entry applies an entry with one message at an offset.
func (h *told) entry(i raftstore.Index, m *message, offset uint64) {
	it := raftstore.Item{
		Command: []byte(m.key()), HasBody: true, Body: segment.Commit{Digest: segment.DigestOf(m.body)},
	}
	h.check.applied(h.d, 1, i, []raftstore.Item{it})
	h.check.effects(h.d, i, &queue.Command{}, &it, []queue.Effect{{Kind: queue.Published, Offset: offset, Term: 1}})
	h.d.last = i
}

func (h *told) acked(i raftstore.Index, m *message, offset uint64) {
	r := result{
		kind: done, effect: queue.Effect{Kind: queue.Published, Offset: offset, Term: 1},
		proof: evidence{n: 2, flushed: true, index: i, term: 1},
	}
	h.check.acked(h.g, m, onTwo, r, 1)
}

func (h *told) assigned(i raftstore.Index, offset, attempt uint64) {
	h.check.applied(h.d, 1, i, nil)
	e := []queue.Effect{{Kind: queue.Assigned, Offset: offset, Attempt: attempt}}
	h.check.effects(h.d, i, &queue.Command{}, &raftstore.Item{}, e)
	h.d.last = i
}

func (h *told) delivered(m *message, body []byte, offset, attempt uint64) {
	e := queue.Effect{Kind: queue.Assigned, Session: 1, Offset: offset, Attempt: attempt, Producer: "p", Seq: m.seq}
	h.check.delivered(h.d, h.c, e, body)
}

func (h *told) settledBy(i raftstore.Index, offset, attempt uint64) {
	e := queue.Effect{Offset: offset, Attempt: attempt}
	h.check.settledWith(h.g, h.c, e, queue.Accept, result{
		kind: done, effect: queue.Effect{Kind: queue.Settled}, proof: evidence{index: i, term: 1},
	})
}

// Each rule is broken once, and told of; a sound history is not.
func TestChecker(t *testing.T) {
	for _, x := range []struct {
		rule  string // "": none
		story func(h *told, a, b *message)
	}{
		{"", func(h *told, a, b *message) {
			h.entry(1, a, 0)
			h.acked(1, a, 0)
			h.entry(2, b, 1)
			h.acked(2, b, 1)
			h.assigned(3, 0, 1)
			h.delivered(a, a.body, 0, 1)
			h.settledBy(4, 0, 1)
		}},
		{"Q1", func(h *told, a, _ *message) { h.entry(1, newMessage(1, "q", 1, 10), 0); h.entry(2, a, 1) }},
		{"Q1", func(h *told, a, _ *message) {
			h.entry(1, a, 0)
			body := append([]byte(nil), a.body...)
			body[len(body)-1] ^= 1
			h.delivered(a, body, 0, 1)
		}},
		{"Q2", func(h *told, a, _ *message) { h.acked(1, a, 0) }},
		{"Q3", func(h *told, a, b *message) { h.entry(1, a, 0); h.entry(2, b, 0) }},
		{"Q3", func(h *told, a, b *message) { h.entry(1, a, 0); h.entry(2, b, 1); h.acked(1, a, 1) }},
		{"Q3", func(h *told, a, b *message) { h.entry(1, a, 0); h.delivered(b, b.body, 0, 1) }},
		{"Q4", func(h *told, a, b *message) { h.entry(1, a, 0); h.d.last = 0; h.entry(1, b, 0) }},
		{"Q4", func(h *told, a, b *message) { h.entry(1, a, 0); h.entry(3, b, 1) }},
		{"Q5", func(h *told, a, b *message) {
			h.entry(1, b, 0)
			h.entry(2, a, 1)
			h.acked(1, b, 0)
			h.acked(2, a, 1)
		}},
		{"Q5b", func(h *told, a, b *message) {
			h.entry(1, a, 0)
			h.entry(2, b, 1)
			h.delivered(b, b.body, 1, 1)
			h.delivered(a, a.body, 0, 1)
		}},
		{"Q6", func(h *told, a, _ *message) { h.entry(1, a, 0); h.entry(2, a, 1) }},
		{"Q6c", func(h *told, a, _ *message) { h.entry(1, a, 0); h.assigned(2, 0, 1); h.assigned(3, 0, 3) }},
		{"Q7", func(h *told, a, _ *message) {
			h.entry(1, a, 0)
			h.settledBy(2, 0, 1)
			h.delivered(a, a.body, 0, 2)
		}},
		{"Q8", func(h *told, _, _ *message) {
			h.check.moved(h.d, &raftstore.Marks{Held: [raftstore.MaxVoters]raftstore.Index{1}})
		}},
		{"Q8", func(h *told, a, _ *message) {
			h.entry(1, a, 0)
			h.oracle.prove(h.d, evidence{n: 1, flushed: true, index: 1, term: 1})
		}},
		{"Q9", func(h *told, a, _ *message) { h.check.refused(a); h.entry(1, a, 0) }},
		{"L1", func(h *told, _, _ *message) {
			h.check.leads(h.d, 5)
			h.check.leads(newDesk(h.nodes[1], h.g, 12), 5)
		}},
	} {
		h := newTold()
		x.story(h, h.made(1), h.made(2))
		h.check.books(h.g, h.check.ledger(1))
		got := ""
		if len(h.problems) > 0 {
			got, _, _ = strings.Cut(h.problems[0], " ")
		}
		if got != x.rule {
			t.Errorf("rule %q is broken, and what is told is %q", x.rule, h.problems)
		}
	}
}
