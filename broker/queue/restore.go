package queue

import (
	"errors"
	"fmt"
	"math"
)

// offsetMax is beyond what any queue reaches: a number above it in a snapshot is damage.
const offsetMax = 1 << 62

// Restorer reads a snapshot back. Its bytes come in any pieces; it allocates no more than they warrant. The zero
// value is ready.
type Restorer struct {
	s    State
	step func(*Restorer, *decoder) // reads the next item; it changes nothing if the bytes end within it
	rest []byte                    // of an item that is not whole yet: no more than 200 bytes
	err  error

	left   uint64            // items to come of the list that is being read
	inner  uint64            // of the list within the item
	slot   uint64            // of the producer that is being read
	due    map[uint64]uint64 // by slot: present messages that have to be among its outcomes
	before stretch           // the last one
	below  uint64            // present messages below the cursor
	first  bool              // no offset of this list was read
	offset uint64            // the last one of this list
	ended  bool
}

// Write takes the next bytes. It copies what it keeps. After an error the snapshot is refused.
func (r *Restorer) Write(b []byte) error {
	for len(b) > 0 && r.err == nil {
		n := min(len(b), pieceBytes)
		r.feed(b[:n])
		b = b[n:]
	}
	return r.err
}

func (r *Restorer) feed(b []byte) {
	if len(r.rest) > 0 {
		b = append(r.rest, b...)
	}
	if r.step == nil {
		r.step = (*Restorer).version
	}
	d := decoder{b: b}
	for len(d.b) > 0 {
		at := d.b
		r.step(r, &d)
		if d.err == nil {
			continue
		}
		if errors.Is(d.err, errShort) {
			r.rest = append(r.rest[:0], at...)
			return
		}
		r.err = fmt.Errorf("queue: snapshot: %w", d.err)
		return
	}
	r.rest = r.rest[:0]
}

// Finish says that the snapshot is complete and returns the state, once. A state that no history leads to is refused.
func (r *Restorer) Finish() (*State, error) {
	if r.err != nil {
		return nil, r.err
	}
	err := errShort
	if r.ended {
		err = r.check()
	}
	if err != nil {
		r.err = fmt.Errorf("queue: snapshot: %w", err)
		return nil, r.err
	}
	s := r.s
	*r = Restorer{err: errors.New("queue: snapshot: it was restored before")}
	return &s, nil
}

// Restore returns the state of a snapshot that is in memory.
func Restore(b []byte) (*State, error) {
	var r Restorer
	if err := r.Write(b); err != nil {
		return nil, err
	}
	return r.Finish()
}

func (r *Restorer) version(d *decoder) {
	switch v := d.byte(); {
	case d.err != nil:
	case v != snapshotVersion:
		d.fail(fmt.Sprintf("it is of version %d and this build reads version %d; nothing was read or changed: "+
			"start the build that wrote it", v, snapshotVersion))
	default:
		r.step = (*Restorer).head
	}
}

func (r *Restorer) head(d *decoder) {
	s := State{}
	s.next, s.cursor = d.uint(), d.uint()
	s.counts.Accepted, s.counts.Rejected, s.counts.Purged, s.counts.Released = d.uint(), d.uint(), d.uint(), d.uint()
	s.limits.messages, s.limits.bytes = d.uint(), d.uint()
	s.slotsUsed = d.uint()
	turn := d.uint()
	s.limits.closed = d.bool()
	left := d.uint()
	if d.err != nil {
		return
	}
	if s.next > offsetMax || s.cursor > s.next {
		d.fail("messages beyond the end")
		return
	}
	for _, v := range []uint64{s.counts.Accepted, s.counts.Rejected, s.counts.Purged} {
		if v > s.next {
			d.fail("more went out than came in")
			return
		}
	}
	if turn >= SubscriptionsMax || left > 2*ProducersMax || left > s.slotsUsed || s.slotsUsed > offsetMax {
		d.fail("more subscriptions or producers than a queue has")
		return
	}
	s.turn = int(turn)
	r.s, r.left = s, left
	r.nextProducer()
}

// nextProducer goes on with the messages when there is no producer left.
func (r *Restorer) nextProducer() {
	r.step = (*Restorer).producer
	if r.left == 0 {
		r.step = (*Restorer).stretch
	}
}

