package raftstore

import (
	"errors"
	"fmt"
	"io"

	"weida/segment"
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
	if err := o.start(); err != nil {
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
func (o *owner) start() error {
	if a, ok := o.machine.(Attacher); ok {
		a.Attach(o)
	}
	if err := o.restore(); err != nil {
		return err
	}
	if err := o.replay(); err != nil {
		return err
	}
	if _, ok := o.machine.(Holder); ok {
		o.log.Trim() // what is live is known now; what a crash kept from going may go
	}
	last := o.log.Last()
	o.term = max(o.log.HardState().Term, last.Term) + 1
	if err := o.log.SetHardState(wal.HardState{Term: o.term}); err != nil {
		return fmt.Errorf("raise the epoch to %d: %w", uint64(o.term), storeError(err))
	}
	o.log.DropUnnamed(o.term)
	o.machine.Role(Owner, o.term, Leader{Node: o.host.o.Node})
	o.marks = Marks{
		Term:      o.term,
		Written:   last.Index,
		Flushed:   o.log.Flushed().Index,
		Committed: last.Index,
		Applied:   last.Index,
	}
	o.status = Status{Group: o.id, Role: Owner}
	o.moved()
	return nil
}

// restore gives the newest snapshot to the machine.
func (o *owner) restore() error {
	r, err := o.log.OpenSnapshot()
	if errors.Is(err, wal.ErrAbsent) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	holder, ok := o.machine.(Holder)
	if !ok {
		return errors.Join(fmt.Errorf("snapshot %d: %w", r.Mark().Index, errNoHolder), r.Close())
	}
	err = errors.Join(o.machine.Restore(source{r}), r.Close())
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", r.Mark().Index, err)
	}
	o.last = r.Mark()
	if last := o.log.Last(); o.last.Index > last.Index {
		return fmt.Errorf("snapshot %d: the log ends at %d", o.last.Index, last.Index)
	}
	o.snap.taken, o.snap.done = o.last.Index, o.last.Index
	holder.Bodies(func(ref BodyRef) bool {
		o.log.Retain(ref)
		return true
	})
	return nil
}

// replay applies every entry behind the snapshot.
func (o *owner) replay() error {
	var p plan
	end := o.log.Last().Index + 1
	for o.last.Index+1 < end {
		entries, err := o.log.Entries(o.last.Index+1, end, replayBytes)
		if err != nil {
			return fmt.Errorf("entry %d: %w", uint64(o.last.Index+1), err)
		}
		if len(entries) == 0 {
			panic("bug: raftstore: the log gave no entry of a range that is not empty")
		}
		for _, e := range entries {
			if e.Type != segment.EntryNormal {
				return fmt.Errorf("entry %d: %w", uint64(e.Index), ErrNoGroup)
			}
			if err := o.applyRead(&p, e.Term, e.Index, e.Data); err != nil {
				return fmt.Errorf("entry %d: %w", uint64(e.Index), err)
			}
			o.snap.grown += int64(len(e.Data))
		}
	}
	return nil
}

var errNoHolder = errors.New("the machine does not tell which bodies its state holds")

// source is a snapshot of the store as the machine sees it.
type source struct{ r io.Reader }

// WriteTo implements Source. Every byte is verified before it is handed on.
func (s source) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, s.r) }
