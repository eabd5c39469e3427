package broker

import (
	"testing"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

// A peek shows what is there, with the deliveries made so far, and takes nothing.
func TestPeek(t *testing.T) {
	r := newRig(t, nil)
	p := r.named("p")
	bodies := []string{"zero", "one", "two"}
	for i, body := range bodies {
		p.say(uint64(i+1), 1, body)
		p.stands(uint64(i+1), uint64(i))
	}
	c := r.consumer("s", 1)
	c.get(0, 1, "zero")
	peek := func(from, count uint64, want ...uint64) *wire.PeekEnd {
		l := r.line(r.dial(), &wire.OpenPeek{Queue: "demo", From: from, Count: count})
		for _, offset := range want {
			attempts := uint64(0)
			if offset == 0 {
				attempts = 1
			}
			if d := l.get(offset, attempts, bodies[offset]); d.Producer != "p" || d.Seq != offset+1 {
				t.Errorf("%+v", d)
			}
		}
		return frame[*wire.PeekEnd](l)
	}
	if e := peek(0, 10, 0, 1, 2); e.More || e.Next != 3 {
		t.Errorf("%+v", e)
	}
	if e := peek(0, 2, 0, 1); !e.More || e.Next != 2 {
		t.Errorf("%+v", e)
	}
	if e := peek(7, 2); e.More || e.Next != 7 {
		t.Errorf("%+v", e)
	}
	r.line(r.dial(), &wire.OpenPeek{Queue: "nope", Count: 1}).end(wire.UnknownQueue)
}

// A purge needs the role for it, takes what nobody has, and is for good.
func TestPurge(t *testing.T) {
	r := newRig(t, nil)
	r.line(r.dial(), &wire.Purge{Queue: "demo"}).end(wire.NotAllowed)
	r.close()
	roles := map[endpoint.Fingerprint]endpoint.Role{r.client.Fingerprint(): endpoint.RoleAdmin}
	r.config.Trust = r.config.Trust.With(roles)
	r.open()
	p := r.producer(wire.Stored(wire.Flushed))
	for seq := uint64(1); seq <= 5; seq++ {
		p.put(seq, "x")
	}
	c := r.consumer("s", 2)
	c.get(0, 1, "x")
	one := c.get(1, 1, "x")
	if f := frame[*wire.Purged](r.line(r.dial(), &wire.Purge{Queue: "demo"})); f.Count != 3 || f.Left != 2 {
		t.Errorf("%+v", f)
	}
	c.settle(one, wire.Accept, wire.OK)
	r.close()
	r.open()
	c = r.consumer("s", 10)
	c.get(0, 2, "x")
	r.producer(wire.Stored(wire.Flushed)).put(1, "y")
	c.get(5, 1, "y")
	live, ok := r.node.Live(uint64(r.node.lookup("demo").id))
	if !ok || live.In != 6 || live.Purged != 3 || live.Accepted != 1 || live.Unsettled != 2 || live.Ready != 0 {
		t.Errorf("%+v", live)
	}
}

// An unsubscribed consumer loses its subscription, and what it had goes to others.
func TestUnsubscribe(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	r.consumer("s", 1).get(0, 1, "x")
	frame[*wire.Done](r.line(r.dial(), &wire.Unsubscribe{Queue: "demo", Subscription: "s"}))
	r.consumer("t", 1).get(0, 2, "x")
	frame[*wire.Done](r.line(r.dial(), &wire.Unsubscribe{Queue: "demo", Subscription: "never"}))
	r.line(r.dial(), &wire.Unsubscribe{Queue: "demo", Subscription: "~1"}).end(wire.NotAllowed)
	if again := r.consumer("s", 0); again.opened.Delivered != 0 || again.opened.Limit != 0 {
		t.Errorf("a new subscription of an old name: %+v", again.opened)
	}
}

// What a queue has no room for is refused and never makes room by dropping what was confirmed (W-22,
// W-27); the refused sequence can be filled later.
func TestLimits(t *testing.T) {
	r := newRig(t, nil)
	r.make("demo", control.QueueSpec{Limits: control.QueueLimits{Messages: 2}})
	p := r.named("p")
	p.say(1, 1, "one")
	p.stands(1, 0)
	p.say(2, 1, "two")
	p.stands(2, 1)
	p.say(3, 3, "three")
	p.refused(3, wire.QueueFull)
	c := r.consumer("s", 10)
	one := c.get(0, 1, "one")
	c.get(1, 1, "two")
	c.settle(one, wire.Accept, wire.OK)
	p.say(3, 3, "three")
	p.stands(3, 2)
	c.get(2, 1, "three")
	r.make("demo", control.QueueSpec{Limits: control.QueueLimits{Bytes: 2700, MessageBytes: 2000}})
	p.say(4, 4, string(pattern(2001)))
	p.refused(4, wire.TooLarge)
	p.say(4, 4, string(pattern(1999)))
	e := frame[*wire.Refused](p) // 2 small ones and their accounting are there
	if e.Code != wire.QueueFull {
		t.Errorf("%+v", e)
	}
	r.close()
	r.open()
	p = r.named("p")
	p.say(4, 4, string(pattern(1999)))
	p.refused(4, wire.QueueFull)
}

// Where messages race for the last place, the log decides: never more than the limit, each answered.
func TestLimitsAreTheLogs(t *testing.T) {
	r := newRig(t, nil)
	r.make("demo", control.QueueSpec{Limits: control.QueueLimits{Messages: 10}})
	p := r.producer(wire.Stored(wire.Flushed))
	var all []wire.Frame
	for seq := uint64(1); seq <= 100; seq++ {
		all = append(all, &wire.Publish{Seq: seq, Low: 1, Body: []byte("x")})
	}
	p.send(all...)
	confirmed, refused := uint64(0), 0
	for confirmed+uint64(refused) < 100 {
		switch f := p.next().(type) {
		case *wire.EvidenceFrame:
			confirmed += f.Count
		case *wire.Refused:
			refused++
			if f.Code != wire.QueueFull {
				t.Fatalf("%+v", f)
			}
		default:
			t.Fatalf("%+v", f)
		}
	}
	if confirmed != 10 {
		t.Errorf("%d confirmed in a queue for 10", confirmed)
	}
}

// A queue does not promise messages that its node would refuse.
func TestMessageBytesBeyondTheNode(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MessageMax = 1000 })
	result, err := r.node.Mutate(r.ctx, control.Mutation{
		Verb: control.Apply, Kind: control.KindQueue, Name: "demo",
		Queue: &control.QueueSpec{Limits: control.QueueLimits{MessageBytes: 1001}},
	})
	if err != nil || result.Err == nil || result.Err.Field != "spec.limits.messageBytes" {
		t.Errorf("%+v, %v", result, err)
	}
	if q, _ := r.node.registry.queue("demo"); q.Metadata.Generation != 1 {
		t.Errorf("%+v", q.Metadata)
	}
}

// What is in a full queue already keeps its answer: a retry is not refused for want of room.
func TestRetryIntoAFullQueue(t *testing.T) {
	r := newRig(t, nil)
	r.make("demo", control.QueueSpec{Limits: control.QueueLimits{Messages: 1}})
	p := r.named("p")
	p.say(1, 1, "one")
	p.stands(1, 0)
	p = r.named("p")
	p.say(1, 1, "one")
	p.stands(1, 0)
	p.say(2, 1, "two")
	p.refused(2, wire.QueueFull)
}
