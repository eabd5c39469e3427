package main

import (
	"testing"

	"weida/raftstore"
	"weida/wal"
)

// A follower loses power under its leader, and has lost nothing that it acknowledged (reliability D1).
func TestFollowerLosesPower(t *testing.T) {
	stage(t, 3, func(s *scene) {
		one := s.Publish(1, onThree)
		s.Acked(one)
		s.PowerCut(3)
		s.Acked(s.Publish(1, onTwo))
		s.Boot(3)
		s.Acked(s.Publish(1, onThree))
	})
}

// Two stand still, the third loses power, they go on without it: what was acknowledged is there (D2; field case
// 2: nats-server 7567).
func TestPausesAndPowerCut(t *testing.T) {
	stage(t, 3, func(s *scene) {
		for range 20 {
			s.Acked(s.Publish(1, onTwo))
		}
		s.Pause(2, 4*second)
		s.Pause(1, 2*second)
		s.PowerCut(3)
		s.Run(second)
		s.Boot(3)
		s.Run(5 * second)
		s.Acked(s.Publish(s.Leads(), onTwo))
	})
}

// The power of all nodes is cut at once: everything that was acknowledged as flushed is there, without anybody's help.
func TestBlackout(t *testing.T) {
	stage(t, 3, func(s *scene) {
		for range 20 {
			s.Acked(s.Publish(1, onTwo))
		}
		for _, n := range s.nodes {
			s.PowerCut(n.id)
		}
		for _, n := range s.nodes {
			s.Boot(n.id)
		}
		s.Acked(s.Publish(s.Leads(), onThree))
	})
}

// A leader is alone with its clients: it acknowledges nothing, the others go on, and after all each message is stored
// once or not at all.
func TestLeaderAlone(t *testing.T) {
	stage(t, 3, func(s *scene) {
		s.Isolate(1)
		var lost []*sent
		for range 10 {
			lost = append(lost, s.Publish(1, want{wantStored, 1, true}))
			s.Run(100 * millisecond)
		}
		next := s.Leads(1)
		s.Acked(s.Publish(next, onTwo))
		for _, one := range lost {
			s.NotAcked(one)
		}
		s.net.heal()
		s.Run(5 * second)
		for _, one := range lost {
			s.NotAcked(one)
		}
	})
}

// One way is enough: a leader that hears nobody, and one that nobody hears, makes way.
func TestOneWay(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		stage(t, 3, func(s *scene) {
			for _, id := range []raftstore.NodeID{2, 3} {
				if deaf {
					s.net.setCut(id, 1, true)
				} else {
					s.net.setCut(1, id, true)
				}
			}
			s.Acked(s.Publish(s.Leads(1), onTwo))
		})
	}
}

// Nodes 2 and 3 reach only node 1: the group goes on.
func TestBridge(t *testing.T) {
	stage(t, 3, func(s *scene) {
		s.Cut(2, 3)
		s.Run(10 * second)
		s.Acked(s.Publish(s.Leads(), onTwo))
	})
}

// A follower is away while messages come, are settled, and their bodies are gone: it catches up (T-45).
func TestAwayLongerThanPayload(t *testing.T) {
	stage(t, 3, func(s *scene) {
		s.Kill(3)
		s.consume()
		for range 40 {
			s.Acked(s.PublishBytes(1, 30_000, onTwo))
		}
		s.RunUntil("all is settled", func() bool { return s.leader(s.g).state.Counts().Ready == 0 })
		s.Run(2 * second)
		s.Boot(3)
		s.Acked(s.Publish(s.Leads(), onThree))
	})
}

// Two followers wait for a body when their leader dies: one of them leads, and the message was acknowledged to nobody.
func TestTwoWaitForBody(t *testing.T) { stage(t, 3, twoWait) }

func twoWait(s *scene) {
	s.net.lose = func(_, _ *node, kind string) bool { return kind == "payload" }
	one := s.Publish(1, want{wantStored, 1, true})
	s.Run(2 * second)
	s.NotAcked(one)
	s.PowerCut(1)
	s.net.lose = nil
	s.Acked(s.Publish(s.Leads(1), onTwo))
	s.Boot(1)
	s.Acked(s.Publish(s.Leads(), onThree))
	s.NotAcked(one)
}

