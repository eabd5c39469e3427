package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bar shows the progress of long work on a terminal, and nothing anywhere else.
type bar struct {
	what  string
	total int64 // bytes, 0 if unknown
	bytes atomic.Int64
	stop  chan struct{}
	ended chan struct{}
}

// barDelay is how long work may take without a bar.
const barDelay = 500 * time.Millisecond

func newBar(what string, total int64) *bar {
	b := &bar{what: what, total: total, stop: make(chan struct{}), ended: make(chan struct{})}
	if !terminal(os.Stderr) {
		close(b.ended)
		return b
	}
	go b.run()
	return b
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (b *bar) run() {
	defer close(b.ended)
	start := time.Now()
	tick := time.NewTicker(barDelay / 2)
	defer tick.Stop()
	shown := false
	for {
		select {
		case <-tick.C:
			if time.Since(start) >= barDelay {
				b.show(time.Since(start))
				shown = true
			}
		case <-b.stop:
			if shown {
				fmt.Fprint(os.Stderr, "\r\x1b[K")
			}
			return
		}
	}
}

func (b *bar) show(took time.Duration) {
	n := b.bytes.Load()
	rate := float64(n) / took.Seconds() / (1 << 20)
	if b.total == 0 {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s %.1f MiB, %.1f MiB/s", b.what, float64(n)/(1<<20), rate)
		return
	}
	const width = 30
	share := min(float64(n)/float64(b.total), 1)
	full := int(share * width)
	fmt.Fprintf(os.Stderr, "\r\x1b[K%s [%-*s] %3.0f %%  %.1f of %.1f MiB, %.1f MiB/s", b.what, width,
		"##############################"[:full], share*100, float64(n)/(1<<20), float64(b.total)/(1<<20), rate)
}

// count lets the bytes that are read through it count. What can be read again stays so.
func (b *bar) count(r io.Reader) io.Reader {
	c := &counted{r: r, b: b}
	if s, ok := r.(io.Seeker); ok {
		return &countedAgain{c, s}
	}
	return c
}

type counted struct {
	r io.Reader
	b *bar
	n int64 // bytes so far
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.b.bytes.Add(int64(n))
	return n, err
}

// countedAgain is read from its beginning when a connection was lost in the middle of it.
type countedAgain struct {
	*counted
	s io.Seeker
}

func (c *countedAgain) Seek(offset int64, whence int) (int64, error) {
	at, err := c.s.Seek(offset, whence)
	if err == nil && whence == io.SeekStart {
		c.b.bytes.Add(-c.n)
		c.n = 0
	}
	return at, err
}

func (b *bar) done() {
	close(b.stop)
	<-b.ended
}
