package control

import (
	"fmt"
	"slices"
)

// LeaderReconciler decides where things are, for the whole cluster: the placements of queues and connectors,
// the members of the control group, and who leads how much. It runs where the control group is led, and
// every decision is an entry that names the epoch that it was made on: of two leaders that decide at once, one
// is refused, and what a step does is done by whoever serves the group, from its own committed copy.
type LeaderReconciler struct {
	loop
	rt LeaderRuntime
}

// NewLeaderReconciler returns one that knows nothing yet.
func NewLeaderReconciler(rt Runtime, o Options) *LeaderReconciler {
	r := &LeaderReconciler{loop: newLoop(o), rt: rt}
	r.loop.work, r.loop.propose = r.work, rt.Propose
	return r
}

// fit says whether a node is one to place something on: it can be reached, and its disk is sound. Others are taken
// where there are no better ones. What is placed stays: who leads moves away from an ailing disk by itself, and
// comes back.
func (r *LeaderReconciler) fit(number uint64) bool {
	return r.rt.Reachable(number) && r.rt.Sound(number)
}

// Load puts every resource on the list, and the control group.
func (r *LeaderReconciler) Load(s *State) {
	r.fresh(keyCluster)
	r.fresh(keyBalance)
	r.load(s)
}

// Applied tells of an entry: the command and what it did, whoever proposed it.
func (r *LeaderReconciler) Applied(c Command, res Result) {
	r.answered(c, res.Err != nil)
	if !res.Changed {
		return
	}
	cluster := c.Found != nil || c.Stuck != nil && c.Stuck.Kind == KindCluster ||
		c.Lost != nil && c.Lost.Kind == KindCluster ||
		c.Reached != nil && c.Reached.Kind == KindCluster ||
		c.Place != nil && c.Place.Kind == KindCluster || c.Observe != nil && c.Observe.Kind == KindCluster
	switch {
	case cluster || res.Node != nil && c.Observe == nil:
		r.all = true
		r.fresh(keyCluster)
		r.fresh(keyBalance)
	case c.Observe != nil:
		r.touch(c.Observe.UID)
	default:
		r.resource(c, res)
		if c.Mutation == nil {
			r.fresh(keyBalance)
			r.emptier(c)
		}
	}
}

// emptier takes up the nodes that are to be emptied: something may have left them.
func (r *LeaderReconciler) emptier(c Command) {
	if c.Reached == nil && c.Remove == nil && c.Gone == nil && !(c.Place != nil && c.Place.Kind == KindConnector) {
		return
	}
	r.fresh(keyCluster) // which looks after them
}

// work decides on one resource.
func (r *LeaderReconciler) work(t *task, s *State) (outcome, bool) {
	switch t.uid {
	case keyCluster:
		return r.cluster(t, s), true
	case keyBalance:
		return r.balance(s), true
	}
	o := s.objectOf(t.uid)
	switch {
	case o.queue != nil && o.meta.DeletionTimestamp != 0:
		return r.removal(o.queue, s), true
	case o.queue != nil:
		return r.queue(t, o.queue, s), true
	case o.connector != nil:
		return r.connector(o.connector, s), true
	case o.node != nil:
		return r.node(o.node, s), true
	}
	return outcome{}, false
}

// queue places a queue, and places it anew when that is called for.
func (r *LeaderReconciler) queue(t *task, q *Queue, s *State) outcome {
	st := &q.Status
	base := s.base(st)
	if len(s.nodes) == 0 {
		return outcome{}
	}
	if want, left := r.elsewhere(t, q, s); want != nil {
		anew := placing(q, want)
		anew.Place.Anew = true
		return outcome{command: anew}
	} else if left > 0 {
		return outcome{wait: left}
	}
	if st.Step == Switching && base != nil {
		return outcome{} // the end of that is an entry
	}
	want, why := s.wanted(q, r.fit)
	switch {
	case why != nil && base == nil:
		return outcome{status: st.with(Pending, *why)}
	case s.lostData(st) != nil:
		return outcome{status: st.with(Degraded, *why)}
	case why != nil && st.Step == Adding:
		// What was begun cannot be ended; whoever serves it says why when it is taken back.
		if want = s.unchanged(st.Placement); want == nil {
			return outcome{}
		}
	case why != nil:
		return outcome{} // whoever serves it says so
	}
	wait := int64(0)
	if st.Step == Adding {
		wait = r.o.BackoffMax // a learner may go
	}
	place, lead := s.differs(base, want)
	if !place && (!lead || st.Step != Steady) {
		return outcome{wait: wait}
	}
	return outcome{wait: wait, command: placing(q, want)}
}

// placing is the decision about a queue as it stands.
func placing(q *Queue, want []Spot) *Command {
	return &Command{Place: &Place{
		Kind: KindQueue, UID: q.Metadata.UID, Generation: q.Metadata.Generation, Epoch: q.Status.Epoch, Want: want,
	}}
}

