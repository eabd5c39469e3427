package queue

import "math/bits"

// blockMax is how many offsets a run with cells spans at most: the bits of a word.
const blockMax = 64

// The columns of a row in cells, each the difference from what the run's base says.
const (
	refColumn = iota
	lengthColumn
	slotColumn
	seqColumn
	columns
)

// cells are the rows of a run whose messages are not all alike or not all present. A column that is the same for all
// rows takes no space, the others as many bytes as their largest difference needs.
type cells struct {
	gen   uint64 // of the tree of runs: whether a view may see it
	kept  uint64 // bit i: there is a row for offset i of the run
	live  uint64 // bit i: it is present; a part of kept
	width [columns]uint8
	data  []byte // rows in order; bytes that a view can see are never changed
}

func (c *cells) row() int {
	n := 0
	for _, w := range c.width {
		n += int(w)
	}
	return n
}

// differences are what the row of a message at place i of the run has in its columns.
func (r *run) differences(i uint64, m *message) (d [columns]uint64) {
	d[refColumn] = m.ref.Seq - i - r.base.ref.Seq
	d[lengthColumn] = m.length - r.base.length
	d[slotColumn] = m.slot - r.base.slot
	if m.slot != 0 {
		d[seqColumn] = m.seq - i - r.base.seq
	}
	return d
}

// at returns the message at place i, which has to be present.
func (r *run) at(i uint64) message {
	m := r.base
	m.ref.Seq += i
	if c := r.cells; c != nil {
		if row := c.row(); row > 0 {
			b := c.data[bits.OnesCount64(c.kept&(1<<i-1))*row:]
			var d [columns]uint64
			for k, w := range c.width {
				for j := range w {
					d[k] |= uint64(b[j]) << (8 * j)
				}
				b = b[w:]
			}
			m.ref.Seq += d[refColumn]
			m.length += d[lengthColumn]
			m.slot += d[slotColumn]
			m.seq += d[seqColumn]
		}
	}
	if m.slot == 0 {
		m.seq = 0
	} else {
		m.seq += i
	}
	return m
}

// grow adds a message at place i, which is at or behind the run's end and below blockMax.
func (r *run) grow(gen, i uint64, m message) {
	d := r.differences(i, &m)
	if r.cells == nil {
		// A run of one kind has cells of width nothing.
		live := uint64(1)<<r.count - 1<<r.gone
		r.cells = &cells{gen: gen, kept: live, live: live}
		r.gone = 0
	}
	c := r.ownCells(gen)
	for k, w := range c.width {
		if d[k]>>(8*w) != 0 {
			r.widen(gen, i, m)
			r.count = i + 1
			return
		}
	}
	for k, w := range c.width {
		for j := range w {
			c.data = append(c.data, byte(d[k]>>(8*j)))
		}
	}
	c.kept |= 1 << i
	c.live |= 1 << i
	r.count = i + 1
}

// ownCells returns the cells for a change. A copy shares the rows: they are only ever added to.
func (r *run) ownCells(gen uint64) *cells {
	if r.cells.gen != gen {
		c := *r.cells
		c.gen = gen
		r.cells = &c
	}
	return r.cells
}

// widen lays all present rows out anew together with one more.
func (r *run) widen(gen, i uint64, m message) {
	var rows [blockMax]message
	n := r.rows(&rows)
	rows[n] = m
	r.pack(gen, rows[:n+1], r.cells.live|1<<i)
}

// drop takes out place i. When half of the rows are gone, the others are laid out anew.
func (r *run) drop(gen, i uint64) {
	c := r.ownCells(gen)
	c.live &^= 1 << i
	if c.live != 0 && c.row() > 0 && 2*bits.OnesCount64(c.live) <= bits.OnesCount64(c.kept) {
		var rows [blockMax]message
		n := r.rows(&rows)
		r.pack(gen, rows[:n], c.live)
	}
}

// rows collects the present messages.
func (r *run) rows(rows *[blockMax]message) int {
	n := 0
	for live := r.cells.live; live != 0; live &= live - 1 {
		rows[n] = r.at(uint64(bits.TrailingZeros64(live)))
		n++
	}
	return n
}

// pack gives the run these messages, of which the places are the bits of live.
func (r *run) pack(gen uint64, rows []message, live uint64) {
	// The lowest of each column becomes the base. Signed: a number less its place may be below zero.
	var low [columns]int64
	named := false
	for k, left := 0, live; left != 0; k, left = k+1, left&(left-1) {
		i := int64(bits.TrailingZeros64(left))
		m := &rows[k]
		v := [columns]int64{int64(m.ref.Seq) - i, int64(m.length), int64(m.slot), int64(m.seq) - i}
		for j := range v {
			if j == seqColumn {
				if m.slot == 0 {
					continue
				}
				if !named {
					low[j], named = v[j], true
				}
			}
			if k == 0 && j != seqColumn || v[j] < low[j] {
				low[j] = v[j]
			}
		}
	}
	r.base.ref.Seq, r.base.length = uint64(low[refColumn]), uint64(low[lengthColumn])
	r.base.slot, r.base.seq = uint64(low[slotColumn]), uint64(low[seqColumn])
	c := &cells{gen: gen, kept: live, live: live}
	var all [columns]uint64
	for k, left := 0, live; left != 0; k, left = k+1, left&(left-1) {
		d := r.differences(uint64(bits.TrailingZeros64(left)), &rows[k])
		for j := range d {
			all[j] |= d[j]
		}
	}
	for j := range all {
		c.width[j] = uint8((bits.Len64(all[j]) + 7) / 8)
	}
	if row := c.row(); row > 0 {
		c.data = make([]byte, 0, row*len(rows))
		for k, left := 0, live; left != 0; k, left = k+1, left&(left-1) {
			d := r.differences(uint64(bits.TrailingZeros64(left)), &rows[k])
			for j, w := range c.width {
				for n := range w {
					c.data = append(c.data, byte(d[j]>>(8*n)))
				}
			}
		}
	}
	r.cells = c
}

// seal gives back what the rows of a run that will not grow have too much.
func (r *run) seal(gen uint64) {
	if c := r.cells; c != nil && cap(c.data)-len(c.data) > len(c.data)/16 {
		c = r.ownCells(gen) // a view may be reading these
		c.data = append(make([]byte, 0, len(c.data)), c.data...)
	}
}
