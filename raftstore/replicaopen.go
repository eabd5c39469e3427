package raftstore

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"

	"weida/segment"
	"weida/wal"
)

// OpenReplica opens this node's replica of a group, in these steps:
//
//  1. The log is opened. A new one begins with a flushed snapshot at the genesis, which holds the members and an empty
//     machine; without members it begins empty and waits for the leader's snapshot.
//  2. The machine gets the newest snapshot, and then every entry that is known to be committed: the commit index that
//     the log has heard of is a hint (W-4). Entries behind it stay undecided.
//  3. Role, Moved; then the group is on its shard, and a group with one voter elects it.
//
// All of it runs on the caller's goroutine; open many groups from many goroutines. Errors: ErrOpen, ErrNoSuchGroup,
// ErrStopped, errors about the genesis; a log that is corrupt or of another version is refused as its own
// *segment.CorruptError or *segment.VersionError, and no other group is affected.
func (h *Host) OpenReplica(g GroupID, m Machine, o ReplicaOptions) (Group, error) {
	if h.o.Transport == nil {
		panic("bug: raftstore: OpenReplica without a Transport")
	}
	if err := h.reserve(g); err != nil {
		return nil, fmt.Errorf("raftstore: open group %d: %w", uint64(g), err)
	}
	r, err := h.openReplica(g, m, o)
	if err != nil {
		h.forget(g, nil)
		return nil, fmt.Errorf("raftstore: open group %d: %w", uint64(g), err)
	}
	return r, nil
}

func (h *Host) openReplica(g GroupID, m Machine, o ReplicaOptions) (*replica, error) {
	if o.Self == 0 || isLocalID(uint64(o.Self)) {
		return nil, fmt.Errorf("%w: replica %d is none", errGenesis, uint64(o.Self))
	}
	if ok, err := h.o.Store.HasLog(g); err != nil {
		return nil, err
	} else if !ok && o.Genesis == nil {
		return nil, ErrNoSuchGroup
	}
	if err := o.Genesis.check(o.Self); err != nil {
		return nil, err
	}
	log, err := h.o.Store.OpenLog(g)
	if err != nil {
		return nil, err
	}
	r := &replica{rid: o.Self}
	r.sit(r, h, g, log, m)
	if err := r.start(o.Genesis); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := h.admit(r); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	r.in.open()
	r.shard.enqueue(r)
	return r, nil
}

var (
	errGenesis = errors.New("no group can begin like that")
	errNoHead  = errors.New("the log ends before the snapshot")
)

// check says whether a group can begin like this.
func (g *Genesis) check(self ReplicaID) error {
	if g == nil || len(g.Members) == 0 {
		return nil
	}
	if err := checkMembers(g.Members); err != nil {
		return fmt.Errorf("%w: %w", errGenesis, err)
	}
	if g.Term == 0 || g.Index == 0 {
		return fmt.Errorf("%w: at term %d and index %d, both have to be at least 1", errGenesis, uint64(g.Term),
			uint64(g.Index))
	}
	for _, m := range g.Members {
		if m.Replica == self {
			return nil
		}
	}
	return fmt.Errorf("%w: replica %d is not among its members; one that joins later has none", errGenesis, uint64(self))
}

// start is steps 1 to 3.
func (r *replica) start(g *Genesis) error {
	if a, ok := r.machine.(Attacher); ok {
		a.Attach(r)
	}
	r.supply.init(r)
	fresh, err := r.takeLog(g)
	if err != nil {
		return err
	}
	if err := r.startRaft(); err != nil {
		return err
	}
	if err := r.replay(); err != nil {
		return err
	}
	// One that was removed is opened all the same until it is discarded: who stays may not know yet that the change is
	// committed, and need its vote. It calls no election, and nobody counts a replica that is none of his members.
	if _, ok := r.nodeOf(r.rid); !ok && len(r.conf.members) > 0 {
		r.removed = true
	}
	if _, ok := r.machine.(Holder); ok {
		r.log.Trim()
	}
	r.settled = true // what was replayed is known to be committed
	r.moved()
	r.eager = fresh && g != nil && len(g.Members) > 0 && g.Members[0].Replica == r.rid
	if (r.eager || len(r.conf.state.Voters) == 1) && r.conf.votes(r.rid) {
		r.campaign = eagerTicks
		r.guard(func() { _ = r.node.Campaign() }) // the election timeout comes anyhow
	}
	return r.halted
}

// takeLog brings machine and configuration to the newest snapshot, and makes that if the group begins here.
func (r *replica) takeLog(g *Genesis) (fresh bool, err error) {
	owned, err := r.owned()
	if err != nil {
		return false, err
	}
	if owned {
		return false, r.adopt(g)
	}
	fresh = r.log.Recovered().Snapshot.Index == 0
	if fresh && g != nil && len(g.Members) > 0 {
		if err := r.begin(g); err != nil {
			return fresh, err
		}
	}
	return fresh, r.restore()
}

// begin makes the snapshot with which every replica of a new group begins.
func (r *replica) begin(g *Genesis) error {
	w, err := r.log.NewSnapshot(wal.Mark{Term: g.Term, Index: g.Index})
	if err != nil {
		return err
	}
	head := newConfig(g.Index, g.Members).head()
	head.Empty = true
	if _, err := writeSnapshot(w, &head, nil); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := w.Commit(); err != nil {
		return err
	}
	return r.log.Advance()
}

