package raftstore

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync"
	"weida/wal"
)

// answers are what raft wants said once what it had stored is durable: acknowledgements to the leader, votes, and what
// it tells itself. They leave in order: each waits for its own append and for all before it, also where it has none
// (W-5, W-50).
type answers struct{ list []owed }

// owed is said when the entry at need is flushed and the hard state of version hard is durable.
type owed struct {
	need Index // 0: no entry
	hard uint64
	list []*raftpb.Message
	at   int64 // tick at which it was written
}

// stalled reports whether the oldest answer has waited since before a tick.
func (a *answers) stalled(since int64) bool { return len(a.list) > 0 && a.list[0].at < since }

func (a *answers) push(one owed) { a.list = append(a.list, one) }

// truncated says that entries at or above from were replaced by others up to last: what waits for one of the former now
// waits for the flush of the latter, which covers the truncation too.
func (a *answers) truncated(from, last Index) {
	if off.truncatedAnswers {
		return
	}
	for i := range a.list {
		if a.list[i].need >= from {
			a.list[i].need = last
		}
	}
}

// next returns the oldest answer if it need not wait any more.
func (a *answers) next(flushed Index, hard uint64) (owed, bool) {
	if len(a.list) == 0 {
		return owed{}, false
	}
	first := a.list[0]
	if (first.need > flushed && !off.answersWait) || (first.hard > hard && !off.hardWait) {
		return owed{}, false
	}
	a.list[0] = owed{}
	if a.list = a.list[1:]; len(a.list) == 0 {
		a.list = nil
	}
	return first, true
}

// hardState is the term and the vote on their way to the disk. They have a worker of their own: nothing that depends on
// them may leave before they are durable, so they wait for no snapshot and no job (W-3).
type hardState struct {
	want    wal.HardState
	version uint64 // of want
	done    uint64 // the version that is durable
	running uint64 // the version that a worker is making durable; 0 for none
	full    bool   // the disk was full; tried again at the next tick
	end     taskEnd
}

// set asks for another hard state to be made durable.
func (h *hardState) set(s wal.HardState) {
	if s != h.want {
		h.want = s
		h.version++
	}
}

func (h *hardState) durable() bool { return h.done == h.version }

// beginHard lets a worker make the hard state durable.
func (r *replica) beginHard() {
	h := &r.hard
	if h.durable() || h.running != 0 || h.full || r.halted != nil || r.stopping || r.closed() {
		return
	}
	h.running = h.version
	r.submit(r.log.HardStateJob(h.want).Run, &h.end)
}

// takeHard takes the end of that up. What is wrong with the disk shows in the log's Advance.
func (r *replica) takeHard() {
	h := &r.hard
	if h.running == 0 {
		return
	}
	r.mu.Lock()
	end := h.end
	if end.done {
		h.end = taskEnd{}
	}
	r.mu.Unlock()
	switch {
	case !end.done:
		return
	case end.err == nil:
		h.done = h.running
		h.full = false
	case errors.Is(end.err, fsync.ErrDiskFull):
		r.diskFull(end.err)
		h.full = true
	}
	h.running = 0
}

// releaseAnswers says what need not wait any more, to raft itself or to the peers.
func (r *replica) releaseAnswers() {
	if r.hard.durable() && len(r.waiting) > 0 {
		list := r.waiting
		r.waiting = nil
		for _, m := range list {
			r.post(m)
		}
	}
	for r.halted == nil {
		a, ok := r.answers.next(r.marks.Flushed, r.hard.done)
		if !ok {
			return
		}
		for _, m := range a.list {
			if m.GetTo() != uint64(r.rid) {
				r.post(m)
			} else {
				r.step(m)
			}
		}
	}
}

// step gives raft a message. What raft has no use for is dropped, as everywhere in raft.
func (r *replica) step(m *raftpb.Message) {
	r.guard(func() { _ = r.node.Step(m) }) // a message from nowhere
}
