package queue

import "slices"

// View is a queue as of one moment. It stays as it is while Apply goes on, and may be read by any goroutine.
type View struct{ s State }

// View returns the state as of now. It costs the number of subscriptions, not of messages; what Apply changes from
// now on is copied once, in pieces of some kilobytes, as long as a view is young.
func (s *State) View() *View {
	v := &View{*s}
	v.s.present, v.s.returned = s.present.freeze(), s.returned.freeze()
	v.s.producers = s.producers.freeze()
	v.s.subs = make([]*subscription, len(s.subs))
	for i, sub := range s.subs {
		c := *sub
		c.open = sub.open.freeze()
		v.s.subs[i] = &c
	}
	v.s.slots, v.s.byID = nil, nil
	return v
}

// Counts returns the books.
func (v *View) Counts() Counts { return v.s.Counts() }

// Next is the offset that the next message gets.
func (v *View) Next() uint64 { return v.s.next }

// Message is a message in the queue.
type Message struct {
	Offset   uint64
	Attempt  uint64 // deliveries so far
	Open     bool   // the last delivery is not settled
	Ref      Ref    // Ref.Term is that of the message's entry
	Large    *Large // nil: the body is inline
	Length   uint64 // of the body in bytes
	Producer string // "" without one
	Seq      uint64 // of the producer, 0 without one
}

// Peek returns the first n messages at or above offset from, in order, fewer if there are no more.
func (v *View) Peek(from uint64, n int) []Message {
	var list []Message
	s := &v.s
	if n <= 0 {
		return nil
	}
	s.present.stretches(from, func(offset, count uint64, m message) bool {
		for i := range count {
			x := m.shift(i)
			list = append(list, Message{
				Offset: offset + i, Ref: x.ref, Large: x.large, Length: x.length, Producer: s.named(x.slot), Seq: x.seq,
			})
			if len(list) == n {
				return false
			}
		}
		return true
	})
	if len(list) == 0 {
		return nil
	}
	open := s.openOffsets(from, list[len(list)-1].Offset)
	for i := range list {
		msg := &list[i]
		if len(open) > 0 && open[0].offset == msg.Offset {
			msg.Attempt, msg.Open = open[0].attempt, true
			open = open[1:]
		} else if msg.Offset < s.cursor {
			msg.Attempt, _ = s.returned.get(msg.Offset)
		}
	}
	return list
}

// delivery is one open delivery.
type delivery struct{ offset, attempt uint64 }

// openOffsets returns the open deliveries from offset first to last, in order.
func (s *State) openOffsets(first, last uint64) []delivery {
	var list []delivery
	for _, sub := range s.subs {
		sub.open.from(first, func(offset uint64, attempt *uint64) bool {
			if offset > last {
				return false
			}
			list = append(list, delivery{offset, *attempt})
			return true
		})
	}
	slices.SortFunc(list, func(a, b delivery) int {
		if a.offset < b.offset {
			return -1
		}
		return 1
	})
	return list
}

// BodyRuns yields the refs of the bodies in the log that the queue holds, as runs of one term: first, and the n-1 that
// follow it.
func (v *View) BodyRuns(yield func(first Ref, n uint64) bool) {
	var first Ref
	var count uint64
	more := true
	v.s.present.stretches(0, func(_, n uint64, m message) bool {
		switch {
		case m.large != nil:
		case count > 0 && m.ref.Term == first.Term && m.ref.Seq == first.Seq+count:
			count += n
		default:
			more = count == 0 || yield(first, count)
			first, count = m.ref, n
		}
		return more
	})
	if more && count > 0 {
		yield(first, count)
	}
}

// LargeBodies yields the bodies in files of their own that the queue holds, in order of offset.
func (v *View) LargeBodies(yield func(Ref, Large) bool) {
	v.s.present.stretches(0, func(_, _ uint64, m message) bool {
		return m.large == nil || yield(m.ref, *m.large)
	})
}
