package queue

import "slices"

const (
	// UnsettledMax bounds the open deliveries of one subscription, whatever its credit.
	UnsettledMax = 1 << 16
	// SubscriptionsMax bounds the subscriptions of a queue, attached or not.
	SubscriptionsMax = 1024
	// AssignMax bounds the assignments of one command: credit for many messages must not hold up other queues. The
	// rest follows with the next commands; Behind says that one is needed.
	AssignMax = 256
)

// subscription is who takes messages.
type subscription struct {
	id        string
	session   uint64       // 0: nobody is attached
	limit     uint64       // deliveries allowed, ever
	delivered uint64       // deliveries made, redeliveries included
	open      tree[uint64] // deliveries without a settle: attempt by offset
}

// takes says whether the subscription may get a message.
func (s *subscription) takes() bool {
	return s.session != 0 && s.delivered < s.limit && s.open.len < UnsettledMax
}

func (s *State) sub(id string) *subscription { return s.byID[id] }

// attach makes or resumes a subscription; whoever held it loses it, and its unsettled messages go
// back to their places.
func (s *State) attach(c Command, out []Effect) []Effect {
	sub := s.sub(c.Subscription)
	if sub == nil && len(s.subs) >= SubscriptionsMax {
		return append(out, Effect{Kind: Crowded, Session: c.Session})
	}
	if sub == nil {
		sub = &subscription{id: c.Subscription}
		s.subscribe(sub)
	}
	if sub.session != 0 && sub.session != c.Session {
		out = append(out, Effect{Kind: Superseded, Session: sub.session})
	}
	s.detach(sub)
	sub.session = c.Session
	sub.limit = max(sub.limit, c.Limit)
	return append(out, Effect{Kind: Attached, Session: c.Session, Delivered: sub.delivered, Limit: sub.limit})
}

func (s *State) subscribe(sub *subscription) {
	s.subs = append(s.subs, sub)
	if s.byID == nil {
		s.byID = make(map[string]*subscription)
	}
	s.byID[sub.id] = sub
}

// detach leaves a subscription to nobody; what it had goes back, at once where nothing else came back.
func (s *State) detach(sub *subscription) {
	sub.session = 0
	s.counts.Unsettled -= uint64(sub.open.len)
	if s.returned.len == 0 {
		s.returned, sub.open = sub.open, tree[uint64]{}
		return
	}
	sub.open.from(0, func(offset uint64, attempt *uint64) bool {
		s.returned.put(offset, *attempt)
		return true
	})
	sub.open.clear()
}

func (s *State) unsubscribe(id string, out []Effect) []Effect {
	sub := s.sub(id)
	if sub == nil {
		return out
	}
	if sub.session != 0 {
		out = append(out, Effect{Kind: Ended, Session: sub.session})
	}
	s.detach(sub)
	delete(s.byID, id)
	s.subs = slices.DeleteFunc(s.subs, func(x *subscription) bool { return x == sub })
	s.turn = 0
	return out
}

// settle takes effect only on the very delivery that is open: an old settle never hits another message.
func (s *State) settle(c Command, out []Effect) []Effect {
	e := Effect{Kind: Stale, Session: c.Session, Offset: c.Offset, Attempt: c.Attempt}
	sub := s.sub(c.Subscription)
	if sub == nil {
		return append(out, e)
	}
	attempt, open := sub.open.get(c.Offset)
	if !open || attempt != c.Attempt {
		return append(out, e)
	}
	m, present := s.present.get(c.Offset)
	if !present {
		panic("bug: queue: an open delivery of a message that is not present")
	}
	if m.ref.Term != c.Term {
		return append(out, e)
	}
	e.Kind = Settled
	out = append(out, e)
	sub.open.del(c.Offset)
	s.counts.Unsettled--
	switch c.Verb {
	case Release:
		s.counts.Released++
		s.returned.put(c.Offset, attempt)
		return out
	case Accept:
		s.counts.Accepted++
	case Reject:
		s.counts.Rejected++
	}
	s.present.remove(c.Offset)
	s.leave(m.slot, 1)
	return append(out, freed(m.ref))
}

// assign hands out messages, lowest offset first, in turn to those with credit, up to AssignMax.
func (s *State) assign(out []Effect) []Effect {
	for n := 0; n < AssignMax && !s.idle && s.present.count > s.counts.Unsettled; n++ {
		i, ok := s.taker()
		if !ok {
			s.idle = true
			return out
		}
		offset, attempt, m := s.take()
		sub := s.subs[i]
		s.turn = (i + 1) % len(s.subs)
		sub.delivered++
		sub.open.put(offset, attempt)
		s.counts.Unsettled++
		out = append(out, Effect{
			Kind: Assigned, Session: sub.session, Offset: offset, Attempt: attempt, Term: m.ref.Term,
			Ref: m.ref, Large: m.large, Length: m.length, Producer: s.named(m.slot), Seq: m.seq,
		})
	}
	return out
}

// Behind says that a message waits which a subscription takes: any command but those of producers goes on assigning,
// also one that names nothing, as Continue does.
func (s *State) Behind() bool {
	if s.idle || s.present.count == s.counts.Unsettled {
		return false
	}
	_, takes := s.taker()
	return takes
}

// Continue is the command that does nothing but assign: credit for nobody.
func Continue() Command { return Command{Kind: Grant} }

// Continues says whether c is what Continue gives.
func (c *Command) Continues() bool { return c.Kind == Grant && c.Subscription == "" && c.Session == 0 }

func (s *State) taker() (int, bool) {
	for k := range s.subs {
		if i := (s.turn + k) % len(s.subs); s.subs[i].takes() {
			return i, true
		}
	}
	return 0, false
}

// take returns the lowest message that nobody has; there is one. A returned one is always below the cursor.
func (s *State) take() (offset, attempt uint64, m message) {
	offset, attempt, ok := s.returned.first()
	if ok {
		s.returned.del(offset)
		m, ok = s.present.get(offset)
	} else if offset, m, ok = s.present.next(s.cursor); ok {
		s.cursor = offset + 1
	}
	if !ok {
		panic("bug: queue: a ready message that is not present")
	}
	return offset, attempt + 1, m
}
