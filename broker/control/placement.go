package control

import (
	"fmt"
	"slices"
)

// Step is how far a change of placement is. Every step is an entry of the control log, so whoever takes
// over goes on from there:
//
//	step       what has come about in it               what is done                       entry that ends it
//	steady     the group's members are the placement   nothing; who leads is moved        Place
//	adding     a queue's owner became a group of one   new replicas are made, and learn   Reached: they are caught up
//	switching  what is Next can serve                  one joint step to what is Next     Reached: it is committed
//
// A switching that lost one of those that are to rise goes back to adding (Stuck).
//
// Behind switching what Leaves is retired: only then is it destroyed, replica by replica. A group that is
// down to one replica is an owner's again. No step stops at two voters.
type Step string

// The steps.
const (
	Steady    Step = ""
	Adding    Step = "adding"
	Switching Step = "switching"
)

// Next is what becomes of a replica in the change that is under way.
type Next string

// What becomes of a replica.
const (
	Stays  Next = ""
	Rises  Next = "voter"   // a learner becomes a voter
	Sinks  Next = "learner" // a voter becomes a learner; of the control group only
	Leaves Next = "gone"
)

// Replica is one copy of a queue, or of the control log: on a node, on that node's disk. A connector has
// one as well, which is where it runs.
type Replica struct {
	// Replica is the raft id: eight times the index of the entry that placed it, and its place among those that entry
	// made; of what is as old as its queue, the index is the queue's. It is never used again, so what returns with another
	// disk is another replica. 0 is one that was recorded before replicas had ids.
	Replica uint64 `json:"replica,omitempty"`
	Number  uint64 `json:"number,omitempty"` // the node's
	Node    string `json:"node"`             // its fingerprint
	Disk    string `json:"disk"`             // id of the data directory's disk
	Owner   bool   `json:"owner"`            // of a queue with one replica (T-32): there is no group
	Learner bool   `json:"learner,omitempty"`
	// Lead says that it is to lead the group whenever it can: leadership is moved to it.
	Lead bool `json:"lead,omitempty"`
	// Made says that it was seen to hold the group's log. One that is gone then is lost, and not made again.
	Made bool `json:"made,omitempty"`
	Next Next `json:"next,omitempty"`
	// Lost is why it is never opened again, "" if it is not lost.
	Lost string `json:"lost,omitempty"`
}

// Founder is one of the first members of a group.
type Founder struct {
	Replica uint64 `json:"replica"`
	Number  uint64 `json:"number"`
}

// ReplicasPerEntry is how many ids of replicas one index gives.
const ReplicasPerEntry = 8

// Spot is a node that a decision names.
type Spot struct {
	Number  uint64
	Learner bool // of the control group only
	Lead    bool // of queues
}

// Place is a decision about where something is to be, of the control leader. It ends nothing by force: what
// is there goes when what comes has taken over.
type Place struct {
	Kind Kind   // Queue, Connector or Cluster
	UID  uint64 // 0 of Cluster
	// Generation is the one of the spec that was decided on; another one refuses the decision. 0 of Cluster.
	Generation uint64
	// Epoch is the one that stands.
	Epoch uint64
	Want  []Spot
	// Anew says that nobody has put anything in, and that nobody will where it is: what is there is given up, and it
	// begins anew. Of a queue that was never ready; any other refuses it.
	Anew bool
}

// Reached says that what the step of this epoch waits for has come about.
type Reached struct {
	Kind  Kind
	UID   uint64
	Epoch uint64
}

// Stuck says that the switching of this epoch cannot be: a replica that is to rise will never come, and is not in
// the group's configuration any more, so nobody can go on with it. Another one takes its place.
type Stuck struct {
	Kind  Kind
	UID   uint64
	Epoch uint64
}

// Gone says that the data of one replica is destroyed, or that a connector is stopped on a node that it leaves.
type Gone struct {
	Kind    Kind
	UID     uint64
	Replica uint64
}

// Lost says that a replica can never be opened again: another one has to take its place. It is refused where the
// voters that are left would be no majority: then nothing could take its place, and its files may be all there is.
type Lost struct {
	Kind    Kind   // Queue or Cluster; "" is a queue's as it was said before there was such a bound
	UID     uint64 // 0 of Cluster
	Replica uint64
	Reason  string
}

// Retired is a replica that is no part of anything any more and whose data is still to be destroyed by its
// node, or a connector that is still to be stopped there. Its group is never opened there before.
type Retired struct {
	Kind    Kind
	UID     uint64
	Replica Replica
}

// RetiredMax bounds what waits for nodes that are away.
const RetiredMax = 100_000

