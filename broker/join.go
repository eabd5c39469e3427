package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
	"weida/raftstore"
	"weida/segment"
)

// This file is how a node comes into a cluster that it did not begin with. The cluster knows its key and its number,
// for an operator has added it. It says that it is there, is made a learner of the control log, and asks as which
// replica; that it keeps in a file, so that it starts again without anybody's help.

// joinedFile holds the id of a joined node's replica of the control log, twice: 8 bytes, big-endian, and the digest of
// them. A node that took a damaged id for its own would vote as somebody else.
const (
	joinedFile = "joined"
	joinedHalf = 8 + len(segment.Digest{})
)

// joinedText is what the file holds.
func joinedText(id raftstore.ReplicaID) []byte {
	half := binary.BigEndian.AppendUint64(nil, uint64(id))
	digest := segment.DigestOf(half)
	half = append(half, digest[:]...)
	return append(half, half...)
}

// joinedID reads it; 0 if neither half is whole. repair says that one is not.
func joinedID(b []byte) (id raftstore.ReplicaID, repair bool) {
	for at := range 2 {
		half := b[min(at*joinedHalf, len(b)):]
		if len(half) < joinedHalf || segment.DigestOf(half[:8]) != segment.Digest(half[8:joinedHalf]) {
			continue
		}
		id = raftstore.ReplicaID(binary.BigEndian.Uint64(half))
	}
	return id, id > 0 && !bytes.Equal(b, joinedText(id))
}

// join finds out as which replica this node has the control log: the one that the cluster began with, or the one that
// it was given. If it was given none yet, it asks, which may take as long as nobody lets it in; Config.Wait ends it.
func (c *cluster) join() error {
	if c == nil {
		return nil
	}
	n := c.node
	b, err := readSmall(n.c.files, n.c.Dir, joinedFile)
	id, repair := joinedID(b)
	switch {
	case err != nil:
		return err
	case repair:
		return c.keep(id)
	case id > 0:
		c.self, c.kept = id, true
		return nil
	case b != nil:
		return c.askAgain(b)
	case c.founder:
		return nil
	}
	return c.among(func(ctx context.Context) error { return c.askToJoin(ctx, 0) })
}

// askAgain asks the cluster what a damaged file said.
func (c *cluster) askAgain(text []byte) error {
	n := c.node
	if err := keepDamaged(n.c.files, n.c.Dir, joinedFile, text, n.c.Log, "it said as which replica this node has the "+
		"control log; the cluster is asked"); err != nil {
		return err
	}
	err := c.among(func(ctx context.Context) error { return c.askToJoin(ctx, 0) })
	c.fresh = false // the node was a member: a control log that is not there is missing
	return err
}

// among lets f speak with the others while this node serves nothing else.
func (c *cluster) among(f func(context.Context) error) error {
	n := c.node
	if err := n.listen(); err != nil {
		return err
	}
	if !c.started {
		c.links.Start(n.listener, n.host)
		c.started = true
	}
	ctx, cancel := context.WithCancel(n.c.waiting())
	met := make(chan struct{})
	go func() {
		defer close(met)
		n.acceptPeers(ctx)
	}()
	err := f(ctx)
	cancel()
	<-met
	return err
}

// keep writes down as which replica this node has the control log. From then on one that is not there is missing.
func (c *cluster) keep(id raftstore.ReplicaID) error {
	n := c.node
	if err := fsync.WriteFileAtomic(n.c.files, n.c.Dir, joinedFile, joinedText(id)); err != nil {
		return err
	}
	c.self, c.kept = id, true
	return nil
}

// acceptPeers serves other nodes alone, until ctx ends.
func (n *Node) acceptPeers(ctx context.Context) {
	for {
		conn, err := n.listener.Accept(ctx)
		if err != nil {
			return
		}
		if !n.cluster.takes(conn) {
			conn.Refuse(uint64(wire.NotReady), "This node is joining its cluster")
		}
	}
}

// askToJoin tells the seeds that this node is there, until one of them says as which replica, but for one that was
// given up. It is written down.
func (c *cluster) askToJoin(ctx context.Context, but raftstore.ReplicaID) error {
	n := c.node
	who := n.whoAmI()
	came := control.Register{
		NodeSpec: control.NodeSpec{Fingerprint: who.Node, Address: who.Address, Admin: who.Admin}, Name: who.Name,
		Disk: who.Disk, Incarnation: who.Incarnation, Nonce: who.Nonce, At: time.Now().UnixMilli(),
	}
	var told time.Time
	for {
		var last error
		for _, m := range c.birth.Members {
			if ctx.Err() != nil {
				break
			}
			node := raftstore.NodeID(m.Number)
			res, err := c.away(ctx, node, control.Command{Register: &came}.Append(nil))
			if err == nil && res.Err != nil {
				err = res.Err
			}
			if s := res.Node; s != nil && s.Status.Disk == who.Disk && n.follows(&s.Status) {
				came.After = s.Status.Nonce // an earlier start of this directory was let in, and did not hear of it
			}
			if err != nil && !errors.Is(err, errNotLeading) {
				last = err
			}
			b, err := c.links.Call(ctx, node, []byte{callJoin})
			if err == nil && len(b) == 8 {
				if id := raftstore.ReplicaID(binary.BigEndian.Uint64(b)); id != 0 && id != but {
					c.fresh = true
					return c.keep(id)
				}
			}
		}
		if time.Since(told) > joinTell {
			told = time.Now()
			n.c.Log.Info("waiting to be let into the cluster",
				withErr(last, "number", uint64(c.number), "key", who.Node)...)
		}
		select {
		case <-time.After(leaderAgain):
		case <-n.Displaced():
			return n.DisplacedBy()
		case <-ctx.Done():
			return fmt.Errorf("the cluster has not let this node in: %w; its number is %d and its key %s; `weida node add` "+
				"on the cluster makes it known", context.Cause(ctx), uint64(c.number), who.Node)
		}
	}
}

// replicaFor is the id of a node's replica of the control log, 0 before it has one.
func (c *cluster) replicaFor(node raftstore.NodeID) []byte {
	r := c.node.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	id := uint64(0)
	for _, p := range r.state.Cluster().Replicas {
		if p.Number == uint64(node) && p.Lost == "" {
			id = p.Replica
		}
	}
	return binary.BigEndian.AppendUint64(nil, id)
}

// waiting ends the wait of a node that joins.
func (c *Config) waiting() context.Context {
	if c.Wait == nil {
		return context.Background()
	}
	return c.Wait
}

// listen opens the node's UDP port, once.
func (n *Node) listen() (err error) {
	if n.listener != nil {
		return nil
	}
	n.listener, err = endpoint.Listen(endpoint.ListenOptions{
		Addr: n.c.Listen, Identity: n.c.Identity, Trust: n.trust(), Connections: connectionsMax,
		OnRefused: n.turnedAway,
		Nodes:     true, Peers: n.cluster.peers(),
	})
	return err
}
