package queue

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
)

// table drives a State by hand.
type table struct {
	*testing.T
	s    *State
	body Ref
}

func newTable(t *testing.T) *table { return &table{T: t, s: &State{}, body: Ref{Term: 1}} }

func (t *table) do(c Command, want ...Effect) {
	t.Helper()
	got := t.s.Apply(c, nil)
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%+v:\ngot  %+v\nwant %+v", c, got, want)
	}
	// Whatever is reached by hand survives a snapshot.
	s, err := Restore(t.s.Snapshot())
	if err != nil {
		t.Fatalf("after %+v: %v", c, err)
	}
	t.s = s
}

// publish puts the next body in as it is given, with the effects behind its result.
func (t *table) publish(c Command, want Effect, more ...Effect) {
	t.Helper()
	if c.Kind == 0 {
		c.Kind = PublishFrom
	}
	t.body.Seq++
	c.Body = t.body
	if want.Kind == Published {
		want.Term = t.body.Term
	} else {
		more = append([]Effect{{Kind: Freed, Ref: t.body, Count: 1}}, more...)
	}
	t.do(c, append([]Effect{want}, more...)...)
}

func (t *table) register(id string, identity byte, want Effect) {
	t.Helper()
	want.Session = 7
	t.do(Command{Kind: Register, Producer: id, Identity: [32]byte{identity}, Session: 7}, want)
}

func (t *table) retire(id string, identity byte, want Effect) {
	t.Helper()
	want.Session = 7
	t.do(Command{Kind: Retire, Producer: id, Identity: [32]byte{identity}, Session: 7}, want)
}

// attach gives a subscription credit and takes what it is assigned for granted.
func (t *table) attach(id string, session, limit uint64) []Effect {
	return t.s.Apply(Command{Kind: Attach, Subscription: id, Session: session, Limit: limit}, nil)
}

func (t *table) settle(id string, offset, attempt, term uint64, verb Verb) EffectKind {
	return t.s.Apply(Command{
		Kind: Settle, Subscription: id, Session: 1, Offset: offset, Attempt: attempt, Term: term, Verb: verb,
	}, nil)[0].Kind
}

// A producer id belongs to who used it first, as long as it is registered; its slot is never given again (W-31, X-16).
func TestProducerBelongsToItsIdentity(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.register("p", 2, Effect{Kind: Owned})
	q.register("q", 2, Effect{Kind: Registered, Slot: 2, Next: 1, Low: 1})
	q.publish(Command{Slot: 1, Seq: 1}, Effect{Kind: Published})
	q.publish(Command{Slot: 1, Seq: 5}, Effect{Kind: Published, Offset: 1})
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 6, Low: 1})
	q.retire("p", 2, Effect{Kind: Owned})
	q.retire("p", 1, Effect{Kind: RetiredProducer, Slot: 1})
	q.retire("p", 1, Effect{Kind: RetiredProducer})
	q.retire("never", 1, Effect{Kind: RetiredProducer})
	q.publish(Command{Slot: 1, Seq: 6}, Effect{Kind: Refused, Reason: UnknownProducer})
	q.register("p", 2, Effect{Kind: Registered, Slot: 3, Next: 1, Low: 1})
	q.publish(Command{Slot: 3, Seq: 1}, Effect{Kind: Published, Offset: 2})
}

// An unknown slot is refused and never treated as new.
func TestUnknownProducer(t *testing.T) {
	q := newTable(t)
	q.publish(Command{Slot: 0, Seq: 1}, Effect{Kind: Refused, Reason: UnknownProducer})
	q.publish(Command{Slot: 1, Seq: 1}, Effect{Kind: Refused, Reason: UnknownProducer})
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.publish(Command{Slot: 2, Seq: 1}, Effect{Kind: Refused, Reason: UnknownProducer})
}

// A duplicate is answered with the offset and term of the original, whether that is there, under delivery, settled or
// purged, and never is a second copy.
func TestDuplicate(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	again := func(seq, offset uint64) {
		t.Helper()
		q.publish(Command{Slot: 1, Seq: seq, Low: 1}, Effect{Kind: Duplicate, Offset: offset, Term: 1, Low: 1})
	}
	q.publish(Command{Slot: 1, Seq: 1, Low: 1}, Effect{Kind: Published})
	q.publish(Command{Slot: 1, Seq: 2, Low: 1}, Effect{Kind: Published, Offset: 1})
	q.body = Ref{Term: 3}
	again(1, 0) // ready; asked in another term
	q.attach("a", 1, 1)
	again(1, 0) // under delivery
	if got := q.settle("a", 0, 1, 1, Accept); got != Settled {
		t.Fatal(got)
	}
	again(1, 0) // settled
	q.do(Command{Kind: Purge, Session: 1},
		Effect{Kind: Purged, Session: 1, Count: 1}, Effect{Kind: Freed, Ref: Ref{1, 2}, Count: 1})
	again(2, 1) // purged
	q.do(Command{Kind: Configure, MaxMessages: 1, MaxBytes: 1, Closed: true})
	again(2, 1) // also where nothing new would be taken
	if c := q.s.Counts(); c.In != 2 {
		t.Errorf("counts %+v", c)
	}
}

