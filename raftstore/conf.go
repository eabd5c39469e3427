package raftstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// config is the configuration of a group as of one entry: who votes, who learns, and on which node each of them is.
// It is never changed once it is made.
type config struct {
	index   Index // of the entry that made it, or of the snapshot that holds it
	term    Term  // of that entry; 0 if it is not known
	state   confState
	members []Member // one row per replica of state, by replica
}

// pendingConfig is a change of configuration in the log that is not applied.
type pendingConfig struct {
	index   Index
	members []Member // nil: it ends the joint step
}

func (c *config) joint() bool { return len(c.state.VotersOutgoing) > 0 }

// find returns the row of a replica.
func (c *config) find(id ReplicaID) (Member, bool) {
	i, ok := slices.BinarySearchFunc(c.members, id, func(m Member, id ReplicaID) int { return cmp.Compare(m.Replica, id) })
	if !ok {
		return Member{}, false
	}
	return c.members[i], true
}

// votes reports whether a replica is a voter of either half.
func (c *config) votes(id ReplicaID) bool {
	return slices.Contains(c.state.Voters, id) || slices.Contains(c.state.VotersOutgoing, id)
}

// covers reports whether every member of o is in c.
func (c *config) covers(o *config) bool {
	for _, m := range o.members {
		if _, ok := c.find(m.Replica); !ok {
			return false
		}
	}
	return true
}

// target is the configuration to which a joint step leads, or the configuration itself.
func (c *config) target() []Member {
	if !c.joint() {
		return c.members
	}
	var list []Member
	for _, m := range c.members {
		switch {
		case slices.Contains(c.state.Voters, m.Replica):
			list = append(list, Member{m.Replica, m.Node, false})
		case slices.Contains(c.state.Learners, m.Replica), slices.Contains(c.state.LearnersNext, m.Replica):
			list = append(list, Member{m.Replica, m.Node, true})
		}
	}
	return list
}

// head is what a snapshot of this configuration begins with.
func (c *config) head() snapshotHead { return snapshotHead{Conf: c.state, Members: c.members} }

// next is the configuration after a change: state is what raft made of it, and rows of the change, if it names
// members, and of this configuration say where they are.
func (c *config) next(i Index, state *raftpb.ConfState, rows []Member) *config {
	n := &config{index: i, state: fromRaft(state)}
	add := func(list []ReplicaID) {
		for _, id := range list {
			if _, ok := n.find(id); ok {
				continue
			}
			k := slices.IndexFunc(rows, func(m Member) bool { return m.Replica == id })
			var row Member
			if k >= 0 {
				row = rows[k]
			} else if m, ok := c.find(id); ok {
				row = m
			} else {
				panic(fmt.Sprintf("bug: raftstore: nobody says on which node replica %d is", uint64(id)))
			}
			row.Learner = !n.votes(id)
			n.members = append(n.members, row)
			sortMembers(n.members)
		}
	}
	for _, list := range n.state.lists() {
		add(*list)
	}
	return n
}

func sortMembers(list []Member) {
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.Replica, b.Replica) })
}

// newConfig is the configuration of exactly these members.
func newConfig(i Index, members []Member) *config {
	c := &config{index: i, members: slices.Clone(members)}
	sortMembers(c.members)
	for _, m := range c.members {
		if m.Learner {
			c.state.Learners = append(c.state.Learners, m.Replica)
		} else {
			c.state.Voters = append(c.state.Voters, m.Replica)
		}
	}
	return c
}

func fromRaft(s *raftpb.ConfState) confState {
	return confState{
		Voters:         idsOf(s.GetVoters()),
		Learners:       idsOf(s.GetLearners()),
		VotersOutgoing: idsOf(s.GetVotersOutgoing()),
		LearnersNext:   idsOf(s.GetLearnersNext()),
		AutoLeave:      s.GetAutoLeave(),
	}
}

func idsOf(list []uint64) []ReplicaID {
	ids := make([]ReplicaID, 0, len(list))
	for _, id := range list {
		ids = append(ids, ReplicaID(id))
	}
	slices.Sort(ids)
	return ids
}

// raft is the configuration as raft takes it.
func (s *confState) raft() *raftpb.ConfState {
	numbers := func(list []ReplicaID) (ids []uint64) {
		for _, id := range list {
			ids = append(ids, uint64(id))
		}
		return ids
	}
	return &raftpb.ConfState{
		Voters:         numbers(s.Voters),
		Learners:       numbers(s.Learners),
		VotersOutgoing: numbers(s.VotersOutgoing),
		LearnersNext:   numbers(s.LearnersNext),
		AutoLeave:      new(s.AutoLeave),
	}
}

