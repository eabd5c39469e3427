package raftstore

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"weida/fsync"
)

// DiskState says what ails a node's disk, as bits; zero is nothing. The greater one is worse.
type DiskState uint8

const (
	// DiskSlow: flushes have taken longer than two thirds of an election timeout for a while.
	DiskSlow DiskState = 1 << iota
	// DiskNoRoom: messages are not taken any more. What is left is kept for settles and other commands, and for what
	// gives room back; or there is nothing left.
	DiskNoRoom

	diskStates = DiskSlow | DiskNoRoom
)

func (d DiskState) String() string {
	switch slow, full := d&DiskSlow != 0, d&DiskNoRoom != 0; {
	case slow && full:
		return "full and slow"
	case full:
		return "full"
	case slow:
		return "slow"
	}
	return "ok"
}

// DiskStatus is how a node's own disk is.
type DiskStatus struct {
	State DiskState
	// Space is the room as of the last look; Total is 0 before the first, and where there is no bound.
	Space fsync.Space
	// Reserve is how much of it is kept from messages, in bytes.
	Reserve int64
}

const (
	// DiskReserveMax bounds the room that is kept from messages, in bytes.
	DiskReserveMax = 64 << 20
	// DiskReserveShare bounds it, too: one part in so many of the whole file system.
	DiskReserveShare = 20

	// diskLookTicks is how often one looks how much room there is.
	diskLookTicks = 10
	// diskRefusedTicks is for how long a disk counts as full that refused a write: a quota, or files that ran out, do not
	// show in its room.
	diskRefusedTicks = 50
	// diskSaidTicks is how often one that ails says so where no heartbeat does, and diskHeardTicks for how long it is
	// believed.
	diskSaidTicks  = 10
	diskHeardTicks = 30

	// A disk is slow once somebody has waited for a flush for longer than two thirds of an election timeout, in thirty
	// more than a tenth of those in which nobody did; and well again after diskCalmTicks without that.
	diskLateWorth = 10
	diskLateMax   = 300
	diskCalmTicks = 300
)

// disk is how this node's disk is. A leader whose disk ails hands over to one whose disk does not (quiet.go), and one
// that too few with room follow takes no messages.
type disk struct {
	host  *Host
	state atomic.Uint32 // DiskState
	late  atomic.Bool   // somebody waits for a flush for long, as of this tick
	looks pool          // of one worker: a disk that does not answer holds up nobody else
	spent spending

	mu sync.Mutex
	// guarded by mu
	now     int64 // ticks
	looking bool
	space   fsync.Space
	low     bool
	guessed bool  // low follows from what was written since the last look
	refused int64 // tick until which it counts as full for a write that it refused
	level   int   // of lateness
	slow    bool
	tell    bool  // it is another one than was sent last
	said    int64 // tick at which it was last sent to nodes without a heartbeat
}

// reserveOf is how much of a file system is kept from messages.
func reserveOf(s fsync.Space) int64 { return min(DiskReserveMax, s.Total/DiskReserveShare) }

// DiskOf says what ails the disk of a node: this one's, or as another one has said of itself.
func (h *Host) DiskOf(n NodeID) DiskState {
	if n == h.o.Node {
		return DiskState(h.disk.state.Load())
	}
	if !h.nodes.ailing.Load() {
		return 0
	}
	h.nodes.mu.RLock()
	defer h.nodes.mu.RUnlock()
	if s := h.nodes.list[n]; s != nil && s.up {
		return s.disk
	}
	return 0
}

// diskAils reports whether the disk of any node is known to ail.
func (h *Host) diskAils() bool { return h.disk.state.Load() != 0 || h.nodes.ailing.Load() }

// Disk says how this node's disk is.
func (h *Host) Disk() DiskStatus {
	d := &h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return DiskStatus{State: DiskState(d.state.Load()), Space: d.space, Reserve: reserveOf(d.space)}
}

// tick lets time pass for the disk of this node, and for what others said of theirs.
func (d *disk) tick() {
	d.mu.Lock()
	d.now++
	look := !d.looking && d.now%diskLookTicks == 1
	d.looking = d.looking || look
	d.judgeLateLocked(d.late.Swap(false))
	d.changeLocked()
	now := d.now
	d.mu.Unlock()
	d.host.nodes.forgetDisks(d.host, now)
	if look {
		d.looks.submit(d.look)
	}
}

// judgeLateLocked takes one tick into account in which somebody waited for a flush for long, or nobody did.
func (d *disk) judgeLateLocked(late bool) {
	switch {
	case late:
		d.level += diskLateWorth
		if d.slow = d.slow || d.level >= diskLateMax; d.slow {
			d.level = diskCalmTicks
		}
	case d.level > 0:
		if d.level--; d.level == 0 {
			d.slow = false
		}
	}
}

