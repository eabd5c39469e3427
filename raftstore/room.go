package raftstore

import (
	"slices"

	"weida/segment"
	"weida/wal"
)

// room is where a replica keeps what came and can't be appended yet: bodies that stand in no batch, and the list of
// bodies that an entry needs and that are not here. It is owned by the shard, does no I/O, and is bounded: what
// nobody asked for makes way, or is not taken, and what a waiting entry needs is dropped for nothing but an entry
// before it.
//
//	body, file, tombstone ─▶ put…    ┌───────────┐    ready(entry) ◀─ an append that came
//	                                 │   room    │
//	missing(…) ─▶ who is asked  ◀──  └───────────┘ ──▶ give(entry)  ─▶ the batch that is written
//
// Refs are bound to terms: once an entry of a higher term is committed, what no entry here names is dead.
type room struct {
	o     roomOptions
	tick  uint64
	floor Term // bodies of lower terms count only if an entry asks for them

	items  map[BodyRef]*roomItem
	idle   itemList // came, and nobody asked; oldest first
	needed itemList // an entry asked; in the order of asking
	bytes  int64    // inline bytes held
	files  int      // large bodies in idle
	wrong  map[NodeID]uint64
}

// roomOptions says what a room may hold and whom it asks. All but here work when zero.
type roomOptions struct {
	// here reports whether the log holds the body that a commit record names, or a tombstone for it.
	here func(segment.Commit) bool
	// streaming reports whether the body is being received by a stream; nil for never.
	streaming func(BodyRef) bool
	// dropFile removes a large body that is not needed; nil does nothing.
	dropFile func(*wal.BodyFile)
	// bytes bounds the inline bytes held; 4 MiB if zero, never less than two batches.
	bytes int64
	// count bounds the bodies that nobody asked for, and by itself those that are needed; 8192 if zero.
	count int
	// files bounds the large bodies that nobody asked for; 64 if zero.
	files int
	// budget is the node's part of the bound; nil for none.
	budget *roomBudget
}

const (
	roomBytesDefault = 4 << 20
	roomCountDefault = 8192
	roomFilesDefault = 64

	// roomStaleTicks is after how many ticks a body that nobody asked for makes way for a newer one.
	roomStaleTicks = 20
	// roomNeedTicks is after how many ticks a need is forgotten that no entry repeats.
	roomNeedTicks = 20
	// roomAskAfter and roomAskAgain are the ticks before a body is asked for, and before it is asked for elsewhere.
	roomAskAfter = 1
	roomAskAgain = 3
	// roomAskLargeAgain is the same for a large body, whose stream has to begin in between.
	roomAskLargeAgain = 20
	// roomAskBytes and payloadRefsMax bound the bodies asked for and not yet here.
	roomAskBytes = 1 << 20
	// roomLooseCost is what a body of unknown length is reckoned at.
	roomLooseCost = 16 << 10
)

// roomItem is one ref: what came of it and who needs it.
type roomItem struct {
	ref  BodyRef
	next *roomItem
	prev *roomItem
	came uint64 // tick
	from NodeID

	// what came: one of these, or none
	inline  bool
	payload []byte
	digest  Digest
	file    *wal.BodyFile
	settled Index // of a tombstone

	need *roomNeed // nil: nobody asked
}

// roomNeed is an entry's claim on a body.
type roomNeed struct {
	index   Index // of the entry, the lowest that asked; or of the snapshot
	body    segment.Commit
	loose   bool     // of a snapshot that is being installed, in no entry: an inline one has no length and no digest
	whom    []NodeID // were asked
	since   uint64   // tick of the first asking
	touched uint64   // tick of the last
	asked   bool
	next    uint64 // tick of the next request
	turn    int    // who is next
	left    int    // how many were not asked since the first was
}

func newRoom(o roomOptions) *room {
	if o.here == nil {
		panic("bug: raftstore: a room without a log")
	}
	setDefault(&o.bytes, roomBytesDefault)
	setDefault(&o.count, roomCountDefault)
	setDefault(&o.files, roomFilesDefault)
	o.bytes = max(o.bytes, 2*segment.BatchMax)
	return &room{o: o, items: make(map[BodyRef]*roomItem), wrong: make(map[NodeID]uint64)}
}

func (it *roomItem) arrived() bool { return it.inline || it.file != nil || it.settled != 0 }

// ready reports whether every body that an entry names is here. What is missing is asked for from the next tick on,
// as long as the entry is offered again and again; what is here is kept until the entry takes it with give.
func (r *room) ready(e *segment.Entry) bool {
	if e.Type != segment.EntryNormal {
		return true
	}
	all := true
	err := segment.EachCommit(e.Data, func(c segment.Commit) error {
		all = r.readyBody(e.Index, c) && all
		return nil
	})
	return all && err == nil
}

func (r *room) readyBody(i Index, c segment.Commit) bool {
	it := r.items[c.Ref]
	if it != nil && it.arrived() && !it.proves(c) {
		r.refuse(it)
		it = r.items[c.Ref]
	}
	if it != nil && it.arrived() {
		return r.claim(it, i, c)
	}
	if r.o.here(c) {
		r.remove(it)
		return true
	}
	if it == nil {
		if r.needed.len >= r.o.count {
			return false // those before it are got first
		}
		it = &roomItem{ref: c.Ref, came: r.tick}
		r.items[c.Ref] = it
		r.needed.push(it)
	}
	r.claim(it, i, c)
	return false
}

// claim notes that entry i needs the item.
func (r *room) claim(it *roomItem, i Index, c segment.Commit) bool {
	if it.need == nil {
		it.need = &roomNeed{index: i, body: c, since: r.tick, next: r.tick + roomAskAfter}
		if it.arrived() {
			r.idleRemove(it)
			r.needed.push(it)
		}
	}
	it.need.index, it.need.touched = min(it.need.index, i), r.tick
	return true
}

