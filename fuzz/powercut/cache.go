package powercut

import (
	"fmt"
	"io"
	"math/rand/v2"
)

// Sector is the unit in which a cut keeps or loses what was written, in bytes. Every write is made of whole sectors.
const Sector = 512

// Keep is what a cut leaves of what no flush has reached.
type Keep int

// What a cut may leave.
const (
	Nothing    Keep = iota // none of it
	Some                   // a subset of sectors, drawn by the disk's seed
	Everything             // all of it
)

func (k Keep) String() string {
	switch k {
	case Nothing:
		return "nothing"
	case Some:
		return "some"
	case Everything:
		return "everything"
	}
	return fmt.Sprintf("keep %d", int(k))
}

// Loss is what a cut did with what no flush had reached, in sectors. A sector that was written twice counts twice.
type Loss struct {
	Unflushed int
	Kept      int
}

// media is what stays when the power goes.
type media interface {
	io.ReaderAt
	io.WriterAt
}

// cache is what a disk keeps of writes until they are flushed. Not safe for concurrent use.
type cache struct {
	media  media
	limit  int64            // of held
	held   int64            // bytes in writes
	writes []write          // no flush has reached them; oldest first
	newest map[int64][]byte // by sector number: what a read sees of writes
}

type write struct {
	off  int64
	data []byte
}

func newCache(m media, limit int64) *cache {
	return &cache{media: m, limit: limit, newest: make(map[int64][]byte)}
}

// read fills b from off on, both of whole sectors.
func (c *cache) read(b []byte, off int64) error {
	if _, err := c.media.ReadAt(b, off); err != nil {
		return err
	}
	for at := int64(0); at < int64(len(b)) && len(c.newest) > 0; at += Sector {
		if s, ok := c.newest[(off+at)/Sector]; ok {
			copy(b[at:], s)
		}
	}
	return nil
}

// write takes data, which is the cache's from now on.
func (c *cache) write(data []byte, off int64) error {
	w := write{off, data}
	c.writes = append(c.writes, w)
	c.held += int64(len(data))
	w.each(func(sector int64, s []byte) { c.newest[sector] = s })
	for c.held > c.limit { // a disk makes room as it likes
		if err := c.settle(c.writes[0]); err != nil {
			return err
		}
		c.writes = c.writes[1:]
	}
	return nil
}

// settle moves the oldest write to the media.
func (c *cache) settle(w write) error {
	if _, err := c.media.WriteAt(w.data, w.off); err != nil {
		return err
	}
	c.held -= int64(len(w.data))
	w.each(func(sector int64, s []byte) {
		if &c.newest[sector][0] == &s[0] {
			delete(c.newest, sector)
		}
	})
	return nil
}

// each calls f with each of a write's sectors.
func (w write) each(f func(sector int64, s []byte)) {
	for at := int64(0); at < int64(len(w.data)); at += Sector {
		f((w.off+at)/Sector, w.data[at:at+Sector:at+Sector])
	}
}

// flush moves all writes to the media.
func (c *cache) flush() error {
	for i, w := range c.writes {
		if _, err := c.media.WriteAt(w.data, w.off); err != nil {
			c.writes = c.writes[i:]
			return err
		}
	}
	c.drop()
	return nil
}

func (c *cache) drop() {
	c.writes, c.held = nil, 0
	clear(c.newest)
}

// cut ends all writes: what is kept is on the media, in the order of writing, and the rest is gone.
func (c *cache) cut(k Keep, rng *rand.Rand) (l Loss, err error) {
	chance := map[Keep]float64{Nothing: 0, Some: rng.Float64(), Everything: 1}[k]
	for _, w := range c.writes {
		w.each(func(sector int64, s []byte) {
			l.Unflushed++
			if err != nil || rng.Float64() >= chance {
				return
			}
			l.Kept++
			_, err = c.media.WriteAt(s, sector*Sector)
		})
	}
	c.drop()
	return l, err
}
