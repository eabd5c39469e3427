package fsync

import (
	"testing"
	"time"
)

// A part whose flush has ended, but whose target has not been told, is not left behind: its goroutine
// goes on as the loop, and a second one in its place would run rounds beside it.
func TestEndedFlushIsNotLeftBehind(t *testing.T) {
	now := time.Unix(0, 0)
	f := NewFlusher(Options{Strategy: Files, LateAfter: time.Second, Now: func() time.Time { return now }})
	slow, other := f.NewTarget("slow", nil), f.NewTarget("other", nil)
	f.waiting = []*Target{other}
	r := newRound(f, []part{{t: slow}}, Files)
	r.solo = true
	p := r.takePart()
	now = now.Add(2 * time.Second)
	leave := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.leaveLocked(now)
	}
	p.worker = false // as flushPart does under the same lock, before it tells the target
	if n := leave(); n != 0 || p.left {
		t.Fatalf("left %d parts of a flush that has ended", n)
	}
	p.worker = true
	if n := leave(); n != 1 || !p.left {
		t.Fatalf("left %d parts of a flush that is stuck", n)
	}
}
