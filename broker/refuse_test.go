package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weida/broker/control"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// What a stream may not be opened for ends it with one typed frame.
func TestStreamsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	conn := r.dial()
	stored := wire.Stored(wire.Written)
	publish := &wire.Publish{Seq: 1, Low: 1, Body: []byte("x")}
	for _, c := range []struct {
		name  string
		first wire.Frame
		code  wire.Code
	}{
		{"unknown queue, producer", &wire.OpenProducer{Queue: "nope", Want: stored}, wire.UnknownQueue},
		{"unknown queue, consumer", &wire.OpenConsumer{Queue: "nope"}, wire.UnknownQueue},
		{"no queue", &wire.OpenProducer{Want: stored}, wire.UnknownQueue},
		{
			"T-33: replicated of one replica", &wire.OpenProducer{Queue: "demo", Want: wire.Replicated(2, wire.Written)},
			wire.NotOffered,
		},
		{"a broker's subscription id", &wire.OpenConsumer{Queue: "demo", Subscription: "~1"}, wire.NotAllowed},
		{"no open frame", publish, wire.Malformed},
	} {
		l := r.line(conn, c.first)
		t.Run(c.name, func(*testing.T) { l.end(c.code) })
		if _, err := l.in.Next(); err == nil {
			t.Errorf("%s: the stream goes on", c.name)
		}
	}
	for _, c := range []struct {
		name string
		raw  []byte
	}{
		{"D-4: stored without a level", []byte{1, 8, 4, 'd', 'e', 'm', 'o', 0, 2, 0}},
		{"D-6: replicated of one", []byte{1, 9, 4, 'd', 'e', 'm', 'o', 0, 3, 2, 1}},
		{"unknown frame", []byte{63, 0}},
		{"giant length", []byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
	} {
		l := r.line(conn)
		if _, err := l.stream.Write(c.raw); err != nil {
			t.Fatal(err)
		}
		t.Run(c.name, func(*testing.T) { l.end(wire.Malformed) })
	}
	l := r.line(conn)
	if _, err := l.stream.Write([]byte{1, 8, 4}); err != nil {
		t.Fatal(err)
	}
	if err := l.stream.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("ended inside a frame", func(*testing.T) { l.end(wire.Malformed) })
}

// A message that is refused takes no offset; what came before and after it stands.
func TestMessagesThatAreRefused(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MessageMax = 1000 })
	p := r.producer(wire.Stored(wire.Written))
	if e := p.put(1, "first"); e.Offset != 0 {
		t.Fatalf("%+v", e)
	}
	p.send(&wire.Publish{Seq: 2, Low: 1, Want: wire.Replicated(3, wire.Flushed), Body: []byte("x")})
	p.refused(2, wire.NotOffered)
	p.send(&wire.Publish{Seq: 3, Low: 1, Body: make([]byte, 1001)})
	p.refused(3, wire.TooLarge)
	p.send(&wire.Publish{Seq: 4, Low: 1, Headers: []byte("h"), Body: []byte("x")})
	p.refused(4, wire.NotOffered)
	if e := p.put(7, "last"); e.Offset != 1 {
		t.Fatalf("%+v", e)
	}
	p.send(&wire.Publish{Seq: 7, Low: 1, Body: []byte("again")})
	p.end(wire.BadSequence)

	// Whole messages in front of bytes that are no frame are answered, then the stream ends.
	p = r.producer(wire.Stored(wire.Written))
	raw := wire.Append(nil, &wire.Publish{Seq: 1, Low: 1, Body: []byte("before the garbage")})
	if _, err := p.stream.Write(append(raw, 63, 0)); err != nil {
		t.Fatal(err)
	}
	if e := frame[*wire.EvidenceFrame](p); e.First != 1 || e.Offset != 2 {
		t.Errorf("%+v", e)
	}
	p.end(wire.Malformed)

	c := r.consumer("s", 100)
	c.get(0, 1, "first")
	c.get(1, 1, "last")
	c.get(2, 1, "before the garbage")
	c.send(&wire.Publish{Seq: 1, Low: 1})
	c.end(wire.Malformed)
}

