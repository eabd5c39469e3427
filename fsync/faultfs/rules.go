package faultfs

import (
	"errors"
	"slices"
	"sync"
	"syscall"
)

// rule makes matching calls fail, the nth and the count-1 after it.
type rule struct {
	Match
	nth, count int
	seen       int
	err        error
	short      int // write this many bytes first; -1: the call has no effect
}

type death struct {
	at    int
	mode  deathMode
	pages int
}

type deathMode uint8

const (
	dieNever deathMode = iota
	dieBefore
	dieDuring
	dieAfter
)

// Fail makes the nth matching call from now on (from 1), and the count-1 after it, fail with err
// and without effect; count < 0 means for ever. With ErrDied the process dies in the place of the call.
func (f *FS) Fail(m Match, nth, count int, err error) {
	f.addRule(&rule{Match: m, nth: nth, count: count, err: err, short: -1})
}

// ShortWrite makes the nth matching write from now on write only n bytes and fail with err.
func (f *FS) ShortWrite(m Match, nth, n int, err error) {
	m.Op = OpWrite
	f.addRule(&rule{Match: m, nth: nth, count: 1, err: err, short: n})
}

// Heal ends what Fail and ShortWrite have begun.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// SetFull makes the disk full, or gives it room again: while it is full every Create and Allocate fails with
// fsync.ErrDiskFull, and Space says that nothing is free. What was allocated before can be written.
func (f *FS) SetFull(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

func (f *FS) addRule(r *rule) {
	if r.nth < 1 || r.err == nil {
		panic("bug: faultfs: rule without a first call or an error")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
}

// DieBefore kills the process in the place of the nth counted call, from 1 and from the start.
func (f *FS) DieBefore(n int) { f.setDeath(death{at: n, mode: dieBefore}) }

// DieAfter kills the process when the nth counted call has returned.
func (f *FS) DieAfter(n int) { f.setDeath(death{at: n, mode: dieAfter}) }

// DieDuring kills the process in the middle of the nth counted call: of a write only the first
// pages of 4096 bytes land, never all; any other call does not happen.
func (f *FS) DieDuring(n, pages int) { f.setDeath(death{at: n, mode: dieDuring, pages: pages}) }

func (f *FS) setDeath(d death) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.die = d
}

// Dead reports whether the process has died.
func (f *FS) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// IgnoreSync makes Sync of matching files report success and do nothing.
func (f *FS) IgnoreSync(path string) { f.ignore(Match{OpSync, path}) }

// IgnoreDirSync makes Sync of matching directories report success and do nothing.
func (f *FS) IgnoreDirSync(path string) { f.ignore(Match{OpSyncDir, path}) }

// IgnoreSyncFS makes SyncFS report success and do nothing.
func (f *FS) IgnoreSyncFS() { f.ignore(Match{OpSyncFS, ""}) }

func (f *FS) ignore(m Match) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ignored = append(f.ignored, m)
}

// Gate holds matching calls until it is opened.
type Gate struct {
	match   Match
	entered chan Call
	open    chan struct{}
	once    sync.Once
}

// Gate makes matching calls block, from now on, before they have any effect.
func (f *FS) Gate(m Match) *Gate {
	g := &Gate{match: m, entered: make(chan Call, 1024), open: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates = append(f.gates, g)
	return g
}

// Entered tells of each call that blocks, of the first 1024 without a reader.
func (g *Gate) Entered() <-chan Call { return g.entered }

// Open lets all blocked and all later calls through.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// verdict is what happens to one call.
type verdict struct {
	err   error // instead of the inner call's result
	short int   // write this many bytes first, if err is set; -1: none
	skip  bool  // report success and do nothing
}

// begin counts a call and decides what happens to it.
func (f *FS) begin(c Call) verdict {
	for _, g := range f.record(&c) {
		select {
		case g.entered <- c:
		default:
		}
		<-g.open
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return verdict{err: ErrDied, short: -1}
	}
	if c.N > 0 && c.N == f.die.at {
		switch f.die.mode {
		case dieBefore:
			f.dead = true
			return verdict{err: ErrDied, short: -1}
		case dieDuring:
			f.dead = true
			return verdict{err: ErrDied, short: f.die.prefix(c)}
		case dieAfter:
			f.dead = true // for the calls after this one
		case dieNever:
		}
	}
	return f.judge(c)
}

// record counts a call and returns the gates it must pass. The dead are not recorded.
func (f *FS) record(c *Call) []*Gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil
	}
	if f.counted == nil || slices.Contains(f.counted, c.Op) {
		f.ops++
		c.N = f.ops
	}
	if len(f.trace) >= traceMax {
		f.trace = append(f.trace[:0], f.trace[traceMax/2:]...)
	}
	f.trace = append(f.trace, *c)
	var gates []*Gate
	for _, g := range f.gates {
		if g.match.matches(*c) {
			gates = append(gates, g)
		}
	}
	return gates
}

// prefix is how many bytes of a write land: whole pages of the file, and not all of them.
func (d death) prefix(c Call) int {
	if c.Op != OpWrite || d.pages <= 0 {
		return -1
	}
	const page = 4096
	limit := (c.Off/page + int64(d.pages)) * page
	if last := (c.Off + c.Len - 1) / page * page; limit > last {
		limit = last
	}
	if limit <= c.Off {
		return -1
	}
	return int(limit - c.Off)
}

func (f *FS) judge(c Call) verdict {
	if f.full && (c.Op == OpCreate || c.Op == OpAllocate) {
		return verdict{err: syscall.ENOSPC, short: -1}
	}
	for _, r := range f.rules {
		if !r.matches(c) {
			continue
		}
		r.seen++
		if r.seen >= r.nth && (r.count < 0 || r.seen < r.nth+r.count) {
			f.dead = f.dead || errors.Is(r.err, ErrDied)
			return verdict{err: r.err, short: r.short}
		}
	}
	for _, m := range f.ignored {
		if m.matches(c) {
			return verdict{skip: true}
		}
	}
	return verdict{}
}
