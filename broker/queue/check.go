package queue

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

func (r *Restorer) returnedCount(d *decoder) {
	n := d.uint()
	if d.err == nil {
		r.left, r.first, r.offset = n, true, 0
		r.nextReturned()
	}
}

func (r *Restorer) nextReturned() {
	r.step = (*Restorer).returned
	if r.left == 0 {
		r.step = (*Restorer).subsCount
	}
}

func (r *Restorer) returned(d *decoder) {
	offset, attempts, cause := r.attempt(d)
	if d.err != nil {
		return
	}
	if cause != "" {
		d.fail("a returned message: " + cause)
		return
	}
	r.s.returned.put(offset, attempts)
	r.left--
	r.nextReturned()
}

// attempt reads a message that was assigned, and how often; cause is why it cannot have been.
func (r *Restorer) attempt(d *decoder) (offset, attempts uint64, cause string) {
	gap, attempts := d.uint(), d.uint()
	if d.err != nil {
		return 0, 0, ""
	}
	offset = r.offset + gap
	switch {
	case gap == 0 && !r.first || offset < gap:
		return 0, 0, "the offset does not rise"
	case offset >= r.s.cursor:
		return 0, 0, "it was never assigned"
	case attempts == 0 || attempts > offsetMax:
		return 0, 0, "its attempts cannot be"
	}
	if _, ok := r.s.present.get(offset); !ok {
		return 0, 0, "it is not present"
	}
	r.offset, r.first = offset, false
	return offset, attempts, ""
}

func (r *Restorer) subsCount(d *decoder) {
	n := d.uint()
	switch {
	case d.err != nil:
	case n > SubscriptionsMax:
		d.fail("more subscriptions than a queue has")
	case r.s.turn > 0 && uint64(r.s.turn) >= n:
		d.fail("the turn of a subscription that is not there")
	default:
		r.left = n
		r.nextSub()
	}
}

func (r *Restorer) nextSub() {
	r.step = (*Restorer).sub
	if r.left == 0 {
		r.step, r.ended = (*Restorer).end, true
	}
}

func (r *Restorer) sub(d *decoder) {
	sub := &subscription{id: d.text(), session: d.uint(), limit: d.uint(), delivered: d.uint()}
	n := d.uint()
	switch {
	case d.err != nil:
		return
	case r.s.sub(sub.id) != nil:
		d.fail("two subscriptions of one id")
		return
	case sub.delivered > sub.limit:
		d.fail("a subscription beyond its credit")
		return
	case n > min(sub.delivered, UnsettledMax) || n > 0 && sub.session == 0:
		d.fail("more open deliveries than a subscription has")
		return
	case sub.delivered > 0 && r.s.cursor == 0:
		d.fail("deliveries of a queue that never assigned a message")
		return
	}
	r.s.subscribe(sub)
	r.inner, r.first, r.offset = n, true, 0
	r.left--
	if r.step = (*Restorer).delivery; n == 0 {
		r.nextSub()
	}
}

func (r *Restorer) delivery(d *decoder) {
	offset, attempt, cause := r.attempt(d)
	if d.err != nil {
		return
	}
	if cause != "" {
		d.fail("an open delivery: " + cause)
		return
	}
	r.s.subs[len(r.s.subs)-1].open.put(offset, attempt)
	r.s.counts.Unsettled++
	if r.inner--; r.inner == 0 {
		r.nextSub()
	}
}

func (r *Restorer) end(d *decoder) { d.fail("bytes left over") }

// check refuses a state that no history leads to, as far as its parts do not show it.
func (r *Restorer) check() error {
	s := &r.s
	settled := s.counts.Accepted + s.counts.Rejected
	if s.present.count+settled+s.counts.Purged != s.next {
		return errors.New("what came in is not what is there and what went out by reason")
	}
	if settled+r.below > s.cursor {
		return errors.New("more messages were settled than assigned")
	}
	if s.counts.Released > 0 && s.cursor == 0 {
		return errors.New("a release of a message that was never assigned")
	}
	if uint64(s.returned.len)+s.counts.Unsettled != r.below {
		return errors.New("an assigned message is neither open nor returned, or is both")
	}
	open := s.openOffsets(0, math.MaxUint64)
	for i, d := range open {
		if _, back := s.returned.get(d.offset); back || i > 0 && open[i-1].offset == d.offset {
			return errors.New("a message is under two deliveries, or open and returned")
		}
	}
	return r.checkProducers()
}

// checkProducers holds the outcomes of all producers against each other and against the messages.
func (r *Restorer) checkProducers() error {
	s := &r.s
	type fact struct {
		outcomes
		slot uint64
	}
	var all []fact
	var err error
	s.producers.from(0, func(slot uint64, at **producer) bool {
		if p := *at; p.retired && p.present == 0 {
			err = errors.New("a retired producer without messages")
			return false
		}
		for _, o := range (*at).known {
			all = append(all, fact{o, slot})
		}
		return true
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b fact) int { return cmp.Compare(a.offset, b.offset) })
	for i, f := range all {
		if i > 0 && (all[i-1].offset+all[i-1].count > f.offset || all[i-1].term > f.term) {
			return errors.New("outcomes of several sequences that are one message, or terms that fall")
		}
		for k := range f.count {
			m, ok := s.present.get(f.offset + k)
			if !ok {
				continue
			}
			if m.slot != f.slot || m.seq != f.seq+k || m.ref.Term != f.term {
				return errors.New("an outcome that is another message")
			}
			r.due[f.slot]--
		}
	}
	for _, n := range r.due {
		if n != 0 {
			return errors.New("a message whose sequence is not remembered")
		}
	}
	return nil
}
