package broker

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"weida/broker/wire"
	"weida/segment"
)

// A settle is answered while a large delivery is not read yet: who settles message by message and
// waits for the answer must not wait for a body that it will read next.
func TestSettleBesideAnUnreadBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	p.put(1, "small")
	body := pattern(20 << 20) // more than every window of the connection
	n := uint64(len(body))
	r.filled(fill(p.large(2, n), n, body, segment.DigestOf(body)))
	frame[*wire.EvidenceFrame](p)
	c := r.consumer("s", 10)
	small := c.get(0, 1, "small")
	large := *frame[*wire.Deliver](c)
	c.settle(small, wire.Accept, wire.OK)
	if got := c.body(&large); len(got) != len(body) || segment.DigestOf(got) != segment.DigestOf(body) {
		t.Error("the body came back changed")
	}
	c.settle(&large, wire.Accept, wire.OK)
}

// A consumer that does not want a body stops its stream and goes on with the next delivery.
func TestUnwantedBody(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	body := pattern(20 << 20)
	n := uint64(len(body))
	r.filled(fill(p.large(1, n), n, body, segment.DigestOf(body)))
	frame[*wire.EvidenceFrame](p)
	p.put(2, "next")
	c := r.consumer("s", 10)
	large := *frame[*wire.Deliver](c)
	s, err := c.conn.AcceptUniStream(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.CancelRead(0)
	c.get(1, 1, "next")
	c.settle(&large, wire.Reject, wire.OK)
}

// A consumer that leaves with a body unread frees what streams it: its message goes to another.
func TestLeavingWithABodyUnread(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	body := pattern(20 << 20)
	n := uint64(len(body))
	r.filled(fill(p.large(1, n), n, body, segment.DigestOf(body)))
	frame[*wire.EvidenceFrame](p)
	first := r.consumer("s", 10)
	frame[*wire.Deliver](first)
	if err := first.stream.Close(); err != nil {
		t.Fatal(err)
	}
	second := r.consumer("t", 10) // not the same one, which would take it over
	d := *frame[*wire.Deliver](second)
	if d.Attempt != 2 {
		t.Errorf("attempt %d", d.Attempt)
	}
	if got := second.body(&d); !bytes.Equal(got, body) {
		t.Error("the body came back changed")
	}
}

// A client that asks and asks and reads no answer is not read on: what it can make the node hold is bounded.
func TestUnreadAnswersAreBounded(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	c := r.consumer("s", 1)
	p.put(1, "x")
	d := c.get(0, 1, "x")
	floods := map[string]struct {
		l     *line
		frame func(seq uint64) wire.Frame
	}{
		"refused messages": {p, func(seq uint64) wire.Frame {
			return &wire.Publish{Seq: seq, Low: 1, Want: wire.Replicated(3, wire.Written)}
		}},
		"stale settles": {c, func(uint64) wire.Frame {
			return &wire.Settle{Offset: d.Offset, Attempt: d.Attempt + 1, Term: d.Term, Verb: wire.Accept}
		}},
	}
	for name, f := range floods {
		t.Run(name, func(t *testing.T) {
			before := heap()
			f.l.flood(f.frame)
			// Both sides' windows and buffers are within this; a quarter of the answers would not be.
			if grown := heap() - before; grown > 12<<20 {
				t.Errorf("%d MiB of answers wait for a client that does not read", grown>>20)
			}
		})
	}
}

// flood writes frames until 8 MiB are sent or the node reads no more.
func (l *line) flood(frame func(seq uint64) wire.Frame) {
	l.t.Helper()
	if err := l.stream.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
		l.t.Fatal(err)
	}
	var buf []byte
	for sent, seq := 0, uint64(2); sent < 8<<20; sent += len(buf) {
		for buf = buf[:0]; len(buf) < 64<<10; seq++ {
			buf = wire.Append(buf, frame(seq))
		}
		if _, err := l.stream.Write(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			l.t.Fatal(err)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
