package queue

import (
	"bytes"
	"fmt"
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
	out   map[string]uint64
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

// TestQueueModel drives a State and a plain map with the same commands, with snapshot and restore in between.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		m := &model{msgs: map[uint64]*modelMsg{}, out: map[string]uint64{}}
		ref := Ref{Term: 1}
		var got []string
		apply := func(c Command) []Effect {
			if c.Kind != Publish {
				back, err := Decode(c.Append(nil))
				if err != nil {
					t.Fatal(err)
				}
				if back != c {
					t.Fatalf("decoded %+v as %+v", c, back)
				}
			}
			effects := s.Apply(c, nil)
			for _, e := range effects {
				if e.Kind == Assigned {
					got = append(got, fmt.Sprintf("%d gets %d attempt %d of %v", e.Session, e.Offset, e.Attempt, e.Ref))
				}
			}
			return effects
		}
		ids := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					switch rapid.IntRange(0, 9).Draw(t, "gap") {
					case 0:
						ref.Seq += 3
					case 1:
						ref = Ref{ref.Term + 1, 1}
					}
					ref.Seq++
					apply(Command{Kind: Publish, Body: ref})
					m.msgs[m.next] = &modelMsg{ref: ref}
					m.next++
					m.assign()
				}
			},
			"attach": func(t *rapid.T) {
				id, session := ids.Draw(t, "id"), rapid.Uint64Range(1, 5).Draw(t, "session")
				limit := rapid.Uint64Range(0, 40).Draw(t, "limit")
				apply(Command{Kind: Attach, Subscription: id, Session: session, Limit: limit})
				sub := m.sub(id)
				if sub == nil {
					sub = &modelSub{id: id}
					m.subs = append(m.subs, sub)
				}
				m.detach(sub)
				sub.session, sub.limit = session, max(sub.limit, limit)
				m.assign()
			},
			"detach": func(t *rapid.T) {
				id, session := ids.Draw(t, "id"), rapid.Uint64Range(1, 5).Draw(t, "session")
				apply(Command{Kind: Detach, Subscription: id, Session: session})
				if sub := m.sub(id); sub != nil && sub.session == session {
					m.detach(sub)
				}
				m.assign()
			},
			"limit": func(t *rapid.T) {
				id, limit := ids.Draw(t, "id"), rapid.Uint64Range(0, 60).Draw(t, "limit")
				apply(Command{Kind: Limit, Subscription: id, Limit: limit})
				if sub := m.sub(id); sub != nil {
					sub.limit = max(sub.limit, limit)
				}
				m.assign()
			},
			"unsubscribe": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				apply(Command{Kind: Unsubscribe, Subscription: id})
				if sub := m.sub(id); sub != nil {
					m.detach(sub)
					m.subs = slices.DeleteFunc(m.subs, func(x *modelSub) bool { return x == sub })
					m.turn = 0
				}
				m.assign()
			},
			"settle": func(t *rapid.T) {
				offset := rapid.Uint64Range(0, max(m.next, 1)).Draw(t, "offset")
				c := Command{Kind: Settle, Subscription: ids.Draw(t, "id"), Offset: offset,
					Attempt: 1, Term: 1, Verb: Verb(rapid.IntRange(1, 3).Draw(t, "verb"))}
				msg := m.msgs[offset]
				if msg != nil && rapid.IntRange(0, 4).Draw(t, "right") > 0 {
					c.Subscription, c.Attempt, c.Term = msg.sub, msg.attempts, msg.ref.Term
				}
				right := msg != nil && msg.sub != "" && msg.sub == c.Subscription &&
					c.Attempt == msg.attempts && c.Term == msg.ref.Term
				effects := apply(c)
				if (effects[0].Kind == Settled) != right {
					t.Fatalf("settle %+v: %+v, model says %v", c, effects[0], right)
				}
				if right {
					m.sub(msg.sub).open--
					switch msg.sub = ""; c.Verb {
					case Accept:
						m.out["accepted"]++
						delete(m.msgs, offset)
					case Reject:
						m.out["rejected"]++
						delete(m.msgs, offset)
					}
				}
				m.assign()
			},
			"restore": func(t *rapid.T) {
				b := s.Snapshot()
				back, err := Restore(b)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(back.Snapshot(), b) {
					t.Fatal("a restored state has another snapshot")
				}
				s = back
			},
			"": func(t *rapid.T) {
				if !slices.Equal(got, m.taken) {
					t.Fatalf("assigned %v, model %v", got, m.taken)
				}
				c := s.Counts()
				if c.In != m.next || c.Accepted != m.out["accepted"] || c.Rejected != m.out["rejected"] ||
					c.Ready+c.Unsettled != uint64(len(m.msgs)) {
					t.Fatalf("counts %+v, model has %d of %d", c, len(m.msgs), m.next)
				}
			},
		})
	})
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
	if len(s.present.list) != 1 {
		t.Errorf("%d runs for messages that rise together", len(s.present.list))
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
		s.Apply(Command{Kind: Publish, Body: Ref{9, 9}}, nil)
	})
}
