package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// spoiling makes a lie of a true history at one place: it changes what stands at i, and says whether it could.
type spoiling struct {
	name, kind string
	spoil      func(h *history, i int) bool
}

// history is what a run recorded, with what spoilings look up in it.
type history struct {
	list []event
	sent map[int]sent
	oks  map[int]answered // the last confirmation of a message
	rng  *rand.Rand
}

func newHistory(list []event, rng *rand.Rand) *history {
	h := &history{list: slices.Clone(list), sent: make(map[int]sent), oks: make(map[int]answered), rng: rng}
	for _, e := range list {
		switch e := e.(type) {
		case sent:
			h.sent[e.Message] = e
		case answered:
			if e.Committed {
				h.oks[e.Message] = e
			}
		}
	}
	return h
}

// look returns the audit at i with a list of messages of its own, if it shows any.
func (h *history) look(i int) (audited, bool) {
	e, ok := h.list[i].(audited)
	e.Messages = slices.Clone(e.Messages)
	return e, ok && len(e.Messages) > 0
}

// put lets the audit show one more message, at a new offset or at its own.
func (h *history) put(i int, e audited, c content, fresh bool) {
	if fresh {
		c.Offset = e.Books.In
		e.Books.In++
	}
	e.Books.Ready++
	e.Messages = append(e.Messages, c)
	slices.SortFunc(e.Messages, func(a, b content) int { return int(a.Offset) - int(b.Offset) })
	h.list[i] = e
}

var spoilings = []spoiling{
	{"a confirmed message is lost", "LOST", func(h *history, i int) bool {
		e, ok := h.look(i)
		if !ok {
			return false
		}
		k := h.rng.IntN(len(e.Messages))
		e.Messages = slices.Delete(e.Messages, k, k+1)
		e.Books.Ready--
		e.Books.Accepted++ // the books are a liar's
		h.list[i] = e
		return true
	}},
	{"a message is doubled", "TWICE", func(h *history, i int) bool {
		e, ok := h.look(i)
		if ok {
			h.put(i, e, e.Messages[h.rng.IntN(len(e.Messages))], true)
		}
		return ok
	}},
	{"a byte is changed", "CHANGED", func(h *history, i int) bool {
		e, ok := h.list[i].(delivered)
		if ok {
			e.Sum ^= 1
			h.list[i] = e
		}
		return ok
	}},
	{"a settled message returns", "BACK", func(h *history, i int) bool {
		e, ok := h.list[i].(settled)
		if !ok || e.Fate != done || h.verb(i, e) == wire.Release {
			return false
		}
		d := h.delivery(i, e)
		d.Attempt += 1000
		h.list = slices.Insert(h.list, i+1, event(d))
		return true
	}},
	{"an attempt does not rise", "ATTEMPT", func(h *history, i int) bool {
		e, ok := h.list[i].(delivered)
		if !ok || e.Attempt < 2 {
			return false
		}
		for k := i - 1; k >= 0; k-- { // where the one before is in the history
			if d, ok := h.list[k].(delivered); ok && d.place == e.place && d.Offset == e.Offset && d.Attempt == e.Attempt-1 {
				e.Attempt--
				h.list[i] = e
				return true
			}
		}
		return false
	}},
	{"a body of another queue", "SHARED", func(h *history, i int) bool {
		e, ok := h.list[i].(delivered)
		if !ok || e.Label == nil {
			return false
		}
		l := *e.Label
		l.UID++
		e.Label = &l
		h.list[i] = e
		return true
	}},
	{"a refused message is stored", "REFUSED BUT STORED", func(h *history, i int) bool {
		e, ok := h.list[i].(answered)
		if !ok || client.Outcome(e.Outcome) != client.OK || !e.Committed || h.sent[e.Message].Again || !h.shown(i, e) {
			return false
		}
		h.list[i] = no(e.Message, wire.Overloaded).at(e.place)
		return true
	}},
	{"evidence is given in other words than it was asked in", "EVIDENCE", func(h *history, i int) bool {
		e, ok := h.list[i].(answered)
		if !ok || !e.Committed || h.sent[e.Message].Want != wire.Stored(wire.Flushed) {
			return false
		}
		e.Evidence = wire.Stored(wire.Written)
		h.list[i] = e
		return true
	}},
	{"a retry makes a second copy", "TWICE", func(h *history, i int) bool {
		e, ok := h.list[i].(answered)
		if !ok || !e.Committed || h.oks[e.Message] != e {
			return false
		}
		s := h.sent[e.Message]
		s.Again = true
		e.Offset += 100_000
		h.list = slices.Insert(h.list, i+1, event(s), event(e))
		return true
	}},
	{"a producer is forgotten", "FORGOTTEN", func(h *history, i int) bool {
		e, ok := h.list[i].(opened)
		if !ok || !h.confirmed(i, e) {
			return false
		}
		e.Next = 1
		h.list[i] = e
		return true
	}},
	{"a queue is lost", "LOST QUEUE", func(h *history, i int) bool {
		e, ok := h.list[i].(looked)
		if !ok || e.Now == nil || e.Now.Deleting || e.Queue == "reborn" || e.Queue == "again" {
			return false
		}
		e.Now = nil
		h.list[i] = e
		return true
	}},
	{"a version falls", "REGISTRY", func(h *history, i int) bool {
		e, ok := h.list[i].(looked)
		if !ok || e.Now == nil || e.Now.Version < 3 {
			return false
		}
		now := *e.Now
		now.Version = 1
		e.Now = &now
		h.list[i] = e
		return true
	}},
	{"a purge leaves everything", "PURGE", func(h *history, i int) bool {
		e, ok := h.look(i)
		if !ok {
			return false
		}
		h.list = slices.Insert(h.list, i, event(purging{e.place, 1 << 30}),
			event(purged{e.place, 1 << 30, done, uint64(len(e.Messages)), 0}))
		return true
	}},
}

