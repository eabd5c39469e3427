package raftstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"weida/segment"
	"weida/wal"
)

// This file holds what happens to a log when its group changes its kind.
//
//	owner ──▶ replica   OpenReplica with a Genesis of this replica alone: what the owner wrote is committed. The log
//	                    gets an empty entry of a higher term, flushed, and a snapshot at it that names the one member.
//	                    Others are added to that group as learners.
//	replica ──▶ owner   OpenOwner with Dissolved, when the group consists of this replica alone and the change to that
//	                    is applied here: what the log holds was committed by it, or can be by it alone. An empty entry
//	                    of a higher term and a snapshot without members make it an owner's.
//
// Each is one committed snapshot: a crash before it leaves what was, and the same call does it again.

// Why a log is not made one of the other kind.
var (
	errNotDissolved = errors.New("the log is a replica's; its group has to be dissolved to this node before it has an " +
		"owner")
	errOwnersLog = errors.New("the log is an owner's; a group begins with its owner as the only member")
)

// heritage is what a log says about the group that it belonged to.
type heritage struct {
	replicas bool     // it was a replica's
	members  []Member // of the last configuration in it
	joint    bool     // whose change was not over
}

// load gives the machine everything that an owner's log holds: the newest snapshot and every entry behind it, for
// written is committed.
func (o *seat) load() (h heritage, err error) {
	if err := o.loadSnapshot(&h); err != nil {
		return h, err
	}
	return h, o.loadEntries(&h)
}

func (o *seat) loadSnapshot(h *heritage) error {
	r, err := o.log.OpenSnapshot()
	if errors.Is(err, wal.ErrAbsent) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := errors.Join(o.loadContent(r, h), r.Close()); err != nil {
		return fmt.Errorf("snapshot %d: %w", r.Mark().Index, err)
	}
	o.last = r.Mark()
	if last := o.log.Last(); o.last.Index > last.Index {
		return fmt.Errorf("snapshot %d: the log ends at %d", o.last.Index, last.Index)
	}
	o.snap.taken, o.snap.done = o.last.Index, o.last.Index
	if holder, ok := o.machine.(Holder); ok {
		holder.Bodies(func(ref BodyRef) bool {
			o.log.Retain(ref)
			return true
		})
	}
	return nil
}

// loadContent makes a snapshot, of an owner or of a replica, the state of the machine.
func (o *seat) loadContent(r io.Reader, h *heritage) error {
	b := bufio.NewReader(r)
	var src Source = source{b}
	if begin, err := b.Peek(len(snapshotMagic)); err == nil && string(begin) == snapshotMagic {
		f, err := readSnapshot(b)
		if err != nil {
			return err
		}
		c := config{state: f.head.Conf, members: f.head.Members}
		h.replicas, h.members, h.joint = true, c.target(), c.joint()
		if f.head.Empty {
			return nil
		}
		src = f
	}
	if _, ok := o.machine.(Holder); !ok {
		return errNoHolder
	}
	return o.machine.Restore(src)
}

// loadEntries applies every entry behind the snapshot.
func (o *seat) loadEntries(h *heritage) error {
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
		for i := range entries {
			if err := o.loadEntry(&p, &entries[i], h); err != nil {
				return fmt.Errorf("entry %d: %w", uint64(entries[i].Index), err)
			}
		}
	}
	return nil
}

func (o *seat) loadEntry(p *plan, e *segment.Entry, h *heritage) error {
	o.snap.grown += int64(len(e.Data))
	if e.Type == segment.EntryNormal {
		return o.applyRead(p, e.Term, e.Index, e.Data)
	}
	c, err := parseChange(e.Data)
	if err != nil {
		return err
	}
	if h.replicas, h.joint = true, c.members != nil; h.joint {
		h.members = c.members
	}
	return o.applyRead(p, e.Term, e.Index, nil)
}

var errNoHolder = errors.New("the machine does not tell which bodies its state holds")

// source is a snapshot of the store as the machine sees it.
type source struct{ r io.Reader }

// WriteTo implements Source. Every byte is verified before it is handed on.
func (s source) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, s.r) }

// turn ends the log as it was: an empty entry of term t, flushed, and a snapshot at it with which the other kind
// begins.
// The hard state of term t is durable, for the flush of the entry is waited for by making it so.
func (o *seat) turn(t Term, wrap func(Source) Source) error {
	if _, ok := o.machine.(Holder); !ok {
		return errNoHolder
	}
	m := wal.Mark{Term: t, Index: o.log.Last().Index + 1}
	if err := o.appendNow(&wal.Append{Entries: []segment.Entry{{Term: t, Index: m.Index}}}); err != nil {
		return fmt.Errorf("entry %d: %w", uint64(m.Index), storeError(err))
	}
	o.log.RequestFlush()
	// Mostly the round that makes this durable is the one of the log as well; a log whose last flush is still running has
	// to wait for another one.
	for first := true; first || o.log.Flushed() != m; first = false {
		if err := o.log.SetHardState(wal.HardState{Term: t}); err != nil {
			return fmt.Errorf("raise the term to %d: %w", uint64(t), storeError(err))
		}
		if err := o.log.Advance(); err != nil {
			return err
		}
	}
	if err := o.applyRead(&plan{}, m.Term, m.Index, nil); err != nil {
		return err
	}
	o.releases.seal()
	w, err := o.log.NewSnapshot(m)
	if err != nil {
		return err
	}
	if _, err := wrap(o.machine.Snapshot()).WriteTo(w); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := w.Commit(); err != nil {
		return err
	}
	o.snap.taken, o.snap.done, o.snap.grown = m.Index, m.Index, 0
	if err := o.log.Advance(); err != nil {
		return err
	}
	o.releases.drop(o.log.Release)
	return nil
}

// appendNow appends while the group is being opened: what the log has to do first is done here.
func (o *seat) appendNow(a *wal.Append) error {
	for {
		err := o.log.Append(a)
		if !errors.Is(err, wal.ErrNotReady) {
			return err
		}
		j := o.log.Job()
		if j == nil {
			return err
		}
		if err := j.Run(); err != nil {
			return err
		}
		if err := o.log.Advance(); err != nil {
			return err
		}
	}
}

// adopt makes a replica's log of an owner's.
func (r *replica) adopt(g *Genesis) error {
	if g == nil || len(g.Members) != 1 {
		return errOwnersLog
	}
	h, err := r.load()
	if err != nil {
		return err
	}
	if h.replicas {
		return fmt.Errorf("%w, and a change of members stands in it", errOwnersLog)
	}
	epoch := max(r.log.HardState().Term, r.log.Last().Term) + 1
	r.conf = newConfig(r.log.Last().Index+1, g.Members)
	if err := r.turn(epoch, r.wrapSnapshot); err != nil {
		return err
	}
	r.store.snap, r.store.conf, r.store.now = r.last, r.conf, r.conf
	r.marks.Applied, r.marks.Committed = r.last.Index, r.last.Index
	return nil
}

// owned reports whether the log is an owner's: it has entries, and no snapshot that names members.
func (r *replica) owned() (bool, error) {
	s, err := r.log.OpenSnapshot()
	if errors.Is(err, wal.ErrAbsent) {
		return r.log.Last().Index > 0, nil
	}
	if err != nil {
		return false, fmt.Errorf("snapshot: %w", err)
	}
	begin := make([]byte, len(snapshotMagic))
	_, err = io.ReadFull(s, begin)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return string(begin) != snapshotMagic, errors.Join(err, s.Close())
}
