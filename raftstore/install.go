package raftstore

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

// install brings a replica up with a snapshot whose content is here. Raft hears of it only when everything is on the
// disk: until then the replica is what it was, and a crash leaves it so.
//
//	content here ─▶ bodies fetched and appended ─▶ flushed ─▶ snapshot committed ─▶ MsgSnap stepped, machine restored
//
// Meanwhile appends are dropped as if the network had lost them. Bodies are appended to the log as it is, retained,
// so that they are there when the log goes on behind the snapshot. While the snapshot is being committed nothing
// else reaches raft: what raft and the log know of each other changes in one step.
type install struct {
	s    *supply
	from *arrivedSnapshot
	run  int    // of from.runs, and
	off  uint64 // the place in it: what comes next
	open []segment.Commit
	here bool             // all bodies are appended, and
	end  segment.Position // what has to be flushed

	committing bool
	ended      taskEnd // guarded by seat.mu
	still      int     // ticks without progress
}

const (
	// installOpen bounds the bodies that are asked for at a time.
	installOpen = 64
	// installLook bounds the bodies that are looked for in the log in one round.
	installLook = 4096
	// installStallTicks is after how many ticks without progress the snapshot is given up.
	installStallTicks = 100
)

var errInstall = errors.New("raftstore: a snapshot was given up; the replica is as it was, and gets another")

// beginInstall takes a snapshot that came, if this replica has use for it.
func (s *supply) beginInstall(a *arrivedSnapshot) {
	r := s.r
	if a.mark.Index <= r.commit {
		s.giveUp(a, nil)
		s.known(a)
		return
	}
	why := r.installable(a)
	if s.install != nil || why != nil {
		s.giveUp(a, why)
		return
	}
	r.wake()
	r.gate.drop()
	if t, err := r.log.Term(a.mark.Index); err == nil && t == a.mark.Term {
		// The log holds all of it. Raft hears that it is committed, and goes on in the log.
		s.giveUp(a, nil)
		r.step(r.snapshotMessage(a))
		return
	}
	s.install = &install{s: s, from: a}
}

// known tells the leader that a snapshot is older than what is committed here, as raft answers one: a leader that does
// not know it, for what this replica had said was lost with a connection, would send it for ever.
func (s *supply) known(a *arrivedSnapshot) {
	r := s.r
	lead := ReplicaID(r.soft.Lead)
	if off.knownSnapshot || a.mark.Index > r.commit || r.halted != nil || r.stopping || r.closed() || lead == 0 ||
		lead == r.rid || s.frozen() {
		return
	}
	r.wake()
	r.step(r.snapshotMessage(a))
}

// installable says why a snapshot is of no use here.
func (r *replica) installable(a *arrivedSnapshot) error {
	in := false
	for _, m := range a.head.Members {
		in = in || m.Replica == r.rid
	}
	switch {
	case r.halted != nil:
		return r.halted
	case r.stopping || r.closed():
		return ErrStopped
	case r.soft.RaftState == raft.StateLeader:
		return fmt.Errorf("%w: this replica leads", errInstall)
	case a.mark.Index <= r.commit:
		return fmt.Errorf("%w: it is at %d, committed is %d", errInstall, a.mark.Index, r.commit)
	case !r.placed(a.sender, a.from):
		return fmt.Errorf("%w: replica %d is not on node %d", errInstall, a.sender, a.from)
	case !in:
		return fmt.Errorf("%w: replica %d is not in it", errInstall, r.rid)
	}
	return nil
}

// giveUp removes the content of a snapshot.
func (s *supply) giveUp(a *arrivedSnapshot, why error) {
	s.told(a.writer.Abort())
	s.landing.leave()
	if why != nil {
		s.refused(a, why)
	}
}

// refused tells why a snapshot came to nothing. For a while no other is taken.
func (s *supply) refused(a *arrivedSnapshot, why error) {
	s.resting = snapshotRestTicks
	s.landing.rest(true)
	s.r.host.o.Event(Event{Kind: SnapshotRefused, Group: s.r.id, Index: a.mark.Index, Node: a.from, Err: why})
}

