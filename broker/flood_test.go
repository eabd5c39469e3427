package broker

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"weida/broker/wire"
)

// This file is what a hostile client must not get: memory that stays, or a shard for itself.

// A consumer that is gone leaves nothing behind, also on a queue to which nothing comes any more: the list of
// settles that were answered kept it, with all the answers that it had not read.
func TestConsumerThatIsGoneIsForgotten(t *testing.T) {
	r := newRig(t, nil)
	c := r.consumer("s", 0)
	q := r.node.lookup("demo")
	q.mu.Lock()
	var gone weak.Pointer[consumer]
	for _, k := range q.consumers {
		gone = weak.Make(k)
	}
	q.mu.Unlock()
	c.settle(&wire.Deliver{Offset: 7, Attempt: 1, Term: 1}, wire.Accept, wire.StaleSettle)
	c.conn.Close()
	for until := time.Now().Add(patience); gone.Value() != nil; runtime.GC() {
		if time.Now().After(until) {
			t.Fatal("the queue still holds a consumer that is gone")
		}
		time.Sleep(time.Millisecond)
	}
}

// The lists of the shard give back what one command had much of.
func TestListsOfTheShardShrink(t *testing.T) {
	list := make([]settleAnswer, 5*keptMax)
	if list = behind(list, 1); len(list) != 5*keptMax-1 {
		t.Fatalf("%d are left", len(list))
	}
	if list = behind(list, len(list)); list != nil {
		t.Errorf("an empty list keeps %d places", cap(list))
	}
	if cap(behind(make([]settleAnswer, 3), 3)) == 0 {
		t.Error("a short list is made anew for each settle")
	}
}
