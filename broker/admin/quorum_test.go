package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// quorumRig is a node of a town, with a handler: the number is which.
func quorumRig(t *testing.T, c *Cluster, node int) *rig {
	r := newRig(t, Options{})
	r.state = stateWithQueue(t, 7)
	r.nodes, r.local = c.Registry.Nodes, c.Facts[node-1]
	for i := range c.Facts {
		if i != node-1 {
			r.others = append(r.others, c.Facts[i])
		}
	}
	return r
}

func describe(t *testing.T, r *rig, query, body string) QuorumResponse {
	t.Helper()
	return decoded[QuorumResponse](t, r.want(http.StatusOK, "POST", "/v1/quorum/describe"+query, body))
}

// what the leader tells of its group.
func TestDescribeLeader(t *testing.T) {
	c := town(3)
	g := c.queueOn(1)
	two, three := &g.Replication.Followers[1], &g.Replication.Followers[2]
	two.Match, two.HeardMS, two.CaughtUpMS = 17, 200, 900
	three.Match, three.HeardMS, three.CaughtUpMS = 0, -1, -1
	g.Replication.Followers[0].Disk, two.Disk = "ok", "full"
	res := describe(t, quorumRig(t, c, 1), "", `{"groups":["queue/a","control"]}`)
	if res.ErrorCode != 0 || res.ErrorMessage != nil || len(res.Groups) != 2 || res.Version != 3 {
		t.Fatalf("%+v", res)
	}
	info, err := res.Info("queue/a")
	if err != nil {
		t.Fatal(err)
	}
	disk := func(n int) string {
		d := fmt.Sprint(n)
		s := strings.Repeat(d, 32)
		return s[:8] + "-" + s[:4] + "-" + s[:4] + "-" + s[:4] + "-" + s[:12]
	}
	voters := []ReplicaState{
		{1, disk(1), 21, -1, 1_000_000, "ok", ""}, // the leader's own row
		{2, disk(2), 18, 999_800, 999_100, "full", ""},
		{3, disk(3), -1, -1, -1, "", ""},
	}
	want := QuorumInfo{
		LeaderID: 1, LeaderEpoch: 5, HighWatermark: 21, Voters: voters, CommittedVoters: voters,
		Observers: []ReplicaState{}, Nodes: map[int32]QuorumNode{
			1: {1, []QuorumListener{{ListenerName, "127.0.0.1", 7444}}},
			2: {2, []QuorumListener{{ListenerName, "127.0.0.1", 7445}}},
			3: {3, []QuorumListener{{ListenerName, "127.0.0.1", 7446}}},
		},
	}
	if !reflect.DeepEqual(info, want) {
		t.Errorf("told\n%+v, want\n%+v", info, want)
	}
	var names []string
	for i := range reflect.TypeFor[QuorumInfo]().NumField() {
		names = append(names, reflect.TypeFor[QuorumInfo]().Field(i).Name)
	}
	order := []string{
		"LeaderID", "LeaderEpoch", "HighWatermark", "Voters", "CommittedVoters", "Observers", "Nodes",
	}
	if !slices.Equal(names, order) {
		t.Errorf("Q-12: the fields are in the order %v", names)
	}
}

// A replica that was given up is told as lost until another one has taken its place.
func TestDescribeLost(t *testing.T) {
	c := town(3)
	c.queueOn(1).Replication.Followers[2].HeardMS = 45_000
	c.Registry.Queues[0].Status.Placement = []control.Replica{
		{Replica: 11, Number: 1},
		{Replica: 12, Number: 2},
		{Replica: 13, Number: 3, Lost: "Emptied"},
		{Replica: 20, Number: 3}, // takes its place
	}
	voters := c.Describe([]string{"queue/a"}).Groups[0].CurrentVoters
	if voters[0].Lost != "" || voters[1].Lost != "" || voters[2].Lost != "Emptied" ||
		voters[2].LastFetchTimestamp != c.Now-45_000 {
		t.Errorf("%+v", voters)
	}
}

