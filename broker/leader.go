package broker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is how a queue begins and ends to be served here.

// reign is one time in which this node serves a queue: as its owner, or as the leader of one term.
type reign struct {
	term raftstore.Term
	over chan struct{} // closed at its end
	// sessions is the last session number given out. Its first is above those of everybody who is attached from
	// before: they have no stream here.
	sessions atomic.Uint64
	first    uint64
	absent   *time.Timer // guarded by nodeQueue.mu; takes their deliveries back; nil in an owner's
}

// session returns a number for who attaches, or asks.
func (r *reign) session() uint64 { return r.sessions.Add(1) }

// leadership is what is known of who serves a queue.
type leadership struct {
	reign   *reign // nil: not this node
	leader  raftstore.Leader
	term    raftstore.Term
	changed <-chan struct{} // closed when any of this changes
}

func (q *nodeQueue) leadership() leadership {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turned == nil {
		q.turned = make(chan struct{})
	}
	return leadership{q.reign, q.leader, q.term, q.turned}
}

// Role implements raftstore.Machine.
func (q *nodeQueue) Role(r raftstore.Role, t raftstore.Term, l raftstore.Leader) {
	serves := r == raftstore.Owner || r == raftstore.LeaderRole
	q.replicated.Store(r != raftstore.Owner)
	q.mu.Lock()
	was := q.reign
	q.leader, q.term = l, t
	q.mu.Unlock()
	if was != nil && !(serves && was.term == t) {
		q.depose(was, &raftstore.NotLeaderError{Group: q.id, Leader: l, Term: t}, false)
		was = nil
	}
	if serves && was == nil {
		q.enthrone(t)
	}
	q.turn(nil)
	q.changed(uint64(q.id))
}

// turn tells who waits that leadership changed; f, if not nil, changes it.
func (q *nodeQueue) turn(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if f != nil {
		f()
	}
	if q.turned != nil {
		close(q.turned)
		q.turned = nil
	}
}

// enthrone begins a reign. What a leader before it had attached may come back with its subscription, and go on
// what has not done so after reattachGrace is detached, so that others get its messages.
func (q *nodeQueue) enthrone(t raftstore.Term) {
	r := &reign{term: t, over: make(chan struct{})}
	held, ends := false, []queue.Command(nil)
	first := uint64(t) << 32
	q.read(func(s *queue.State) {
		s.Attachments(func(subscription string, session uint64) {
			held = held || session != 0
			first = max(first, session+1)
			if isEphemeral(subscription) {
				ends = append(ends, queue.Command{Kind: queue.Unsubscribe, Subscription: subscription})
			}
		})
	})
	r.first = first
	r.sessions.Store(first)
	q.turn(func() {
		q.reign = r
		if held && q.replicated.Load() {
			r.absent = time.AfterFunc(reattachGrace, func() { q.detachAbsent(r) })
		}
	})
	q.held, q.reigns = [raftstore.MaxVoters]raftstore.Index{}, true
	if q.replicated.Load() { // an owner's begin sees to it
		q.see(q.insist(ends))
	}
}

// detachAbsent gives back what those had who were attached before a reign and did not come back in time.
func (q *nodeQueue) detachAbsent(r *reign) {
	select {
	case <-r.over:
	default:
		q.see(q.insist([]queue.Command{{Kind: queue.DetachBelow, Session: r.first + 1}}))
	}
}

// see notes that commands did not get into the log. The next leader, or the next start, sees to them.
func (q *nodeQueue) see(err error) {
	if err != nil {
		q.log.Info("consumers left without a trace in the log; the next leader, or the next start, detaches them", "err", err)
	}
}

// depose ends a reign. What has an entry that is not known to be committed may be lost or not: its producers are
// told so, and so are those whose evidence will not grow here any more. Consumers and producers then lose their
// streams, with a redirect where the new leader is known. Nothing more is applied if it is final.
func (q *nodeQueue) depose(r *reign, why *raftstore.NotLeaderError, final bool) {
	q.turn(func() {
		q.reign, q.again = nil, nil
		if r.absent != nil {
			r.absent.Stop()
		}
	})
	q.reigns, q.going, q.goingAt = false, false, 0
	kept := q.placed[:0]
	for _, p := range q.placed {
		switch {
		case p.index <= q.applied && p.to != nil: // an owner's, that waits for its flush
			p.conclude(q.reached(p.index), why)
		case p.index <= q.committed && !final:
			kept = append(kept, p) // it is applied soon, and answered then
		default:
			p.abandon(why)
		}
	}
	clear(q.placed[len(kept):])
	q.placed = kept
	for _, p := range q.late.clear() {
		p.conclude(q.reached(p.index), why)
	}
	close(r.over)
	q.wakeRoom()
}

// notLeading says that an error refuses what only the leader does.
func notLeading(err error) bool {
	var elsewhere *raftstore.NotLeaderError
	return errors.As(err, &elsewhere)
}

// lostLead is how a message ends that was under way when the leadership moved.
func lostLead(why error) *wire.Error {
	detail := "Who leads now is not known here yet"
	var now *raftstore.NotLeaderError
	if errors.As(why, &now) && now.Leader.Node != 0 {
		detail = fmt.Sprintf("Node %d leads it in term %d", uint64(now.Leader.Node), uint64(now.Term))
	}
	return &wire.Error{Code: wire.LeaderChanged, Detail: detail}
}
