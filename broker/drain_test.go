package broker

import (
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

// TestDrainedAnswersSettles: the settle that empties a queue under deletion is answered before its stream
// is told that the queue is gone (W-28): it was taken, and whoever sent it has to learn that.
func TestDrainedAnswersSettles(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for round := range 10 {
		if round > 0 {
			r.make("demo", control.QueueSpec{})
		}
		r.producer(wire.Stored(wire.Flushed)).put(1, "x")
		c := r.consumer("s", 1)
		d := c.get(0, 1, "x")
		r.change(remove("demo", time.Hour))
		c.settle(d, wire.Accept, wire.OK)
		c.end(wire.QueueDeleted)
		r.gone("demo")
	}
}