// elsewhere is where a queue begins anew that nobody could put anything in, and whose nodes have been away for a while,
// so that nobody will: nil if that is not so, or not yet, for the time left.
func (r *LeaderReconciler) elsewhere(t *task, q *Queue, s *State) (want []Spot, left int64) {
	st := &q.Status
	if st.ObservedGeneration > 0 || s.base(st) == nil || r.mostReached(leadBy(st.Placement, 0)) {
		t.since = 0
		return nil, 0
	}
	anew := Queue{Metadata: q.Metadata, Spec: q.Spec}
	want, why := s.wanted(&anew, r.rt.Reachable)
	if why != nil || !r.mostReached(want) {
		return nil, 0 // it would be no better off
	}
	if long, left := r.lasted(t); !long {
		return nil, left
	}
	t.since = 0
	return want, 0
}

// mostReached says whether a majority of the nodes can be reached.
func (r *LeaderReconciler) mostReached(at []Spot) bool {
	n := 0
	for _, w := range at {
		n += 1 - rank(!r.rt.Reachable(w.Number))
	}
	return n > len(at)/2
}

// removal ends the deletion of a queue where nobody else can: there is no replica, or nobody serves, or the
// nodes that have still to destroy theirs are away. They do so when they come back (T-19).
func (r *LeaderReconciler) removal(q *Queue, s *State) outcome {
	st := &q.Status
	remove := outcome{command: &Command{Remove: &Remove{Kind: KindQueue, UID: q.Metadata.UID}}}
	if len(st.Placement) == 0 {
		return remove
	}
	if st.Destroying {
		for _, p := range st.Placement {
			if n := s.nodeOf(p.Number); n != nil && n.Status.Disk == p.Disk && r.rt.Reachable(p.Number) {
				return outcome{wait: r.o.Poll}
			}
		}
		return remove
	}
	over := func(reason, text string) outcome {
		to := st.with(Deleting, Condition{CondRemoval, reason, text})
		to.Destroying = true
		return outcome{status: to}
	}
	owner, lost := st.Placement[0].Owner, s.lostData(st)
	left := q.Metadata.DrainUntil + r.o.Patience - r.now
	switch {
	case lost != nil:
		return over(lost.Reason, "draining is over: its messages are on disks that are not there, and go with the queue")
	case !owner && st.ObservedGeneration == 0:
		return over("NeverOpened", "draining is over: nobody could put anything in")
	case left > 0:
		return outcome{wait: left}
	}
	return over("DrainDeadline", "draining is over: nobody served it at the deadline; what it holds goes with it")
}

// connector assigns a connector to a node.
func (r *LeaderReconciler) connector(c *Connector, s *State) outcome {
	st := &c.Status
	at := st.Placement
	if c.Metadata.DeletionTimestamp != 0 {
		if len(at) == 0 || !r.rt.Reachable(at[0].Number) || !s.good(&at[0]) {
			return outcome{command: &Command{Remove: &Remove{Kind: KindConnector, UID: c.Metadata.UID}}}
		}
		return outcome{wait: r.o.Poll}
	}
	if len(s.nodes) == 0 {
		return outcome{}
	}
	number, why := s.connectorWanted(c, r.fit)
	switch {
	case why != nil && len(at) == 0:
		return outcome{status: st.with(Pending, *why)}
	case why != nil, len(at) > 0 && at[0].Number == number && s.good(&at[0]):
		return outcome{}
	}
	return outcome{command: &Command{Place: &Place{
		Kind: KindConnector, UID: c.Metadata.UID, Generation: c.Metadata.Generation, Epoch: st.Epoch,
		Want: []Spot{{Number: number}},
	}}}
}

// blockedMax is at how many queues of a node one looks for what keeps them there.
const blockedMax = 64

// node looks after one that is to be emptied.
func (r *LeaderReconciler) node(n *Node, s *State) outcome {
	removing := n.Metadata.DeletionTimestamp != 0
	if !removing && n.Status.State != NodeDraining {
		return outcome{}
	}
	say := func(reason, text string) outcome {
		return outcome{status: &Status{Phase: Ready, Conditions: []Condition{{CondRemoval, reason, clip(text, messageMax)}}}}
	}
	if removing && s.stillOn(n) == "" && s.retiredOn(n.Number()) && r.rt.Reachable(n.Number()) {
		return outcome{wait: r.o.Poll} // it is still destroying, or stopping
	}
	if removing && s.stillOn(n) == "" {
		return outcome{command: &Command{Remove: &Remove{Kind: KindNode, UID: n.Number()}}}
	}
	if s.LoadOf(n.Number()) == (Load{}) {
		if removing {
			return outcome{} // the control group is next
		}
		return say("Drained", "nothing is on it any more; it can be stopped")
	}
	looked := 0
	for _, q := range s.queuesByUID() {
		i := slices.IndexFunc(q.Status.Placement, func(p Replica) bool { return p.Number == n.Number() })
		if i < 0 || q.Metadata.DeletionTimestamp != 0 {
			continue
		}
		if looked++; looked > blockedMax {
			break
		}
		want, why := s.wanted(q, anywhere)
		if why != nil {
			return say("Blocked", fmt.Sprintf("queue %q cannot leave it: %s", q.Metadata.Name, why.Message))
		}
		if slices.ContainsFunc(want, func(w Spot) bool { return w.Number == n.Number() }) {
			return say("Blocked", fmt.Sprintf("queue %q cannot leave it: it is pinned there, or %s", q.Metadata.Name,
				s.tooFew(q.Spec.Replicas).Message))
		}
	}
	return say("Draining", "what is on it moves to other nodes")
}
