package admin

import (
	"strings"
	"testing"

	"weida/broker/control"
)

// hush makes nodes ones that do not answer, of which the leaders heard a moment ago.
func (c *Cluster) hush(nodes ...int) {
	for _, n := range nodes {
		c.Facts[n-1].Why, c.Facts[n-1].Groups = "no answer in time", nil
	}
}

// candidates take the queue's leader away from those who answer.
func (c *Cluster) candidates() {
	for i := range c.Facts {
		if c.Facts[i].Why == "" {
			g := c.queueOn(i + 1)
			g.Role, g.Replication.LeaderNode, g.Replication.Followers = RoleCandidate, 0, nil
		}
	}
}

// alone makes the queue one of one replica, owned by a node that does not serve it.
func (c *Cluster) alone(fingerprint string, said ...control.Condition) {
	q := &c.Registry.Queues[0]
	q.Spec.Replicas = 1
	q.Status.Placement, q.Status.Conditions = []control.Replica{{Node: fingerprint, Owner: true}}, said
	for i := range c.Facts {
		if c.Facts[i].Why == "" {
			c.Facts[i].Groups = c.Facts[i].Groups[:1]
		}
	}
}

// TestSilentVoters: a voter whose node did not answer this request is not in step, however lately its leader heard it.
func TestSilentVoters(t *testing.T) {
	c := town(3)
	c.hush(2, 3)
	g := c.group("queue/a")
	if g.Health != Unknown || g.InStep != 1 || g.Why != "1 of 3 voters answer now, a majority is 2" {
		t.Errorf("two do not answer: %+v", g)
	}
	if v := c.CanStop(1); v.OK {
		t.Errorf("two do not answer, and the third may stop: %+v", v)
	}
	c = town(3)
	c.hush(3)
	if g := c.group("queue/a"); g.Health != Degraded || g.InStep != 2 || g.Why != "2 of 3 voters are in step" {
		t.Errorf("one does not answer: %+v", g)
	}
	// Nothing was ever heard of a third: how far it is is not known, and the second's 0 does not hide that.
	f := &c.queueOn(1).Replication.Followers[2]
	f.HeardMS, f.CaughtUpMS, f.Match = -1, -1, 0
	if g := c.group("queue/a"); g.BehindEntries != -1 || g.BehindMS != -1 {
		t.Errorf("behind %d entries and %d ms", g.BehindEntries, g.BehindMS)
	}
}

// TestNobodyLeads: an election is told from a majority that is gone, and damage from a node that is away.
func TestNobodyLeads(t *testing.T) {
	damage := control.Condition{Type: control.CondGroup, Reason: "Corrupt", Message: "0001.seg at 4096: corrupt"}
	for _, row := range []struct {
		name   string
		break_ func(*Cluster)
		why    string
		told   string // for quorum describe, "" if there is no group
	}{
		{
			"an election", func(c *Cluster) { c.hush(1); c.candidates() },
			"no node leads it yet: 2 of 3 voters answer, and an election is under way",
			"no leader is known here; 2 of 3 voters answer, and 2 are needed for a leader",
		},
		{
			"no majority", func(c *Cluster) { c.hush(1, 2); c.candidates() },
			"no node leads it: 1 of 3 voters answer, a majority is 2",
			"no leader is known here; 1 of 3 voters answer, and 2 are needed for a leader",
		},
		{"the owner is away", func(c *Cluster) { c.hush(1); c.alone("f1") }, "its owner, n1, does not answer", ""},
		{
			"the only copy is damaged", func(c *Cluster) { c.alone("f1", damage) },
			"its only copy, on n1, is damaged (Corrupt): 0001.seg at 4096: corrupt", "",
		},
	} {
		c := town(3)
		row.break_(c)
		g := c.group("queue/a")
		if g.Health != Unavailable || g.Why != row.why || g.Remedy == "" {
			t.Errorf("%s: %s, %q, %q", row.name, g.Health, g.Why, g.Remedy)
		}
		if r := c.Describe([]string{"queue/a"}).Groups[0]; row.told != "" && *r.ErrorMessage != row.told {
			t.Errorf("%s: describe tells %q", row.name, *r.ErrorMessage)
		}
		if row.told != "" {
			continue
		}
		v := newVerdict(CheckCanStop)
		c.canLose(v, c.views()[1], 1)
		if len(v.Findings) != 0 || len(v.Pauses) != 1 || v.Pauses[0] != "a" {
			t.Errorf("%s: its owner may not stop: %+v", row.name, v)
		}
		v = newVerdict(CheckCanStop)
		c.canLose(v, c.views()[1], 2)
		if len(v.Findings) != 0 || len(v.Pauses) != 0 {
			t.Errorf("%s: another node may not stop: %+v", row.name, v)
		}
	}
}

// TestNotServedIsACondition: whoever reads a queue that nobody serves reads that, whatever its phase is.
func TestNotServedIsACondition(t *testing.T) {
	for _, row := range []struct {
		name   string
		break_ func(*Cluster)
		reason string
	}{
		{"all is well", func(*Cluster) {}, ""},
		{"one is down", func(c *Cluster) { c.down(3) }, ""},
		{"two are down", func(c *Cluster) { c.hush(1, 2); c.candidates() }, "NotServed"},
		{"the leader does not answer", func(c *Cluster) { c.hush(1) }, "OutOfSight"},
		{"the owner is away", func(c *Cluster) { c.hush(1); c.alone("f1") }, "NotServed"},
	} {
		c := town(3)
		row.break_(c)
		s := sight{node: newRig(t, Options{}), reg: c.Registry, k: c, led: make(map[uint64]*view)}
		for _, v := range c.views() {
			s.led[v.id] = v
		}
		q := &c.Registry.Queues[0]
		got := s.queue(q, answerOf{}).Status.Conditions
		switch {
		case row.reason == "" && len(got) == 0:
		case row.reason != "" && len(got) == 1 && got[0].Type == NotServed && got[0].Reason == row.reason &&
			strings.Contains(got[0].Message, "; "):
		default:
			t.Errorf("%s: %+v", row.name, got)
		}
		if len(q.Status.Conditions) != 0 {
			t.Errorf("%s: the registry's own conditions are %+v", row.name, q.Status.Conditions)
		}
	}
}
