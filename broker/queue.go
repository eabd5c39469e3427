package broker

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
	"weida/segment"
)

// nodeQueue is one queue on this node: the state machine of its group and the sessions that wait for
// answers. The raftstore.Machine methods run on the group's shard.
type nodeQueue struct {
	name  string
	log   *slog.Logger
	group raftstore.Group
	tags  atomic.Uint64

	mu        sync.Mutex
	asked     map[uint64]*proposal // guarded by mu; proposed, without an answer
	consumers map[uint64]*consumer // guarded by mu; by session
	room      chan struct{}        // guarded by mu; closed when the inbox may have room again

	// owned by the shard
	state   *queue.State
	placed  []*proposal // appended, in order of index, not finished
	settles []settleAnswer
	again   []queue.Command // dropped, and to be proposed again once something else was written
	effects []queue.Effect
}

// proposal is a batch on its way. Its fields but the first three are set by the shard.
type proposal struct {
	items    int
	messages []message // of a producer, one per item; nil for other commands
	to       *producer
	dropped  func(error) // of other commands: it got no entry; nil if nobody minds

	index    raftstore.Index
	term     raftstore.Term
	offset   uint64 // of the first message
	answered bool   // those that want no more than written have their evidence
	lost     bool   // it will not be flushed: the others were told so
}

// message is what a producer waits for.
type message struct {
	seq  uint64
	size int64
	want wire.Want
}

// settleAnswer waits until the settle's entry is flushed.
type settleAnswer struct {
	index raftstore.Index
	to    *consumer
	frame wire.Settled
}

func newNodeQueue(name string, log *slog.Logger) *nodeQueue {
	return &nodeQueue{
		name: name, log: log.With("queue", name), state: new(queue.State),
		asked: make(map[uint64]*proposal), consumers: make(map[uint64]*consumer),
	}
}

// begin ends what earlier lives left attached.
func (q *nodeQueue) begin() error {
	c := queue.Command{Kind: queue.DetachAll}
	return q.insist(c)
}

// insist proposes a command that has to get into the log sooner or later: where there is no room for it
// now, it is proposed again as soon as something else was written.
func (q *nodeQueue) insist(c queue.Command) error {
	return q.propose(q.insisting(c), []raftstore.Item{{Command: c.Append(nil)}})
}

func (q *nodeQueue) insisting(c queue.Command) *proposal {
	return &proposal{items: 1, dropped: func(error) { q.again = append(q.again, c) }}
}

// insistAgain is called on the shard when marks moved: there may be room now.
func (q *nodeQueue) insistAgain() {
	again := q.again
	q.again = nil
	for i, c := range again {
		if err := q.insist(c); err != nil {
			q.again = append(q.again, again[i:]...)
			return
		}
	}
}

// offer is the strongest evidence the queue can give.
func (q *nodeQueue) offer() wire.Evidence { return wire.Stored(wire.Flushed) }

// propose hands items to the group; on nil the proposal will be answered exactly once.
func (q *nodeQueue) propose(p *proposal, items []raftstore.Item) error {
	tag := q.tags.Add(1)
	q.mu.Lock()
	q.asked[tag] = p
	q.mu.Unlock()
	err := q.group.Propose(&raftstore.Batch{Tag: tag, Items: items})
	if err != nil {
		q.mu.Lock()
		delete(q.asked, tag)
		q.mu.Unlock()
	}
	return err
}

// roomAhead returns a channel that is closed when a full inbox is worth trying again.
func (q *nodeQueue) roomAhead() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room == nil {
		q.room = make(chan struct{})
	}
	return q.room
}

func (q *nodeQueue) take(tag uint64) *proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.asked[tag]
	delete(q.asked, tag)
	if p == nil {
		panic("bug: broker: an answer to a proposal that nobody made")
	}
	return p
}

// Attach implements raftstore.Attacher.
func (q *nodeQueue) Attach(g raftstore.Group) { q.group = g }

// Appended implements raftstore.Machine.
func (q *nodeQueue) Appended(tag uint64, t raftstore.Term, i raftstore.Index) {
	p := q.take(tag)
	p.index, p.term = i, t
	q.placed = append(q.placed, p)
}

// Dropped implements raftstore.Machine.
func (q *nodeQueue) Dropped(tag uint64, o raftstore.Outcome) {
	p := q.take(tag)
	if p.to != nil {
		p.to.dropped(p.messages, o)
	}
	if p.dropped != nil {
		p.dropped(o.Err)
	}
	q.wakeRoom()
}

// Apply implements raftstore.Machine.
func (q *nodeQueue) Apply(_ raftstore.Term, i raftstore.Index, items []raftstore.Item) {
	mine := q.placedAt(i)
	for _, item := range items {
		c, err := queue.Decode(item.Command)
		if err != nil {
			// Skipping would let replicas differ. The log holds what this build does not know.
			panic("bug: broker: queue " + q.name + ": " + err.Error())
		}
		if item.HasBody {
			c.Body = queue.Ref{Term: uint64(item.Body.Ref.Term), Seq: item.Body.Ref.Seq}
			if item.Body.Large {
				c.Large = &queue.Large{Length: item.Body.Length, Digest: item.Body.Digest}
			}
		}
		q.effects = q.state.Apply(c, q.effects[:0])
		if len(mine) > 0 {
			mine = mine[0].applied(q.effects, mine)
		}
		q.act(i)
	}
}

