package raftstore

import (
	"errors"
	"io"

	"go.etcd.io/raft/v3"

	"weida/segment"
)

// This file holds how a replica answers those who ask for bodies.

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
	for i, w := range f.damaged {
		if d, ok := damageOf(w.Body, f.why[i]); ok {
			if d.Commit = w.Body; w.Loose && !w.Body.Large {
				d.Commit = segment.Commit{}
			} else if !w.Loose {
				d.Index = w.Index
			}
			r.hurt(d)
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
func (r *replica) replicaOn(n NodeID) (id ReplicaID, ok bool) {
	look := func(list []Member) {
		for _, m := range list {
			if m.Node == n && m.Replica != r.rid {
				id = max(id, m.Replica)
			}
		}
	}
	look(r.conf.members)
	for _, c := range r.changes {
		look(c.members)
	}
	return id, id != 0
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
