package queue

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a queue as a plain map: what the State has to agree with.
type model struct {
	next  uint64
	msgs  map[uint64]*modelMsg
	subs  []*modelSub
	turn  int
	out   map[Verb]uint64
	taken []string // assignments so far
}

type modelMsg struct {
	ref      Ref
	sub      string // "" when ready
	attempts uint64
}

type modelSub struct {
	id                        string
	session, limit, delivered uint64
	open                      int
}

func (m *model) sub(id string) *modelSub {
	for _, s := range m.subs {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (m *model) detach(s *modelSub) {
	s.session, s.open = 0, 0
	for _, msg := range m.msgs {
		if msg.sub == s.id {
			msg.sub = ""
		}
	}
}

func (m *model) assign() {
	for {
		var to *modelSub
		at := 0
		for k := range m.subs {
			s := m.subs[(m.turn+k)%len(m.subs)]
			if s.session != 0 && s.delivered < s.limit && s.open < UnsettledMax {
				to, at = s, (m.turn+k)%len(m.subs)
				break
			}
		}
		if to == nil {
			return
		}
		found := false
		for o := range m.next {
			if msg := m.msgs[o]; msg != nil && msg.sub == "" {
				msg.sub = to.id
				msg.attempts++
				to.delivered++
				to.open++
				m.turn = (at + 1) % len(m.subs)
				m.taken = append(m.taken, fmt.Sprintf("%d gets %d attempt %d of %v", to.session, o, msg.attempts, msg.ref))
				found = true
				break
			}
		}
		if !found {
			// The turn moves only with an assignment.
			return
		}
	}
}

// both is a State and the plain map that it has to agree with, driven by the same commands.
type both struct {
	s   *State
	m   *model
	ref Ref
	got []string // assignments of the State
}

var subscriptions = rapid.SampledFrom([]string{"a", "b", "c"})

// apply sends a command through its encoding into the State.
func (b *both) apply(t *rapid.T, c Command) []Effect {
	if c.Kind != Publish {
		back, err := Decode(c.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if back != c {
			t.Fatalf("decoded %+v as %+v", c, back)
		}
	}
	effects := b.s.Apply(c, nil)
	for _, e := range effects {
		if e.Kind == Assigned {
			b.got = append(b.got, fmt.Sprintf("%d gets %d attempt %d of %v", e.Session, e.Offset, e.Attempt, e.Ref))
		}
	}
	return effects
}

func (b *both) publish(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		switch rapid.IntRange(0, 9).Draw(t, "gap") {
		case 0:
			b.ref.Seq += 3
		case 1:
			b.ref = Ref{b.ref.Term + 1, 1}
		}
		b.ref.Seq++
		b.apply(t, Command{Kind: Publish, Body: b.ref})
		b.m.msgs[b.m.next] = &modelMsg{ref: b.ref}
		b.m.next++
		b.m.assign()
	}
}

func (b *both) attach(t *rapid.T) {
	id, session := subscriptions.Draw(t, "id"), rapid.Uint64Range(1, 5).Draw(t, "session")
	limit := rapid.Uint64Range(0, 40).Draw(t, "limit")
	b.apply(t, Command{Kind: Attach, Subscription: id, Session: session, Limit: limit})
	sub := b.m.sub(id)
	if sub == nil {
		sub = &modelSub{id: id}
		b.m.subs = append(b.m.subs, sub)
	}
	b.m.detach(sub)
	sub.session, sub.limit = session, max(sub.limit, limit)
	b.m.assign()
}

func (b *both) detach(t *rapid.T) {
	id, session := subscriptions.Draw(t, "id"), rapid.Uint64Range(1, 5).Draw(t, "session")
	b.apply(t, Command{Kind: Detach, Subscription: id, Session: session})
	if sub := b.m.sub(id); sub != nil && sub.session == session {
		b.m.detach(sub)
	}
	b.m.assign()
}

func (b *both) limit(t *rapid.T) {
	id, limit := subscriptions.Draw(t, "id"), rapid.Uint64Range(0, 60).Draw(t, "limit")
	b.apply(t, Command{Kind: Limit, Subscription: id, Limit: limit})
	if sub := b.m.sub(id); sub != nil {
		sub.limit = max(sub.limit, limit)
	}
	b.m.assign()
}

func (b *both) unsubscribe(t *rapid.T) {
	id := subscriptions.Draw(t, "id")
	b.apply(t, Command{Kind: Unsubscribe, Subscription: id})
	if sub := b.m.sub(id); sub != nil {
		b.m.detach(sub)
		b.m.subs = slices.DeleteFunc(b.m.subs, func(x *modelSub) bool { return x == sub })
		b.m.turn = 0
	}
	b.m.assign()
}

func (b *both) settle(t *rapid.T) {
	offset := rapid.Uint64Range(0, max(b.m.next, 1)).Draw(t, "offset")
	c := Command{
		Kind: Settle, Subscription: subscriptions.Draw(t, "id"), Offset: offset,
		Attempt: 1, Term: 1, Verb: Verb(rapid.IntRange(1, 3).Draw(t, "verb")),
	}
	msg := b.m.msgs[offset]
	if msg != nil && rapid.IntRange(0, 4).Draw(t, "right") > 0 {
		c.Subscription, c.Attempt, c.Term = msg.sub, msg.attempts, msg.ref.Term
	}
	right := msg != nil && msg.sub != "" && msg.sub == c.Subscription &&
		c.Attempt == msg.attempts && c.Term == msg.ref.Term
	effects := b.apply(t, c)
	if (effects[0].Kind == Settled) != right {
		t.Fatalf("settle %+v: %+v, model says %v", c, effects[0], right)
	}
	if right {
		b.m.sub(msg.sub).open--
		msg.sub = ""
		if c.Verb != Release {
			b.m.out[c.Verb]++
			delete(b.m.msgs, offset)
		}
	}
	b.m.assign()
}

func (b *both) restore(t *rapid.T) {
	snapshot := b.s.Snapshot()
	back, err := Restore(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.Snapshot(), snapshot) {
		t.Fatal("a restored state has another snapshot")
	}
	b.s = back
}

func (b *both) check(t *rapid.T) {
	if !slices.Equal(b.got, b.m.taken) {
		t.Fatalf("assigned %v, model %v", b.got, b.m.taken)
	}
	c := b.s.Counts()
	if c.In != b.m.next || c.Accepted != b.m.out[Accept] || c.Rejected != b.m.out[Reject] ||
		c.Ready+c.Unsettled != uint64(len(b.m.msgs)) {
		t.Fatalf("counts %+v, model has %d of %d", c, len(b.m.msgs), b.m.next)
	}
}

// TestQueueModel drives both, with snapshot and restore in between.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &both{
			s: &State{}, ref: Ref{Term: 1},
			m: &model{msgs: map[uint64]*modelMsg{}, out: map[Verb]uint64{}},
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": b.publish, "attach": b.attach, "detach": b.detach, "limit": b.limit,
			"unsubscribe": b.unsubscribe, "settle": b.settle, "restore": b.restore, "": b.check,
		})
	})
}

