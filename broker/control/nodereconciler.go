package control

import (
	"errors"
	"fmt"
)

// NodeReconciler makes true on one node what the registry says of it: it opens, changes and destroys the
// replicas that are placed there, with or without a quorum of the control group (T-48 to T-50, X-6), runs its
// connectors, and writes down what it found of what it serves. Who serves a queue, as its owner or the leader
// of its group, takes its group through the steps of a change as well.
type NodeReconciler struct {
	loop
	rt NodeRuntime
}

// NewNodeReconciler returns one that knows nothing yet.
func NewNodeReconciler(rt NodeRuntime, o Options) *NodeReconciler {
	r := &NodeReconciler{loop: newLoop(o), rt: rt}
	r.loop.work, r.loop.propose = r.work, rt.Propose
	return r
}

// Load puts every resource on the list, and this node's own record.
func (r *NodeReconciler) Load(s *State) {
	r.fresh(keySelf)
	r.load(s)
}

// Applied tells of an entry: the command and what it did, whoever proposed it.
func (r *NodeReconciler) Applied(c Command, res Result) {
	r.answered(c, res.Err != nil)
	if !res.Changed {
		return
	}
	switch {
	case c.Mutation != nil && res.Node == nil, c.Observe != nil, c.Place != nil, c.Reached != nil, c.Gone != nil,
		c.Remove != nil, c.Lost != nil, c.Stuck != nil:
		r.resource(c, res)
	}
	if res.Node != nil || c.Found != nil {
		r.fresh(keySelf)
		r.all = true
	}
}

// resource takes up one that an entry has changed.
func (r *loop) resource(c Command, res Result) {
	m := res.meta()
	if m == nil {
		if c.Gone != nil {
			r.fresh(c.Gone.UID)
		}
		return
	}
	if res.Queue != nil && (m.UID == m.ResourceVersion || m.DeletionTimestamp != 0) {
		r.moved[m.Name] = true
	}
	switch {
	case res.Removed:
		r.fresh(m.UID) // what is retired of it
	case c.Observe != nil && c.Observe.Status.Phase != Ready:
		r.touch(m.UID) // trouble that was written down is looked at again when its time comes
	default:
		r.fresh(m.UID) // a queue that is ready now is opened to its users
	}
}

// meta is the resource's that the result is about, nil if there is none.
func (r *Result) meta() *Metadata {
	switch {
	case r.Queue != nil:
		return &r.Queue.Metadata
	case r.Connector != nil:
		return &r.Connector.Metadata
	case r.Node != nil:
		return &r.Node.Metadata
	}
	return nil
}

// work asks the runtime for what is outstanding.
func (r *NodeReconciler) work(t *task, s *State) (outcome, bool) {
	if t.uid == keySelf {
		return r.self(s), true
	}
	if out, over := r.retired(t, s.retired[t.uid]); !over {
		return out, true
	}
	o := s.objectOf(t.uid)
	switch {
	case o.queue != nil:
		return r.queue(t, o.queue, s), true
	case o.connector != nil:
		return r.connector(t, o.connector, s), true
	}
	return outcome{}, false
}

// self registers this node if the registry does not have it as it is.
func (r *NodeReconciler) self(s *State) outcome {
	if r.o.Disk == "" {
		return outcome{}
	}
	c := &Register{
		NodeSpec: NodeSpec{Fingerprint: r.o.Node, Address: r.o.Address, Admin: r.o.Admin}, Name: r.o.Name, Disk: r.o.Disk,
		Incarnation: r.o.Incarnation, Nonce: r.o.Nonce, At: max(r.now, 1),
	}
	n := s.nodeNamed(r.o.Node)
	switch {
	case n == nil && (len(s.nodes) > 0 || r.o.Founded):
		return outcome{wait: r.o.BackoffMax} // not added or found yet, or removed: nothing to say until that has changed
	case n != nil && n.Spec == c.over(n.Spec) && n.Status.Disk == c.Disk && n.Status.Incarnation >= c.Incarnation:
		return outcome{}
	}
	if n != nil && n.Status.Disk == c.Disk && n.Status.Nonce != "" {
		if r.o.Follows != nil && !r.o.Follows(n.Status.Incarnation, n.Status.Nonce) {
			return outcome{} // this directory is a copy from before that start: the node that stands is not displaced
		}
		c.After = n.Status.Nonce
	}
	return outcome{command: &Command{Register: c}}
}

