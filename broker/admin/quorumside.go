package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"weida/broker/wire"
)

// factsPatience bounds how long the other nodes are waited for.
const factsPatience = 2 * time.Second

// cluster is what is known now: by this node alone, or by all that answer.
func (h *handler) cluster(c *call, all bool) *Cluster {
	local := h.node.Local()
	h.stalls.note(&local)
	k := &Cluster{Now: local.At, Registry: h.node.Registry(), Facts: []Facts{local}}
	if all {
		ctx, cancel := patient(c, factsPatience)
		defer cancel()
		k.Facts = append(k.Facts, h.node.Others(ctx)...)
	}
	return k
}

// local tells what this node knows of its groups.
func (h *handler) local(w http.ResponseWriter, c *call) error {
	writeJSON(w, http.StatusOK, h.cluster(c, false).Facts[0])
	return nil
}

// describeQuorum answers for groups; with relay=1 it asks the leaders for you.
func (h *handler) describeQuorum(w http.ResponseWriter, c *call) error {
	relay, err := c.flag("relay")
	if err != nil {
		return err
	}
	var q QuorumRequest
	if err := h.body(w, c, &q); err != nil {
		return err
	}
	version := QuorumVersion
	if q.Version != nil {
		version = *q.Version
	}
	if version < 0 || version > QuorumVersion {
		return wrongField("version", "the versions are 0 to %d, not %d", QuorumVersion, version)
	}
	r := h.cluster(c, relay).Describe(q.Groups)
	for i := range r.Groups {
		h.seen.keep(&r.Groups[i])
	}
	r.Version = version
	write(w, http.StatusOK, "application/json", ofVersion(encode(r), version))
	return nil
}

// body reads a request's body into a struct.
func (h *handler) body(w http.ResponseWriter, c *call, into any) error {
	b, err := readBody(w, c.Request, new(bytes.Buffer))
	if err != nil {
		return err
	}
	return unmarshal(b, into)
}

// ofVersion leaves out of an answer what an older version does not have.
func ofVersion(b []byte, version int) []byte {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	f := filter{dec: d, version: version}
	f.value()
	return append(f.out, '\n')
}

// filter copies a document of ours, token by token, in its order.
type filter struct {
	dec     *json.Decoder
	version int
	out     []byte
}

func (f *filter) token() json.Token {
	t, err := f.dec.Token()
	if err != nil {
		panic("bug: admin: an answer of ours ends in " + err.Error())
	}
	return t
}

func (f *filter) value() {
	switch t := f.token(); t {
	case json.Delim('{'):
		f.fields()
	case json.Delim('['):
		f.out = append(f.out, '[')
		for first := true; f.dec.More(); first = false {
			if !first {
				f.out = append(f.out, ',')
			}
			f.value()
		}
		f.token()
		f.out = append(f.out, ']')
	default:
		f.out = append(f.out, bytes.TrimSpace(encode(t))...)
	}
}

func (f *filter) fields() {
	f.out = append(f.out, '{')
	begin := len(f.out)
	for f.dec.More() {
		name := f.token().(string)
		mark := len(f.out)
		if mark > begin {
			f.out = append(f.out, ',')
		}
		f.out = append(append(f.out, bytes.TrimSpace(encode(name))...), ':')
		f.value()
		if sinceVersion[name] > f.version {
			f.out = f.out[:mark]
		}
	}
	f.token()
	f.out = append(f.out, '}')
}

// fetches keep the times of replicas from going back: a leader counts them in ticks, and a tick is not over when its
// count is read.
type fetches struct {
	mu   sync.Mutex
	last map[fetchKey]fetchTimes
}

// fetchKey is a replica under one leader: another one begins anew.
type fetchKey struct {
	group     string
	replica   int32
	directory string
	epoch     int32
}

type fetchTimes struct{ fetch, caughtUp int64 }

// fetchesMax bounds the replicas whose times are remembered; beyond it they may go back by a tick.
const fetchesMax = 100_000