// endInstall gives the snapshot up. The bodies that were appended for it are no longer retained for it.
func (s *supply) endInstall(why error) {
	in := s.install
	s.install = nil
	s.giveUp(in.from, why)
	if s.r.halted == nil && !s.r.closed() {
		s.r.reclaim()
	}
}

// fail gives the snapshot up, and says why.
func (in *install) fail(why error) {
	in.s.endInstall(why)
}

// step goes on as far as it can go in a round.
func (in *install) step() {
	r := in.s.r
	if in.committing || r.halted != nil {
		return
	}
	if why := r.installable(in.from); why != nil {
		in.fail(why)
		return
	}
	if err := in.append(); err != nil {
		switch {
		case errors.Is(err, wal.ErrNotReady):
			r.stuck = true
		case errors.Is(err, fsync.ErrPoisoned):
			r.halt(err)
		default:
			in.fail(storeError(err))
		}
		return
	}
	in.look()
	if len(in.open) > 0 || in.run < len(in.from.runs) {
		in.s.ask()
		return
	}
	if !in.here {
		in.here, in.end, in.still = true, r.log.End(), 0
		r.appends = true // the round asks for the flush
		r.expects = r.log.FlushedEnd().Less(in.end)
	}
}

// append writes the bodies that came, as far as one batch goes.
func (in *install) append() error {
	r := in.s.r
	came := false
	for _, c := range in.open {
		came = came || r.gate.room.came(c.Ref)
	}
	if !came {
		return nil
	}
	if err := r.log.Reserve(segment.BatchMax); err != nil {
		return err
	}
	var a wal.Append
	var here, left []segment.Commit
	for _, c := range in.open {
		if a.Size()+segment.SizeOf(refSize+segment.InlineMax) <= segment.BatchMax && r.gate.room.giveLoose(c.Ref, &a) {
			here = append(here, c)
		} else {
			left = append(left, c)
		}
	}
	if err := r.log.Append(&a); err != nil {
		for _, f := range a.Large {
			in.s.dropFile(f)
		}
		return err
	}
	in.open, in.still = left, 0
	r.appends = true
	for _, c := range here {
		r.log.Retain(c.Ref)
	}
	return nil
}

// look asks for the next bodies that are not here; those that are, are kept.
func (in *install) look() {
	r := in.s.r
	for _, c := range in.open {
		r.gate.room.want(in.from.mark.Index, c)
	}
	for n := 0; n < installLook && len(in.open) < installOpen && in.run < len(in.from.runs); n++ {
		run := &in.from.runs[in.run]
		c := run.large
		c.Ref = BodyRef{Term: run.first.Term, Seq: run.first.Seq + in.off}
		if in.off++; in.off == run.n {
			in.run, in.off = in.run+1, 0
		}
		in.still = 0
		if r.holds(c) || off.installBodies {
			r.log.Retain(c.Ref) // or a tombstone is here
			continue
		}
		r.gate.room.want(in.from.mark.Index, c)
		in.open = append(in.open, c)
	}
	if in.run < len(in.from.runs) && len(in.open) < installOpen {
		r.shard.enqueue(r) // there is more to look for
	}
}

// ticked lets time pass; a snapshot that does not get on is given up.
func (in *install) ticked(n int) {
	if in.still += n; in.still > installStallTicks && !in.committing {
		in.fail(fmt.Errorf("%w: %d bodies do not come", errInstall, len(in.open)))
	}
}

// frozen reports whether raft is to hear nothing now.
func (s *supply) frozen() bool { return s.install != nil && s.install.committing }

