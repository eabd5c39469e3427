package memfs

import "slices"

const (
	sectorBytes = 512
	blockBytes  = 4096
	sectors     = blockBytes / sectorBytes // per block; a bit each in blockState
	allSectors  = 1<<sectors - 1
)

// owner is the identity of a file system between two clones. Only a block that carries the owner of
// its file system may be changed in place; every other one is shared and is copied first.
type owner struct{ _ byte }

type block struct {
	owner *owner // nil: shared between a file's current and durable content
	data  [blockBytes]byte
}

type sector = [sectorBytes]byte

// blockState says what is volatile in one block; a bit per sector.
type blockState struct {
	dirty    uint8 // current content not flushed
	lost     uint8 // write-back failed: clean in the cache, old on the disk
	reserved bool  // counted against the capacity
}

// inode is a file or a directory. A nil block reads as zeros.
type inode struct {
	dir *directory // nil for a file

	cur   []*block     // what a reader sees
	state []blockState // of cur, same length
	dur   []*block     // what is on the disk; never longer than cur
	size  int64
	// durSize is the size on the disk, sizes are the unflushed ones since, newest last.
	durSize int64
	sizes   []int64
	dirty   []int               // blocks with dirty sectors, in the order they became dirty
	old     map[int64][]*sector // unflushed versions that were overwritten, oldest first, by sector number
	blocks  int64               // reserved ones
	links   int                 // names in the current tree
	opens   int
	listed  bool // in FS.unflushed
	armed   int  // write-backs that will fail
	err     errseq
}

// errseq reports a write-back error once to every descriptor that was open when it happened, and to
// the first one opened later if nobody has seen it.
type errseq struct {
	n    uint64
	seen bool
}

func (e *errseq) record() {
	if e.n == 0 || e.seen {
		e.n, e.seen = e.n+1, false
	}
}

func (e *errseq) sample() uint64 {
	if e.seen {
		return e.n
	}
	return 0
}

func (e *errseq) check(since *uint64) bool {
	if e.n == *since {
		return false
	}
	*since, e.seen = e.n, true
	return true
}

func (n *inode) durable(i int) *block {
	if i < len(n.dur) {
		return n.dur[i]
	}
	return nil
}

// grow makes cur hold at least the blocks of size bytes.
func (n *inode) grow(size int64) {
	want := int((size + blockBytes - 1) / blockBytes)
	if want <= len(n.cur) {
		return
	}
	n.cur = append(n.cur, make([]*block, want-len(n.cur))...)
	n.state = append(n.state, make([]blockState, want-len(n.state))...)
}

func (n *inode) setSize(size int64) {
	if size > n.size {
		n.size = size
		n.sizes = append(n.sizes, size)
	}
}

