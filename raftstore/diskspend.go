package raftstore

import (
	"math"
	"sync/atomic"
)

// This file accounts for what is written between two looks at a disk: a burst may take in a moment what is kept from
// messages, and a look is taken once a second only.

// spending is what may still be written before the room that is kept is touched. Any goroutine. The zero value is
// that of a disk nobody has looked at: nothing is known, and nothing refused.
type spending struct {
	known atomic.Bool
	left  atomic.Int64 // bytes above the reserve, as of the last look, less what was written since
	early atomic.Int64 // below it the next look is not waited for; math.MinInt64: one is on its way
}

// spend accounts for n bytes that were written, or are about to be. Where half of what was left is used up one looks
// at once; where nothing is left the disk has no room until that look says otherwise: room that was reserved before is
// counted twice until then, never too seldom. It never blocks for long.
func (d *disk) spend(n int64) {
	if !d.spent.known.Load() || off.spend {
		return
	}
	left := d.spent.left.Add(-n)
	if left < d.spent.early.Load() {
		d.lookEarly()
	}
	if left >= 0 || left+n < 0 { // whoever crossed the line says so
		return
	}
	d.mu.Lock()
	if !d.low && d.spent.left.Load() < 0 {
		d.low, d.guessed = true, true
		d.changeLocked()
	}
	d.mu.Unlock()
	d.host.sayDisk(false)
}

func (d *disk) lookEarly() {
	d.mu.Lock()
	look := !d.looking
	if look {
		d.looking = true
		d.spent.early.Store(math.MinInt64)
	}
	d.mu.Unlock()
	if look {
		d.looks.submit(d.look)
	}
}

// looked takes over what a look found: headroom bytes above the reserve, at a moment when left was before. What was
// written since then is not in it.
func (s *spending) looked(before, headroom int64, bounded bool) {
	s.left.Add(headroom - before)
	s.early.Store(headroom / 2)
	s.known.Store(bounded)
}
