package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/control"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// nodeQueue is one queue on this node: the state machine of its group and the sessions that wait for
// answers. The raftstore.Machine methods run on the group's shard and stand in machine.go.
type nodeQueue struct {
	name    string
	id      raftstore.GroupID
	log     *slog.Logger
	replica uint64 // this node's, as placed
	owned   bool   // has an owner and no group
	group   raftstore.Group
	tags    atomic.Uint64
	changed func(uid uint64) // tells the reconciler; must not block
	spec    atomic.Pointer[control.QueueSpec]
	serves  atomic.Bool // streams may be opened: the registry knows that the queue is here
	closed  atomic.Bool // takes no messages: it is being deleted
	// replicated says that the group is replicated; one with an owner has one replica.
	replicated atomic.Bool
	// settledBefore counts settles before admission stopped, and one more; 0: it did not stop in this life.
	settledBefore atomic.Uint64
	requeued      atomic.Uint64 // deliveries that were open when the streams were ended
	gone          chan struct{} // closed when the queue's sessions must end

	mu        sync.Mutex
	asked     map[uint64]*proposal // guarded by mu; proposed, without an answer
	consumers map[uint64]*consumer // guarded by mu; by session
	streams   int                  // guarded by mu; of producers and consumers
	left      bool                 // guarded by mu; gone is closed
	room      chan struct{}        // guarded by mu; closed when the inbox may have room again
	trouble   error                // guarded by mu; why it takes no messages
	again     []queue.Command      // guarded by mu; they had no room, and are to be proposed again
	retry     bool                 // guarded by mu; a timer runs for them
	reign     *reign               // guarded by mu; nil while this node does not serve the queue
	leader    raftstore.Leader     // guarded by mu; who does, with term
	term      raftstore.Term       // guarded by mu
	turned    chan struct{}        // guarded by mu; closed when any of these three changes

	stateMu sync.Mutex   // held for moments: by Apply, and by who reads
	state   *queue.State // guarded by stateMu; changed by the shard alone

	// owned by the shard
	placed  []*proposal // appended, in order of index, not finished
	settles []settleAnswer
	effects []queue.Effect
	going   bool            // a command that continues assigning is under way
	goingAt raftstore.Index // of its entry; 0: it has none yet
	halted  error           // why nothing will be flushed any more
	reigns  bool            // this node serves the queue
	// as of the last Moved
	applied, flushed, committed raftstore.Index
	held                        [raftstore.MaxVoters]raftstore.Index // of the last Moved in a reign

	late late // proposals that are committed and wait for more replicas
}

func newNodeQueue(
	name string, id raftstore.GroupID, spec control.QueueSpec, log *slog.Logger, changed func(uid uint64),
) *nodeQueue {
	q := &nodeQueue{
		changed: changed,
		name:    name, id: id, log: log.With("queue", name), state: new(queue.State), gone: make(chan struct{}),
		asked: make(map[uint64]*proposal), consumers: make(map[uint64]*consumer),
	}
	q.spec.Store(&spec)
	q.late.clock, q.late.over = systemClock, q.wakeRoom
	return q
}

// admit lets streams in.
func (q *nodeQueue) admit() { q.serves.Store(true) }

// messageMax is the largest body in bytes; nodeMax is the node's own bound.
func (q *nodeQueue) messageMax(nodeMax int64) int64 {
	if m := q.spec.Load().Limits.MessageBytes; m > 0 && m < uint64(nodeMax) {
		return int64(m)
	}
	return nodeMax
}

// begin ends what earlier lives of an owner left attached; the sessions of this one, from first on, are spared however
// late there is room for it. Subscriptions that end with their stream are ended themselves. In a replicated group each
// leader sees to it.
func (q *nodeQueue) begin(first uint64) error {
	if q.replicated.Load() {
		return nil
	}
	var ends []queue.Command
	held := false
	q.read(func(s *queue.State) {
		s.Attachments(func(subscription string, session uint64) {
			held = held || session != 0
			first = max(first, session+1)
			if isEphemeral(subscription) {
				ends = append(ends, queue.Command{Kind: queue.Unsubscribe, Subscription: subscription})
			}
		})
	})
	if r := q.leadership().reign; r != nil && r.sessions.Load() < first {
		r.sessions.Store(first)
	}
	if held { // all at once, before the others: nothing is to be assigned to those that are gone
		ends = append([]queue.Command{{Kind: queue.DetachBelow, Session: first}}, ends...)
	}
	return q.insist(ends)
}

