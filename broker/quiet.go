package broker

import (
	"sync/atomic"
	"time"
)

// quiet lets one line a second pass, so that what a client repeats does not fill the log.
type quiet struct{ second atomic.Int64 }

func (q *quiet) pass(now time.Time) bool {
	s := now.Unix()
	last := q.second.Load()
	return s != last && q.second.CompareAndSwap(last, s)
}