// a change that is pending is in current and not in committed; taken back it was never there.
func TestDescribePendingChange(t *testing.T) {
	c := town(3)
	r := c.queueOn(1).Replication
	old := r.CommittedMembers
	r.CurrentMembers = append(slices.Clone(old), Replica{14, 3, true})[1:] // without n1, and a learner
	r.Joint = true
	got := describe(t, quorumRig(t, c, 1), "", `{"groups":["queue/a"]}`).Groups[0]
	if ids(got.CurrentVoters) != "[2 3]" || ids(got.CommittedVoters) != "[1 2 3]" || ids(got.Observers) != "[3]" {
		t.Errorf("current %s, committed %s, observers %s", ids(got.CurrentVoters), ids(got.CommittedVoters),
			ids(got.Observers))
	}
	r.CurrentMembers = old
	got = describe(t, quorumRig(t, c, 1), "", `{"groups":["queue/a"]}`).Groups[0]
	if ids(got.CurrentVoters) != "[1 2 3]" || ids(got.CommittedVoters) != "[1 2 3]" || len(got.Observers) != 0 {
		t.Errorf("steady, and still %+v", got)
	}
}

func ids(list []ReplicaState) string {
	var all []int32
	for _, s := range list {
		all = append(all, s.ReplicaID)
	}
	return fmt.Sprint(all)
}

// only the leader answers; the others say who it is and in which epoch. Q-3: without one it is -1.
func TestDescribeOnlyTheLeaderAnswers(t *testing.T) {
	c := town(3)
	for node := 2; node <= 3; node++ {
		g := describe(t, quorumRig(t, c, node), "", `{"groups":["queue/a"]}`).Groups[0]
		if g.ErrorCode != int16(wire.NotLeader) || g.LeaderID != 1 || g.LeaderEpoch != 5 || len(g.CurrentVoters) != 0 ||
			!strings.Contains(*g.ErrorMessage, "led by n1 in term 5") {
			t.Errorf("n%d tells %+v", node, g)
		}
		relayed := describe(t, quorumRig(t, c, node), "?relay=1", `{"groups":["queue/a"]}`).Groups[0]
		if relayed.ErrorCode != 0 || relayed.LeaderID != 1 || ids(relayed.CommittedVoters) != "[1 2 3]" {
			t.Errorf("n%d relays %+v", node, relayed)
		}
	}
	for n := 1; n <= 3; n++ {
		g := c.queueOn(n)
		g.Role, g.Term, g.Replication.LeaderNode, g.Replication.LeaderReplica = RoleCandidate, 8, 0, 0
		g.Replication.Followers = nil
	}
	g := describe(t, quorumRig(t, c, 2), "?relay=1", `{"groups":["queue/a"]}`).Groups[0]
	if g.LeaderID != -1 || g.LeaderEpoch != 8 || g.ErrorCode != int16(wire.NotLeader) {
		t.Errorf("in an election: %+v", g)
	}
}

// a group that is not there, or is none, has its own answer, and the others are answered.
func TestDescribeMixed(t *testing.T) {
	c := town(3)
	r := quorumRig(t, c, 1)
	r.local.Groups[1].Role, r.local.Groups[1].Replication = RoleOwner, nil
	res := describe(t, r, "", `{"groups":["queue/none","queue/a","control","b"]}`)
	want := []int16{int16(wire.NoSuchResource), int16(wire.NoGroup), 0, int16(wire.NoSuchResource)}
	for i, g := range res.Groups {
		if g.ErrorCode != want[i] || (g.ErrorMessage == nil) != (g.ErrorCode == 0) {
			t.Errorf("%s: %+v", g.Group, g)
		}
	}
	if got := *res.Groups[1].ErrorMessage; got != "no group, owner n1" {
		t.Errorf("a one-replica queue answers %q", got)
	}
	if _, err := res.Info("queue/none"); err == nil || !strings.Contains(err.Error(), "E5004") {
		t.Errorf("Info: %v", err)
	}
}

// each version of the answer has what it had, and nothing that came later; the request is one.
func TestDescribeVersions(t *testing.T) {
	r := quorumRig(t, town(3), 1)
	for version := range QuorumVersion + 1 {
		body := r.want(http.StatusOK, "POST", "/v1/quorum/describe",
			fmt.Sprintf(`{"version":%d,"groups":["queue/a"]}`, version)).body
		for name, since := range sinceVersion {
			if got := strings.Contains(string(body), `"`+name+`":`); got != (version >= since) {
				t.Errorf("version %d: %s is there: %v", version, name, got)
			}
		}
		for _, name := range strings.Fields("leaderId leaderEpoch highWatermark currentVoters observers logEndOffset") {
			if !strings.Contains(string(body), `"`+name+`":`) {
				t.Errorf("version %d: %s is not there", version, name)
			}
		}
		// A client of version 2 reads what a node of version 3 answers to it.
		var old struct {
			Version int `json:"version"`
			Groups  []struct {
				LeaderID      int32          `json:"leaderId"`
				CurrentVoters []ReplicaState `json:"currentVoters"`
			} `json:"groups"`
		}
		if err := json.Unmarshal(body, &old); err != nil || old.Version != version || len(old.Groups[0].CurrentVoters) != 3 {
			t.Errorf("version %d: %+v, %v", version, old, err)
		}
	}
	for _, version := range []string{"4", "-1"} {
		e := r.refused(http.StatusBadRequest, "E5003", "POST", "/v1/quorum/describe", `{"version":`+version+`,"groups":[]}`)
		if e.Field != "version" || !strings.Contains(e.Detail, "0 to 3") {
			t.Errorf("%+v", e)
		}
	}
}