// One subscription, one consumer: the later one gets what the earlier one did not settle.
func TestSecondAttachSupersedes(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	p.put(1, "a")
	p.put(2, "b")
	first := r.consumer("s", 10)
	a := first.get(0, 1, "a")
	first.get(1, 1, "b")
	first.settle(a, wire.Accept, wire.OK)
	second := r.consumer("s", 10)
	if second.opened.Delivered != 2 || second.opened.Limit != 10 {
		t.Errorf("resumed: %+v", second.opened)
	}
	first.end(wire.Superseded)
	second.get(1, 2, "b")
}

// Credit is an absolute limit: a lower one and the same one change nothing.
func TestCredit(t *testing.T) {
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	c := r.consumer("s", 0)
	for i, body := range []string{"a", "b", "c"} {
		p.put(uint64(i+1), body)
	}
	c.send(&wire.Credit{Limit: 2})
	a, _ := c.get(0, 1, "a"), c.get(1, 1, "b")
	c.send(&wire.Credit{Limit: 1}, &wire.Credit{Limit: 2})
	c.settle(a, wire.Accept, wire.OK) // frees no credit; the answer comes without a delivery before it
	c.send(&wire.Credit{Limit: 3})
	c.get(2, 1, "c")
}

// The end of a consumer gives back what it did not settle; an ephemeral one leaves nothing behind.
func TestLeaving(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Written)).put(1, "a")
	for attempt := uint64(1); attempt <= 3; attempt++ {
		c := r.consumer("", 10)
		if c.opened.Delivered != 0 {
			t.Errorf("an ephemeral subscription was resumed: %+v", c.opened)
		}
		c.get(0, attempt, "a")
		if attempt == 2 {
			c.conn.Close() // or the whole connection
		} else if err := c.stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A full disk refuses messages as not stored, nothing else ends, and admission resumes by itself (field case 51:
// nats-server 2221, nats-server 7654).
func TestDiskFull(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	p := r.producer(wire.Stored(wire.Written))
	p.put(1, "before")
	c := r.consumer("s", 10)
	before := c.get(0, 1, "before")
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, 1, fsync.ErrDiskFull)
	p.send(&wire.Publish{Seq: 2, Low: 1, Body: []byte("lost")})
	p.refused(2, wire.DiskFull)
	if e := p.put(3, "after"); e.Offset != 1 {
		t.Errorf("after the disk had room again: %+v", e)
	}
	c.get(1, 1, "after")
	c.settle(before, wire.Accept, wire.OK)
}

// A node whose disk has no room for a start says which file, how much is free and what to do; nothing is changed, and
// with room it starts.
func TestNoRoomForAStart(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "before")
	content := func() map[string]string {
		m := make(map[string]string)
		err := filepath.WalkDir(r.config.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			m[path] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	r.crash(func() {
		files.SetFull(true)
		before := content()
		n, err := Open(r.config)
		var full *NoRoomError
		if n != nil || !errors.As(err, &full) || !errors.Is(err, fsync.ErrDiskFull) {
			t.Fatalf("%v", err)
		}
		for _, want := range []string{"incarnation", "0 of ", "free 1 MiB", "128 KiB for each queue", "as it was"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("it does not say %q: %v", want, err)
			}
		}
		if !maps.Equal(content(), before) {
			t.Error("something was changed")
		}
		files.SetFull(false)
	})
	r.consumer("s", 1).get(0, 1, "before")
}

// A full disk ends the stream of a consumer whose command had no room, with the reason, and what it
// held goes to others once there is room again.
func TestDiskFullForConsumers(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	p := r.producer(wire.Stored(wire.Written))
	p.put(1, "held")
	c := r.consumer("s", 10)
	d := c.get(0, 1, "held")
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, 2, fsync.ErrDiskFull) // settle, then detach
	c.send(&wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: wire.Accept})
	c.end(wire.DiskFull)
	for seq := uint64(2); ; seq++ { // until the detach was refused as well
		p.send(&wire.Publish{Seq: seq, Low: 1, Body: []byte("x")})
		if _, ok := p.next().(*wire.EvidenceFrame); ok {
			break
		}
	}
	r.consumer("other", 1).get(0, 2, "held")
}

