package raftstore

import (
	"errors"
	"fmt"
	"slices"

	"weida/segment"
	"weida/wal"
)

// This file holds what a group does about damage on its disk: what a scrub or a reader found is noted, never served,
// never a reason to delete, and mended.
//
//	body       a replica gets it from another one, by ref, proved as always, and writes it again under its ref
//	entry      a snapshot takes its place, and the log begins behind it
//	segment    one that an opening would refuse is copied out and goes
//	snapshot   a newer one is taken
//	manifest, hard state   are written anew from memory
//
// What is damaged in the segment that is appended to is left behind first, because only a sealed segment opens with it.
// With one replica a damaged body stays damaged: its message refuses to be read, the others are not affected.
//
// A replica that is not mended within MendGraceTicks hands its leadership over, if it has it; after MendFailTicks
// Status says that it has to be made anew.

const (
	// MendGraceTicks is how long a leader may be damaged, mendAsideTicks how long it then waits before it hands over
	// again, if it was elected all the same.
	MendGraceTicks = 10
	mendAsideTicks = 100
	// MendFailTicks is after how long a replica that could not mend itself says so.
	MendFailTicks = 100
	// hurtsMax bounds what was found and is not taken up yet; what is more is found again.
	hurtsMax = 4096
)

// Damage says what of a group's disk is not what was written there, as far as it is known.
type Damage struct {
	Found  uint64 // bodies, entries and files since the group was opened
	Mended uint64
	Open   int // found and not mended
	// Reason is why the one that is open for longest can't be read; nil if none is.
	Reason error
	// Scrubbed counts bytes read again, Passes how often all of it was.
	Scrubbed uint64
	Passes   uint64
	// SincePass is how many ticks ago the last of these ended; -1 if none did.
	SincePass int64
}

// DamagedError says that a body on this node's disk is damaged. Nothing of it is served.
type DamagedError struct {
	Group GroupID
	Ref   BodyRef
	// Alone says that there is no other replica to get it from.
	Alone bool
	Err   error // names file and position
}

func (e *DamagedError) Error() string {
	do := "this replica gets it from another one; try again"
	if e.Alone {
		do = "the group has this one replica: the message stays, unsettled and unreadable, and everything else goes on; " +
			"release or reject it, or stop the node and put back a copy of the group's directory"
	}
	return fmt.Sprintf("raftstore: group %d: body %v is damaged on this node's disk: %v; %s", uint64(e.Group), e.Ref,
		e.Err, do)
}

// Unwrap gives what names file and position.
func (e *DamagedError) Unwrap() error { return e.Err }

// hurt is damage on its way to the shard, found in a pass or, by a reader, after so many.
type hurt struct {
	wal.Damage
	pass uint64
}

// mends is the damage of one group, owned by its shard.
type mends struct {
	open   []*mend // oldest first
	found  uint64
	mended uint64
	aside  int64 // tick from which on the leadership may be handed over again
	failed bool  // an event told that it has to be made anew
}

// mend is one damage that is being mended.
type mend struct {
	hurt
	since   int64            // tick
	looked  bool             // for the entry that names the body
	asked   bool             // the log was asked to let it go
	covered bool             // a snapshot was taken since
	end     segment.Position // the body was written again before this place; zero: it was not
}

// same reports whether both are about one thing.
func (m *mend) same(d *wal.Damage) bool {
	if m.Kind != d.Kind {
		return false
	}
	switch d.Kind {
	case wal.DamagedBody, wal.DamagedLarge:
		return m.Ref == d.Ref
	case wal.DamagedEntry:
		return m.Index == d.Index
	default:
		return m.Path == d.Path
	}
}

// describe says what is damaged, where, and how that shows. What to do is nobody's business while the group does it.
func describe(d *wal.Damage) error {
	what := string(d.Kind)
	if d.Ref != (BodyRef{}) {
		what += " " + d.Ref.String()
	}
	cause := d.Err.Error()
	var corrupt *segment.CorruptError
	if errors.As(d.Err, &corrupt) {
		cause = corrupt.Cause
	}
	return &described{fmt.Sprintf("%s in %s at byte %d: %s; nothing of it is served, nothing was deleted", what, d.Path,
		d.Pos, cause), d.Err}
}

// described is an error in other words.
type described struct {
	text string
	err  error
}

func (e *described) Error() string { return e.text }
func (e *described) Unwrap() error { return e.err }

// hurt notes damage. Any goroutine.
func (o *seat) hurt(d wal.Damage) {
	o.mu.Lock()
	took := len(o.hurts) < hurtsMax
	if took {
		o.hurts = append(o.hurts, hurt{d, o.scrub.pass})
	}
	o.mu.Unlock()
	if took {
		o.shard.enqueue(o.as)
	}
}

// takeDamage takes up what was found, and lets go of what a whole pass did not find any more.
func (o *seat) takeDamage(now int64) {
	o.mu.Lock()
	list, done := o.hurts, o.scrub.done
	o.hurts = nil
	o.mu.Unlock()
	for i := range list {
		o.noteDamage(&list[i], now)
	}
	for _, m := range slices.Clone(o.mends.open) {
		if m.pass < done {
			o.mendedOne(m)
		}
	}
}

