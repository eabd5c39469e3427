package main

import (
	"errors"
	"testing"

	"weida/broker/queue"
	"weida/fsync/memfs"
	"weida/raftstore"
)

// scene is a cluster whose story is told step by step.
type scene struct {
	*cluster
	t *testing.T
	g *group
}

// stage runs a story on a cluster with one queue on all nodes, and sees to its end that all is in order.
func stage(t *testing.T, nodes int, story func(s *scene)) {
	t.Helper()
	c := tell(t, nodes, story)
	if len(c.problems) == 0 && !t.Failed() {
		return
	}
	for _, l := range c.lines[max(0, len(c.lines)-linesShown):] {
		t.Log(l)
	}
	if len(c.problems) > 0 {
		t.Error(c.problems[0])
	}
}

// errEnded ends a story in which a rule is broken.
var errEnded = errors.New("a rule is broken")

// tell runs a story.
func tell(t *testing.T, nodes int, story func(s *scene)) (c *cluster) {
	t.Helper()
	seeded(1, func() {
		c = newCluster(options{
			seed: 1, nodes: nodes, snapshotBytes: 1 << 20, transfer: 8 << 20,
			pace: 50 * millisecond, heldEvery: 5,
		})
		s := &scene{cluster: c, t: t, g: c.addGroup(0, nodes)}
		c.guard(c.start)
		s.Run(3 * second)
		c.guard(func() {
			defer func() {
				if p := recover(); p != nil && p != errEnded { //nolint:errorlint // it is this very one
					panic(p)
				}
			}()
			s.Elect(1)
			story(s)
		})
		if len(c.problems) == 0 {
			c.guard(c.heal)
			s.consume()
			c.runUntil(c.now+healLimit, c.settledDown)
		}
		if len(c.problems) == 0 {
			c.conclude()
		}
	})
	return c
}

// Run lets time pass.
func (s *scene) Run(d micros) { s.runUntil(s.now+d, nil) }

// RunUntil lets time pass until something is so.
func (s *scene) RunUntil(what string, is func() bool) {
	s.t.Helper()
	if s.runUntil(s.now+60*second, is); len(s.problems) == 0 && !is() {
		s.fail("Q10 a minute has passed, and not: %s", what)
	}
	if len(s.problems) > 0 {
		panic(errEnded)
	}
}

// Elect makes a node lead.
func (s *scene) Elect(id raftstore.NodeID) {
	s.t.Helper()
	s.RunUntil("it leads", func() bool {
		d := s.leader(s.g)
		if d != nil && d.node.id != id && s.chance(20) {
			_ = d.group.Reconfigure(raftstore.Change{TransferTo: s.g.replicas[id]}) // asked again
			d.wake()
		}
		return d != nil && d.node.id == id
	})
}

// Leads waits until somebody but these leads.
func (s *scene) Leads(but ...raftstore.NodeID) (id raftstore.NodeID) {
	s.t.Helper()
	s.RunUntil("another one leads", func() bool {
		d := s.leader(s.g)
		if d == nil {
			return false
		}
		id = d.node.id
		for _, b := range but {
			if b == id {
				return false
			}
		}
		return true
	})
	return id
}

// sent is a publish under way.
type sent struct {
	m      *message
	result result
}

// Publish sends a message to a node; nobody repeats it.
func (s *scene) Publish(to raftstore.NodeID, w want) *sent { return s.PublishBytes(to, 100, w) }

// PublishBytes sends a message of a size.
func (s *scene) PublishBytes(to raftstore.NodeID, size int, w want) *sent {
	s.nameless++
	one := &sent{m: newMessage(s.g.id, "", s.nameless, size)}
	s.check.made(one.m)
	s.check.sent(one.m)
	s.ask(s.g, to, func(d *desk, answer func(result)) {
		d.publish(one.m, queue.Command{Kind: queue.Publish}, w, answer)
	}, func(r result) {
		if one.result.kind != 0 {
			return
		}
		one.result = r
		switch r.kind {
		case done, below:
			s.check.acked(s.g, one.m, w, r, 1)
		case refused:
			s.check.refused(one.m)
		default:
		}
	})
	return one
}

// Acked waits for the acknowledgement.
func (s *scene) Acked(one *sent) {
	s.t.Helper()
	s.RunUntil("it is acknowledged", func() bool { return one.result.kind == done || one.result.kind == below })
}

// NotAcked fails if it was acknowledged.
func (s *scene) NotAcked(one *sent) {
	if one.result.kind == done || one.result.kind == below {
		s.fail("Q2 %v was acknowledged: %+v", one.m, one.result)
	}
}

// Cut cuts two nodes off from each other, both ways.
func (s *scene) Cut(a, b raftstore.NodeID) {
	s.net.setCut(a, b, true)
	s.net.setCut(b, a, true)
}

// Mend undoes it.
func (s *scene) Mend(a, b raftstore.NodeID) {
	s.net.setCut(a, b, false)
	s.net.setCut(b, a, false)
}

// Isolate cuts a node off from all others.
func (s *scene) Isolate(id raftstore.NodeID) {
	for _, n := range s.nodes {
		if n.id != id {
			s.Cut(id, n.id)
		}
	}
}

// Kill ends a process; Boot starts it again.
func (s *scene) Kill(id raftstore.NodeID) { s.node(id).kill("killed") }

// PowerCut loses what is not flushed.
func (s *scene) PowerCut(id raftstore.NodeID) { s.node(id).cutPower(memfs.KeepNone) }

// Boot starts a node again.
func (s *scene) Boot(id raftstore.NodeID) { s.node(id).boot() }

// Pause makes a node stand still.
func (s *scene) Pause(id raftstore.NodeID, d micros) { s.node(id).stand(s.now + d) }

// Members asks the leader for other members, and for nothing else meanwhile.
func (s *scene) Members(at raftstore.NodeID, list ...raftstore.Member) error {
	d := s.node(at).desks[s.g.id]
	err := d.group.Reconfigure(raftstore.Change{Members: list})
	d.wake()
	return err
}

// consume adds a consumer that takes all there is.
func (s *scene) consume() {
	c := newConsumer(s.cluster, s.g, "all")
	s.consumers = append(s.consumers, c)
	c.run()
}

func (s *scene) member(id raftstore.NodeID) raftstore.Member {
	return raftstore.Member{Replica: s.g.replicas[id], Node: id}
}

// joiner is a new replica on a node.
func (s *scene) joiner(id raftstore.NodeID) raftstore.Member {
	s.replicas++
	return raftstore.Member{Replica: s.replicas, Node: id}
}

var (
	onTwo   = want{wantReplicated, 2, true}
	onThree = want{wantReplicated, 3, true}
)
