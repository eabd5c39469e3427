package raftstore

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"weida/segment"
)

// payloads are the frames of a packet of the payload connection.
func payloads(t testing.TB, p *packet) (list []payload) {
	t.Helper()
	if p.kind != "payload" {
		return nil
	}
	for _, f := range p.frames {
		one, err := decodePayload(f.Data)
		if err != nil {
			t.Fatalf("node %d sends what can't be read: %v", p.from, err)
		}
		list = append(list, one)
	}
	return list
}

// without drops the frames of a kind on their way to a node.
func (c *cluster) without(kind payloadKind, to NodeID) func(*packet) bool {
	return func(p *packet) bool {
		for _, one := range payloads(c.t, p) {
			if one.kind == kind && p.to == to {
				return true
			}
		}
		return false
	}
}

// until lets ticks go by until something holds.
func (c *cluster) until(what string, holds func() bool) {
	c.t.Helper()
	for range 200 {
		if holds() {
			return
		}
		c.tick(1)
	}
	c.t.Fatalf("it never comes true: %s", what)
}

// stops ends all nodes in order.
func (c *cluster) stops() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.up {
			n.rig.stop()
		}
	}
}

// A missing body is asked for of the leader; when that does not answer, of the other members (T-45, W-13).
func TestFetchElsewhere(t *testing.T) {
	c, lead := threeNodes(t, 21)
	late, other := c.rest(lead)[0], c.rest(lead)[1]
	asked := map[NodeID]int{}
	c.drop = func(p *packet) bool {
		for _, one := range payloads(t, p) {
			if one.kind == wantFrame {
				asked[p.to]++
			}
		}
		return p.kind == "payload" && p.from == lead.id && p.to == late.id
	}
	tag := lead.kvs[1].must(put("k", "body"), put("other", strings.Repeat("x", segment.InlineMax)))
	c.settle()
	i := lead.kvs[1].appended(tag)
	c.until("the late one has it", func() bool { return lead.heldBy(i) == 3 })
	if asked[lead.id] == 0 || asked[other.id] == 0 {
		t.Fatalf("asked %v; leads %d, late %d", asked, lead.id, late.id)
	}
	c.drop = nil
	c.tick(4)
	c.same(1, true)
	c.bodies(1)
	c.stops()
}

// Row 47: a member that sends wrong bytes is counted, nothing of it is stored, and the body is asked for elsewhere.
func TestWrongBytes(t *testing.T) {
	c, lead := threeNodes(t, 22)
	late := c.rest(lead)[0]
	lies := 0
	c.drop = func(p *packet) bool {
		if p.kind != "payload" || p.from != lead.id || p.to != late.id {
			return false
		}
		for i, one := range payloads(t, p) {
			if one.kind == bodyFrame {
				wrong := bytes.Repeat([]byte("!"), len(one.bytes))
				p.frames[i].Data = appendBodyFrame(nil, one.body.Ref, segment.DigestOf(wrong), wrong)
				lies++
			}
		}
		return false
	}
	tag := lead.kvs[1].must(put("k", "the body"))
	c.settle()
	i := lead.kvs[1].appended(tag)
	c.until("the late one has it", func() bool { return lead.heldBy(i) == 3 })
	if got := late.kvs[1].read("k"); got != "the body" || lies == 0 {
		t.Fatalf("stored %q after %d lies", got, lies)
	}
	if n := c.group(late, 1).gate.room.wrong[lead.id]; n == 0 {
		t.Fatal("wrong bytes are not counted")
	}
	c.drop = nil
	c.tick(4)
	c.same(1, true)
	c.stops()
}

// trimmed proposes and settles on the leader until its log no longer has the entry at i.
func (c *cluster) trimmed(lead *node, i Index) {
	c.t.Helper()
	m := lead.kvs[1]
	big := strings.Repeat("n", 100_000)
	for k := 0; c.group(lead, 1).log.First() <= i; k++ {
		if k > 200 {
			c.t.Fatal("the log is not trimmed")
		}
		m.must(note(fmt.Sprint(big, k)), put("churn", fmt.Sprint(k)))
		c.settle()
	}
}

