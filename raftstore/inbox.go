package raftstore

import (
	"errors"
	"sync"
)

// proposal is one batch that was taken.
type proposal struct {
	batch *Batch
	size  int // Batch.Size
}

// inbox is where proposals of one group wait, from Propose until they are answered. Its bound covers
// both those not yet seen by the shard and those the shard could not yet write.
type inbox struct {
	mu sync.Mutex
	// guarded by mu
	closed    error // why nothing more is taken
	arrived   []proposal
	proposals int // taken and not yet answered
	messages  int
	bytes     int64
}

// put takes a proposal, or says why not. A batch is taken whole or not at all; one that alone is
// above the bound on messages is taken when nothing else waits.
func (in *inbox) put(p proposal, maxMessages int, maxBytes int64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed != nil {
		return in.closed
	}
	n := len(p.batch.Items)
	if in.messages > 0 && in.messages+n > maxMessages || in.bytes > 0 && in.bytes+int64(p.size) > maxBytes {
		return ErrFull
	}
	in.proposals++
	in.messages += n
	in.bytes += int64(p.size)
	in.arrived = append(in.arrived, p)
	return nil
}

// take moves what arrived behind pending and returns it. An emptied pending is swapped, not copied.
func (in *inbox) take(pending []proposal) []proposal {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(pending) == 0 {
		in.arrived, pending = pending, in.arrived
		return pending
	}
	pending = append(pending, in.arrived...)
	clear(in.arrived)
	in.arrived = in.arrived[:0]
	return pending
}

// answered gives the place of a proposal back.
func (in *inbox) answered(p proposal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.proposals--
	in.messages -= len(p.batch.Items)
	in.bytes -= int64(p.size)
	if in.proposals < 0 || in.messages < 0 || in.bytes < 0 {
		panic("bug: raftstore: a proposal was answered twice")
	}
}

// close refuses everything from now on; the first reason stays.
func (in *inbox) close(why error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed == nil || errors.Is(in.closed, errOpening) {
		in.closed = why
	}
}

// open takes proposals from now on, unless a stop came in between.
func (in *inbox) open() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if errors.Is(in.closed, errOpening) {
		in.closed = nil
	}
}

// waiting counts the proposals not yet answered.
func (in *inbox) waiting() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.proposals
}

// shrink gives idle memory back.
func (in *inbox) shrink() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.arrived) == 0 {
		in.arrived = nil
	}
}

// refusal is why nothing is taken, nil if something may be.
func (in *inbox) refusal() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.closed
}
