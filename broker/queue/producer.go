package queue

import (
	"slices"
	"sort"
)

const (
	// ProducersMax bounds the registered producers of a queue. As many retired ones again are remembered by name
	// while messages of theirs are in the queue.
	ProducersMax = 10_000
	// SequencesMax bounds how far a producer may be ahead of its lowest sequence without an answer. It is how many
	// messages a producer may have in flight: what it can still ask about is remembered, and no more.
	SequencesMax = 1024
	// seqMax bounds a sequence: one above it is too far, whatever the producer's lowest is.
	seqMax = 1 << 62
)

// producer is one producer id of one registration.
type producer struct {
	gen      uint64 // of the tree of producers: whether a view may see it
	id       string
	identity [32]byte
	retired  bool   // remembered only as the name of messages that are present
	present  uint64 // messages that are in the queue
	low      uint64 // at least 1
	known    []outcomes
}

// outcomes are what became of the sequences [seq, seq+count): messages at [offset, offset+count) of one term.
type outcomes struct {
	seq, count, offset, term uint64
}

// find returns the place of the outcomes that hold seq, or of the first ones behind it.
func (p *producer) find(seq uint64) (int, bool) {
	i := sort.Search(len(p.known), func(i int) bool { return p.known[i].seq+(p.known[i].count-1) >= seq })
	return i, i < len(p.known) && p.known[i].seq <= seq
}

// record notes what became of a sequence that was not known.
func (p *producer) record(seq, offset, term uint64) {
	i, known := p.find(seq)
	if known {
		panic("bug: queue: a second outcome of one sequence")
	}
	if i > 0 {
		if o := &p.known[i-1]; o.seq+o.count == seq && o.offset+o.count == offset && o.term == term {
			o.count++
			return
		}
	}
	// What comes behind was recorded before: its offsets are lower, and it cannot be joined.
	p.known = slices.Insert(p.known, i, outcomes{seq, 1, offset, term})
}

// forget drops what is lower than the producer's lowest sequence without an answer.
func (p *producer) forget(low uint64) {
	if low = min(low, seqMax); low <= p.low {
		return
	}
	p.low = low
	i, in := p.find(low)
	if in {
		o := &p.known[i]
		n := low - o.seq
		o.seq, o.offset, o.count = low, o.offset+n, o.count-n
	}
	if p.known = p.known[i:]; len(p.known) == 0 {
		p.known = nil
	}
}

// next is the sequence behind the highest one that is known or forgotten.
func (p *producer) next() uint64 {
	if n := len(p.known); n > 0 {
		last := p.known[n-1]
		return last.seq + last.count
	}
	return p.low
}

// producer returns the producer in a slot to be changed, nil if there is none.
func (s *State) producer(slot uint64) *producer {
	at := s.producers.edit(slot)
	if at == nil {
		return nil
	}
	if p := *at; p.gen != s.producers.gen {
		q := *p
		q.gen, q.known = s.producers.gen, slices.Clone(p.known)
		*at = &q
	}
	return *at
}

// named returns the id of a message's producer.
func (s *State) named(slot uint64) string {
	if slot == 0 {
		return ""
	}
	p, ok := s.producers.get(slot)
	if !ok {
		panic("bug: queue: a message of a producer that nobody knows")
	}
	return p.id
}

func (s *State) register(c Command, out []Effect) []Effect {
	e := Effect{Kind: Registered, Session: c.Session}
	if slot, ok := s.slots[c.Producer]; ok {
		p, _ := s.producers.get(slot)
		if p.identity != c.Identity {
			e.Kind = Owned
			return append(out, e)
		}
		e.Slot, e.Next, e.Low = slot, p.next(), p.low
		return append(out, e)
	}
	if len(s.slots) >= ProducersMax || s.producers.len >= 2*ProducersMax {
		e.Kind = ProducersFull
		return append(out, e)
	}
	s.slotsUsed++
	p := &producer{gen: s.producers.gen, id: c.Producer, identity: c.Identity, low: 1}
	s.producers.put(s.slotsUsed, p)
	if s.slots == nil {
		s.slots = make(map[string]uint64)
	}
	s.slots[p.id] = s.slotsUsed
	e.Slot, e.Next, e.Low = s.slotsUsed, p.next(), p.low
	return append(out, e)
}

func (s *State) retire(c Command, out []Effect) []Effect {
	e := Effect{Kind: RetiredProducer, Session: c.Session}
	slot, ok := s.slots[c.Producer]
	if !ok {
		return append(out, e)
	}
	p := s.producer(slot)
	if p.identity != c.Identity {
		e.Kind = Owned
		return append(out, e)
	}
	e.Slot = slot
	delete(s.slots, c.Producer)
	p.retired, p.known, p.low, p.identity = true, nil, 0, [32]byte{}
	s.leave(slot, 0)
	return append(out, e)
}

// leave counts n messages of a producer out. A retired one without messages is forgotten.
func (s *State) leave(slot, n uint64) {
	if slot == 0 {
		return
	}
	p := s.producer(slot)
	p.present -= n
	if p.retired && p.present == 0 {
		s.producers.del(slot)
	}
}
