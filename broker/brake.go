package broker

import (
	"context"
	"sync"
	"time"
)

// What work costs the node that brings nobody a message, in time of one processor: estimates, of which only the order
// of magnitude matters.
const (
	streamCost  = 150 * time.Microsecond // a stream, whatever becomes of it
	messageCost = 10 * time.Microsecond  // a message looked at
	byteCost    = 3 * time.Nanosecond    // of such a message
	againCost   = 25 * time.Microsecond  // a message that was delivered and given back
	voidCost    = 2 * time.Microsecond   // a frame without effect
	voidFrames  = 64                     // that are paid for together
	brakeSlack  = 20 * time.Millisecond  // that a key may be behind with paying
	brakeShare  = 4                      // a key gets the node's time for this once in so much time
	brakeMost   = 2 * time.Second        // that a key can owe for what it gave back
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

// owe notes work that whoever comes next with this key waits for, within bounds: what was given back may have been
// delivered long ago, and a client that lost its connection wants to go on.
func (b *brake) owe(cost time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	most := now.Add(brakeMost)
	if b.paid.Before(now) {
		b.paid = now
	}
	if paid := b.paid.Add(min(cost, brakeMost) * brakeShare); paid.Before(most) {
		b.paid = paid
	} else if b.paid.Before(most) {
		b.paid = most
	}
}

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
