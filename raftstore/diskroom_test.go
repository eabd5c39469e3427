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

// almostFull is a node of one group whose disk has 16 MiB above what is kept from messages, and which knows.
func almostFull(t *testing.T) (*rig, *kv, int64) {
	t.Helper()
	r := &rig{t: t, disk: memfs.New(), opts: HostOptions{Shards: 1}, wal: wal.Options{SegmentBytes: 128 << 10}}
	r.boot()
	m := newKV(t, "a")
	r.open(1, m)
	for i := range 200 {
		m.must(put(fmt.Sprint("k", i), big))
		r.settle()
	}
	r.disk.SetCapacity((r.disk.Used() + 16<<20) * DiskReserveShare / (DiskReserveShare - 1))
	r.disk.SetCapacity(r.disk.Used() + r.free()&^(1<<20-1) + 48<<10) // room is taken in steps of 1 MiB
	for range diskLookTicks {
		r.host.Tick()
		r.settle()
	}
	before := r.host.Disk()
	if before.State != 0 {
		t.Fatalf("%+v", before)
	}
	return r, m, before.Reserve
}

// free is how much room the disk has.
func (r *rig) free() int64 {
	r.t.Helper()
	s, err := r.disk.Space(".")
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Free
}

// kept says that what was free at the least is most of the reserve, that commands are taken, and messages again with
// room.
func (r *rig) kept(m *kv, least, reserve int64) {
	r.t.Helper()
	if least < reserve/2 || r.told(DiskFull) != 0 {
		r.t.Errorf("%d of %d kept bytes were left, the disk refused %d writes", least, reserve, r.told(DiskFull))
	}
	m.must(note("settle"))
	r.settle()
	r.disk.SetCapacity(0)
	for range 2 * diskLookTicks {
		r.host.Tick()
		r.settle()
	}
	m.must(put("room", big))
	r.settle()
	r.stop()
}

// Bodies of which not a byte came take room all the same: it counts before it is taken, and so no burst of them gets
// at what is kept from messages.
func TestBegunBodiesLeaveTheReserve(t *testing.T) {
	r, m, reserve := almostFull(t)
	var list []BodyWriter
	for range 64 { // no tick: between two looks
		w, err := m.group.NewBody(8 << 20)
		if errors.Is(err, ErrDiskFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
	}
	least := r.free()
	if state := r.host.Disk().State; len(list) == 64 || state != DiskNoRoom {
		t.Errorf("%d bodies were begun, and the disk is %v", len(list), state)
	}
	for _, w := range list {
		w.Abort()
	}
	r.kept(m, least, reserve)
}

// Bodies that were begun while there was room end where none is left for messages, and give back what they took.
func TestBodiesUnderWayLeaveTheReserve(t *testing.T) {
	r, m, reserve := almostFull(t)
	var list []BodyWriter
	for range 8 {
		w, err := m.group.NewBody(4 << 20)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
	}
	piece, used, least := make([]byte, 64<<10), r.disk.Used(), r.free()
	for range 4<<20/len(piece) - 1 {
		for k, w := range list {
			if w == nil {
				continue
			}
			_, err := w.Write(piece)
			least = min(least, r.free())
			if errors.Is(err, ErrDiskFull) {
				w.Abort() // does nothing more
				list[k] = nil
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	ended := 0
	for _, w := range list {
		if w == nil {
			ended++
			continue
		}
		w.Abort()
	}
	if now := r.disk.Used(); ended == 0 || now >= used {
		t.Errorf("%d of %d bodies ended, %d bytes are used, before %d", ended, len(list), now, used)
	}
	r.kept(m, least, reserve)
}

// A body under way ends, too, where most of the others have no room.
func TestBodyUnderWayWithTwoFull(t *testing.T) {
	c, lead := threeNodes(t, 69)
	c.publishes(1, "k", 3)
	w, err := lead.kvs[1].group.NewBody(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 64<<10)
	if _, err := w.Write(piece); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.rest(lead) {
		n.keeps(t)
	}
	c.tick(2 * diskLookTicks)
	if _, err := w.Write(piece); !errors.Is(err, ErrDiskFull) || c.leads(1) != lead {
		t.Errorf("two have no room, and the leader takes more of a body: %v", err)
	}
	for _, n := range c.rest(lead) {
		n.disk.SetCapacity(0)
	}
	c.tick(diskRefusedTicks + 10)
	c.same(1, true)
	c.bodies(1)
}
