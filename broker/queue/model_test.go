package queue

import (
	"maps"
	"slices"
)

// model is a queue as plain maps and lists: what the State has to agree with, effect by effect.
type model struct {
	next     uint64
	messages map[uint64]*modelMessage
	subs     []*modelSub
	turn     int
	counts   Counts

	producers map[string]*modelProducer
	slots     uint64
	limits    limits
}

type modelMessage struct {
	body     Ref
	length   uint64
	large    *Large
	producer string
	seq      uint64
	sub      string // "" when ready
	attempts uint64
}

type modelSub struct {
	id                        string
	session, limit, delivered uint64
}

type modelProducer struct {
	slot, low uint64
	identity  [32]byte
	done      map[uint64]modelDone // by sequence
}

type modelDone struct{ offset, term uint64 }

func newModel() *model {
	return &model{messages: map[uint64]*modelMessage{}, producers: map[string]*modelProducer{}}
}

// apply does one command in the plainest way.
func (m *model) apply(c Command) []Effect {
	var out []Effect
	switch c.Kind {
	case Publish, PublishFrom:
		out = m.publish(c)
	case Register:
		out = []Effect{m.register(c)}
	case Retire:
		out = []Effect{m.retire(c)}
	case Configure:
		m.limits = limits{c.MaxMessages, c.MaxBytes, c.Closed}
	case Purge:
		out = m.purge(c)
	case Attach:
		out = m.attach(c)
	case Detach:
		if sub := m.sub(c.Subscription); sub != nil && sub.session == c.Session {
			m.detach(sub)
		}
	case DetachAll, DetachBelow:
		for _, sub := range m.subs {
			if c.Kind == DetachAll || sub.session < c.Session {
				m.detach(sub)
			}
		}
	case Limit:
		if sub := m.sub(c.Subscription); sub != nil {
			sub.limit = max(sub.limit, c.Limit)
		}
	case Grant:
		if sub := m.sub(c.Subscription); sub != nil && sub.session == c.Session {
			sub.limit = max(sub.limit, c.Limit)
		}
	case Settle:
		out = m.settle(c)
	case Unsubscribe:
		if sub := m.sub(c.Subscription); sub != nil {
			if sub.session != 0 {
				out = append(out, Effect{Kind: Ended, Session: sub.session})
			}
			m.detach(sub)
			m.subs = slices.DeleteFunc(m.subs, func(x *modelSub) bool { return x == sub })
			m.turn = 0
		}
	}
	switch c.Kind {
	case Register, Retire, Configure, Purge: // which let nobody take more
		return out
	}
	return m.assign(out)
}

func (m *model) publish(c Command) []Effect {
	free := Effect{Kind: Freed, Ref: c.Body, Count: 1}
	var id string
	var p *modelProducer
	refused := func(r Reason) []Effect {
		e := Effect{Kind: Refused, Reason: r}
		if p != nil {
			e.Low = p.low
		}
		return []Effect{e, free}
	}
	if c.Kind == PublishFrom {
		for name, x := range m.producers {
			if x.slot == c.Slot {
				id, p = name, x
			}
		}
		if p == nil {
			return refused(UnknownProducer)
		}
		p.low = max(p.low, c.Low)
		maps.DeleteFunc(p.done, func(seq uint64, _ modelDone) bool { return seq < p.low })
		if c.Seq < p.low {
			return refused(SeqRetired)
		}
		if d, ok := p.done[c.Seq]; ok {
			return []Effect{{Kind: Duplicate, Offset: d.offset, Term: d.term, Low: p.low}, free}
		}
		if c.Seq >= p.low+SequencesMax {
			return refused(SeqTooFar)
		}
	}
	switch b := m.books(); {
	case m.limits.closed:
		return refused(Closed)
	case m.limits.messages > 0 && uint64(len(m.messages)) == m.limits.messages,
		m.limits.messages > 0 && uint64(len(m.messages)) > m.limits.messages,
		m.limits.bytes > 0 && b.Bytes+uint64(c.Length)+MessageCost > m.limits.bytes:
		return refused(Full)
	}
	m.messages[m.next] = &modelMessage{
		body: c.Body, length: uint64(c.Length), large: c.Large, producer: id, seq: c.Seq,
	}
	if p != nil {
		p.done[c.Seq] = modelDone{m.next, c.Body.Term}
	}
	m.next++
	return []Effect{{Kind: Published, Offset: m.next - 1, Term: c.Body.Term}}
}

func (m *model) register(c Command) Effect {
	p := m.producers[c.Producer]
	if p == nil {
		m.slots++
		p = &modelProducer{slot: m.slots, low: 1, identity: c.Identity, done: map[uint64]modelDone{}}
		m.producers[c.Producer] = p
	}
	if p.identity != c.Identity {
		return Effect{Kind: Owned, Session: c.Session}
	}
	next := p.low
	for seq := range p.done {
		next = max(next, seq+1)
	}
	return Effect{Kind: Registered, Session: c.Session, Slot: p.slot, Next: next, Low: p.low}
}

