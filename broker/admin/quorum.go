package admin

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"weida/broker/control"
	"weida/broker/wire"
)

// QuorumInfo is what is known of one group's membership, in the order of fields that KIP-1204 gives.
type QuorumInfo struct {
	LeaderID        int32 // -1 is unknown
	LeaderEpoch     int32
	HighWatermark   int64 // commit index + 1
	Voters          []ReplicaState
	CommittedVoters []ReplicaState
	Observers       []ReplicaState
	Nodes           map[int32]QuorumNode
}

// QuorumVersion is the newest version of the answer. Version 1 added the timestamps, 2 error texts, nodes and
// directories, 3 the committed voters; the request never changed.
const QuorumVersion = 3

// sinceVersion says with which version a field came; the others are of version 0.
var sinceVersion = map[string]int{
	"lastFetchTimestamp": 1, "lastCaughtUpTimestamp": 1,
	"errorMessage": 2, "nodes": 2, "replicaDirectoryId": 2,
	"committedVoters": 3, "disk": 3, "lost": 3,
}

// QuorumRequest asks for several groups at once.
type QuorumRequest struct {
	Version *int     `json:"version,omitempty"` // of the answer; the newest if it is left out
	Groups  []string `json:"groups"`            // control, or queue/NAME
}

// QuorumResponse answers it. A group that cannot be described has an error of its own, and the others are described.
type QuorumResponse struct {
	Version      int           `json:"version"`
	ErrorCode    int16         `json:"errorCode"` // 0, or a number of the error table
	ErrorMessage *string       `json:"errorMessage"`
	Groups       []GroupQuorum `json:"groups"`
	Nodes        []QuorumNode  `json:"nodes"`
}

// GroupQuorum is one group of the answer.
type GroupQuorum struct {
	Group         string  `json:"group"`
	ErrorCode     int16   `json:"errorCode"`
	ErrorMessage  *string `json:"errorMessage"`
	LeaderID      int32   `json:"leaderId"`
	LeaderEpoch   int32   `json:"leaderEpoch"`
	HighWatermark int64   `json:"highWatermark"`
	// CurrentVoters have a change that is not committed, CommittedVoters have not.
	CurrentVoters   []ReplicaState `json:"currentVoters"`
	CommittedVoters []ReplicaState `json:"committedVoters"`
	Observers       []ReplicaState `json:"observers"`
}

// ReplicaState is one replica of the answer. Times are in milliseconds since 1970 on the leader's clock; -1 is unknown.
type ReplicaState struct {
	ReplicaID          int32  `json:"replicaId"`          // the node's number
	ReplicaDirectoryID string `json:"replicaDirectoryId"` // the disk, as a uuid
	LogEndOffset       int64  `json:"logEndOffset"`       // Match + 1, -1 is unknown
	// LastFetchTimestamp is when it answered last; -1 for the leader itself.
	LastFetchTimestamp int64 `json:"lastFetchTimestamp"`
	// LastCaughtUpTimestamp is when it was at the end of the log last; now for the leader itself.
	LastCaughtUpTimestamp int64 `json:"lastCaughtUpTimestamp"`
	// Disk is what ails the node's disk, as the leader knows: ok, slow, full, or full and slow.
	Disk string `json:"disk"`
	// Lost is why the replica was given up and another one is to take its place, "" if it was not. It is silent since
	// LastFetchTimestamp, if that is known.
	Lost string `json:"lost"`
}

// QuorumNode is where a node can be reached.
type QuorumNode struct {
	NodeID    int32            `json:"nodeId"`
	Listeners []QuorumListener `json:"listeners"`
}

