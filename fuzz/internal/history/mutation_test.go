package history

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weida/broker/client"
	"weida/broker/wire"
)

// mutation makes a good history wrong in one way. It says whether it found a place for that.
type mutation struct {
	name string
	rule Rule // that has to catch it
	do   func(w *world) bool
}

// TestMutations: each lie that is told in a random good history is caught, by the rule that is for it. A cluster that
// skips a directory's flush, tells of flushes early or forgets a rule of recovery is not made here: fuzz/sim has those.
func TestMutations(t *testing.T) {
	for _, m := range slices.Concat(messageLies, deliveryLies, diskLies, endLies) {
		t.Run(m.name, func(t *testing.T) {
			found := 0
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(rt, shape{})
				w.run(rapid.IntRange(10, 60).Draw(rt, "steps"))
				if !m.do(w) {
					return
				}
				found++
				if r := judge(w.lines, -1); r.Rules[m.rule].Broken == 0 {
					rt.Fatalf("rule %s sees nothing\n%s", m.rule, w.tell(r))
				}
			})
			if found == 0 {
				t.Fatal("no history had a place for it")
			}
		})
	}
}

// messageLies are about what was published.
var messageLies = []mutation{
	{"ConfirmedMessageIsGone", Loss, func(w *world) bool {
		_, a := pick[Answer](w, func(a *Answer) bool { return a.Committed })
		w.erase(a.Offset)
		return true
	}},
	{"TwoOfOneProducerAreSwapped", Order, func(w *world) bool {
		var p *Stored
		for i := range w.msgs {
			s := &w.msgs[i].Stored
			switch {
			case s.Producer != "p1" || w.sendings(s) != 1:
			case p == nil:
				p = s
			default:
				a, b := p.Offset, s.Offset
				w.renumber(map[uint64]uint64{a: b, b: a})
				return true
			}
		}
		return false
	}},
	{"OneIsStoredTwice", Duplicates, func(w *world) bool {
		i, d := pick[Deliver](w, func(d *Deliver) bool { return d.Producer != "" })
		if i < 0 {
			return false
		}
		c := *d
		c.Offset = w.books.In
		w.insert(i+1, &c)
		return true
	}},
	{"OneWithoutIDIsStoredTwice", Copies, func(w *world) bool {
		i, d := pick[Deliver](w, func(d *Deliver) bool { return d.Producer == "" })
		if i < 0 {
			return false
		}
		c := *d
		c.Offset = w.books.In
		w.insert(i+1, &c)
		return true
	}},
	{"AByteIsChanged", Phantom, func(w *world) bool {
		i, d := pick[Deliver](w, nil)
		c := *d
		c.Digest[3] ^= 1
		w.lines[i].Event = &c
		return true
	}},
	{"DeliveredBeforePublished", Phantom, func(w *world) bool {
		_, d := pick[Deliver](w, nil)
		at := slices.IndexFunc(w.lines, func(l Line) bool {
			p, ok := l.Event.(*Publish)
			return ok && p.Message == d.Message
		})
		w.insert(at, d)
		return true
	}},
	{"AnOffsetIsUsedAgain", Offsets, func(w *world) bool {
		i, a := pick[Answer](w, func(a *Answer) bool { return a.Committed })
		w.term++
		m := w.make("p3")
		ref := w.refs()
		w.insert(i+1, &Answer{
			Ref: ref, Outcome: client.OK, Evidence: a.Evidence, Committed: true, Offset: a.Offset, Term: a.Term + 1,
		})
		w.insert(i+1, &Publish{Ref: ref, Queue: w.q, Message: m, Want: a.Evidence})
		return true
	}},
	{"ATermIsChanged", Offsets, func(w *world) bool {
		i, d := pick[Deliver](w, nil)
		c := *d
		c.Term++
		w.insert(i+1, &c)
		return true
	}},
	{"RefusedIsDelivered", Refusals, func(w *world) bool {
		for _, l := range w.lines {
			a, ok := l.Event.(*Answer)
			if !ok || a.Outcome != client.Refused {
				continue
			}
			for _, k := range w.lines {
				if p, ok := k.Event.(*Publish); ok && p.Ref == a.Ref {
					s := Stored{w.books.In, w.term, p.Message}
					w.insert(len(w.lines), &Deliver{Queue: w.q, Session: "x", Stored: s, Attempt: 1})
					return true
				}
			}
		}
		return false
	}},
	{"LessThanAskedIsSuccess", Held, func(w *world) bool {
		i, a := pick[Answer](w, func(a *Answer) bool { return a.Committed })
		c := *a
		c.Evidence = Of(wire.Stored(wire.Flushed))
		w.lines[i].Event = &c
		return true
	}},
}