// insist proposes commands that have to get into the log sooner or later. Where there is no room for them
// now, they are proposed again when something else was written, and every againAfter. On an error, such as
// raftstore.ErrReadOnly, it is the next start that sees to them.
func (q *nodeQueue) insist(list []queue.Command) error {
	for len(list) > 0 {
		some := list[:min(len(list), batchItems)]
		items := make([]raftstore.Item, len(some))
		for i := range some {
			items[i].Command = some[i].Append(nil)
		}
		err := q.propose(&proposal{items: len(items), dropped: func(error) { q.postpone(some) }}, items)
		switch {
		case errors.Is(err, raftstore.ErrFull):
			q.postpone(list)
			return nil
		case err != nil:
			return err
		}
		list = list[len(some):]
	}
	return nil
}

// postpone keeps commands to be insisted on again.
func (q *nodeQueue) postpone(list []queue.Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.again = append(q.again, list...)
	if !q.retry {
		q.retry = true
		time.AfterFunc(againAfter, func() {
			q.mu.Lock()
			q.retry = false
			q.mu.Unlock()
			q.insistAgain()
		})
	}
}

// insistAgain proposes once more what had no room. What a group does not take any more, because it is
// read-only or stopped, is left to the next start.
func (q *nodeQueue) insistAgain() {
	q.mu.Lock()
	again := q.again
	q.again = nil
	q.mu.Unlock()
	q.see(q.insist(again))
}

// propose hands items to the group; on nil the proposal will be answered exactly once.
func (q *nodeQueue) propose(p *proposal, items []raftstore.Item) error {
	tag := q.tags.Add(1)
	q.mu.Lock()
	q.asked[tag] = p
	q.mu.Unlock()
	err := q.group.Propose(&raftstore.Batch{Tag: tag, Items: items, Free: p.free})
	if err != nil {
		q.mu.Lock()
		delete(q.asked, tag)
		q.mu.Unlock()
	}
	return err
}

// proposeWaiting is propose, waiting for room in the group's inbox.
func (q *nodeQueue) proposeWaiting(ctx context.Context, pr *proposal, items []raftstore.Item) error {
	for {
		room := q.roomAhead()
		err := q.propose(pr, items)
		if !errors.Is(err, raftstore.ErrFull) {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return raftstore.ErrStopped
		}
	}
}

// ask puts one command into the log and returns its first effect once that is as durable as the queue
// is. The zero Effect is a command without one.
func (q *nodeQueue) ask(ctx context.Context, c queue.Command) (queue.Effect, *wire.Error) {
	type answer struct {
		effect queue.Effect
		err    *wire.Error
	}
	answered := make(chan answer, 1)
	p := &proposal{
		items: 1,
		reply: func(e queue.Effect) { answered <- answer{effect: e} },
		unknown: func(err error) {
			told := &wire.Error{Code: wire.StoreFailed, Detail: clip(err.Error())}
			switch {
			case notLeading(err):
				told = lostLead(err)
			case errors.Is(err, raftstore.ErrUncommitted):
				told = uncommitted(err)
			}
			answered <- answer{err: told}
		},
	}
	p.dropped = func(err error) {
		answered <- answer{err: &wire.Error{Code: refusal(err), Detail: clip(err.Error())}}
	}
	if err := q.proposeWaiting(ctx, p, []raftstore.Item{{Command: c.Append(nil)}}); err != nil {
		return queue.Effect{}, &wire.Error{Code: refusal(err), Detail: clip(err.Error())}
	}
	select {
	case a := <-answered:
		return a.effect, a.err
	case <-ctx.Done():
		return queue.Effect{}, stopping()
	}
}

// why is why it takes no messages, nil if it does.
func (q *nodeQueue) why() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.trouble
}

// read gives the state to f, which must be quick and keep nothing of it but a View.
func (q *nodeQueue) read(f func(*queue.State)) {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	f(q.state)
}

// enter counts a producer's or consumer's stream; false if the queue is on its way out. leave ends it.
func (q *nodeQueue) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left {
		return false
	}
	q.streams++
	return true
}

func (q *nodeQueue) leave() {
	q.mu.Lock()
	q.streams--
	q.mu.Unlock()
}

// disconnect tells every stream of the queue to end, and says whether all have.
func (q *nodeQueue) disconnect() (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.left {
		q.left = true
		close(q.gone)
	}
	return q.streams == 0
}

// deleted is what the streams of a queue are told that goes.
func (q *nodeQueue) deleted() *wire.Error {
	return &wire.Error{Code: wire.QueueDeleted, Detail: "Its name was " + quote(q.name)}
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

func (q *nodeQueue) wakeRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
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

func (q *nodeQueue) consumer(session uint64) *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.consumers[session]
}

// refusal is the code of an error that says that nothing was stored.
func refusal(err error) wire.Code {
	switch {
	case notLeading(err):
		return wire.LedElsewhere
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
