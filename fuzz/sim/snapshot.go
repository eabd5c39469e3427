package main

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"slices"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/segment"
)

// snapshot is the state of a desk as of one moment.
type snapshot struct{ view *queue.View }

var _ raftstore.BodySource = snapshot{}

// WriteTo implements raftstore.Source.
func (s snapshot) WriteTo(w io.Writer) (written int64, err error) {
	s.view.Pieces(func(b []byte) bool {
		var n int
		n, err = w.Write(b)
		written += int64(n)
		return err == nil
	})
	return written, err
}

// Bodies implements raftstore.BodySource.
func (s snapshot) Bodies(yield func(raftstore.BodyRef, uint64) bool) {
	s.view.BodyRuns(func(first queue.Ref, n uint64) bool { return yield(bodyRef(first), n) })
}

// LargeBodies implements raftstore.BodySource.
func (s snapshot) LargeBodies(yield func(segment.Commit) bool) {
	s.view.LargeBodies(func(r queue.Ref, large queue.Large) bool { return yield(commitOf(r, &large)) })
}

// Snapshot implements raftstore.Machine.
func (d *desk) Snapshot() raftstore.Source { return snapshot{d.state.View()} }

// Restore implements raftstore.Machine.
func (d *desk) Restore(s raftstore.Source) error {
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		return err
	}
	state, err := queue.Restore(b.Bytes())
	if err != nil {
		return err
	}
	d.state, d.last = state, 0 // what comes next says where it stands
	d.check.restored(d)
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
