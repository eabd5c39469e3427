package raftstore

// tickAloneTicks is after how many ticks a replica takes part in a round at the latest: what Status says is made there.
const tickAloneTicks = 5

// tickAlone gives raft the time that passed, without a round: of a thousand groups that take messages most have nothing
// else to do at a tick, and rounds for all of them cost more than the messages do. It is false if there is something
// else, or something came of it; the replica then takes part in the round.
func (r *replica) tickAlone() bool {
	if r.now%tickAloneTicks == 0 || r.ailing() || r.engaged() {
		return false
	}
	told, hushed := r.toldTo, r.hushed
	r.giveTicks()
	r.ready()
	r.peers.unprobe()
	return r.halted == nil && !r.appends && len(r.applies) == 0 && r.hushed == hushed && r.role() == told
}

// ailing reports whether a disk, here or elsewhere, or this replica's log is not as it should be.
func (r *replica) ailing() bool {
	return r.halted != nil || r.full || r.short != nil || r.hard.full || r.stuck || r.mending() || r.host.diskAils() ||
		r.answers.stalled(r.now-int64(r.host.o.HeartbeatTicks))
}

// engaged reports whether something waits that a round would try again.
func (r *replica) engaged() bool {
	return r.stopping || r.closed() || r.supply.busy() || r.supply.frozen() || r.removed || r.campaign > 0 ||
		len(r.held) > 0 || len(r.gate.waiting) > 0 || r.blocked || !r.hard.durable() || len(r.waiting) > 0 ||
		r.next < len(r.pending) || r.conf.joint() || len(r.changes) > 0 || r.unsettled() || len(r.confirms.waiting) > 0
}
