package admin

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
	"weida/raftstore"
)

// town is a cluster of nodes n1, n2, … that all answered, with one queue "a" of three replicas led by n1 and the
// control group likewise; tests take it apart.
func town(nodes int) *Cluster {
	c := &Cluster{Now: 1_000_000, Registry: Registry{Version: 9}}
	var all []Replica
	for i := range nodes {
		n := uint64(i + 1)
		c.Registry.Nodes = append(c.Registry.Nodes, control.Node{
			Kind: control.KindNode, Metadata: control.Metadata{Name: fmt.Sprintf("n%d", n), UID: n},
			Spec:   control.NodeSpec{Fingerprint: fmt.Sprintf("f%d", n), Address: fmt.Sprintf("127.0.0.1:%d", 7443+n)},
			Status: control.NodeStatus{State: control.NodeMember, Voter: true, Disk: strings.Repeat(fmt.Sprint(n), 32)},
		})
		c.Facts = append(c.Facts, Facts{Node: n, Name: fmt.Sprintf("n%d", n), At: c.Now})
		all = append(all, Replica{Replica: 10 + n, Node: n})
	}
	q := control.Queue{Kind: control.KindQueue}
	q.Metadata.Name, q.Metadata.UID, q.Spec.Replicas = "a", 7, nodes
	q.Status.ObservedGeneration, q.Status.Phase = 1, control.Ready
	c.Registry.Queues = []control.Queue{q}
	for _, id := range []uint64{controlID, 7} {
		for i := range c.Facts {
			c.Facts[i].Groups = append(c.Facts[i].Groups, replicaView(id, uint64(i+1), all))
		}
	}
	return c
}

// replicaView is what a node says of a group that n1 leads in term 5 with everything committed up to 20.
func replicaView(id, node uint64, all []Replica) Group {
	g := Group{
		ID: id, Role: RoleFollower, Term: 5, First: 1, Written: 20, Flushed: 20, Committed: 20, Applied: 20,
		Replication: &Replication{
			Self: 10 + node, LeaderReplica: 11, LeaderNode: 1, CommittedMembers: all, CurrentMembers: all,
		},
	}
	if id != controlID {
		g.Queue = "a"
	}
	if node == 1 {
		g.Role = RoleLeader
		for _, m := range all {
			g.Replication.Followers = append(g.Replication.Followers, Follower{
				Replica: m, Match: 20, State: "replicate", HeardMS: 100, CaughtUpMS: 100,
			})
		}
	}
	return g
}

// queueOn is the queue's group as a node tells it.
func (c *Cluster) queueOn(node int) *Group { return &c.Facts[node-1].Groups[1] }

// down makes a node one that does not answer, and that its leader has not heard for a while.
func (c *Cluster) down(node int) {
	f := &c.Facts[node-1]
	f.Why, f.Groups = "connection refused", nil
	for i := range c.Facts {
		for j := range c.Facts[i].Groups {
			r := c.Facts[i].Groups[j].Replication
			for k := range r.Followers {
				if x := &r.Followers[k]; x.Node == uint64(node) {
					x.HeardMS, x.CaughtUpMS, x.Match = HeardMaxMS+1, HeardMaxMS+1, 12
				}
			}
		}
	}
}

// elect makes another node lead the queue.
func (c *Cluster) elect(node int) {
	all := c.queueOn(node).Replication.CurrentMembers
	term := c.queueOn(node).Term + 1
	for i := range c.Facts {
		if c.Facts[i].Why != "" {
			continue
		}
		g := c.queueOn(i + 1)
		g.Term, g.Replication.LeaderNode, g.Replication.LeaderReplica = term, uint64(node), uint64(10+node)
		g.Role, g.Replication.Followers = RoleFollower, nil
	}
	g := c.queueOn(node)
	g.Role = RoleLeader
	for _, m := range all {
		g.Replication.Followers = append(g.Replication.Followers, Follower{
			Replica: m, Match: 20, State: "replicate", HeardMS: 100, CaughtUpMS: 100,
		})
	}
}

func (c *Cluster) group(name string) GroupState {
	for _, g := range c.Groups() {
		if g.Group == name {
			return g
		}
	}
	panic("bug: admin: no such group in the test")
}

