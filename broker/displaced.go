package broker

import (
	"fmt"
	"sync"

	"weida/broker/control"
	"weida/broker/peer"
	"weida/raftstore"
)

// This file is how a node ends to be one, because another process is the node: its data directory is a copy from
// before a later start, or of one that runs.

// displaced is whether that has happened.
type displaced struct {
	once  sync.Once
	ended chan struct{} // closed then
	err   error         // before that
}

// Displaced is closed when this process turned out not to be the node that the cluster knows: it must end. Its links
// have ended then, so it takes part in no vote and no evidence.
func (n *Node) Displaced() <-chan struct{} { return n.displaced.ended }

// DisplacedBy is why, nil while Displaced is not closed: a *peer.DisplacedError or a *RemovedError.
func (n *Node) DisplacedBy() error {
	select {
	case <-n.displaced.ended:
		return n.displaced.err
	default:
		return nil
	}
}

// displace ends the links, once. The caller may hold anything.
func (n *Node) displace(err error) {
	n.displaced.once.Do(func() {
		n.c.Log.Error("this process is not the node that the cluster knows; it takes part in nothing any more and has to end",
			"err", err)
		n.displaced.err = err
		close(n.displaced.ended)
		go n.cluster.close()
	})
}

// nonce is that of this life, as the registry has it.
func (n *Node) nonce() string { return fmt.Sprintf("%x", n.store.Identity().Nonce) }

// follows says whether this life comes after what the registry has of the node, or is it. What is of another disk says
// nothing, nor does what was registered without a nonce.
func (n *Node) follows(s *control.NodeStatus) bool {
	nonce, err := randomID(s.Nonce)
	if err != nil || s.Nonce == "" || s.Disk != n.disk() {
		return true
	}
	id := n.store.Identity()
	return id.Follows(s.Incarnation, nonce)
}

// RemovedError says that the cluster has no such node any more.
type RemovedError struct{ Number raftstore.NodeID }

func (e *RemovedError) Error() string {
	return fmt.Sprintf("this node, number %d, was removed from its cluster: its queues were moved to other nodes before, "+
		"and nothing that it stores counts any more, so it serves nothing; stop it; to have the machine in the cluster "+
		"again, add it with `weida node add`, with an empty data directory and the number that this prints", uint64(e.Number))
}

// removedBy says whether the registry has had this node and has it no more: numbers rise with the log, and are never
// used again.
func (c *cluster) removedBy(s *control.State) bool {
	_, there := s.NodeOf(uint64(c.number))
	return !there && len(s.Nodes()) > 0 && s.Version() >= uint64(c.number)
}

// disowned takes note of nodes that do not know this one as a member. Who was removed may never see the entry that
// says so; but if this node's own copy of the registry has it, and more than half of the others have it no more, it
// was.
func (c *cluster) disowned(e peer.Event) {
	by, is := peer.DisownedBy(e.Err)
	if !is && e.Kind != peer.Up {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !is {
		delete(c.disowns, e.Node)
		return
	}
	if c.disowns == nil {
		c.disowns = make(map[raftstore.NodeID]bool)
	}
	c.disowns[by] = true
	others, against, here := 0, 0, false
	for i := range c.nodes {
		id := raftstore.NodeID(c.nodes[i].Metadata.UID)
		switch {
		case id == c.number:
			here = true
		case c.disowns[id]:
			against++
			others++
		default:
			others++
		}
	}
	if here && 2*against > others {
		c.node.displace(&RemovedError{Number: c.number})
	}
}
