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

// Producers counts the producers with an id that are registered.
func (s *State) Producers() int { return len(s.slots) }
