package broker

import (
	"context"
	"encoding/binary"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is what keeps a node whose copy of the registry is behind from saying that there is no such queue: it has
// just started, or others made the queue a moment ago.

// learned says whether this node's copy of the registry has all that the leader of the control group had when this was
// asked. It waits for that, but no longer than leaderPatience: without a leader nobody can say.
func (n *Node) learned(ctx context.Context) bool {
	c, r := n.cluster, n.registry
	if c == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	for {
		r.mu.Lock()
		leads, leader, turned := r.leads, r.leader.Node, r.turned
		r.mu.Unlock()
		if leads {
			return true
		}
		if leader != 0 {
			b, err := c.links.Call(ctx, leader, []byte{callVersion})
			if err == nil && len(b) == 8 {
				version := binary.BigEndian.Uint64(b)
				return r.await(ctx, func(s *control.State) bool { return s.Version() >= version }) == nil
			}
		}
		again := time.NewTimer(leaderAgain)
		select {
		case <-turned:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return false
		}
		again.Stop()
	}
}

// known says whether a replica may be opened by what this node's copy of the registry says of it. One that is here may.
// One that is not is made, unless it was made before: whether it was, a node that has just started knows when its copy
// has what was committed until then. A replica that has voted and confirmed must not be begun again under its id.
func (n *Node) known(k *control.Queue, row *control.Replica) (bool, error) {
	if row.Made || n.cluster == nil || n.upToDate.Load() {
		return true, nil
	}
	return n.store.HasLog(raftstore.GroupID(k.Metadata.UID))
}

// learn waits, for a while, until replicas are known that are not here.
func (n *Node) learn() {
	if n.learned(n.control.life) {
		n.upToDate.Store(true)
	}
}

// led is the registry's version if this node leads the control group, in 8 bytes; nothing if it does not.
func (r *registry) led() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leads {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, r.state.Version())
}

// unlearned is the refusal of a name that this node cannot say anything about.
func unlearned() *wire.Error {
	return &wire.Error{
		Code: wire.NotReady, Detail: "This node has no queue of that name in its copy of the registry, and no leader of " +
			"the control group tells it whether that is the latest; another node may know more",
	}
}
