package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// Router says where other nodes are and which queues they have, from this node's own copy of the registry. It is
// asked by any goroutine, shards included, and never blocks.
type Router interface {
	// Node says how clients reach a node; false if it is not known here, or is this one.
	Node(raftstore.NodeID) (NodeAddress, bool)
	// Queue says which other node to ask for a queue without a replica here; false if there is no such queue, or
	// nobody who could be asked. Nodes that are known to be down come last.
	Queue(name string) (NodeAddress, bool)
	// Member says whether a key is that of a node of the cluster, other than this one.
	Member(endpoint.Fingerprint) bool
}

// NodeAddress is how clients reach a node.
type NodeAddress struct {
	Fingerprint endpoint.Fingerprint // of the key that it proves
	Host        string               // name or address
	Port        uint16               // UDP
}

// alone is the Router of a node that knows no other.
type alone struct{}

// Node implements Router.
func (alone) Node(raftstore.NodeID) (NodeAddress, bool) { return NodeAddress{}, false }

// Queue implements Router.
func (alone) Queue(string) (NodeAddress, bool) { return NodeAddress{}, false }

// Member implements Router.
func (alone) Member(endpoint.Fingerprint) bool { return false }

// redirect is what a client is told whose queue is at another node; term 0: that one knows more.
func (a NodeAddress) redirect(name string, term raftstore.Term) *wire.Error {
	return (&wire.Redirect{
		Queue: name, Term: uint64(term), Node: [32]byte(a.Fingerprint), Host: a.Host, Port: uint64(a.Port),
	}).AsError()
}

// find returns a queue that this node serves, and its reign, or says why it does not: a redirect where another
// node is known to lead. While nobody is known to lead, it waits, but no longer than leaderPatience. Neither reads nor
// deliveries are answered by a replica that does not lead (X-11, T-64).
func (s *session) find(ctx context.Context, name string) (*nodeQueue, *reign, *wire.Error) {
	late := time.NewTimer(leaderPatience)
	defer late.Stop()
	for {
		q, refused := s.here(ctx, name, late.C)
		if refused != nil {
			return nil, nil, refused
		}
		r, refused := s.led(ctx, q, late.C)
		if r != nil || !s.madeAgain(q) {
			return q, r, refused
		}
	}
}

// here is the queue of a name, once its replica on this node is open.
func (s *session) here(ctx context.Context, name string, late <-chan time.Time) (*nodeQueue, *wire.Error) {
	q, refused := s.queue(name)
	for refused != nil {
		coming := s.node.coming(name)
		if coming == nil {
			break
		}
		select {
		case <-coming:
		case <-late:
			return nil, refused
		case <-ctx.Done():
			return nil, stopping()
		}
		q, refused = s.queue(name)
	}
	if refused != nil && refused.Code == wire.UnknownQueue {
		if !s.node.learned(ctx) {
			return nil, unlearned()
		}
		q, refused = s.queue(name)
	}
	if refused != nil {
		if at, ok := s.node.router.Queue(name); ok {
			return nil, at.redirect(name, 0)
		}
		return nil, refused
	}
	return q, nil
}

// led is the reign of a queue on this node, or why there is none.
func (s *session) led(ctx context.Context, q *nodeQueue, late <-chan time.Time) (*reign, *wire.Error) {
	for {
		l := q.leadership()
		switch {
		case l.reign != nil:
			return l.reign, nil
		case l.leader.Node != 0:
			if at, ok := s.node.router.Node(l.leader.Node); ok {
				return nil, at.redirect(q.name, l.term)
			}
		}
		select {
		case <-l.changed:
		case <-late:
			return nil, noQuorum(l)
		case <-q.gone:
			return nil, s.node.gone(q)
		case <-ctx.Done():
			return nil, stopping()
		}
	}
}

// madeAgain says that a queue was closed here because it was deleted, and that there is another one of its name by
// now. A node that was down learns of both at once, and whoever names the queue means the new one.
func (s *session) madeAgain(q *nodeQueue) bool {
	select {
	case <-q.gone:
	default:
		return false
	}
	c, ok := s.node.registry.queue(q.name)
	return ok && c.Metadata.UID != uint64(q.id) && c.Metadata.DeletionTimestamp == 0 && s.node.lookup(q.name) != q
}

// passed is told whoever asked for something that was not done because the leadership ended: who leads now, as soon as
// that is known. Right after an election began nobody is known, which is no want of a quorum yet.
func (s *session) passed(ctx context.Context, q *nodeQueue) *wire.Error {
	if _, _, refused := s.find(ctx, q.name); refused != nil {
		return refused
	}
	return &wire.Error{Code: wire.LeaderChanged, Detail: "This node leads it again"}
}

// noQuorum says that nobody is there to serve a queue.
func noQuorum(l leadership) *wire.Error {
	detail := fmt.Sprintf("In term %d no leader is known here", uint64(l.term))
	if l.leader.Node != 0 {
		detail = fmt.Sprintf("Node %d leads in term %d, and its address is not known here", uint64(l.leader.Node),
			uint64(l.term))
	}
	return &wire.Error{Code: wire.NoQuorum, Detail: detail}
}

// away says why a request that came to a queue is not done here: another node leads it, or none.
func (n *Node) away(q *nodeQueue) *wire.Error {
	l := q.leadership()
	if at, ok := n.router.Node(l.leader.Node); ok && l.leader.Node != 0 {
		return at.redirect(q.name, l.term)
	}
	return noQuorum(l)
}

// moved says why a stream ends that was served in a reign that is over.
func (n *Node) moved(q *nodeQueue) *wire.Error {
	if why := n.away(q); why.To != nil {
		return why
	}
	return &wire.Error{Code: wire.LeaderChanged, Detail: "Who leads now is not known here yet"}
}

// gone says why the streams of a queue end, or don't begin: it was deleted, or it is no more here, or not as it was.
func (n *Node) gone(q *nodeQueue) *wire.Error {
	c, ok := n.registry.queue(q.name)
	if !ok || c.Metadata.UID != uint64(q.id) || c.Metadata.DeletionTimestamp != 0 {
		return q.deleted()
	}
	if at, ok := n.router.Queue(q.name); ok {
		return at.redirect(q.name, 0)
	}
	return &wire.Error{Code: wire.LeaderChanged, Detail: "Its replica on this node was given up, or is opened anew"}
}

// told is the refusal of an error that says that nothing was stored.
func (s *session) told(q *nodeQueue, err error) *wire.Error {
	switch {
	case notLeading(err):
		return s.node.away(q)
	case s.node.closedHere(err):
		return &wire.Error{Code: wire.LeaderChanged, Detail: "Its replica on this node was given up, or is opened anew"}
	}
	return &wire.Error{Code: refusal(err), Detail: clip(err.Error())}
}

// closedHere says that an error is that of a group that was closed on a node that goes on: it is deleted, elsewhere,
// or opened anew as what it has become.
func (n *Node) closedHere(err error) bool {
	return n.work.Err() == nil && errors.Is(err, raftstore.ErrStopped)
}

// ask is nodeQueue.ask, for a client.
func (s *session) ask(ctx context.Context, q *nodeQueue, c queue.Command) (queue.Effect, *wire.Error) {
	e, err := q.ask(ctx, c)
	if err != nil && err.Code == wire.LedElsewhere && err.To == nil {
		err = s.passed(ctx, q)
	}
	return e, err
}