// Each way a group can be, from facts alone.
func TestGroupHealth(t *testing.T) {
	for _, row := range []struct {
		name   string
		break_ func(*Cluster)
		health GroupHealth
		why    string
	}{
		{"all is well", func(*Cluster) {}, Healthy, ""},
		{"a follower is down", func(c *Cluster) { c.down(3) }, Degraded, "2 of 3 voters are in step"},
		{
			"a change is not in force yet", func(c *Cluster) { c.Registry.Queues[0].Metadata.Generation += 2 }, Changing,
			"and 1 is in force",
		},
		{
			"it is being deleted", func(c *Cluster) { c.Registry.Queues[0].Metadata.DeletionTimestamp = 7 }, Changing,
			"it is being deleted",
		},
		{"a replica is lost", func(c *Cluster) {
			c.queueOn(1).Replication.Followers[2].HeardMS = 99_000
			c.Registry.Queues[0].Status.Placement = []control.Replica{{Replica: 13, Node: "k3", Lost: "Corrupt"}}
		}, Degraded, "replica 13 on k3 is lost (Corrupt), and another one takes its place"},
		{"two are down", func(c *Cluster) { c.down(2); c.down(3) }, Unavailable, "1 of 3 voters answer, a majority is 2"},
		{"the leader is down and another leads", func(c *Cluster) { c.elect(2); c.down(1) }, Degraded, "2 of 3"},
		{"the leader is down, nobody noticed yet", func(c *Cluster) { c.down(1) }, Unknown, "n1, which did not answer"},
		{
			"no leader", func(c *Cluster) {
				for n := 1; n <= 3; n++ {
					g := c.queueOn(n)
					g.Role, g.Replication.LeaderNode, g.Replication.Followers = RoleCandidate, 0, nil
				}
			}, Unavailable, "no node leads it",
		},
		{"nothing is committed", func(c *Cluster) { // 30, and the reports on idle "healthy" groups
			g := c.queueOn(1)
			g.Waiting, g.StalledMS = 3, stalledMax
		}, Unavailable, "3 proposals wait and nothing was committed for 5000 ms"},
		{"a moment of waiting", func(c *Cluster) { c.queueOn(1).Waiting, c.queueOn(1).StalledMS = 3, 100 }, Healthy, ""},
		{"its disk", func(c *Cluster) { c.queueOn(1).Trouble = "poisoned" }, Unavailable, "n1: poisoned"},
		{"a follower is brought up", func(c *Cluster) {
			c.queueOn(1).Replication.Followers[2].State = "snapshot"
		}, Degraded, "2 of 3"},
		{"members change", func(c *Cluster) {
			r := c.queueOn(1).Replication
			r.CurrentMembers = append(slices.Clone(r.CurrentMembers), Replica{14, 4, true})
			r.Followers = append(r.Followers, Follower{Replica: Replica{14, 4, true}, HeardMS: -1, CaughtUpMS: -1})
		}, Changing, "under way"},
		{"between the two steps", func(c *Cluster) { c.queueOn(1).Replication.Joint = true }, Changing, "under way"},
		{"more are wanted", func(c *Cluster) {
			c.Registry.Queues[0].Spec.Replicas = 5
		}, Degraded, "3 voters and 5 are wanted"},
		{"an old leader has not noticed", func(c *Cluster) {
			c.elect(3)
			old := *c.queueOn(3)
			c.elect(2)
			*c.queueOn(3) = old
			c.queueOn(3).Trouble = "is not looked at: its term is over"
		}, Healthy, ""},
		{"not placed", func(c *Cluster) {
			for n := 1; n <= 3; n++ {
				c.Facts[n-1].Groups = c.Facts[n-1].Groups[:1]
			}
			c.Registry.Queues[0].Status = control.Status{Conditions: []control.Condition{{Message: "five nodes are wanted"}}}
		}, Unavailable, "five nodes are wanted"},
	} {
		c := town(3)
		row.break_(c)
		g := c.group("queue/a")
		if g.Health != row.health || !strings.Contains(g.Why, row.why) || (g.Remedy == "") != (row.health == Healthy) {
			t.Errorf("%s: %s, %q, %q", row.name, g.Health, g.Why, g.Remedy)
		}
	}
}

