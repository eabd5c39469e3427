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

// This file is how commands get into the control log: at the node that leads it, or by way of that node. Each command
// has an entry of its own, whose index is one resource's version; many may be under way.

// change is one command on its way.
type change struct {
	command []byte
	own     *control.Command // of a controller of this node, which is told if there is no entry
	want    []control.Spot   // where it puts the queue that it makes, if it makes one

	tag     uint64         // once it is proposed
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

// nextLocked proposes the next changes, while not too many are under way.
func (r *registry) nextLocked() {
	for len(r.waiting) > 0 && r.ofThisTermLocked() < changesUnderWay {
		c := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.prepareLocked(c)
		r.tags++
		c.tag = r.tags
		r.underWay = append(r.underWay, c)
		err := r.group.Propose(&raftstore.Batch{
			Tag: c.tag, Items: []raftstore.Item{{Command: c.command}}, Alone: true,
		})
		switch {
		case err == nil:
		case notLeading(err):
			r.endLocked(c, errNotLeading)
		default:
			r.endLocked(c, notCommitted(err))
		}
	}
}

// ofThisTermLocked counts the changes under way that will have an answer as long as this node leads. Those of earlier
// terms may wait for an index that only changes to come will reach.
func (r *registry) ofThisTermLocked() int {
	n := 0
	for _, c := range r.underWay {
		if c.index == 0 || c.term == r.term {
			n++
		}
	}
	return n
}

// prepareLocked adds to a command what only the leader knows: where a queue that it makes is to be. The queues that are
// being made count as if they were there.
func (r *registry) prepareLocked(c *change) {
	cmd, err := control.Decode(c.command)
	if err != nil || cmd.Mutation == nil || r.reconciler == nil {
		return // also the first entry, which is no command
	}
	var coming [][]control.Spot
	for _, o := range r.underWay {
		if o.want != nil && !o.decided {
			coming = append(coming, o.want)
		}
	}
	r.reconciler.Prepare(cmd.Mutation, r.state, coming)
	c.want, c.command = cmd.Mutation.Want, cmd.Append(nil)
}

// endLocked answers a change that is under way.
func (r *registry) endLocked(c *change, err error) {
	r.underWay = slices.DeleteFunc(r.underWay, func(o *change) bool { return o == c })
	if err != nil && c.own != nil && r.reconciler != nil {
		r.reconciler.Dropped(*c.own)
		r.ring()
	}
	if c.answer != nil {
		c.answer <- err
	}
}

// endAllLocked answers those of the changes under way that have an entry of which nothing more will be heard.
func (r *registry) endAllLocked(why error) {
	for _, c := range slices.Clone(r.underWay) {
		if c.index != 0 && !c.decided {
			r.endLocked(c, why)
		}
	}
}

// decidedLocked is called for every entry: the change under way that has this index is in it, or another one stands in
// its place.
func (r *registry) decidedLocked(t raftstore.Term, i raftstore.Index, result control.Result) {
	for _, c := range slices.Clone(r.underWay) {
		switch {
		case c.index != i || c.decided:
		case c.term == t:
			c.decided, c.result, c.own = true, result, nil
		default:
			r.endLocked(c, errNotLeading) // another leader's entry: this one is nowhere
			r.nextLocked()
		}
	}
}

// durableLocked answers the changes whose entries are applied and durable.
func (r *registry) durableLocked() {
	for _, c := range slices.Clone(r.underWay) {
		if c.decided && c.index <= r.durable {
			r.endLocked(c, nil)
		}
	}
	r.nextLocked()
}

// undecidedLocked gives up on the changes under way when a snapshot takes the place of entries: whether theirs are
// among them is not known any more.
func (r *registry) undecidedLocked() {
	r.endAllLocked(&wire.Error{
		Code: wire.MutationIndeterminate, Detail: "This node lost the lead of the control group, and was brought up to " +
			"date by a snapshot, which does not say what became of it",
	})
}

// tagged is the change under way that was proposed with a tag.
func (r *registry) tagged(tag uint64) *change {
	i := slices.IndexFunc(r.underWay, func(c *change) bool { return c.tag == tag })
	if i < 0 {
		panic("bug: broker: an answer to no change")
	}
	return r.underWay[i]
}

// Appended implements raftstore.Machine.
func (r *registry) Appended(tag uint64, t raftstore.Term, i raftstore.Index) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.tagged(tag)
	c.term, c.index = t, i
}

// Dropped implements raftstore.Machine.
func (r *registry) Dropped(tag uint64, o raftstore.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.tagged(tag)
	switch {
	case o.Kind == raftstore.Refused && notLeading(o.Err):
		r.endLocked(c, errNotLeading)
	case o.Kind == raftstore.Refused:
		r.endLocked(c, notCommitted(o.Err))
	default:
		r.endLocked(c, &wire.Error{Code: wire.MutationIndeterminate, Detail: o.Err.Error()})
	}
	r.nextLocked()
}

// Role implements raftstore.Machine. A change that has an entry waits on: whoever leads next decides about it.
func (r *registry) Role(role raftstore.Role, t raftstore.Term, l raftstore.Leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads, r.term, r.leader = role == raftstore.Owner || role == raftstore.LeaderRole, t, l
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
	r.endAllLocked(&wire.Error{Code: wire.MutationIndeterminate, Detail: err.Error()})
	r.nextLocked()
}
