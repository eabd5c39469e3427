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
	// tryFirst bounds the first attempt to connect; each round has twice as long, up to dialMax. A node
	// that comes back answers a new attempt sooner than one that has waited long.
	tryFirst = time.Second
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

// openAgain opens a stream in place of one that was lost, as long as ctx and patience allow: addresses
// in turn, a pause after each round. The error says what was tried, and is not *endpoint.UnreachableError's
// "nothing was sent", because that is not known.
func (c *Client) openAgain(ctx context.Context, patience time.Duration, l *link, was error, first wire.Frame) (
	*opened, error,
) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.endedBy(was) // else it would be tried again
	if c.o.Lost != nil {
		c.o.Lost(was, patience)
	}
	for n := 0; ; n++ {
		round := n / len(c.o.Addrs)
		o, err := c.tryAgain(ctx, n, min(tryFirst<<min(round, 8), dialMax), first)
		if err == nil {
			return o, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return nil, notAgain(l, was, err)
		}
		if !passing(err) {
			return nil, err
		}
		if (n+1)%len(c.o.Addrs) > 0 {
			continue
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

func (c *Client) tryAgain(ctx context.Context, n int, each time.Duration, first wire.Frame) (*opened, error) {
	l, _, err := c.connectTo(ctx, 1, n, each)
	if err != nil {
		return nil, err
	}
	greeting, cancel := context.WithTimeout(ctx, 2*each) // a node may have answered that was about to go
	defer cancel()
	o, err := l.open(greeting, first)
	if isStopping(err) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		c.leave(l)
		err = &endpoint.UnreachableError{Addr: l.addr, Err: err}
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