// placedAt returns the proposals of this life that make up entry i, as a cursor over their items.
func (q *nodeQueue) placedAt(i raftstore.Index) []cursor {
	var mine []cursor
	for _, p := range q.placed {
		if p.index == i {
			mine = append(mine, cursor{p: p})
		}
	}
	return mine
}

// cursor walks the items of one proposal while its entry is applied.
type cursor struct {
	p    *proposal
	done int
}

// applied gives the next item's effects to its proposal and returns the cursors that are left.
func (c cursor) applied(effects []queue.Effect, all []cursor) []cursor {
	if c.done == 0 && len(effects) > 0 && effects[0].Kind == queue.Published {
		c.p.offset = effects[0].Offset
	}
	c.done++
	if c.done == c.p.items {
		return all[1:]
	}
	all[0] = c
	return all
}

// act passes effects on to the sessions of this life.
func (q *nodeQueue) act(i raftstore.Index) {
	for _, e := range q.effects {
		if e.Kind == queue.Freed {
			for n := range e.Count {
				q.group.Release(raftstore.BodyRef{Term: raftstore.Term(e.Ref.Term), Seq: e.Ref.Seq + n})
			}
			continue
		}
		if e.Session == 0 || e.Kind == queue.Published {
			continue
		}
		c := q.consumer(e.Session)
		if c == nil {
			continue // of an earlier life, or gone: its Detach follows
		}
		switch e.Kind {
		case queue.Settled, queue.Stale:
			f := wire.Settled{Offset: e.Offset, Attempt: e.Attempt}
			if e.Kind == queue.Stale {
				f.Code = wire.StaleSettle
			}
			q.settles = append(q.settles, settleAnswer{i, c, f})
		default:
			c.event(e)
		}
	}
}

func (q *nodeQueue) consumer(session uint64) *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.consumers[session]
}

// Moved implements raftstore.Machine: evidence leaves here, and nowhere else.
func (q *nodeQueue) Moved(m raftstore.Marks) {
	kept := q.placed[:0]
	for _, p := range q.placed {
		if p.index > m.Applied || !p.advance(m) {
			kept = append(kept, p)
		}
	}
	clear(q.placed[len(kept):])
	q.placed = kept
	n := 0
	for n < len(q.settles) && q.settles[n].index <= m.Flushed {
		q.settles[n].to.settled(q.settles[n].frame)
		n++
	}
	q.settles = append(q.settles[:0], q.settles[n:]...)
	q.insistAgain()
	q.wakeRoom()
}

// advance sends what the marks allow and says whether the proposal is finished.
func (p *proposal) advance(m raftstore.Marks) bool {
	flushed := p.index <= m.Flushed
	if p.to == nil || len(p.messages) == 0 {
		return true
	}
	achieved := wire.Stored(wire.Written)
	if flushed {
		achieved = wire.Stored(wire.Flushed)
	}
	for k, msg := range p.messages {
		atWritten := wire.Stored(wire.Written).Covers(msg.want)
		now := achieved.Covers(msg.want) && (!p.answered || !atWritten) && (atWritten || !p.lost)
		if now && msg.want.Replicas > 0 {
			p.to.evidence(msg, achieved, p.offset+uint64(k), uint64(p.term))
		}
	}
	p.answered = true
	p.to.wake()
	return flushed || p.lost
}

func (q *nodeQueue) wakeRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// Halted implements raftstore.Halter: nothing will be flushed any more, so who waits for it learns
// that it is unknown.
func (q *nodeQueue) Halted(err error) {
	q.log.Error("queue is read-only", "err", err)
	for _, p := range q.placed {
		p.lost = true
		if p.to == nil {
			continue
		}
		for _, msg := range p.messages {
			if !wire.Stored(wire.Written).Covers(msg.want) {
				p.to.indeterminate(msg, wire.StoreFailed, err.Error())
			}
		}
		p.to.wake()
	}
	for _, s := range q.settles {
		s.frame.Code = wire.StoreFailed
		s.to.settled(s.frame)
	}
	q.settles = nil
	q.wakeRoom()
}

// Role implements raftstore.Machine.
func (q *nodeQueue) Role(raftstore.Role, raftstore.Term, raftstore.Leader) {}

// Bodies implements raftstore.Holder.
func (q *nodeQueue) Bodies(yield func(raftstore.BodyRef) bool) {
	q.state.Bodies(func(r queue.Ref) bool {
		return yield(raftstore.BodyRef{Term: raftstore.Term(r.Term), Seq: r.Seq})
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

// Snapshot implements raftstore.Machine.
func (q *nodeQueue) Snapshot() raftstore.Source { return snapshot{q.state.View()} }

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
	q.state = state
	return nil
}

// commit names a body for OpenBody: an inline one by its ref alone.
func commit(e queue.Effect) segment.Commit {
	c := segment.Commit{Ref: segment.BodyRef{Term: segment.Term(e.Ref.Term), Seq: e.Ref.Seq}, Length: -1}
	if e.Large != nil {
		c.Large, c.Length, c.Digest = true, e.Large.Length, e.Large.Digest
	}
	return c
}

// refusal is the code of an error that says that nothing was stored.
func refusal(err error) wire.Code {
	switch {
	case errors.Is(err, raftstore.ErrDiskFull):
		return wire.DiskFull
	case errors.Is(err, raftstore.ErrReadOnly):
		return wire.ReadOnly
	case errors.Is(err, raftstore.ErrStopped):
		return wire.Stopping
	case errors.Is(err, raftstore.ErrTooLarge):
		return wire.TooLarge
	case errors.Is(err, raftstore.ErrFull):
		return wire.Overloaded
	}
	return wire.StoreRefused
}