// The worst comes first, and how far behind is told in entries and in time.
func TestGroupsWorstFirst(t *testing.T) {
	c := town(3)
	for i, name := range []string{"b", "c"} {
		q := c.Registry.Queues[0]
		q.Metadata.Name, q.Metadata.UID = name, uint64(20+i)
		c.Registry.Queues = append(c.Registry.Queues, q)
		for n := range c.Facts {
			g := replicaView(q.Metadata.UID, uint64(n+1), c.Facts[0].Groups[0].Replication.CurrentMembers)
			g.Queue = name
			c.Facts[n].Groups = append(c.Facts[n].Groups, g)
		}
	}
	lag := func(place int, match uint64, ms int64) {
		f := &c.Facts[0].Groups[place].Replication.Followers[1]
		f.Match, f.CaughtUpMS = match, ms
	}
	lag(2, 19, 300) // b
	lag(3, 13, 900) // c
	var names []string
	for _, g := range c.Groups() {
		names = append(names, g.Group)
	}
	if got := strings.Join(names, " "); got != "queue/c queue/b control queue/a" {
		t.Errorf("in the order %s", got)
	}
	if g := c.group("queue/c"); g.BehindEntries != 7 || g.BehindMS != 900 || g.Leader != "n1" || g.InStep != 3 {
		t.Errorf("told %+v", g)
	}
	c.Facts[0].Groups[2].Trouble = "poisoned"
	if g := c.Groups()[0]; g.Group != "queue/b" {
		t.Errorf("the worst is %+v", g)
	}
	s := c.Status()
	if s.Healthy || s.Counts[Unavailable] != 1 || s.Counts[Healthy] != 3 || s.Nodes[0].Live.Leads != 4 {
		t.Errorf("status %+v", s.Counts)
	}
	if !town(3).Status().Healthy || !town(5).Status().Healthy {
		t.Error("a cluster that is well is not told so")
	}
}

// A cluster with a disk that ails is not healthy, though all its groups may be.
func TestAilingDisk(t *testing.T) {
	c := town(3)
	for i := range c.Facts {
		c.Facts[i].Disk = &Disk{State: "ok", FreeBytes: 9 << 30, TotalBytes: 10 << 30, ReserveBytes: 64 << 20}
	}
	if s := c.Status(); !s.Healthy {
		t.Fatalf("all disks are well: %+v", s)
	}
	for state, want := range map[string]string{
		"full":          "its disk is full: 100 of 1000 bytes are free, 200 are kept from messages",
		"full and slow": "its disk is full and slow: 100 of 1000 bytes are free, 200 are kept from messages",
		"slow":          "its disk is slow, and others lead while there are better ones",
	} {
		c.Facts[1].Disk = &Disk{State: state, FreeBytes: 100, TotalBytes: 1000, ReserveBytes: 200}
		s := c.Status()
		what, remedy := s.Nodes[1].Trouble()
		if s.Healthy || what != want || remedy == "" {
			t.Errorf("%s: healthy %v, %q, %q", state, s.Healthy, what, remedy)
		}
	}
	g := c.queueOn(1)
	g.Trouble, g.DiskFull = "disk full", true
	if s := c.Groups()[0]; s.Health != Unavailable || s.Remedy != "free some space; it goes on by itself" {
		t.Errorf("a leader without room: %+v", s)
	}
}

// whether a node may stop is judged by the committed voters, and refused while they are not the current ones.
func TestCanStop(t *testing.T) {
	for _, row := range []struct {
		name   string
		nodes  int
		break_ func(*Cluster)
		node   uint64
		ok     bool
		why    string
	}{
		{"one of three", 3, func(*Cluster) {}, 3, true, ""},
		{"the leader of three", 3, func(*Cluster) {}, 1, true, ""},
		{"the second of three", 3, func(c *Cluster) {
			c.down(2)
		}, 3, false, "1 of its 3 committed voters are in step, a majority is 2"},
		{"the one that is down already", 3, func(c *Cluster) { c.down(2) }, 2, true, ""},
		{"the second of five", 5, func(c *Cluster) { c.down(2) }, 3, true, ""},
		{"the third of five", 5, func(c *Cluster) { c.down(2); c.down(4) }, 3, false, "2 of its 5"},
		{"a follower that is brought up counts for nothing", 3, func(c *Cluster) {
			c.queueOn(1).Replication.Followers[1].State = "snapshot"
		}, 3, false, "1 of its 3"},
		{"a follower that is only probed", 3, func(c *Cluster) {
			c.queueOn(1).Replication.Followers[1].State = "probe"
		}, 3, false, "1 of its 3"},
		{"a change that is not committed", 3, func(c *Cluster) {
			r := c.queueOn(1).Replication
			r.CurrentMembers = []Replica{{11, 1, false}}
		}, 3, false, "committed voters are [n1 n2 n3], current ones [n1]"},
		{"a change to this node", 3, func(c *Cluster) {
			r := c.queueOn(1).Replication
			r.CommittedMembers = []Replica{{11, 1, false}, {12, 2, false}, {14, 4, false}}
		}, 3, false, "current ones [n1 n2 n3]"},
		{"joint", 3, func(c *Cluster) { c.queueOn(1).Replication.Joint = true }, 3, false, "under way"},
		{"a learner", 3, func(c *Cluster) {
			r := c.queueOn(1).Replication
			r.CommittedMembers = slices.Clone(r.CommittedMembers)
			r.CommittedMembers[2].Learner = true
			r.CurrentMembers = r.CommittedMembers
			r.Followers[2].Learner = true
		}, 3, true, ""},
		{"a group that it is no member of", 5, func(c *Cluster) {
			r := c.queueOn(1).Replication
			r.CommittedMembers, r.CurrentMembers = r.CommittedMembers[:3], r.CommittedMembers[:3]
			r.Followers = r.Followers[:3]
			r.Followers[1].HeardMS = -1
			r.Joint = true
		}, 5, true, ""},
		{"no leader answers", 3, func(c *Cluster) { c.down(1) }, 3, false, "which did not answer"},
	} {
		c := town(row.nodes)
		row.break_(c)
		v := c.CanStop(row.node)
		if v.OK != row.ok {
			t.Errorf("%s: %+v", row.name, v)
		}
		if !row.ok && (len(v.Findings) == 0 || v.Findings[0].Needed == "" ||
			!strings.Contains(fmt.Sprint(v.Findings), row.why)) {
			t.Errorf("%s: found %+v", row.name, v.Findings)
		}
	}
}

