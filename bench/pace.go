package main

import (
	"context"
	"time"
)

// pacer says when each message of an open loop is to be sent: message k of lane i is the number k·lanes+i of all, and
// they are evenly spread over time. One goroutine watches the clock for all lanes, at most once in a paceTick: what has
// become due in it is sent together, and its latency holds the wait. Waking for each message would cost this process
// more than sending it.
type pacer struct {
	began time.Time
	every time.Duration // between two messages of all lanes
	bells []chan struct{}
}

const paceTick = 100 * time.Microsecond

func newPacer(rate float64, lanes int) *pacer {
	p := &pacer{began: time.Now(), every: time.Duration(float64(time.Second) / rate), bells: make([]chan struct{}, lanes)}
	for i := range p.bells {
		p.bells[i] = make(chan struct{}, 1)
	}
	return p
}

func (p *pacer) due(lane int, k int64) time.Time {
	return p.began.Add(time.Duration(k*int64(len(p.bells))+int64(lane)) * p.every)
}

// run rings each lane whose message has become due, until ctx ends.
func (p *pacer) run(ctx context.Context) {
	for n := int64(0); ctx.Err() == nil; {
		due := int64(time.Since(p.began)/p.every) + 1 // so many are due
		for first := n; n < due && n < first+int64(len(p.bells)); n++ {
			select {
			case p.bells[n%int64(len(p.bells))] <- struct{}{}:
			default:
			}
		}
		n = due
		time.Sleep(max(paceTick, time.Until(p.began.Add(time.Duration(n)*p.every))))
	}
}

// await waits until message k of the lane is due; false if ctx ends first.
func (p *pacer) await(ctx context.Context, lane int, k int64) bool {
	for time.Now().Before(p.due(lane, k)) {
		select {
		case <-p.bells[lane]:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
