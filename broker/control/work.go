package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ensure brings a queue to its spec.
func (r *Reconciler) ensure(t *task, q Queue) outcome {
	st := q.Status
	made := st.ObservedGeneration > 0
	trouble := Pending
	if made {
		trouble = Degraded
	}
	if at := r.elsewhere(st.Placement); at != "" {
		// Never made anew here: its messages are on the other disk (T-19, T-32).
		return outcome{status: st.with(trouble, Condition{
			CondPlacement, "OwnerAbsent", "its messages are on " + at + ", which is not the disk of this node; nothing was " +
				"made or changed; bring that disk back, or delete the queue",
		})}
	}
	pinned := r.pinned(q.Spec.Placement)
	if pinned != nil && !made {
		return outcome{status: st.with(Pending, *pinned)}
	}
	done, err := r.rt.Ensure(q)
	switch {
	case err != nil:
		return outcome{status: st.with(trouble, condition(err)), wait: r.failed(t)}
	case !done:
		return outcome{status: q.Status, wait: r.o.Poll}
	}
	t.fails = 0
	st.Placement = []Replica{{Node: r.o.Node, Disk: r.o.Disk, Owner: true}}
	if pinned != nil {
		// It serves where it is; what was asked for last is not done.
		return outcome{status: st.with(Degraded, *pinned)}
	}
	st.ObservedGeneration = q.Metadata.Generation
	return outcome{status: st.with(Ready, r.warnings(q.Spec.Placement)...)}
}

// elsewhere names the recorded owner if it is not this node with this disk.
func (r *Reconciler) elsewhere(placement []Replica) string {
	for _, p := range placement {
		if p.Node == r.o.Node && p.Disk == r.o.Disk {
			return ""
		}
	}
	if len(placement) == 0 {
		return ""
	}
	return fmt.Sprintf("disk %q of node %q", placement[0].Disk, placement[0].Node)
}

func (r *Reconciler) isMember(name string) bool {
	return name == r.o.Node || r.o.Name != "" && name == r.o.Name
}

// pinned is the reason why the queue cannot be where its spec pins it, nil if it can.
func (r *Reconciler) pinned(p PlacementSpec) *Condition {
	if len(p.Nodes) == 0 || slices.ContainsFunc(p.Nodes, r.isMember) {
		return nil
	}
	why := fmt.Sprintf("spec.placement.nodes names %q, and the cluster has only node %s; pin it there, or pin nothing",
		p.Nodes, r.known())
	return &Condition{CondPlacement, "NoSuchNode", clip(why, messageMax)}
}

// warnings are conditions of a queue that is ready all the same.
func (r *Reconciler) warnings(p PlacementSpec) []Condition {
	if p.PreferredLeader == "" || r.isMember(p.PreferredLeader) {
		return nil
	}
	why := fmt.Sprintf("spec.placement.preferredLeader names %q, and the cluster has only node %s, which leads",
		p.PreferredLeader, r.known())
	return []Condition{{CondPlacement, "PreferredLeaderAbsent", clip(why, messageMax)}}
}

// known is how this node is called.
func (r *Reconciler) known() string {
	if r.o.Name == "" {
		return fmt.Sprintf("%q", r.o.Node)
	}
	return fmt.Sprintf("%q (%s)", r.o.Name, r.o.Node)
}

// failed counts a failure of the runtime and returns the wait.
func (r *Reconciler) failed(t *task) int64 {
	wait := r.backoff(t.fails)
	t.fails++
	return wait
}

// removal takes a queue down, in the order of T-21. What is over is in the registry where it matters and
// asked for again where it does not, so it goes on from wherever a crash left it.
func (r *Reconciler) removal(t *task, q Queue) outcome {
	st := q.Status
	if !st.Destroying {
		return r.drain(t, q)
	}
	done, err := r.rt.Destroy(q)
	switch {
	case err != nil:
		// The first condition says how draining ended; it stays.
		head := st.Conditions[:min(len(st.Conditions), 1)]
		conds := append(slices.Clone(head), condition(err))
		return outcome{status: st.with(Deleting, conds...), wait: r.failed(t)}
	case !done:
		return outcome{status: q.Status, wait: r.o.Poll}
	}
	t.fails = 0
	return outcome{remove: true}
}

