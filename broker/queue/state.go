package queue

// State is one queue. The zero value is an empty queue that takes everything.
type State struct {
	next     uint64          // offset of the next message
	present  messages        // every message that is not out
	cursor   uint64          // lowest offset that was never assigned
	returned tree[uint64]    // assigned before, to be assigned again: attempts so far, by offset
	subs     []*subscription // in order of subscribing
	turn     int             // who is asked first at the next assignment

	producers tree[*producer] // by slot; retired ones while messages of theirs are present
	slotsUsed uint64          // highest slot given out

	counts Counts // Ready and Bytes are derived
	limits limits

	// Derived: they are not part of a snapshot, and no output follows their order.
	slots map[string]uint64        // of registered producers, by id
	byID  map[string]*subscription // by id
	idle  bool                     // nobody takes a message until a command says otherwise
}

// Counts returns the books.
func (s *State) Counts() Counts {
	c := s.counts
	c.In, c.Bytes = s.next, s.present.bytes
	c.Ready = s.present.count - c.Unsettled
	return c
}

// Next is the offset that the next message gets.
func (s *State) Next() uint64 { return s.next }

// Bodies yields every body that the state holds, in order of offset.
func (s *State) Bodies(yield func(Ref) bool) {
	s.present.stretches(0, func(_, n uint64, m message) bool {
		for i := range n {
			if !yield(m.shift(i).ref) {
				return false
			}
		}
		return true
	})
}

// Apply does one command and appends its effects to out.
func (s *State) Apply(c Command, out []Effect) []Effect {
	switch c.Kind {
	case Publish, PublishFrom:
		return s.assign(s.publish(c, out))
	case Register:
		return s.register(c, out)
	case Retire:
		return s.retire(c, out)
	case Configure:
		s.limits = limits{c.MaxMessages, c.MaxBytes, c.Closed}
		return out
	case Purge:
		return s.purge(c, out)
	case Attach:
		out = s.attach(c, out)
	case Detach:
		if sub := s.sub(c.Subscription); sub != nil && sub.session == c.Session {
			s.detach(sub)
		}
	case DetachAll, DetachBelow:
		for _, sub := range s.subs {
			if c.Kind == DetachAll || sub.session < c.Session {
				s.detach(sub)
			}
		}
	case Limit, Grant:
		// Who lost the subscription grants no more: its holder does not know of that credit.
		if sub := s.sub(c.Subscription); sub != nil && (c.Kind == Limit || sub.session == c.Session) {
			sub.limit = max(sub.limit, c.Limit)
		}
	case Settle:
		out = s.settle(c, out)
	case Unsubscribe:
		out = s.unsubscribe(c.Subscription, out)
	}
	s.idle = false
	return s.assign(out)
}
