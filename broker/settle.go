package broker

import (
	"context"

	"weida/broker/queue"
	"weida/broker/wire"
)

// This file is what a consumer says: credit, and settles, which are answered.

// read takes settles and credit off the stream until it ends.
func (c *consumer) read(ctx context.Context, r *wire.Reader) *wire.Error {
	var cmds []queue.Command
	granted := uint64(0) // by this stream
	void := 0            // frames without effect
	payForVoid := func() {
		if void++; void%voidFrames == 0 {
			c.session.brake.pay(ctx, voidFrames*voidCost)
		}
	}
	for {
		if len(cmds) == batchItems || !r.Buffered() {
			if err := c.propose(ctx, &cmds); err != nil {
				return err
			}
		}
		c.out.await()
		f, err := r.Next()
		if err != nil {
			if err := c.propose(ctx, &cmds); err != nil { // whole frames that came before a broken one
				return err
			}
			return readError(err)
		}
		switch f := f.(type) {
		case *wire.Credit:
			n := len(cmds)
			if f.Limit > granted {
				granted = f.Limit
				cmds = c.grant(cmds, f.Limit)
			}
			if len(cmds) == n {
				payForVoid()
			}
		case *wire.Settle:
			room, stale := c.settleRoom(false)
			if !room && !stale {
				if err := c.propose(ctx, &cmds); err != nil {
					return err
				}
				room, stale = c.settleRoom(true)
			}
			switch {
			case stale:
				c.out.add(&wire.Settled{Offset: f.Offset, Attempt: f.Attempt, Code: wire.StaleSettle})
				c.out.wake()
				payForVoid()
			case !room:
				return nil
			default:
				cmds = append(cmds, queue.Command{
					Kind: queue.Settle, Subscription: c.sub, Session: c.id,
					Offset: f.Offset, Attempt: f.Attempt, Term: f.Term, Verb: queue.Verb(f.Verb),
				})
			}
		default:
			return &wire.Error{Code: wire.Malformed, Detail: "a consumer's stream carries CREDIT and SETTLE only"}
		}
	}
}

// propose hands over what has gathered.
func (c *consumer) propose(ctx context.Context, cmds *[]queue.Command) *wire.Error {
	if len(*cmds) == 0 {
		return nil
	}
	err := c.command(ctx, *cmds...)
	*cmds = (*cmds)[:0]
	if err != nil {
		return c.told(err)
	}
	return nil
}

// grant adds credit to what has gathered. Of credit that follows credit only the highest counts.
func (c *consumer) grant(cmds []queue.Command, limit uint64) []queue.Command {
	if n := len(cmds); n > 0 && cmds[n-1].Kind == queue.Grant {
		cmds[n-1].Limit = limit
		return cmds
	}
	return append(cmds, queue.Command{Kind: queue.Grant, Subscription: c.sub, Session: c.id, Limit: limit})
}

// settleRoom says whether one more settle may go into the log, and counts it there. No more are under way than
// deliveries of this stream are open: the others cannot have an effect, and the log is not for them. With no delivery
// open the settle is stale. Without wait it may be neither yet; with it, neither means that the stream ends.
func (c *consumer) settleRoom(wait bool) (room, stale bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.ended:
			return false, false
		case c.open == 0:
			return false, true // and none is under way whose answer would have to come first
		case c.settling < min(c.open, settlesMax):
			c.settling++
			return true, false
		case !wait || c.failure != nil: // the answers that would make room may not come
			return false, false
		}
		c.room.Wait()
	}
}

// settled is called on the shard, once the settle's entry is flushed.
func (c *consumer) settled(f wire.Settled) {
	c.out.add(&f)
	if f.Code == wire.OK {
		c.session.node.counters.settled.Add(1)
	}
	c.mu.Lock()
	c.settling--
	if f.Code == wire.OK {
		c.open--
	}
	c.mu.Unlock()
	c.room.Signal()
	c.out.wake()
}
