package broker

import (
	"testing"

	"weida/broker/wire"
)

// Who is attached to a subscription that is ended learns of it.
func TestUnsubscribedConsumerIsTold(t *testing.T) {
	r := newRig(t, nil)
	c := r.consumer("s", 1)
	frame[*wire.Done](r.line(r.dial(), &wire.Unsubscribe{Queue: "demo", Subscription: "s"}))
	c.end(wire.Unsubscribed)
}
