package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"weida/broker/queue"
	"weida/broker/wire"
)

// A key gets a quarter of a processor for what brings nobody a message, however many ask at a time, and nothing for
// later.
func TestBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b brake
		began := time.Now()
		const many, cost = 100, 5 * time.Millisecond
		done := make(chan struct{})
		for range many {
			go func() { b.pay(t.Context(), cost); done <- struct{}{} }()
		}
		for range many {
			<-done
		}
		if took := time.Since(began); took != many*cost*brakeShare-brakeSlack {
			t.Errorf("%d times %v took %v", many, cost, took)
		}
		time.Sleep(time.Hour)
		began = time.Now()
		b.pay(t.Context(), brakeSlack/brakeShare)
		if took := time.Since(began); took != 0 {
			t.Errorf("who has paid waits %v", took)
		}
		b.owe(time.Hour)
		b.owe(time.Hour)
		b.pay(t.Context(), 0)
		if took := time.Since(began); took != brakeMost-brakeSlack {
			t.Errorf("a debt makes wait %v, at most %v", took, brakeMost)
		}
	})
}

// What a client asks for while its key is behind with paying waits; messages go on.
func TestKeyThatIsBehindWaits(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	c := r.consumer("s", 100)
	const debt = 300 * time.Millisecond
	behind := func() time.Time {
		r.node.mu.Lock()
		b := &r.node.keys[r.client.Fingerprint()].brake
		r.node.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.paid = time.Now().Add(debt)
		return time.Now()
	}
	atOnce := behind()
	p.put(1, "x")
	c.settle(c.get(0, 1, "x"), wire.Accept, wire.OK)
	t.Logf("a message and its settle took %v", time.Since(atOnce)) // and did not wait, but a machine may be slow

	p.put(2, "y")
	asks := map[string]func(){
		"a stream":              func() { r.line(c.conn, &wire.OpenPeek{Queue: "nope"}).end(wire.UnknownQueue) },
		"frames without effect": func() { r.staleSettles(c) },
	}
	for name, ask := range asks {
		from := behind()
		if ask(); time.Since(from) < debt-brakeSlack {
			t.Errorf("%s did not wait", name)
		}
	}
	if got := costOf([]queue.Message{{Length: 1000}, {Length: 1 << 30, Large: &queue.Large{}}}); got !=
		2*messageCost+1000*byteCost {
		t.Errorf("to show two messages costs %v", got)
	}
}

// staleSettles sends settles without effect, so many as are paid for together, and reads the answers.
func (r *rig) staleSettles(c *line) {
	r.t.Helper()
	var frames []wire.Frame
	for k := range uint64(voidFrames + 3) { // those behind the wait are answered behind it
		frames = append(frames, &wire.Settle{Offset: 1 << 40, Attempt: k + 1, Term: 1, Verb: wire.Accept})
	}
	d := frame[*wire.Deliver](c)
	c.settle(d, wire.Accept, wire.OK) // now none is open
	c.send(frames...)
	for range frames {
		if f := frame[*wire.Settled](c); f.Code != wire.StaleSettle {
			r.t.Fatalf("%+v", f)
		}
	}
}