// TestSubscriptionsAreBounded: one too many is refused, those that exist go on, and room that is made is used.
func TestSubscriptionsAreBounded(t *testing.T) {
	s := &State{}
	attach := func(i int) EffectKind {
		return s.Apply(Command{Kind: Attach, Subscription: fmt.Sprint(i), Session: uint64(i) + 1}, nil)[0].Kind
	}
	for i := range SubscriptionsMax {
		if kind := attach(i); kind != Attached {
			t.Fatalf("subscription %d: effect %d", i, kind)
		}
	}
	if kind := attach(SubscriptionsMax); kind != Crowded {
		t.Errorf("one too many: effect %d", kind)
	}
	if kind := attach(0); kind != Attached {
		t.Errorf("one that exists: effect %d", kind)
	}
	s.Apply(Command{Kind: Unsubscribe, Subscription: "0"}, nil)
	if kind := attach(SubscriptionsMax); kind != Attached {
		t.Errorf("after one left: effect %d", kind)
	}
}

// TestLostTailSettle is the case of a settle that names a delivery of a message whose entry was lost: the
// offset was given again, to another message in a later term.
func TestLostTailSettle(t *testing.T) {
	s := &State{}
	s.Apply(Command{Kind: Publish, Body: Ref{Term: 2, Seq: 1}}, nil)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 9}, nil)
	old := Command{Kind: Settle, Subscription: "a", Offset: 0, Attempt: 1, Term: 1, Verb: Accept}
	if e := s.Apply(old, nil); e[0].Kind != Stale {
		t.Errorf("a settle of term 1 hit a message of term 2: %+v", e)
	}
	if s.Counts().Unsettled != 1 {
		t.Error("the message is gone")
	}
}

// TestRunsCostNothing: a ready message has no memory of its own.
func TestRunsCostNothing(t *testing.T) {
	s := &State{}
	for i := range uint64(100_000) {
		s.Apply(Command{Kind: Publish, Body: Ref{Term: 1, Seq: i}}, nil)
	}
	if s.present.runs.len != 1 {
		t.Errorf("%d runs for messages that rise together", s.present.runs.len)
	}
	if n := len(s.Snapshot()); n > 100 {
		t.Errorf("snapshot of %d bytes", n)
	}
}

// FuzzRestore: damaged snapshots are refused or give a state whose books balance.
func FuzzRestore(f *testing.F) {
	s := &State{}
	s.Apply(Command{Kind: Publish, Body: Ref{1, 1}}, nil)
	s.Apply(Command{Kind: Publish, Body: Ref{1, 2}, Large: &Large{Length: 1 << 20}}, nil)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 1}, nil)
	f.Add(s.Snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(b)
		if err != nil {
			return
		}
		c := s.Counts()
		if c.In != c.Ready+c.Unsettled+c.Accepted+c.Rejected {
			t.Errorf("counts %+v", c)
		}
		s.Apply(Command{Kind: Publish, Body: Ref{math.MaxUint64, 9}}, nil)
	})
}
