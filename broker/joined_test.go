package broker

import (
	"testing"

	"weida/raftstore"
)

// Whatever bit of the file flips, and wherever it is cut, the id of a node's replica of the control log is the one that
// was given to it, or is not known: with another one it would vote as somebody else (matrix 13). One flipped bit is
// mended.
func TestJoinedFileOneBit(t *testing.T) {
	const id = raftstore.ReplicaID(2)
	whole := joinedText(id)
	if got, repair := joinedID(whole); got != id || repair {
		t.Fatalf("%d, to be repaired: %v", got, repair)
	}
	for bit := range 8 * len(whole) {
		b := append([]byte(nil), whole...)
		b[bit/8] ^= 1 << (bit % 8)
		if got, repair := joinedID(b); got != id || !repair {
			t.Errorf("bit %d is another one: %d, to be repaired: %v", bit, got, repair)
		}
	}
	for n := range whole {
		if got, repair := joinedID(whole[:n]); got != 0 && (got != id || !repair) {
			t.Errorf("%d bytes are left: %d, to be repaired: %v", n, got, repair)
		}
	}
}