// Membership changes at a leader that is cut off; the others elect one of their own and swap another member, whose node
// is then killed: one configuration stands, nothing that was acknowledged is lost (JetStream 7545).
func TestMembershipInPartition(t *testing.T) {
	stage(t, 3, func(s *scene) {
		s.Acked(s.Publish(1, onThree))
		s.Isolate(1)
		if err := s.Members(1, s.member(1)); err != nil {
			t.Errorf("%v", err)
		}
		old := s.Publish(1, onTwo)
		next := s.Leads(1)
		s.Acked(s.Publish(next, onTwo))
		s.Kill(1)
		s.net.heal()
		s.Boot(1)
		s.Run(3 * second)
		s.NotAcked(old)
		lead := s.leader(s.g)
		if rep := lead.group.Status().Replication; len(rep.Committed) != 3 || rep.Joint {
			t.Errorf("the members are %+v", rep)
		}
		s.g.goal = []raftstore.Member{s.member(lead.node.id)}
		s.g.patience = 100
		s.operate(s.g)
		s.RunUntil("one member is left", func() bool { return s.g.goal == nil })
		s.Acked(s.Publish(s.Leads(), want{wantStored, 1, true}))
	})
}

// twoVotes is the story of a vote that is given, forgotten in a power cut, and given again (D3).
func twoVotes(s *scene) {
	voter := s.node(3)
	s.Isolate(1)
	voter.speed = 0.2 // node 2 calls the election
	s.RunUntil("it is 3's turn to vote", func() bool {
		return s.node(2).desks[1].role == raftstore.Candidate
	})
	voter.fs.DieBefore(voter.fs.Ops() + 1) // before the vote is on the disk
	s.RunUntil("the voter is dead", func() bool { return !voter.up })
	s.Run(20 * millisecond)
	s.PowerCut(3)
	s.Cut(2, 3)
	// Only 3 can have voted for 2. If that took its place, the vote has to be on the disk, or there may be another leader
	// of that term; raft has no idea what to do then.
	won, vote := s.oracle.logOf(s.node(2), 1).Last().Term, s.oracle.logOf(voter, 1).HardState()
	if vote.Term < won {
		s.fail("L1 node 2 was elected in term %d, by a vote of which the disk says %+v", won, vote)
		return
	}
	voter.speed = 1
	s.Mend(1, 3)
	s.Boot(3)
	s.Run(10 * second)
	if d := s.leader(s.g); d != nil {
		s.Publish(d.node.id, onTwo)
	}
	s.Run(2 * second)
	s.net.heal()
	s.Run(5 * second)
}

// A vote that is not on the disk is not given.
func TestVoteIsForgotten(t *testing.T) { stage(t, 3, twoVotes) }

// replaced is the story of a suffix that another leader's replaces on a follower that loses power afterwards.
func replaced(s *scene) {
	s.Isolate(1)
	for range 5 {
		s.Publish(1, want{wantStored, 1, true})
	}
	s.Run(300 * millisecond)
	next := s.Leads(1)
	for range 5 {
		s.Acked(s.Publish(next, onTwo))
	}
	s.net.heal()
	s.Run(3 * second)
	s.Acked(s.Publish(s.Leads(), onThree))
	for _, n := range s.nodes {
		s.PowerCut(n.id)
		s.Boot(n.id)
	}
	s.Run(5 * second)
	s.Acked(s.Publish(s.Leads(), onThree))
}

// What replaced a suffix stands after a power cut, and not the suffix.
func TestReplacedSuffix(t *testing.T) { stage(t, 3, replaced) }

// goneNotCounted is the story of a follower that is gone, and of what it said before.
func goneNotCounted(s *scene) {
	one := s.Publish(1, onThree)
	s.Acked(one)
	s.PowerCut(3)
	s.Run(3 * second) // its leader has noticed
	s.Acked(s.Publish(1, onTwo))
	if n := s.leader(s.g).marks.HeldBy(one.result.proof.index); n != 2 {
		s.fail("Q8 node 3 is gone, and entry %d is held by %d", one.result.proof.index, n)
	}
	s.Boot(3)
	s.Run(5 * second)
	if n := s.leader(s.g).marks.HeldBy(one.result.proof.index); n != 3 {
		s.t.Errorf("node 3 is back, and entry %d is held by %d", one.result.proof.index, n)
	}
}

