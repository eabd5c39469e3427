package queue

// Limits are what Configure set; 0 is no limit.
type Limits struct {
	MaxMessages uint64
	MaxBytes    uint64 // of bodies, with MessageCost more for each message
	Closed      bool   // takes no messages
}

// Limits returns what the last Configure set.
func (s *State) Limits() Limits {
	return Limits{MaxMessages: s.limits.messages, MaxBytes: s.limits.bytes, Closed: s.limits.closed}
}

// Subscriptions counts the subscriptions, attached or not.
func (s *State) Subscriptions() int { return len(s.subs) }

// Attachments yields the subscriptions, in order of subscribing, with the session that is attached to each;
// 0 is nobody.
func (s *State) Attachments(yield func(subscription string, session uint64)) {
	for _, sub := range s.subs {
		yield(sub.id, sub.session)
	}
}

// Producers counts the producers with an id that are registered.
func (s *State) Producers() int { return len(s.slots) }

// ProducerIn returns the id of the producer that a PublishFrom names by its slot, "" if nobody has that slot any more.
func (s *State) ProducerIn(slot uint64) string {
	if p, ok := s.producers.get(slot); ok {
		return p.id
	}
	return ""
}
