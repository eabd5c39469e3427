package peer

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// handClock is a clock that a test turns.
type handClock struct {
	mu     sync.Mutex
	armed  *sync.Cond
	now    time.Time
	timers []*handTimer
	asked  []time.Duration // all that were ever armed
}

type handTimer struct {
	at time.Time
	f  func()
}

func newHandClock() *handClock {
	c := &handClock{now: time.Unix(1000, 0)}
	c.armed = sync.NewCond(&c.mu)
	return c
}

// Now is the time that the test turned it to.
func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f when the test turned the clock far enough.
func (c *handClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{c.now.Add(d), f}
	c.timers = append(c.timers, t)
	c.asked = append(c.asked, d)
	c.armed.Broadcast()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, t)
		if i >= 0 {
			c.timers = slices.Delete(c.timers, i, i+1)
		}
		return i >= 0
	}
}

// pass turns the clock and lets what is due happen.
func (c *handClock) pass(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*handTimer
	c.timers = slices.DeleteFunc(c.timers, func(t *handTimer) bool {
		if t.at.After(c.now) {
			return false
		}
		due = append(due, t)
		return true
	})
	c.mu.Unlock()
	for _, t := range due {
		t.f()
	}
}

// await waits until so many timers were ever armed, and returns for how long each.
func (c *handClock) await(t *testing.T, n int) []time.Duration {
	t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() { c.mu.Lock(); late = true; c.mu.Unlock(); c.armed.Broadcast() })
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.asked) < n {
		if late {
			t.Fatalf("%d timers, want %d", len(c.asked), n)
		}
		c.armed.Wait()
	}
	return slices.Clone(c.asked)
}
