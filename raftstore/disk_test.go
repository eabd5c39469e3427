package raftstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// big is the body of a message that a full disk has no place for.
var big = strings.Repeat("x", 30<<10)

// keeps leaves less room than is kept from messages.
func (n *node) keeps(t *testing.T) {
	t.Helper()
	n.disk.SetCapacity(n.disk.Used() + n.disk.Used()/30)
}

// publishes puts messages into whoever leads, as a client would: one that is refused because another one leads, or
// whose leader went, is sent again. It returns how many were refused for want of room.
func (c *cluster) publishes(g GroupID, prefix string, n int) (refused int) {
	c.t.Helper()
	for i := range n {
		for try := 0; ; try++ {
			if try == 200 {
				c.t.Fatalf("%s%d is not taken", prefix, i)
			}
			m := c.leader(g).kvs[g]
			tag, err := m.propose(put(fmt.Sprint(prefix, i), big))
			c.settle()
			if errors.Is(err, ErrDiskFull) {
				refused++
				c.tick(1)
				continue
			}
			if err != nil {
				c.tick(1)
				continue
			}
			for range 60 {
				if _, ok := m.answers[tag]; ok {
					break
				}
				c.tick(1)
			}
			a, ok := m.answers[tag]
			if !ok {
				c.t.Fatalf("%s%d has no answer", prefix, i)
			}
			if a.outcome.Kind == 0 {
				break
			}
			if errors.Is(a.outcome.Err, ErrDiskFull) {
				refused++
			}
			c.tick(1)
		}
	}
	return refused
}

// A leader whose disk has no room any more hands over to one that has: whoever publishes is sent there, nobody is
// refused, and everything is there once. With room again it catches up by itself.
func TestFullLeaderHandsOver(t *testing.T) {
	c, lead := threeNodes(t, 61)
	c.publishes(1, "before", 3)
	lead.disk.SetCapacity(lead.disk.Used())
	if n := c.publishes(1, "k", 20); n != 0 {
		t.Errorf("%d refused", n)
	}
	next := c.leader(1)
	if next == lead {
		t.Fatal("it still leads")
	}
	c.tick(2)
	if d := next.host.DiskOf(lead.id); d != DiskNoRoom || lead.host.DiskOf(lead.id) != DiskNoRoom {
		t.Errorf("the disk of node %d is %v to the others", lead.id, d)
	}
	// The leadership is not given back while there is no room, whoever asks for it.
	var refused *ChangeError
	err := next.kvs[1].group.Reconfigure(Change{TransferTo: replicaOn(lead.id)})
	if !errors.As(err, &refused) {
		t.Errorf("transfer to a full node: %v", err)
	}
	lead.disk.SetCapacity(0)
	c.tick(diskRefusedTicks + diskLookTicks + 5)
	if d := next.host.DiskOf(lead.id); d != 0 {
		t.Errorf("with room the disk of node %d is %v", lead.id, d)
	}
	if err := next.kvs[1].group.Reconfigure(Change{TransferTo: replicaOn(lead.id)}); err != nil {
		t.Errorf("transfer to a node with room: %v", err)
	}
	c.tick(5)
	if c.leads(1) != lead {
		t.Error("it does not lead again")
	}
	c.same(1, true)
	c.bodies(1)
}

// The same where nobody publishes: a group that is quiet is handed over too.
func TestFullLeaderOfAQuietGroup(t *testing.T) {
	c, lead := threeNodes(t, 62)
	c.publishes(1, "k", 3)
	for range 60 {
		c.tick(1)
	}
	if !lead.kvs[1].group.Status().Replication.Quiesced {
		t.Fatal("the group is not quiet")
	}
	lead.disk.SetCapacity(lead.disk.Used())
	c.tick(2 * diskLookTicks)
	if c.leads(1) == lead {
		t.Error("it still leads")
	}
}