// want asks for a body that no entry names: a snapshot, as of index i, holds it. It is asked for at once, as long
// as it is wanted again and again. What came by itself does not count: no commit record proves an inline one here,
// so that it has to come from a node that was asked and has it on its disk, which is trusted as the snapshot is.
func (r *room) want(i Index, c segment.Commit) {
	it := r.items[c.Ref]
	if it != nil && it.need == nil && it.inline {
		r.remove(it)
		it = nil
	}
	if it == nil {
		it = &roomItem{ref: c.Ref, came: r.tick}
		r.items[c.Ref] = it
		r.needed.push(it)
	}
	fresh := it.need == nil
	r.claim(it, i, c)
	if fresh {
		it.need.loose, it.need.next = true, r.tick
	}
}

// came reports whether something came of a ref.
func (r *room) came(ref BodyRef) bool {
	it := r.items[ref]
	return it != nil && it.arrived()
}

// giveLoose moves a body that was wanted into a batch; false if it has not come.
func (r *room) giveLoose(ref BodyRef, a *wal.Append) bool {
	it := r.items[ref]
	if it == nil || !it.arrived() {
		return false
	}
	r.hand(it, a)
	return true
}

// proves says whether what came is the body that a commit record names.
func (it *roomItem) proves(c segment.Commit) bool {
	switch {
	case off.bodyProof:
		return true
	case it.inline:
		return !c.Large && int64(len(it.payload)) == c.Length && it.digest == c.Digest
	case it.file != nil:
		return c.Large && it.file.Length() == c.Length && it.file.Digest() == c.Digest
	}
	return true
}

// refuse drops a body that is not what its commit record says, and asks the next member for it.
func (r *room) refuse(it *roomItem) {
	r.wrong[it.from]++
	need := it.need
	r.remove(it)
	if need == nil {
		return
	}
	r.askNext(need)
	again := &roomItem{ref: it.ref, came: r.tick, need: need}
	r.items[it.ref] = again
	r.needed.push(again)
}

// give moves what an entry needs into the batch that holds the entry, and lets go of it.
func (r *room) give(e *segment.Entry, a *wal.Append) {
	if e.Type != segment.EntryNormal {
		return
	}
	err := segment.EachCommit(e.Data, func(c segment.Commit) error {
		it := r.items[c.Ref]
		if it == nil {
			return nil
		}
		r.hand(it, a)
		return nil
	})
	if err != nil {
		panic("bug: raftstore: an entry that was ready can't be read: " + err.Error())
	}
}

// hand moves what came into a batch, and lets go of it.
func (r *room) hand(it *roomItem, a *wal.Append) {
	switch {
	case it.inline:
		a.Bodies = append(a.Bodies, wal.Body{Ref: it.ref, Payload: it.payload})
	case it.file != nil:
		a.Large = append(a.Large, it.file)
		it.file = nil
	case it.settled != 0:
		a.Voids = append(a.Voids, wal.Void{Ref: it.ref, Settled: it.settled})
	}
	r.remove(it)
}

// putBody takes an inline body whose bytes have the digest. It is false if the body was not taken.
func (r *room) putBody(from NodeID, ref BodyRef, d Digest, payload []byte) bool {
	return r.put(&roomItem{ref: ref, from: from, inline: true, digest: d, payload: payload})
}

// putFile takes a finished large body. It is false if the file was not taken: it is the caller's then.
func (r *room) putFile(from NodeID, f *wal.BodyFile) bool {
	return r.put(&roomItem{ref: f.Ref(), from: from, file: f})
}

// putSettled takes the answer that a body is settled as of a committed index. It counts only from a node that was
// asked, and only from the entry on that asked for the body: nothing is settled before it is there.
func (r *room) putSettled(from NodeID, ref BodyRef, at Index) bool {
	it := r.items[ref]
	if it == nil || it.need == nil || at < it.need.index || !slices.Contains(it.need.whom, from) {
		return false
	}
	return r.put(&roomItem{ref: ref, from: from, settled: at})
}

// putAbsent takes the answer that a member does not have a body: the next one is asked, see askNext.
func (r *room) putAbsent(ref BodyRef) {
	it := r.items[ref]
	if it == nil || it.need == nil || !it.need.asked || it.arrived() {
		return
	}
	r.askNext(it.need)
}

// askNext makes the next member be asked: at once, if it was not asked since the first was.
func (r *room) askNext(n *roomNeed) {
	n.asked, n.next = false, r.tick
	if n.left == 0 && len(n.whom) > 0 {
		n.next += roomAskAgain
	}
}

// put takes what came unless it is here, wrong, or there is no room for it.
func (r *room) put(it *roomItem) bool {
	old := r.items[it.ref]
	if old == nil && it.ref.Term < r.floor || old != nil && old.arrived() {
		return false
	}
	if old != nil && !it.proves(old.need.body) && !old.need.vouched(it) {
		r.wrong[it.from]++
		r.putAbsent(it.ref)
		return false
	}
	if old != nil {
		it.need = old.need
	}
	if !r.makeRoom(it) {
		return false
	}
	it.came = r.tick
	r.items[it.ref] = it
	r.bytes += int64(len(it.payload))
	if old != nil {
		r.needed.replace(old, it)
		return true
	}
	r.idle.push(it)
	if it.file != nil {
		r.files++
	}
	return true
}

// vouched says whether an inline body of a snapshot comes from whom it was asked.
func (n *roomNeed) vouched(it *roomItem) bool {
	return n.loose && it.inline && !n.body.Large && slices.Contains(n.whom, it.from)
}
