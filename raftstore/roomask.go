package raftstore

import "slices"

// ask is what one node is asked for.
type ask struct {
	to    NodeID
	wants []want
}

// ticked lets time pass: needs that no entry repeated are forgotten, and what came for them waits like any other
// body.
func (r *room) ticked(n int) {
	r.tick += uint64(n)
	for it := r.needed.first; it != nil; {
		next := it.next
		if r.tick-it.need.touched >= roomNeedTicks {
			r.unneed(it)
		}
		it = next
	}
}

// unneed makes an item one that nobody asked for.
func (r *room) unneed(it *roomItem) {
	if !it.arrived() || it.settled != 0 || it.ref.Term < r.floor {
		r.remove(it)
		return
	}
	r.needed.remove(it)
	it.need = nil
	r.idle.push(it)
	if it.file != nil {
		r.files++
	}
}

// committed says that an entry of term t is committed: no entry to come names a body of a lower term that none here
// names, but for those that the log of this replica still lacks, and these ask by themselves.
func (r *room) committed(t Term) {
	if t <= r.floor {
		return
	}
	r.floor = t
	for it := r.idle.first; it != nil; {
		next := it.next
		if it.ref.Term < t {
			r.remove(it)
		}
		it = next
	}
}

// asks returns what is to be asked for now and of whom: of the leader first, then of the other members in turn. What
// was asked and did not come within some ticks is asked for elsewhere. leader is 0 if none is known; others are
// nodes of other members, in a fixed order.
func (r *room) asks(leader NodeID, others []NodeID) []ask {
	var list []ask
	open, bytes := r.outstanding()
	for it := r.needed.first; it != nil && open < payloadRefsMax && bytes < roomAskBytes; it = it.next {
		n := it.need
		if it.arrived() || r.tick < n.next || r.o.streaming != nil && n.body.Large && r.o.streaming(it.ref) {
			continue
		}
		to, all := whom(leader, others, n.turn)
		if all == 0 {
			return list
		}
		if n.turn++; n.left == 0 {
			n.left = all
		}
		n.left--
		n.asked, n.next = true, r.tick+roomAskAgain
		if !slices.Contains(n.whom, to) {
			n.whom = append(n.whom, to)
		}
		if n.body.Large {
			n.next = r.tick + roomAskLargeAgain
		} else {
			bytes += n.cost()
		}
		open++
		list = addAsk(list, to, want{Index: n.index, Body: n.body, Loose: n.loose})
	}
	return list
}

// outstanding counts what was asked for and may still come.
func (r *room) outstanding() (n int, bytes int64) {
	for it := r.needed.first; it != nil; it = it.next {
		if it.need.asked && !it.arrived() && r.tick < it.need.next {
			n++
			if !it.need.body.Large {
				bytes += it.need.cost()
			}
		}
	}
	return n, bytes
}

// cost is what the answer to a request may bring, in bytes.
func (n *roomNeed) cost() int64 {
	if n.loose {
		return roomLooseCost
	}
	return n.body.Length
}

// whom is the one whose turn it is, of so many.
func whom(leader NodeID, others []NodeID, turn int) (to NodeID, n int) {
	n = len(others)
	if leader != 0 {
		n++
		for _, o := range others {
			if o == leader {
				n--
			}
		}
	}
	if n == 0 {
		return 0, 0
	}
	turn %= n
	if leader != 0 {
		if turn == 0 {
			return leader, n
		}
		turn--
	}
	for _, o := range others {
		if o == leader {
			continue
		}
		if turn == 0 {
			return o, n
		}
		turn--
	}
	panic("bug: raftstore: nobody's turn")
}

func addAsk(list []ask, to NodeID, w want) []ask {
	for i := range list {
		if list[i].to == to {
			list[i].wants = append(list[i].wants, w)
			return list
		}
	}
	return append(list, ask{to: to, wants: []want{w}})
}

// missing counts the bodies that entries need and that are not here.
func (r *room) missing() (n int) {
	for it := r.needed.first; it != nil; it = it.next {
		if !it.arrived() {
			n++
		}
	}
	return n
}

// held looks for an inline body that waits here, for somebody else who asks.
func (r *room) held(ref BodyRef) (payload []byte, d Digest, ok bool) {
	if it := r.items[ref]; it != nil && it.inline {
		return it.payload, it.digest, true
	}
	return nil, d, false
}

// clear lets go of everything: the replica stops.
func (r *room) clear() {
	for r.idle.first != nil {
		r.remove(r.idle.first)
	}
	for r.needed.first != nil {
		r.remove(r.needed.first)
	}
}