// the time a follower was caught up never goes back under one leader, though ticks are coarse.
func TestDescribeTimesDoNotGoBack(t *testing.T) {
	c := town(3)
	r := quorumRig(t, c, 1)
	f := &r.local.Groups[1].Replication.Followers[1]
	last := int64(0)
	for _, step := range []struct{ at, heard, caught int64 }{
		{1000, 100, 300}, {1090, 100, 300}, {1100, 200, 400}, {1150, 100, 0},
	} {
		r.local.At, f.HeardMS, f.CaughtUpMS = step.at, step.heard, step.caught
		s := describe(t, r, "", `{"groups":["queue/a"]}`).Groups[0].CurrentVoters[1]
		if s.LastCaughtUpTimestamp < last || s.LastFetchTimestamp > step.at {
			t.Errorf("at %d: %+v after %d", step.at, s, last)
		}
		last = s.LastCaughtUpTimestamp
	}
	if last != 1150 {
		t.Errorf("caught up at %d", last)
	}
	f.CaughtUpMS = -1 // it is not known any more: that is said, not what was
	if s := describe(t, r, "", `{"groups":["queue/a"]}`).Groups[0].CurrentVoters[1]; s.LastCaughtUpTimestamp != -1 {
		t.Errorf("%+v", s)
	}
}

// A transfer is asked of the group, once it can end well.
func TestTransfer(t *testing.T) {
	c := town(3)
	r := quorumRig(t, c, 2)
	var asked []string
	r.transfer = func(group, to uint64) error {
		asked = append(asked, fmt.Sprint(group, to))
		return nil
	}
	post := func(q, to string) (string, string) {
		return "/v1/quorum/transfer-leader" + q, `{"group":"queue/a","to":"` + to + `"}`
	}
	path, body := post("?dryRun=1", "n2")
	a := decoded[TransferResponse](t, r.want(http.StatusOK, "POST", path, body))
	if want := (TransferResponse{"queue/a", "n1", "n2", true, true}); a != want || len(asked) != 0 {
		t.Errorf("%+v, asked %v", a, asked)
	}
	path, body = post("", "n2")
	r.want(http.StatusOK, "POST", path, body)
	path, body = post("", "n1")
	if a := decoded[TransferResponse](t, r.want(http.StatusOK, "POST", path, body)); a.Begun {
		t.Errorf("it leads already, and %+v", a)
	}
	if !slices.Equal(asked, []string{"7 2"}) {
		t.Errorf("asked %v", asked)
	}
	path, body = post("", "n9")
	r.refused(http.StatusNotFound, "E5004", "POST", path, body)
	r.refused(http.StatusNotFound, "E5004", "POST", path, `{"group":"queue/none","to":"n2"}`)

	path, body = post("", "n3")
	c.queueOn(1).Replication.Followers[2].State = "snapshot"
	if e := r.refused(http.StatusConflict, "E5012", "POST", path, body); !strings.Contains(e.Detail, "in step") {
		t.Errorf("%+v", e)
	}
	c.queueOn(1).Replication.Followers[2].State = "replicate"
	for err, code := range map[error]string{
		raftstore.ErrChangePending: "E5011", raftstore.ErrNoGroup: "E5013",
		&raftstore.NotLeaderError{Group: 7}: "E5014", &raftstore.ChangeError{Reason: "no"}: "E5012",
	} {
		r.transfer = func(uint64, uint64) error { return fmt.Errorf("asked: %w", err) }
		r.refused(http.StatusConflict, code, "POST", path, body)
	}
	c.queueOn(1).Replication.Joint = true
	r.refused(http.StatusConflict, "E5011", "POST", path, body)
	c.down(1)
	r.others[0] = c.Facts[0]
	r.refused(http.StatusServiceUnavailable, "E5014", "POST", path, body)
}
