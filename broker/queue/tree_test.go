package queue

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkTree compares a tree with a map in every way it can be read, and its nodes with their bounds.
func checkTree(t *rapid.T, tr *tree[uint64], m map[uint64]uint64, probes []uint64) {
	keys := slices.Sorted(maps.Keys(m))
	if tr.len != len(m) {
		t.Fatalf("%d keys, want %d", tr.len, len(m))
	}
	var got []uint64
	tr.from(0, func(k uint64, v *uint64) bool {
		if m[k] != *v {
			t.Fatalf("key %d has %d, want %d", k, *v, m[k])
		}
		got = append(got, k)
		return true
	})
	if !slices.Equal(got, keys) {
		t.Fatalf("keys %v, want %v", got, keys)
	}
	first, _, ok := tr.first()
	if ok != (len(keys) > 0) || ok && first != keys[0] {
		t.Fatalf("first %d %v of %v", first, ok, keys)
	}
	for _, k := range probes {
		v, ok := tr.get(k)
		if w, has := m[k]; v != w || ok != has {
			t.Fatalf("get %d: %d %v, want %d %v", k, v, ok, w, has)
		}
		i, exact := slices.BinarySearch(keys, k)
		var above []uint64
		tr.from(k, func(k uint64, _ *uint64) bool { above = append(above, k); return len(above) < 3 })
		if !slices.Equal(above, keys[i:min(i+3, len(keys))]) {
			t.Fatalf("from %d: %v of %v", k, above, keys)
		}
		if exact {
			i++
		}
		if f, _, ok := tr.floor(k); ok != (i > 0) || ok && f != keys[i-1] {
			t.Fatalf("floor %d: %d %v of %v", k, f, ok, keys)
		}
	}
	if tr.root != nil {
		checkNode(t, tr.root)
	}
}

func checkNode(t *rapid.T, n *node[uint64]) {
	if len(n.keys) == 0 || len(n.keys) > fanout || !slices.IsSorted(n.keys) {
		t.Fatalf("a node of keys %v", n.keys)
	}
	if n.kids != nil && len(n.kids) != len(n.keys) || n.kids == nil && len(n.vals) != len(n.keys) {
		t.Fatalf("a node of %d keys, %d kids and %d values", len(n.keys), len(n.kids), len(n.vals))
	}
	for i, kid := range n.kids {
		if kid.keys[0] < n.keys[i] || i+1 < len(n.keys) && kid.keys[len(kid.keys)-1] >= n.keys[i+1] {
			t.Fatalf("kid %v between %v at %d", kid.keys, n.keys, i)
		}
		checkNode(t, kid)
	}
}

// TestTreeModel drives a tree and a map, in bulk so that it gets several floors, with frozen copies that must stay.
func TestTreeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type copyOf struct {
			tree tree[uint64]
			m    map[uint64]uint64
		}
		var tr tree[uint64]
		m := map[uint64]uint64{}
		var frozen []copyOf
		key := rapid.Uint64Range(0, 5_000)
		bulk := func(t *rapid.T, do func(k, v uint64)) {
			at, n := key.Draw(t, "key"), rapid.Uint64Range(0, 800).Draw(t, "n")
			step := rapid.SampledFrom([]uint64{1, 2, 7, 7919}).Draw(t, "step")
			for i := range n {
				do((at+i*step)%5_000, at+i)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) { bulk(t, func(k, v uint64) { tr.put(k, v); m[k] = v }) },
			"del": func(t *rapid.T) {
				bulk(t, func(k, _ uint64) {
					if _, has := m[k]; tr.del(k) != has {
						t.Fatalf("del %d: want %v", k, has)
					}
					delete(m, k)
				})
			},
			"edit": func(t *rapid.T) {
				bulk(t, func(k, v uint64) {
					p := tr.edit(k)
					if _, has := m[k]; has != (p != nil) {
						t.Fatalf("edit %d: want %v", k, has)
					}
					if p != nil {
						*p, m[k] = v, v
					}
				})
			},
			"last": func(t *rapid.T) {
				k, p := tr.editLast()
				if p == nil {
					return
				}
				if k != slices.Max(slices.Collect(maps.Keys(m))) {
					t.Fatalf("last %d", k)
				}
				*p, m[k] = 1, 1
			},
			"freeze": func(t *rapid.T) {
				if len(frozen) < 3 {
					frozen = append(frozen, copyOf{tr.freeze(), maps.Clone(m)})
				}
			},
			"": func(t *rapid.T) {
				probes := []uint64{0, key.Draw(t, "probe"), key.Draw(t, "probe"), 5_001}
				checkTree(t, &tr, m, probes)
				for i := range frozen {
					checkTree(t, &frozen[i].tree, frozen[i].m, probes)
				}
			},
		})
	})
}

// TestTreeIsFull: keys that come in rising order fill their nodes; what is taken out again leaves nothing behind.
func TestTreeIsFull(t *testing.T) {
	var tr tree[uint64]
	leaves := func() (n int) {
		var count func(*node[uint64])
		count = func(x *node[uint64]) {
			if x.kids == nil {
				n++
			}
			for _, kid := range x.kids {
				count(kid)
			}
		}
		if tr.root != nil {
			count(tr.root)
		}
		return n
	}
	const n = 1 << 16
	for k := range uint64(n) {
		tr.put(k, k)
	}
	if got := leaves(); got != n/fanout {
		t.Errorf("%d leaves for %d keys in order", got, n)
	}
	for k := range uint64(n) {
		if k%64 != 0 {
			tr.del(k)
		}
	}
	if got := leaves(); got > tr.len/(fanout/8) {
		t.Errorf("%d leaves for %d keys that are left", got, tr.len)
	}
	for k := range uint64(n) {
		tr.del(k)
	}
	if tr.root != nil || tr.len != 0 {
		t.Error("an empty tree has nodes")
	}
}