// drain lets consumers empty the queue until the deadline, ends their streams, and then has it written
// down that the data goes.
func (r *Reconciler) drain(t *task, q Queue) outcome {
	st := q.Status
	left := q.Metadata.DrainUntil - r.now
	reason := "DrainDeadline"
	switch {
	case st.ObservedGeneration == 0:
		reason = "NeverOpened" // nobody could put anything in
	case r.elsewhere(st.Placement) != "":
		reason = "OwnerAbsent"
	case left > 0:
		if out := r.emptied(t, q); out.wait > 0 {
			out.wait = min(out.wait, left)
			return out
		}
		reason = "Drained"
	}
	done, d, err := r.rt.Disconnect(q)
	switch {
	case err != nil:
		return outcome{status: st.with(Deleting, draining, condition(err)), wait: r.failed(t)}
	case !done:
		return outcome{status: q.Status, wait: r.o.Poll}
	}
	t.fails = 0
	st.Destroying = true
	return outcome{status: st.with(Deleting, Condition{CondRemoval, reason, fmt.Sprintf(
		"draining is over: %d settled, %d unsettled, %d requeued; %d messages go with the queue",
		d.Settled, d.Unsettled, d.Requeued, d.Left)})}
}

// emptied asks whether consumers have emptied the queue: there is no wait if they have.
func (r *Reconciler) emptied(t *task, q Queue) outcome {
	st := q.Status
	for _, call := range []func(Queue) (bool, error){r.rt.StopAdmission, r.rt.Ensure} {
		done, err := call(q)
		if err != nil {
			return outcome{status: st.with(Deleting, draining, condition(err)), wait: r.failed(t)}
		}
		if !done {
			return outcome{status: st, wait: r.o.Poll} // what is said about an error stays until it is known
		}
	}
	d, err := r.rt.Drained(q)
	if err != nil {
		return outcome{status: st.with(Deleting, draining, condition(err)), wait: r.failed(t)}
	}
	t.fails = 0
	if d.Left > 0 {
		return outcome{status: st.with(Deleting, draining), wait: r.o.Poll}
	}
	return outcome{}
}

// draining is the condition of a queue whose deletion stands.
var draining = Condition{
	CondRemoval, "Draining", "it takes no new messages; what is there goes to consumers until drainUntil",
}

// attachment is the status of a connector: no connector runs yet, so it is pending at best.
func (s *State) attachment(c *Connector) Status {
	why := Condition{CondAttachment, "NotRun", "this build runs no connectors; the resource is kept"}
	switch q := s.queues[c.Spec.Queue]; {
	case q == nil:
		why = Condition{CondAttachment, "QueueNotFound", clip(fmt.Sprintf("there is no queue %q; it attaches when there is",
			c.Spec.Queue), messageMax)}
	case q.Metadata.DeletionTimestamp != 0:
		why = Condition{CondAttachment, "QueueDeleting", clip(fmt.Sprintf("queue %q is being deleted", c.Spec.Queue),
			messageMax)}
	}
	return c.Status.with(Pending, why)
}

// with is the status with another phase and other conditions.
func (s Status) with(p Phase, conds ...Condition) Status {
	s = s.clone()
	s.Phase, s.Conditions = p, cloneList(conds)
	return s
}

// condition shows an error of the runtime.
func condition(err error) Condition {
	reason := "Error"
	var t *Trouble
	if errors.As(err, &t) && t.Reason != "" {
		reason = t.Reason
	}
	return Condition{CondGroup, clip(reason, wordMax), clip(err.Error(), messageMax)}
}

// clip makes a text fit a status: valid, in one line, and cut where it is too long.
func clip(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\n", "; ")
	if len(s) <= most {
		return s
	}
	const dots = "..."
	cut := most - len(dots)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + dots
}