// A replica that is gone is not counted until it says again what it holds.
func TestGoneIsNotCounted(t *testing.T) { stage(t, 3, goneNotCounted) }

// wrongBytes is the story of bodies that come with other bytes than their commit record names.
func wrongBytes(s *scene) {
	s.net.spoiled = 1000
	one := s.Publish(1, onTwo)
	s.Run(second)
	s.net.spoiled = 0
	s.Acked(one)
}

// What has another digest is not the body: the right one is asked for (fault 47).
func TestWrongBytes(t *testing.T) { stage(t, 3, wrongBytes) }

// lateAnswers is the story of a follower whose disk is so slow that what it was to answer is replaced before.
func lateAnswers(s *scene) {
	for _, id := range []raftstore.NodeID{3, 4, 5} {
		s.Cut(1, id)
	}
	victim := s.node(2)
	victim.flushTakes = 20 * second
	for range 5 {
		s.Publish(1, want{wantStored, 1, true})
		s.Run(100 * millisecond)
	}
	s.Cut(1, 2)
	next := s.Leads(1, 2)
	s.Acked(s.Publish(next, want{wantReplicated, 3, true}))
	s.Run(3 * second)
	victim.flushTakes = 2 * millisecond
	s.net.heal()
	s.Run(30 * second)
	one := s.Publish(s.Leads(), want{wantReplicated, 5, true})
	s.Acked(one)
	if one.result.kind != done {
		s.fail("Q10 all is well, and %v is held by %d", one.m, one.result.proof.n)
	}
}

// A follower whose answers were overtaken goes on to answer.
func TestLateAnswers(t *testing.T) { stage(t, 5, lateAnswers) }

// removedLeader is the story of a leader that a change removes while a member does not hear of it.
func removedLeader(s *scene) {
	s.g.goal = []raftstore.Member{s.member(3)}
	s.g.patience = 1000
	s.operate(s.g)
	s.RunUntil("one member is left", func() bool { return s.g.goal == nil })
	s.Acked(s.Publish(s.Leads(), want{wantStored, 1, true}))
	s.PowerCut(3)
	s.Run(second)
	s.Boot(3)
	s.Acked(s.Publish(s.Leads(), want{wantStored, 1, true}))
}

// From three to one, and the one that is left is not the leader.
func TestLeaderIsRemoved(t *testing.T) { stage(t, 3, removedLeader) }

// A queue grows from one to three and shrinks to another one under a producer that never stops.
func TestOneThreeOne(t *testing.T) {
	stage(t, 3, func(s *scene) {
		s.addProducer(s.g, "p")
		p := s.producers[0]
		p.run()
		s.consume()
		s.operate(s.g)
		all := []raftstore.Member{s.member(1), s.member(2), s.member(3)}
		for _, to := range [][]raftstore.Member{{all[0]}, {all[0], s.joiner(2), s.joiner(3)}, {s.joiner(3)}, {s.joiner(1)}} {
			for i := range to { // who is a member stays the replica that it is
				if rid := s.g.replicas[to[i].Node]; rid != 0 {
					to[i].Replica = rid
				}
			}
			s.g.goal, s.g.patience = to, 1000
			s.RunUntil("the membership is changed", func() bool { return s.g.goal == nil })
			s.Run(2 * second)
		}
		p.quota = p.seq
	})
}

// Stories that a rule is for go wrong without it.
func TestStoriesCarryWeight(t *testing.T) {
	for _, x := range []struct {
		name  string
		off   func() func()
		story func(*scene)
	}{
		{"hard state", func() func() { return raftstore.SwitchOff("hardWait") }, twoVotes},
		{"incarnation", func() func() { return raftstore.SwitchOff("incarnation") }, goneNotCounted},
		{"digest", func() func() { return raftstore.SwitchOff("bodyProof") }, wrongBytes},
		{"gate", func() func() { return raftstore.SwitchOff("gate") }, twoWait},
		{"truncation", func() func() { return wal.SwitchOff("truncateRecord") }, replaced},
	} {
		t.Run(x.name, func(t *testing.T) {
			defer x.off()()
			if c := tell(t, 3, x.story); len(c.problems) == 0 {
				t.Error("nobody noticed")
			} else {
				t.Logf("%.300s", c.problems[0])
			}
		})
	}
}
