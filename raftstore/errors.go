package raftstore

import (
	"errors"
	"fmt"
)

// Conditions of opening and of proposals that can never be taken, tested with errors.Is.
var (
	// ErrNoSuchGroup means this node has no such group.
	ErrNoSuchGroup = errors.New("this node has no such group; nothing was made; create it or ask its owner")
	// ErrOpen means the group is open on this host already.
	ErrOpen = errors.New("the group is open already")
	// ErrTooLarge means a batch above MaxBatchBytes or an inline body above segment.InlineMax: nothing was
	// stored, and the same batch will never be taken.
	ErrTooLarge = errors.New("the batch is larger than one write may be; nothing was stored; " +
		"send fewer messages at once, and a large body in a file of its own")
	// ErrBody means that a batch names a large body that is unfinished, of another group, or proposed already.
	ErrBody = errors.New("the batch names a large body that is not finished or not free; nothing was stored")
)

// ErrForgot means that a replica's log ends before entries that it has confirmed to its leader: its directory was put
// back to an older state. It is read-only, votes no more, and must not be counted among those that hold a message.
var ErrForgot = errors.New("the log ends before what this replica has confirmed: its data directory was put back to " +
	"an older state; the others have what is missing; remove this node with what is on its disk, and add it anew")

// errOpening refuses proposals of a machine that is still being replayed.
var errOpening = errors.New("the group is being opened; nothing was stored; try again")

func readOnly(g GroupID, cause error) error {
	return fmt.Errorf("raftstore: group %d: %w: %w", uint64(g), ErrReadOnly, cause)
}