// A follower that waits for a body which is settled and gone meanwhile gets a tombstone for it, and goes on in its
// log.
func TestTombstones(t *testing.T) {
	c := newClusterWith(t, 3, 23, HostOptions{Shards: 1, SnapshotBytes: 400_000})
	c.openAll(1, 3)
	lead := c.leader(1)
	c.tick(4)
	late := c.rest(lead)[0]
	m := lead.kvs[1]
	// The late one gets appends, and no bodies: it waits for the first of them.
	c.drop = c.without(bodyFrame, late.id)
	tag := m.must(put("k", "gone before it came"))
	m.must(del("k"))
	c.settle()
	first := m.appended(tag)
	if late.kvs[1].lastI >= first {
		t.Fatal("it applied an entry without its body")
	}
	// The leader lets the body go. What the late one waits for stays the next append for it.
	hold := c.drop
	c.drop = func(p *packet) bool { return hold(p) || p.to == late.id && p.kind == "raft" }
	c.trimmed(lead, first)
	c.drop = hold
	c.until("it goes on", func() bool { return late.kvs[1].lastI >= first })
	if late.told(SnapshotInstalled) == 0 && c.group(late, 1).log.First() > first {
		t.Fatal("it does not have the entry")
	}
	if late.told(SnapshotInstalled) > 0 {
		t.Fatal("a snapshot was needed to get over the entry")
	}
	c.drop = nil
	c.until("all are equal", func() bool { return late.kvs[1].lastI == m.lastI })
	c.same(1, true)
	c.bodies(1)
	c.stops()
}

// T-4, T-44: no byte of a body is in an entry, in a raft message, in a heartbeat or in a snapshot, and an entry is
// as long for 16 bytes as for 64 KiB.
func TestNoPayloadInRaft(t *testing.T) {
	const mark = "MARKED-PAYLOAD-"
	c := newClusterWith(t, 3, 24, HostOptions{Shards: 1, SnapshotBytes: 300_000})
	raftBytes, carried := 0, 0
	c.drop = func(p *packet) bool {
		data := [][]byte{p.data}
		for _, f := range p.frames {
			data = append(data, f.Data)
		}
		for _, b := range data {
			marked := bytes.Contains(b, []byte(mark))
			switch {
			case p.kind == "payload" && marked:
				carried++
			case marked:
				t.Errorf("%s carries a payload", p.kind)
			case p.kind != "payload":
				raftBytes += len(b)
			}
		}
		return false
	}
	c.cutStream = func(s *nodeStream) int {
		if s.head[0] == byte(snapshotStream) && bytes.Contains(s.b.Bytes(), []byte(mark)) {
			t.Error("a snapshot carries a payload")
		}
		return -1
	}
	c.openAll(1, 3)
	lead := c.leader(1)
	m := lead.kvs[1]
	gone := c.rest(lead)[1]
	size := map[int]int{}
	for _, n := range []int{16, segment.InlineMax} {
		tag := m.must(put("k", strings.Repeat(mark, n/len(mark)+1)[:n]))
		c.settle()
		e, err := c.group(lead, 1).log.Entries(m.appended(tag), m.appended(tag)+1, 1<<20)
		if err != nil || len(e) != 1 {
			t.Fatal(err)
		}
		size[n] = len(e[0].Data)
	}
	if size[16] != size[segment.InlineMax] || size[16] == 0 {
		t.Fatalf("entries of %v bytes", size)
	}
	c.crash(gone, false, 0)
	m.must(put("live", strings.Repeat(mark, 1000)))
	c.trimmed(lead, m.lastI)
	c.start(gone)
	again := c.open(gone, 1, nil)
	c.until("it is back", func() bool { return again.lastI == m.lastI })
	if again.read("live") != strings.Repeat(mark, 1000) || gone.told(SnapshotInstalled) != 1 {
		t.Fatal("it was not brought up by a snapshot with its live bodies")
	}
	if carried == 0 || raftBytes == 0 {
		t.Fatalf("%d payloads seen, %d bytes of raft", carried, raftBytes)
	}
	c.drop, c.cutStream = nil, nil
	c.same(1, true)
	c.stops()
}

func (n *node) heldBy(i Index) int {
	m := n.kvs[1].now()
	return m.HeldBy(i)
}

// A member that can't keep a snapshot, for its disk is full, is not sent one after the other, and is up once there
// is room.
func TestSnapshotRests(t *testing.T) {
	c, lead, gone := behind(t, 37)
	c.start(gone)
	m := c.open(gone, 1, nil)
	gone.disk.SetCapacity(gone.disk.Used() + 4<<10)
	c.tick(100)
	if m.lastI == lead.kvs[1].lastI || gone.told(SnapshotInstalled) > 0 {
		t.Fatal("there was room")
	}
	if n := lead.told(SnapshotNotSent) + gone.told(SnapshotRefused); n == 0 || n > 100/snapshotRetryTicks+2 {
		t.Errorf("%d snapshots came to nothing in 100 ticks", n)
	}
	gone.disk.SetCapacity(0)
	c.until("it is up", func() bool { return m.lastI == lead.kvs[1].lastI })
	c.isUp(lead, gone)
	c.stops()
}
