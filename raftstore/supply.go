package raftstore

import (
	"errors"
	"io"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/segment"
	"weida/wal"
)

// supply is the payload side of a replica: bodies that come and go beside raft's messages, and the snapshots with
// which a member is brought up.
//
//	Transport ─▶ box ────▶ room ─▶ entries that wait for bodies (gate)
//	         └─▶ landing ──┘  └──▶ install: a snapshot and its live bodies
//	         ◀── fetch: what others ask for
//	         ◀── courier, pushes (of the host): what is long
type supply struct {
	r       *replica
	box     parcels
	parcels []parcel // of this round
	fetch   fetcher
	landing landing
	install *install
	// pushTo is where the bodies of this leadership go; nil while this replica does not lead. Any goroutine.
	pushTo atomic.Pointer[pushTo]
	aimed  *config // of which pushTo was made, with so many changes in the log
	change int
}

func (s *supply) init(r *replica) {
	s.r = r
	s.landing = landing{log: r.log, self: r.rid, dock: &r.host.far.dock, give: s.deliver}
	r.gate.room = newRoom(roomOptions{
		here:      r.holds,
		streaming: s.landing.receiving,
		dropFile:  s.dropFile,
		budget:    &r.host.far.rooms,
	})
}

// deliver puts a parcel into the box and wakes the shard. Any goroutine.
func (s *supply) deliver(p parcel) bool {
	if !s.box.put(p) {
		return false
	}
	s.r.shard.enqueue(s.r)
	return true
}

// dropFile removes a large body that is not needed.
func (s *supply) dropFile(f *wal.BodyFile) { s.told(f.Abort()) }

// told tells of an error that harms nothing that is stored.
func (s *supply) told(err error) {
	if err != nil {
		s.r.host.o.Event(Event{Kind: JobFailed, Group: s.r.id, Err: err})
	}
}

// take is the payload side's part of step 3: what came is taken up.
func (s *supply) take() {
	s.parcels = s.box.take(s.parcels)
	for i := range s.parcels {
		p := &s.parcels[i]
		switch p.kind {
		case parcelFrame:
			s.frame(p)
		case parcelFile:
			if !s.r.gate.room.putFile(p.from, p.file) {
				s.dropFile(p.file)
			}
		case parcelSnapshot:
			s.beginInstall(p.snapshot)
		case parcelFetched:
			s.answer(p.fetched)
		case parcelSent:
			s.sent(p)
		case parcelLost:
			s.r.gate.room.putAbsent(p.ref)
		case parcelNotSent:
			s.send(p.from, encodeAbsent([]BodyRef{p.ref}))
			if damaged(p.err) {
				s.stepAside()
			}
		}
	}
	if s.install != nil {
		s.install.step()
	}
}

// frame takes what a peer sent on the payload connection.
func (s *supply) frame(p *parcel) {
	room := s.r.gate.room
	switch f := &p.payload; f.kind {
	case bodyFrame:
		room.putBody(p.from, f.body.Ref, f.body.Digest, f.bytes)
	case wantFrame:
		s.fetch.take(p.from, f.wants)
	case settledFrame:
		for _, ref := range f.refs {
			room.putSettled(p.from, ref, f.settle)
		}
	case absentFrame:
		for _, ref := range f.refs {
			room.putAbsent(ref)
		}
	}
}

// ask asks for what is missing. Each tick, and while a snapshot is being installed each round.
func (s *supply) ask() {
	r := s.r
	room := r.gate.room
	if room.needed.len == 0 {
		return
	}
	var others []NodeID
	r.others(func(n NodeID) { others = append(others, n) })
	leader := NodeID(0)
	if n, ok := r.nodeOf(ReplicaID(r.soft.Lead)); ok && n != r.host.o.Node {
		leader = n
	} else if s.install != nil {
		leader = s.install.from.from
	}
	for _, a := range room.asks(leader, others) {
		for len(a.wants) > 0 {
			n := min(len(a.wants), payloadRefsMax)
			s.send(a.to, encodeWants(a.wants[:n]))
			a.wants = a.wants[n:]
		}
	}
}

func (s *supply) send(to NodeID, data []byte) {
	g := s.r.shard.out.to(to)
	g.payload = append(g.payload, Frame{Group: s.r.id, Data: data})
}

// beginFetch lets a worker read what somebody asked for.
func (s *supply) beginFetch() {
	if s.r.stopping || s.r.halted != nil || s.r.closed() {
		return
	}
	if j, ok := s.fetch.next(); ok {
		s.r.host.pool.submit(func() { s.deliver(parcel{kind: parcelFetched, fetched: j.run(s.r.log)}) })
	}
}

// answer sends what was found, says what was not, and lets the courier carry what is large.
func (s *supply) answer(f *fetched) {
	s.fetch.running = false
	r := s.r
	st := standing{
		leads:   r.soft.RaftState == raft.StateLeader,
		applied: r.last.Index,
		last:    r.log.Last().Index,
		term: func(i Index) (Term, bool) {
			if i < r.log.First() || i > r.log.Last().Index {
				return 0, false
			}
			t, err := r.log.Term(i)
			return t, err == nil
		},
		held: r.gate.room.held,
	}
	if r.leads() {
		st.settled = r.last.Index
	}
	for _, data := range f.answers(&st) {
		s.send(f.to, data)
	}
	for _, c := range f.large {
		key := transferKey{group: r.id, to: f.to, ref: c.Ref}
		to, ok := r.replicaOn(f.to)
		if !ok {
			continue
		}
		head := streamHead{kind: bodyStream, group: r.id, from: r.rid, to: to, ref: c.Ref, length: c.Length}
		open := func() (*streamHead, io.ReadCloser, error) {
			b, err := r.log.OpenBody(c)
			if err != nil {
				return nil, nil, err
			}
			return &head, b, nil
		}
		ended := func(err error) {
			if err != nil { // whoever asked may ask another
				s.deliver(parcel{kind: parcelNotSent, from: f.to, ref: c.Ref, err: err})
			}
		}
		if err := r.host.far.courier.send(&transfer{key: key, open: open, ended: ended}); errors.Is(err, errBusy) {
			ended(err)
		}
	}
	for i := range f.damaged {
		if r.names(&f.damaged[i]) {
			s.stepAside()
			break
		}
	}
	if len(f.rest) > 0 {
		s.fetch.take(f.to, f.rest)
	}
}

