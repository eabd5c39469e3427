package broker

import (
	"fmt"
	"sync"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is what a queue offers and what its entries have reached.

// offer is the strongest evidence the queue can give. Replication is offered by what the queue is, and not by what it
// is to become: one that still has an owner has one replica.
func (q *nodeQueue) offer() wire.Evidence {
	spec := q.spec.Load()
	switch {
	case q.replicated.Load() && spec.Replicas > 1:
		return wire.Replicated(uint32(min(spec.Replicas, raftstore.MaxVoters)), wire.Flushed)
	case q.replicated.Load():
		return wire.Stored(wire.Flushed)
	case spec.Durability == control.Written:
		return wire.Stored(wire.Written)
	}
	return wire.Stored(wire.Flushed)
}

// notOffered says on which axis a want lies beyond the offer, and why.
func notOffered(q *nodeQueue, want wire.Want) *wire.Error {
	offer, why := q.offer(), ""
	switch {
	case want.Replicas > offer.Replicas && offer.Replicas == 1:
		why = "it has one replica, which cannot report Replicated, and falls short in replicas"
	case want.Replicas > offer.Replicas:
		why = fmt.Sprintf("it has %d replicas and falls short in replicas", offer.Replicas)
	default:
		why = "its durability is written, so that it falls short in persistence"
	}
	return &wire.Error{Code: wire.NotOffered, Detail: fmt.Sprintf("Wanted %v, the queue offers up to %v; %s",
		want, offer, why)}
}

// durable is the index up to which commands are as durable as the queue is. What is committed in a replicated group
// is flushed on a majority.
func (q *nodeQueue) durable(m *raftstore.Marks) raftstore.Index {
	if q.replicated.Load() || q.spec.Load().Durability == control.Written {
		return m.Applied
	}
	return m.Flushed
}

// watch takes over what the marks say of evidence. Only a leader knows how many hold an entry; what it knew last
// stays true, because nothing that is committed goes.
func (q *nodeQueue) watch(m *raftstore.Marks) {
	q.applied, q.flushed, q.committed = m.Applied, m.Flushed, max(q.committed, m.Committed)
	if q.reigns {
		q.held = m.Held
	}
}

// reached is the evidence of the applied entry at i as of now: counted here, at its release, and never copied from
// a request (D-10, D-17). The zero value is none: too few have it, or none is known to.
func (q *nodeQueue) reached(i raftstore.Index) wire.Evidence {
	if !q.replicated.Load() {
		if i <= q.flushed {
			return wire.Stored(wire.Flushed)
		}
		return wire.Stored(wire.Written)
	}
	m := raftstore.Marks{Held: q.held}
	switch n := m.HeldBy(i); {
	case n > 1:
		return wire.Replicated(uint32(n), wire.Flushed)
	case n == 1 || i <= q.flushed:
		return wire.Stored(wire.Flushed)
	}
	return wire.Evidence{}
}

// late holds the proposals that are committed, and wait for more replicas than have them. The shard looks at them when
// marks move, and a timer when the first of their times is up.
type late struct {
	clock clock
	over  func() // told by the timer that messages were answered

	mu   sync.Mutex
	list []*proposal // guarded by mu, with what they hold
	stop func() bool // guarded by mu; of the timer; nil while list is empty
	next time.Time   // guarded by mu; when the timer comes
}

// clock is what there is to know of time. Tests have their own.
type clock struct {
	now   func() time.Time
	after func(time.Duration, func()) (stop func() bool)
}

var systemClock = clock{
	now:   time.Now,
	after: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
}

// add takes a proposal that is committed now.
func (l *late) add(p *proposal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.begin(l.clock.now())
	l.list = append(l.list, p)
	l.armUnder()
}

// look answers what has reached its want, and lets go of what has no more to wait for.
func (l *late) look(reached func(raftstore.Index) wire.Evidence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filterUnder(func(p *proposal) bool { return !p.advance(reached(p.index)) })
}

// clear empties the list.
func (l *late) clear() []*proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	l.armUnder()
	return list
}

// expire answers, with what they have by now, the messages whose time is up.
func (l *late) expire() {
	now := l.clock.now()
	l.mu.Lock()
	l.filterUnder(func(p *proposal) bool { return p.due.After(now) || !p.expire(now) })
	l.stop = nil
	l.armUnder()
	l.mu.Unlock()
	l.over()
}

func (l *late) filterUnder(stays func(*proposal) bool) {
	kept := l.list[:0]
	for _, p := range l.list {
		if stays(p) {
			kept = append(kept, p)
		}
	}
	clear(l.list[len(kept):])
	l.list = kept
	if len(kept) == 0 {
		l.list = nil
		l.armUnder()
	}
}

// armUnder makes the timer fit the list, with mu held. One that runs already may come too early, never too late: times
// differ between messages, so that each one added may be the first.
func (l *late) armUnder() {
	if l.stop != nil && (len(l.list) == 0 || l.list[len(l.list)-1].due.Before(l.next)) {
		l.stop()
		l.stop = nil
	}
	if l.stop != nil || len(l.list) == 0 {
		return
	}
	l.next = l.list[0].due
	for _, p := range l.list {
		if p.due.Before(l.next) {
			l.next = p.due
		}
	}
	l.stop = l.clock.after(l.next.Sub(l.clock.now()), l.expire)
}