// A one-replica queue has no majority to lose: it is named, and no reason.
func TestCanStopPauses(t *testing.T) {
	c := town(3)
	c.Registry.Queues[0].Spec.Replicas = 1
	for n := 1; n <= 3; n++ {
		c.Facts[n-1].Groups = c.Facts[n-1].Groups[:1]
	}
	c.Facts[1].Groups = append(c.Facts[1].Groups, Group{ID: 7, Queue: "a", Role: RoleOwner, Term: 2})
	if v := c.CanStop(2); !v.OK || !slices.Equal(v.Pauses, []string{"a"}) {
		t.Errorf("%+v", v)
	}
	if v := c.CanStop(3); !v.OK || len(v.Pauses) != 0 {
		t.Errorf("%+v", v)
	}
	if g := c.group("queue/a"); g.Health != Healthy || g.Leader != "n2" || g.InStep != 1 {
		t.Errorf("%+v", g)
	}
	// Its owner is gone: it alone is unavailable, and that keeps no other node from being stopped.
	c.Registry.Queues[0].Status.Placement = []control.Replica{{Node: "f2", Owner: true}}
	c.down(2)
	if g := c.group("queue/a"); g.Health != Unavailable || !strings.Contains(g.Why, "its owner, n2") {
		t.Errorf("%+v", g)
	}
	if v := c.Leaderless(); v.OK || v.Findings[0].Group != "queue/a" {
		t.Errorf("%+v", v)
	}
}

func TestUnderReplicated(t *testing.T) {
	c := town(3)
	if v := c.UnderReplicated(); !v.OK {
		t.Errorf("%+v", v)
	}
	c.down(3)
	if v := c.UnderReplicated(); v.OK || len(v.Findings) != 2 || v.Findings[1].Group != "queue/a" {
		t.Errorf("%+v", v)
	}
	if v := c.Leaderless(); !v.OK {
		t.Errorf("%+v", v)
	}
}

// Health is proved by progress: the same index with something waiting, at two looks.
func TestStalls(t *testing.T) {
	var s stalls
	look := func(at int64, waiting, committed uint64) int64 {
		f := Facts{At: at, Groups: []Group{{ID: 7, Waiting: waiting, Committed: committed}}}
		s.note(&f)
		return f.Groups[0].StalledMS
	}
	for i, row := range []struct {
		at                 int64
		waiting, committed uint64
		want               int64
	}{
		{1000, 1, 5, 0}, {2000, 1, 5, 1000}, {9000, 4, 5, 8000}, // nothing was committed
		{10000, 4, 6, 0}, {11000, 4, 6, 1000}, // something was
		{12000, 0, 6, 0}, {13000, 1, 6, 0}, // what waits now has not waited before
		{12500, 1, 6, 0}, // a clock that went back
	} {
		if got := look(row.at, row.waiting, row.committed); got != row.want {
			t.Errorf("look %d: %d ms, want %d", i, got, row.want)
		}
	}
}

