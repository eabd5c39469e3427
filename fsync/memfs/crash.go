package memfs

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// Keep says what survives a power cut of all that was not flushed.
type Keep uint8

// The outcomes.
const (
	// KeepNone: nothing; the disk is exactly what was flushed.
	KeepNone Keep = iota
	// KeepRandom: for each sector one of its versions, for each size one of its values, of each
	// directory any of its changes; how much survives differs from cut to cut.
	KeepRandom
	// KeepAll: everything except sectors whose write-back failed.
	KeepAll
	// KeepAstray: as KeepRandom, and some of the sectors that were under way stand where others of them belong, or twice.
	KeepAstray
)

// Kill ends the process: handles and locks are gone, everything written stays, flushed or not.
func (m *FS) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life++
	clear(m.locks)
	m.recount()
}

// recount makes the link counts and the used space those of the current tree, with no file open.
func (m *FS) recount() {
	m.used = 0
	links := map[*inode]int{m.root: 1}
	m.each(m.root, map[*inode]bool{}, func(n *inode) {
		n.opens = 0
		m.used += n.blocks * blockBytes
		if n.dir != nil {
			for _, child := range n.dir.cur {
				links[child]++
			}
		}
	})
	for n, count := range links {
		n.links = count
	}
}

// BootID identifies the life of the page cache; PowerCut changes it, Kill does not.
func (m *FS) BootID() [16]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var id [16]byte
	copy(id[:], "memfs   ")
	binary.BigEndian.PutUint64(id[8:], m.boots)
	return id
}

// PowerCut ends the machine and starts it again: handles and locks are gone, and what was volatile is
// durable or lost, as keep says. The result depends only on the state and on rng, which only
// KeepRandom and KeepAstray use.
func (m *FS) PowerCut(keep Keep, rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := cut{keep: keep, rng: rng, seen: map[*inode]bool{}}
	if keep == KeepRandom || keep == KeepAstray {
		c.bias = rng.IntN(3)
	}
	if keep == KeepAstray {
		c.strays = &strays{seen: map[*inode]bool{}}
		c.strays.gather(m.root)
	}
	c.decide(m.root)
	if c.strays != nil {
		m.astray += c.strays.hits
	}
	m.life++
	m.boots++
	m.err = errseq{}
	m.unflushed = nil
	clear(m.locks)
	m.recount()
}

// each calls fn once for every inode of the current tree, in no particular order.
func (m *FS) each(n *inode, seen map[*inode]bool, fn func(*inode)) {
	if seen[n] {
		return
	}
	seen[n] = true
	fn(n)
	if n.dir != nil {
		for _, child := range n.dir.cur {
			m.each(child, seen, fn)
		}
	}
}

// cut decides what one power cut leaves.
type cut struct {
	keep Keep
	rng  *rand.Rand
	// bias of a random cut: 0 even, 1 little survives, 2 most survives.
	bias   int
	seen   map[*inode]bool
	strays *strays // of KeepAstray
}

// pick chooses one of n versions; 0 is the durable one, n-1 the newest.
func (c *cut) pick(n int) int {
	switch c.keep {
	case KeepNone:
		return 0
	case KeepAll:
		return n - 1
	case KeepRandom, KeepAstray:
	}
	if c.bias > 0 && c.rng.IntN(8) > 0 {
		return (c.bias - 1) * (n - 1)
	}
	return c.rng.IntN(n)
}

func (c *cut) decide(n *inode) {
	if c.seen[n] {
		return
	}
	c.seen[n] = true
	if n.dir == nil {
		c.content(n)
		n.settle()
		return
	}
	d := n.dir
	for _, op := range d.ops {
		if !op.lost && c.pick(2) == 1 {
			op.apply(d.dur)
		}
	}
	names := make([]string, 0, len(d.dur))
	d.cur = make(map[string]*inode, len(d.dur))
	for name, child := range d.dur {
		names = append(names, name)
		d.cur[name] = child
	}
	d.ops, n.listed, n.opens, n.err = nil, false, 0, errseq{}
	slices.Sort(names) // the order in which rng is used must not depend on the map's
	for _, name := range names {
		c.decide(d.dur[name])
	}
}

// content turns the volatile sectors and sizes of a file into durable ones or drops them.
func (c *cut) content(n *inode) {
	slices.Sort(n.dirty)
	for _, i := range n.dirty {
		if c.keep == KeepNone {
			break
		}
		c.block(n, i)
	}
	if len(n.sizes) > 0 {
		if k := c.pick(len(n.sizes) + 1); k > 0 {
			n.durSize = n.sizes[k-1]
		}
	}
}

func (c *cut) block(n *inode, i int) {
	was, s := n.durable(i), n.state[i]
	var picked *block
	for k := range sectors {
		if s.dirty&(1<<k) == 0 {
			continue
		}
		other, astray := c.stray(was, k)
		versions := n.old[int64(i)*sectors+int64(k)]
		v := c.pick(len(versions) + 2)
		if v == 0 && !astray {
			continue
		}
		if picked == nil {
			picked = &block{}
			if was != nil {
				picked.data = was.data
			}
		}
		switch {
		case astray:
			putSector(picked, k, other)
		case v <= len(versions):
			putSector(picked, k, versions[v-1][:])
		default:
			putSector(picked, k, sectorOf(n.cur[i], k))
		}
	}
	if picked != nil {
		n.setDurable(i, picked)
	}
}

// Clone returns a second file system in the same state, durable and volatile, without handles and
// locks. The two share memory until one of them writes, so it is cheap.
func (m *FS) Clone() *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &FS{own: new(owner), life: m.life, boots: m.boots, locks: map[*inode]bool{}}
	c.err, c.capacity, c.used = m.err, m.capacity, m.used
	m.own = new(owner) // all present blocks are shared from now on
	copies := map[*inode]*inode{}
	c.root = cloneTree(m.root, copies)
	for _, n := range m.unflushed {
		if dup := copies[n]; dup != nil {
			c.unflushed = append(c.unflushed, dup)
		}
	}
	return c
}

func cloneTree(n *inode, copies map[*inode]*inode) *inode {
	if n == nil {
		return nil
	}
	if c := copies[n]; c != nil {
		return c
	}
	c := n.clone()
	copies[n] = c
	c.opens = 0
	if n.dir == nil {
		return c
	}
	d := &directory{
		cur: make(map[string]*inode, len(n.dir.cur)),
		dur: make(map[string]*inode, len(n.dir.dur)),
		ops: slices.Clone(n.dir.ops),
	}
	c.dir = d
	for name, child := range n.dir.cur {
		d.cur[name] = cloneTree(child, copies)
	}
	for name, child := range n.dir.dur {
		d.dur[name] = cloneTree(child, copies)
	}
	for i := range d.ops {
		d.ops[i].ino = cloneTree(d.ops[i].ino, copies)
	}
	return c
}
