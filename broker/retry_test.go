package broker

import (
	"testing"

	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/fsync"
)

// named opens a stream of a producer with an id.
func (r *rig) named(id string) *line {
	r.t.Helper()
	l := r.line(r.dial(), &wire.OpenProducer{Queue: "demo", Producer: id, Want: wire.Stored(wire.Flushed)})
	l.opened = frame[*wire.Opened](l)
	return l
}

// say publishes one message of a producer with an id.
func (l *line) say(seq, low uint64, body string) {
	l.send(&wire.Publish{Seq: seq, Low: low, Body: []byte(body)})
}

// stands expects evidence that the sequence stands at that offset.
func (l *line) stands(seq, offset uint64) *wire.EvidenceFrame {
	l.t.Helper()
	e := frame[*wire.EvidenceFrame](l)
	if e.First != seq || e.Count != 1 || e.Offset != offset || !e.Evidence.Covers(wire.Stored(wire.Flushed)) {
		l.t.Fatalf("evidence %+v, want sequence %d at offset %d", e, seq, offset)
	}
	return e
}

// The same sequence again gives the evidence of the first message and never a second copy: on the same
// stream, on another one, after a restart, and when the message is settled.
func TestRetriesAreSafe(t *testing.T) {
	r := newRig(t, nil)
	p := r.named("p")
	if p.opened.Next != 1 || p.opened.Low > 1 {
		t.Fatalf("a new producer: %+v", p.opened)
	}
	p.say(1, 1, "one")
	first := p.stands(1, 0)
	p.say(1, 1, "one")
	if again := p.stands(1, 0); again.Term != first.Term {
		t.Errorf("term %d, then %d", first.Term, again.Term)
	}
	p.say(2, 1, "two")
	p.stands(2, 1)
	r.close()
	r.open()
	p = r.named("p")
	if p.opened.Next != 3 {
		t.Errorf("after a restart: %+v", p.opened)
	}
	p.say(1, 1, "one")
	if again := p.stands(1, 0); again.Term != first.Term {
		t.Errorf("term %d, then %d after a restart", first.Term, again.Term)
	}
	c := r.consumer("s", 10)
	one := c.get(0, 1, "one")
	c.get(1, 1, "two")
	c.settle(one, wire.Accept, wire.OK)
	p.say(1, 1, "one")
	p.stands(1, 0)
	p.say(3, 1, "three")
	p.stands(3, 2)
	if d := c.get(2, 1, "three"); d.Producer != "p" || d.Seq != 3 {
		t.Errorf("delivered %+v", d)
	}
}

// Below the lowest unresolved sequence nothing is remembered, and nothing is guessed.
func TestRetiredSequences(t *testing.T) {
	r := newRig(t, nil)
	p := r.named("p")
	p.say(1, 1, "one")
	p.stands(1, 0)
	p.say(2, 2, "two")
	p.stands(2, 1)
	p.say(1, 1, "one")
	p.refused(1, wire.SequenceRetired)
	p.say(2+queue.SequencesMax, 2, "far")
	p.refused(2+queue.SequencesMax, wire.SequenceTooFar)
	p.say(0, 0, "none")
	p.refused(0, wire.BadSequence)
	p.say(5, 6, "above itself")
	p.refused(5, wire.BadSequence)
	if again := r.named("p"); again.opened.Low != 2 || again.opened.Next != 3 {
		t.Errorf("%+v", again.opened)
	}
}

// An id belongs to the identity that used it first (W-31, X-16).
func TestProducerIdsAreBound(t *testing.T) {
	other, err := endpoint.LoadOrCreateIdentity(fsync.OS(), t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) {
		roles := map[endpoint.Fingerprint]endpoint.Role{other.Fingerprint(): endpoint.RoleClient}
		c.Trust = c.Trust.With(roles)
	})
	p := r.named("p")
	p.say(1, 1, "one")
	p.stands(1, 0)
	mine := r.client
	r.client = other
	r.line(r.dial(), &wire.OpenProducer{Queue: "demo", Producer: "p", Want: wire.Accepted()}).end(wire.ProducerOwned)
	r.line(r.dial(), &wire.Retire{Queue: "demo", Producer: "p"}).end(wire.ProducerOwned)
	r.client = mine
	frame[*wire.Done](r.line(r.dial(), &wire.Retire{Queue: "demo", Producer: "p"}))
	p.say(2, 2, "two") // the stream's registration is gone
	p.refused(2, wire.UnknownProducer)
	r.client = other
	if taken := r.named("p"); taken.opened.Next != 1 {
		t.Errorf("a retired id is not new: %+v", taken.opened)
	}
}
