package main

import (
	"slices"
	"strings"
	"testing"

	"weida/broker/wire"
	"weida/fuzz/internal/label"
)

var (
	here     = place{"q", 2}
	flushed  = spec{Durability: "flushed"}
	tight    = spec{Durability: "flushed", Messages: 2, MessageBytes: 500}
	flushedE = wire.Stored(wire.Flushed)
	writtenE = wire.Stored(wire.Written)
)

func stands(uid, generation, version, observed uint64, s spec) *resource {
	return &resource{UID: uid, Generation: generation, Version: version, Observed: observed, Spec: s, Phase: "Ready"}
}

// made is the beginning of every story: queue q, uid 2, is made and ready.
func made() []event {
	return []event{
		started{1},
		mutating{Op: 1, Queue: "q", Verb: "apply", Spec: flushed},
		mutated{Op: 1, Queue: "q", Fate: done, Now: stands(2, 1, 2, 0, flushed)},
		looked{Queue: "q", Now: stands(2, 1, 3, 1, flushed)},
	}
}

// send is a message of p (or of stream 1, if that is ""), whose hash is its number.
func send(n int, producer string, seq uint64) sent {
	s := sent{place: here, Message: n, Producer: producer, Seq: seq, Length: 300, Sum: uint64(n), Want: writtenE}
	if producer == "" {
		s.Stream, s.Strict = 1, true
	}
	return s
}

func ok(n int, offset uint64) answered {
	return answered{place: here, Message: n, Outcome: "ok", Evidence: writtenE, Committed: true, Offset: offset, Term: 7}
}

func lost(n int) answered {
	return answered{place: here, Message: n, Outcome: "indeterminate", Code: wire.ConnectionLost}
}

func no(n int, code wire.Code) answered {
	return answered{place: here, Message: n, Outcome: "refused", Code: code}
}

// body is message n as a queue shows it.
func body(n int, producer string, seq, offset, attempt uint64) content {
	who := producer
	if who == "" {
		who = "-"
	}
	return content{
		Offset: offset, Attempt: attempt, Term: 7, Producer: producer, Seq: seq, Length: 300, Sum: uint64(n),
		Label: &label.Label{Queue: "q", UID: 2, Producer: who, Seq: seq, Message: n, Length: 300},
	}
}

func got(n int, offset, attempt uint64) delivered {
	return delivered{here, body(n, "", 0, offset, attempt)}
}

// settle is a settle from beginning to end.
func settle(offset, attempt uint64, v wire.Verb, f fate) []event {
	return []event{
		settling{here, offset, attempt, v},
		settled{place: here, Offset: offset, Attempt: attempt, Fate: f, Owner: true},
	}
}

// shown is a quiet look.
func shown(b books, list ...content) audited { return audited{place: here, Messages: list, Books: b} }

// tale strings events and lists of events together, behind the queue's making.
func tale(parts ...any) []event {
	list := made()
	for _, p := range parts {
		if more, ok := p.([]event); ok {
			list = append(list, more...)
		} else {
			list = append(list, p)
		}
	}
	return list
}

// judge tells a fresh model a history and returns the kinds of its violations.
func judge(list []event) (kinds, texts []string) {
	m := newModel()
	for _, e := range list {
		m.apply(e)
	}
	for i := range m.wrong {
		kinds = append(kinds, m.wrong[i].kind)
		texts = append(texts, m.wrong[i].Error())
	}
	return kinds, texts
}

// want fails unless the history's first violation is of that kind; "" is none.
func want(t *testing.T, name, kind string, list []event) {
	t.Helper()
	kinds, texts := judge(list)
	if kind == "" && len(kinds) > 0 || kind != "" && !slices.Contains(kinds, kind) {
		t.Errorf("%s: found %v, want %q\n%s", name, kinds, kind, strings.Join(texts, "\n"))
	}
}