func (f *fetches) keep(g *GroupQuorum) {
	if g.ErrorCode != 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.last) > fetchesMax || f.last == nil {
		f.last = make(map[fetchKey]fetchTimes)
	}
	for _, list := range [][]ReplicaState{g.CurrentVoters, g.CommittedVoters, g.Observers} {
		for i := range list {
			s := &list[i]
			key := fetchKey{g.Group, s.ReplicaID, s.ReplicaDirectoryID, g.LeaderEpoch}
			was := f.last[key]
			if s.LastFetchTimestamp >= 0 {
				s.LastFetchTimestamp = max(s.LastFetchTimestamp, was.fetch)
			}
			if s.LastCaughtUpTimestamp >= 0 {
				s.LastCaughtUpTimestamp = max(s.LastCaughtUpTimestamp, was.caughtUp)
			}
			f.last[key] = fetchTimes{max(was.fetch, s.LastFetchTimestamp), max(was.caughtUp, s.LastCaughtUpTimestamp)}
		}
	}
}

// TransferRequest asks for another leader.
type TransferRequest struct {
	Group string `json:"group"` // control, or queue/NAME
	To    string `json:"to"`    // name of a node
}

// TransferResponse says what was begun. That it is done shows in the group's state.
type TransferResponse struct {
	Group  string `json:"group"`
	From   string `json:"from"` // the leader as of now
	To     string `json:"to"`
	Begun  bool   `json:"begun"` // false: it leads already
	DryRun bool   `json:"dryRun"`
}

// transfer asks a group's leader to let another voter lead.
func (h *handler) transfer(w http.ResponseWriter, c *call) error {
	dry, err := c.flag("dryRun")
	if err != nil {
		return err
	}
	stay, err := c.flag("stay")
	if err != nil {
		return err
	}
	var q TransferRequest
	if err := h.body(w, c, &q); err != nil {
		return err
	}
	done, err := h.begin()
	if err != nil {
		return err
	}
	defer done()
	k := h.cluster(c, true)
	v, to, err := k.transferable(q)
	if err != nil {
		return err
	}
	a := TransferResponse{Group: q.Group, From: k.nameOf(v.node), To: q.To, Begun: v.node.Node != to, DryRun: dry}
	if a.Begun && !dry {
		ctx, cancel := patient(c, h.o.MutationTime)
		defer cancel()
		if err := h.node.Transfer(ctx, v.id, to, stay); err != nil {
			return notTransferred(err)
		}
		h.o.Log.Info("admin transfer of leadership", "group", q.Group, "to", q.To, "from", c.RemoteAddr)
	}
	writeJSON(w, http.StatusOK, a)
	return nil
}

// transferable refuses a transfer that would not end well, with what stands in its way.
func (c *Cluster) transferable(q TransferRequest) (v *view, to uint64, err error) {
	for _, x := range c.views() {
		if x.name == q.Group {
			v = x
		}
	}
	if n := c.nodeNamed(q.To); n != nil {
		to = n.Number()
	}
	var g GroupQuorum
	g.Group = q.Group
	c.describe(&g, v)
	switch {
	case g.ErrorCode != 0:
		code := wire.Code(g.ErrorCode)
		status := http.StatusConflict
		switch code {
		case wire.NoSuchResource:
			status = http.StatusNotFound
		case wire.NotLeader:
			status = http.StatusServiceUnavailable
		default:
		}
		return nil, 0, refuse(status, code, "%s", *g.ErrorMessage)
	case to == 0:
		return nil, 0, refuse(http.StatusNotFound, wire.NoSuchResource, "Node %q", clip(q.To))
	}
	r := v.leader.Replication
	if changing(r) {
		return nil, 0, refuse(http.StatusConflict, wire.ChangePending, "committed voters are %v, current ones %v",
			c.names(voterNodes(r.CommittedMembers)), c.names(voterNodes(r.CurrentMembers)))
	}
	for _, f := range r.Followers {
		if f.Node != to || f.Learner {
			continue
		}
		if !c.inStep(v.leader, f) {
			return nil, 0, refuse(http.StatusConflict, wire.Unsafe, "%s does not answer or is being brought up; needed is that "+
				"it is in step: `weida quorum describe %s --replication` shows it", q.To, q.Group)
		}
		return v, to, nil
	}
	return nil, 0, refuse(http.StatusConflict, wire.Unsafe, "%s has no voting replica of it; its voters are %v", q.To,
		c.names(voterNodes(r.CommittedMembers)))
}

// verdict answers a check.
func (h *handler) verdict(w http.ResponseWriter, c *call, f func(*Cluster) Verdict) error {
	writeJSON(w, http.StatusOK, f(h.cluster(c, true)))
	return nil
}

