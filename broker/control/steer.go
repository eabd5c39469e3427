package control

import (
	"fmt"
	"slices"
)

// This file is how whoever serves a group takes it through the steps of a change.

// steer takes the group through the step that stands. Over is false when there is nothing more to do in it
// than to report.
func (r *NodeReconciler) steer(
	t *task, q *Queue, row *Replica, g *Group, s *State,
) (out outcome, over bool, err error) {
	poll := outcome{wait: r.o.Poll}
	st := &q.Status
	want := Members(st.Step, st.Placement)
	rest, stuck := s.revoked(st.Step, st.Placement, g.Members)
	switch {
	case g.Changing:
		return r.changing(t, q, poll), true, nil
	case stuck:
		return outcome{command: &Command{Stuck: &Stuck{KindQueue, q.Metadata.UID, st.Epoch}}}, true, nil
	case rest != nil:
		return r.changing(t, q, poll), true, r.rt.Reconfigure(*q, rest)
	case !current(st.Step, st.Placement, g.Members, s.version):
		return r.changing(t, q, poll), true, nil
	case configured(g.Members, want) && st.Step == Steady:
		return outcome{}, false, nil
	case configured(g.Members, want) && (st.Step == Switching || s.risen(st.Placement, g.Members)):
		return outcome{command: &Command{Reached: &Reached{KindQueue, q.Metadata.UID, st.Epoch}}}, true, nil
	case configured(g.Members, want), st.Step == Switching && !s.risen(st.Placement, g.Members):
		return r.changing(t, q, poll), true, nil
	}
	if to := successor(want, g.Members, row.Replica); to != nil {
		return poll, true, r.rt.Transfer(*q, *to)
	}
	return r.changing(t, q, poll), true, r.rt.Reconfigure(*q, want)
}

// current says whether a copy of the registry is one that the group's configuration may be changed by. A copy
// that is behind must not take back what was done by a newer one; and that it is behind shows in the
// configuration, for whatever comes into a group has a new id: it has a member that this copy cannot know, or it
// lacks one that it would have. What is left are learners, which do no harm.
func current(step Step, rows []Replica, have []Member, version uint64) bool {
	if step != Switching {
		return sameVoters(rows, have, version)
	}
	for _, m := range have {
		if m.Replica >= (version+1)*ReplicasPerEntry {
			return false
		}
	}
	for _, w := range Members(step, rows) {
		if memberOf(have, w.Replica) == nil {
			return false
		}
	}
	return true
}

// sameVoters says whether a configuration has the voters of a placement as it is before a switching, and nobody
// that a copy of this version cannot know.
func sameVoters(rows []Replica, have []Member, version uint64) bool {
	voters := 0
	for _, m := range have {
		if m.Replica >= (version+1)*ReplicasPerEntry {
			return false
		}
		if !m.Learner {
			voters++
		}
	}
	for _, p := range rows {
		if p.Learner {
			continue
		}
		if m := memberOf(have, p.Replica); m == nil || m.Learner {
			return false
		}
		voters--
	}
	return voters == 0
}

// revoked looks for one that is to rise and will never come. It has to leave the configuration first, which rest
// says; after that nobody can go on with this switching, also not one whose copy is behind, for a voter has to
// have learned. So it is stuck for good.
func (s *State) revoked(step Step, rows []Replica, have []Member) (rest []Replica, stuck bool) {
	if step != Switching || !sameVoters(rows, have, s.version) {
		return nil, false
	}
	there := false
	for i := range rows {
		p := &rows[i]
		if !s.hopeless(p) {
			rest = append(rest, *p)
			continue
		}
		stuck = stuck || memberOf(have, p.Replica) == nil
		there = true
	}
	if stuck || !there {
		return nil, stuck
	}
	return rest, false
}

// changing says that a change is under way once that has taken a while.
func (r *NodeReconciler) changing(t *task, q *Queue, out outcome) outcome {
	if q.Status.Step == Steady {
		return out
	}
	if long, _ := r.lasted(t); long {
		out.status = q.Status.with(q.Status.Phase, Condition{CondPlacement, "Changing", fmt.Sprintf(
			"its replicas are being changed (%s%s); it serves meanwhile", q.Status.Step, lostOnes(q.Status.Placement))})
	}
	return out
}

// lostOnes says which replicas are lost and why, "" if none are.
func lostOnes(rows []Replica) (text string) {
	for i := range rows {
		if r := &rows[i]; r.Lost != "" {
			text += fmt.Sprintf(", in place of replica %d, which is lost: %s", r.Replica, r.Lost)
		}
	}
	return clip(text, messageMax/2)
}

// configured says whether a configuration is the one that is wanted.
func configured(have []Member, want []Replica) bool {
	if len(have) != len(want) {
		return false
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(m Member) bool { return m.Replica == w.Replica && m.Learner == w.Learner }) {
			return false
		}
	}
	return true
}

// risen says whether all learners that are to vote have caught up, and most of those that will vote.
func (s *State) risen(rows []Replica, have []Member) bool {
	voters, ready := 0, 0
	for _, p := range rows {
		if s.hopeless(&p) {
			return false
		}
		m := memberOf(have, p.Replica)
		up := m != nil && m.CaughtUp
		switch {
		case p.Next == Leaves, p.Next == Sinks, p.Learner && p.Next != Rises:
			continue
		case up:
			ready++
		case p.Next == Rises:
			return false
		}
		voters++
	}
	return ready > voters/2
}

func memberOf(list []Member, replica uint64) *Member {
	for i := range list {
		if list[i].Replica == replica {
			return &list[i]
		}
	}
	return nil
}

// successor is a voter that leads in place of one that is to leave, nil if this one stays or there is none; one whose
// node's disk ails only if there is no other.
func successor(want []Replica, have []Member, self uint64) *Replica {
	var to *Replica
	ails := false
	for i := range want {
		w := &want[i]
		if w.Replica == self && !w.Learner {
			return nil
		}
		m := memberOf(have, w.Replica)
		if m == nil || w.Learner || m.Learner || !m.CaughtUp {
			continue
		}
		if to == nil || ails && !m.Ails || w.Lead && m.Ails == ails {
			to, ails = w, m.Ails
		}
	}
	return to
}