// change is a change of configuration in an entry.
type change struct {
	raft    *raftpb.ConfChangeV2
	members []Member // the whole table afterwards; nil if it ends a joint step
}

const (
	// membersMax bounds the rows of a change: seven voters and those who are to take their place.
	membersMax = 4 * MaxVoters

	membersVersion = 1
)

var errMembers = errors.New("raftstore: a table of members is not one of this version")

// changeTo is the one joint step from a configuration to exactly these members. It is ended by replica.leaveJoint.
func changeTo(from *config, members []Member) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum(),
		Context:    appendMembers(nil, members),
	}
	add := func(k raftpb.ConfChangeType, id ReplicaID) {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: k.Enum(), NodeId: new(uint64(id))})
	}
	for _, m := range members {
		was, ok := from.find(m.Replica)
		switch {
		case ok && was.Learner == m.Learner:
		case m.Learner:
			add(raftpb.ConfChangeAddLearnerNode, m.Replica)
		default:
			add(raftpb.ConfChangeAddNode, m.Replica)
		}
	}
	for _, m := range from.members {
		if !slices.ContainsFunc(members, func(n Member) bool { return n.Replica == m.Replica }) {
			add(raftpb.ConfChangeRemoveNode, m.Replica)
		}
	}
	return cc
}

// parseChange reads the data of an entry of kind EntryConfChangeV2 and sees that raft can apply it to some
// configuration.
func parseChange(data []byte) (change, error) {
	if err := scanChange(data); err != nil {
		return change{}, err
	}
	c := change{raft: &raftpb.ConfChangeV2{}}
	if err := proto.Unmarshal(data, c.raft); err != nil {
		return change{}, fmt.Errorf("%w: %w", errMembers, err)
	}
	if len(c.raft.GetContext()) == 0 {
		if len(c.raft.GetChanges()) != 0 {
			return change{}, fmt.Errorf("%w: a change without its table", errMembers)
		}
		return c, nil
	}
	var err error
	c.members, err = parseMembers(c.raft.GetContext())
	return c, err
}

// scanChange bounds what decoding a change allocates.
func scanChange(data []byte) error {
	if len(data) > 16<<10 {
		return fmt.Errorf("%w: a change of %d bytes", errMembers, len(data))
	}
	return nil
}

func appendMembers(dst []byte, list []Member) []byte {
	dst = append(dst, membersVersion)
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, m := range list {
		dst = binary.AppendUvarint(dst, uint64(m.Replica))
		node := uint64(m.Node) << 1
		if m.Learner {
			node |= 1
		}
		dst = binary.AppendUvarint(dst, node)
	}
	return dst
}

func parseMembers(b []byte) ([]Member, error) {
	var count [1]uint64
	if len(b) == 0 || b[0] != membersVersion {
		return nil, errMembers
	}
	b, ok := uvarints(b[1:], count[:])
	if !ok || count[0] == 0 || count[0] > membersMax {
		return nil, fmt.Errorf("%w: %d rows", errMembers, count[0])
	}
	list := make([]Member, 0, count[0])
	for range count[0] {
		var v [2]uint64
		if b, ok = uvarints(b, v[:]); !ok {
			return nil, fmt.Errorf("%w: it is cut short", errMembers)
		}
		list = append(list, Member{ReplicaID(v[0]), NodeID(v[1] >> 1), v[1]&1 == 1})
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errMembers, len(b))
	}
	return list, checkMembers(list)
}

// checkMembers refuses what no configuration may be, whatever was before (T-36, T-37). A node has one replica; beside
// one that it has lost, which votes until it is replaced, another one may learn there.
func checkMembers(list []Member) error {
	voters := 0
	for i, m := range list {
		if m.Replica == 0 || isLocalID(uint64(m.Replica)) || m.Node == 0 {
			return fmt.Errorf("%w: replica %d on node %d is none", errMembers, uint64(m.Replica), uint64(m.Node))
		}
		for _, o := range list[:i] {
			if o.Replica == m.Replica || o.Node == m.Node && o.Learner == m.Learner {
				return fmt.Errorf("%w: replica %d on node %d stands beside replica %d on node %d", errMembers,
					uint64(m.Replica), uint64(m.Node), uint64(o.Replica), uint64(o.Node))
			}
		}
		if !m.Learner {
			voters++
		}
	}
	if voters == 0 || voters > MaxVoters || len(list) > membersMax {
		return fmt.Errorf("%w: %d voters of %d members", errMembers, voters, len(list))
	}
	return nil
}