// What a group's status is told as.
func TestGroupOf(t *testing.T) {
	s := raftstore.Status{
		Group: 7, Role: raftstore.LeaderRole, First: 3, Inbox: 2, ReadOnly: errors.New("poisoned"),
		Marks: raftstore.Marks{Term: 5, Written: 20, Flushed: 19, Committed: 18, Applied: 17},
		Replication: &raftstore.Replication{
			Self: 11, Leader: raftstore.Leader{Replica: 11, Node: 1}, Joint: true, Quiesced: true, WaitingForBodies: 4,
			Committed: []raftstore.Member{{Replica: 11, Node: 1}},
			Current:   []raftstore.Member{{Replica: 11, Node: 1}, {Replica: 12, Node: 2, Learner: true}},
			Progress: []raftstore.Progress{{
				Member: raftstore.Member{Replica: 12, Node: 2, Learner: true}, Match: 9, State: "probe", HeardTicks: 3,
				CaughtUpTicks: -1, Disk: raftstore.DiskNoRoom,
			}},
		},
	}
	want := Group{
		ID: 7, Queue: "a", Role: RoleLeader, Term: 5, First: 3, Written: 20, Flushed: 19, Committed: 18, Applied: 17,
		Waiting: 4, Trouble: "poisoned",
		Replication: &Replication{
			Self: 11, LeaderReplica: 11, LeaderNode: 1, CommittedMembers: []Replica{{11, 1, false}},
			CurrentMembers: []Replica{{11, 1, false}, {12, 2, true}}, Joint: true, Quiesced: true, WaitingForBodies: 4,
			Followers: []Follower{{
				Replica: Replica{12, 2, true}, Match: 9, State: "probe", HeardMS: 300, CaughtUpMS: -1, Disk: "full",
			}},
		},
	}
	if got := GroupOf(s, "a", 100*time.Millisecond); !reflect.DeepEqual(got, want) {
		t.Errorf("told as\n%+v, want\n%+v", got, want)
	}
	s.Replication = nil
	if got := GroupOf(s, "a", time.Second); got.Replication != nil {
		t.Errorf("told as %+v", got)
	}
}

// A change of the members is asked of the node, unless a group would lose its majority by it.
func TestNodeChanges(t *testing.T) {
	c := town(3)
	r := newRig(t, Options{})
	r.state = stateWithQueue(t, 7)
	r.nodes, r.local, r.others = c.Registry.Nodes, c.Facts[0], c.Facts[1:]
	r.node = func(m control.Mutation) control.Result {
		if m.Name == "n3" {
			return control.Result{Node: &r.nodes[2], Err: &control.Error{
				Reason: control.Invalid, Kind: control.KindNode, Name: "n3", Message: "two members would be left",
			}}
		}
		return control.Result{Node: &r.nodes[1], Changed: true}
	}
	got := decoded[NodeAnswer](t, r.want(http.StatusOK, "POST", "/v1/nodes/n2/drain?dryRun=1", ""))
	if !got.DryRun || !got.Verdict.OK || got.Node.Metadata.Name != "n2" || len(r.asked) != 0 {
		t.Errorf("%+v, asked %+v", got, r.asked)
	}
	r.want(http.StatusOK, "POST", "/v1/nodes/n2/remove?expectedVersion=3", "")
	if m := r.asked[0]; m.Verb != control.NodeRemove || *m.Expected != 3 || m.Kind != control.KindNode {
		t.Errorf("asked %+v", m)
	}
	r.want(http.StatusOK, "POST", "/v1/nodes", `{"metadata":{"name":"n9"},"spec":{"fingerprint":"f9","address":"h:1"}}`)
	if m := r.asked[1]; m.Verb != control.NodeAdd || m.Node.Fingerprint != "f9" || m.Name != "n9" {
		t.Errorf("asked %+v", m)
	}
	e := r.refused(http.StatusBadRequest, "E5003", "POST", "/v1/nodes/n3/undrain", "")
	if now, ok := e.Now.(map[string]any); !ok || now["kind"] != "Node" || !strings.Contains(e.Detail, "two members") {
		t.Errorf("%+v", e)
	}
	r.refused(http.StatusBadRequest, "E5003", "POST", "/v1/nodes", `{"metadata":{"name":"n9"},"spec":{"address":"h:1"}}`)
	r.refused(http.StatusNotFound, "E5004", "POST", "/v1/nodes/none/remove", "")
	c.down(3)
	r.local, r.others = c.Facts[0], c.Facts[1:]
	e = r.refused(http.StatusConflict, "E5012", "POST", "/v1/nodes/n2/remove", "")
	if !strings.Contains(e.Detail, "1 of its 3 committed voters") || !strings.Contains(e.Detail, "needed: 1 more") {
		t.Errorf("refused with %s", e.Detail)
	}
	if len(r.asked) != 3 {
		t.Errorf("asked %+v", r.asked[3:])
	}
	list := decoded[List[Member]](t, r.want(http.StatusOK, "GET", "/v1/nodes", ""))
	if len(list.Items) != 3 || list.Kind != "NodeList" {
		t.Errorf("%+v", list)
	}
	r.want(http.StatusOK, "GET", "/v1/nodes/n3", "")
	v := decoded[Verdict](t, r.want(http.StatusOK, "GET", "/v1/check/can-stop/n2", ""))
	if v.OK || v.Check != "can-stop n2" {
		t.Errorf("%+v", v)
	}
	r.refused(http.StatusNotFound, "E5004", "GET", "/v1/check/can-stop/n7", "")
	s := decoded[ClusterStatus](t, r.want(http.StatusOK, "GET", "/v1/cluster", ""))
	if s.Healthy || s.Nodes[2].Live.Reached {
		t.Errorf("%+v", s)
	}
	if f := decoded[Facts](t, r.want(http.StatusOK, "GET", "/v1/local/groups", "")); len(f.Groups) != 2 {
		t.Errorf("%+v", f)
	}
}

