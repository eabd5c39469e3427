package broker

import (
	"fmt"
	"sync"

	"weida/broker/control"
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

// DisplacedBy is why, nil while Displaced is not closed. It is a *peer.DisplacedError.
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