// three are messages 1 to 3 of one stream: confirmed, confirmed, without an answer.
func three() []event {
	return []event{send(1, "", 0), send(2, "", 0), send(3, "", 0), ok(1, 0), ok(2, 1), lost(3), killed{1}, started{2}}
}

// TestMessages shows the model what may and what must not become of messages (Q1 to Q3, Q5, Q9).
func TestMessages(t *testing.T) {
	b1, b2, b3 := body(1, "", 0, 0, 0), body(2, "", 0, 1, 0), body(3, "", 0, 2, 0)
	two, all := books{In: 2, Ready: 2}, books{In: 3, Ready: 3}
	changed, moved, other, old := b2, b2, b2, b2
	changed.Sum++
	moved.Offset = 2
	other.Label = &label.Label{Queue: "q", UID: 2, Message: 99}
	old.Label = &label.Label{Queue: "q", UID: 1, Message: 2}
	bare := content{Offset: 1, Term: 7, Length: 10, Sum: 5}
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"without the one that has no answer", "", tale(three(), shown(two, b1, b2))},
		{"with it", "", tale(three(), shown(all, b1, b2, b3))},
		{"first lost", "LOST", tale(three(), shown(books{In: 2, Ready: 1, Accepted: 1}, b2))},
		{"last lost", "LOST", tale(three(), shown(books{In: 1, Ready: 1}, b1))},
		{"last lost, offset taken again", "CHANGED", tale(three(), shown(two, b1, body(3, "", 0, 1, 0)))},
		{"swapped", "TWICE", tale(three(), shown(two, body(2, "", 0, 0, 0), body(1, "", 0, 1, 0)))},
		{"a byte is another", "CHANGED", tale(three(), shown(two, b1, changed))},
		{"bytes that say nothing", "CHANGED", tale(three(), shown(two, b1, bare))},
		{"doubled", "TWICE", tale(three(), shown(all, b1, b2, moved))},
		{"invented", "INVENTED", tale(three(), shown(two, b1, other))},
		{"of the queue before", "SHARED", tale(three(), shown(two, b1, old))},
		{"two at one offset", "CHANGED", tale(three(), send(4, "", 0), ok(4, 1))},
		{"refused", "", tale(three(), send(4, "", 0), no(4, wire.Overloaded), shown(two, b1, b2))},
		{"refused but stored", "REFUSED BUT STORED", tale(three(), send(4, "", 0), no(4, wire.Overloaded),
			shown(all, b1, b2, body(4, "", 0, 2, 0)))},
		{"a gap", "GAP", tale(send(1, "", 0), send(2, "", 0), lost(1), lost(2), shown(books{In: 1, Ready: 1},
			body(2, "", 0, 0, 0)))},
		{"out of order", "ORDER", tale(send(1, "", 0), send(2, "", 0), ok(1, 1), ok(2, 0), shown(two,
			body(2, "", 0, 0, 0), body(1, "", 0, 1, 0)))},
		{"shown out of order", "ORDER", tale(three(), shown(two, b2, b1))},
		{"gone at a look, and back", "BACK", tale(three(), shown(two, b1, b2), shown(all, b1, b2, b3))},
		{"offsets begin again", "BOOKS", tale(three(), shown(two, b1, b2), shown(books{In: 1, Ready: 1}, b1))},
	} {
		want(t, c.name, c.kind, c.list)
	}
}