// deliveryLies are about consuming.
var deliveryLies = []mutation{
	{"SettledIsDeliveredAgain", Settles, func(w *world) bool {
		i, s := pick[Settled](w, func(s *Settled) bool { return s.Fate == Done && w.asked(s.Ref).Verb != Release })
		q := w.asked(s.Ref)
		w.insert(i+1, &Deliver{
			Queue: w.q, Session: "x", Stored: w.msgs[q.Offset].Stored, Attempt: q.Attempt + 1,
		})
		return true
	}},
	{"SettledIsThereAgain", Settles, func(w *world) bool {
		_, s := pick[Settled](w, func(s *Settled) bool { return s.Fate == Done && w.asked(s.Ref).Verb != Release })
		i, _ := pick[Audit](w, func(a *Audit) bool { return a.Final })
		w.lines[i].Event = &Audit{Queue: w.q, Messages: []Stored{w.msgs[w.asked(s.Ref).Offset].Stored}}
		return true
	}},
	{"TwoAttemptsTakeItOut", OneHolder, func(w *world) bool {
		i, s := pick[Settled](w, func(s *Settled) bool { return s.Fate == Done && w.asked(s.Ref).Verb != Release })
		q, ref := *w.asked(s.Ref), w.refs()
		q.Ref, q.Attempt = ref, q.Attempt+1
		w.insert(i+1, &Settled{Ref: ref, Fate: Done})
		w.insert(i+1, &q)
		w.insert(i+1, &Deliver{Queue: w.q, Session: "x", Stored: w.msgs[q.Offset].Stored, Attempt: q.Attempt})
		return true
	}},
	{"AnAttemptIsDeliveredTwice", Attempts, func(w *world) bool {
		i, d := pick[Deliver](w, nil)
		c := *d
		c.Session = "x"
		w.insert(i+1, &c)
		return true
	}},
	{"AttemptZero", Attempts, func(w *world) bool {
		i, d := pick[Deliver](w, func(d *Deliver) bool { return d.Attempt == 1 })
		c := *d
		c.Attempt = 0
		w.lines[i].Event = &c
		return true
	}},
	{"FirstDeliveriesFall", DeliveryOrder, func(w *world) bool {
		i, d := pick[Deliver](w, func(d *Deliver) bool { return d.Attempt == 1 && d.Offset > 0 })
		if i < 0 {
			return false
		}
		s := w.msgs[0].Stored
		w.insert(i+1, &Deliver{Queue: w.q, Session: d.Session, Stored: s, Attempt: 1})
		return true
	}},
	{"TheBooksForget", Counts, func(w *world) bool {
		i, a := pick[Audit](w, func(a *Audit) bool { return a.Books.Accepted > 0 })
		c, b := *a, *a.Books
		b.Accepted--
		b.Purged++
		c.Books = &b
		w.lines[i].Event = &c
		return true
	}},
	{"TheBooksInvent", Counts, func(w *world) bool {
		i, a := pick[Audit](w, func(a *Audit) bool { return a.Final })
		c, b := *a, *a.Books
		b.In += 1000
		b.Purged += 1000
		c.Books = &b
		w.lines[i].Event = &c
		return true
	}},
}