// look looks how much room there is; a worker runs it.
func (d *disk) look() {
	before := d.spent.left.Load()
	s, err := d.host.o.Store.Space()
	defer d.host.sayDisk(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looking = false
	if err != nil {
		d.spent.early.Store(before) // the next write will say what is wrong
		return
	}
	d.space = s
	reserve := reserveOf(s)
	d.spent.looked(before, s.Free-reserve, s.Total > 0 && !off.reserve)
	if d.low && !d.guessed { // a little more, so that it does not waver
		reserve += reserve / 4
	}
	was := d.low
	d.low, d.guessed = s.Total > 0 && s.Free < reserve && !off.reserve, false
	if !d.changeLocked() && d.low != was { // no news to others, but who leads here takes messages again, or none
		d.host.tellNews(d.host.o.Node)
	}
}

// refuse notes that the disk refused a write for want of room. The others hear of it before anybody leads in this
// node's place, who could give the leadership back.
func (d *disk) refuse() {
	d.mu.Lock()
	d.refused = d.now + diskRefusedTicks
	d.changeLocked()
	d.mu.Unlock()
	d.host.sayDisk(false)
}

// took notes that the disk took a write where it had refused one.
func (d *disk) took() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = 0
	d.changeLocked()
}

// isOut says whether the disk refused a write lately: not even what is kept from messages is left, or a quota is
// reached, which no look shows.
func (d *disk) isOut() bool {
	if DiskState(d.state.Load())&DiskNoRoom == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now < d.refused
}

// isLow says whether what is left is kept from messages.
func (d *disk) isLow() bool {
	if DiskState(d.state.Load())&DiskNoRoom == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.low
}

// changeLocked makes the state what follows from the rest, and tells whom it concerns. It reports whether it is another
// one.
func (d *disk) changeLocked() bool {
	var now DiskState
	if d.low || d.now < d.refused {
		now |= DiskNoRoom
	}
	if d.slow {
		now |= DiskSlow
	}
	was := DiskState(d.state.Swap(uint32(now)))
	if was == now {
		return false
	}
	d.tell = true
	d.host.diskNews(d.host.o.Node, now, fmt.Errorf("%s: %d of %d bytes are free, %d are kept from messages", now,
		d.space.Free, d.space.Total, reserveOf(d.space)))
	return true
}

// says returns the state and whether nodes without a heartbeat are to hear it in this tick.
func (d *disk) says() (state DiskState, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state = DiskState(d.state.Load())
	if all = d.tell || state != 0 && d.now-d.said >= diskSaidTicks; all {
		d.tell, d.said = false, d.now
	}
	return state, all
}

// sayDisk sends the heartbeats that were collected, with what ails this node's disk: always, or if that is news.
func (h *Host) sayDisk(always bool) {
	disk, all := h.disk.says()
	if !always && !all || h.o.Transport == nil {
		return
	}
	var also []NodeID
	if all {
		also = h.nodesUp()
	}
	h.beats.send(h.o.Transport, disk, also)
}

// diskNews tells who leads here that the disk of a node is another one now, and the operator. It must not block.
func (h *Host) diskNews(n NodeID, now DiskState, why error) {
	kind := DiskAils
	if now == 0 {
		kind = DiskWell
	}
	h.o.Event(Event{Kind: kind, Node: n, Err: why})
	h.tellNews(h.o.Node)
}

// hearDisk takes what a node says of its disk.
func (h *Host) hearDisk(n NodeID, state DiskState) {
	state &= diskStates
	if state == 0 && !h.nodes.ailing.Load() {
		return
	}
	h.disk.mu.Lock()
	at := h.disk.now
	h.disk.mu.Unlock()
	h.nodes.mu.Lock()
	s := h.nodes.list[n]
	news := false
	if s != nil && s.up {
		news = s.disk != state
		s.disk, s.diskAt = state, at
	}
	h.nodes.countAilingLocked()
	h.nodes.mu.Unlock()
	if news {
		h.diskNews(n, state, fmt.Errorf("%s, as node %d says", state, uint64(n)))
	}
}

// forgetDisks stops believing that the disks of nodes ail that say so no more.
func (l *nodes) forgetDisks(h *Host, now int64) {
	if !l.ailing.Load() {
		return
	}
	var well []NodeID
	l.mu.Lock()
	for n, s := range l.list {
		if s.disk != 0 && now-s.diskAt > diskHeardTicks {
			s.disk = 0
			well = append(well, n)
		}
	}
	l.countAilingLocked()
	l.mu.Unlock()
	slices.Sort(well)
	for _, n := range well {
		h.diskNews(n, 0, fmt.Errorf("ok, as node %d does not say otherwise any more", uint64(n)))
	}
}

func (l *nodes) countAilingLocked() {
	ailing := false
	for _, s := range l.list {
		ailing = ailing || s.disk != 0
	}
	l.ailing.Store(ailing)
}
