package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weida/raftstore"
)

// This file is what keeps two processes with one key apart: a node that runs, and one whose data directory is a copy
// of its, from before its last start or from while it ran.
//
// Each side of a handshake tells the other which life of it it knows, the registered one or a later one that it has
// spoken to. Who does not come after that life runs on a copy: its directory has counted on without the starts that
// the disk had since. It says so and ends, before anything of a group has left it. A copy of the directory as it is
// now does come after the life that runs: it is told apart by that life, which still answers.

// probeWait is how long a node that is linked may take to answer, before another life of it takes its place.
const probeWait = time.Second

// DisplacedError says that this process is not the one that the node's members go by. It takes part in nothing any
// more.
type DisplacedError struct {
	By          raftstore.NodeID // that said so; 0 is the registry
	Incarnation uint64           // of this process
	Known       uint64           // the incarnation that the other node knows; 0 if it did not say
	Twin        bool             // the other process still runs, or has the same incarnation
}

func (e *DisplacedError) Error() string {
	what := fmt.Sprintf("node %d knows a later start of this node", e.By)
	switch {
	case e.Twin:
		what = fmt.Sprintf("node %d knows another process with this node's key, which still answers or is start %d too",
			e.By, e.Incarnation)
	case e.Known > 0 && e.By == 0:
		what = fmt.Sprintf("the registry has start %d of this node, and start %d of this directory does not come after it",
			e.Known, e.Incarnation)
	case e.Known > 0:
		what = fmt.Sprintf("node %d knows start %d of this node, and start %d of this directory does not come after it",
			e.By, e.Known, e.Incarnation)
	}
	return "peer: " + what + ": this data directory is a copy. What the node confirmed and voted since the copy was " +
		"made is not in it, so this process takes part in no vote and no evidence; what the other nodes hold is " +
		"untouched. Stop it and run the node on its own directory; if that is lost, `weida node remove` the member " +
		"and add the node anew with an empty directory. `weida log dump` reads what is in this one"
}

// displaces says whether the other side turned this process away because it knows another one as the node.
func (e *RefusedError) displaces() bool {
	return e.Remote && (e.Why == OldIncarnation || e.Why == TwinIncarnation)
}

// known is the life of the node that it has to come after: the last that was spoken to, or the registered one.
func (k *link) known() life {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := &k.node; n.Nonce != [16]byte{} && n.Incarnation >= k.seen.incarnation {
		return life{n.Disk, n.Incarnation, n.Nonce}
	}
	return k.seen
}

// displaced says whether this process is a copy's, by what the other side knows of it, and tells so.
func (k *link) displaced(h *hello) bool {
	o := &k.links.o
	if h.known.incarnation == 0 || h.known.disk != o.Disk || o.Follows(h.known.incarnation, h.known.nonce) {
		return false
	}
	k.tellDisplaced(&DisplacedError{By: k.id, Incarnation: o.Incarnation, Known: h.known.incarnation})
	return true
}

func (k *link) tellDisplaced(e *DisplacedError) {
	k.links.o.Event(Event{Kind: Displaced, Node: k.id, Err: e})
}

// runsOtherwise says whether an earlier life of the node than that of the hello is linked here and answers: then they
// are two processes, for a node starts when its last process is gone.
func (k *link) runsOtherwise(h *hello) bool {
	p := k.pair.Load()
	if p == nil || p.life == h.life || p.life.disk != h.disk {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, probeWait)
	defer cancel()
	_, err := p.call(ctx, nil)
	var refused *StreamRefusedError
	return err == nil || errors.As(err, &refused)
}
