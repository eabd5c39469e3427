package raftstore

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
)

// Confirmer is implemented by replicated groups. A group with one owner needs no confirmation: nobody else can lead it.
type Confirmer interface {
	// Confirm calls done once, on the shard, when a majority has said after the call that this replica leads, and
	// everything that was committed at the call is applied here: what the machine then shows is not stale. done
	// gets an error if the leadership is lost before, a *NotLeaderError or why the group stopped. On an error of Confirm
	// itself done is never called.
	Confirm(done func(error)) error
}

// confirms are the questions whether this replica still leads.
type confirms struct {
	asked   []func(error) // guarded by seat.mu
	seq     uint64
	waiting []confirm // oldest first
}

// confirm is what was asked in one round.
type confirm struct {
	seq  uint64
	at   Index // to be applied; 0: not confirmed yet
	done []func(error)
}

// confirmsMax bounds the questions that wait for the shard.
const confirmsMax = 4096

// Confirm implements Confirmer.
func (r *replica) Confirm(done func(error)) error {
	if err := r.in.refusal(); err != nil {
		return err
	}
	if r.lead.Load() == nil {
		return r.notLeader()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.confirms.asked) >= confirmsMax {
		return fmt.Errorf("raftstore: group %d: %w", uint64(r.id), ErrFull)
	}
	r.confirms.asked = append(r.confirms.asked, done)
	r.shard.enqueue(r)
	return nil
}

// takeConfirms asks the others, once for all that asked since the last round.
func (r *replica) takeConfirms() {
	r.mu.Lock()
	list := r.confirms.asked
	r.confirms.asked = nil
	r.mu.Unlock()
	if len(list) == 0 {
		return
	}
	c := &r.confirms
	c.seq++
	c.waiting = append(c.waiting, confirm{seq: c.seq, done: list})
	if !r.leads() {
		r.failConfirms(r.notLeader())
		return
	}
	r.wake()
	r.guard(func() { r.node.ReadIndex(binary.LittleEndian.AppendUint64(nil, c.seq)) })
}

// confirmed takes raft's answers up.
func (r *replica) confirmed(list []raft.ReadState) {
	for _, s := range list {
		if len(s.RequestCtx) != 8 {
			continue
		}
		seq := binary.LittleEndian.Uint64(s.RequestCtx)
		for i := range r.confirms.waiting {
			if c := &r.confirms.waiting[i]; c.seq <= seq && c.at == 0 { // an answer covers all questions before it
				c.at = Index(s.Index)
			}
		}
	}
}

// tellConfirmed answers those whose entries are applied.
func (r *replica) tellConfirmed() {
	c := &r.confirms
	for len(c.waiting) > 0 && c.waiting[0].at != 0 && c.waiting[0].at <= r.last.Index {
		for _, done := range c.waiting[0].done {
			done(nil)
		}
		c.waiting[0] = confirm{}
		if c.waiting = c.waiting[1:]; len(c.waiting) == 0 {
			c.waiting = nil
		}
	}
}

// failConfirms answers everybody that there is no leadership to confirm.
func (r *replica) failConfirms(why error) {
	r.mu.Lock()
	list := r.confirms.asked
	r.confirms.asked = nil
	r.mu.Unlock()
	for _, c := range r.confirms.waiting {
		list = append(list, c.done...)
	}
	r.confirms.waiting = nil
	for _, done := range list {
		done(why)
	}
}
