package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is how commands get into the control log: at the node that leads it, one at a time, or by way of that node.

// change is one command on its way.
type change struct {
	command []byte
	own     *control.Command // of a controller of this node, which is told if there is no entry

	term    raftstore.Term // with index, once it has an entry
	index   raftstore.Index
	decided bool // its entry is applied
	result  control.Result
	// answer holds one: nil when the entry is applied and durable; errNotLeading when nothing was done and another node
	// may be asked; nil channel if nobody waits.
	answer chan error
}

// errNotLeading is how a change ends that was not proposed because this node does not lead the control group.
var errNotLeading = errors.New("this node does not lead the control group; nothing was changed")

// away asks the node that leads the control group for an entry; errNotLeading if it does not lead it either.
type away func(ctx context.Context, leader raftstore.NodeID, command []byte) (control.Result, error)

// propose puts a command into the log and waits until it is applied and durable. A refusal by the state
// is in the result. Errors: *wire.Error with NotCommitted, or MutationIndeterminate.
func (r *registry) propose(ctx context.Context, c control.Command) (control.Result, error) {
	return r.put(ctx, c.Append(nil))
}

// put is propose for an encoded command, on whichever node: while nobody is known to lead it waits, but no longer than
// leaderPatience (T-47).
func (r *registry) put(ctx context.Context, command []byte) (control.Result, error) {
	patience, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	for {
		r.mu.Lock()
		leads, leader, turned := r.leads || r.away == nil, r.leader.Node, r.turned
		r.mu.Unlock()
		result, err := control.Result{}, errNotLeading
		switch {
		case leads:
			result, err = r.putHere(ctx, command)
		case leader != 0:
			result, err = r.away(ctx, leader, command)
		}
		if !errors.Is(err, errNotLeading) {
			return result, err
		}
		retry := time.NewTimer(leaderAgain)
		select {
		case <-turned:
		case <-retry.C:
		case <-patience.Done():
			retry.Stop()
			if ctx.Err() != nil {
				return control.Result{}, notCommitted(ctx.Err())
			}
			return control.Result{}, &wire.Error{Code: wire.NotCommitted, Detail: "The control group has no leader that this " +
				"node can reach: a majority of its members is not there. Queues go on; try again when more nodes are up"}
		}
		retry.Stop()
	}
}

// putHere proposes to this node's own replica.
func (r *registry) putHere(ctx context.Context, command []byte) (control.Result, error) {
	c := &change{command: command, answer: make(chan error, 1)}
	r.mu.Lock()
	r.enqueueLocked(c)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, commitPatience)
	defer cancel()
	select {
	case err := <-c.answer:
		return c.result, err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, c); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		return control.Result{}, notCommitted(ctx.Err())
	}
	return control.Result{}, &wire.Error{
		Code: wire.MutationIndeterminate, Detail: "Nobody waited for the answer: " + ctx.Err().Error(),
	}
}

func notCommitted(err error) error { return &wire.Error{Code: wire.NotCommitted, Detail: err.Error()} }

// enqueueLocked puts a change behind those that wait.
func (r *registry) enqueueLocked(c *change) {
	r.waiting = append(r.waiting, c)
	r.nextLocked()
}

// nextLocked proposes the next change if none is under way.
func (r *registry) nextLocked() {
	for r.underWay == nil && len(r.waiting) > 0 {
		c := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.underWay = c
		err := r.group.Propose(&raftstore.Batch{Items: []raftstore.Item{{Command: r.preparedLocked(c.command)}}})
		switch {
		case err == nil:
		case notLeading(err):
			r.endLocked(errNotLeading)
		default:
			r.endLocked(notCommitted(err))
		}
	}
}

// preparedLocked is the command with what only the leader knows: where a queue that it makes is to be.
func (r *registry) preparedLocked(command []byte) []byte {
	c, err := control.Decode(command)
	if err != nil || c.Mutation == nil || r.reconciler == nil {
		return command // also the first entry, which is no command
	}
	r.reconciler.Prepare(c.Mutation, r.state)
	return c.Append(nil)
}

// endLocked answers the change under way.
func (r *registry) endLocked(err error) {
	c := r.underWay
	r.underWay = nil
	if err != nil && c.own != nil && r.reconciler != nil {
		r.reconciler.Dropped(*c.own)
		r.ring()
	}
	if c.answer != nil {
		c.answer <- err
	}
}

// decidedLocked is called for every entry: the change under way has its own, or another one stands in its place.
func (r *registry) decidedLocked(t raftstore.Term, i raftstore.Index, result control.Result) {
	c := r.underWay
	if c == nil || c.index != i {
		return
	}
	if c.term == t {
		c.decided, c.result, c.own = true, result, nil
		return
	}
	r.endLocked(errNotLeading) // another leader's entry: this one is nowhere
	r.nextLocked()
}

// undecidedLocked gives up on the change under way when a snapshot takes the place of entries: whether its own is among
// them is not known any more.
func (r *registry) undecidedLocked() {
	if c := r.underWay; c != nil && c.index != 0 && !c.decided {
		r.endLocked(&wire.Error{
			Code: wire.MutationIndeterminate, Detail: "This node lost the lead of the control group, and was brought up to " +
				"date by a snapshot, which does not say what became of it",
		})
	}
}

// Appended implements raftstore.Machine.
func (r *registry) Appended(_ uint64, t raftstore.Term, i raftstore.Index) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay.term, r.underWay.index = t, i
}

// Dropped implements raftstore.Machine.
func (r *registry) Dropped(_ uint64, o raftstore.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case o.Kind == raftstore.Refused && notLeading(o.Err):
		r.endLocked(errNotLeading)
	case o.Kind == raftstore.Refused:
		r.endLocked(notCommitted(o.Err))
	default:
		r.endLocked(&wire.Error{Code: wire.MutationIndeterminate, Detail: o.Err.Error()})
	}
	r.nextLocked()
}

// Role implements raftstore.Machine. A change that has an entry waits on: whoever leads next decides about it.
func (r *registry) Role(role raftstore.Role, _ raftstore.Term, l raftstore.Leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads, r.leader = role == raftstore.Owner || role == raftstore.LeaderRole, l
	r.replicated = role != raftstore.Owner
	switch {
	case r.reconciler == nil: // it is told when it comes
	case r.leads:
		r.reconciler.Lead(r.state)
	default:
		r.reconciler.Follow()
	}
	close(r.turned)
	r.turned = make(chan struct{})
	r.ring()
}

// Halted implements raftstore.Halter.
func (r *registry) Halted(err error) {
	r.log.Error("the control log is read-only: resources cannot be changed here, queues go on", "err", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.halted = err
	if r.underWay != nil && r.underWay.index != 0 {
		r.endLocked(&wire.Error{Code: wire.MutationIndeterminate, Detail: err.Error()})
	}
	r.nextLocked()
}