// A refused sequence is a gap, not an outcome: it is filled when it comes again, however late.
func TestRefusedGapIsFilled(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.do(Command{Kind: Configure, MaxMessages: 1})
	q.publish(Command{Slot: 1, Seq: 1, Low: 1}, Effect{Kind: Published})
	full := Effect{Kind: Refused, Reason: Full, Low: 1}
	q.publish(Command{Slot: 1, Seq: 2, Low: 1}, full)
	q.publish(Command{Slot: 1, Seq: 2, Low: 1}, full)
	q.do(Command{Kind: Configure})
	q.publish(Command{Slot: 1, Seq: 3, Low: 2}, Effect{Kind: Published, Offset: 1})
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 4, Low: 2})
	q.publish(Command{Slot: 1, Seq: 2, Low: 2}, Effect{Kind: Published, Offset: 2})
	q.publish(Command{Slot: 1, Seq: 2, Low: 2}, Effect{Kind: Duplicate, Offset: 2, Term: 1, Low: 2})
	q.publish(Command{Slot: 1, Seq: 3, Low: 2}, Effect{Kind: Duplicate, Offset: 1, Term: 1, Low: 2})
}

// What is lower than the producer's low is retired: refused, not remembered, never taken for new. Low never falls.
func TestRetiredSequences(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	for i := range uint64(5) {
		q.publish(Command{Slot: 1, Seq: 1 + i, Low: 1}, Effect{Kind: Published, Offset: i})
	}
	retired := Effect{Kind: Refused, Reason: SeqRetired, Low: 4}
	q.publish(Command{Slot: 1, Seq: 3, Low: 4}, retired)
	q.publish(Command{Slot: 1, Seq: 3, Low: 1}, retired)
	q.publish(Command{Slot: 1, Seq: 0}, retired)
	q.publish(Command{Slot: 1, Seq: 4}, Effect{Kind: Duplicate, Offset: 3, Term: 1, Low: 4})
	// Everything is forgotten: the next sequence is still not an old one.
	q.publish(Command{Slot: 1, Seq: 5, Low: 9}, Effect{Kind: Refused, Reason: SeqRetired, Low: 9})
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 9, Low: 9})
	if p, _ := q.s.producers.get(1); len(p.known) != 0 {
		t.Errorf("%d outcomes below low", len(p.known))
	}
}

// Sequence 0 is none.
func TestSequencesStartAtOne(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.publish(Command{Slot: 1}, Effect{Kind: Refused, Reason: SeqRetired, Low: 1})
}

// The map of a producer is bounded by how far it may be ahead.
func TestSequenceTooFar(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	far := Effect{Kind: Refused, Reason: SeqTooFar, Low: 1}
	q.publish(Command{Slot: 1, Seq: SequencesMax + 1}, far)
	q.publish(Command{Slot: 1, Seq: math.MaxUint64}, far)
	q.publish(Command{Slot: 1, Seq: SequencesMax}, Effect{Kind: Published})
	q.publish(Command{Slot: 1, Seq: SequencesMax + 1, Low: 2}, Effect{Kind: Published, Offset: 1})
	// A producer that ran to the end of numbers harms only itself.
	top := Effect{Kind: Refused, Reason: SeqTooFar, Low: seqMax}
	q.publish(Command{Slot: 1, Seq: math.MaxUint64, Low: math.MaxUint64}, top)
	q.publish(Command{Slot: 1, Seq: seqMax + 1}, top)
	q.publish(Command{Slot: 1, Seq: seqMax}, Effect{Kind: Published, Offset: 2})
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: seqMax + 1, Low: seqMax})
}

// The worst that a producer can do to the map: every second sequence, from the top down.
func TestOutcomesAreBounded(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	for i := range uint64(SequencesMax) {
		seq := SequencesMax - i
		q.body.Seq++
		q.s.Apply(Command{Kind: PublishFrom, Slot: 1, Seq: seq, Low: 1, Body: q.body}, nil)
	}
	p, _ := q.s.producers.get(1)
	if len(p.known) != SequencesMax {
		t.Errorf("%d outcomes, want %d", len(p.known), SequencesMax)
	}
	for i := range uint64(SequencesMax) {
		q.body.Seq++
		e := q.s.Apply(Command{Kind: PublishFrom, Slot: 1, Seq: i + 1, Body: q.body}, nil)
		if e[0].Kind != Duplicate || e[0].Offset != SequencesMax-1-i {
			t.Fatalf("sequence %d: %+v", i+1, e)
		}
	}
}

