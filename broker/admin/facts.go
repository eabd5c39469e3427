package admin

import (
	"errors"
	"time"

	"weida/broker/control"
	"weida/raftstore"
)

// Member is a node of the cluster as it is answered: the committed record, and what is known of it now. It is changed
// by verbs of its own.
type Member struct {
	control.Node
	Live    *MemberLive `json:"live"`              // nil: not known
	Changed *bool       `json:"changed,omitempty"` // of a change's answer
	DryRun  *bool       `json:"dryRun,omitempty"`  // of an answer that says what would be
}

// MemberLive is a node as those who were asked see it.
type MemberLive struct {
	Reached  bool   `json:"reached"`  // it answered
	Why      string `json:"why"`      // it did not, "" if it did
	Replicas int    `json:"replicas"` // of queues
	Leads    int    `json:"leads"`    // groups; those it owns too
	Disk     *Disk  `json:"disk"`     // nil: not known
}

// Facts are what one node knows of its groups at one moment.
type Facts struct {
	Node   uint64  `json:"node"` // its number; 0 if it is not known
	Name   string  `json:"name"`
	At     int64   `json:"at"`   // milliseconds since 1970, there
	Why    string  `json:"why"`  // there are none, "" if there are
	Disk   *Disk   `json:"disk"` // nil: not known
	Groups []Group `json:"groups"`
}

// Role is a replica's part in its group.
type Role string

// The roles.
const (
	RoleFollower  Role = "follower"
	RoleCandidate Role = "candidate"
	RoleLeader    Role = "leader"
	RoleOwner     Role = "owner"
	RoleLearner   Role = "learner"
)

var roles = map[raftstore.Role]Role{
	raftstore.Follower: RoleFollower, raftstore.Candidate: RoleCandidate, raftstore.LeaderRole: RoleLeader,
	raftstore.Owner: RoleOwner, raftstore.Learner: RoleLearner,
}

// Group is one replica's view of its group.
type Group struct {
	ID        uint64       `json:"id"`
	Queue     string       `json:"queue"` // "" is the control group
	Role      Role         `json:"role"`
	Term      uint64       `json:"term"`
	First     uint64       `json:"first"` // oldest entry in the log
	Written   uint64       `json:"written"`
	Flushed   uint64       `json:"flushed"`
	Committed uint64       `json:"committed"`
	Applied   uint64       `json:"applied"`
	Waiting   uint64       `json:"waiting"`   // proposals and entries that are not committed
	StalledMS int64        `json:"stalledMs"` // for how long some wait while nothing was committed; 0 if none do
	Trouble   string       `json:"trouble"`   // why it takes no proposals, "" if it does
	DiskFull  bool         `json:"diskFull"`  // that is for want of room, and passes by itself
	Damage    *GroupDamage `json:"damage"`    // nil: none was found
	// Replication is nil in a group with one owner.
	Replication *Replication `json:"replication"`
	Live        *Live        `json:"live"` // of a queue that this node leads or owns
}

// GroupDamage is what of a replica's disk was not what had been written there, since the group was opened.
type GroupDamage struct {
	Found  uint64 `json:"found"`
	Mended uint64 `json:"mended"`
	Open   int    `json:"open"` // found and not mended; nothing of it is served
	// Why says what and where the first one is that is open, Stays why this replica has to be made anew; "" is nothing.
	Why   string `json:"why"`
	Stays string `json:"stays"`
}

func damageOf(s raftstore.Status) *GroupDamage {
	if s.Damage.Found == 0 {
		return nil
	}
	d := &GroupDamage{Found: s.Damage.Found, Mended: s.Damage.Mended, Open: s.Damage.Open}
	if s.Damage.Reason != nil {
		d.Why = s.Damage.Reason.Error()
	}
	if s.Damaged != nil {
		d.Stays = s.Damaged.Error()
	}
	return d
}

// Replication is what a replica knows of the others.
type Replication struct {
	Self          uint64 `json:"self"`          // replica
	LeaderReplica uint64 `json:"leaderReplica"` // 0 is unknown
	LeaderNode    uint64 `json:"leaderNode"`
	// CommittedMembers are those of the newest configuration at or below the commit index, CurrentMembers have a change
	// that is under way. Joint says that it is between its two steps.
	CommittedMembers []Replica  `json:"committedMembers"`
	CurrentMembers   []Replica  `json:"currentMembers"`
	Joint            bool       `json:"joint"`
	Followers        []Follower `json:"followers"` // of the leader: a row for each current member, itself included
	Quiesced         bool       `json:"quiesced"`
	WaitingForBodies int        `json:"waitingForBodies"`
}

// Replica is one member of a group.
type Replica struct {
	Replica uint64 `json:"replica"`
	Node    uint64 `json:"node"`
	Learner bool   `json:"learner"`
}

// Follower is how far a member is, as the leader knows it.
type Follower struct {
	Replica
	Match uint64 `json:"match"` // it holds everything up to here, flushed
	State string `json:"state"` // probe, replicate, snapshot
	// HeardMS and CaughtUpMS are how long ago it answered, and was at the end of the log; -1 is never, by this leader.
	HeardMS    int64 `json:"heardMs"`
	CaughtUpMS int64 `json:"caughtUpMs"`
	// Disk says in one word what ails its node's disk: ok, slow, full, or full and slow.
	Disk string `json:"disk"`
}

// GroupOf is a group's status as it is told. queue is "" for the control group; tick is the time of one tick.
func GroupOf(s raftstore.Status, queue string, tick time.Duration) Group {
	m := s.Marks
	g := Group{
		ID: uint64(s.Group), Queue: queue, Role: roles[s.Role], Term: uint64(m.Term), First: uint64(s.First),
		Written: uint64(m.Written), Flushed: uint64(m.Flushed), Committed: uint64(m.Committed), Applied: uint64(m.Applied),
		Waiting: uint64(s.Inbox), Damage: damageOf(s),
	}
	if m.Written > m.Committed {
		g.Waiting += uint64(m.Written - m.Committed)
	}
	if s.ReadOnly != nil {
		g.Trouble, g.DiskFull = s.ReadOnly.Error(), errors.Is(s.ReadOnly, raftstore.ErrDiskFull)
	}
	r := s.Replication
	if r == nil {
		return g
	}
	ms := func(ticks int64) int64 {
		if ticks < 0 {
			return -1
		}
		return ticks * tick.Milliseconds()
	}
	t := &Replication{
		Self: uint64(r.Self), LeaderReplica: uint64(r.Leader.Replica), LeaderNode: uint64(r.Leader.Node),
		CommittedMembers: replicasOf(r.Committed), CurrentMembers: replicasOf(r.Current), Joint: r.Joint,
		Followers: []Follower{}, Quiesced: r.Quiesced, WaitingForBodies: r.WaitingForBodies,
	}
	for _, p := range r.Progress {
		t.Followers = append(t.Followers, Follower{
			Replica: replicaOf(p.Member), Match: uint64(p.Match), State: p.State,
			HeardMS: ms(p.HeardTicks), CaughtUpMS: ms(p.CaughtUpTicks), Disk: p.Disk.String(),
		})
	}
	g.Replication = t
	return g
}

func replicasOf(list []raftstore.Member) []Replica {
	out := make([]Replica, len(list))
	for i, m := range list {
		out[i] = replicaOf(m)
	}
	return out
}

func replicaOf(m raftstore.Member) Replica {
	return Replica{uint64(m.Replica), uint64(m.Node), m.Learner}
}
