package main

import (
	"fmt"
	"strings"
	"testing"
)

// history is a queue of three messages of one publisher: confirmed, without an answer, refused; then the marker.
func history(t *testing.T) (m *model, body func(int) digest) {
	t.Helper()
	m = newModel()
	text := func(i int) []byte { return fmt.Appendf(nil, "message %d", i) }
	msgs := make([]*message, 4)
	for i := range msgs {
		msgs[i] = m.send(1, text(i))
	}
	if err := m.confirm(msgs[0], 0, 1, false); err != nil {
		t.Fatal(err)
	}
	if err := m.confirm(msgs[1], 1, 1, true); err != nil {
		t.Fatal(err)
	}
	m.refuse(msgs[3])
	return m, func(i int) digest { return digestOf(text(i)) }
}

// TestModel shows the checker each contradiction, and what is none.
func TestModel(t *testing.T) {
	m, body := history(t)
	other := digestOf([]byte("nobody sent this"))
	for _, c := range []struct {
		name string
		got  []delivery
		end  uint64
		want string
	}{
		{"all", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, body(2)}}, 3, ""},
		{"without the one that has no answer", []delivery{{0, 1, body(0)}, {1, 1, body(1)}}, 2, ""},
		{"first lost", []delivery{{1, 1, body(1)}}, 2, "LOST"},
		{"last lost", []delivery{{0, 1, body(0)}}, 1, "LOST"},
		{"last lost, offset taken again", []delivery{{0, 1, body(0)}, {1, 1, body(2)}}, 2, "CHANGED"},
		{"other bytes", []delivery{{0, 1, other}}, 1, "CHANGED"},
		{"invented", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, other}}, 3, "INVENTED"},
		{"refused", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, body(3)}}, 3, "REFUSED BUT STORED"},
		{"twice", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, body(1)}}, 3, "MOVED"},
		{"twice, no answer", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, body(2)}, {3, 1, body(2)}}, 4, "TWICE"},
		{"out of order", []delivery{{1, 1, body(1)}, {0, 1, body(0)}}, 2, "LOST"},
		{"again", []delivery{{0, 1, body(0)}, {0, 1, body(0)}}, 2, "delivered after"},
		{"hole", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {3, 1, body(2)}}, 4, "dense"},
		{"beyond the end", []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, body(2)}}, 2, "newest"},
		{"another term", []delivery{{0, 2, body(0)}}, 1, "term"},
	} {
		m, _ = history(t)
		wants(t, c.name, m.check(c.got, c.end), c.want)
	}

	wants(t, "confirmed twice", m.confirm(m.send(2, []byte("x")), 1, 1, false), "was confirmed for")
	m, _ = history(t)
	wants(t, "interrupted", m.interrupted([]delivery{{0, 1, body(0)}}), "")
	wants(t, "may be gone", m.check([]delivery{{1, 1, body(1)}}, 2), "")
	wants(t, "what may be gone is no gap", m.order(), "")
	wants(t, "interrupted, other bytes", m.interrupted([]delivery{{1, 1, other}}), "CHANGED")
	m.settled(2)
	wants(t, "settled", m.check(nil, 2), "")
	wants(t, "settled and back", m.check([]delivery{{1, 1, body(1)}}, 2), "delivered after")
	wants(t, "offset given out again", m.confirm(m.send(2, []byte("y")), 1, 1, false), "that was settled")
}

func TestOrder(t *testing.T) {
	m, body := history(t)
	ok := []delivery{{0, 1, body(0)}, {1, 1, body(1)}, {2, 1, body(2)}}
	if err := m.check(ok, 3); err != nil {
		t.Fatal(err)
	}
	wants(t, "whole", m.order(), "")

	m = newModel()
	a, b := []byte("a"), []byte("b")
	m.send(1, a)
	m.send(1, b)
	if err := m.check([]delivery{{0, 1, digestOf(b)}}, 1); err != nil {
		t.Fatal(err)
	}
	wants(t, "gap", m.order(), "GAP")
	if err := m.check([]delivery{{0, 1, digestOf(b)}, {1, 1, digestOf(a)}}, 2); err != nil {
		t.Fatal(err)
	}
	wants(t, "swapped", m.order(), "ORDER")
}

func wants(t *testing.T, name string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}
