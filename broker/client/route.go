package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// This file is how a request finds the node that leads its queue.

const (
	// HopsMax is how many redirects one operation follows (W-43).
	HopsMax = 2
	// leaderTry is how long a node that is said to lead may take to answer, before others are asked.
	leaderTry = 2 * time.Second
)

// nodeAt is where a node is, and the key that it has to prove there.
type nodeAt struct {
	addr string
	node endpoint.Fingerprint
}

// lead is what is known of who leads a queue.
type lead struct {
	nodeAt        // no address: it did not answer
	term   uint64 // the highest heard of; what is said of a lower one is old
}

// do does something for a queue at the node that leads it, as far as that is known. Redirects are followed, and a
// connection that had ended without anybody noticing is replaced once, if asking again is safe or nothing was sent; a
// leadership that moved in the middle of what is safe is looked for once more.
func (c *Client) do(ctx context.Context, queue string, safe bool, f func(*link) error) error {
	l, fresh, err := c.start(ctx, queue)
	if err != nil {
		return err
	}
	l, fresh, err = c.follow(ctx, queue, l, fresh, f)
	if err == nil || l == nil || ctx.Err() != nil || !(safe && c.passedBy(err)) && !l.goneBefore(err, fresh, safe) {
		return err
	}
	c.forget(queue, l)
	if l, fresh, err = c.start(ctx, queue); err != nil {
		return err
	}
	_, _, err = c.follow(ctx, queue, l, fresh, f)
	return err
}

// passedBy says that a request met the end of a leadership, and that nobody was named to go to instead.
func (c *Client) passedBy(err error) bool {
	var refused *wire.Error
	if !errors.As(err, &refused) {
		return false
	}
	return refused.Code == wire.LeaderChanged || refused.Code == wire.ForwardBroken ||
		refused.Code == wire.LedElsewhere && c.o.Single
}

// goneBefore says that a connection had ended without anybody noticing, and that asking on another is safe.
func (l *link) goneBefore(err error, fresh, safe bool) bool {
	var unsent *endpoint.UnreachableError
	return !fresh && (safe || errors.As(err, &unsent)) && l.endedBy(err)
}

// start is the connection to ask first: to the node that leads, if it is known and answers, else the one at hand.
func (c *Client) start(ctx context.Context, queue string) (l *link, fresh bool, err error) {
	if at, ok := c.leader(queue); ok {
		if l, fresh, err = c.connectNode(ctx, at, leaderTry); err == nil {
			return l, fresh, nil
		}
		c.unlead(queue, at.node)
	}
	return c.connect(ctx)
}

// follow does something on a connection, and where a redirect leads. It returns the connection of the last try; none if
// the error is that one could not be made.
func (c *Client) follow(ctx context.Context, queue string, l *link, fresh bool, f func(*link) error) (
	*link, bool, error,
) {
	for hops := 0; ; hops++ {
		err := f(l)
		var refused *wire.Error
		if err == nil || !errors.As(err, &refused) || refused.To == nil || c.o.Single || hops == HopsMax {
			return l, fresh, err
		}
		at, err := c.heed(queue, refused.To)
		if err != nil {
			return nil, false, err
		}
		if l, fresh, err = c.connectNode(ctx, at, leaderTry); err != nil {
			c.unlead(queue, at.node)
			return nil, false, err
		}
	}
}

// heed takes a redirect for what it is: a hint, which may be old (W-43), and leads nowhere but to trusted nodes (W-44).
func (c *Client) heed(queue string, to *wire.Redirect) (nodeAt, error) {
	at := nodeAt{to.Addr(), endpoint.Fingerprint(to.Node)}
	if to.Queue != queue {
		return nodeAt{}, broke("it redirects to queue %.80q, and was asked for %.80q", to.Queue, queue)
	}
	if role, ok := c.o.Trust.Role(at.node); !ok || role != endpoint.RoleNode {
		return nodeAt{}, &wire.Error{Code: wire.Untrusted, Detail: fmt.Sprintf("It is %v at %s", at.node, at.addr)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.leads[queue]
	if to.Term > 0 && to.Term < known.term {
		return nodeAt{}, &wire.Error{Code: wire.LedElsewhere, Detail: fmt.Sprintf(
			"The redirect to %s is of term %d, and term %d is known", at.addr, to.Term, known.term)}
	}
	if to.Term > 0 {
		c.leads[queue] = lead{at, to.Term}
	}
	return at, nil
}

// leader is who is known to lead a queue.
func (c *Client) leader(queue string) (nodeAt, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.leads[queue]
	return k.nodeAt, k.addr != ""
}

// unlead notes that a node does not lead a queue any more, or does not answer.
func (c *Client) unlead(queue string, node endpoint.Fingerprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.leads[queue]; k.node == node && k.term > 0 {
		c.leads[queue] = lead{term: k.term}
	}
}

// forget is unlead for the node at a connection's other end.
func (c *Client) forget(queue string, l *link) { c.unlead(queue, l.conn.Peer()) }

// moved says that a stream ended because of who leads its queue: it may be opened again elsewhere, or later.
func moved(err error) bool {
	var ended *wire.Error
	if !errors.As(err, &ended) {
		return false
	}
	switch ended.Code {
	case wire.LedElsewhere, wire.LeaderChanged, wire.NoQuorum, wire.ForwardBroken:
		return true
	default:
		return false
	}
}
