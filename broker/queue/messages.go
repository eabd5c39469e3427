package queue

import "math/bits"

// Ref names a body within the queue's group; the term is that of the message's entry, too.
type Ref struct {
	Term uint64
	Seq  uint64
}

// Large describes a body in a file of its own.
type Large struct {
	Length int64 // bytes
	Digest [16]byte
}

// message is what the queue knows of one message.
type message struct {
	ref    Ref
	length uint64
	slot   uint64 // of its producer, 0 without one
	seq    uint64 // of its producer, 0 without one
	large  *Large
}

// shift is the message n places behind m in a run of one kind.
func (m message) shift(n uint64) message {
	m.ref.Seq += n
	if m.slot != 0 {
		m.seq += n
	}
	return m
}

// joins says whether next may follow the n messages of one kind that start with m.
func (m message) joins(n uint64, next message) bool {
	return m.large == nil && m.shift(n) == next
}

// run is a stretch of messages at offsets [key, key+count), key being its key in the tree. Without cells they are of
// one kind: length and producer are the same, ref and sequence rise with the offset. A large message is a run alone.
type run struct {
	count uint64
	gone  uint64 // how many at the front are out; 0 with cells
	base  message
	cells *cells // of a run of at most blockMax places
}

// has says whether place i is present.
func (r *run) has(i uint64) bool {
	if r.cells != nil {
		return i < r.count && r.cells.live&(1<<i) != 0
	}
	return i >= r.gone && i < r.count
}

// next returns the first present place at or behind i.
func (r *run) next(i uint64) (uint64, bool) {
	if r.cells == nil {
		i = max(i, r.gone)
		return i, i < r.count
	}
	if i >= r.count {
		return 0, false
	}
	live := r.cells.live >> i << i
	return uint64(bits.TrailingZeros64(live)), live != 0
}

// messages is the set of present messages, in order of offset. Adding at the end, finding and taking out anywhere cost
// the logarithm of the number of runs.
type messages struct {
	runs  tree[run]
	count uint64
	bytes uint64 // lengths, and MessageCost for each
}

func (s *messages) freeze() messages {
	c := *s
	c.runs = s.runs.freeze()
	return c
}

// add puts a message behind all others.
func (s *messages) add(offset uint64, m message) {
	s.count++
	s.bytes += m.length + MessageCost
	key, last := s.runs.editLast()
	if last != nil {
		i := offset - key
		if last.cells == nil && i == last.count && last.base.joins(i, m) {
			last.count++
			return
		}
		s.checkOrder(last, m)
		if i < blockMax && m.large == nil && last.base.large == nil && last.base.ref.Term == m.ref.Term {
			last.grow(s.runs.gen, i, m)
			return
		}
		last.seal(s.runs.gen)
	}
	s.runs.put(offset, run{count: 1, base: m})
}

// checkOrder holds what the log promises: terms never fall, and within a term refs of bodies in the log rise.
func (s *messages) checkOrder(last *run, m message) {
	before := last.base.ref
	if last.base.large == nil {
		i := last.count - 1
		if last.cells != nil {
			i = uint64(63 - bits.LeadingZeros64(last.cells.live))
		}
		before = last.at(i).ref
	}
	if m.ref.Term < before.Term || m.large == nil && last.base.large == nil &&
		m.ref.Term == before.Term && m.ref.Seq <= before.Seq {
		panic("bug: queue: a message whose ref is lower than that of the one before it")
	}
}

// addRun puts n messages of one kind behind all others, whatever n is.
func (s *messages) addRun(offset, n uint64, m message) {
	if n <= blockMax {
		for i := range n {
			s.add(offset+i, m.shift(i))
		}
		return
	}
	if _, last := s.runs.editLast(); last != nil {
		last.seal(s.runs.gen)
	}
	s.runs.put(offset, run{count: n, base: m})
	s.count += n
	s.bytes += n * (m.length + MessageCost)
}

// get returns the message at offset.
func (s *messages) get(offset uint64) (message, bool) {
	key, r, ok := s.runs.floor(offset)
	if !ok || !r.has(offset-key) {
		return message{}, false
	}
	return r.at(offset - key), true
}

// next returns the lowest present offset at or above the one given.
func (s *messages) next(offset uint64) (at uint64, m message, ok bool) {
	if key, r, in := s.runs.floor(offset); in {
		if i, in := r.next(offset - key); in {
			return key + i, r.at(i), true
		}
	}
	s.runs.from(offset, func(key uint64, r *run) bool {
		i, _ := r.next(0)
		at, m, ok = key+i, r.at(i), true
		return false
	})
	return at, m, ok
}

// remove takes out a message that is present.
func (s *messages) remove(offset uint64) message {
	key, _, ok := s.runs.floor(offset)
	r, i := s.runs.edit(key), offset-key
	if !ok || !r.has(i) {
		panic("bug: queue: removed a message that is not present")
	}
	m := r.at(i)
	s.count--
	s.bytes -= m.length + MessageCost
	switch {
	case r.cells != nil:
		r.drop(s.runs.gen, i)
		ok = r.cells.live != 0
	case i == r.gone:
		r.gone++
		ok = r.gone < r.count
	case i == r.count-1:
		r.count--
	default:
		s.split(key, i)
	}
	if !ok {
		s.runs.del(key)
	}
	return m
}

// split takes place i out of a run of one kind that goes on at both sides: the offsets around it become a run with
// cells, so that a queue of which every second message is settled does not become a run per message.
func (s *messages) split(key, i uint64) {
	r := s.runs.edit(key)
	whole := *r
	offset := key + i
	first := max(key+whole.gone, offset&^(blockMax-1))
	limit := min(key+whole.count, offset|(blockMax-1)+1)
	live := (^uint64(0) >> (blockMax - (limit - first))) &^ (1 << (offset - first))
	if first > key+whole.gone {
		r.count = first - key
	} else {
		s.runs.del(key)
	}
	s.runs.put(first, run{
		count: limit - first, base: whole.base.shift(first - key),
		cells: &cells{gen: s.runs.gen, kept: live, live: live},
	})
	if end := key + whole.count; limit < end {
		s.runs.put(limit, run{count: end - limit, base: whole.base.shift(limit - key)})
	}
}

// stretches yields the present messages at or above offset, neighbours of one kind together: n messages that start
// with m at offset. The same messages give the same stretches, whatever runs they are in.
func (s *messages) stretches(offset uint64, yield func(offset, n uint64, m message) bool) {
	var first, count uint64
	var head message
	stopped := false
	push := func(o, n uint64, m message) bool {
		if count > 0 && first+count == o && head.joins(count, m) {
			count += n
			return true
		}
		if count > 0 && !yield(first, count, head) {
			stopped = true
			return false
		}
		first, count, head = o, n, m
		return true
	}
	if key, _, ok := s.runs.floor(offset); ok {
		s.runs.from(key, func(key uint64, r *run) bool { return r.stretches(key, offset, push) })
	} else {
		s.runs.from(offset, func(key uint64, r *run) bool { return r.stretches(key, offset, push) })
	}
	if count > 0 && !stopped {
		yield(first, count, head)
	}
}

func (r *run) stretches(key, from uint64, push func(offset, n uint64, m message) bool) bool {
	var start uint64
	if from > key {
		start = from - key
	}
	if r.cells == nil {
		start = max(start, r.gone)
		return start >= r.count || push(key+start, r.count-start, r.at(start))
	}
	for i, ok := r.next(start); ok; i, ok = r.next(i + 1) {
		if !push(key+i, 1, r.at(i)) {
			return false
		}
	}
	return true
}
