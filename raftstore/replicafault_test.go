package raftstore

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// TestRulesCarryWeight switches each rule off and sees that the test that is there for it fails.
func TestRulesCarryWeight(t *testing.T) {
	if os.Getenv("WEIDA_OFF") != "" {
		t.Skip("a rule is off")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ rule, test string }{
		{"answersWait", "TestAnswerWaitsForFlush"},
		{"truncatedAnswers", "TestConflict"},
		{"hardWait", "TestVoteIsDurable"},
		{"gate", "TestFollowersWithoutBody"},
		{"incarnation", "TestIncarnation"},
		{"firstEntry", "TestFirstEntry"},
		{"commitOnly", "TestCommitOnly"},
		{"handOver", "TestLeaderHandsOver"},
		{"yield", "TestStalledLeaderYields"},
		{"givesRoom", "TestSettlesGiveRoom"},
		{"ailing", "TestFullLeaderHandsOver"},
		{"ailing", "TestSlowLeaderHandsOver"},
		{"wander", "TestFullLeaderHandsOver"},
		{"crowded", "TestTwoFull"},
		{"stays", "TestFullLeaderStaysWhereNobodyCouldTakeMore"},
		{"overdue", "TestWrittenBeforeTwoWereFull"},
		{"spend", "TestBurstLeavesTheReserve"},
		{"reserve", "TestAllFull"},
		{"caughtUp", "TestCaughtUpUnderLoad"},
		{"decided", "TestNoOldConfiguration"},
		{"known", "TestToldOfTheEnd"},
		{"goodbye", "TestPoisonedLeader"},
		{"forgetLeader", "TestQuietLeaderDies"},
		{"quietEqual", "TestLateQuiet"},
		{"tombstones", "TestTombstones"},
		{"bodyProof", "TestWrongBytes"},
		{"installBodies", "TestInstall"},
		{"installFlush", "TestInstallFlush"},
		{"forgot", "TestDirectoryPutBack"},
		{"mend", "TestDamagedBodyComesBack"},
		{"mendAside", "TestDamagedLeaderHandsOver"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			cmd := exec.Command(exe, "-test.run=^"+c.test+"$", "-test.count=1")
			cmd.Env = append(os.Environ(), "WEIDA_OFF="+c.rule)
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "no rule is called") {
				t.Fatalf("%s", out)
			}
			if err == nil {
				t.Errorf("without the rule %s passes:\n%s", c.test, out)
			} else if !strings.Contains(string(out), "FAIL") && !strings.Contains(string(out), "panic") {
				t.Errorf("%s: %v\n%s", c.test, err, out)
			}
		})
	}
}

// What WEIDA_OFF names is off.
func init() {
	if rule := os.Getenv("WEIDA_OFF"); rule != "" {
		SwitchOff(rule)
	}
}

// threeNodes is a group of three with a leader, at rest.
func threeNodes(t *testing.T, seed uint64) (c *cluster, lead *node) {
	c = newCluster(t, 3, seed)
	c.openAll(1, 3)
	lead = c.leader(1)
	c.tick(4)
	return c, lead
}

// rest are the other nodes.
func (c *cluster) rest(not *node) (list []*node) {
	for _, n := range c.nodes {
		if n != not {
			list = append(list, n)
		}
	}
	return list
}

// tickAll lets a tick go by without doing anything.
func (c *cluster) tickAll() {
	for _, n := range c.nodes {
		if n.up {
			n.host.Tick()
		}
	}
}

// pump steps hosts and the network, and only those flushers that may.
func (c *cluster) pump(flush func(*node) bool) {
	c.t.Helper()
	for range 10_000 {
		worked := false
		for len(c.net) > 0 {
			c.deliver(0)
			worked = true
		}
		for _, n := range c.nodes {
			switch {
			case !n.up:
			case flush(n):
				worked = n.host.Step() || worked
				worked = n.fl.Step() || worked
			default: // not even the workers run: they flush
				for _, s := range n.host.shards {
					worked = s.round() || worked
				}
			}
		}
		if !worked {
			return
		}
	}
	c.t.Fatal("the cluster does not come to rest")
}

// What a follower has written and not flushed is no evidence, and is not acknowledged (W-5, X-8).
func TestAnswerWaitsForFlush(t *testing.T) {
	c, lead := threeNodes(t, 2)
	m := lead.kvs[1]
	m.onMoved = func(now Marks) { c.prove(lead, now) }
	tag := m.must(put("k", "body"))
	c.pump(func(n *node) bool { return n == lead })
	c.tickAll()
	c.pump(func(n *node) bool { return n == lead })
	i := m.appended(tag)
	if now := m.now(); now.HeldBy(i) != 1 || now.Committed >= i {
		t.Errorf("nobody but the leader has flushed entry %d: %+v", i, now)
	}
	one := c.rest(lead)[0]
	c.pump(func(n *node) bool { return n == lead || n == one })
	if now := m.now(); now.HeldBy(i) != 2 || now.Committed < i {
		t.Errorf("two have flushed entry %d: %+v", i, now)
	}
	c.settle()
	if now := m.now(); now.HeldBy(i) != 3 {
		t.Errorf("all have flushed entry %d: %+v", i, now)
	}
}

