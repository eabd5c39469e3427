package broker

import (
	"context"
	"sync"
	"time"
)

// What work costs the node that brings nobody a message, in time of one processor: estimates, of which only the order
// of magnitude matters.
const (
	streamCost  = 50 * time.Microsecond  // a stream, whatever becomes of it
	messageCost = 10 * time.Microsecond  // a message looked at, or delivered and given back
	byteCost    = 3 * time.Nanosecond    // of such a message
	voidCost    = 2 * time.Microsecond   // a frame without effect
	voidFrames  = 64                     // that are paid for together
	brakeSlack  = 20 * time.Millisecond  // that a key may be behind with paying
	brakeShare  = 4                      // a key gets the node's time for this once in so much time
	brakeMost   = 500 * time.Millisecond // that a key can owe: what it gave back may have been delivered long ago
)

// brake makes a key wait whose requests would take the node's time from others: it gets a quarter of a processor for
// what brings nobody a message. Publishing, and deliveries that are settled, are free.
type brake struct {
	mu   sync.Mutex
	paid time.Time // guarded by mu; when all that was done is paid for
}

// charge notes work that was done, and returns how long to wait for it.
func (b *brake) charge(cost time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.paid.Before(now) {
		b.paid = now
	}
	b.paid = b.paid.Add(cost * brakeShare)
	return b.paid.Sub(now) - brakeSlack
}

// owe notes work for which who comes next will wait, within bounds.
func (b *brake) owe(cost time.Duration) { b.charge(min(cost, brakeMost/brakeShare)) }

// pay notes work and waits for it, as long as ctx allows.
func (b *brake) pay(ctx context.Context, cost time.Duration) {
	d := b.charge(cost)
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