// TestEvidence shows the model answers (D-6, D-17, T-33).
func TestEvidence(t *testing.T) {
	strong := send(1, "", 0)
	strong.Want = flushedE
	with := func(f func(*answered)) answered {
		a := ok(1, 0)
		a.Evidence = flushedE
		f(&a)
		return a
	}
	for _, c := range []struct {
		name, kind string
		answer     answered
	}{
		{"flushed", "", with(func(*answered) {})},
		{"written", "EVIDENCE", with(func(a *answered) { a.Evidence = writtenE })},
		{"accepted", "EVIDENCE", with(func(a *answered) { a.Evidence, a.Committed = wire.Accepted(), false })},
		{"replicated", "EVIDENCE", with(func(a *answered) { a.Evidence = wire.Replicated(2, wire.Flushed) })},
		{"nowhere", "EVIDENCE", with(func(a *answered) { a.Committed = false })},
		{"below the request", "EVIDENCE", with(func(a *answered) { a.Outcome = "below_request" })},
		{"no such outcome", "EVIDENCE", with(func(a *answered) { a.Outcome = "fine" })},
		{"unknown queue", "UNEXPECTED", no(1, wire.UnknownQueue)},
		{"full without a limit", "LIMIT", no(1, wire.QueueFull)},
		{"too large without a limit", "LIMIT", no(1, wire.TooLarge)},
		{"retired without a sequence", "UNEXPECTED", no(1, wire.SequenceRetired)},
		{"a disk that nobody filled", "UNEXPECTED", no(1, wire.DiskFull)},
		{"of another message", "ANSWER", lost(5)},
	} {
		want(t, c.name, c.kind, tale(strong, c.answer))
	}
	want(t, "answered twice", "ANSWER", tale(strong, with(func(*answered) {}), with(func(*answered) {})))
}

// TestRetries: a sequence that is sent again has one place and no second copy (T-33, Q6).
func TestRetries(t *testing.T) {
	again := func(n int, seq uint64) sent {
		s := send(n, "p", seq)
		s.Again = true
		return s
	}
	b := func(offset uint64) content { return body(1, "p", 1, offset, 0) }
	one := books{In: 1, Ready: 1}
	begin := tale(opened{here, "p", 1}, send(1, "p", 1), lost(1), killed{1}, started{2})
	known := append(slices.Clone(begin), again(1, 1), ok(1, 0))
	took := append(slices.Clone(known), delivered{here, body(1, "p", 1, 0, 1)})
	took = append(took, settle(0, 1, wire.Accept, done)...)
	took = append(took, shown(books{In: 1, Accepted: 1}))
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"taken", "", append(slices.Clone(known), shown(one, b(0)))},
		{"asked once more", "", append(slices.Clone(known), again(1, 1), ok(1, 0), shown(one, b(0)))},
		{"a second copy is confirmed", "TWICE", append(slices.Clone(known), again(1, 1), ok(1, 1))},
		{"a second copy is there", "TWICE", append(slices.Clone(known), shown(books{In: 2, Ready: 2}, b(0), b(1)))},
		{"known though it is out", "", append(slices.Clone(took), again(1, 1), ok(1, 0))},
		{"a second copy once it is out", "TWICE", append(slices.Clone(took), again(1, 1), ok(1, 1))},
		{"it is out, and back", "BACK", append(slices.Clone(took), again(1, 1), ok(1, 0), shown(
			books{In: 1, Ready: 1}, b(0)))},
		{"under another sequence", "CHANGED", append(slices.Clone(known), shown(one, body(1, "p", 2, 0, 0)))},
		{"of another producer", "CHANGED", append(slices.Clone(known), shown(one, body(1, "q", 1, 0, 0)))},
		{"a gap is filled", "", tale(send(1, "p", 1), no(1, wire.Overloaded), again(1, 1), ok(1, 0), shown(one, b(0)))},
		{"retired, and stored before", "", append(slices.Clone(begin), again(1, 1), no(1, wire.SequenceRetired),
			shown(one, b(0)))},
		{"the producer is known", "", append(slices.Clone(known), opened{here, "p", 2})},
		{"the producer is forgotten", "FORGOTTEN", append(slices.Clone(known), opened{here, "p", 1})},
		{"the producer is another queue's", "SHARED", tale(opened{here, "p", 2})},
	} {
		want(t, c.name, c.kind, c.list)
	}
}