func (o *seat) noteDamage(h *hurt, now int64) {
	if !h.Needed {
		if h.Segment == 0 || o.log.HasSegment(h.Segment, true) || !o.log.HasSegment(h.Segment, false) {
			return // it goes with its file, and no opening looks at it
		}
		h.Kind, h.Needed = wal.DamagedFraming, true
	}
	for _, m := range o.mends.open {
		if m.same(&h.Damage) {
			m.pass = max(m.pass, h.pass)
			if m.Commit.Ref == (BodyRef{}) {
				m.Commit, m.Index = h.Commit, max(m.Index, h.Index)
			}
			return
		}
	}
	o.mends.found++
	o.host.scrub.found.Add(1)
	o.mends.open = append(o.mends.open, &mend{hurt: *h, since: now})
	if h.Kind == wal.DamagedLarge {
		o.log.MarkDamaged(h.Ref)
	}
	if h.Kind == wal.DamagedSmall {
		o.log.MendSmall()
	}
	o.host.o.Event(Event{Kind: DamageFound, Group: o.id, Index: h.Index, Err: describe(&h.Damage)})
}

// mendedOne closes one: it is whole again, or nothing needs it any more.
func (o *seat) mendedOne(m *mend) {
	o.mends.open = slices.DeleteFunc(o.mends.open, func(x *mend) bool { return x == m })
	o.mends.mended++
	o.host.scrub.mended.Add(1)
	o.host.o.Event(Event{Kind: DamageMended, Group: o.id, Index: m.Index, Err: describe(&m.Damage)})
	if len(o.mends.open) == 0 {
		o.mends.failed = false
	}
}

// mendLocal goes on with what needs no other replica. It reports whether something was appended.
func (o *seat) mendLocal() (wrote bool) {
	if len(o.mends.open) == 0 || o.halted != nil || o.stopping || o.closed() || off.mend {
		return false
	}
	for _, m := range slices.Clone(o.mends.open) {
		wrote = o.leaveDamaged(m) || wrote
		if o.mendOne(m) {
			o.mendedOne(m)
		}
	}
	return wrote
}

// leaveDamaged has the log go on behind the segment in which something is damaged.
func (o *seat) leaveDamaged(m *mend) bool {
	if m.Segment == 0 || o.log.Leave(m.Segment) {
		return false
	}
	err := o.log.Append(&wal.Append{})
	if errors.Is(err, wal.ErrNotReady) {
		o.stuck = true
	}
	return err == nil // no room, or worse: that shows by itself
}

// mendOne reports whether nothing is left to do about one.
func (o *seat) mendOne(m *mend) (done bool) {
	switch m.Kind {
	case wal.DamagedBody, wal.DamagedLarge:
		return m.end != segment.Position{} && !o.log.FlushedEnd().Less(m.end) || !o.log.Live(m.Ref)
	case wal.DamagedEntry:
		if m.Index > o.snap.done {
			o.snap.wanted = true
		} else if !m.asked {
			m.asked = true
			o.log.DropThrough(m.Index)
		}
		return o.log.First() > m.Index
	case wal.DamagedIndex:
		if !m.asked {
			m.asked = true
			o.snap.wanted = true
			o.log.Evict(m.Segment)
		}
		return !o.log.HasSegment(m.Segment, false)
	case wal.DamagedFraming:
		return o.log.HasSegment(m.Segment, true) || !o.log.HasSegment(m.Segment, false)
	case wal.DamagedSnapshot:
		if !m.covered && !o.snap.held && !o.snap.wanted {
			m.asked = true
			o.log.RetakeSnapshot(m.Index)
			o.snap.wanted, o.snap.again = true, true
		}
		return m.covered || m.Index < o.snap.done
	case wal.DamagedSmall:
		return !o.log.MendingSmall()
	}
	panic("bug: raftstore: damage of an unknown kind")
}

// snapshotMended says that a snapshot was taken: those that were damaged are not needed.
func (o *seat) snapshotMended() {
	for _, m := range o.mends.open {
		m.covered = m.covered || m.Kind == wal.DamagedSnapshot && m.asked && m.Index <= o.snap.done
	}
}

// damage is what Status says, and why the group can't mend itself; mu is held.
func (o *seat) damage(now int64, alone bool) (d Damage, failed error) {
	d = Damage{Found: o.mends.found, Mended: o.mends.mended, Open: len(o.mends.open)}
	if d.Open == 0 {
		return d, nil
	}
	first := o.mends.open[0]
	d.Reason = describe(&first.Damage)
	if now-first.since < MendFailTicks && !alone {
		return d, nil
	}
	return d, fmt.Errorf("raftstore: group %d: %d damages on this node's disk are not mended, the first: %w",
		uint64(o.id), d.Open, d.Reason)
}
