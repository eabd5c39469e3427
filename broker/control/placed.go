package control

import (
	"fmt"
	"slices"
)

// This file is what comes after a decision: steps, and what is over.

// base is the placement that the next decision goes on from: nil if there is none, or if the queue was never ready,
// so that nobody could put anything in, and will not be, for most of its voters are lost.
func (s *State) base(st *Status) []Replica {
	if st.ObservedGeneration == 0 && s.mostLost(st.Placement) {
		return nil
	}
	return st.Placement
}

// mostLost says whether there is no majority of the voters, and will be none before a disk comes back.
func (s *State) mostLost(rows []Replica) bool {
	voters, here := 0, 0
	for i := range rows {
		if p := &rows[i]; !p.Learner {
			voters++
			here += 1 - rank(!s.good(p))
		}
	}
	return here <= voters/2
}

// lostData is why a queue cannot go on, and nothing can take over from it: its messages are on disks that are not
// there (T-19, T-32, T-53). nil if that is not so.
func (s *State) lostData(st *Status) *Condition {
	if len(st.Placement) == 0 || s.base(st) == nil || !s.mostLost(st.Placement) {
		return nil
	}
	i := slices.IndexFunc(st.Placement, func(p Replica) bool { return !p.Learner && !s.good(&p) })
	p := &st.Placement[i]
	if len(st.Placement) == 1 {
		return &Condition{CondPlacement, "OwnerAbsent", fmt.Sprintf("its messages are on disk %q of node %q, which is not "+
			"there; nothing was made or changed; bring that disk back, or delete the queue", p.Disk, p.Node)}
	}
	return &Condition{CondPlacement, "MajorityLost", fmt.Sprintf("most of its replicas are lost, as that on disk %q of "+
		"node %q; nothing was made or changed; bring such a disk back, or delete the queue", p.Disk, p.Node)}
}

// reached ends a step.
func (s *State) reached(c *Reached) Result {
	if c.Kind == KindCluster {
		return s.reachedCluster(c)
	}
	o := s.findUID(c.Kind, c.UID)
	if o.queue == nil {
		return Result{Err: gone(c.Kind, c.UID)}
	}
	st := o.status
	if c.Epoch != st.Epoch || st.Step == Steady {
		return o.result(false, &Error{
			Reason: Conflict, Kind: c.Kind, Name: o.meta.Name, Now: o.meta.ResourceVersion,
			Message: fmt.Sprintf("its placement is at epoch %d and step %q; what was reached is of epoch %d", st.Epoch,
				st.Step, c.Epoch),
		})
	}
	rows, away, step := stepped(st.Step, st.Placement)
	if step == Steady && len(rows) == 1 {
		rows[0].Owner = true
		st.Founders = nil
	}
	s.setRows(o, rows)
	st.Step = step
	st.Epoch++
	s.retire(KindQueue, c.UID, away)
	s.moved(o)
	return o.result(true, nil)
}

// stepped is the placement behind a step: what stays, what is retired, and the step that follows.
func stepped(step Step, rows []Replica) (to, away []Replica, next Step) {
	to = slices.Clone(rows)
	if step == Adding {
		for i := range to {
			if to[i].Next == Rises {
				to[i].Made = true
			}
			if to[i].Next != Stays {
				next = Switching
			}
		}
		return to, nil, next
	}
	to = to[:0]
	for _, r := range rows {
		if r.Next == Leaves {
			away = append(away, r)
			continue
		}
		r.Learner = (r.Learner || r.Next == Sinks) && r.Next != Rises
		r.Next = Stays
		to = append(to, r)
	}
	return to, away, Steady
}

// stuck goes back to adding.
func (s *State) stuck(c *Stuck) Result {
	o := s.findUID(c.Kind, c.UID)
	step, epoch, rows := &s.cluster.Step, &s.cluster.Epoch, s.cluster.Replicas
	if o.queue != nil {
		step, epoch, rows = &o.status.Step, &o.status.Epoch, o.status.Placement
	} else if c.Kind != KindCluster {
		return Result{Err: gone(c.Kind, c.UID)}
	}
	lost := slices.ContainsFunc(rows, func(r Replica) bool { return s.hopeless(&r) })
	if c.Epoch != *epoch || *step != Switching || !lost {
		err := &Error{Reason: Conflict, Kind: c.Kind, Message: fmt.Sprintf(
			"its placement is at epoch %d and step %q, and goes on", *epoch, *step)}
		if o.meta == nil {
			return Result{Err: err}
		}
		err.Name, err.Now = o.meta.Name, o.meta.ResourceVersion
		return o.result(false, err)
	}
	*step = Adding
	*epoch++
	if o.meta == nil {
		return Result{Changed: true}
	}
	s.moved(o)
	return o.result(true, nil)
}

