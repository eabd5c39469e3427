package broker_test

import (
	"errors"
	"testing"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// A node that was away while a queue was made does not say that there is none: alone it cannot know, and with the
// others it learns first.
func TestNodeThatIsBehindSaysSo(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.make("before", control.QueueSpec{})
	r.stop(2)
	r.make("made", control.QueueSpec{Replicas: 1, Placement: control.PlacementSpec{Nodes: []string{"n1"}}})
	r.stop(0)
	r.stop(1)
	r.start(2)
	open := func(name string) *wire.Error {
		c, err := client.Dial(r.ctx, client.Options{
			Addrs: []string{r.configs[2].Listen}, Identity: r.key, Trust: r.trust,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Producer(r.ctx, name, client.ProducerOptions{Want: wire.Accepted(), Patience: -1})
		var refused *wire.Error
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		return refused
	}
	for _, name := range []string{"made", "never"} {
		if e := open(name); e == nil || e.Code != wire.NotReady {
			t.Errorf("%s, alone: %v", name, e)
		}
	}
	r.start(0)
	r.start(1)
	sure := func(name string) (e *wire.Error) { // when the others are there
		for e = open(name); e != nil && e.Code == wire.NotReady && r.ctx.Err() == nil; {
			e = open(name)
		}
		return e
	}
	if e := sure("made"); e != nil {
		t.Errorf("with the others: %v", e)
	}
	if e := sure("never"); e == nil || e.Code != wire.UnknownQueue {
		t.Errorf("with the others: %v", e)
	}
}
