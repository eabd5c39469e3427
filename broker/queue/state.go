package queue

import "slices"

// State is one queue. The zero value is an empty queue.
type State struct {
	next    uint64 // offset of the next message
	present runs   // every message that is not settled
	cursor  uint64 // lowest offset that was never assigned

	returned offsets           // assigned before, to be assigned again
	attempts map[uint64]uint64 // of offsets in returned: attempts so far
	open     map[uint64]delivery

	subs []subscription // in order of subscribing
	turn int            // who is asked first at the next assignment

	counts Counts
}

type delivery struct {
	sub     string
	attempt uint64
}

type subscription struct {
	id        string
	session   uint64 // 0: nobody is attached
	limit     uint64
	delivered uint64 // deliveries made, redeliveries included
	unsettled uint64 // open deliveries
}

// UnsettledMax bounds the open deliveries of one subscription, whatever its credit.
const UnsettledMax = 1 << 16

// Counts says where every message is or went: In = Ready + Unsettled + Accepted + Rejected.
type Counts struct {
	In, Ready, Unsettled uint64
	Accepted, Rejected   uint64 // out, by reason
	Released             uint64 // came back; still in
}

// SubscriptionsMax bounds the subscriptions of a queue, attached or not.
const SubscriptionsMax = 1024

// EffectKind says what a command did.
type EffectKind uint8

// The effects.
const (
	Published  EffectKind = iota + 1 // Offset
	Attached                         // Delivered, Limit
	Superseded                       // Session lost its subscription to another
	Assigned                         // Session is to deliver Offset, Attempt, Ref, Large
	Settled                          // Session's settle of Offset, Attempt took effect
	Stale                            // … changed nothing
	Freed                            // the body Ref is of no more use
	Crowded                          // Session's subscription was not made: there are SubscriptionsMax
)

// Effect is one consequence of a command, in the order it happened.
type Effect struct {
	Kind      EffectKind
	Session   uint64
	Offset    uint64
	Attempt   uint64
	Ref       Ref
	Large     *Large
	Delivered uint64
	Limit     uint64
}

// Counts returns the books.
func (s *State) Counts() Counts {
	c := s.counts
	c.Unsettled = uint64(len(s.open))
	c.Ready = c.In - c.Accepted - c.Rejected - c.Unsettled
	return c
}

// Next is the offset that the next message gets.
func (s *State) Next() uint64 { return s.next }

// Bodies yields every body that the state holds, in order of offset.
func (s *State) Bodies(yield func(Ref) bool) {
	for _, r := range s.present.list {
		for o := r.first; o < r.limit(); o++ {
			if !yield(r.at(o)) {
				return
			}
		}
	}
}

// Apply does one command and appends its effects to out.
func (s *State) Apply(c Command, out []Effect) []Effect {
	switch c.Kind {
	case Publish:
		out = s.publish(c, out)
	case Attach:
		out = s.attach(c, out)
	case Detach:
		if sub := s.sub(c.Subscription); sub != nil && sub.session == c.Session {
			s.detach(sub)
		}
	case DetachAll:
		for i := range s.subs {
			s.detach(&s.subs[i])
		}
	case Limit:
		if sub := s.sub(c.Subscription); sub != nil {
			sub.limit = max(sub.limit, c.Limit)
		}
	case Settle:
		out = s.settle(c, out)
	case Unsubscribe:
		s.unsubscribe(c.Subscription)
	}
	return s.assign(out)
}

func (s *State) publish(c Command, out []Effect) []Effect {
	offset := s.next
	s.next++
	s.counts.In++
	s.present.add(offset, c.Body, c.Large)
	return append(out, Effect{Kind: Published, Offset: offset})
}

func (s *State) sub(id string) *subscription {
	for i := range s.subs {
		if s.subs[i].id == id {
			return &s.subs[i]
		}
	}
	return nil
}