// One subscription too many is refused with the reason; those that exist go on.
func TestTooManySubscriptions(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	conn := r.dial()
	attach := func(subscription string) *line {
		return r.line(conn, &wire.OpenConsumer{Queue: "demo", Subscription: subscription})
	}
	for i := range queue.SubscriptionsMax {
		c := attach(fmt.Sprint(i))
		frame[*wire.Opened](c)
		if err := c.stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
	attach("one more").end(wire.TooManySubs)
	frame[*wire.Opened](attach("7"))
}

// A group's directory that is gone is damage, not an empty queue: nobody is told that the queue is empty,
// others go on, and what comes back is as it was.
func TestGroupIsGone(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	here, away := r.groupDir("demo"), filepath.Join(filepath.Dir(r.config.Dir), "elsewhere")
	r.close()
	move(t, here, away)
	r.open()
	conn := r.dial()
	l := r.line(conn, &wire.OpenProducer{Queue: "demo", Want: wire.Stored(wire.Flushed)})
	if f := frame[*wire.ErrorFrame](l); f.Code != wire.NotReady {
		t.Errorf("%+v", f)
	}
	err := r.node.registry.await(r.ctx, func(s *control.State) bool {
		q, _ := s.Queue("demo")
		return q.Status.Phase == control.Degraded && strings.Contains(q.Status.Conditions[0].Message, "restore it")
	})
	if err != nil {
		t.Fatal(err)
	}
	frame[*wire.Opened](r.line(conn, &wire.OpenProducer{Queue: "other", Want: wire.Stored(wire.Flushed)}))
	if h := r.node.Health(); len(h.Ready) != 1 || h.Ready[0].Object != "queue demo" {
		t.Errorf("%+v", h)
	}
	r.close()
	move(t, away, here)
	r.open()
	r.consumer("s", 1).get(0, 1, "x")
}

// A control log that is gone while there are queues is damage: the node does not begin another one.
func TestControlLogIsGone(t *testing.T) {
	r := newRig(t, nil)
	r.close()
	control := filepath.Join(r.config.Dir, "groups", "1")
	away := filepath.Join(filepath.Dir(r.config.Dir), "elsewhere")
	move(t, control, away)
	if _, err := Open(r.config); err == nil || !strings.Contains(err.Error(), "the control log is missing") {
		t.Errorf("%v", err)
	}
	move(t, away, control)
	r.open()
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// A queue whose flush failed refuses, tells who waited for the flush that it is unknown, and is read
// on; another queue of the node goes on (T-30).
func TestFlushFails(t *testing.T) {
	t.Parallel()
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "before")
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpSync, Path: segments}, 1, 1, errors.New("input/output error"))
	p.send(&wire.Publish{Seq: 2, Low: 1, Body: []byte("unknown")})
	if f := frame[*wire.Indeterminate](p); f.Seq != 2 || f.Code != wire.StoreFailed {
		t.Errorf("%+v", f)
	}
	p.send(&wire.Publish{Seq: 3, Low: 1, Body: []byte("x")})
	p.refused(3, wire.ReadOnly)
	other := r.line(r.dial(), &wire.OpenProducer{Queue: "other", Want: wire.Stored(wire.Flushed)})
	frame[*wire.Opened](other)
	if e := other.put(1, "fine"); e.Evidence != wire.Stored(wire.Flushed) {
		t.Errorf("%+v", e)
	}
	r.closeBroken()
}

// closeBroken is close for a node whose storage failed: it says so.
func (r *rig) closeBroken() {
	r.t.Helper()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
	if err := r.node.Close(); err == nil || !strings.Contains(err.Error(), "input/output error") {
		r.t.Errorf("a node with a failed flush closed with %v", err)
	}
	r.node = nil
}
