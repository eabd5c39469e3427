package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// plan is what becomes of the queues of one name.
type plan int

const (
	steady plan = iota // it stays as it is
	moved              // its replicas get more, fewer, and go to other nodes
	reborn             // it is deleted and made again
	brief              // the same, after few messages: one order of all that was done is looked for (rule Q12)
)

// slot is a name at which queues come and go.
type slot struct {
	name string
	plan plan
	most int // replicas

	moving atomic.Bool // a change of its replicas is on its way

	mu   sync.Mutex
	now  *queue // guarded by mu; nil while there is none that anybody may use
	last uint64 // guarded by mu; uid of the last one
	// deleted is the uid of the last one that was told to be gone; of who deletes.
	deleted uint64

	users int // guarded by mu; sessions of producers and consumers
	idle  *sync.Cond
}

// queue is one queue. What is made again under its name is another.
type queue struct {
	slot     *slot
	uid      uint64
	replicas int             // as it was made
	taken    atomic.Int64    // messages that producers made for it
	leaving  context.Context // ends when its deletion is about to be asked for
	leave    context.CancelFunc
}

// slots are the names of a run and what is done with them: of ten queues one has one replica, one moves, and two are
// deleted and made again, one of them after few messages.
func slots(o options) (list []*slot) {
	name := "q%03d"
	if o.target != "" {
		name = prefix + name
	}
	for i := range o.queues {
		s := &slot{name: fmt.Sprintf(name, i), most: min(3, o.nodes)}
		switch i % 10 {
		case 1:
			s.plan = moved
		case 2:
			s.plan = reborn
		case 3:
			s.most = 1
		case 4, 5:
			s.most = o.nodes
		case 6:
			s.plan = brief
		}
		s.idle = sync.NewCond(&s.mu)
		list = append(list, s)
	}
	return list
}

// id names the queue in the history.
func (q *queue) id() history.Queue { return history.Queue{Name: q.slot.name, UID: q.uid} }

// briefMax is how many messages a brief queue gets: the time that it takes to judge it rises exponentially.
const briefMax = 8

// takes says whether one more message may be made for the queue.
func (q *queue) takes() bool { return q.slot.plan != brief || q.taken.Add(1) <= briefMax }

func (q *queue) String() string { return fmt.Sprintf("queue %s (uid %d)", q.slot.name, q.uid) }

// let gives the name to a queue.
func (s *slot) let(uid uint64, replicas int) *queue {
	q := &queue{slot: s, uid: uid, replicas: replicas}
	q.leaving, q.leave = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.last = q, uid
	return q
}

// join begins a session with the present queue; nil if there is none.
func (s *slot) join() *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil || s.now.leaving.Err() != nil {
		return nil
	}
	s.users++
	return s.now
}

func (s *slot) quit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.idle.Broadcast()
}

// clear ends all sessions with the present queue and takes it away; nil if there is none.
func (s *slot) clear() *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.now
	if q == nil {
		return nil
	}
	q.leave()
	for s.users > 0 {
		s.idle.Wait()
	}
	s.now = nil
	return q
}

func (s *slot) queue() *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// spec is what a queue is made with. Where one node's disk is spoiled, what has one replica is on another one.
func (r *run) spec(replicas int, rng *rand.Rand) control.QueueSpec {
	spec := control.QueueSpec{Replicas: replicas, Durability: control.Flushed}
	if replicas == 1 && r.o.nodes > 1 && r.o.target == "" {
		i := rng.IntN(r.o.nodes)
		if i == r.fragile {
			i = (i + 1) % r.o.nodes
		}
		spec.Placement.Nodes = []string{r.seats[i].Name}
	}
	return spec
}

// want is some evidence that a queue may give.
func (q *queue) want(rng *rand.Rand) wire.Want {
	switch v := rng.IntN(10); {
	case v == 0:
		return wire.Accepted()
	case v < 4 || q.replicas == 1 || q.slot.plan == moved:
		return wire.Stored(wire.Flushed)
	case v < 6:
		return wire.Replicated(uint32(q.replicas), wire.Flushed)
	}
	return wire.Replicated(uint32(q.replicas/2+1), wire.Flushed)
}

// dial connects as a user's program does, to any node.
func (r *run) dial(ctx context.Context, rng *rand.Rand) (*client.Client, error) {
	addrs := slices.Clone(r.addrs)
	rng.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return client.Dial(ctx, client.Options{
		Addrs: addrs, Identity: r.key, Trust: r.trust, Single: rng.IntN(8) == 0,
	})
}