func (r *Restorer) producer(d *decoder) {
	slot, p := d.uint(), &producer{gen: r.s.producers.gen}
	p.retired, p.id = d.bool(), d.text()
	n := uint64(0)
	if !p.retired {
		copy(p.identity[:], d.take(len(p.identity)))
		p.low, n = d.uint(), d.uint()
	}
	if d.err != nil {
		return
	}
	_, taken := r.s.slots[p.id]
	switch {
	case slot <= r.slot || slot > r.s.slotsUsed:
		d.fail("a producer's slot that is out of order or was never given")
		return
	case p.id == "" || taken: // of two registrations of one id, the earlier one is retired
		d.fail("a producer without an id of its own")
		return
	case !p.retired && (p.low == 0 || p.low > seqMax || n > SequencesMax || len(r.s.slots) == ProducersMax):
		d.fail("a producer beyond its bounds")
		return
	}
	if !p.retired {
		if r.s.slots == nil {
			r.s.slots = make(map[string]uint64)
		}
		r.s.slots[p.id] = slot
	}
	r.s.producers.put(slot, p)
	r.slot, r.inner = slot, n
	r.left--
	if r.step = (*Restorer).outcomes; n == 0 {
		r.nextProducer()
	}
}

func (r *Restorer) outcomes(d *decoder) {
	o := outcomes{seq: d.uint(), count: d.uint(), offset: d.uint(), term: d.uint()}
	if d.err != nil {
		return
	}
	p := r.s.producer(r.slot)
	switch {
	case o.count == 0 || o.count > SequencesMax || o.seq < p.low || o.seq-p.low > SequencesMax-o.count:
		d.fail("an outcome of a sequence that is not remembered")
		return
	case o.offset >= r.s.next || o.count > r.s.next-o.offset:
		d.fail("an outcome beyond the end")
		return
	}
	if n := len(p.known); n > 0 {
		last := &p.known[n-1]
		end := last.seq + last.count
		if o.seq < end || o.seq == end && o.offset == last.offset+last.count && o.term == last.term {
			d.fail("outcomes that overlap or are not joined")
			return
		}
	}
	p.known = append(p.known, o)
	if r.inner--; r.inner == 0 {
		r.nextProducer()
	}
}

func (r *Restorer) stretch(d *decoder) {
	n, ok := decodeStretch(d, &r.before)
	if d.err != nil {
		return
	}
	if !ok {
		r.step = (*Restorer).returnedCount
		return
	}
	if cause := r.refuse(&n); cause != "" {
		d.fail(cause)
		return
	}
	if n.m.slot != 0 {
		p := r.s.producer(n.m.slot)
		p.present += n.n
		if end := n.m.seq + n.n; !p.retired && end > p.low {
			if r.due == nil {
				r.due = make(map[uint64]uint64)
			}
			r.due[n.m.slot] += min(n.n, end-p.low)
		}
	}
	if n.offset < r.s.cursor {
		r.below += min(n.n, r.s.cursor-n.offset)
	}
	r.s.present.addRun(n.offset, n.n, n.m)
	r.before = n
}

// refuse says why a stretch cannot follow those before, "" if it can.
func (r *Restorer) refuse(n *stretch) string {
	last, m := &r.before, &n.m
	first := last.n == 0
	switch {
	case n.offset < last.offset+last.n || n.offset >= r.s.next || n.n > r.s.next-n.offset:
		return "messages that overlap or lie beyond the end"
	case !first && n.offset == last.offset+last.n && last.m.joins(last.n, *m):
		return "messages of one kind that are not joined"
	case m.ref.Seq+n.n < m.ref.Seq:
		return "refs that do not rise"
	case !first && m.large == nil && last.m.large == nil && m.ref.Term == last.m.ref.Term &&
		m.ref.Seq < last.m.ref.Seq+last.n:
		return "refs that do not rise"
	case m.large != nil && n.n != 1:
		return "several messages with one large body"
	case m.length > math.MaxInt64 || (math.MaxUint64-r.s.present.bytes)/n.n < m.length+MessageCost:
		return "more bytes than can be counted"
	case (m.slot == 0) != (m.seq == 0):
		return "a sequence without a producer or a producer's message without one"
	}
	if m.slot != 0 {
		if _, ok := r.s.producers.get(m.slot); !ok {
			return "a message of a producer that nobody knows"
		}
		if m.seq > seqMax || n.n > seqMax+1-m.seq {
			return "a sequence beyond its bound"
		}
	}
	return ""
}
