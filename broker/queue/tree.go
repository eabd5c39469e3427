package queue

import "slices"

// fanout bounds the keys of a node.
const fanout = 64

// tree is an ordered map from numbers to values: a B+tree whose nodes are copied before a change when a frozen
// copy may still read them. The zero value is empty. What edit returned is valid until the next change.
type tree[V any] struct {
	root *node[V]
	len  int
	gen  uint64 // nodes of a lower generation belong to frozen copies, too
}

// node is a leaf (kids is nil) or an inner node (vals is nil).
type node[V any] struct {
	gen  uint64
	keys []uint64 // of an inner node: no key below kids[i] is lower than keys[i]
	vals []V
	kids []*node[V]
}

// freeze returns a copy that never changes, and may be read by another goroutine while t goes on.
func (t *tree[V]) freeze() tree[V] {
	c := *t
	t.gen++
	return c
}

// clear empties the tree.
func (t *tree[V]) clear() { t.root, t.len = nil, 0 }

// own returns n itself if no frozen copy has it, else a copy.
func (t *tree[V]) own(n *node[V]) *node[V] {
	if n.gen == t.gen {
		return n
	}
	return &node[V]{gen: t.gen, keys: slices.Clone(n.keys), vals: slices.Clone(n.vals), kids: slices.Clone(n.kids)}
}