func (m *model) retire(c Command) Effect {
	p := m.producers[c.Producer]
	switch {
	case p == nil:
		return Effect{Kind: RetiredProducer, Session: c.Session}
	case p.identity != c.Identity:
		return Effect{Kind: Owned, Session: c.Session}
	}
	delete(m.producers, c.Producer)
	return Effect{Kind: RetiredProducer, Session: c.Session, Slot: p.slot}
}

func (m *model) purge(c Command) []Effect {
	out := []Effect{{Kind: Purged, Session: c.Session}}
	for _, o := range m.offsets() {
		msg := m.messages[o]
		if msg.sub != "" {
			out[0].Left++
			continue
		}
		out[0].Count++
		m.counts.Purged++
		delete(m.messages, o)
		if last := &out[len(out)-1]; last.Kind == Freed && last.Ref.Term == msg.body.Term &&
			last.Ref.Seq+last.Count == msg.body.Seq {
			last.Count++
			continue
		}
		out = append(out, Effect{Kind: Freed, Ref: msg.body, Count: 1})
	}
	return out
}

func (m *model) offsets() []uint64 { return slices.Sorted(maps.Keys(m.messages)) }

func (m *model) sub(id string) *modelSub {
	for _, s := range m.subs {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (m *model) open(id string) (n int) {
	for _, msg := range m.messages {
		if msg.sub == id {
			n++
		}
	}
	return n
}

func (m *model) attach(c Command) (out []Effect) {
	sub := m.sub(c.Subscription)
	if sub == nil {
		sub = &modelSub{id: c.Subscription}
		m.subs = append(m.subs, sub)
	}
	if sub.session != 0 && sub.session != c.Session {
		out = append(out, Effect{Kind: Superseded, Session: sub.session})
	}
	m.detach(sub)
	sub.session, sub.limit = c.Session, max(sub.limit, c.Limit)
	return append(out, Effect{Kind: Attached, Session: c.Session, Delivered: sub.delivered, Limit: sub.limit})
}

func (m *model) detach(s *modelSub) {
	s.session = 0
	for _, msg := range m.messages {
		if msg.sub == s.id {
			msg.sub = ""
		}
	}
}

func (m *model) settle(c Command) []Effect {
	e := Effect{Kind: Stale, Session: c.Session, Offset: c.Offset, Attempt: c.Attempt}
	msg := m.messages[c.Offset]
	if msg == nil || msg.sub == "" || msg.sub != c.Subscription || msg.attempts != c.Attempt || msg.body.Term != c.Term {
		return []Effect{e}
	}
	e.Kind = Settled
	msg.sub = ""
	switch c.Verb {
	case Release:
		m.counts.Released++
		return []Effect{e}
	case Accept:
		m.counts.Accepted++
	case Reject:
		m.counts.Rejected++
	}
	delete(m.messages, c.Offset)
	return []Effect{e, {Kind: Freed, Ref: msg.body, Count: 1}}
}

func (m *model) assign(out []Effect) []Effect {
	n := 0
	for _, o := range m.offsets() {
		if n == AssignMax {
			break
		}
		msg := m.messages[o]
		if msg.sub != "" {
			continue
		}
		var to *modelSub
		for k := range m.subs {
			i := (m.turn + k) % len(m.subs)
			if s := m.subs[i]; s.session != 0 && s.delivered < s.limit && m.open(s.id) < UnsettledMax {
				to, m.turn = s, (i+1)%len(m.subs)
				break
			}
		}
		if to == nil {
			break
		}
		n++
		msg.sub = to.id
		msg.attempts++
		to.delivered++
		out = append(out, Effect{
			Kind: Assigned, Session: to.session, Offset: o, Attempt: msg.attempts, Term: msg.body.Term,
			Ref: msg.body, Large: msg.large, Length: msg.length, Producer: msg.producer, Seq: msg.seq,
		})
	}
	return out
}

// books are the counts, added up anew.
func (m *model) books() Counts {
	c := m.counts
	c.In = m.next
	for _, msg := range m.messages {
		c.Bytes += msg.length + MessageCost
		if msg.sub == "" {
			c.Ready++
		} else {
			c.Unsettled++
		}
	}
	return c
}

func (m *model) peek(from uint64, n int) (list []Message) {
	for _, o := range m.offsets() {
		if msg := m.messages[o]; o >= from && len(list) < n {
			list = append(list, Message{
				Offset: o, Attempt: msg.attempts, Open: msg.sub != "", Ref: msg.body, Large: msg.large,
				Length: msg.length, Producer: msg.producer, Seq: msg.seq,
			})
		}
	}
	return list
}