// QuorumListener is one address of a node.
type QuorumListener struct {
	Name string `json:"name"`
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// ListenerName names the address that clients and nodes use alike.
const ListenerName = "WEIDA"

// Info is one group of the answer as a QuorumInfo; the error is a *wire.Error.
func (r *QuorumResponse) Info(group string) (QuorumInfo, error) {
	for _, g := range r.Groups {
		if g.Group != group {
			continue
		}
		if g.ErrorCode != 0 {
			err := &wire.Error{Code: wire.Code(g.ErrorCode)}
			if g.ErrorMessage != nil {
				err.Detail = *g.ErrorMessage
			}
			return QuorumInfo{}, err
		}
		q := QuorumInfo{
			LeaderID: g.LeaderID, LeaderEpoch: g.LeaderEpoch, HighWatermark: g.HighWatermark, Voters: g.CurrentVoters,
			CommittedVoters: g.CommittedVoters, Observers: g.Observers, Nodes: make(map[int32]QuorumNode),
		}
		for _, n := range r.Nodes {
			q.Nodes[n.NodeID] = n
		}
		return q, nil
	}
	return QuorumInfo{}, &wire.Error{Code: wire.NoSuchResource, Detail: group + " was not asked for"}
}

// Describe answers for groups as one node, or as all that answered, know them. Only a leader's word counts: whoever
// knows only of another leader says so.
func (c *Cluster) Describe(groups []string) QuorumResponse {
	r := QuorumResponse{Version: QuorumVersion, Groups: []GroupQuorum{}, Nodes: []QuorumNode{}}
	views := make(map[string]*view)
	for _, v := range c.views() {
		views[v.name] = v
	}
	named := make(map[int32]bool)
	for _, name := range groups {
		g := GroupQuorum{
			Group: name, LeaderID: -1, CurrentVoters: []ReplicaState{}, CommittedVoters: []ReplicaState{},
			Observers: []ReplicaState{},
		}
		c.describe(&g, views[name])
		for _, list := range [][]ReplicaState{g.CurrentVoters, g.CommittedVoters, g.Observers} {
			for _, s := range list {
				named[s.ReplicaID] = true
			}
		}
		r.Groups = append(r.Groups, g)
	}
	for _, m := range c.Registry.Nodes {
		if n := quorumNode(m); named[n.NodeID] {
			r.Nodes = append(r.Nodes, n)
		}
	}
	return r
}

// describe fills in one group; v is nil if there is none of that name.
func (c *Cluster) describe(g *GroupQuorum, v *view) {
	refuse := func(code wire.Code, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		g.ErrorCode, g.ErrorMessage = int16(code), &text
	}
	switch {
	case v == nil:
		refuse(wire.NoSuchResource, "there is no group %s; say control, or queue/NAME", clip(g.Group))
		return
	case v.leader == nil && v.hint != nil:
		r := v.hint.Replication
		g.LeaderID, g.LeaderEpoch = int32(clamp(r.LeaderNode)), int32(clamp(v.hint.Term))
		if f := c.factsOf(r.LeaderNode); f != nil && f.Why != "" {
			refuse(wire.NotLeader, "%s is said to lead it in term %d, and did not answer%s", c.nameOfNode(r.LeaderNode),
				v.hint.Term, c.needed(v))
			return
		}
		refuse(wire.NotLeader, "it is led by %s in term %d", c.nameOfNode(r.LeaderNode), v.hint.Term)
		return
	case v.leader == nil && v.queue != nil && v.factor == 1 && !v.several:
		owner := "none yet"
		if p := v.queue.Status.Placement; len(p) > 0 {
			owner = c.nameOfKey(p[0].Node)
		}
		refuse(wire.NoGroup, "no group, owner %s", owner)
		return
	case v.leader == nil:
		g.LeaderEpoch = int32(clamp(c.lastTerm(v.id)))
		refuse(wire.NotLeader, "no leader is known here%s", c.needed(v))
		return
	case v.leader.Replication == nil:
		refuse(wire.NoGroup, "no group, owner %s", c.nameOf(v.node))
		return
	}
	l, r := v.leader, v.leader.Replication
	g.LeaderID, g.LeaderEpoch = int32(clamp(v.node.Node)), int32(clamp(l.Term))
	g.HighWatermark = int64(l.Committed) + 1
	for _, m := range r.CurrentMembers {
		if s := c.replicaState(v, m); m.Learner {
			g.Observers = append(g.Observers, s)
		} else {
			g.CurrentVoters = append(g.CurrentVoters, s)
		}
	}
	for _, m := range r.CommittedMembers {
		if !m.Learner {
			g.CommittedVoters = append(g.CommittedVoters, c.replicaState(v, m))
		}
	}
}

// needed says how many voters of a group without a leader answer and how many elect one, "" if nobody was asked.
func (c *Cluster) needed(v *view) string {
	there, of := c.present(v)
	if of == 0 || len(c.Facts) < 2 {
		return ""
	}
	return fmt.Sprintf("; %d of %d voters answer, and %d are needed for a leader", there, of, of/2+1)
}

// lastTerm is the highest term that anybody who answered has seen of a group.
func (c *Cluster) lastTerm(id uint64) (t uint64) {
	for i := range c.Facts {
		for j := range c.Facts[i].Groups {
			if g := &c.Facts[i].Groups[j]; g.ID == id {
				t = max(t, g.Term)
			}
		}
	}
	return t
}

func (c *Cluster) replicaState(v *view, m Replica) ReplicaState {
	s := ReplicaState{
		ReplicaID: int32(clamp(m.Node)), ReplicaDirectoryID: uuid(c.diskOf(v, m)), LogEndOffset: -1, LastFetchTimestamp: -1,
		LastCaughtUpTimestamp: -1,
	}
	if v.queue != nil {
		for _, p := range lostOf(v.queue) {
			if p.Replica == m.Replica {
				s.Lost = p.Lost
			}
		}
	}
	leader, at := v.leader, v.node.At
	for _, f := range leader.Replication.Followers {
		if f.Replica.Replica == m.Replica {
			s.Disk = f.Disk
		}
	}
	if m.Replica == leader.Replication.Self {
		s.LogEndOffset, s.LastCaughtUpTimestamp = int64(leader.Written)+1, at
		return s
	}
	for _, f := range leader.Replication.Followers {
		if f.Replica.Replica != m.Replica {
			continue
		}
		if f.Match > 0 {
			s.LogEndOffset = int64(f.Match) + 1
		}
		if f.HeardMS >= 0 {
			s.LastFetchTimestamp = at - f.HeardMS
		}
		if f.CaughtUpMS >= 0 {
			s.LastCaughtUpTimestamp = at - f.CaughtUpMS
		}
	}
	return s
}

// diskOf is a replica's disk as the registry has it, "" if it has not. A replica stays on the disk that it was placed
// on; the control group's are on the disks of the members.
func (c *Cluster) diskOf(v *view, m Replica) string {
	for i := range c.Registry.Nodes {
		n := &c.Registry.Nodes[i]
		if n.Metadata.UID != m.Node {
			continue
		}
		if v.queue != nil {
			for _, p := range v.queue.Status.Placement {
				if p.Replica == m.Replica && p.Number == m.Node {
					return p.Disk
				}
			}
		}
		return n.Status.Disk
	}
	return ""
}

// uuid writes a disk's id, 32 hexadecimal digits, in the form of a uuid; what is none is the zero uuid, which is none.
func uuid(disk string) string {
	if len(disk) != 32 || strings.Trim(disk, "0123456789abcdef") != "" {
		return "00000000-0000-0000-0000-000000000000"
	}
	return disk[:8] + "-" + disk[8:12] + "-" + disk[12:16] + "-" + disk[16:20] + "-" + disk[20:]
}

func quorumNode(m control.Node) QuorumNode {
	n := QuorumNode{NodeID: int32(clamp(m.Metadata.UID)), Listeners: []QuorumListener{}}
	host, port, err := net.SplitHostPort(m.Spec.Address)
	if err != nil {
		return n // it has not told where it is
	}
	if p, err := strconv.ParseUint(port, 10, 16); err == nil {
		n.Listeners = append(n.Listeners, QuorumListener{ListenerName, host, uint16(p)})
	}
	return n
}

// clamp keeps a number within the 32 bits that the answer has for it.
func clamp(n uint64) uint64 { return min(n, math.MaxInt32) }