// moveConnector gives a connector another node. It is started there when the one before has stopped it.
func (s *State) moveConnector(c *Place, o object) {
	old := o.status.Placement
	rows, _ := s.relocate(nil, c.Want)
	if len(old) > 0 && old[0].Number == rows[0].Number && s.good(&old[0]) {
		rows = old
	} else {
		s.retire(KindConnector, c.UID, old)
	}
	s.setRows(o, rows)
	o.status.Epoch++
	s.moved(o)
}

// gone takes a replica away whose data is destroyed. With the last of a queue its record goes.
func (s *State) gone(c *Gone) Result {
	list := s.retired[c.UID]
	i := slices.IndexFunc(list, func(r Retired) bool { return r.Kind == c.Kind && r.Replica.Replica == c.Replica })
	if i >= 0 {
		s.retired[c.UID] = slices.Delete(list, i, i+1)
		s.retiredCount--
		if len(list) == 1 {
			delete(s.retired, c.UID)
		}
		return s.findUID(c.Kind, c.UID).result(true, nil)
	}
	o := s.findUID(c.Kind, c.UID)
	if o.queue == nil {
		return Result{Err: gone(c.Kind, c.UID)}
	}
	at := slices.IndexFunc(o.status.Placement, func(r Replica) bool { return r.Replica == c.Replica })
	if at < 0 || !o.status.Destroying {
		return o.result(false, &Error{
			Reason: Conflict, Kind: c.Kind, Name: o.meta.Name, Now: o.meta.ResourceVersion,
			Message: fmt.Sprintf("replica %d is none that was to be destroyed", c.Replica),
		})
	}
	if len(o.status.Placement) == 1 {
		return s.drop(o)
	}
	s.setRows(o, slices.Delete(slices.Clone(o.status.Placement), at, at+1))
	s.moved(o)
	return o.result(true, nil)
}

// markMade notes which replicas were seen to hold the log. It changes a copy, if anything.
func markMade(rows []Replica, made []uint64) []Replica {
	for i := range rows {
		if !rows[i].Made && slices.Contains(made, rows[i].Replica) {
			rows = slices.Clone(rows)
			for j := range rows {
				rows[j].Made = rows[j].Made || slices.Contains(made, rows[j].Replica)
			}
			return rows
		}
	}
	return rows
}

// setRows gives a resource its placement and keeps count of what each node has.
func (s *State) setRows(o object, rows []Replica) {
	s.count(o, -1)
	o.status.Placement = cloneList(rows)
	s.count(o, 1)
}

// Load is what a node has to carry.
type Load struct {
	Replicas   int // of queues, those that come and those that leave
	Leads      int // of queues that are to be led or owned there
	Connectors int
}

// LoadOf is what the placements give to a node.
func (s *State) LoadOf(number uint64) Load { return s.loads[number] }

func (s *State) count(o object, by int) {
	for i := range o.status.Placement {
		r := &o.status.Placement[i]
		if r.Number == 0 {
			continue
		}
		l := s.loads[r.Number]
		switch {
		case o.connector != nil:
			l.Connectors += by
		case r.Lead || r.Owner:
			l.Leads += by
			l.Replicas += by
		default:
			l.Replicas += by
		}
		s.setLoad(r.Number, l)
	}
}

// RetiredOf is what was taken out of a queue's placement and is not destroyed yet, or of a connector's and
// is not stopped.
func (s *State) RetiredOf(uid uint64) []Retired { return slices.Clone(s.retired[uid]) }

// retiredOn says whether a node has still something to destroy or to stop.
func (s *State) retiredOn(number uint64) bool {
	for _, list := range s.retired {
		if slices.ContainsFunc(list, func(r Retired) bool { return r.Replica.Number == number }) {
			return true
		}
	}
	return false
}

// GroupRetired says that the group was taken down for good: its queue is no more.
func (s *State) GroupRetired(uid uint64) bool {
	_, known := s.names[uid]
	return !known && uid <= s.version && uid > controlGroup
}

// controlGroup is the id of the control log's group, the smallest there is.
const controlGroup = 1

// foresee counts what is to come in the loads of nodes, by 1, and takes it out again, by -1.
func (s *State) foresee(want []Spot, by int) {
	for _, w := range want {
		l := s.loads[w.Number]
		l.Replicas += by
		if w.Lead {
			l.Leads += by
		}
		s.setLoad(w.Number, l)
	}
}

func (s *State) setLoad(number uint64, l Load) {
	if s.loads == nil {
		s.loads = make(map[uint64]Load)
	}
	if s.loads[number] = l; l == (Load{}) {
		delete(s.loads, number)
	}
}
