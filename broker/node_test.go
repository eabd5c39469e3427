package broker

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/wire"
	"weida/segment"
)

// Each message gets the evidence it asked for or better, never less; offsets are dense.
func TestEvidenceCoversTheWant(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Flushed))
	if p.opened.Offer != wire.Stored(wire.Flushed) || p.opened.InFlight != inFlightMessagesMax {
		t.Errorf("opened: %+v", p.opened)
	}
	first := p.put(1, "flushed by default")
	if first.Evidence != wire.Stored(wire.Flushed) || first.Offset != 0 || first.Term == 0 {
		t.Errorf("stored:flushed: %+v", first)
	}
	p.send(&wire.Publish{Seq: 2, Low: 2, Want: wire.Stored(wire.Written), Body: []byte("written")})
	e := frame[*wire.EvidenceFrame](p)
	if !e.Evidence.Covers(wire.Stored(wire.Written)) || e.Offset != 1 || e.Term != first.Term {
		t.Errorf("stored:written: %+v", e)
	}
	p.send(&wire.Publish{Seq: 3, Low: 3, Want: wire.Accepted(), Body: []byte("accepted")})
	if e := frame[*wire.EvidenceFrame](p); e.Evidence != wire.Accepted() {
		t.Errorf("accepted: %+v", e)
	}
	c := r.consumer("s", 10)
	for i, body := range []string{"flushed by default", "written", "accepted"} {
		c.get(uint64(i), 1, body)
	}
}

// Evidence of many messages comes as few frames, in ranges in which sequence and offset rise together.
func TestEvidenceComesInRanges(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	const n = 500
	var all []wire.Frame
	for seq := uint64(1); seq <= n; seq++ {
		all = append(all, &wire.Publish{Seq: seq, Low: 1, Body: []byte("x")})
	}
	p.send(all...)
	frames := 0
	for next := uint64(1); next <= n; frames++ {
		e := frame[*wire.EvidenceFrame](p)
		if e.First != next || e.Offset != next-1 {
			t.Fatalf("range %+v, want it to start at %d", e, next)
		}
		next += e.Count
	}
	if frames > n/10 {
		t.Errorf("%d frames for %d messages sent at once", frames, n)
	}
}

// What was accepted does not return; what was not does, with the next attempt, also after a restart.
func TestSettlesOutliveTheNode(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Flushed))
	for i, body := range []string{"accepted", "released", "rejected", "kept"} {
		p.put(uint64(i+1), body)
	}
	c := r.consumer("s", 100)
	accepted, released := c.get(0, 1, "accepted"), c.get(1, 1, "released")
	rejected, kept := c.get(2, 1, "rejected"), c.get(3, 1, "kept")
	c.settle(accepted, wire.Accept, wire.OK)
	c.settle(accepted, wire.Accept, wire.StaleSettle)
	c.settle(rejected, wire.Reject, wire.OK)
	wrong := *kept
	wrong.Term++
	c.settle(&wrong, wire.Accept, wire.StaleSettle)
	term := p.put(9, "late").Term
	late := c.get(4, 1, "late")
	c.send(&wire.Settle{Offset: released.Offset, Attempt: 1, Term: released.Term, Verb: wire.Release})
	// The answer waits for a flush, the delivery does not.
	for range 2 {
		switch f := c.next().(type) {
		case *wire.Settled:
			if f.Offset != 1 || f.Code != wire.OK {
				t.Errorf("release: %+v", f)
			}
		case *wire.Deliver:
			if f.Offset != 1 || f.Attempt != 2 {
				t.Errorf("after the release: %+v", f)
			}
		}
	}
	r.close()
	r.open()
	c = r.consumer("s", 100)
	c.get(1, 3, "released")
	kept = c.get(3, 2, "kept")
	c.get(4, 2, "late")
	c.settle(late, wire.Accept, wire.StaleSettle) // of the life before
	c.settle(kept, wire.Accept, wire.OK)
	if e := r.producer(wire.Stored(wire.Flushed)).put(1, "new"); e.Offset != 5 || e.Term <= term {
		t.Errorf("after a restart: offset %d in term %d, before it the term was %d", e.Offset, e.Term, term)
	}
}