// diskLies are about replicas.
var diskLies = []mutation{
	{"OneReplicaTooMany", Held, func(w *world) bool {
		i, a := pick[Answer](w, func(a *Answer) bool { return a.Evidence.Replicas == 3 })
		if i < 0 {
			return false
		}
		c := *a
		c.Evidence = Of(wire.Replicated(4, wire.Flushed))
		w.lines[i].Event = &c
		return true
	}},
	{"ABodyIsMissingOnTwo", Held, func(w *world) bool {
		_, a := pick[Answer](w, func(a *Answer) bool { return a.Committed })
		n := 0
		for i := range w.lines {
			e, ok := w.lines[i].Event.(*Entry)
			if ok && n < 2 && len(e.Adds) > 0 && e.Adds[0].Offset == a.Offset {
				c := *e
				c.Missing = []uint64{a.Offset}
				w.lines[i].Event = &c
				n++
			}
		}
		return true
	}},
	{"AnEntryDiffers", Agreement, func(w *world) bool {
		i, e := pick[Entry](w, nil)
		c := *e
		c.Sum[0] ^= 1
		w.lines[i].Event = &c
		return true
	}},
	{"TwoTermsAreCommittedAtOneIndex", Agreement, func(w *world) bool {
		i, e := pick[Entry](w, nil)
		c := *e
		c.Term, c.Adds = c.Term+100, nil
		w.lines[i].Event = &c
		return true
	}},
	{"AReplicaIsBehind", Agreement, func(w *world) bool {
		i, e := pick[DumpEnd](w, nil)
		c := *e
		c.Last--
		w.lines[i].Event = &c
		return true
	}},
	{"StatesDiffer", Agreement, func(w *world) bool {
		for i := range w.lines {
			if d, ok := w.lines[i].Event.(*DumpEnd); ok {
				c := *d
				c.State = DigestOf([]byte(d.Node))
				w.lines[i].Event = &c
			}
		}
		return true
	}},
}

// endLies are about the time after the faults, and about the history itself.
var endLies = []mutation{
	{"NothingGoesOn", Liveness, func(w *world) bool {
		_, h := pick[Healed](w, nil)
		w.lines = slices.DeleteFunc(w.lines, func(l Line) bool { return l.Event == h })
		at := slices.IndexFunc(w.lines, func(l Line) bool { a, ok := l.Event.(*Audit); return ok && a.Final })
		w.insert(at, h)
		return true
	}},
	{"ItGoesOnLate", Liveness, func(w *world) bool {
		i, _ := pick[Healed](w, nil)
		for k := range w.lines[i+1:] {
			w.lines[i+1+k].T += Time(180e9)
		}
		return true
	}},
	{"TheClusterIsNotWell", Liveness, func(w *world) bool {
		w.insert(len(w.lines), &Health{Wrong: []string{"queue q has no leader"}})
		return true
	}},
	{"SomethingIsStuck", Liveness, func(w *world) bool {
		w.send(w.make("p1"), client.OK)
		w.calm()
		w.audit(true)
		return true
	}},
	{"AnAnswerWithoutACall", Form, func(w *world) bool {
		w.insert(len(w.lines), &Answer{Ref: w.refs()})
		return true
	}},
	{"ACallTwice", Form, func(w *world) bool {
		i, p := pick[Publish](w, nil)
		w.insert(i+1, p)
		return true
	}},
	{"OtherBytesAreSentAgain", Form, func(w *world) bool {
		i, p := pick[Publish](w, func(p *Publish) bool { return p.Producer != "" })
		c := *p
		c.Ref, c.Digest = w.refs(), DigestOf([]byte("other"))
		w.insert(i+1, &c)
		return true
	}},
	{"SettledWithoutADelivery", Form, func(w *world) bool {
		w.insert(len(w.lines), &Settle{Ref: w.refs(), Queue: w.q, Offset: 1e6, Attempt: 1, Verb: Accept})
		return true
	}},
}
