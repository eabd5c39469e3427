package broker

import (
	"io"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
	"weida/segment"
)

// Attach implements raftstore.Attacher.
func (q *nodeQueue) Attach(g raftstore.Group) { q.group = &attached{g, q} }

// attached is a queue's group, whose end is the end of its reign.
type attached struct {
	raftstore.Group
	queue *nodeQueue
}

// Stop implements raftstore.Group. What has no answer by then gets none from the group: it may be led elsewhere.
func (a *attached) Stop() {
	a.Group.Stop()
	q := a.queue
	if l := q.leadership(); l.reign != nil {
		q.depose(l.reign, &raftstore.NotLeaderError{Group: q.id, Term: l.term}, true)
	}
}

// Appended implements raftstore.Machine.
func (q *nodeQueue) Appended(tag uint64, t raftstore.Term, i raftstore.Index) {
	p := q.take(tag)
	p.index, p.term = i, t
	if !q.reigns { // an owner's first, or too late
		p.abandon(&raftstore.NotLeaderError{Group: q.id, Term: t})
		return
	}
	q.placed = append(q.placed, p)
}

// Dropped implements raftstore.Machine.
func (q *nodeQueue) Dropped(tag uint64, o raftstore.Outcome) {
	p := q.take(tag)
	if p.to != nil {
		p.to.dropped(p.messages, o)
	}
	switch {
	case o.Kind != raftstore.Refused && p.unknown != nil:
		p.unknown(o.Err)
	case p.dropped != nil:
		p.dropped(o.Err)
	}
	q.wakeRoom()
}

// Apply implements raftstore.Machine.
func (q *nodeQueue) Apply(t raftstore.Term, i raftstore.Index, items []raftstore.Item) {
	mine := q.placedAt(t, i)
	for _, item := range items {
		c, err := queue.Decode(item.Command)
		if err != nil {
			// Skipping would let replicas differ. The log holds what this build does not know.
			panic("bug: broker: queue " + q.name + ": " + err.Error())
		}
		if item.HasBody {
			c.Body = queue.Ref{Term: uint64(item.Body.Ref.Term), Seq: item.Body.Ref.Seq}
			c.Length = item.Body.Length
			if item.Body.Large {
				c.Large = &queue.Large{Length: item.Body.Length, Digest: item.Body.Digest}
			}
		}
		q.stateMu.Lock()
		q.effects = q.state.Apply(c, q.effects[:0])
		q.stateMu.Unlock()
		mine.applied(q.effects)
		q.act(i)
		if c.Continues() {
			q.goingAt = i
		}
	}
	clear(q.effects)
	if cap(q.effects) > keptMax {
		q.effects = nil
	}
}

// cursor walks the items of this life's proposals while their entry is applied.
type cursor struct {
	list []*proposal
	done int // items of the first one
}

// placedAt returns the proposals of this life that make up entry i of term t: those at the end of placed.
func (q *nodeQueue) placedAt(t raftstore.Term, i raftstore.Index) cursor {
	from, limit := 0, len(q.placed)
	for limit > 0 && q.placed[limit-1].index > i {
		limit--
	}
	for from = limit; from > 0 && q.placed[from-1].index == i && q.placed[from-1].term == t; from-- {
	}
	return cursor{list: q.placed[from:limit]}
}

func (c *cursor) applied(effects []queue.Effect) {
	if len(c.list) == 0 {
		return
	}
	p := c.list[0]
	p.applied(c.done, effects)
	if c.done++; c.done == p.items {
		c.list, c.done = c.list[1:], 0
	}
}

// act passes effects on to the sessions of this life.
func (q *nodeQueue) act(i raftstore.Index) {
	for _, e := range q.effects {
		switch e.Kind {
		case queue.Freed:
			for k := range e.Count {
				q.group.Release(raftstore.BodyRef{Term: raftstore.Term(e.Ref.Term), Seq: e.Ref.Seq + k})
			}
		case queue.Settled, queue.Stale:
			c := q.consumer(e.Session)
			if c == nil {
				continue // of an earlier life, or gone: its Detach follows
			}
			f := wire.Settled{Offset: e.Offset, Attempt: e.Attempt}
			if e.Kind == queue.Stale {
				f.Code = wire.StaleSettle
			}
			q.settles = append(q.settles, settleAnswer{i, c, f})
		case queue.Attached, queue.Superseded, queue.Ended, queue.Assigned, queue.Crowded:
			if c := q.consumer(e.Session); c != nil {
				c.event(e)
			}
		default: // the answer to a proposal, which has it by now
		}
	}
}

// Moved implements raftstore.Machine: evidence leaves here, or, when its time is up, from the timer of late, and
// nowhere else.
func (q *nodeQueue) Moved(m raftstore.Marks) {
	q.watch(&m)
	durable := q.durable(&m)
	kept := q.placed[:0]
	for _, p := range q.placed {
		if p.index > m.Applied || !q.answer(p, durable) {
			kept = append(kept, p)
		}
	}
	clear(q.placed[len(kept):])
	q.placed = kept
	q.late.look(q.reached)
	n := 0
	for n < len(q.settles) && q.settles[n].index <= durable {
		q.settles[n].to.settled(q.settles[n].frame)
		n++
	}
	q.settles = behind(q.settles, n)
	q.giveUp()
	q.insistAgain()
	q.goOn(durable)
	q.wakeRoom()
	if q.closed.Load() && q.drained().Left == 0 {
		q.changed(uint64(q.id))
	}
}