// attach makes or resumes a subscription; whoever held it loses it, and its unsettled messages go
// back to their places.
func (s *State) attach(c Command, out []Effect) []Effect {
	sub := s.sub(c.Subscription)
	if sub == nil && len(s.subs) >= SubscriptionsMax {
		return append(out, Effect{Kind: Crowded, Session: c.Session})
	}
	if sub == nil {
		s.subs = append(s.subs, subscription{id: c.Subscription})
		sub = &s.subs[len(s.subs)-1]
	}
	if sub.session != 0 && sub.session != c.Session {
		out = append(out, Effect{Kind: Superseded, Session: sub.session})
	}
	s.detach(sub)
	sub.session = c.Session
	sub.limit = max(sub.limit, c.Limit)
	return append(out, Effect{Kind: Attached, Session: c.Session, Delivered: sub.delivered, Limit: sub.limit})
}

func (s *State) detach(sub *subscription) {
	sub.session = 0
	sub.unsettled = 0
	var back []uint64
	for offset, d := range s.open {
		if d.sub == sub.id {
			back = append(back, offset)
		}
	}
	slices.Sort(back)
	for _, offset := range back {
		s.giveBack(offset)
	}
}

func (s *State) giveBack(offset uint64) {
	if s.attempts == nil {
		s.attempts = make(map[uint64]uint64)
	}
	s.attempts[offset] = s.open[offset].attempt
	delete(s.open, offset)
	s.returned.add(offset)
}

func (s *State) unsubscribe(id string) {
	for i := range s.subs {
		if s.subs[i].id == id {
			s.detach(&s.subs[i])
			s.subs = slices.Delete(s.subs, i, i+1)
			s.turn = 0
			return
		}
	}
}

// settle takes effect only on the very delivery that is open: an old settle never hits another message.
func (s *State) settle(c Command, out []Effect) []Effect {
	sub := s.sub(c.Subscription)
	e := Effect{Kind: Stale, Session: c.Session, Offset: c.Offset, Attempt: c.Attempt}
	d, ok := s.open[c.Offset]
	ref, _, present := s.present.get(c.Offset)
	if !ok || !present || d.sub != c.Subscription || d.attempt != c.Attempt || ref.Term != c.Term {
		return append(out, e)
	}
	e.Kind = Settled
	sub.unsettled--
	if c.Verb == Release {
		s.counts.Released++
		s.giveBack(c.Offset)
		return append(out, e)
	}
	delete(s.open, c.Offset)
	s.present.remove(c.Offset)
	if c.Verb == Accept {
		s.counts.Accepted++
	} else {
		s.counts.Rejected++
	}
	return append(out, e, Effect{Kind: Freed, Ref: ref})
}

// assign hands out messages, lowest offset first, in turn to those with credit.
func (s *State) assign(out []Effect) []Effect {
	for {
		i, ok := s.taker()
		if !ok {
			return out
		}
		offset, attempt, ok := s.take()
		if !ok {
			return out
		}
		sub := &s.subs[i]
		s.turn = (i + 1) % len(s.subs)
		sub.delivered++
		sub.unsettled++
		if s.open == nil {
			s.open = make(map[uint64]delivery)
		}
		s.open[offset] = delivery{sub.id, attempt}
		ref, large, _ := s.present.get(offset)
		out = append(out, Effect{
			Kind: Assigned, Session: sub.session, Offset: offset,
			Attempt: attempt, Ref: ref, Large: large,
		})
	}
}

func (s *State) taker() (int, bool) {
	for k := range s.subs {
		i := (s.turn + k) % len(s.subs)
		if sub := &s.subs[i]; sub.session != 0 && sub.delivered < sub.limit && sub.unsettled < UnsettledMax {
			return i, true
		}
	}
	return 0, false
}

// take returns the lowest message that nobody has. A returned one is always below the cursor.
func (s *State) take() (offset, attempt uint64, ok bool) {
	if offset, ok = s.returned.first(); ok {
		s.returned.removeFirst()
		attempt = s.attempts[offset] + 1
		delete(s.attempts, offset)
		return offset, attempt, true
	}
	if offset, ok = s.present.from(s.cursor); ok {
		s.cursor = offset + 1
		return offset, 1, true
	}
	return 0, 0, false
}