func (n *inode) readAt(p []byte, off int64) int {
	if off >= n.size {
		return 0
	}
	p = p[:min(int64(len(p)), n.size-off)]
	for done := 0; done < len(p); {
		i, in := int((off+int64(done))/blockBytes), int((off+int64(done))%blockBytes)
		part := p[done:min(len(p), done+blockBytes-in)]
		if b := n.cur[i]; b != nil {
			copy(part, b.data[in:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	return len(p)
}

// writeBlock puts p at byte in of block i, keeping what it replaces as a version where that was not
// flushed either.
func (n *inode) writeBlock(own *owner, i, in int, p []byte) {
	s := &n.state[i]
	if s.dirty == 0 {
		n.dirty = append(n.dirty, i)
	}
	first, limit := in/sectorBytes, (in+len(p)+sectorBytes-1)/sectorBytes
	mask := uint8((1<<limit - 1) &^ (1<<first - 1))
	if again := s.dirty & mask; again != 0 {
		for k := first; k < limit; k++ {
			if again&(1<<k) != 0 {
				n.keepVersion(i, k)
			}
		}
	}
	b := n.cur[i]
	switch {
	case b == nil || b.owner != own && len(p) == blockBytes:
		b = &block{owner: own}
		n.cur[i] = b
	case b.owner != own:
		b = &block{owner: own, data: b.data}
		n.cur[i] = b
	}
	copy(b.data[in:], p)
	s.dirty |= mask
	s.lost &^= mask
}

func (n *inode) keepVersion(i, k int) {
	if n.old == nil {
		n.old = make(map[int64][]*sector)
	}
	at := int64(i)*sectors + int64(k)
	v := sector(n.cur[i].data[k*sectorBytes:])
	n.old[at] = append(n.old[at], &v)
}

// pending reports whether a flush would change what is on the disk.
func (n *inode) pending() bool {
	return len(n.dirty) > 0 || len(n.sizes) > 0 || n.dir != nil && n.dir.pending()
}

// flush makes the current content and size durable, except for lost sectors.
func (n *inode) flush() {
	for _, i := range n.dirty {
		n.setDurable(i, merge(n.durable(i), n.cur[i], n.state[i].lost))
		n.state[i].dirty = 0
	}
	n.dirty = n.dirty[:0]
	n.old = nil
	n.durSize, n.sizes = n.size, nil
}

func (n *inode) setDurable(i int, b *block) {
	if i >= len(n.dur) {
		n.dur = append(n.dur, make([]*block, i+1-len(n.dur))...)
	}
	n.dur[i] = b
}

// merge returns a shared block with the sectors of old where mask has a bit and of cur elsewhere.
func merge(old, cur *block, mask uint8) *block {
	if mask == 0 {
		cur.owner = nil
		return cur
	}
	b := &block{data: cur.data}
	for k := range sectors {
		if mask&(1<<k) != 0 {
			putSector(b, k, sectorOf(old, k))
		}
	}
	return b
}

func sectorOf(b *block, k int) []byte {
	if b == nil {
		return make([]byte, sectorBytes)
	}
	return b.data[k*sectorBytes : (k+1)*sectorBytes]
}

func putSector(b *block, k int, data []byte) { copy(b.data[k*sectorBytes:], data) }

// lose marks everything dirty as clean without writing it: a failed write-back. The size stays to
// be flushed.
func (n *inode) lose() {
	for _, i := range n.dirty {
		n.state[i].lost |= n.state[i].dirty
		n.state[i].dirty = 0
	}
	n.dirty = n.dirty[:0]
	n.old = nil
}

// dropCache makes lost sectors of clean blocks show what is on the disk.
func (n *inode) dropCache(first, limit int) {
	for i := first; i < min(limit, len(n.cur)); i++ {
		s := &n.state[i]
		if s.lost == 0 || s.dirty != 0 {
			continue
		}
		n.cur[i] = merge(n.durable(i), n.cur[i], s.lost)
		s.lost = 0
	}
}

// settle forgets every volatile thing: the content is exactly dur and durSize.
func (n *inode) settle() {
	want := int((n.durSize + blockBytes - 1) / blockBytes)
	n.dur = slices.Clip(n.dur[:min(len(n.dur), want)])
	if tail := int(n.durSize % blockBytes); tail != 0 && len(n.dur) == want && n.dur[want-1] != nil {
		b := &block{data: n.dur[want-1].data}
		clear(b.data[tail:])
		n.dur[want-1] = b
	}
	n.cur = make([]*block, want)
	copy(n.cur, n.dur)
	for _, b := range n.cur {
		if b != nil && b.owner != nil {
			b.owner = nil
		}
	}
	state := make([]blockState, want)
	n.blocks = 0
	for i := range state {
		state[i].reserved = i < len(n.state) && n.state[i].reserved || n.cur[i] != nil
		if state[i].reserved {
			n.blocks++
		}
	}
	n.state = state
	n.size, n.sizes = n.durSize, nil
	n.dirty, n.old, n.listed, n.armed, n.opens, n.err = nil, nil, false, 0, 0, errseq{}
}

func (n *inode) clone() *inode {
	c := *n
	c.cur, c.dur, c.state = slices.Clone(n.cur), slices.Clone(n.dur), slices.Clone(n.state)
	c.sizes, c.dirty = slices.Clone(n.sizes), slices.Clone(n.dirty)
	if n.old != nil {
		c.old = make(map[int64][]*sector, len(n.old))
		for at, v := range n.old {
			c.old[at] = slices.Clip(v)
		}
	}
	return &c
}