// In order and alone, a producer's map is one run whatever its length.
func TestOutcomesOfAProducerAloneAreOneRun(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	for i := range uint64(10_000) {
		q.body.Seq++
		low := max(i+2, SequencesMax+1) - SequencesMax
		q.s.Apply(Command{Kind: PublishFrom, Slot: 1, Seq: i + 1, Low: low, Body: q.body}, nil)
	}
	want := []outcomes{{10_000 - SequencesMax + 1, SequencesMax, 10_000 - SequencesMax, 1}}
	if p, _ := q.s.producers.get(1); !slices.Equal(p.known, want) {
		t.Errorf("%+v, want %+v", p.known, want)
	}
}

// A producer that is retired is still named by its messages, whoever takes its id; with the last one it is forgotten.
func TestRetiredProducerIsNamed(t *testing.T) {
	q := newTable(t)
	q.register("p", 1, Effect{Kind: Registered, Slot: 1, Next: 1, Low: 1})
	q.publish(Command{Slot: 1, Seq: 1}, Effect{Kind: Published})
	q.publish(Command{Slot: 1, Seq: 2}, Effect{Kind: Published, Offset: 1})
	q.retire("p", 1, Effect{Kind: RetiredProducer, Slot: 1})
	q.register("p", 2, Effect{Kind: Registered, Slot: 2, Next: 1, Low: 1})
	e := q.attach("a", 1, 1)
	if last := e[len(e)-1]; last.Kind != Assigned || last.Producer != "p" || last.Seq != 1 {
		t.Errorf("assigned %+v", last)
	}
	if m := q.s.View().Peek(1, 1)[0]; m.Producer != "p" || m.Seq != 2 {
		t.Errorf("peeked %+v", m)
	}
	q.do(Command{Kind: Purge}, Effect{Kind: Purged, Count: 1, Left: 1}, Effect{Kind: Freed, Ref: Ref{1, 2}, Count: 1})
	if q.s.producers.len != 2 {
		t.Errorf("%d producers while one is named", q.s.producers.len)
	}
	if got := q.settle("a", 0, 1, 1, Reject); got != Settled {
		t.Error(got)
	}
	if q.s.producers.len != 1 {
		t.Errorf("%d producers after the last message", q.s.producers.len)
	}
}

// Producers are bounded, those that are only names as well; retiring makes room.
func TestProducersAreBounded(t *testing.T) {
	q := newTable(t)
	registered := 0
	register := func(i int) Effect {
		return q.s.Apply(Command{Kind: Register, Producer: fmt.Sprint(i), Session: 7}, nil)[0]
	}
	for i := range ProducersMax {
		if e := register(i); e.Kind != Registered {
			t.Fatalf("producer %d: %+v", i, e)
		}
		registered++
	}
	if e := register(registered); e.Kind != ProducersFull || e.Session != 7 {
		t.Errorf("one too many: %+v", e)
	}
	if e := register(0); e.Kind != Registered || e.Slot != 1 {
		t.Errorf("one that exists: %+v", e)
	}
	q.retire("0", 0, Effect{Kind: RetiredProducer, Slot: 1})
	if e := register(registered); e.Kind != Registered || e.Slot != ProducersMax+1 {
		t.Errorf("after one retired: %+v", e)
	}
	// Retired ones that left messages behind.
	for i := registered + 1; ; i++ {
		q.s.Apply(Command{Kind: Retire, Producer: fmt.Sprint(i - 1)}, nil)
		e := register(i)
		if e.Kind == ProducersFull {
			break
		}
		if i > 3*ProducersMax {
			t.Fatal("retired producers without bound")
		}
		q.body.Seq++
		q.s.Apply(Command{Kind: PublishFrom, Slot: e.Slot, Seq: 1, Body: q.body}, nil)
	}
	if q.s.producers.len != 2*ProducersMax {
		t.Errorf("%d producers", q.s.producers.len)
	}
	q.do(Command{Kind: Purge}, Effect{Kind: Purged, Count: q.s.Counts().In},
		Effect{Kind: Freed, Ref: Ref{1, 1}, Count: q.s.Counts().In})
	if e := register(1 << 20); e.Kind != Registered {
		t.Errorf("after their messages went: %+v", e)
	}
}