// beginCommit lets a worker commit the snapshot once everything that it needs is flushed, and nothing of this replica
// is on its way: no job of the log, no append that is not answered, no hard state. It reports whether the replica is
// not to begin anything else.
func (s *supply) beginCommit() bool {
	in, r := s.install, s.r
	switch {
	case in == nil || r.halted != nil:
		return false
	case in.committing:
		return true
	case !in.here || r.log.FlushedEnd().Less(in.end) && !off.installFlush:
		return false
	}
	r.expects = false
	quiet := r.task == noTask && r.snap.writer == nil && len(r.held) == 0 && len(r.answers.list) == 0 &&
		r.hard.durable() && len(r.applies) == 0
	switch {
	case r.stopping || !quiet || ReplicaID(r.soft.Lead) == 0 || ReplicaID(r.soft.Lead) == r.rid:
		return false
	case r.installable(in.from) != nil:
		return false
	}
	in.committing = true
	r.submit(in.from.writer.Commit, &in.ended)
	return true
}

// takeCommit takes the end of that up, before the log does: the snapshot becomes the state of raft, of the log and of
// the machine.
func (s *supply) takeCommit() {
	in, r := s.install, s.r
	if in == nil || !in.committing || r.closed() {
		return
	}
	r.mu.Lock()
	end := in.ended
	r.mu.Unlock()
	if !end.done {
		return
	}
	in.committing = false
	s.install = nil
	s.landing.leave()
	if r.halted != nil {
		return
	}
	if end.err != nil { // the writer has removed its file, or the log is poisoned
		r.reclaim()
		s.refused(in.from, storeError(end.err))
		return
	}
	if err := r.installed(in.from); err != nil {
		r.halt(err)
		return
	}
	r.host.o.Event(Event{Kind: SnapshotInstalled, Group: r.id, Index: in.from.mark.Index, Node: in.from.from})
}

// snapshotMessage is what raft hears of a snapshot. It is committed, so whoever leads now has all of it, and may have
// sent it: the term is the present one.
func (r *replica) snapshotMessage(a *arrivedSnapshot) *raftpb.Message {
	st := r.node.BasicStatus()
	return &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(),
		To:   new(uint64(r.rid)), From: new(st.Lead), Term: new(st.GetTerm()),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: a.head.Conf.raft(), Index: new(uint64(a.mark.Index)), Term: new(uint64(a.mark.Term)),
		}},
	}
}

// installed makes a committed snapshot the state of raft first, then of the log, then of the machine.
func (r *replica) installed(a *arrivedSnapshot) error {
	r.step(r.snapshotMessage(a))
	r.ready()
	if r.halted != nil {
		return r.halted
	}
	if err := r.log.Advance(); err != nil {
		return err
	}
	if r.commit != a.mark.Index || r.log.Last() != a.mark {
		return fmt.Errorf("%w: raft is at %d, the log at %d after the snapshot at %d", errInstall, r.commit,
			r.log.Last().Index, a.mark.Index)
	}
	r.store.forget()
	r.changes = nil
	f, err := r.log.OpenSnapshot()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	r.log.ReleaseAll()
	r.releases, r.snap.large, r.snap.grown, r.snap.freed = releases{}, nil, 0, 0
	was := r.marks
	if err := errors.Join(r.restoreFrom(f), f.Close()); err != nil {
		r.marks = was // of a machine that is half of one thing and half of another nothing is said
		return fmt.Errorf("snapshot %d: %w", a.mark.Index, err)
	}
	r.marks.Written, r.marks.Flushed = a.mark.Index, a.mark.Index
	_, in := r.conf.find(r.rid)
	r.removed = !in
	if _, ok := r.machine.(Holder); ok {
		r.log.Trim()
	}
	return nil
}

// reclaim retains what the machine holds and what it has settled and no snapshot covers yet, and nothing else.
func (r *replica) reclaim() {
	holder, ok := r.machine.(Holder)
	if !ok {
		return
	}
	r.log.ReleaseAll()
	holder.Bodies(func(ref BodyRef) bool {
		r.log.Retain(ref)
		return true
	})
	for _, run := range r.releases.runs {
		for i := range run.n {
			r.log.Retain(BodyRef{Term: run.ref.Term, Seq: run.ref.Seq + i})
		}
	}
	r.log.Trim()
}
