package queue

import "encoding/binary"

// snapshotVersion is the first byte of every snapshot.
const snapshotVersion = 2

// pieceBytes is about how large the pieces of a snapshot are.
const pieceBytes = 32 << 10

// A snapshot is, after its version: numbers (see head), then lists. Numbers are uvarints in their shortest form.
//
//	producers   count, each: slot, retired, id; if it is not retired: identity, low, number of outcomes, each:
//	            seq, count, offset, term
//	messages    stretches of one kind, each the ways in which it differs from the one before (see flags); a zero byte
//	returned    count, each: offset less the offset before, attempts
//	subs        count, each: id, session, limit, delivered, count of open deliveries, each: as returned
//
// What can be derived is not in it. The same state gives the same bytes, however it came about.

// The flags of a stretch: what it says of itself beside them. The rest is as the stretch before would go on.
const (
	hasStretch = 1 << iota // always set: zero ends the list
	hasGap                 // the offset, less the limit of the stretch before
	hasCount               // the count, less one
	hasRest                // a byte with restTerm or restLarge
	hasRef                 // the ref's sequence, a difference
	hasLength
	hasSlot
	hasSeq // the producer's sequence, a difference

	restTerm  = 1 << 0 // the term, less the one before; the ref's sequence is then a difference from zero
	restLarge = 1 << 1 // the digest of a large body
)

// Pieces yields the snapshot in pieces, which are valid during the call only, until yield returns false. Its memory is
// bounded, whatever the size of the state.
func (v *View) Pieces(yield func([]byte) bool) {
	w := &pieces{yield: yield}
	w.head(&v.s)
	w.producers(&v.s)
	w.messages(&v.s)
	w.returned(&v.s)
	w.subs(&v.s)
	if !w.done && len(w.b) > 0 {
		yield(w.b)
	}
}

// Snapshot returns the whole snapshot at once.
func (s *State) Snapshot() []byte {
	var b []byte
	(&View{*s}).Pieces(func(piece []byte) bool {
		b = append(b, piece...)
		return true
	})
	return b
}

// pieces gathers bytes until there are enough to yield.
type pieces struct {
	b     []byte
	yield func([]byte) bool
	done  bool // yield wants no more
}

// more yields what has gathered if it is enough, and says whether to go on.
func (w *pieces) more() bool {
	if len(w.b) >= pieceBytes && !w.done {
		w.done = !w.yield(w.b)
		w.b = w.b[:0]
	}
	return !w.done
}

func (w *pieces) head(s *State) {
	w.b = append(w.b, snapshotVersion)
	w.b = appendNumbers(w.b,
		s.next, s.cursor, s.counts.Accepted, s.counts.Rejected, s.counts.Purged, s.counts.Released,
		s.limits.messages, s.limits.bytes, s.slotsUsed, uint64(s.turn))
	w.b = appendBool(w.b, s.limits.closed)
}

func (w *pieces) producers(s *State) {
	w.b = binary.AppendUvarint(w.b, uint64(s.producers.len))
	s.producers.from(0, func(slot uint64, at **producer) bool {
		p := *at
		w.b = binary.AppendUvarint(w.b, slot)
		w.b = appendText(appendBool(w.b, p.retired), p.id)
		if p.retired {
			return w.more()
		}
		w.b = append(w.b, p.identity[:]...)
		w.b = appendNumbers(w.b, p.low, uint64(len(p.known)))
		for _, o := range p.known {
			w.b = appendNumbers(w.b, o.seq, o.count, o.offset, o.term)
			w.more()
		}
		return w.more()
	})
}

func (w *pieces) messages(s *State) {
	var last stretch
	s.present.stretches(0, func(offset, n uint64, m message) bool {
		next := stretch{offset, n, m}
		w.b = next.append(w.b, &last)
		last = next
		return w.more()
	})
	w.b = append(w.b, 0)
}

func (w *pieces) returned(s *State) {
	w.b = binary.AppendUvarint(w.b, uint64(s.returned.len))
	w.attempts(&s.returned)
}

func (w *pieces) attempts(t *tree[uint64]) {
	last := uint64(0)
	t.from(0, func(offset uint64, attempts *uint64) bool {
		w.b = appendNumbers(w.b, offset-last, *attempts)
		last = offset
		return w.more()
	})
}