// A suffix that a deposed leader left on one follower is replaced, and what was to be said about it does not keep the
// follower from ever speaking again. It is flushed by what replaces it (W-6).
func TestConflict(t *testing.T) {
	c := newCluster(t, 5, 3)
	c.openAll(1, 5)
	lead := c.leader(1)
	c.tick(4)
	others := c.rest(lead)
	victim := others[0]
	for _, o := range others[1:] {
		c.cut[[2]NodeID{lead.id, o.id}] = true
		c.cut[[2]NodeID{o.id, lead.id}] = true
	}
	old := lead.kvs[1]
	for i := range 5 {
		old.must(put(fmt.Sprint("lost", i), "x"), note("lost"))
		c.pump(func(n *node) bool { return n != victim })
	}
	if st := victim.kvs[1].group.Status().Marks; st.Written < old.now().Written || st.Flushed >= st.Written {
		t.Fatalf("the follower has %+v, its leader %+v", st, old.now())
	}
	c.cut[[2]NodeID{lead.id, victim.id}] = true
	c.cut[[2]NodeID{victim.id, lead.id}] = true
	var next *node
	for range 100 {
		c.tickAll()
		c.pump(func(n *node) bool { return n != victim })
		if next = c.leads(1); next != lead {
			break
		}
	}
	if next == lead || next == victim {
		t.Fatalf("the leader is node %d", next.id)
	}
	tag := next.kvs[1].must(note("kept"))
	c.pump(func(n *node) bool { return n != victim })
	c.tick(10)
	i := next.kvs[1].appended(tag)
	if now := next.kvs[1].now(); now.HeldBy(i) != 4 {
		t.Errorf("four are together, and the marks are %+v", now)
	}
	clear(c.cut)
	c.tick(60)
	c.same(1, true)
	for _, n := range c.nodes {
		if lines := fmt.Sprint(n.kvs[1].applied); lines != "[nkept]" {
			t.Errorf("node %d applied %s", n.id, lines)
		}
	}
	if lead.kvs[1].role == LeaderRole {
		t.Error("the old leader still leads")
	}
}

// hardOn returns the hard state on the disk of a node after a power cut.
func (c *cluster) hardOn(nd *node) wal.HardState {
	disk := nd.disk.Clone()
	disk.PowerCut(memfs.KeepNone, nil)
	root, err := disk.OpenDir("/")
	if err != nil {
		c.t.Fatal(err)
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root, Strategy: fsync.Files})
	store, err := wal.OpenStore(disk, rigDir, wal.Options{Flusher: fl, Boot: segment.Boot(disk.BootID())})
	if err != nil {
		c.t.Fatal(err)
	}
	log, err := store.OpenLog(1)
	if err != nil {
		c.t.Fatal(err)
	}
	return log.HardState()
}

// messages are the raft messages in a packet.
func messages(t *testing.T, p *packet) (list []*raftpb.Message) {
	if p.kind != "raft" {
		return nil
	}
	for _, f := range p.frames {
		if f.Data[0] == messageFrame {
			m, err := parseMessage(f.Data)
			if err != nil {
				t.Errorf("a frame that can't be read: %v", err)
				continue
			}
			list = append(list, m)
		}
	}
	return list
}

// No vote, and nothing else of a new term, leaves a node before term and vote are on its disk (W-3, W-50).
func TestVoteIsDurable(t *testing.T) {
	c := newCluster(t, 3, 4)
	votes := 0
	c.drop = func(p *packet) bool {
		for _, m := range messages(t, p) {
			hard := c.hardOn(c.node(p.from))
			if m.GetType() == raftpb.MsgPreVote || m.GetType() == raftpb.MsgPreVoteResp {
				continue
			}
			if uint64(hard.Term) < m.GetTerm() {
				t.Errorf("node %d sends %v, its disk has %+v", p.from, m, hard)
			}
			if m.GetType() == raftpb.MsgVoteResp && !m.GetReject() {
				if votes++; hard.Vote != m.GetTo() {
					t.Errorf("node %d votes for %d, its disk has %+v", p.from, m.GetTo(), hard)
				}
			}
		}
		return false
	}
	c.openAll(1, 3)
	c.leader(1)
	if votes == 0 {
		t.Error("nobody voted")
	}
}