// canStop answers for one node, by its name.
func (h *handler) canStop(w http.ResponseWriter, c *call) error {
	k := h.cluster(c, true)
	n := k.nodeNamed(c.name)
	if n == nil {
		return refuse(http.StatusNotFound, wire.NoSuchResource, "Node %q", clip(c.name))
	}
	v := k.CanStop(n.Number())
	v.Check += " " + n.Metadata.Name
	writeJSON(w, http.StatusOK, v)
	return nil
}

// ClusterStatus is the answer of GET /v1/cluster: the groups, the worst first.
type ClusterStatus struct {
	Healthy         bool                `json:"healthy"`
	ResourceVersion uint64              `json:"resourceVersion"`
	Counts          map[GroupHealth]int `json:"counts"` // of groups
	Nodes           []Member            `json:"nodes"`
	Groups          []GroupState        `json:"groups"`
}

// status tells how everything is.
func (h *handler) clusterStatus(w http.ResponseWriter, c *call) error {
	writeJSON(w, http.StatusOK, h.cluster(c, true).Status())
	return nil
}

// Status judges all of it.
func (c *Cluster) Status() ClusterStatus {
	s := ClusterStatus{
		Healthy: true, ResourceVersion: c.Registry.Version, Counts: make(map[GroupHealth]int), Nodes: []Member{},
		Groups: c.Groups(),
	}
	for _, x := range healths {
		s.Counts[x] = 0
	}
	for i := range s.Groups {
		s.Counts[s.Groups[i].Health]++
		s.Healthy = s.Healthy && s.Groups[i].Health == Healthy
	}
	for _, n := range c.Registry.Nodes {
		m := Member{Node: n, Live: c.live(n.Number())}
		s.Nodes = append(s.Nodes, m)
		what, _ := m.Live.Disk.ails()
		s.Healthy = s.Healthy && m.Live.Reached && what == ""
	}
	return s
}

// live is a node as those who were asked see it.
func (c *Cluster) live(number uint64) *MemberLive {
	f := c.factsOf(number)
	if f == nil {
		return &MemberLive{Why: "nobody asked it"}
	}
	l := &MemberLive{Reached: f.Why == "", Why: f.Why, Disk: f.Disk}
	for i := range f.Groups {
		if f.Groups[i].ID != controlID {
			l.Replicas++
		}
		if r := f.Groups[i].Role; r == RoleLeader || r == RoleOwner {
			l.Leads++
		}
	}
	return l
}

// clusterRoutes are those that are about groups.
func (h *handler) clusterRoutes() []route {
	check := func(name, does string, f func(*Cluster) Verdict) route {
		return route{
			"GET", "/v1/check/" + name, does, nil, nil, ok(Verdict{}),
			func(w http.ResponseWriter, c *call) error { return h.verdict(w, c, f) },
		}
	}
	return []route{
		{
			"GET", "/v1/cluster", "nodes and groups in one look, the worst first", nil, nil, ok(ClusterStatus{}),
			h.clusterStatus,
		},
		{"GET", "/v1/local/groups", "what this node knows of its groups", nil, nil, ok(Facts{}), h.local},
		{
			"POST", "/v1/quorum/describe", "leaders and voters of groups",
			[]param{{"relay", "1 asks the leaders, wherever they are; else only this node's word is given"}},
			QuorumRequest{},
			ok(QuorumResponse{}), h.describeQuorum,
		},
		{
			"POST", "/v1/quorum/transfer-leader", "lets another voter lead a group",
			[]param{paramDryRun, {"stay", "1 refuses where the leader is on another node, instead of asking it"}},
			TransferRequest{},
			ok(TransferResponse{}), h.transfer,
		},
		{
			"GET", "/v1/check/" + CheckCanStop + "/{name}",
			"whether every group keeps its majority of committed voters without the node", nil, nil, ok(Verdict{}), h.canStop,
		},
		check(CheckLeaderless, "which groups nobody leads", (*Cluster).Leaderless),
		check(CheckUnderReplicated, "which groups have fewer voters in step than are wanted", (*Cluster).UnderReplicated),
	}
}

// notTransferred is the refusal for a transfer that was not begun.
func notTransferred(err error) error {
	switch code := CodeOf(err); code {
	case wire.ChangePending, wire.NoGroup, wire.NotLeader, wire.Unsafe, wire.Conflict:
		detail := err.Error()
		var told *wire.Error
		if errors.As(err, &told) {
			detail = told.Detail
		}
		return refuse(http.StatusConflict, code, "%s", detail)
	default:
		return notAnswered(err)
	}
}
