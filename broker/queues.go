package broker

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"weida/broker/control"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is the queues of a node: which are open, and how they come and go.

// openQueues opens every queue of the registry that is placed here, side by side. One that cannot be opened is in
// trouble and is tried again by the reconciler; the others go on.
func (n *Node) openQueues() {
	turns := make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, q := range n.registry.queues() {
		row, first := n.row(&q), n.unset(q.Metadata.UID, q.Status.Placement)
		if q.Status.Destroying || row == nil || n.registry.gives(&q) || len(first) > 0 {
			continue // what is left of it goes, or is set aside first, or is elsewhere
		}
		if known, err := n.known(&q, row); err == nil && !known {
			continue // the controller opens it when it is
		}
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			open, err := n.openQueue(q)
			var told *control.Trouble
			switch {
			case errors.As(err, &told):
			case err != nil:
				n.c.Log.Error("queue not opened", "queue", q.Metadata.Name, "err", err)
			case q.Status.ObservedGeneration > 0:
				open.admit()
			}
		})
	}
	all.Wait()
}

// gives says whether a replica of the queue that was given up is still to be destroyed: nothing is opened before.
func (r *registry) gives(q *control.Queue) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.state.RetiredOf(q.Metadata.UID)) > 0
}

// openQueue opens this node's replica of the queue, which is made if no controller has found it made before, and takes
// the spec's limits over. A queue that is open stays as it is.
func (n *Node) openQueue(c control.Queue) (*nodeQueue, error) {
	name := c.Metadata.Name
	if q := n.lookup(name); q != nil && uint64(q.id) == c.Metadata.UID {
		return q, nil
	}
	row := n.row(&c)
	if row == nil {
		return nil, errors.New("no replica of the queue is placed on this node and disk")
	}
	q, err := n.openRow(&c, row)
	if err != nil {
		return nil, n.lost(&c, row, err)
	}
	n.queuesMu.Lock()
	n.queues[name] = q
	n.queuesMu.Unlock()
	return q, nil
}

// openRow opens a replica of a queue.
func (n *Node) openRow(c *control.Queue, row *control.Replica) (*nodeQueue, error) {
	q := newNodeQueue(c.Metadata.Name, raftstore.GroupID(c.Metadata.UID), c.Spec, n.c.Log, n.registry.wake)
	q.owned, q.replica = row.Owner, row.Replica
	q.closed.Store(c.Metadata.DeletionTimestamp != 0)
	var err error
	if row.Owner {
		_, err = n.host.OpenOwner(q.id, q, raftstore.OwnerOptions{
			Create:    !row.Made && c.Status.ObservedGeneration == 0 && c.Metadata.DeletionTimestamp == 0,
			Dissolved: true, // the registry says that its group is over
		})
	} else {
		err = n.openReplica(q, c, row)
	}
	if errors.Is(err, raftstore.ErrNoSuchGroup) {
		err = fmt.Errorf("the directory %s is missing, though the queue was made here; nothing was made or changed: %w",
			filepath.Join(n.c.Dir, "groups", fmt.Sprint(uint64(q.id))), err)
	}
	if err != nil {
		return nil, err
	}
	if err := q.begin(n.firstSession()); err != nil {
		q.group.Stop()
		return nil, err
	}
	return q, nil
}

// coming is closed when something has changed about a queue whose replica on this node is about to serve: who asks for
// it is not sent away meanwhile, for the others would send it here. It is nil for any other queue.
func (n *Node) coming(name string) <-chan struct{} {
	if n.cluster == nil {
		return nil
	}
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	q, ok := n.registry.state.Queue(name)
	if !ok || q.Metadata.DeletionTimestamp != 0 || n.row(&q) == nil {
		return nil
	}
	return n.registry.moved
}

// openReplica opens a replica. One that is not here begins as one of the founders, or learns if it joined later; one
// that was made has its log, which may be that of the owner that the queue had before.
func (n *Node) openReplica(q *nodeQueue, c *control.Queue, row *control.Replica) error {
	o := raftstore.ReplicaOptions{
		Self: raftstore.ReplicaID(row.Replica), Genesis: &raftstore.Genesis{Term: 1, Index: 1},
	}
	if row.Made {
		if here, err := n.store.HasLog(q.id); err != nil {
			return err
		} else if !here {
			return raftstore.ErrNoSuchGroup
		}
		o.Genesis.Members = []raftstore.Member{{Replica: o.Self, Node: raftstore.NodeID(row.Number)}}
	} else if err := n.beginning(q.id, o.Self); err != nil {
		return err
	} else if slices.ContainsFunc(c.Status.Founders, func(f control.Founder) bool { return f.Replica == row.Replica }) {
		for _, f := range c.Status.Founders {
			o.Genesis.Members = append(o.Genesis.Members, raftstore.Member{
				Replica: raftstore.ReplicaID(f.Replica), Node: raftstore.NodeID(f.Number),
			})
		}
	}
	_, err := n.host.OpenReplica(q.id, q, o)
	if err == nil && !row.Made {
		n.begunHere.opened(q.id, o.Self)
	}
	return err
}

// close stops a queue's replica on this node.
func (n *Node) close(q *nodeQueue) {
	q.disconnect()
	q.group.Stop()
	n.queuesMu.Lock()
	defer n.queuesMu.Unlock()
	if n.queues[q.name] == q {
		delete(n.queues, q.name)
	}
}

// destroy closes this node's replica of a group and takes its directory away; a committed entry has given it up. Of
// one that is lost, what is left lies aside and stays.
func (n *Node) destroy(group uint64, r control.Replica) error {
	if err := n.setAside(group); err != nil || r.Lost != "" {
		return err
	}
	if open := n.open(group); open != nil {
		n.close(open)
	}
	return n.store.RemoveLog(raftstore.GroupID(group))
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
