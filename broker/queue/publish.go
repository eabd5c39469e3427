package queue

import "math"

// limits bound what a queue takes; what is there stays.
type limits struct {
	messages, bytes uint64 // 0: none
	closed          bool
}

func (s *State) publish(c Command, out []Effect) []Effect {
	if c.Length < 0 {
		panic("bug: queue: a body of negative length")
	}
	m := message{ref: c.Body, length: uint64(c.Length), large: c.Large}
	e := Effect{Kind: Refused}
	var p *producer
	if c.Kind == PublishFrom {
		if p = s.producer(c.Slot); p == nil || p.retired {
			e.Reason = UnknownProducer
			return append(out, e, freed(c.Body))
		}
		p.forget(c.Low)
		e.Low = p.low
		i, known := p.find(c.Seq)
		switch {
		case c.Seq < p.low:
			e.Reason = SeqRetired
		case known:
			o := p.known[i]
			e.Kind, e.Offset, e.Term = Duplicate, o.offset+(c.Seq-o.seq), o.term
		case c.Seq-p.low >= SequencesMax || c.Seq > seqMax:
			e.Reason = SeqTooFar
		}
		m.slot, m.seq = c.Slot, c.Seq
	}
	if e.Kind == Refused && e.Reason == 0 {
		e.Reason = s.refusal(m.length)
	}
	if e.Kind == Duplicate || e.Reason != 0 {
		return append(out, e, freed(c.Body))
	}
	offset := s.next
	s.next++
	s.present.add(offset, m)
	if p != nil {
		p.record(c.Seq, offset, c.Body.Term)
		p.present++
	}
	return append(out, Effect{Kind: Published, Offset: offset, Term: c.Body.Term})
}

// refusal says why the queue has no place for a body of n bytes, 0 if it has.
func (s *State) refusal(n uint64) Reason {
	room := uint64(math.MaxUint64)
	if s.limits.bytes > 0 {
		room = s.limits.bytes
	}
	switch {
	case s.limits.closed:
		return Closed
	case s.limits.messages > 0 && s.present.count >= s.limits.messages:
		return Full
	case s.present.bytes > room || n > room-s.present.bytes || room-s.present.bytes-n < MessageCost:
		return Full
	}
	return 0
}

func freed(ref Ref) Effect { return Effect{Kind: Freed, Ref: ref, Count: 1} }

// purge takes out every message that is not under delivery.
func (s *State) purge(c Command, out []Effect) []Effect {
	open := s.openOffsets(0, math.MaxUint64)
	at := len(out)
	out = append(out, Effect{Kind: Purged, Session: c.Session, Left: uint64(len(open))})
	var left messages
	var count uint64
	s.present.stretches(0, func(offset, n uint64, m message) bool {
		for n > 0 {
			take := n
			if len(open) > 0 && open[0].offset < offset+n {
				take = open[0].offset - offset
			}
			if take > 0 {
				count += take
				out = free(out, at+1, m.ref, take)
				s.leave(m.slot, take)
			}
			if take < n {
				left.add(offset+take, m.shift(take))
				open = open[1:]
				take++
			}
			offset, n, m = offset+take, n-take, m.shift(take)
		}
		return true
	})
	out[at].Count = count
	s.counts.Purged += count
	s.present = left
	s.returned.clear()
	return out
}

// free appends Freed for n bodies, joined with the last one if that is behind place from.
func free(out []Effect, from int, ref Ref, n uint64) []Effect {
	if len(out) > from {
		last := &out[len(out)-1]
		if last.Ref.Term == ref.Term && last.Ref.Seq+last.Count == ref.Seq {
			last.Count += n
			return out
		}
	}
	return append(out, Effect{Kind: Freed, Ref: ref, Count: n})
}
