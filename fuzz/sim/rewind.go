package main

import "weida/raftstore"

// reopened compares what the log of an owner holds with what was there. After a power cut what was not flushed may be
// gone: only evidence of the level written allows that, and the offsets come again.
func (k *checker) reopened(d *desk) {
	l, end := k.ledger(d.g.id), d.group.Status().Marks.Applied
	cut := l.cut
	l.cut = false
	if end >= l.highest {
		return
	}
	if !cut {
		k.fail("Q2 g%d: entry %d was applied, and after a kill the log ends at %d", d.g.id, l.highest, end)
	}
	k.note("g%d: the log ends at %d, before the power cut it did at %d", d.g.id, end, l.highest)
	for i := end + 1; i <= l.highest; i++ {
		l.lost[entryID{l.entries[i].term, i}] = true
		delete(l.entries, i)
	}
	l.highest = end
	kept := l.acks[:0]
	for _, a := range l.acks {
		switch {
		case a.proof.index <= end:
			kept = append(kept, a)
		case a.proof.flushed:
			k.fail("Q2 g%d: %v was acknowledged as flushed in entry %d, the log ends at %d", d.g.id, a.m, a.proof.index, end)
		}
	}
	l.acks = kept
	l.forget(end)
	for _, p := range k.producers {
		if p.g == d.g {
			p.slot = 0 // written, and not flushed: it may be another's now
		}
	}
}

// forget drops what happened behind the end.
func (l *ledger) forget(end raftstore.Index) {
	for _, offset := range sortedKeys(l.stored) {
		s := l.stored[offset]
		if s.index > end {
			delete(l.stored, offset)
			delete(l.byKey, s.m.key())
			continue
		}
		if s.out > end {
			s.out = 0
		}
		s.attempt = 0 // counted anew by whoever applies it
		s.recount = true
	}
	for _, offset := range sortedKeys(l.settled) {
		if l.settled[offset].index > end {
			delete(l.settled, offset)
		}
	}
	clear(l.sessions)
}
