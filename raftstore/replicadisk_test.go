package raftstore

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// A leader whose disk fails stops leading at once and says so: another one is elected before the election timeout,
// although its node is up and goes on talking. Its own group is read-only, and a restart makes it a follower again.
func TestPoisonedLeader(t *testing.T) {
	c, lead := threeNodes(t, 51)
	m := lead.kvs[1]
	m.must(put("before", "x"))
	c.settle()
	lead.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: groupFiles(1)}, 1, -1, syscall.EIO)
	tag := m.must(put("k", "x"))
	c.settle()
	c.tick(5) // a third of the timeout
	next := c.leads(1)
	if m.halted == nil || !errors.Is(m.group.Status().ReadOnly, ErrReadOnly) || m.group.Status().Role == LeaderRole {
		t.Fatalf("halted %v, status %+v", m.halted, m.group.Status())
	}
	m.complete()
	if next == nil || next == lead {
		t.Fatal("nobody else leads")
	}
	if _, err := m.propose(note("n")); !errors.Is(err, ErrReadOnly) {
		t.Errorf("proposed at the old leader: %v", err)
	}
	next.kvs[1].must(note("after"))
	c.settle()
	if a := m.answers[tag]; a.outcome.Kind == Refused {
		t.Errorf("it was written, and the answer is %+v", a)
	}
	c.crash(lead, true, memfs.KeepNone)
	c.start(lead)
	c.open(lead, 1, nil)
	c.tick(10)
	c.same(1, true)
}

// A leader whose flushes do not end any more hands over: it could apply nothing, and would lead for ever.
func TestStalledLeaderYields(t *testing.T) {
	c, lead := threeNodes(t, 52)
	lead.kvs[1].must(put("k", "x"))
	for range 18 { // an election timeout and what it takes; a disk that is merely slow takes longer to be known
		c.tickAll()
		c.pump(func(n *node) bool { return n != lead })
		if c.leads(1) != lead {
			break
		}
	}
	next := c.leads(1)
	if next == lead {
		t.Fatal("it still leads")
	}
	next.kvs[1].must(note("after"))
	c.pump(func(n *node) bool { return n != lead })
	if got := fmt.Sprint(next.kvs[1].applied); got != "[pk nafter]" {
		t.Errorf("applied %s", got)
	}
	c.settle()
	c.tick(6)
	c.same(1, true)
}

// A follower whose disk is full takes nothing it can't keep, votes and answers as always, and goes on by itself when
// there is room.
func TestFullFollower(t *testing.T) {
	c, lead := threeNodes(t, 53)
	m := lead.kvs[1]
	full := c.rest(lead)[0]
	full.disk.SetCapacity(full.disk.Used())
	var tags []uint64
	for i := range 20 {
		tags = append(tags, m.must(put(fmt.Sprint("k", i), strings.Repeat("x", 30<<10))))
		c.settle()
	}
	c.tick(30)
	last := m.appended(tags[len(tags)-1])
	if now := m.now(); now.HeldBy(last) != 2 || now.Applied < last || c.leads(1) != lead {
		t.Errorf("two have room: %+v", now)
	}
	if r := full.kvs[1]; r.halted != nil || full.told(DiskFull) != 1 {
		t.Errorf("halted %v, told %d times", r.halted, full.told(DiskFull))
	}
	// The other two need its vote when the leader is gone.
	full.disk.SetCapacity(0)
	c.tick(30)
	if now := m.now(); now.HeldBy(last) != 3 {
		t.Errorf("all have room: %+v", now)
	}
	c.same(1, true)
	c.bodies(1)
}

// A leader whose disk is full and who can't hand over refuses proposals, and takes them again when there is room.
// Nothing was stored.
func TestFullLeader(t *testing.T) {
	defer SwitchOff("ailing")()
	c, lead := threeNodes(t, 54)
	m := lead.kvs[1]
	lead.disk.SetCapacity(lead.disk.Used())
	refused := 0
	for i := range 20 {
		tag := m.must(put(fmt.Sprint("k", i), strings.Repeat("x", 30<<10)))
		c.settle()
		if a := m.answers[tag]; a.outcome.Kind == Refused {
			if refused++; !errors.Is(a.outcome.Err, ErrDiskFull) {
				t.Errorf("refused: %v", a.outcome.Err)
			}
		}
	}
	if refused == 0 || !errors.Is(m.group.Status().ReadOnly, ErrDiskFull) || m.halted != nil {
		t.Errorf("%d refused, %v, halted %v", refused, m.group.Status().ReadOnly, m.halted)
	}
	lead.disk.SetCapacity(0)
	c.tick(20) // if it lost its leadership meanwhile, that is as well
	next := c.leader(1)
	tag := next.kvs[1].must(put("room", "x"))
	c.settle()
	next.kvs[1].appended(tag)
	c.tick(20)
	c.same(1, true)
	c.bodies(1)
	m.complete()
	if n := len(next.kvs[1].applied); n != 21-refused {
		t.Errorf("%d lines, %d were refused", n, refused)
	}
}

