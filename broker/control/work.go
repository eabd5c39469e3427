package control

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// removal takes a queue down, in the order of T-21. What is over is in the registry where it matters and
// asked for again where it does not, so it goes on from wherever a crash left it.
func (r *NodeReconciler) removal(t *task, q Queue, row *Replica) outcome {
	st := q.Status
	if !st.Destroying {
		return r.drain(t, q, row)
	}
	uid := q.Metadata.UID
	done, err := r.rt.Destroy(uid, *row)
	switch {
	case err != nil:
		out := outcome{wait: r.failed(t)}
		if row.Owner || len(st.Placement) == 1 {
			// The first condition says how draining ended; it stays.
			head := cloneList(st.Conditions[:min(len(st.Conditions), 1)])
			out.status = st.with(Deleting, append(head, condition(err))...)
		}
		return out
	case !done:
		return outcome{wait: r.o.Poll}
	}
	t.fails = 0
	if len(st.Placement) == 1 {
		return outcome{command: &Command{Remove: &Remove{KindQueue, uid, row.Replica}}}
	}
	return outcome{command: &Command{Gone: &Gone{KindQueue, uid, row.Replica}}}
}

// drain lets consumers empty the queue until the deadline, ends their streams, and then has it written
// down that the data goes. Who does not serve the queue only admits nothing any more.
func (r *NodeReconciler) drain(t *task, q Queue, row *Replica) outcome {
	st := q.Status
	left := q.Metadata.DrainUntil - r.now
	reason := "DrainDeadline"
	switch {
	case st.ObservedGeneration == 0:
		reason = "NeverOpened" // nobody could put anything in
	case left > 0:
		out, over := r.emptied(t, q, row)
		if !over {
			if out.wait > 0 {
				out.wait = min(out.wait, left)
			}
			return out
		}
		reason = "Drained"
	case !row.Owner:
		if out, serves := r.closed(t, q, row); !serves {
			return out // whoever leads ends it, or the control leader if nobody does
		}
	}
	done, d, err := r.rt.Disconnect(q)
	switch {
	case err != nil:
		return outcome{status: st.with(Deleting, draining, condition(err)), wait: r.failed(t)}
	case !done:
		return outcome{wait: r.o.Poll}
	}
	t.fails = 0
	to := st.with(Deleting, Condition{CondRemoval, reason, fmt.Sprintf(
		"draining is over: %d settled, %d unsettled, %d requeued; %d messages go with the queue",
		d.Settled, d.Unsettled, d.Requeued, d.Left)})
	to.Destroying = true
	return outcome{status: to}
}

// emptied asks whether consumers have emptied the queue: it is over if they have.
func (r *NodeReconciler) emptied(t *task, q Queue, row *Replica) (outcome, bool) {
	st := q.Status
	if out, serves := r.closed(t, q, row); !serves {
		return out, false
	}
	d, err := r.rt.Drained(q)
	if err != nil {
		return outcome{status: st.with(Deleting, draining, condition(err)), wait: r.failed(t)}, false
	}
	t.fails = 0
	if d.Left > 0 {
		return outcome{status: st.with(Deleting, draining), wait: r.o.Poll}, false
	}
	return outcome{}, true
}

// closed opens a queue that admits nothing any more, and says whether this node serves it.
func (r *NodeReconciler) closed(t *task, q Queue, row *Replica) (out outcome, serves bool) {
	for _, call := range []func(Queue) (bool, error){r.rt.StopAdmission, r.rt.Ensure} {
		done, err := call(q)
		if err != nil {
			out.wait = r.failed(t)
			if row.Owner || row.Lead {
				out.status = q.Status.with(Deleting, draining, condition(err))
			}
			return out, false
		}
		if !done {
			return outcome{wait: r.o.Poll}, false // what is said about an error stays until it is known
		}
	}
	if row.Owner {
		return outcome{}, true
	}
	g, err := r.rt.Group(q)
	if err != nil {
		return outcome{wait: r.failed(t)}, false
	}
	return outcome{}, g.Serves
}

// draining is the condition of a queue whose deletion stands.
var draining = Condition{
	CondRemoval, "Draining", "it takes no new messages; what is there goes to consumers until drainUntil",
}

// connector works on a connector that is assigned to this node.
func (r *NodeReconciler) connector(t *task, c *Connector, s *State) outcome {
	if len(c.Status.Placement) == 0 || !r.mine(&c.Status.Placement[0]) {
		return outcome{}
	}
	k := c.clone()
	why := s.unattached(&k)
	deleting := k.Metadata.DeletionTimestamp != 0
	rt := r.o.Connectors
	switch {
	case rt == nil && deleting:
		return outcome{command: r.stopped(&k)}
	case rt == nil && why == nil:
		why = &Condition{CondAttachment, "NotRun", clip(fmt.Sprintf("%s, where it was placed, runs no connectors, because "+
			"its node file names no directory for them (connectors.dir); nothing was moved; add that and start the node again, "+
			"or name a node that has it in spec.policy.node", s.placedOn(&k)), messageMax)}
	}
	if rt != nil && (deleting || why != nil) {
		done, err := rt.Stop(k.Metadata.UID)
		switch {
		case err != nil && deleting:
			return outcome{status: k.Status.with(Deleting, condition(err)), wait: r.failed(t)}
		case err != nil:
			return outcome{status: k.Status.with(Degraded, condition(err)), wait: r.failed(t)}
		case !done:
			return outcome{wait: r.o.Poll}
		case deleting:
			return outcome{command: r.stopped(&k)}
		}
	}
	if why != nil {
		return outcome{status: k.Status.with(Pending, *why)}
	}
	if len(s.retired[k.Metadata.UID]) > 0 {
		return outcome{status: k.Status.with(Pending, Condition{
			CondPlacement, "Moving", "it is still to be stopped on the node it was on before",
		})} // the end of that is an entry
	}
	running, err := rt.Start(k)
	switch {
	case err != nil:
		return outcome{status: k.Status.with(Degraded, condition(err)), wait: r.failed(t)}
	case !running:
		return outcome{wait: r.o.Poll}
	}
	t.fails = 0
	st := k.Status.with(Ready)
	st.ObservedGeneration = k.Metadata.Generation
	return outcome{status: st}
}

// placedOn is the node that a connector was placed on, as users call it.
func (s *State) placedOn(c *Connector) string {
	if n := s.nodeOf(c.Status.Placement[0].Number); n != nil {
		return fmt.Sprintf("node %q", n.Metadata.Name)
	}
	return "this node"
}

func (r *NodeReconciler) stopped(c *Connector) *Command {
	return &Command{Remove: &Remove{KindConnector, c.Metadata.UID, c.Status.Placement[0].Replica}}
}

// unattached is why a connector's queue is not one to work on, nil if it is.
func (s *State) unattached(c *Connector) *Condition {
	switch q := s.queues[c.Spec.Queue]; {
	case q == nil:
		return &Condition{CondAttachment, "QueueNotFound", clip(fmt.Sprintf("there is no queue %q; it attaches when there is",
			c.Spec.Queue), messageMax)}
	case q.Metadata.DeletionTimestamp != 0:
		return &Condition{CondAttachment, "QueueDeleting", clip(fmt.Sprintf("queue %q is being deleted", c.Spec.Queue),
			messageMax)}
	}
	return nil
}

// with is the status with another phase and other conditions.
func (s *Status) with(p Phase, conds ...Condition) *Status {
	to := s.clone()
	to.Phase, to.Conditions = p, cloneList(conds)
	return &to
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
