package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/raftstore"
	"weida/wal"
)

// This file is how a node goes on whose replica of the control log is damaged or gone, with at least two others that
// have theirs. It serves nothing meanwhile, and its queues' logs are not touched: without the registry nobody knows
// what they are.
//
//	opening fails ─▶ the others agree that the replica is given up ─▶ set aside ─▶ another id is given ─▶ it learns
//
// The steps are asked for again from the first one whenever the node ends before the last.

// reasonGivenUp is why a replica of the control log goes whose files are sound: an earlier start found them damaged.
const reasonGivenUp = "GivenUp"

var errGivenUp = errors.New("this node's replica of the control log was given up in an earlier start, for its files " +
	"were damaged or could not be read then")

// controlMissing is what is wrong if there should be a control log and there is none, nil if all is well.
func (n *Node) controlMissing() (missing, err error) {
	groups, err := n.store.Groups()
	if err != nil {
		return nil, err
	}
	known, err := n.store.HasLog(controlGroup)
	if err != nil || known {
		return nil, err
	}
	c := n.cluster
	had := c != nil && !c.fresh && (c.kept || n.store.IsAside(wal.Aside{Group: controlGroup, Replica: uint64(c.self)}))
	if !had && len(groups) == 0 {
		return nil, nil
	}
	return fmt.Errorf("the control log is missing: %s holds %d groups but not groups/%d, which says what they are; "+
		"nothing was made or changed; restore that directory: %w", n.c.Dir, len(groups), uint64(controlGroup),
		raftstore.ErrNoSuchGroup), nil
}

// givenUp says whether the registry, as far as this node knows it, has given up this replica of the control log while
// the node is a member.
func (r *registry) givenUp(key endpoint.Fingerprint, self raftstore.ReplicaID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	node, ok := r.state.Node(key.String())
	if !ok || node.Metadata.DeletionTimestamp != 0 {
		return false
	}
	for _, p := range r.state.Cluster().Replicas {
		if p.Replica == uint64(self) {
			return p.Lost != ""
		}
	}
	return true
}

// forget empties the registry before another log is read into it.
func (r *registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.news, r.applied, r.durable, r.halted = control.NewState(), nil, 0, 0, nil
	r.leads, r.leader, r.nodesAt = false, raftstore.Leader{}, 0
}

// rejoin gives up this node's replica of the control log and opens another one in its place.
func (c *cluster) rejoin(reason string, cause error) error {
	n := c.node
	dir := filepath.Join(n.c.Dir, "groups", fmt.Sprint(uint64(controlGroup)))
	if len(c.birth.Members) < 3 {
		return fmt.Errorf("%w; this node knows of no two others that have the control log, so nothing was moved or "+
			"changed; restore %s from a copy; the queues' logs are not affected", cause, dir)
	}
	old := wal.Aside{Group: controlGroup, Replica: uint64(c.self)}
	n.damages.note(old, reason)
	file, pos := whereDamaged(cause)
	n.c.Log.Error("control log damaged", "group", uint64(controlGroup), "replica", old.Replica, "reason", reason,
		"file", file, "position", pos, "doing", "the others are asked to give this replica up; then what is left of it is "+
			"kept in "+n.store.AsidePath(old)+", and this node learns the control log anew; no queue's log is touched",
		"err", cause)
	err := c.among(func(ctx context.Context) error {
		if err := c.giveUp(ctx, reason, cause); err != nil {
			return err
		}
		if err := n.store.SetAside(old); err != nil {
			return err
		}
		n.damages.set(uint64(controlGroup))
		return c.askToJoin(ctx, c.self)
	})
	if err != nil {
		return err
	}
	n.registry.forget()
	return c.openMember()
}

// giveUp asks the seeds to note that this node's replica of the control log is lost, until one of them has done so. It
// is refused while the other members are no majority.
func (c *cluster) giveUp(ctx context.Context, reason string, cause error) error {
	command := control.Command{Lost: &control.Lost{
		Kind: control.KindCluster, Replica: uint64(c.self), Reason: reason,
	}}.Append(nil)
	var told time.Time
	for {
		var last error
		for _, m := range c.birth.Members {
			if node := raftstore.NodeID(m.Number); node != c.number && ctx.Err() == nil {
				res, err := c.away(ctx, node, command)
				if err == nil && (res.Err == nil || res.Err.Reason == control.NotFound) {
					return nil
				}
				if err == nil {
					err = res.Err
				}
				if !errors.Is(err, errNotLeading) {
					last = err
				}
			}
		}
		if time.Since(told) > joinTell {
			told = time.Now()
			c.node.c.Log.Warn("waiting for the other members to give up this node's damaged control log", withErr(last)...)
		}
		select {
		case <-time.After(leaderAgain):
		case <-c.node.Displaced():
			return c.node.DisplacedBy()
		case <-ctx.Done():
			return fmt.Errorf("%w; the other members of the control group have not given it up (%w): a majority of them has to "+
				"be up; nothing was moved or changed, and the queues' logs are not affected; start this node again when they "+
				"are, or restore the directory", cause, errors.Join(context.Cause(ctx), last))
		}
	}
}
