package broker

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// A flush that hangs confirms nothing that waits for it, holds up no other queue, and lets everything go on
// when it is over.
func TestHangingFlush(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "x")
	flush := files.Gate(faultfs.Match{Op: faultfs.OpSync, Path: filepath.Join(r.groupDir("demo"), "*.seg")})
	for seq := uint64(2); seq <= 1000; seq++ {
		p.send(&wire.Publish{Seq: seq, Low: 1, Body: []byte("x")})
	}
	<-flush.Entered()
	p.send(&wire.Publish{Seq: 1001, Low: 1, Want: wire.Stored(wire.Written), Body: []byte("x")})
	if e := frame[*wire.EvidenceFrame](p); e.First != 1001 || e.Evidence != wire.Stored(wire.Written) {
		t.Errorf("while the flush hangs: %+v", e)
	}
	flush.Open()
	for next := uint64(2); next <= 1000; {
		e := frame[*wire.EvidenceFrame](p)
		if e.First != next || e.Offset != next-1 || e.Evidence != wire.Stored(wire.Flushed) {
			t.Fatalf("%+v, want from %d", e, next)
		}
		next += e.Count
	}
}

// Streams and connections that come and go leave no goroutine and no place behind.
func TestNothingIsLeftOfClients(t *testing.T) {
	r := newRig(t, nil)
	round := func() {
		conn := r.dial()
		for range 20 {
			p := r.line(conn, &wire.OpenProducer{Queue: "demo", Producer: "p", Want: wire.Stored(wire.Flushed)})
			o := frame[*wire.Opened](p)
			p.say(o.Next, o.Next, "x")
			frame[*wire.EvidenceFrame](p)
			c := r.line(conn, &wire.OpenConsumer{Queue: "demo", Credit: 1 << 40})
			frame[*wire.Opened](c)
			frame[*wire.Deliver](c)
			p.stream.CancelRead(0)
			p.stream.CancelWrite(0)
			c.stream.CancelRead(0)
			c.stream.CancelWrite(0)
			frame[*wire.PeekEnd](r.line(conn, &wire.OpenPeek{Queue: "demo", From: 1 << 40, Count: 1}))
		}
		conn.Close()
		q := r.node.lookup("demo")
		r.until("everybody has left", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.streams == 0 && len(q.consumers) == 0 && len(q.asked) == 0 && len(q.again) == 0
		})
		r.until("their subscriptions have ended", func() bool { return r.subscriptions() == 0 })
	}
	round()
	before := runtime.NumGoroutine()
	for range 3 {
		round()
	}
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before+5 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}