// mine says whether a replica is one of this node's, on this disk.
func (r *NodeReconciler) mine(p *Replica) bool { return p.Node == r.o.Node && p.Disk == r.o.Disk }

// retired destroys what is no part of anything any more. Nothing else of the resource is looked at before.
func (r *NodeReconciler) retired(t *task, list []Retired) (outcome, bool) {
	for i := range list {
		x := &list[i]
		if !r.mine(&x.Replica) {
			continue
		}
		var done bool
		var err error
		switch {
		case x.Kind == KindQueue:
			done, err = r.rt.Destroy(x.UID, x.Replica)
		case r.o.Connectors == nil:
			done = true
		default:
			done, err = r.o.Connectors.Stop(x.UID)
		}
		switch {
		case err != nil:
			return outcome{wait: r.failed(t)}, false
		case !done:
			return outcome{wait: r.o.Poll}, false
		}
		t.fails = 0
		return outcome{command: &Command{Gone: &Gone{x.Kind, x.UID, x.Replica.Replica}}}, false
	}
	return outcome{}, true
}

// queue works on this node's replica of a queue, if it has one.
func (r *NodeReconciler) queue(t *task, q *Queue, s *State) outcome {
	var row *Replica
	c := q.clone()
	for i := range c.Status.Placement {
		p := &c.Status.Placement[i]
		switch {
		case !r.mine(p):
		case p.Lost == "" || c.Status.Destroying:
			row = p
		default:
			if done, err := r.rt.SetAside(c, *p); err != nil {
				return outcome{wait: r.failed(t)}
			} else if !done {
				return outcome{wait: r.o.Poll}
			}
		}
	}
	switch {
	case row == nil:
		t.since = 0
		return outcome{}
	case c.Metadata.DeletionTimestamp != 0:
		return r.removal(t, c, row)
	}
	return r.ensure(t, c, row, s)
}

// ensure opens the replica and, where it serves, brings the queue to its spec.
func (r *NodeReconciler) ensure(t *task, q Queue, row *Replica, s *State) outcome {
	done, err := r.rt.Ensure(q)
	if err != nil {
		return r.trouble(t, &q, row, err, s)
	}
	if !done {
		return outcome{wait: r.o.Poll}
	}
	if row.Owner {
		t.fails = 0
		return r.report(t, &q, s, nil)
	}
	g, err := r.rt.Group(q)
	switch {
	case err != nil:
		return r.trouble(t, &q, row, err, s)
	case !g.Serves, s.lostData(&q.Status) != nil:
		// Whoever serves does the rest, and is told when that is this one. What is lost is the control leader's to say.
		t.fails, t.since = 0, 0
		return outcome{}
	}
	out, over, err := r.steer(t, &q, row, &g, s)
	if err != nil {
		wait := r.failed(t)
		if long, _ := r.lasted(t); !long {
			return outcome{wait: wait} // as while another one begins to lead
		}
		return outcome{wait: wait, status: q.Status.with(q.Status.Phase, condition(err))}
	}
	t.fails = 0
	if over {
		return out
	}
	return r.report(t, &q, s, &g)
}