func (a answered) at(p place) answered {
	a.place = p
	return a
}

// delivery is the delivery that a settle at i is about.
func (h *history) delivery(i int, e settled) delivered {
	for k := i - 1; k >= 0; k-- {
		if d, ok := h.list[k].(delivered); ok && d.place == e.place && d.Offset == e.Offset && d.Attempt == e.Attempt {
			return d
		}
	}
	panic("bug: kill: a settle of what was not delivered")
}

func (h *history) verb(i int, e settled) wire.Verb {
	for k := i - 1; k >= 0; k-- {
		s, ok := h.list[k].(settling)
		if ok && s.place == e.place && s.Offset == e.Offset && s.Attempt == e.Attempt {
			return s.Verb
		}
	}
	panic("bug: kill: a settle that nobody asked for")
}

// confirmed says that the producer that is opened at i had been confirmed something before.
func (h *history) confirmed(i int, o opened) bool {
	return slices.ContainsFunc(h.list[:i], func(e event) bool {
		a, ok := e.(answered)
		return ok && a.Committed && a.place == o.place && h.sent[a.Message].Producer == o.Producer
	})
}

// shown says that a queue shows the message later.
func (h *history) shown(i int, a answered) bool {
	for _, e := range h.list[i:] {
		if d, ok := e.(delivered); ok && d.place == a.place && d.Offset == a.Offset {
			return true
		}
	}
	return false
}

// spoil tells the checker of a real run's history, in which nothing is wrong, each lie at a few places: it has to see
// every one.
func spoil(t *testing.T, list []event, seed uint64) {
	if _, texts := judge(list); len(texts) > 0 {
		t.Fatalf("the history itself is called wrong: %v", texts)
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	for _, s := range spoilings {
		told, seen := 0, 0
		h := newHistory(list, rng)
		for _, i := range rng.Perm(len(list)) {
			if !s.spoil(h, i) {
				continue
			}
			told++
			kinds, texts := judge(h.list)
			if len(kinds) == 0 {
				t.Errorf("%s, at event %d %s: not seen", s.name, i, line(list[i]))
			}
			if slices.Contains(kinds, s.kind) {
				seen++
			} else {
				t.Logf("%s, at event %d: seen as %.200v", s.name, i, texts)
			}
			if told >= 2 && seen > 0 || told == 10 { // not every place shows it as what it is: a purge may follow
				break
			}
			h = newHistory(list, rng)
		}
		if told == 0 {
			t.Logf("%s: the run has no place for it", s.name)
		} else if seen == 0 {
			t.Errorf("%s: %d times, and never seen as %s", s.name, told, s.kind)
		}
	}
}
