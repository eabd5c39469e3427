package client

import (
	"context"
	"errors"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// This file is how a first stream comes about where the first node that is asked does not have it: the node that it
// sends to has just died, or it has not heard yet what others know. Nothing was sent that could be done twice.

// openingPatience is how long a first stream is tried to be opened while an election may be under way: as long as a
// lost one, or not at all if that is not to be replaced.
func openingPatience(asked time.Duration) time.Duration {
	if asked == 0 {
		return patienceDefault
	}
	return asked
}

// moving says that a stream was not opened because nobody has led its queue for a moment, or whoever did is gone.
func moving(err error) bool {
	var lost *LostError
	var refused *wire.Error
	var unreachable *endpoint.UnreachableError
	switch {
	case errors.As(err, &refused):
		switch refused.Code {
		case wire.LedElsewhere, wire.LeaderChanged, wire.ForwardBroken, wire.Stopping:
			return true
		default:
			return false
		}
	case errors.As(err, &unreachable):
		return !unreachable.TurnedAway()
	}
	return errors.As(err, &lost)
}

// unserved says that a node knows nobody who serves the queue, and has waited for one as long as it does. Another node
// may know.
func unserved(err error) bool {
	var refused *wire.Error
	return errors.As(err, &refused) && (refused.Code == wire.NoQuorum || refused.Code == wire.NotReady)
}

// askAround asks the other nodes that are known, and all of them again as long as one speaks of a leadership that
// moves, within ctx and patience. Where nobody does, the queue is not served, and the first that said so has the word.
func (c *Client) askAround(
	ctx context.Context, queue string, patience time.Duration, first wire.Frame, asked map[*link]bool, said error,
) (*opened, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	moves := moving(said)
	if moves {
		clear(asked) // who sent to a node that is gone may know the next one by now
	}
	for round := 0; ; round++ {
		o, err := c.tryRound(within, queue, round, first, asked, func(err error) {
			moves = moves || moving(err)
			if unserved(err) && !unserved(said) {
				said = err
			}
		})
		switch {
		case o != nil:
			return o, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrClosed):
			return nil, err
		case err != nil && within.Err() == nil && !passing(err):
			return nil, err
		case !moves || within.Err() != nil:
			return nil, said
		}
		moves = false
		clear(asked)
		t := time.NewTimer(pause(round, c.o.Jitter()))
		select {
		case <-t.C:
		case <-within.Done():
			t.Stop()
		}
	}
}
