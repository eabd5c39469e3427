package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// snapshotVersion is the first byte of every snapshot.
const snapshotVersion = 1

// Snapshot encodes the whole state: its size follows the number of runs, open deliveries and
// subscriptions, not the number of messages. The same state gives the same bytes.
func (s *State) Snapshot() []byte {
	b := []byte{snapshotVersion}
	for _, v := range []uint64{
		s.next, s.cursor, uint64(s.turn),
		s.counts.In, s.counts.Accepted, s.counts.Rejected, s.counts.Released,
	} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(s.present.list)))
	for _, r := range s.present.list {
		for _, v := range []uint64{r.first, r.count, r.ref.Term, r.ref.Seq} {
			b = binary.AppendUvarint(b, v)
		}
		if r.large == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(append(b, 1), uint64(r.large.Length))
		b = append(b, r.large.Digest[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(s.returned.list)))
	for _, o := range s.returned.list {
		b = binary.AppendUvarint(binary.AppendUvarint(b, o), s.attempts[o])
	}
	b = s.appendOpen(b)
	b = binary.AppendUvarint(b, uint64(len(s.subs)))
	for _, sub := range s.subs {
		b = appendText(b, sub.id)
		for _, v := range []uint64{sub.session, sub.limit, sub.delivered} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return b
}

func (s *State) appendOpen(b []byte) []byte {
	keys := make([]uint64, 0, len(s.open))
	for o := range s.open {
		keys = append(keys, o)
	}
	slices.Sort(keys)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, o := range keys {
		b = binary.AppendUvarint(b, o)
		b = appendText(b, s.open[o].sub)
		b = binary.AppendUvarint(b, s.open[o].attempt)
	}
	return b
}

// Restore returns the state that Snapshot encoded. It allocates no more than the bytes warrant.
func Restore(b []byte) (*State, error) {
	if len(b) == 0 || b[0] != snapshotVersion {
		return nil, errors.New("queue: snapshot of an unknown version")
	}
	d := decoder{b: b[1:]}
	s := &State{attempts: map[uint64]uint64{}, open: map[uint64]delivery{}}
	s.next, s.cursor, s.turn = d.uint(), d.uint(), int(d.uint())
	s.counts = Counts{In: d.uint(), Accepted: d.uint(), Rejected: d.uint(), Released: d.uint()}
	for n := d.uint(); n > 0 && d.err == nil; n-- {
		r := run{first: d.uint(), count: d.uint(), ref: Ref{d.uint(), d.uint()}}
		if d.byte() == 1 {
			r.large = &Large{Length: int64(d.uint())}
			copy(r.large.Digest[:], d.take(16))
		}
		s.present.list = append(s.present.list, r)
	}
	for n := d.uint(); n > 0 && d.err == nil; n-- {
		o := d.uint()
		s.returned.list = append(s.returned.list, o)
		s.attempts[o] = d.uint()
	}
	for n := d.uint(); n > 0 && d.err == nil; n-- {
		o := d.uint()
		s.open[o] = delivery{sub: d.text(), attempt: d.uint()}
	}
	for n := d.uint(); n > 0 && d.err == nil; n-- {
		s.subs = append(s.subs, subscription{id: d.text(), session: d.uint(), limit: d.uint(), delivered: d.uint()})
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("bytes left over")
	}
	if d.err != nil {
		return nil, fmt.Errorf("queue: snapshot: %w", d.err)
	}
	for _, open := range s.open {
		if sub := s.sub(open.sub); sub != nil {
			sub.unsettled++
		}
	}
	return s, s.check()
}

// check refuses a state that no history leads to.
func (s *State) check() error {
	var present, last uint64
	for _, r := range s.present.list {
		if r.count == 0 || r.limit() < r.first || r.first < last || r.limit() > s.next || r.large != nil && r.count != 1 {
			return errors.New("queue: snapshot: runs that overlap, are empty or lie beyond the end")
		}
		last = r.limit()
		present += r.count
	}
	if s.counts.In != s.next || present+s.counts.Accepted+s.counts.Rejected != s.counts.In {
		return errors.New("queue: snapshot: in is not present and out by reason")
	}
	for i, o := range s.returned.list {
		if _, open := s.open[o]; open || i > 0 && o <= s.returned.list[i-1] {
			return errors.New("queue: snapshot: a message that came back twice, or is open as well")
		}
		if _, _, ok := s.present.get(o); !ok || o >= s.cursor {
			return errors.New("queue: snapshot: a returned message that is not present")
		}
	}
	for o, d := range s.open {
		if s.sub(d.sub) == nil {
			return errors.New("queue: snapshot: an open delivery to nobody")
		}
		if _, _, ok := s.present.get(o); !ok || o >= s.cursor {
			return errors.New("queue: snapshot: an open delivery of a message that is not present")
		}
	}
	if s.turn < 0 || s.turn > len(s.subs) {
		return errors.New("queue: snapshot: turn beyond the subscriptions")
	}
	return nil
}