// A large body comes and goes on streams of its own, byte for byte; a broken one takes no offset.
func TestLargeBodies(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Flushed))
	body := pattern(5<<20 + 7)
	digest := segment.DigestOf(body)
	n := uint64(len(body))

	wrong := digest
	wrong[3]++
	spoiled(fill(p.large(1, n), n, body, wrong))
	p.refused(1, wire.BodyMismatch)
	spoiled(fill(p.large(2, n), n+1, body, digest))
	p.refused(2, wire.BodyMismatch)
	spoiled(fill(p.large(3, n), n, body[:n-20], digest))
	p.refused(3, wire.BodyBroken)
	s := p.large(4, n)
	s.CancelWrite(7)
	p.refused(4, wire.BodyBroken)
	spoiled(fill(p.large(5, n), n, append(body[:n:n], 'x'), digest))
	p.refused(5, wire.BodyMismatch)

	r.filled(fill(p.large(6, n), n, body, digest))
	if e := frame[*wire.EvidenceFrame](p); e.First != 6 || e.Offset != 0 || e.Evidence != wire.Stored(wire.Flushed) {
		t.Fatalf("a whole body: %+v", e)
	}
	p.put(7, "small")
	r.close() // both come from the disk
	r.open()
	c := r.consumer("s", 2)
	d := *frame[*wire.Deliver](c)
	if !d.Large || d.Length != n || d.Digest != digest || d.Offset != 0 {
		t.Fatalf("delivered %+v", d)
	}
	if got := c.body(&d); !bytes.Equal(got, body) {
		t.Error("the body came back changed")
	}
	c.get(1, 1, "small")
}

// body reads a large delivery from its stream.
func (l *line) body(d *wire.Deliver) []byte {
	l.t.Helper()
	s, err := l.conn.AcceptUniStream(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	if uint64(s.StreamID()) != d.Stream {
		l.t.Fatalf("stream %d, want %d", s.StreamID(), d.Stream)
	}
	if err := s.SetReadDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	in := wire.NewReader(s)
	if f, err := in.Next(); err != nil || f.(*wire.BodyHead).Length != d.Length {
		l.t.Fatalf("a body's stream starts with %+v, %v", f, err)
	}
	b, err := io.ReadAll(in.Rest())
	if err != nil || uint64(len(b)) != d.Length+16 || segment.Digest(b[d.Length:]) != d.Digest {
		l.t.Fatalf("%d bytes and %v; want %d and the digest", len(b), err, d.Length)
	}
	return b[:d.Length]
}

// A second node on the same directory is turned away, and says which.
func TestDirectoryInUse(t *testing.T) {
	r := newRig(t, nil)
	if _, err := Open(r.config); err == nil || !strings.Contains(err.Error(), r.config.Dir) {
		t.Errorf("a second node: %v", err)
	}
	if e := r.producer(wire.Stored(wire.Flushed)).put(1, "x"); e.Offset != 0 {
		t.Error("the first node was hurt")
	}
}

// A body above the bound is refused before it is read: its stream is stopped, nothing of it was taken.
func TestOversizeBodyIsNotRead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MessageMax = 1 << 20 })
	p := r.producer(wire.Stored(wire.Written))
	s := p.large(1, 1<<20+1)
	p.refused(1, wire.TooLarge)
	head := wire.Append(nil, &wire.BodyHead{Length: 1<<20 + 1})
	var err error
	for sent := 0; err == nil; {
		var n int
		n, err = s.Write(append(head, make([]byte, 64<<10)...))
		if sent += n; sent > 16<<20 {
			t.Fatal("a refused body was read")
		}
	}
	var stop *quic.StreamError
	if !errors.As(err, &stop) || !stop.Remote || wire.Code(stop.ErrorCode) != wire.TooLarge {
		t.Errorf("the body's stream ended with %v", err)
	}
	whole := make([]byte, 1<<20)
	r.filled(fill(p.large(2, 1<<20), 1<<20, whole, segment.DigestOf(whole)))
	if e := frame[*wire.EvidenceFrame](p); e.First != 2 || e.Offset != 0 {
		t.Errorf("a body of exactly the bound: %+v", e)
	}
}