// search returns the place of the first key at or above k. It is written out: a generic search costs twice as much.
func search(keys []uint64, k uint64) int {
	lo, hi := 0, len(keys)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); keys[mid] < k {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// kid returns which child of an inner node has k, if any has.
func (n *node[V]) kid(k uint64) int {
	i := search(n.keys, k)
	if i == len(n.keys) || n.keys[i] > k {
		i--
	}
	return max(i, 0)
}

// get returns the value of k.
func (t *tree[V]) get(k uint64) (v V, ok bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	for n.kids != nil {
		n = n.kids[n.kid(k)]
	}
	if i := search(n.keys, k); i < len(n.keys) && n.keys[i] == k {
		return n.vals[i], true
	}
	return v, false
}

// edit returns the value of k to be changed in place, nil if there is none.
func (t *tree[V]) edit(k uint64) *V {
	if t.root == nil {
		return nil
	}
	t.root = t.own(t.root)
	n := t.root
	for n.kids != nil {
		i := n.kid(k)
		n.kids[i] = t.own(n.kids[i])
		n = n.kids[i]
	}
	if i := search(n.keys, k); i < len(n.keys) && n.keys[i] == k {
		return &n.vals[i]
	}
	return nil
}

// editLast is edit of the highest key.
func (t *tree[V]) editLast() (uint64, *V) {
	if t.root == nil {
		return 0, nil
	}
	t.root = t.own(t.root)
	n := t.root
	for n.kids != nil {
		i := len(n.kids) - 1
		n.kids[i] = t.own(n.kids[i])
		n = n.kids[i]
	}
	i := len(n.keys) - 1
	return n.keys[i], &n.vals[i]
}

// put sets the value of k.
func (t *tree[V]) put(k uint64, v V) {
	if t.root == nil {
		t.root = &node[V]{gen: t.gen, keys: []uint64{k}, vals: []V{v}}
		t.len++
		return
	}
	t.root = t.own(t.root)
	if right := t.insert(t.root, k, v); right != nil {
		left := t.root
		t.root = &node[V]{
			gen: t.gen, keys: []uint64{left.keys[0], right.keys[0]}, kids: []*node[V]{left, right},
		}
	}
}

// insert puts k below n, which is owned, and returns n's new neighbour on the right if n was full.
func (t *tree[V]) insert(n *node[V], k uint64, v V) (right *node[V]) {
	if n.kids == nil {
		i := search(n.keys, k)
		if i < len(n.keys) && n.keys[i] == k {
			n.vals[i] = v
			return nil
		}
		t.len++
		to, i, right := t.room(n, i)
		to.keys, to.vals = slices.Insert(to.keys, i, k), slices.Insert(to.vals, i, v)
		return right
	}
	i := n.kid(k)
	n.keys[i] = min(n.keys[i], k)
	n.kids[i] = t.own(n.kids[i])
	below := t.insert(n.kids[i], k, v)
	if below == nil {
		return nil
	}
	to, i, right := t.room(n, i+1)
	to.keys, to.kids = slices.Insert(to.keys, i, below.keys[0]), slices.Insert(to.kids, i, below)
	return right
}

// room says where to insert what belongs at place i of n: a full node is split, in the middle or, at its end, so
// that nodes filled in rising order are full.
func (t *tree[V]) room(n *node[V], i int) (to *node[V], at int, right *node[V]) {
	if len(n.keys) < fanout {
		return n, i, nil
	}
	cut := fanout / 2
	if i == fanout {
		cut = fanout
	}
	right = &node[V]{gen: t.gen, keys: slices.Clone(n.keys[cut:])}
	n.keys = n.keys[:cut]
	if n.kids == nil {
		right.vals = slices.Clone(n.vals[cut:])
		clear(n.vals[cut:])
		n.vals = n.vals[:cut]
	} else {
		right.kids = append(make([]*node[V], 0, 1), n.kids[cut:]...) // never nil: that would be a leaf
		clear(n.kids[cut:])
		n.kids = n.kids[:cut]
	}
	if i >= cut {
		return right, i - cut, right
	}
	return n, i, right
}

// del takes k out and says whether it was there.
func (t *tree[V]) del(k uint64) bool {
	if t.root == nil {
		return false
	}
	t.root = t.own(t.root)
	ok := t.remove(t.root, k)
	for len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
	if len(t.root.keys) == 0 {
		t.root = nil
	}
	return ok
}

func (t *tree[V]) remove(n *node[V], k uint64) bool {
	if n.kids == nil {
		i := search(n.keys, k)
		if i == len(n.keys) || n.keys[i] != k {
			return false
		}
		t.len--
		n.keys, n.vals = slices.Delete(n.keys, i, i+1), slices.Delete(n.vals, i, i+1)
		return true
	}
	i := n.kid(k)
	n.kids[i] = t.own(n.kids[i])
	ok := t.remove(n.kids[i], k)
	t.tidy(n, i)
	return ok
}

// tidy drops kids[i] when it is empty, and joins it with a neighbour when both are small.
func (t *tree[V]) tidy(n *node[V], i int) {
	size := len(n.kids[i].keys)
	switch {
	case size == 0:
		n.keys, n.kids = slices.Delete(n.keys, i, i+1), slices.Delete(n.kids, i, i+1)
		return
	case size >= fanout/4:
		return
	case i > 0 && size+len(n.kids[i-1].keys) <= fanout/2:
		i--
	case i+1 < len(n.kids) && size+len(n.kids[i+1].keys) <= fanout/2:
	default:
		return
	}
	left, right := t.own(n.kids[i]), n.kids[i+1]
	left.keys = append(left.keys, right.keys...)
	left.vals = append(left.vals, right.vals...)
	left.kids = append(left.kids, right.kids...)
	n.kids[i] = left
	n.keys, n.kids = slices.Delete(n.keys, i+1, i+2), slices.Delete(n.kids, i+1, i+2)
}

// floor returns the highest key at or below k.
func (t *tree[V]) floor(k uint64) (key uint64, v V, ok bool) {
	n := t.root
	if n == nil {
		return 0, v, false
	}
	for n.kids != nil {
		n = n.kids[n.kid(k)]
	}
	i := search(n.keys, k)
	if i < len(n.keys) && n.keys[i] == k {
		return k, n.vals[i], true
	}
	if i > 0 {
		return n.keys[i-1], n.vals[i-1], true
	}
	// A separator may be lower than every key below it: the answer then lies in a neighbour.
	return t.root.below(k)
}

func (n *node[V]) below(k uint64) (key uint64, v V, ok bool) {
	if n.kids == nil {
		if i := search(n.keys, k); i > 0 {
			return n.keys[i-1], n.vals[i-1], true
		}
		return 0, v, false
	}
	for i := n.kid(k); i >= 0; i-- {
		if key, v, ok = n.kids[i].below(k); ok {
			return key, v, true
		}
	}
	return 0, v, false
}

// first returns the lowest key.
func (t *tree[V]) first() (key uint64, v V, ok bool) {
	n := t.root
	if n == nil {
		return 0, v, false
	}
	for n.kids != nil {
		n = n.kids[0]
	}
	return n.keys[0], n.vals[0], true
}

// from yields keys at or above k with their values, in order, until yield returns false. The tree does not change
// meanwhile.
func (t *tree[V]) from(k uint64, yield func(uint64, *V) bool) {
	if t.root != nil {
		t.root.from(k, yield)
	}
}

func (n *node[V]) from(k uint64, yield func(uint64, *V) bool) bool {
	if n.kids == nil {
		for i := search(n.keys, k); i < len(n.keys); i++ {
			if !yield(n.keys[i], &n.vals[i]) {
				return false
			}
		}
		return true
	}
	for i := n.kid(k); i < len(n.kids); i++ {
		if !n.kids[i].from(k, yield) {
			return false
		}
	}
	return true
}