// names reports whether an entry in the log names the body that somebody asked for, as he asked for it.
func (r *replica) names(w *want) (yes bool) {
	if w.Index < r.log.First() || w.Index > r.log.Last().Index {
		return false
	}
	list, err := r.log.Entries(w.Index, w.Index+1, segment.BatchMax)
	if err != nil {
		return damaged(err)
	}
	for i := range list {
		if list[i].Type != segment.EntryNormal {
			continue
		}
		err = segment.EachCommit(list[i].Data, func(c segment.Commit) error {
			yes = yes || c == w.Body
			return nil
		})
	}
	return yes && err == nil
}

// replicaOn is the other member on a node.
func (r *replica) replicaOn(n NodeID) (ReplicaID, bool) {
	for _, m := range r.conf.members {
		if m.Node == n && m.Replica != r.rid {
			return m.Replica, true
		}
	}
	for _, c := range r.changes {
		for _, m := range c.members {
			if m.Node == n && m.Replica != r.rid {
				return m.Replica, true
			}
		}
	}
	return 0, false
}

// damaged reports whether an error says that what should be on this disk is something else.
func damaged(err error) bool {
	var c *segment.CorruptError
	return errors.As(err, &c)
}

// stepAside gives the leadership, if this replica has it, to the voter that is farthest: it can't supply a body
// that it should have.
func (s *supply) stepAside() {
	r := s.r
	if r.soft.RaftState != raft.StateLeader {
		return
	}
	best, match := ReplicaID(0), uint64(0)
	r.guard(func() {
		for id, pr := range r.node.Status().Progress {
			at := ReplicaID(id)
			if at == r.rid || pr.IsLearner || !r.conf.votes(at) {
				continue
			}
			if best == 0 || pr.Match > match || pr.Match == match && at < best {
				best, match = at, pr.Match
			}
		}
	})
	if best != 0 {
		r.guard(func() { r.node.TransferLeader(uint64(best)) })
	}
}

// sendSnapshot sends the newest snapshot to a member that the log does not reach any more.
func (r *replica) sendSnapshot(to NodeID, m *raftpb.Message) {
	id := ReplicaID(m.GetTo())
	t := &transfer{key: transferKey{group: r.id, to: to}}
	head := streamHead{kind: snapshotStream, group: r.id, from: r.rid, to: id, term: Term(m.GetTerm())}
	t.open = func() (*streamHead, io.ReadCloser, error) {
		f, err := r.log.OpenSnapshot()
		if err != nil {
			return nil, nil, err
		}
		head.mark, head.length = f.Mark(), f.Length()
		return &head, f, nil
	}
	t.ended = func(err error) { r.supply.deliver(parcel{kind: parcelSent, to: id, err: err}) }
	if err := r.host.far.courier.send(t); err != nil {
		r.supply.deliver(parcel{kind: parcelSent, to: id, err: err})
	}
}

// sent tells raft how the transfer of a snapshot ended: the member is probed then, or gets another.
func (s *supply) sent(p *parcel) {
	how := raft.SnapshotFinish
	if p.err != nil {
		how = raft.SnapshotFailure
		s.r.host.o.Event(Event{Kind: SnapshotNotSent, Group: s.r.id, Err: p.err})
	}
	s.r.guard(func() { s.r.node.ReportSnapshot(uint64(p.to), how) })
}

// aim keeps pushTo what the configuration says.
func (s *supply) aim() {
	r := s.r
	if !r.leads() {
		s.aimed = nil
		return
	}
	if s.aimed == r.conf && s.change == len(r.changes) {
		return
	}
	s.aimed, s.change = r.conf, len(r.changes)
	to := &pushTo{self: r.rid, need: max(len(r.conf.state.Voters), len(r.conf.state.VotersOutgoing)) / 2}
	r.others(func(n NodeID) {
		if id, ok := r.replicaOn(n); ok {
			to.members = append(to.members, Member{Replica: id, Node: n})
		}
	})
	s.pushTo.Store(to)
}

// ticked lets time pass.
func (s *supply) ticked(n int) {
	if s.install != nil {
		s.install.ticked(n)
	}
	s.ask()
}

// busy reports whether the payload side needs the log or time to go by.
func (s *supply) busy() bool {
	return s.install != nil || s.fetch.running || s.r.gate.room.needed.len > 0
}

// committed says that an entry of a term is applied: bodies of lower terms that none here names are dead.
func (s *supply) committed(t Term) {
	s.r.gate.room.committed(t)
	s.told(s.landing.dropBodies(t))
}

// close ends the payload side: the replica takes no part any more. Nothing unfinished stays.
func (s *supply) close() {
	if s.install != nil && !s.install.committing {
		s.endInstall()
	}
	for _, p := range s.box.close() {
		switch {
		case p.file != nil:
			s.dropFile(p.file)
		case p.snapshot != nil:
			s.told(p.snapshot.writer.Abort())
			s.landing.leave()
		}
	}
	s.told(s.landing.close())
	s.r.gate.room.clear()
	s.pushTo.Store(nil)
	s.r.host.far.end(s.r.id)
}