// stateWithQueue is a registry whose queue "a" has that uid.
func stateWithQueue(t *testing.T, uid uint64) *control.State {
	s := control.NewState()
	res := s.Apply(uid, control.Command{Mutation: &control.Mutation{
		Verb: control.Create, Kind: control.KindQueue, Name: "a", Queue: &control.QueueSpec{}, At: 1,
	}})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	return s
}

// What is known of a queue comes from the node that leads it, whichever node is asked; who does not answer is told as
// the leader as long as somebody follows it.
func TestLeaderIsMerged(t *testing.T) {
	c := town(3)
	r := newRig(t, Options{})
	r.state = stateWithQueue(t, 7)
	r.nodes, r.local, r.others = c.Registry.Nodes, c.Facts[1], []Facts{c.Facts[0], c.Facts[2]}
	c.queueOn(1).Live = &Live{Leader: "n1", Term: 5, In: 3, Ready: 3}
	got := decoded[Queue](t, r.want(http.StatusOK, "GET", "/v1/queues/a", ""))
	if got.Status.Leader != "n1" || got.Live == nil || got.Live.Ready != 3 {
		t.Errorf("%+v", got)
	}
	list := decoded[List[Queue]](t, r.want(http.StatusOK, "GET", "/v1/queues", ""))
	if q := list.Items[0]; q.Status.Leader != "n1" || q.Live.Term != 5 {
		t.Errorf("%+v", q)
	}
	c.down(1)
	r.others[0] = c.Facts[0]
	got = decoded[Queue](t, r.want(http.StatusOK, "GET", "/v1/queues/a", ""))
	if got.Status.Leader != "n1" || got.Live != nil {
		t.Errorf("%+v", got)
	}
	r.live[7] = Live{Leader: "n2", Term: 6}
	if got := decoded[Queue](t, r.want(http.StatusOK, "GET", "/v1/queues/a", "")); got.Status.Leader != "n2" {
		t.Errorf("%+v", got)
	}
	if n := decoded[Member](t, r.want(http.StatusOK, "GET", "/v1/nodes/n1", "")); n.Live == nil || n.Live.Reached {
		t.Errorf("%+v", n)
	}
}

// A follower that stands still has all that there is, and nobody knows whether it has it still: it is behind by the
// time that it has said nothing.
func TestSilentFollowerIsBehind(t *testing.T) {
	c := town(3)
	f := &c.queueOn(1).Replication.Followers[2]
	f.HeardMS, f.CaughtUpMS = HeardMaxMS+7_000, HeardMaxMS+7_000
	if g := c.group("queue/a"); g.Health != Degraded || g.BehindMS != HeardMaxMS+7_000 || g.InStep != 2 {
		t.Errorf("%+v", g)
	}
	f.HeardMS, f.CaughtUpMS = 100, HeardMaxMS+7_000 // it is idle
	if g := c.group("queue/a"); g.Health != Healthy || g.BehindMS != 0 || g.BehindEntries != 0 {
		t.Errorf("%+v", g)
	}
}
