package raftstore

import (
	"errors"

	"weida/segment"
	"weida/wal"
)

// snapshotState is the group's snapshot on its way to the disk:
//
//	due -> (content being written) -> written -> (log flushed up to it) -> committed -> log trimmed
//
// The content is taken at the applied entry, which may not be flushed yet. It is committed only once it
// is: a snapshot ahead of the log would, after a power cut, hold what the log has lost.
type snapshotState struct {
	wanted bool  // whatever it costs: to bring a member up
	again  bool  // that is also where there is one of the same state, which is damaged
	grown  int64 // cost of what was written since the last one
	taken  Index // of the last one, tried or found
	done   Index // of the last one that is committed
	at     int64 // when it was begun, on the host's clock
	held   bool  // the host's slot is ours
	mark   wal.Mark
	writer *wal.SnapshotWriter // content is written, not committed; set by the worker
	large  map[BodyRef]int64   // lengths of live large bodies
	freed  int64               // of large bodies released since the last snapshot
}

// snapshotDue reports whether a snapshot is worth its cost, and then takes the host's slot for it.
func (o *seat) snapshotDue() bool {
	s := &o.snap
	if again := s.wanted && (o.marks.Applied > s.done || s.again); s.held || o.marks.Applied == s.taken && !again {
		return false
	}
	if _, ok := o.machine.(Holder); !ok {
		return false
	}
	limit := o.host.o.SnapshotBytes
	if o.givesRoom() {
		limit = 1
	}
	if !s.wanted && s.freed < limit && (s.grown < limit || !o.couldTrim()) {
		return false
	}
	if !o.host.takeSnapshotSlot() {
		return false
	}
	if !o.as.maySnapshot() {
		o.host.freeSnapshotSlot()
		return false
	}
	s.held = true
	return true
}

// snapshotPauseTicks is the least time between snapshots that are taken for want of room.
const snapshotPauseTicks = 10

// givesRoom reports whether a snapshot is due for want of room on the disk, whatever it costs: what is settled takes
// room until one covers it.
func (o *seat) givesRoom() bool {
	return o.host.DiskOf(o.host.o.Node)&DiskNoRoom != 0 && o.releases.any() && !off.givesRoom &&
		o.host.clock.Load()-o.snap.at >= snapshotPauseTicks
}

// couldTrim reports whether a snapshot might let a segment go: there is more than the one in use, and
// bodies were settled since the last snapshot, or there are none.
func (o *seat) couldTrim() bool {
	st := o.log.Stats()
	return st.Segments > 1 && (o.releases.any() || st.LiveBodies == 0)
}

// beginSnapshot takes the machine's view and lets a worker write it.
func (o *seat) beginSnapshot() {
	s := &o.snap
	s.mark, s.taken, s.grown, s.freed, s.wanted, s.again = o.last, o.last.Index, 0, 0, false, false
	s.at = o.host.clock.Load()
	o.releases.seal()
	src := o.as.wrapSnapshot(o.machine.Snapshot())
	o.begin(snapshotTask, func() error {
		w, err := o.log.NewSnapshot(s.mark)
		if err != nil {
			return err
		}
		if _, err := src.WriteTo(w); err != nil {
			return errors.Join(err, w.Abort())
		}
		s.writer = w
		return nil
	})
}

func (o *seat) snapshotWritten(err error) {
	if err != nil {
		o.snapshotFailed(err)
	}
}

// snapshotCommitted trims: what the snapshot covers and nobody holds may go.
func (o *seat) snapshotCommitted(err error) {
	s := &o.snap
	s.writer = nil
	if err != nil {
		o.snapshotFailed(err)
		return
	}
	o.endSnapshot()
	s.done = s.mark.Index
	o.snapshotMended()
	o.as.snapshotTaken()
	o.releases.drop(o.log.Release)
	o.log.Trim()
	o.host.o.Event(Event{Kind: SnapshotTaken, Group: o.id, Index: s.mark.Index})
}

// An owner's snapshot is the machine's bytes and nothing else.
func (o *owner) wrapSnapshot(src Source) Source { return src }
func (o *owner) maySnapshot() bool              { return true }
func (o *owner) snapshotOver()                  {}
func (o *owner) snapshotTaken()                 {}

func (o *seat) snapshotFailed(err error) {
	o.endSnapshot()
	o.host.o.Event(Event{Kind: SnapshotFailed, Group: o.id, Index: o.snap.mark.Index, Err: err})
}

// abortSnapshot gives up a snapshot of a group that turned read-only.
func (o *seat) abortSnapshot() {
	w := o.snap.writer
	if w == nil {
		o.endSnapshot()
		return
	}
	o.snap.writer = nil
	o.begin(abortTask, w.Abort)
}

// endSnapshot gives the host's slot back.
func (o *seat) endSnapshot() {
	if o.snap.held {
		o.snap.held = false
		o.host.freeSnapshotSlot()
		o.as.snapshotOver()
	}
}

// retain counts an applied body as live.
func (o *seat) retain(c segment.Commit) {
	o.log.Retain(c.Ref)
	if c.Large {
		o.noteLarge(c)
	}
}

// noteLarge notes how much space a large body takes.
func (o *seat) noteLarge(c segment.Commit) {
	if o.snap.large == nil {
		o.snap.large = make(map[BodyRef]int64)
	}
	o.snap.large[c.Ref] = c.Length
}

// Release implements Group.
func (o *seat) Release(ref BodyRef) {
	o.releases.add(ref)
	if n, ok := o.snap.large[ref]; ok {
		delete(o.snap.large, ref)
		o.snap.freed += n
	}
}