// A replica that is elected where its disk has no place even for the first entry of its term hands over, too: it would
// serve nothing, and lead for ever.
func TestElectedOnAFullDisk(t *testing.T) {
	c, lead := threeNodes(t, 63)
	c.publishes(1, "k", 3)
	full, term := c.rest(lead)[0], lead.kvs[1].term
	full.fs.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: "*.seg"}, 1, 40, fsync.ErrDiskFull)
	if err := lead.kvs[1].group.Reconfigure(Change{TransferTo: replicaOn(full.id)}); err != nil {
		t.Fatal(err)
	}
	c.settle()
	if state := c.group(full, 1).soft.RaftState; state != raft.StateLeader && full.told(DiskFull) == 0 {
		t.Fatalf("it was not elected: %v", state)
	}
	c.tick(5)
	if now := c.leads(1); now == nil || now == full || now.kvs[1].term <= term+1 {
		t.Fatal("nobody else leads")
	}
	c.publishes(1, "after", 3)
	c.tick(200)
	c.same(1, true)
}

// Where all disks are full the leader stays, refuses messages and goes on with commands; where there is room again it
// takes messages by itself.
func TestAllFull(t *testing.T) {
	c, lead := threeNodes(t, 64)
	c.publishes(1, "k", 3)
	for _, n := range append(c.rest(lead), lead) { // the leader last: it can go nowhere
		n.keeps(t)
		c.tick(2 * diskLookTicks)
	}
	m := lead.kvs[1]
	term := m.term
	if _, err := m.propose(put("more", big)); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a message on full disks: %v", err)
	}
	if _, err := m.group.NewBody(segment.InlineMax + 1); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a large one: %v", err)
	}
	if st := m.group.Status(); !errors.Is(st.ReadOnly, ErrDiskFull) {
		t.Errorf("status: %v", st.ReadOnly)
	}
	for i := range 100 {
		tag := m.must(note(fmt.Sprint("settle", i)))
		c.settle()
		if now := m.now(); now.HeldBy(m.appended(tag)) != 3 {
			t.Fatalf("a command in the reserve: %+v", now)
		}
	}
	c.tick(100)
	if c.leads(1) != lead || m.term != term {
		t.Errorf("the leadership wandered: term %d after %d", m.term, term)
	}
	for _, n := range c.nodes {
		n.disk.SetCapacity(0)
	}
	c.tick(2 * diskLookTicks)
	tag := m.must(put("room", big))
	c.settle()
	m.appended(tag)
	c.tick(4)
	if st := m.group.Status(); st.ReadOnly != nil {
		t.Errorf("status: %v", st.ReadOnly)
	}
	c.same(1, true)
}

// Two of three full: messages are refused, and taken again as soon as one of the two has room.
func TestTwoFull(t *testing.T) {
	c, lead := threeNodes(t, 65)
	c.publishes(1, "k", 3)
	for _, n := range c.rest(lead) {
		n.keeps(t)
	}
	c.tick(2 * diskLookTicks)
	m := lead.kvs[1]
	if _, err := m.propose(put("more", big)); !errors.Is(err, ErrDiskFull) || c.leads(1) != lead {
		t.Errorf("a message with two full: %v", err)
	}
	tag := m.must(note("settle"))
	c.settle()
	if now := m.now(); now.HeldBy(m.appended(tag)) != 3 {
		t.Errorf("a command in the reserve: %+v", now)
	}
	c.rest(lead)[0].disk.SetCapacity(0)
	c.tick(2 * diskLookTicks)
	tag = m.must(put("room", big))
	c.settle()
	if now := m.now(); now.HeldBy(m.appended(tag)) < 2 {
		t.Errorf("with room on two: %+v", now)
	}
	c.rest(lead)[1].disk.SetCapacity(0)
	c.tick(diskRefusedTicks + 10)
	c.same(1, true)
	c.bodies(1)
}

