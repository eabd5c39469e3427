package broker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/raftstore"
)

// crash goes on with the directory as a kill -9 at this moment would leave it; before the node opens it,
// fault may set one.
func (r *rig) crash(fault func()) {
	r.t.Helper()
	dir := r.config.Dir + ".copy"
	if err := os.CopyFS(dir, os.DirFS(r.config.Dir)); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	r.close()
	if err := os.RemoveAll(r.config.Dir); err != nil {
		r.t.Fatal(err)
	}
	move(r.t, dir, r.config.Dir)
	fault()
	r.open()
}

func (r *rig) subscriptions() (n int) {
	r.node.lookup("demo").read(func(s *queue.State) { n = s.Subscriptions() })
	return n
}

// A subscription that ends with its stream does not outlive a node that was killed: it would hold one of
// the queue's places for ever, for nobody can name it.
func TestEphemeralSubscriptionsEndWithTheNode(t *testing.T) {
	r := newRig(t, nil)
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	r.consumer("s", 0)
	c := r.consumer("", 1)
	c.get(0, 1, "x")
	r.consumer("", 1)
	if n := r.subscriptions(); n != 3 {
		t.Fatalf("%d subscriptions", n)
	}
	r.crash(func() {})
	r.until("those of the killed node's streams are gone", func() bool { return r.subscriptions() == 1 })
	r.consumer("s", 1).get(0, 2, "x")
}

// What ends the attachments of an earlier life ends none of this one, however late it gets into the log.
func TestLateDetachSparesTheLiving(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	r.producer(wire.Stored(wire.Flushed)).put(1, "one")
	r.consumer("s", 10).get(0, 1, "one")
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	r.crash(func() { files.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, 1, fsync.ErrDiskFull) })
	r.until("the first command meets the full disk", func() bool {
		return errors.Is(r.node.lookup("demo").group.Status().ReadOnly, raftstore.ErrDiskFull)
	})
	c := r.consumer("s", 10)
	one := c.get(0, 2, "one")
	p := r.producer(wire.Stored(wire.Flushed))
	p.put(1, "two")
	c.settle(c.get(1, 1, "two"), wire.Accept, wire.OK)
	c.settle(one, wire.Accept, wire.OK)
	p.put(2, "three")
	c.settle(c.get(2, 1, "three"), wire.Accept, wire.OK)
}

// What a consumer held when the disk was full goes to another once there is room, though nothing else is
// written.
func TestDetachAfterAFullDisk(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	r.producer(wire.Stored(wire.Flushed)).put(1, "x")
	c := r.consumer("s", 1)
	d := c.get(0, 1, "x")
	other := r.consumer("other", 1)
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, 2, fsync.ErrDiskFull) // settle, then detach
	c.settleUnanswered(d)
	c.end(wire.DiskFull)
	other.get(0, 2, "x")
}

func (l *line) settleUnanswered(d *wire.Deliver) {
	l.send(&wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: wire.Accept})
}

// Consumers that come and go while the disk is full leave nothing behind in memory.
func TestAttachingToAFullDisk(t *testing.T) {
	files := faultfs.New(fsync.OS())
	r := newRig(t, func(c *Config) { c.files = files })
	segments := filepath.Join(r.groupDir("demo"), "*.seg")
	files.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, 20, fsync.ErrDiskFull)
	conn := r.dial()
	for range 20 {
		r.line(conn, &wire.OpenConsumer{Queue: "demo", Subscription: "s"}).end(wire.DiskFull)
	}
	q := r.node.lookup("demo")
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.again) > 0 {
		t.Errorf("%d commands wait for room", len(q.again))
	}
}
