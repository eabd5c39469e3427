package history

import (
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"

	"github.com/anishathalye/porcupine"
)

// This file asks porcupine whether one order of everything that was done to a queue explains all results (rule Linear).
// That is exponential, and for small histories only.

// opKind is what one operation on a queue is.
type opKind uint8

const (
	opMake opKind = iota
	opDelete
	opPublish
	opDeliver
	opSettle
)

// op is one of them, with its result.
type op struct {
	kind    opKind
	m       *message
	fate    Fate // Done, or Unknown: it may have happened, at any time from then on
	offset  uint64
	term    uint64
	attempt uint64
	verb    Verb
}

func (o op) String() string {
	switch o.kind {
	case opMake:
		return "make"
	case opDelete:
		return "delete " + string(o.fate)
	case opPublish:
		return fmt.Sprintf("publish %v: %s at %d", o.m, o.fate, o.offset)
	case opDeliver:
		return fmt.Sprintf("deliver %d/%d", o.offset, o.attempt)
	case opSettle:
		return fmt.Sprintf("%s %d/%d: %s", o.verb, o.offset, o.attempt, o.fate)
	}
	return "?"
}

// record keeps an operation that a call made and that ends now, as long as there are few.
func (p *pending) record(c *Checker, q *queue, o op) { c.record(q, p.t, o) }

func (c *Checker) record(q *queue, began Time, o op) {
	if q.tooMany || c.o.LinearMax < 0 {
		return
	}
	if len(q.ops) == c.o.LinearMax {
		q.tooMany, q.ops = true, nil
		return
	}
	x := porcupine.Operation{Input: o, Output: o, Call: int64(began), Return: int64(never)}
	if o.fate == Done {
		x.Return = int64(c.line.T)
	}
	q.ops = append(q.ops, x)
}

// linearize asks rule Linear of every queue that is small enough.
func (c *Checker) linearize() {
	many := 0
	for _, q := range c.sorted() {
		switch {
		case q.tooMany:
			many++
			continue
		case len(q.ops) == 0 || c.mayRewind(q, 0) || q.emptied > 0 || len(q.purges) > 0:
			continue // what was forgotten or purged is no operation of the model
		}
		for i := range q.ops {
			q.ops[i].ClientId = i // each may be beside all others
		}
		model := linearModel(q)
		result, info := porcupine.CheckOperationsVerbose(model, q.ops, c.o.LinearTime)
		switch result {
		case porcupine.Unknown:
			c.unjudged("rule %s, queue %s (uid %d): not decided within %v", Linear, q.Name, q.UID, c.o.LinearTime)
		case porcupine.Illegal:
			c.judged(Linear)
			c.breach(Linear, []mark{q.tried}, "queue %s (uid %d): no order explains the results of its %d operations%s",
				q.Name, q.UID, len(q.ops), c.picture(q, model, info))
		default:
			c.judged(Linear)
		}
	}
	if many > 0 {
		c.unjudged("rule %s of %d queues with more than %d operations", Linear, many, c.o.LinearMax)
	}
}

// picture draws a history that has no order.
func (c *Checker) picture(q *queue, model porcupine.Model, info porcupine.LinearizationInfo) string {
	if c.o.Pictures == "" {
		return ""
	}
	path := filepath.Join(c.o.Pictures, fmt.Sprintf("linear-%d.html", q.UID))
	f, err := os.Create(path)
	if err == nil {
		err = porcupine.Visualize(model, info, f)
	}
	if err != nil {
		return fmt.Sprintf("; there is no picture of it: %v", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Sprintf("; there is no picture of it: %v", err)
	}
	return "; see " + path
}

// linearState is a queue between two operations. It is never changed.
type linearState struct {
	made, closed bool
	cursor       uint64 // offsets below were delivered first
	list         []linearMessage
}

type linearMessage struct {
	m       *message
	term    uint64
	attempt uint64
	out     bool
}

func linearModel(q *queue) porcupine.Model {
	first := linearState{
		made: !slices.ContainsFunc(q.ops, func(o porcupine.Operation) bool { return o.Input.(op).kind == opMake }),
	}
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{first} },
		Step: func(state, input, _ any) (next []any) {
			s, o := state.(linearState), input.(op)
			if o.fate == Unknown {
				next = append(next, s)
			}
			if after, ok := s.step(o); ok {
				next = append(next, after)
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(linearState).equal(b.(linearState)) },
		Hash: func(state any) uint64 {
			s := state.(linearState)
			return maphash.Comparable(seed, [2]uint64{s.cursor, uint64(len(s.list))})
		},
		DescribeOperation: func(input, _ any) string { return input.(op).String() },
		DescribeState: func(state any) string {
			s := state.(linearState)
			return fmt.Sprintf("made %v closed %v, %d messages, cursor %d", s.made, s.closed, len(s.list), s.cursor)
		},
	}
	return m.ToModel()
}

func (s linearState) equal(t linearState) bool {
	return s.made == t.made && s.closed == t.closed && s.cursor == t.cursor && slices.Equal(s.list, t.list)
}

// step does one operation, if it may have this result here.
func (s linearState) step(o op) (linearState, bool) {
	switch o.kind {
	case opMake:
		s.made = true
		return s, !s.closed
	case opDelete:
		ok := s.made && !s.closed
		s.closed = true
		return s, ok
	case opPublish:
		return s.publish(o)
	case opDeliver, opSettle:
		return s.consume(o)
	}
	return s, false
}

func (s linearState) publish(o op) (linearState, bool) {
	at := uint64(len(s.list))
	if o.m.Producer != "" {
		if i := slices.IndexFunc(s.list, func(x linearMessage) bool { return x.m == o.m }); i >= 0 {
			return s, o.fate == Unknown || o.offset == uint64(i)
		}
	}
	if !s.made || s.closed || o.fate == Done && o.offset != at {
		return s, false
	}
	s.list = append(slices.Clip(s.list), linearMessage{m: o.m, term: o.term})
	return s, true
}

func (s linearState) consume(o op) (linearState, bool) {
	if o.offset >= uint64(len(s.list)) {
		return s, false
	}
	x := s.list[o.offset]
	s.list = slices.Clone(s.list)
	switch {
	case x.out || x.m != o.m:
		return s, false
	case o.kind == opSettle:
		s.list[o.offset].out = o.verb != Release
		return s, x.attempt == o.attempt
	case o.attempt == 1 && o.offset < s.cursor || x.attempt >= o.attempt:
		return s, false
	}
	if o.attempt == 1 {
		s.cursor = o.offset + 1
	}
	s.list[o.offset].attempt = o.attempt
	return s, true
}
