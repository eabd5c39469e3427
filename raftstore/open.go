package raftstore

import (
	"errors"
	"fmt"

	"weida/wal"
)

// OpenOwner opens a group of which this node is the only replica, in these steps:
//
//  1. The log is opened: what is valid in it is committed, for written is committed here.
//  2. The machine gets the newest snapshot, if there is one, and every entry after it.
//  3. The epoch is raised above every term in the log and flushed: no ref and no (term, index) of an
//     earlier life is ever given out again.
//  4. Role(Owner, epoch) and Moved; then the group is on its shard.
//
// All of it runs on the caller's goroutine; open many groups from many goroutines. Errors: ErrOpen,
// ErrNoSuchGroup, ErrStopped; a log that is corrupt or of another version is refused as its own
// *segment.CorruptError or *segment.VersionError, and no other group is affected.
func (h *Host) OpenOwner(g GroupID, m Machine, opts OwnerOptions) (Group, error) {
	if err := h.reserve(g); err != nil {
		return nil, fmt.Errorf("raftstore: open group %d: %w", uint64(g), err)
	}
	o, err := h.openOwner(g, m, opts)
	if err != nil {
		h.forget(g, nil)
		return nil, fmt.Errorf("raftstore: open group %d: %w", uint64(g), err)
	}
	return o, nil
}

func (h *Host) openOwner(g GroupID, m Machine, opts OwnerOptions) (*owner, error) {
	if !opts.Create {
		if ok, err := h.o.Store.HasLog(g); err != nil {
			return nil, err
		} else if !ok {
			return nil, ErrNoSuchGroup
		}
	}
	log, err := h.o.Store.OpenLog(g)
	if err != nil {
		return nil, err
	}
	o := &owner{}
	o.sit(o, h, g, log, m)
	if err := o.start(opts.Dissolved); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := h.admit(o); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	o.in.open()
	o.shard.enqueue(o) // to be parked if nothing comes
	return o, nil
}

// start is steps 2 to 4 of OpenOwner.
func (o *owner) start(dissolved bool) error {
	if a, ok := o.machine.(Attacher); ok {
		a.Attach(o)
	}
	h, err := o.load()
	if err != nil {
		return err
	}
	if h.replicas && (!dissolved || h.joint || len(h.members) != 1) {
		return errNotDissolved
	}
	if _, ok := o.machine.(Holder); ok {
		o.log.Trim() // what is live is known now; what a crash kept from going may go
	}
	o.term = max(o.log.HardState().Term, o.log.Last().Term) + 1
	if h.replicas {
		if err := o.turn(o.term, o.wrapSnapshot); err != nil {
			return err
		}
	} else if err := o.log.SetHardState(wal.HardState{Term: o.term}); err != nil {
		return fmt.Errorf("raise the epoch to %d: %w", uint64(o.term), storeError(err))
	}
	last := o.log.Last()
	o.log.DropUnnamed(o.term)
	o.status = Status{Group: o.id, Role: Owner}
	o.machine.Role(Owner, o.term, Leader{Node: o.host.o.Node})
	o.marks = Marks{
		Term:      o.term,
		Written:   last.Index,
		Flushed:   o.log.Flushed().Index,
		Committed: last.Index,
		Applied:   last.Index,
	}
	o.moved()
	return nil
}
