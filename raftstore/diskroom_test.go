package raftstore

import (
	"errors"
	"fmt"
	"testing"

	"weida/fsync/memfs"
	"weida/wal"
)

// A leader with a full disk stays where the next one could take messages no more than it can, because of another full
// disk; it goes on with commands, and hands over as soon as that helps.
func TestFullLeaderStaysWhereNobodyCouldTakeMore(t *testing.T) {
	c, lead := threeNodes(t, 67)
	c.publishes(1, "k", 3)
	m, other := lead.kvs[1], c.rest(lead)[0]
	term := m.term
	for _, n := range []*node{other, lead} { // the leader last: it could hand over to two with room
		n.keeps(t)
		c.tick(2 * diskLookTicks)
	}
	c.tick(4 * 15 * yieldTicks)
	if c.leads(1) != lead || m.term != term {
		t.Fatalf("the leadership wandered: term %d after %d", m.term, term)
	}
	if _, err := m.propose(put("more", big)); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a message with two full: %v", err)
	}
	tag := m.must(note("settle"))
	c.settle()
	if now := m.now(); now.HeldBy(m.appended(tag)) != 3 {
		t.Errorf("a command in the reserve: %+v", now)
	}
	other.disk.SetCapacity(0)
	c.tick(2*diskLookTicks + 15*yieldTicks)
	if c.leads(1) == lead {
		t.Error("it still leads where two others have room")
	}
	if n := c.publishes(1, "after", 3); n != 0 {
		t.Errorf("%d refused", n)
	}
	lead.disk.SetCapacity(0)
	c.tick(diskRefusedTicks + 10)
	c.same(1, true)
	c.bodies(1)
}

// What a leader wrote before it knew that two of three disks are full waits, and who waits for it is told so in
// bounded time, again and again; with room it is committed as always.
func TestWrittenBeforeTwoWereFull(t *testing.T) {
	c, lead := threeNodes(t, 68)
	m := lead.kvs[1]
	c.publishes(1, "k", 3)
	for _, n := range c.rest(lead) {
		n.disk.SetCapacity(n.disk.Used())
	}
	var last Index
	for i := range 20 { // more than what is left of their segments
		tag, err := m.propose(put(fmt.Sprint("more", i), big))
		if err != nil {
			break
		}
		c.settle()
		if a := m.answers[tag]; a.index != 0 {
			last = a.index
		}
	}
	if now := m.now(); now.Committed >= last {
		t.Fatalf("it is committed: %+v", now)
	}
	c.tick(diskLookTicks)
	if m.overdue != 0 {
		t.Errorf("told of entry %d at once: %v", m.overdue, m.why)
	}
	c.tick(2 * OverdueTicks)
	if m.overdue < last || !errors.Is(m.why, ErrUncommitted) || errors.Is(m.why, ErrDiskFull) {
		t.Errorf("of entry %d one is told up to %d: %v", last, m.overdue, m.why)
	}
	for _, n := range c.rest(lead) {
		n.disk.SetCapacity(0)
	}
	c.tick(diskRefusedTicks + 10)
	if now := m.now(); now.Committed < last {
		t.Errorf("with room: %+v", now)
	}
	m.overdue = 0
	c.tick(2 * OverdueTicks)
	if m.overdue != 0 {
		t.Errorf("told of entry %d where nothing waits", m.overdue)
	}
	c.same(1, true)
	c.bodies(1)
}

// A burst between two looks at the disk leaves what is kept from messages: messages are refused before the disk
// refuses a write, and the next look, which is not waited for a second, says what is true.
func TestBurstLeavesTheReserve(t *testing.T) {
	r := &rig{t: t, disk: memfs.New(), opts: HostOptions{Shards: 1}, wal: wal.Options{SegmentBytes: 128 << 10}}
	r.boot()
	m := newKV(t, "a")
	r.open(1, m)
	for i := range 200 {
		m.must(put(fmt.Sprint("k", i), big))
		r.settle()
	}
	r.disk.SetCapacity((r.disk.Used() + 256<<10) * DiskReserveShare / (DiskReserveShare - 1))
	for range diskLookTicks {
		r.host.Tick()
		r.settle()
	}
	before := r.host.Disk()
	if before.State != 0 {
		t.Fatalf("%+v", before)
	}
	refused := 0
	for i := range 60 { // no tick: between two looks
		if _, err := m.propose(put(fmt.Sprint("burst", i), big)); errors.Is(err, ErrDiskFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	s, err := r.disk.Space(".")
	if err != nil {
		t.Fatal(err)
	}
	if refused == 0 || s.Free < before.Reserve-128<<10 || r.told(DiskFull) != 0 {
		t.Errorf("%d refused, %d of %d kept bytes are free, the disk refused %d writes", refused, s.Free, before.Reserve,
			r.told(DiskFull))
	}
	r.disk.SetCapacity(0)
	for range 2 * diskLookTicks {
		r.host.Tick()
		r.settle()
	}
	m.must(put("room", big))
	r.settle()
	r.stop()
}
