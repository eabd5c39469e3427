package peer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// displaced waits until a node says that it is not the one that the others know.
func (n *node) displaced() *DisplacedError {
	n.t.Helper()
	var e *DisplacedError
	n.got.until(n.t, "that it is displaced", func() bool {
		for _, ev := range n.got.events {
			if ev.Kind == Displaced && errors.As(ev.Err, &e) {
				return true
			}
		}
		return false
	})
	return e
}

// refusedAt waits until a node was turned away by this one, or turned it away.
func (n *node) refusedAt(other *node) {
	n.t.Helper()
	n.got.until(n.t, "a refusal", func() bool {
		for _, ev := range n.got.events {
			if ev.Kind == Refused && ev.Node == other.o.Node {
				return true
			}
		}
		return false
	})
}

// Matrix 33: a directory that was put back from a copy finds out by the first node that it meets, whatever it counts
// to, and whichever side dials; nothing of it is taken.
func TestDirectoryPutBackIsDisplaced(t *testing.T) {
	for i := range 2 {
		for _, starts := range []uint64{0, 1, 2} {
			t.Run(fmt.Sprintf("node %d, %d starts too many", i+1, starts), func(t *testing.T) {
				r := newRig(t, 2, nil)
				other := r.nodes[1-i]
				registered := r.nodes[i].o
				n := r.again(i, func(o *Options) {
					o.Incarnation = registered.Incarnation + starts
					o.Nonce = [16]byte{0xff}
					o.Follows = func(n uint64, _ [16]byte) bool { return n < registered.Incarnation }
				})
				known := n.as()
				known.Addresses, known.Disk = []string{n.addr()}, registered.Disk
				known.Incarnation, known.Nonce = registered.Incarnation, registered.Nonce
				other.set(known)
				n.set(other.as())
				e := n.displaced()
				if e.By != other.o.Node || e.Incarnation != n.o.Incarnation || !strings.Contains(e.Error(), "weida node remove") {
					t.Errorf("%+v: %v", e, e)
				}
				other.refusedAt(n)
				if s := other.stats(n); s.Up || s.Incarnation != 0 {
					t.Errorf("it was taken for the node: %+v", s)
				}
			})
		}
	}
}

// What a node has spoken to counts as known where nobody has registered anything.
func TestPeersRemember(t *testing.T) {
	for i := range 2 {
		r := newRig(t, 2, nil)
		r.meet()
		other, gone := r.nodes[1-i], r.nodes[i].o
		n := r.again(i, func(o *Options) {
			o.Incarnation += 2
			o.Follows = func(n uint64, _ [16]byte) bool { return n < gone.Incarnation }
		})
		n.set(other.as())
		if e := n.displaced(); e.Known != gone.Incarnation {
			t.Errorf("%+v", e)
		}
	}
}

// Matrix 32: a copy of the directory of a node that runs is turned away as long as that one answers, though it was
// started later; the one that runs keeps its link.
func TestTwinOfARunningNode(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint("node ", i+1), func(t *testing.T) {
			r := newRig(t, 2, nil)
			r.meet()
			first, other := r.nodes[i], r.nodes[1-i]
			addr := "127.0.0.1:0"
			twin := r.next(i, addr, nil)
			twin.set(other.as())
			if e := twin.displaced(); !e.Twin {
				t.Errorf("%+v", e)
			}
			other.refusedAt(twin)
			if s := other.stats(first); !s.Up || s.Incarnation != first.o.Incarnation {
				t.Errorf("the copy took its place: %+v", s)
			}
			twin.close()
			first.close() // it is gone: who starts now comes after it
			next := r.next(i, addr, nil)
			known := next.as()
			other.set(known)
			next.set(other.as())
			other.got.await(t, fmt.Sprintf("up %d in %d", next.o.Node, next.o.Incarnation))
		})
	}
}
