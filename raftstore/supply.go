package raftstore

import (
	"io"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/wal"
)

// supply is the payload side of a replica: bodies that come and go beside raft's messages, and the snapshots with
// which a member is brought up.
//
//	Transport ─▶ box ────▶ room ─▶ entries that wait for bodies (gate)
//	         └─▶ landing ──┘  └──▶ install: a snapshot and its live bodies
//	         ◀── fetch: what others ask for
//	         ◀── courier, pushes (of the host): what is long
//
// The files are payload.go and streamhead.go (what goes over the connection), parcel.go, room.go, roomask.go and
// roombound.go (what waits), fetch.go and supplyanswer.go (what others ask for), landing.go, install.go and
// snapshotfile.go (what comes as a stream), largepush.go, courier.go and hostfar.go (what goes as one).
type supply struct {
	r       *replica
	box     parcels
	parcels []parcel // of this round
	waits   bool     // for a body, as the box was told
	fetch   fetcher
	landing landing
	install *install
	// pushTo is where the bodies of this leadership go; nil while this replica does not lead. Any goroutine.
	pushTo  atomic.Pointer[pushTo]
	retries []retry
	resting int     // ticks for which no snapshot is taken after one that was given up
	aimed   *config // of which pushTo was made, with so many changes in the log
	change  int
}

func (s *supply) init(r *replica) {
	s.r = r
	s.box.budget = &r.host.far.rooms
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
	taken, wake := s.box.put(p)
	if wake {
		s.r.shard.enqueue(s.r)
	}
	return taken
}

// expect tells the box whether something waits for a body. One that nobody waits for comes before its entry, and needs
// no round of its own.
func (s *supply) expect() {
	waits := len(s.r.gate.waiting) > 0 || s.install != nil || s.r.gate.room.needed.len > 0 || s.r.mending()
	if waits != s.waits {
		s.waits = waits
		if s.box.expect(waits) {
			s.r.shard.enqueue(s.r)
		}
	}
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
		case parcelKnown:
			s.known(p.snapshot)
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
		if _, ok := s.r.replicaOn(p.from); ok { // a member, or one on its way in
			s.fetch.take(p.from, f.wants)
		}
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

// retry is a member to which a snapshot could not be sent, and in how many ticks raft hears of it, to send another.
type retry struct {
	to    ReplicaID
	ticks int
}

const (
	// snapshotRetryTicks is how long a leader waits before it sends a snapshot again, snapshotRestTicks how long a
	// member refuses another after one that it gave up, so that one which can't take any is not sent one after the
	// other.
	snapshotRetryTicks = 10
	snapshotRestTicks  = 20
)

// sent tells raft how the transfer of a snapshot ended: the member is probed then, or gets another after a while.
func (s *supply) sent(p *parcel) {
	if p.err != nil {
		s.r.host.o.Event(Event{Kind: SnapshotNotSent, Group: s.r.id, Err: p.err})
		s.retries = append(s.retries, retry{p.to, snapshotRetryTicks})
		return
	}
	s.r.guard(func() { s.r.node.ReportSnapshot(uint64(p.to), raft.SnapshotFinish) })
}

// retry lets time pass for what is to be tried again.
func (s *supply) retry(n int) {
	if s.resting > 0 {
		if s.resting -= n; s.resting <= 0 {
			s.landing.rest(false)
		}
	}
	kept := s.retries[:0]
	for _, one := range s.retries {
		if one.ticks -= n; one.ticks > 0 {
			kept = append(kept, one)
			continue
		}
		s.r.guard(func() { s.r.node.ReportSnapshot(uint64(one.to), raft.SnapshotFailure) })
	}
	s.retries = kept
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
	s.retry(n)
	s.ask()
}

// busy reports whether the payload side needs the log or time to go by.
func (s *supply) busy() bool {
	return s.install != nil || s.fetch.running || len(s.retries) > 0 && s.r.soft.RaftState == raft.StateLeader ||
		s.r.gate.room.needed.len > 0
}

// committed says that an entry of a term is applied: bodies of lower terms that none here names are dead.
func (s *supply) committed(t Term) {
	s.r.gate.room.committed(t)
	s.told(s.landing.dropBodies(t))
}

// close ends the payload side: the replica takes no part any more. Nothing unfinished stays.
func (s *supply) close() {
	if s.install != nil && !s.install.committing {
		s.endInstall(nil)
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