// Members are the members that the group's configuration is to have in the step that stands.
func Members(step Step, rows []Replica) []Replica {
	if step != Switching {
		return slices.Clone(rows)
	}
	var list []Replica
	for _, r := range rows {
		if r.Next != Leaves {
			r.Learner = (r.Learner || r.Next == Sinks) && r.Next != Rises
			list = append(list, r)
		}
	}
	return list
}

// good says whether a replica can serve: its node is one, with the disk that it is on.
func (s *State) good(r *Replica) bool {
	n := s.nodeOf(r.Number)
	return n != nil && n.Status.Disk == r.Disk && r.Lost == ""
}

// hopeless says whether a replica that is to rise will never come: its disk is lost, or its node is to leave.
func (s *State) hopeless(r *Replica) bool {
	n := s.nodeOf(r.Number)
	return r.Next == Rises && (!s.good(r) || n.Metadata.DeletionTimestamp != 0)
}

// relocate is the placement that a decision leads to from the one that stands. Rows that go at once, which
// never voted, are returned apart.
func (s *State) relocate(rows []Replica, want []Spot) (to, gone []Replica) {
	fresh := uint64(0)
	kept := make(map[uint64]bool, len(want))
	for _, r := range rows {
		i := slices.IndexFunc(want, func(w Spot) bool { return w.Number == r.Number })
		switch {
		case i >= 0 && s.good(&r) && !kept[r.Number]:
			kept[r.Number] = true
			r.Lead, r.Next = want[i].Lead, Stays
			if r.Learner && !want[i].Learner {
				r.Next = Rises
			} else if !r.Learner && want[i].Learner {
				r.Next = Sinks
			}
			to = append(to, r)
		case r.Learner:
			gone = append(gone, r)
		default:
			r.Lead, r.Next = false, Leaves
			to = append(to, r)
		}
	}
	for _, w := range want {
		if kept[w.Number] {
			continue
		}
		n := s.nodeOf(w.Number)
		r := Replica{
			Replica: s.version*ReplicasPerEntry + fresh, Number: w.Number, Node: n.Spec.Fingerprint, Disk: n.Status.Disk,
			Lead: w.Lead,
		}
		fresh++
		if len(rows) > 0 {
			r.Learner = true
			if !w.Learner {
				r.Next = Rises
			}
		}
		to = append(to, r)
	}
	return to, gone
}

// stepOf is the step in which a placement is that was just decided: nothing is switched before whoever serves
// the group has said that what it is switched to is ready.
func stepOf(rows []Replica) Step {
	for _, r := range rows {
		if r.Learner && !r.Made || r.Next != Stays {
			return Adding
		}
	}
	return Steady
}

// place takes a decision.
func (s *State) place(c *Place) Result {
	if c.Kind == KindCluster {
		return s.placeCluster(c)
	}
	o := s.findUID(c.Kind, c.UID)
	if o.meta == nil || o.node != nil {
		return Result{Err: gone(c.Kind, c.UID)}
	}
	if err := s.admitPlace(c, o); err != nil {
		return o.result(false, err)
	}
	if o.connector != nil {
		s.moveConnector(c, o)
		return o.result(true, nil)
	}
	return o.result(s.settleIn(o, c.Want, c.Anew), nil)
}

// settleIn gives a queue the placement that a decision leads to, anew or from what it has, and says whether that is
// another one.
func (s *State) settleIn(o object, want []Spot, anew bool) bool {
	st := o.status
	was := s.base(st)
	if anew {
		was = nil
	}
	rows, away := s.relocate(was, want)
	if was == nil {
		away = st.Placement // nobody has put anything in: it begins anew
	}
	first := len(was) == 0
	owner := ownerOf(was) != nil
	step := stepOf(rows)
	switch {
	case first && len(rows) == 1:
		rows[0].Owner = true
	case first:
		st.Founders = founders(rows)
	case owner && step != Steady:
		rows[0].Owner = false // a group of one, which begins where the owner's log ends
		if !rows[0].Made {
			st.Founders = founders(rows[:1]) // or nowhere, if the owner never opened it
		}
	case !owner && len(rows) == 1 && step == Steady:
		step = Switching // learners have to leave the configuration before it is an owner's again
	}
	if step == st.Step && slices.Equal(rows, st.Placement) {
		return false
	}
	s.setRows(o, rows)
	st.Step = step
	st.Epoch++
	s.retire(KindQueue, o.meta.UID, away)
	s.moved(o)
	return true
}