// A leader that fell quiet on a full disk takes messages as soon as there is room, also while its disk still counts as
// full to others for a write that it refused.
func TestRoomWakesAQuietLeader(t *testing.T) {
	c := newCluster(t, 1, 67)
	c.openAll(1, 1)
	lead := c.leader(1)
	m := lead.kvs[1]
	c.publishes(1, "k", 3)
	c.tick(diskLookTicks - int(lead.host.clock.Load())%diskLookTicks) // the next tick looks
	lead.disk.SetCapacity(lead.disk.Used())
	c.tick(1)
	for i := 0; lead.told(DiskFull) == 0; i++ {
		m.must(note(fmt.Sprint("settle", i)))
		c.settle()
	}
	for i := 0; !m.group.Status().Replication.Quiesced; i++ {
		if i > 30 {
			t.Fatal("the group is not quiet")
		}
		c.tick(1)
	}
	if _, err := m.propose(put("more", big)); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("a message on a full disk: %v", err)
	}
	lead.disk.SetCapacity(0)
	c.tick(diskLookTicks)
	if d := lead.host.Disk(); d.State != DiskNoRoom || d.Space.Total != 0 {
		t.Fatalf("this is about a disk with room that refused a write lately: %+v", d)
	}
	tag := m.must(put("room", big))
	c.settle()
	m.appended(tag)
	if d := lead.host.Disk(); d.State != 0 {
		t.Errorf("the disk took a message, and is %v", d.State)
	}
}

// A leader whose disk is slow, not stalled, hands over to one whose disk is not, and does not get the leadership back
// while it is slow; where all are slow it stays.
func TestSlowLeaderHandsOver(t *testing.T) {
	for _, all := range []bool{false, true} {
		c, lead := threeNodes(t, 66)
		slow := func(n *node) bool { return all || n == lead }
		handed := -1
		for i := range 400 {
			c.tickAll()
			c.pump(func(n *node) bool { return !slow(n) || i%13 == 0 })
			if c.leads(1) != lead {
				handed = i
				break
			}
			if _, err := lead.kvs[1].propose(put(fmt.Sprint("k", i), "x")); err != nil && handed < 0 {
				t.Logf("tick %d: %v", i, err)
			}
			c.pump(func(n *node) bool { return !slow(n) })
		}
		if all != (handed < 0) {
			t.Errorf("all are slow: %v, handed over at tick %d", all, handed)
		}
		t.Logf("all are slow: %v, handed over at tick %d", all, handed)
		c.settle()
		c.tick(2)
		if d := c.leads(1).host.DiskOf(lead.id); d != DiskSlow {
			t.Errorf("the disk of node %d is %v to whoever leads", lead.id, d)
		}
		c.tick(diskCalmTicks + 5)
		if d := c.leads(1).host.DiskOf(lead.id); d != 0 {
			t.Errorf("after it was well for long it is %v", d)
		}
		c.same(1, true)
	}
}

// Consumers that settle what a full disk holds give it room, though what they write is far from what a snapshot is
// taken for otherwise: messages are taken again and nobody has to free anything.
func TestSettlesGiveRoom(t *testing.T) {
	r := &rig{t: t, disk: memfs.New(), opts: HostOptions{Shards: 1}, wal: wal.Options{SegmentBytes: 512 << 10}}
	r.boot()
	m := newKV(t, "a")
	r.open(1, m)
	const n = 60
	for i := range n {
		m.must(put(fmt.Sprint("k", i), big))
		r.settle()
	}
	tick := func(n int) {
		for range n {
			r.host.Tick()
			r.settle()
		}
	}
	r.disk.SetCapacity(r.disk.Used() + r.disk.Used()/30)
	tick(2 * diskLookTicks)
	if _, err := m.propose(put("more", big)); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("a message on a full disk: %v", err)
	}
	for i := range n {
		m.must(del(fmt.Sprint("k", i)))
	}
	tick(3 * diskLookTicks)
	tag, err := m.propose(put("room", big))
	if err != nil {
		t.Fatalf("%d bytes of the disk are used: %v", r.disk.Used(), err)
	}
	r.settle()
	m.appended(tag)
	r.stop()
}