// trouble shows an error of the runtime. What is wrong with a replica that others do without is not the queue's: it is
// given up, if the others are enough.
func (r *NodeReconciler) trouble(t *task, q *Queue, row *Replica, err error, s *State) outcome {
	var why *Trouble
	if errors.As(err, &why) && why.Lost && !row.Owner {
		reason := clip(why.Reason, wordMax)
		if flaw(reason, 1, wordMax) != "" {
			reason = "Lost"
		}
		c := &Lost{KindQueue, q.Metadata.UID, row.Replica, reason}
		_, too := s.withoutLost(c, q.Status.Step, q.Status.Placement)
		if too == nil {
			return outcome{command: &Command{Lost: c}}
		}
		err = &Trouble{Reason: reason, Message: too.Message + ": " + why.Message}
	}
	out := outcome{wait: r.failed(t)}
	if !row.Owner && !row.Lead {
		return out
	}
	phase := Degraded
	if q.Status.ObservedGeneration == 0 {
		phase = Pending
	}
	out.status = q.Status.with(phase, condition(err))
	return out
}

// report says how the queue does that this node serves. g is nil for its owner.
func (r *NodeReconciler) report(t *task, q *Queue, s *State, g *Group) outcome {
	var out outcome
	st := &q.Status
	fits, why := s.fits(q)
	switch {
	case why != nil:
		// It serves where it is; what was asked for last cannot be done.
		out.status = st.with(Degraded, *why)
		if st.ObservedGeneration == 0 {
			out.status.Phase = Pending
		}
	case !fits:
		return out // the next decision about its placement is to come
	default:
		out.status = st.with(Ready, s.warnings(q)...)
		out.status.ObservedGeneration = q.Metadata.Generation
	}
	if g == nil {
		t.since = 0
		return out
	}
	absent := 0
	for i := range st.Placement {
		p := &st.Placement[i]
		m := memberOf(g.Members, p.Replica)
		switch {
		case m == nil || !m.CaughtUp:
			absent++
		case p.Lead && !r.mine(p) && m.Ails:
			out.wait = r.o.BackoffMax // it would not keep the leadership; when its disk is well again all is looked at
		case p.Lead && !r.mine(p):
			// The next one to serve reports the rest; until then this one does. An error is one to come back to.
			if err := r.rt.Transfer(*q, *p); err != nil {
				out.wait = r.failed(t)
			} else {
				out.wait = r.o.Poll
			}
		}
		if m != nil && m.Held && !p.Made {
			out.made = append(out.made, p.Replica)
		}
	}
	return r.absent(t, q, r.lateMade(t, q, out), absent)
}

// lateMade puts off saying that replicas are made, if there is nothing else to say: most are seen so with the first
// report, and an entry for each of the others is better spent when not everything is being made at once.
func (r *NodeReconciler) lateMade(t *task, q *Queue, out outcome) outcome {
	if len(out.made) == 0 {
		t.madeAt = 0
		return out
	}
	if long, left := r.lastedSince(&t.madeAt); !long && (out.status == nil || sameFindings(out.status, &q.Status)) {
		out.made = nil
		if out.wait == 0 || left < out.wait {
			out.wait = left
		}
	}
	return out
}

// absent has a queue be degraded when replicas have been away for a while (T-13).
func (r *NodeReconciler) absent(t *task, q *Queue, out outcome, n int) outcome {
	if n == 0 {
		t.since = 0
		return out
	}
	long, left := r.lasted(t)
	switch {
	case long:
		conds := append([]Condition{{
			CondGroup, "ReplicaAbsent", fmt.Sprintf(
				"%d of %d replicas do not answer or are behind; what is confirmed is on a majority", n, len(q.Status.Placement)),
		}}, out.status.Conditions...)
		out.status.Phase, out.status.Conditions = Degraded, conds
		out.wait = max(out.wait, r.o.BackoffMax) // it is told when they are back
	case q.Status.Phase == Degraded && q.Status.ObservedGeneration == q.Metadata.Generation:
		out.status = nil // it was away before; it is not well before it is there
		out.wait = left
	default:
		out.wait = left
	}
	return out
}
