package broker

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"

	"weida/broker/control"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is the queues of a node: which are open, and how they come and go.

// openQueues opens every queue of the registry, side by side. One that cannot be opened is in trouble and
// is tried again by the reconciler; the others go on.
func (n *Node) openQueues() {
	turns := make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, q := range n.registry.queues() {
		if q.Status.Destroying {
			continue // what is left of it goes
		}
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			open, err := n.openQueue(q)
			switch {
			case err != nil:
				n.c.Log.Error("queue not opened", "queue", q.Metadata.Name, "err", err)
			case q.Status.ObservedGeneration > 0:
				open.admit()
			}
		})
	}
	all.Wait()
}

// openQueue opens the queue's group, which is made if no controller has found it made before, and takes
// the spec's limits over. A queue that is open stays as it is.
func (n *Node) openQueue(c control.Queue) (*nodeQueue, error) {
	name := c.Metadata.Name
	if q := n.lookup(name); q != nil && uint64(q.id) == c.Metadata.UID {
		return q, nil
	}
	q := newNodeQueue(name, raftstore.GroupID(c.Metadata.UID), c.Spec, n.c.Log, n.registry.wake)
	_, err := n.host.OpenOwner(q.id, q, raftstore.OwnerOptions{
		Create: c.Status.ObservedGeneration == 0 && c.Metadata.DeletionTimestamp == 0,
	})
	if errors.Is(err, raftstore.ErrNoSuchGroup) {
		return nil, fmt.Errorf("the directory %s is missing, though the queue was made here; nothing was made or changed; "+
			"restore it, or delete the queue: %w", filepath.Join(n.c.Dir, "groups", fmt.Sprint(uint64(q.id))), err)
	}
	if err != nil {
		return nil, err
	}
	q.closed.Store(c.Metadata.DeletionTimestamp != 0)
	if err := q.begin(n.firstSession()); err != nil {
		q.group.Stop()
		return nil, err
	}
	n.queuesMu.Lock()
	n.queues[name] = q
	n.queuesMu.Unlock()
	return q, nil
}

// destroy closes the queue's group and takes its directory away; the deletion is committed.
func (n *Node) destroy(uid uint64) error {
	n.queuesMu.RLock()
	var open *nodeQueue
	for _, q := range n.queues {
		if uint64(q.id) == uid {
			open = q
		}
	}
	n.queuesMu.RUnlock()
	if open != nil {
		open.group.Stop()
		n.queuesMu.Lock()
		delete(n.queues, open.name)
		n.queuesMu.Unlock()
	}
	return n.store.RemoveLog(raftstore.GroupID(uid))
}

func (n *Node) lookup(name string) *nodeQueue {
	n.queuesMu.RLock()
	defer n.queuesMu.RUnlock()
	return n.queues[name]
}

// serving returns the queue if it is the one with that uid.
func (n *Node) serving(c control.Queue) *nodeQueue {
	if q := n.lookup(c.Metadata.Name); q != nil && uint64(q.id) == c.Metadata.UID {
		return q
	}
	return nil
}

// queue finds the queue that a stream names. Publishing and consuming never make one (T-25).
func (s *session) queue(name string) (*nodeQueue, *wire.Error) {
	if q := s.node.lookup(name); q != nil && q.serves.Load() {
		return q, nil
	}
	detail := "The name was " + quote(name)
	if c, ok := s.node.registry.queue(name); ok {
		// Whoever has seen that it is ready finds it so, also before the reconciler comes by again.
		if q := s.node.serving(c); q != nil && c.Status.ObservedGeneration > 0 && c.Metadata.DeletionTimestamp == 0 {
			q.admit()
			return q, nil
		}
		for _, condition := range c.Status.Conditions {
			detail = condition.Message
		}
		return nil, &wire.Error{Code: wire.NotReady, Detail: detail}
	}
	return nil, &wire.Error{Code: wire.UnknownQueue, Detail: detail}
}

// full refuses at the door what the queue has no room for, before its body is read. The state machine
// decides; this is as of now.
func (q *nodeQueue) full(length int64) *wire.Error {
	limits := q.spec.Load().Limits
	if q.closed.Load() {
		return &wire.Error{Code: wire.QueueClosing}
	}
	if limits.Messages == 0 && limits.Bytes == 0 {
		return nil
	}
	var c queue.Counts
	q.read(func(s *queue.State) { c = s.Counts() })
	switch messages := c.Ready + c.Unsettled; {
	case limits.Messages > 0 && messages >= limits.Messages:
		return &wire.Error{Code: wire.QueueFull, Detail: fmt.Sprintf("It holds %d messages of %d", messages, limits.Messages)}
	case limits.Bytes > 0 && c.Bytes+uint64(length)+queue.MessageCost > limits.Bytes:
		return &wire.Error{Code: wire.QueueFull, Detail: fmt.Sprintf("It holds %d bytes of %d; %d more do not fit",
			c.Bytes, limits.Bytes, length)}
	}
	return nil
}