// Prepare says where a queue is to be that a mutation makes, so that it takes no entry more to place it: coming are
// where those will be whose entries are on their way. The node that leads the control group calls it before it
// proposes; other mutations stay as they are.
func (s *State) Prepare(m *Mutation, reachable func(number uint64) bool, coming [][]Spot) {
	m.Want = nil
	if m.Kind != KindQueue || m.Queue == nil || s.queues[m.Name] != nil || m.Validate() != nil {
		return
	}
	for _, want := range coming {
		s.foresee(want, 1)
	}
	m.Want, _ = s.wanted(&Queue{Spec: m.Queue.WithDefaults()}, reachable)
	for _, want := range coming {
		s.foresee(want, -1)
	}
}

func founders(rows []Replica) []Founder {
	list := make([]Founder, len(rows))
	for i, r := range rows {
		list[i] = Founder{r.Replica, r.Number}
	}
	return list
}

// ownerOf is the replica of a queue that has an owner, nil if it has none.
func ownerOf(rows []Replica) *Replica {
	if len(rows) == 1 && rows[0].Owner {
		return &rows[0]
	}
	return nil
}

// admitPlace refuses a decision that does not fit what stands.
func (s *State) admitPlace(c *Place, o object) *Error {
	refuse := func(r Reason, format string, args ...any) *Error {
		return &Error{
			Reason: r, Kind: c.Kind, Name: o.meta.Name, Message: fmt.Sprintf(format, args...), Now: o.meta.ResourceVersion,
		}
	}
	st := o.status
	switch {
	case o.meta.DeletionTimestamp != 0:
		return refuse(Removing, "it is being deleted and stays where it is")
	case c.Epoch != st.Epoch:
		return refuse(Conflict, "its placement is at epoch %d, and the decision was made on %d", st.Epoch, c.Epoch)
	case c.Generation != o.meta.Generation:
		return refuse(Conflict, "generation %d stands, and the decision was made on %d", o.meta.Generation, c.Generation)
	case c.Anew && (o.queue == nil || st.ObservedGeneration > 0):
		return refuse(Conflict, "it was ready, and may hold messages: it does not begin anew")
	case st.Step == Switching && s.base(st) != nil && !c.Anew:
		return refuse(Conflict, "its replicas are being switched; the next decision comes when that is done")
	case o.queue != nil && s.lostData(st) != nil:
		return refuse(Conflict, "%s", s.lostData(st).Message)
	}
	if why := s.spotsFlaw(c.Kind, c.Want, o.status.Placement); why != "" {
		return refuse(Invalid, "%s", why)
	}
	return nil
}

// spotsFlaw is what is wrong with the nodes of a decision, "" if nothing.
func (s *State) spotsFlaw(k Kind, want []Spot, rows []Replica) string {
	voters, leads := 0, 0
	for i, w := range want {
		n := s.nodeOf(w.Number)
		here := slices.ContainsFunc(rows, func(r Replica) bool { return r.Number == w.Number && s.good(&r) })
		switch {
		case n == nil:
			return fmt.Sprintf("there is no node %d", w.Number)
		case n.Metadata.DeletionTimestamp != 0 && !here:
			return fmt.Sprintf("node %d is being removed", w.Number)
		case n.Status.Disk == "" && !here:
			return fmt.Sprintf("node %d has not come yet", w.Number)
		case slices.ContainsFunc(want[:i], func(o Spot) bool { return o.Number == w.Number }):
			return fmt.Sprintf("node %d is named twice: replicas are on distinct nodes", w.Number)
		case w.Learner && k != KindCluster:
			return "a placement names voters"
		}
		if !w.Learner {
			voters++
		}
		if w.Lead {
			leads++
		}
	}
	switch {
	case voters == 0:
		return "a placement has at least one voter"
	case voters == 2:
		return "two replicas tolerate no failure: use 1 or 3"
	case voters > ReplicasMax:
		return fmt.Sprintf("at most %d replicas are allowed", ReplicasMax)
	case k == KindConnector && voters != 1:
		return "a connector runs on one node"
	case k == KindQueue && leads != 1:
		return "one replica is to lead"
	}
	return ""
}

// retire keeps what a node has still to destroy. What is on a disk that its node does not have any more is
// nobody's.
func (s *State) retire(k Kind, uid uint64, rows []Replica) {
	for _, r := range rows {
		if n := s.nodeOf(r.Number); n != nil && n.Status.Disk == r.Disk {
			if s.retired == nil {
				s.retired = make(map[uint64][]Retired)
			}
			s.retired[uid] = append(s.retired[uid], Retired{k, uid, r})
			s.retiredCount++
		}
	}
}