// Two followers that lack a body do not acknowledge its entry, and when its leader is gone they elect one of
// them and go on without it: it was committed nowhere (T-45).
func TestFollowersWithoutBody(t *testing.T) {
	c, lead := threeNodes(t, 5)
	m := lead.kvs[1]
	c.drop = func(p *packet) bool { return p.kind == "payload" }
	tag := m.must(put("k", "body"))
	c.settle()
	for range 6 { // heartbeats pass, and appends are repeated
		c.tickAll()
		c.settle()
	}
	i := m.appended(tag)
	if now := m.now(); now.HeldBy(i) != 1 || now.Committed >= i || m.role != LeaderRole {
		t.Errorf("nobody else has the body of entry %d: %+v", i, now)
	}
	for _, n := range c.rest(lead) {
		if n.kvs[1].halted != nil || n.kvs[1].group.Status().Replication.WaitingForBodies == 0 {
			t.Errorf("node %d: %+v, halted %v", n.id, n.kvs[1].group.Status().Replication, n.kvs[1].halted)
		}
	}
	c.crash(lead, true, memfs.KeepAll)
	c.drop = nil
	next := c.leader(1)
	tag = next.kvs[1].must(put("other", "x"))
	c.settle()
	if now := next.kvs[1].now(); now.HeldBy(next.kvs[1].appended(tag)) != 2 {
		t.Errorf("two are together: %+v", now)
	}
	c.start(lead)
	c.open(lead, 1, nil)
	c.tick(20)
	c.same(1, true)
	c.bodies(1)
}

// A follower that is late with a body gets it from whoever has it, and then acknowledges (T-45).
func TestLateBody(t *testing.T) {
	c, lead := threeNodes(t, 6)
	m := lead.kvs[1]
	late := c.rest(lead)[0]
	c.drop = func(p *packet) bool { return p.kind == "payload" && p.to == late.id }
	tag := m.must(put("k", "body"), note("n"))
	c.settle()
	i := m.appended(tag)
	if now := m.now(); now.HeldBy(i) != 2 || now.Applied != i {
		t.Errorf("two have entry %d: %+v", i, now)
	}
	if late.kvs[1].lastI >= i {
		t.Error("it applied an entry whose body it does not have")
	}
	c.drop = nil
	c.tick(30)
	if now := m.now(); now.HeldBy(i) != 3 {
		t.Errorf("all have entry %d: %+v", i, now)
	}
	c.same(1, true)
	c.bodies(1)
}

// What a node acknowledged counts no more when it is gone, and when it is back only once it says it again (W7).
func TestIncarnation(t *testing.T) {
	c, lead := threeNodes(t, 7)
	m := lead.kvs[1]
	tag := m.must(put("k", "body"))
	c.settle()
	i := m.appended(tag)
	gone := c.rest(lead)[1]
	c.crash(gone, true, memfs.KeepNone)
	c.pump(func(*node) bool { return true })
	if now := m.now(); now.HeldBy(i) != 2 {
		t.Errorf("one is gone: %+v", now)
	}
	c.start(gone)
	c.pump(func(*node) bool { return true })
	if now := m.now(); now.HeldBy(i) != 2 {
		t.Errorf("one is back and has said nothing: %+v", now)
	}
	c.open(gone, 1, nil)
	c.tick(8)
	if now := m.now(); now.HeldBy(i) != 3 {
		t.Errorf("all are back: %+v", now)
	}
}

// A new leader serves only when it has applied an entry of its own term: before, it does not know all that is
// committed. Here what it has to apply takes several rounds.
func TestFirstEntry(t *testing.T) {
	c, lead := threeNodes(t, 8)
	m := lead.kvs[1]
	c.drop = func(p *packet) bool { return p.to == lead.id } // so that it commits nothing
	for i := range 12 {
		m.must(note(fmt.Sprint(i, ":", strings.Repeat("x", 200<<10))))
		c.settle()
	}
	c.drop = nil
	c.crash(lead, false, 0)
	next := c.leader(1)
	if len(next.kvs[1].applied) != 12 {
		t.Errorf("it leads and has applied %d of 12", len(next.kvs[1].applied))
	}
}

// Appends that say nothing but how far is committed are not sent to followers that are sent everything anyhow.
func TestCommitOnly(t *testing.T) {
	c, lead := threeNodes(t, 9)
	appends, empty := 0, 0
	c.drop = func(p *packet) bool {
		for _, m := range messages(t, p) {
			if m.GetType() == raftpb.MsgApp {
				appends++
				if len(m.GetEntries()) == 0 {
					empty++
				}
			}
		}
		return false
	}
	for i := range 20 {
		lead.kvs[1].must(note(fmt.Sprint(i)))
		c.settle()
	}
	if appends < 40 || empty > 0 {
		t.Errorf("%d appends, %d of them empty", appends, empty)
	}
	c.tick(3)
	c.same(1, true)
}