// restore gives the newest snapshot to the machine and takes the configuration from it.
func (r *replica) restore() error {
	r.conf = &config{}
	s, err := r.log.OpenSnapshot()
	if errors.Is(err, wal.ErrAbsent) {
		r.store.conf, r.store.now = r.conf, r.conf
		return nil
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	err = errors.Join(r.restoreFrom(s), s.Close())
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", s.Mark().Index, err)
	}
	return nil
}

// restoreFrom makes a snapshot the state of the machine.
func (r *replica) restoreFrom(s *wal.SnapshotReader) error {
	f, err := readSnapshot(s)
	if err != nil {
		return err
	}
	r.last = s.Mark()
	if r.last.Index > r.log.Last().Index {
		return errNoHead
	}
	r.conf = &config{index: r.last.Index, term: r.last.Term, state: f.head.Conf, members: f.head.Members}
	r.store.snap, r.store.conf, r.store.now = r.last, r.conf, r.conf
	r.snap.taken, r.snap.done = r.last.Index, r.last.Index
	r.marks.Applied, r.marks.Committed = r.last.Index, r.last.Index
	if f.head.Empty {
		return nil // the machine is as it was made
	}
	holder, ok := r.machine.(Holder)
	if !ok {
		return errNoHolder
	}
	for {
		run, ok, err := f.nextRun()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if run.large.Large {
			r.noteLarge(run.large)
		}
	}
	if err := r.machine.Restore(f); err != nil {
		return err
	}
	holder.Bodies(func(ref BodyRef) bool {
		r.log.Retain(ref)
		return true
	})
	return nil
}

// startRaft makes raft of what the log says.
func (r *replica) startRaft() error {
	rec := r.log.Recovered()
	last := r.log.Last()
	r.store.log, r.store.wanted = r.log, &r.snap.wanted
	r.store.hard = r.log.HardState()
	if r.store.hard.Term < last.Term {
		r.store.hard = wal.HardState{Term: last.Term}
	}
	if err := r.findChanges(); err != nil {
		return err
	}
	r.store.hint = min(max(rec.Commit, r.store.snap.Index, r.decided()), last.Index)
	r.hard.want = r.store.hard
	r.term, r.commit = r.store.hard.Term, r.store.hint
	r.marks.Written, r.marks.Flushed = last.Index, r.log.Flushed().Index
	o := r.host.o
	ok := r.guard(func() {
		var err error
		r.node, err = raft.NewRawNode(&raft.Config{
			ID:                        uint64(r.rid),
			ElectionTick:              o.ElectionTicks,
			HeartbeatTick:             o.HeartbeatTicks,
			Storage:                   &r.store,
			Applied:                   uint64(r.last.Index),
			AsyncStorageWrites:        true,
			MaxSizePerMsg:             raftMessageBytes,
			MaxCommittedSizePerReady:  applyBytes,
			MaxUncommittedEntriesSize: uncommittedBytes,
			MaxInflightMsgs:           inflightMessages,
			MaxInflightBytes:          inflightBytes,
			CheckQuorum:               true,
			PreVote:                   true,
			Logger:                    quietLogger{},
			DisableProposalForwarding: true,
			StepDownOnRemoval:         true,
		})
		if err != nil {
			panic("bug: raftstore: raft refuses its configuration: " + err.Error())
		}
	})
	if !ok {
		return r.halted
	}
	return nil
}

// decided is the last change of configuration in the log that is known to be committed, because another one stands
// behind it: a leader begins a change only when it has applied the one before. The commit index that the log has
// heard of may be lower, and a replica that took up an older configuration than one it has acted upon could be elected
// by a majority that is none any more.
func (r *replica) decided() Index {
	if n := len(r.changes); n > 1 && !off.decided {
		return r.changes[n-2].index
	}
	return 0
}

const (
	// applyBytes bounds the entries that are applied at a time.
	applyBytes = 1 << 20
	// uncommittedBytes bounds the entries that a leader has appended and that are not committed.
	uncommittedBytes = 16 << 20
	// inflightMessages and inflightBytes bound what is sent to a member and not answered.
	inflightMessages = 256
	inflightBytes    = 4 << 20
)

// findChanges looks for changes of configuration among the entries behind the snapshot.
func (r *replica) findChanges() error {
	end := r.log.Last().Index + 1
	for i := r.last.Index + 1; i < end; {
		entries, err := r.log.Entries(i, end, replayBytes)
		if err != nil {
			return fmt.Errorf("entry %d: %w", uint64(i), err)
		}
		for _, e := range entries {
			if e.Type == segment.EntryNormal {
				continue
			}
			c, err := parseChange(e.Data)
			if err != nil {
				return fmt.Errorf("entry %d: %w", uint64(e.Index), err)
			}
			r.changes = append(r.changes, pendingConfig{index: e.Index, members: c.members})
		}
		i += Index(len(entries))
	}
	return nil
}

// replay applies what is known to be committed.
func (r *replica) replay() error {
	var p plan
	for {
		before := r.last.Index
		r.ready()
		r.apply(&p)
		if r.halted != nil {
			return r.halted
		}
		if r.last.Index == before {
			return nil
		}
	}
}

// holds reports whether the log has a body that an entry names, or a tombstone for it.
func (r *replica) holds(c segment.Commit) bool {
	ok, err := r.log.Holds(c)
	if err != nil {
		r.halt(err)
	}
	return ok
}
