package raftstore

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/segment"
	"weida/wal"
)

// replica is the Group that a majority decides for (T-2). What raft may be told it is told on the shard, and only
// what this replica can keep: the input gate stands before it.
//
//	mailbox ─▶ gate ─▶ raft ─▶ Ready ─┬─▶ wal.Append ─▶ flush ─▶ answers wait for it, in order (answers)
//	proposals ─▶ plan ─▶              ├─▶ outbox ─▶ Transport
//	                                  └─▶ Apply ─▶ machine
type replica struct {
	seat
	rid  ReplicaID
	mail mailbox
	// lead gives out refs while this replica leads; nil while it does not. Any goroutine.
	lead atomic.Pointer[refs]
	// supply is the payload side.
	supply supply
	// who is the leader that the last round knew, for refusals. Any goroutine.
	who atomic.Pointer[NotLeaderError]
	// crowded is why a leader takes no messages: too few voters have room. nil if it does. Any goroutine.
	crowded atomic.Pointer[error]
	// asked is guarded by seat.mu.
	asked    askedChange
	confirms confirms

	// owned by the shard goroutine
	node     *raft.RawNode
	store    raftLog
	gate     gate
	letters  []letter
	soft     raft.SoftState
	term     Term  // of the last Ready
	commit   Index // raft's
	hard     hardState
	answers  answers
	waiting  []*raftpb.Message // depend on a hard state that is not durable
	planned  planned           // the proposal that raft was just given
	held     []heldAppend      // raft's appends for which there is no room, oldest first
	applies  []*raftpb.Message // of this round
	appends  bool              // something was appended in this round
	blocked  bool              // raft takes no proposals now; tried again when something moved
	stirred  bool              // raft was called since it last wanted nothing done
	conf     *config           // applied
	changes  []pendingConfig   // in the log, above it
	peers    peers             // what is known of the members in this leadership
	toldTo   roleTold
	ticks    int   // to be given to raft
	now      int64 // ticks in this life
	rest     int   // ticks without work
	parked   bool
	settled  bool  // the end of the last joint step is written down as committed
	removed  bool  // an applied configuration is without this replica
	hushed   bool  // the group is quiet: not ticked
	eager    bool  // the first member of a new group
	left     bool  // the others were told that this replica falls silent
	calmed   int   // ticks for which raft was not ticked, before the quiet
	mute     bool  // answers to heartbeats are not sent
	campaign int   // ticks until an election is called for; 0: none is
	yielded  int64 // tick at which it last began to hand over for its disk; 0: never
	late     overdue

	snapConf *config // of the snapshot that is being written
}

var _ member = (*replica)(nil)

// roleTold is what the machine was told last.
type roleTold struct {
	role   Role
	term   Term
	leader Leader
}

// planned is the entry that a proposal became, between Propose and the append.
type planned struct {
	index     Index // 0: none
	term      Term
	app       *wal.Append // its bodies and large ones; until they are in a batch
	proposals int
	size      int
}

// Propose implements Group. Digests of inline bodies are computed here, on the caller's goroutine.
func (r *replica) Propose(b *Batch) error {
	p, err := r.check(b)
	if err != nil {
		return err
	}
	lead := r.lead.Load()
	if lead == nil {
		if err := r.in.refusal(); err != nil {
			return err
		}
		return r.notLeader()
	}
	if b.carries() {
		if err := r.uncrowded(); err != nil {
			return err
		}
	}
	for i := range b.Items {
		if w, ok := b.Items[i].Large.(*bodyWriter); ok && w.file.Ref().Term != lead.term {
			return fmt.Errorf("raftstore: group %d: a body of term %d in term %d: %w", uint64(r.id),
				uint64(w.file.Ref().Term), uint64(lead.term), ErrBody)
		}
	}
	return r.take(p)
}

// notLeader is the refusal of a replica that does not lead.
func (r *replica) notLeader() error {
	if e := r.who.Load(); e != nil {
		return e
	}
	return &NotLeaderError{Group: r.id}
}

// NewBody implements Group.
func (r *replica) NewBody(n int64) (BodyWriter, error) {
	if n <= segment.InlineMax {
		panic("bug: raftstore: a body that fits inline in a file of its own")
	}
	if err := r.in.refusal(); err != nil {
		return nil, err
	}
	lead := r.lead.Load()
	if lead == nil {
		return nil, r.notLeader()
	}
	if err := r.uncrowded(); err != nil {
		return nil, err
	}
	ref := lead.give()
	f, err := r.log.NewBody(ref, n)
	if err != nil {
		return nil, fmt.Errorf("raftstore: group %d: body %v: %w", uint64(r.id), ref, storeError(err))
	}
	f.Account(r.host.disk.spend)
	w := &bodyWriter{group: &r.seat, file: f, admits: r.uncrowded}
	w.push = r.host.far.pushes.begin(r.id, ref, n, r.supply.pushTo.Load())
	return w, nil
}

// leads reports whether this replica leads and has applied an entry of its term.
func (r *replica) leads() bool {
	lead := r.lead.Load()
	return lead != nil && lead.term == r.term
}

// guard calls raft, which may want something done then. A read of the log that failed meanwhile halts the replica: raft
// is not used any more.
func (r *replica) guard(call func()) (ok bool) {
	r.stirred = true
	return r.ask(call)
}

// ask is guard for what changes nothing.
func (r *replica) ask(call func()) (ok bool) {
	defer func() {
		if r.store.failed != nil { // any other panic is a defect, and stays one
			_ = recover()
			r.halt(r.store.failed)
		}
	}()
	call()
	return r.halted == nil
}

// onHalt ends the part of this replica in its group: what raft holds is not used any more.
func (r *replica) onHalt() {
	r.goodbye()
	r.resign()
	r.mail.close()
	r.gate.clear()
	r.supply.close()
}

// goodbye tells the others that this leader is about to fall silent, once: the one that has most is to call an
// election, and the rest, who may be quiet, wake. That is a hint; without it they notice as always.
func (r *replica) goodbye() {
	if r.soft.RaftState != raft.StateLeader || r.left || off.goodbye {
		return
	}
	r.left = true
	next := r.successor()
	for _, m := range r.conf.members {
		if m.Replica == r.rid {
			continue
		}
		kind := raftpb.MsgHeartbeat
		if m.Replica == next {
			kind = raftpb.MsgTimeoutNow
		}
		bye := &raftpb.Message{
			Type: kind.Enum(), From: new(uint64(r.rid)), To: new(uint64(m.Replica)), Term: new(uint64(r.term)),
		}
		r.send(m.Node, func(dst []byte) []byte { return appendMessage(dst, bye) })
	}
}

// resign ends the leadership: what waits was not given an entry.
func (r *replica) resign() {
	if r.lead.Swap(nil) == nil {
		return
	}
	r.supply.pushTo.Store(nil)
	r.host.far.pushes.stop(r.id) // a change of leadership ends every stream of a body
	if r.halted == nil {
		r.tellRole()
		r.failConfirms(r.notLeader())
		r.refuseAll(r.notLeader())
	}
}

func (r *replica) shrink() {
	r.applies, r.letters = nil, nil
	r.store.forget()
}