func (w *pieces) subs(s *State) {
	w.b = binary.AppendUvarint(w.b, uint64(len(s.subs)))
	for _, sub := range s.subs {
		w.b = appendText(w.b, sub.id)
		w.b = appendNumbers(w.b, sub.session, sub.limit, sub.delivered, uint64(sub.open.len))
		w.attempts(&sub.open)
		if !w.more() {
			return
		}
	}
}

// stretch is n messages of one kind in a snapshot, of which m is the first.
type stretch struct {
	offset, n uint64
	m         message
}

// ahead is the message behind the stretch, if it goes on.
func (s *stretch) ahead() message { return s.m.shift(s.n) }

// append encodes the stretch behind dst, given the one before, the zero one at first.
func (s *stretch) append(dst []byte, before *stretch) []byte {
	at, m, ahead := len(dst), &s.m, before.ahead()
	dst = append(dst, hasStretch)
	set := func(flag byte) { dst[at] |= flag }
	if gap := s.offset - (before.offset + before.n); gap > 0 {
		set(hasGap)
		dst = binary.AppendUvarint(dst, gap)
	}
	if s.n > 1 {
		set(hasCount)
		dst = binary.AppendUvarint(dst, s.n-1)
	}
	if rest := s.rest(before); rest != 0 {
		set(hasRest)
		dst = append(dst, rest)
		if rest&restTerm != 0 {
			dst = binary.AppendUvarint(dst, m.ref.Term-before.m.ref.Term)
			ahead.ref.Seq = 0
		}
		if rest&restLarge != 0 {
			dst = append(dst, m.large.Digest[:]...)
		}
	}
	if d := m.ref.Seq - ahead.ref.Seq; d != 0 {
		set(hasRef)
		dst = appendInt(dst, d)
	}
	if m.length != ahead.length {
		set(hasLength)
		dst = binary.AppendUvarint(dst, m.length)
	}
	if m.slot != ahead.slot {
		set(hasSlot)
		dst = binary.AppendUvarint(dst, m.slot)
	}
	if d := m.seq - ahead.seq; d != 0 {
		set(hasSeq)
		dst = appendInt(dst, d)
	}
	return dst
}

func (s *stretch) rest(before *stretch) (rest byte) {
	if s.m.ref.Term != before.m.ref.Term {
		rest |= restTerm
	}
	if s.m.large != nil {
		rest |= restLarge
	}
	return rest
}

// decodeStretch reads a stretch; ok is false at the end of the list.
func decodeStretch(d *decoder, before *stretch) (s stretch, ok bool) {
	flags := d.byte()
	if flags&hasStretch == 0 {
		if flags != 0 {
			d.fail("an undefined flag")
		}
		return s, false
	}
	differs := func(v uint64) uint64 {
		if v == 0 {
			d.fail("a difference that is none")
		}
		return v
	}
	ahead := before.ahead()
	s.offset, s.n, s.m = before.offset+before.n, 1, ahead
	s.m.large = nil
	if flags&hasGap != 0 {
		s.offset += differs(d.uint())
	}
	if flags&hasCount != 0 {
		s.n += differs(d.uint())
	}
	if flags&hasRest != 0 {
		s.decodeRest(d, before)
	}
	if flags&hasRef != 0 {
		s.m.ref.Seq += differs(d.int())
	}
	if flags&hasLength != 0 {
		v := d.uint()
		differs(v - ahead.length)
		s.m.length = v
	}
	if flags&hasSlot != 0 {
		v := d.uint()
		differs(v - ahead.slot)
		s.m.slot = v
	}
	if flags&hasSeq != 0 {
		s.m.seq += differs(d.int())
	}
	if s.m.large != nil {
		s.m.large.Length = int64(s.m.length)
	}
	return s, d.err == nil
}

func (s *stretch) decodeRest(d *decoder, before *stretch) {
	rest := d.byte()
	if d.err == nil && (rest == 0 || rest > restTerm|restLarge) {
		d.fail("an undefined flag")
	}
	if rest&restTerm != 0 {
		v := d.uint()
		if d.err == nil && (v == 0 || before.m.ref.Term+v < v) {
			d.fail("a term that does not rise")
		}
		s.m.ref.Term += v
		s.m.ref.Seq = 0
	}
	if rest&restLarge != 0 {
		s.m.large = new(Large)
		copy(s.m.large.Digest[:], d.take(len(s.m.large.Digest)))
	}
}