// answer gives an applied proposal the answers that it can have now, and says whether placed may let go of it.
func (q *nodeQueue) answer(p *proposal, durable raftstore.Index) (done bool) {
	switch {
	case p.to == nil && p.reply == nil:
		return true
	case p.to == nil:
		if p.index <= durable {
			p.reply(p.first)
		}
		return p.index <= durable
	case p.advance(q.reached(p.index)):
		return true
	case !q.replicated.Load():
		return false // its flush comes, or the group halts
	case !q.reigns:
		l := q.leadership()
		p.conclude(q.reached(p.index), &raftstore.NotLeaderError{Group: q.id, Leader: l.leader, Term: l.term})
		return true
	}
	q.late.add(p)
	return true
}

// goOn asks for the next assignments where one command did not make all of them. One is asked for at a time, and the
// next when it is durable: a subscription that takes all there is, and gives it back, must leave the shard to other
// queues, and whoever settles what it gets has more assigned by that.
func (q *nodeQueue) goOn(durable raftstore.Index) {
	if q.going && q.goingAt > 0 && q.goingAt <= durable {
		q.going, q.goingAt = false, 0
	}
	// Before it serves, whoever is attached is of an earlier life and gone.
	if q.going || q.halted != nil || !q.reigns || !q.serves.Load() || !q.state.Behind() {
		return
	}
	q.going = true
	if err := q.insist([]queue.Command{queue.Continue()}); err != nil {
		q.going = false // nothing is assigned on a queue that takes no entries
	}
}

// keptMax is how many places a list of the shard keeps for its next use.
const keptMax = 1024

// behind moves what lies behind the first n to the front. What was before it is let go: its consumer may be
// gone, and nothing may come here for long.
func behind(list []settleAnswer, n int) []settleAnswer {
	left := copy(list, list[n:])
	clear(list[left:])
	if left == 0 && cap(list) > keptMax {
		return nil
	}
	return list[:left]
}

// Halted implements raftstore.Halter: nothing will be flushed any more, so who waits for it learns
// that it is unknown.
func (q *nodeQueue) Halted(err error) {
	q.log.Error("queue is read-only", "err", err)
	q.mu.Lock()
	q.trouble = err
	q.mu.Unlock()
	q.halted = err
	q.giveUp()
	if l := q.leadership(); l.reign != nil && q.replicated.Load() { // who leads next goes on with it
		q.turn(func() { q.leader = raftstore.Leader{} })
		q.depose(l.reign, &raftstore.NotLeaderError{Group: q.id, Term: l.term}, true)
	}
	q.wakeRoom()
	q.changed(uint64(q.id))
}

// giveUp answers, once the group has halted, what is applied and waits for a flush. An entry may have been
// written in the very round in which the group halts: it is applied after Halted, and answered then.
func (q *nodeQueue) giveUp() {
	if q.halted == nil || q.replicated.Load() {
		return
	}
	kept := q.placed[:0]
	for _, p := range q.placed {
		if p.index > q.applied {
			kept = append(kept, p)
			continue
		}
		p.lose(q.halted)
	}
	clear(q.placed[len(kept):])
	q.placed = kept
	for _, s := range q.settles {
		s.frame.Code = wire.StoreFailed
		s.to.settled(s.frame)
	}
	q.settles = nil
}

// Overdue implements raftstore.Waiter.
func (q *nodeQueue) Overdue(last raftstore.Index, why error) {
	for _, p := range q.placed {
		if p.index > q.committed && p.index <= last {
			p.overdue(why)
		}
	}
	q.wakeRoom()
}

// Bodies implements raftstore.Holder.
func (q *nodeQueue) Bodies(yield func(raftstore.BodyRef) bool) {
	q.state.Bodies(func(r queue.Ref) bool {
		return yield(bodyRef(r))
	})
}

// snapshot is the state as of one moment.
type snapshot struct{ view *queue.View }

func (s snapshot) WriteTo(w io.Writer) (written int64, err error) {
	s.view.Pieces(func(b []byte) bool {
		var n int
		n, err = w.Write(b)
		written += int64(n)
		return err == nil
	})
	return written, err
}

// Bodies implements raftstore.BodySource.
func (s snapshot) Bodies(yield func(first raftstore.BodyRef, n uint64) bool) {
	s.view.BodyRuns(func(first queue.Ref, n uint64) bool { return yield(bodyRef(first), n) })
}

// LargeBodies implements raftstore.BodySource.
func (s snapshot) LargeBodies(yield func(segment.Commit) bool) {
	s.view.LargeBodies(func(r queue.Ref, large queue.Large) bool { return yield(commit(r, &large)) })
}

// Snapshot implements raftstore.Machine.
func (q *nodeQueue) Snapshot() (s raftstore.Source) {
	q.read(func(state *queue.State) { s = snapshot{state.View()} })
	return s
}

// restorer reads a snapshot back from what is written to it.
type restorer struct{ queue.Restorer }

func (r *restorer) Write(b []byte) (int, error) {
	if err := r.Restorer.Write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Restore implements raftstore.Machine.
func (q *nodeQueue) Restore(s raftstore.Source) error {
	var r restorer
	if _, err := s.WriteTo(&r); err != nil {
		return err
	}
	state, err := r.Finish()
	if err != nil {
		return err
	}
	q.stateMu.Lock()
	q.state = state
	q.stateMu.Unlock()
	return nil
}

var _ raftstore.BodySource = snapshot{}

func bodyRef(r queue.Ref) raftstore.BodyRef {
	return raftstore.BodyRef{Term: segment.Term(r.Term), Seq: r.Seq}
}

// commit names a body for OpenBody: an inline one by its ref alone.
func commit(r queue.Ref, large *queue.Large) segment.Commit {
	c := segment.Commit{Ref: bodyRef(r), Length: -1}
	if large != nil {
		c.Large, c.Length, c.Digest = true, large.Length, large.Digest
	}
	return c
}
