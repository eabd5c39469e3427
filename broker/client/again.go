package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

const (
	// patienceDefault is how long a lost connection is tried to be made again.
	patienceDefault = 30 * time.Second
	// pauseFirst and pauseMax bound the pause between two rounds over the addresses.
	pauseFirst = 50 * time.Millisecond
	pauseMax   = 2 * time.Second
	// againFirst bounds the first attempt to connect to the only address; each round has twice as long, up to dialMax.
	// A node that comes back answers a new attempt sooner than one that has waited long.
	againFirst = time.Second
	// greetMin is how long a node that is connected has at least to open a stream.
	greetMin = 2 * time.Second
)

// pause is how long to wait after round number n without success, spread by jitter in [0, 1).
func pause(n int, jitter float64) time.Duration {
	return time.Duration(jitter * float64(min(pauseFirst<<min(n, 16), pauseMax)))
}

// passing says that a stream's end, or a refusal to open it, may pass.
func passing(err error) bool {
	var lost *LostError
	var refused *wire.Error
	var unreachable *endpoint.UnreachableError
	switch {
	case errors.As(err, &refused):
		r := refused.Retry()
		return r == wire.RetryNow || r == wire.RetryLater || r == wire.RetryOther
	case errors.As(err, &unreachable):
		return !unreachable.TurnedAway()
	}
	return errors.As(err, &lost)
}

// isStopping says that the broker ended the stream because it stops: it has answered all that it read.
func isStopping(err error) bool {
	var ended *wire.Error
	return errors.As(err, &ended) && ended.Code == wire.Stopping
}

// openAgain opens a stream in place of one that was lost, as long as ctx and patience allow: at the node that leads,
// if it is known, and at addresses in turn, a pause after each round. The error says what was tried, and is not
// *endpoint.UnreachableError's "nothing was sent", because that is not known.
func (c *Client) openAgain(
	ctx context.Context, queue string, patience time.Duration, l *link, was error, first wire.Frame,
) (*opened, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.endedBy(was) // else it would be tried again
	if c.o.Lost != nil {
		c.o.Lost(was, patience)
	}
	if err := c.goneFrom(queue, l, was); err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		o, err := c.tryRound(ctx, queue, round, first, make(map[*link]bool), func(error) {})
		switch {
		case err == nil:
			return o, nil
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return nil, notAgain(l, was, err)
		case !passing(err):
			return nil, err
		}
		t := time.NewTimer(pause(round, c.o.Jitter()))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, notAgain(l, was, err)
		}
	}
}

// goneFrom notes what the end of a stream says of who leads; an error is final.
func (c *Client) goneFrom(queue string, l *link, was error) error {
	var ended *wire.Error
	if errors.As(was, &ended) && ended.To != nil && !c.o.Single {
		if _, err := c.heed(queue, ended.To); err != nil && !passing(err) {
			return err
		}
		return nil
	}
	c.forget(queue, l)
	return nil
}

// tryRound asks the node that leads, if it is known, and then every address once, but for those in tried. heard is told
// what those said who answered, or sent on to one that did not.
func (c *Client) tryRound(
	ctx context.Context, queue string, round int, first wire.Frame, tried map[*link]bool, heard func(error),
) (o *opened, err error) {
	addrs, unknown := c.addresses(ctx)
	each := againFirst
	if len(addrs) > 1 {
		each = dialFirst
	}
	each = min(each<<min(round, 8), dialMax)
	if at, ok := c.leader(queue); ok {
		l, _, dead := c.connectNode(ctx, at, each)
		if o, err = c.tryAt(ctx, queue, l, dead, each, first); err == nil || !passing(err) {
			return o, err
		}
		heard(err)
		c.unlead(queue, at.node)
		tried[l] = true
	}
	if unknown != nil {
		return nil, unknown
	}
	from := c.lastTurn()
	for k := range addrs {
		l, dead := c.connectAt(ctx, addrs, (from+k)%len(addrs), each, tried)
		if l == nil && dead == nil {
			continue
		}
		tried[l] = true
		if o, err = c.tryAt(ctx, queue, l, dead, each, first); err == nil || !passing(err) {
			return o, err
		}
		if dead == nil {
			heard(err)
		}
	}
	return nil, err
}

// tryAt opens a stream by a connection, unless that could not be made.
func (c *Client) tryAt(ctx context.Context, queue string, l *link, dead error, each time.Duration, first wire.Frame) (
	o *opened, err error,
) {
	if dead != nil {
		return nil, dead
	}
	greeting, cancel := context.WithTimeout(ctx, max(2*each, greetMin)) // it may be a node that was about to go
	defer cancel()
	last := l
	_, _, err = c.follow(greeting, queue, l, true, func(l *link) error {
		last = l
		o, err = l.open(greeting, first)
		return err
	})
	if isStopping(err) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		c.leave(last)
		err = &endpoint.UnreachableError{Addr: last.addr, Err: err}
	}
	return o, err
}

// notAgain is a stream that was lost and could not be opened again.
func notAgain(l *link, was, last error) error {
	var lost *LostError
	if errors.As(was, &lost) {
		was = lost.Err
	}
	return &LostError{Addr: l.addr, Err: fmt.Errorf("%w (and it could not be made again: %w)", was, last)}
}
