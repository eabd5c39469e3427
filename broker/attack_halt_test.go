package broker

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// haltInside makes the flush of what demo has written so far fail while what send sends is being written:
// the group turns read-only between the entry's writing and its application.
func (r *rig) haltInside(files *faultfs.FS, before, send func()) {
	r.t.Helper()
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	flush := files.Gate(faultfs.Match{Op: faultfs.OpSync, Path: segments})
	files.Fail(faultfs.Match{Op: faultfs.OpSync, Path: segments}, 1, 1, errors.New("input/output error"))
	before()
	<-flush.Entered()
	write := files.Gate(faultfs.Match{Op: faultfs.OpWrite, Path: segments})
	send()
	<-write.Entered()
	flush.Open()
	r.until("the flush fails", func() bool { return r.node.flusher.Stats().Errors > 0 })
	write.Open()
}

// until asks until the answer is yes.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	for !holds() {
		select {
		case <-r.ctx.Done():
			r.t.Fatal("in vain: " + what)
		case <-time.After(time.Millisecond):
		}
	}
}

// A message that the queue refuses in an entry that will never be flushed has one answer, and its stream
// comes to its end.
func TestHaltBeforeARefusalIsApplied(t *testing.T) {
	t.Parallel()
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	r.make("demo", control.QueueSpec{Limits: control.QueueLimits{Messages: 2}})
	p := r.producer(wire.Stored(wire.Flushed))
	message := func(seq uint64) *wire.Publish { return &wire.Publish{Seq: seq, Low: 1, Body: []byte("x")} }
	r.haltInside(files, func() { p.send(message(1)) }, func() { p.send(message(2), message(3), message(4)) })
	if err := p.stream.Close(); err != nil {
		t.Fatal(err)
	}
	answers := make(map[uint64]int)
	for {
		f, err := p.in.Next()
		if err != nil {
			break
		}
		switch f := f.(type) {
		case *wire.Indeterminate:
			answers[f.Seq]++
		case *wire.Refused:
			answers[f.Seq]++
		default:
			t.Errorf("%T %+v", f, f)
		}
	}
	for seq := uint64(1); seq <= 4; seq++ {
		if answers[seq] != 1 {
			t.Errorf("message %d has %d answers", seq, answers[seq])
		}
	}
	r.until("the stream comes to its end", func() bool {
		q := r.node.lookup("demo")
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.streams == 0
	})
	r.closeBroken()
}

// A settle in an entry that will never be flushed is answered, too: nobody knows whether it stands.
func TestHaltBeforeASettleIsApplied(t *testing.T) {
	t.Parallel()
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "x")
	c := r.consumer("s", 10)
	d := c.get(0, 1, "x")
	r.haltInside(files,
		func() { p.send(&wire.Publish{Seq: 2, Low: 1, Body: []byte("y")}) },
		func() { c.send(&wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: wire.Accept}) })
	c.get(1, 1, "y")
	if f := frame[*wire.Settled](c); f.Offset != 0 || f.Code != wire.StoreFailed {
		t.Errorf("%+v", f)
	}
	r.closeBroken()
}
