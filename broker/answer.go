package broker

import (
	"context"
	"errors"

	"weida/broker/wire"
	"weida/raftstore"
)

// This file is what a producer is told.

// drain waits until every message has its answer; false if ctx ends first.
func (p *producer) drain(ctx context.Context) bool {
	for {
		room := p.queue.roomAhead()
		p.mu.Lock()
		n := p.count
		p.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-room:
		case <-p.reign.over: // what has no answer gets none here
			return true
		case <-p.left:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// answered gives the window room for so many messages and bytes.
func (p *producer) answered(count int, bytes int64) {
	p.mu.Lock()
	p.count -= count
	p.bytes -= bytes
	p.mu.Unlock()
}

func (p *producer) wake() { p.out.wake() }

func (p *producer) evidence(e wire.Evidence, r evidenceRun) {
	if r.count == 0 {
		return
	}
	p.answered(int(r.count), r.bytes)
	p.session.node.counters.confirmed(e, r.count)
	f := wire.EvidenceFrame{First: r.first, Count: r.count, Evidence: e}
	if e.Replicas > 0 {
		f.Offset, f.Term = r.offset, r.term
	}
	p.out.evidence(f)
}

func (p *producer) refused(seq uint64, err *wire.Error) {
	p.session.node.counters.refused(err.Code)
	p.out.add(&wire.Refused{Seq: seq, Code: err.Code, Detail: clip(err.Detail)})
	p.wake()
}

func (p *producer) indeterminate(m message, err *wire.Error) {
	p.answered(1, m.size)
	p.session.node.counters.indeterminate.Add(1)
	p.out.add(&wire.Indeterminate{Seq: m.seq, Code: err.Code, Detail: clip(err.Detail)})
}

// below answers a message that is in the queue with less than its want.
func (p *producer) below(m *message, e wire.Evidence, detail string) {
	p.answered(1, m.size)
	p.session.node.counters.below.Add(1)
	p.out.add(&wire.Below{
		Seq: m.seq, Evidence: e, Offset: m.offset, Term: m.term, Code: wire.NotReached, Detail: clip(detail),
	})
}

// heed lets the stream end if an error says that another node leads or will, as it does when the log of a replica has
// failed, or that the replica here was closed while the node goes on.
func (p *producer) heed(err error) {
	failed := p.queue.replicated.Load() && errors.Is(err, raftstore.ErrReadOnly)
	if failed || notLeading(err) || p.session.node.closedHere(err) {
		p.leaving.Do(func() { close(p.left) })
	}
}

// over says that the stream ends because this node does not lead the queue any more.
func (p *producer) over() bool {
	select {
	case <-p.reign.over:
		return true
	case <-p.left:
		return true
	default:
		return false
	}
}

// turnedAway answers a message that the group did not take. Where another node leads, a producer with an id has no
// answer, but the end of its stream, and sends it there.
func (p *producer) turnedAway(m message, err error) {
	if p.heed(err); p.over() && p.slot != 0 {
		return
	}
	p.answered(1, m.size)
	p.refused(m.seq, p.session.told(p.queue, err))
}

// unreceived answers a message whose large body did not come, or was not taken.
func (p *producer) unreceived(m message, err *wire.Error) {
	if p.over() {
		if p.slot != 0 {
			return
		}
		err = p.session.node.away(p.queue) // it was not stored, whoever leads now
	}
	p.answered(1, m.size)
	p.refused(m.seq, err)
}

// dropped answers a proposal of which it is not known whether it has an entry, or that has none. Who wanted no more
// than Accepted has its answer, and a producer with an id has it of the node that leads next.
func (p *producer) dropped(messages []message, o raftstore.Outcome) {
	for _, m := range messages {
		switch {
		case m.want.Replicas == 0:
		case o.Kind == raftstore.Refused:
			p.turnedAway(m, o.Err)
		default:
			if p.heed(o.Err); p.over() && p.slot != 0 {
				continue
			}
			p.indeterminate(m, &wire.Error{Code: wire.StoreFailed, Detail: o.Err.Error()})
		}
	}
	p.wake()
}

func clip(s string) string { return s[:min(len(s), wire.DetailMax)] }
