package history

import (
	"slices"

	"pgregory.net/rapid"
)

// This file is how mutations change the lines of a world.

// pick draws an event of one type for which so holds, nil for any, and returns its place; -1 if there is none.
func pick[E any](w *world, so func(*E) bool) (int, *E) {
	var list []int
	for i := range w.lines {
		if e, ok := any(w.lines[i].Event).(*E); ok && (so == nil || so(e)) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return -1, nil
	}
	i := rapid.SampledFrom(list).Draw(w.rt, "place")
	e, _ := any(w.lines[i].Event).(*E)
	return i, e
}

// insert puts an event before a line, as one of the client whose line that is.
func (w *world) insert(at int, e Event) {
	l := Line{T: w.lines[min(at, len(w.lines)-1)].T, Client: "c", Event: e}
	if _, settles := e.(*Settle); settles {
		l.Client = "k"
	}
	if _, settled := e.(*Settled); settled {
		l.Client = "k"
	}
	w.lines = slices.Insert(w.lines, at, l)
}

// asked is the settle of a reference.
func (w *world) asked(ref uint64) *Settle {
	for _, l := range w.lines {
		if s, ok := l.Event.(*Settle); ok && s.Ref == ref {
			return s
		}
	}
	return nil
}

// sendings counts how often a message was sent.
func (w *world) sendings(s *Stored) (n int) {
	for _, l := range w.lines {
		if p, ok := l.Event.(*Publish); ok && p.Message == s.Message {
			n++
		}
	}
	return n
}

// erase takes everything out that was seen or done of an offset, but for the answer to its publisher.
func (w *world) erase(offset uint64) {
	refs := make(map[uint64]bool)
	w.rewrite(func(e Event) Event {
		switch e := e.(type) {
		case *Deliver:
			if e.Offset == offset {
				return nil
			}
		case *Settle:
			if e.Offset == offset {
				refs[e.Ref] = true
				return nil
			}
		case *Settled:
			if refs[e.Ref] {
				return nil
			}
		}
		return e
	}, func(s *Stored) bool { return s.Offset != offset })
}

// renumber gives messages other offsets, everywhere.
func (w *world) renumber(to map[uint64]uint64) {
	move := func(at *uint64) {
		if n, ok := to[*at]; ok {
			*at = n
		}
	}
	w.rewrite(func(e Event) Event {
		switch e := e.(type) {
		case *Answer:
			c := *e
			move(&c.Offset)
			return &c
		case *Deliver:
			c := *e
			move(&c.Offset)
			return &c
		case *Settle:
			c := *e
			move(&c.Offset)
			return &c
		}
		return e
	}, func(s *Stored) bool { move(&s.Offset); return true })
}

// rewrite changes every event, and every message in an audit or a dump; nil or false take it out.
func (w *world) rewrite(change func(Event) Event, message func(*Stored) bool) {
	list := func(in []Stored) (out []Stored) {
		for _, s := range in {
			if message(&s) {
				out = append(out, s)
			}
		}
		slices.SortFunc(out, func(a, b Stored) int { return int(a.Offset) - int(b.Offset) })
		return out
	}
	var kept []Line
	for _, l := range w.lines {
		switch e := l.Event.(type) {
		case *Audit:
			c := *e
			c.Messages = list(e.Messages)
			l.Event = &c
		case *Entry:
			c := *e
			c.Adds = list(e.Adds)
			l.Event = &c
		default:
			l.Event = change(e)
		}
		if l.Event != nil {
			kept = append(kept, l)
		}
	}
	w.lines = kept
}
