package raftstore

import "sync/atomic"

// This file holds what bounds a room: what makes way for what, and the lists in which things wait.

// makeRoom drops what is worth less than the item until there is room for it. It is false if nothing is.
func (r *room) makeRoom(it *roomItem) bool {
	n := int64(len(it.payload))
	for {
		full := n > 0 && (r.bytes+n > r.o.bytes || !r.o.budget.fits(r.bytes, n))
		if it.need == nil {
			full = full || r.idle.len >= r.o.count || it.file != nil && r.files >= r.o.files
		}
		if !full {
			r.o.budget.take(n)
			return true
		}
		victim := r.victim(it)
		if victim == nil {
			return false
		}
		if victim.need == nil {
			r.remove(victim)
			continue
		}
		r.empty(victim)
	}
}

// victim is what goes for the item: the oldest that nobody asked for, if the item is needed or the other is stale;
// else, for a needed one, what a later entry needs.
func (r *room) victim(it *roomItem) *roomItem {
	if old := r.idle.first; old != nil && (it.need != nil || r.tick-old.came >= roomStaleTicks) {
		return old
	}
	if it.need == nil {
		return nil
	}
	var last *roomItem
	for x := r.needed.first; x != nil; x = x.next {
		if len(x.payload) > 0 && x.need.index > it.need.index && (last == nil || x.need.index >= last.need.index) {
			last = x
		}
	}
	return last
}

// empty forgets what came of a needed item: it will be asked for again.
func (r *room) empty(it *roomItem) {
	r.release(it)
	it.need.asked, it.need.next = false, r.tick+roomAskAgain
}

// release gives back what an item holds.
func (r *room) release(it *roomItem) {
	r.bytes -= int64(len(it.payload))
	r.o.budget.give(int64(len(it.payload)))
	if it.file != nil && r.o.dropFile != nil {
		r.o.dropFile(it.file)
	}
	it.inline, it.payload, it.file, it.settled = false, nil, nil, 0
}

// remove forgets an item; nil is none.
func (r *room) remove(it *roomItem) {
	if it == nil {
		return
	}
	if it.need != nil {
		r.needed.remove(it)
	} else {
		r.idleRemove(it)
	}
	delete(r.items, it.ref)
	r.release(it)
}

func (r *room) idleRemove(it *roomItem) {
	r.idle.remove(it)
	if it.file != nil {
		r.files--
	}
}

// itemList is a list of items, oldest first.
type itemList struct {
	first, last *roomItem
	len         int
}

func (l *itemList) push(it *roomItem) {
	it.prev, it.next = l.last, nil
	if l.last != nil {
		l.last.next = it
	} else {
		l.first = it
	}
	l.last = it
	l.len++
}

func (l *itemList) remove(it *roomItem) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		l.first = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		l.last = it.prev
	}
	it.prev, it.next = nil, nil
	l.len--
}

// replace puts now in the place of old.
func (l *itemList) replace(old, now *roomItem) {
	now.prev, now.next = old.prev, old.next
	if old.prev != nil {
		old.prev.next = now
	} else {
		l.first = now
	}
	if old.next != nil {
		old.next.prev = now
	} else {
		l.last = now
	}
	old.prev, old.next = nil, nil
}

// roomBudget is what the rooms of one node hold together. A room may always hold roomFloorBytes: one group's bodies
// never depend on the others'. A nil budget bounds nothing.
type roomBudget struct {
	limit int64
	used  atomic.Int64
}

// roomFloorBytes is what every room may hold however full the node is: the bodies of two entries.
const roomFloorBytes = 512 << 10

// fits says whether a room that holds held bytes may take n more.
func (b *roomBudget) fits(held, n int64) bool {
	return b == nil || held+n <= roomFloorBytes || b.used.Load()+n <= b.limit
}

func (b *roomBudget) take(n int64) {
	if b != nil && n > 0 {
		b.used.Add(n)
	}
}

func (b *roomBudget) give(n int64) {
	if b != nil && n > 0 {
		b.used.Add(-n)
	}
}