// Every replica is killed and cut off its power in turn, with the group at work, and all of them at once: what was
// confirmed is there, bodies and all.
func TestRestarts(t *testing.T) {
	c, lead := threeNodes(t, 55)
	var want []string
	say := func(text string) {
		t.Helper()
		m := c.leader(1).kvs[1]
		tag := m.must(put(text, text))
		c.settle()
		if now := m.now(); now.Committed < m.appended(tag) {
			t.Fatalf("%s: %+v", text, now)
		}
		want = append(want, "p"+text)
	}
	say("first")
	for i, keep := range []memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll} {
		for _, n := range c.nodes {
			c.crash(n, i > 0, keep)
			say(fmt.Sprint("without ", n.id, " ", i))
			c.start(n)
			c.open(n, 1, nil)
			c.tick(10)
			say(fmt.Sprint("with ", n.id, " ", i))
		}
		for _, n := range c.nodes {
			c.crash(n, i > 0, keep)
		}
		for _, n := range c.nodes {
			c.start(n)
			c.open(n, 1, nil)
		}
		say(fmt.Sprint("after all ", i))
	}
	c.tick(20)
	c.same(1, true)
	c.bodies(1)
	if got := c.node(1).kvs[1].applied; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("applied %v, want %v", got, want)
	}
	_ = lead
}

// A replica that stops lets another one lead before the election timeout, and what it was asked last is answered.
func TestLeaderStops(t *testing.T) {
	c, lead := threeNodes(t, 56)
	m := lead.kvs[1]
	m.must(put("k", "x"))
	m.group.Stop()
	m.complete()
	delete(lead.kvs, 1)
	c.settle()
	c.tick(5)
	if next := c.leads(1); next == nil {
		t.Error("nobody leads")
	}
	if list := lead.host.ReceiveRaft(2, []Frame{{1, appendMessage(nil, sample()[1])}}); len(list) != 1 {
		t.Errorf("after it stopped: %v", list)
	}
}

// Groups have nothing in common but the flush call: one's leader is deposed, another one's log fails, and a third does
// not notice (T-30).
func TestGroupsApart(t *testing.T) {
	c := newCluster(t, 3, 57)
	for g := range GroupID(3) {
		c.openAll(g+1, 3)
	}
	var leads [4]*node
	for g := range GroupID(3) {
		leads[g+1] = c.leader(g + 1)
	}
	c.tick(4)
	third := leads[3].kvs[3]
	term := third.term
	to := replicaOn(c.rest(leads[1])[0].id)
	if err := leads[1].kvs[1].group.Reconfigure(Change{TransferTo: to}); err != nil {
		t.Fatal(err)
	}
	leads[2].fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: groupFiles(2)}, 1, -1, syscall.EIO)
	leads[2].kvs[2].must(note("poisons"))
	for i := range 10 {
		tag := third.must(put(fmt.Sprint("k", i), "x"))
		c.pump(func(*node) bool { return true })
		if now := third.now(); now.HeldBy(third.appended(tag)) != 3 {
			t.Errorf("message %d: %+v", i, now)
		}
		c.tickAll()
	}
	c.tick(10)
	if third.term != term || third.role != LeaderRole {
		t.Errorf("the third group: role %v in term %d after %d", third.role, third.term, term)
	}
	if leads[2].kvs[2].halted == nil || c.leads(2) == nil || c.leads(1) == leads[1] {
		t.Error("the others went on as if nothing had been")
	}
}

// With the majority gone for good nobody leads, however long it takes: what can't be committed is not confirmed, and
// proposals are refused (T-53). Another group, on the nodes that are left, goes on.
func TestMajorityLost(t *testing.T) {
	c := newCluster(t, 3, 58)
	c.openAll(1, 3)
	c.openAll(2, 1)
	lead := c.leader(1)
	c.tick(4)
	m := lead.kvs[1]
	for _, n := range c.rest(lead) {
		c.crash(n, true, memfs.KeepNone)
	}
	tag := m.must(put("k", "x"))
	c.settle()
	c.tick(2 * 15) // it steps down: there is nobody to hear
	var not *NotLeaderError
	if _, err := m.propose(note("n")); !errors.As(err, &not) || not.Leader != (Leader{}) {
		t.Errorf("proposed without a quorum: %v", err)
	}
	i := m.answers[tag].index
	c.tick(200)
	if now := m.now(); now.Committed >= i || now.HeldBy(i) > 1 || m.role == LeaderRole {
		t.Errorf("alone it has %+v as %v", now, m.role)
	}
	if alone := c.node(1).kvs[2]; c.node(1).up {
		tag := alone.must(note("other"))
		c.settle()
		if now := alone.now(); now.Applied < alone.appended(tag) {
			t.Errorf("the other group: %+v", now)
		}
	}
	c.start(c.rest(lead)[0])
	c.open(c.rest(lead)[0], 1, nil)
	c.leader(1)
	c.tick(4)
	c.same(1, true)
}