// TestDeliveries: what is settled stays so, and what is not returns with a higher attempt (W-55, Q6c, Q7).
func TestDeliveries(t *testing.T) {
	stored := []event{send(1, "", 0), ok(1, 0)}
	in, out := books{In: 1, Ready: 1}, books{In: 1, Accepted: 1}
	b := func(attempt uint64) content { return body(1, "", 0, 0, attempt) }
	accept := settle(0, 1, wire.Accept, done)
	reborn := []event{killed{1}, started{2}}
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"accepted", "", tale(stored, got(1, 0, 1), accept, shown(out))},
		{"rejected", "", tale(stored, got(1, 0, 1), settle(0, 1, wire.Reject, done), shown(books{In: 1, Rejected: 1}))},
		{"accepted, counted as rejected", "BOOKS", tale(stored, got(1, 0, 1), accept, shown(books{In: 1, Rejected: 1}))},
		{"accepted, and delivered", "BACK", tale(stored, got(1, 0, 1), accept, reborn, got(1, 0, 2))},
		{"delivered, and the one before accepted", "BACK", tale(stored, got(1, 0, 1), got(1, 0, 2), accept)},
		{"accepted, and shown", "BACK", tale(stored, got(1, 0, 1), accept, reborn, shown(in, b(2)))},
		{"an earlier delivery comes late", "", tale(stored, got(1, 0, 2), settle(0, 2, wire.Accept, done), got(1, 0, 1),
			shown(out))},
		{"accepted twice", "SETTLED TWICE", tale(stored, got(1, 0, 1), got(1, 0, 2), accept,
			settle(0, 2, wire.Accept, done))},
		{"perhaps accepted, out", "", tale(stored, got(1, 0, 1), settle(0, 1, wire.Accept, unknown), reborn, shown(out))},
		{"perhaps accepted, in", "", tale(stored, got(1, 0, 1), settle(0, 1, wire.Accept, unknown), reborn,
			shown(in, b(1)))},
		{"perhaps accepted, in, then out", "LOST", tale(stored, got(1, 0, 1), settle(0, 1, wire.Accept, unknown), reborn,
			shown(in, b(1)), shown(out))},
		{"not settled, out", "LOST", tale(stored, got(1, 0, 1), reborn, shown(out))},
		{"the settle was refused, out", "LOST", tale(stored, got(1, 0, 1), got(1, 0, 2), settling{here, 0, 1, wire.Accept},
			settled{place: here, Attempt: 1, Fate: refused}, shown(out))},
		{"the settle was refused, nobody knows why", "UNEXPECTED", tale(stored, got(1, 0, 1),
			settle(0, 1, wire.Accept, refused))},
		{"released", "", tale(stored, got(1, 0, 1), settle(0, 1, wire.Release, done), got(1, 0, 2),
			shown(books{In: 1, Ready: 1, Released: 1}, b(2)))},
		{"released, gone", "LOST", tale(stored, got(1, 0, 1), settle(0, 1, wire.Release, done),
			shown(books{In: 1, Accepted: 1, Released: 1}))},
		{"released, not counted", "BOOKS", tale(stored, got(1, 0, 1), settle(0, 1, wire.Release, done), shown(in, b(1)))},
		{"returns with a higher attempt", "", tale(stored, got(1, 0, 1), reborn, got(1, 0, 2))},
		{"returns with the same attempt", "ATTEMPT", tale(stored, got(1, 0, 1), reborn, got(1, 0, 1))},
		{"attempt 0", "ATTEMPT", tale(stored, got(1, 0, 0))},
		{"the look shows fewer attempts", "ATTEMPT", tale(stored, got(1, 0, 2), reborn, shown(in, b(1)))},
		{"fewer attempts than the look showed", "ATTEMPT", tale(stored, shown(in, b(3)), reborn, got(1, 0, 2))},
		{"the look shows fewer than the look before", "ATTEMPT", tale(stored, shown(in, b(3)), shown(in, b(2)))},
		{"what was delivered is gone", "LOST", tale(send(1, "", 0), got(1, 0, 1), lost(1), reborn, shown(books{}))},
		{"nobody gets it", "STUCK", tale(stored, audited{here, []content{b(0)}, in, true})},
	} {
		want(t, c.name, c.kind, c.list)
	}
}
