package raftstore

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// All goroutines of the package are started in this file. A stepped host starts none.

// TickEvery is what a tick means in a started host.
const TickEvery = 100 * time.Millisecond

// Start runs the shards, the job workers and the ticker on goroutines of their own until Stop.
func (h *Host) Start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started || h.stopping {
		panic("bug: raftstore: host started twice")
	}
	h.started = true
	for _, s := range h.shards {
		h.done.Go(func() { s.run(h.stop) })
	}
	h.done.Go(func() {
		t := time.NewTicker(TickEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				h.Tick()
			case <-h.stop:
				return
			}
		}
	})
	h.pool.spawn(&h.done)
	h.far.pool.spawn(&h.done)
	h.disk.looks.spawn(&h.done)
}

// run does rounds while there is work and sleeps while there is none.
func (s *shard) run(stop <-chan struct{}) {
	for {
		for s.round() {
		}
		select {
		case <-s.signal:
		case <-stop:
			return
		}
	}
}

// drive steps a host that nobody runs until done is closed.
func (h *Host) drive(done <-chan struct{}) {
	h.mu.Lock()
	started := h.started
	h.mu.Unlock()
	for !started {
		select {
		case <-done:
			return
		default:
		}
		if !h.Step() {
			select {
			case <-done:
			default:
				panic("bug: raftstore: a group does not stop")
			}
		}
	}
}

func sortSeats(list []*seat) {
	slices.SortFunc(list, func(a, b *seat) int { return cmp.Compare(a.id, b.id) })
}

// pool runs slow jobs: on at most limit goroutines that live while there is work, or inline in the
// order of submission when stepped. A group has a few jobs at most, so the queue is bounded by them.
type pool struct {
	limit int

	mu sync.Mutex
	// guarded by mu
	queue   []func()
	running int
	workers *sync.WaitGroup // nil when stepped
}

// submit never blocks.
func (p *pool) submit(run func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, run)
	p.growLocked()
}

// spawn lets goroutines counted in wg run the jobs from now on.
func (p *pool) spawn(wg *sync.WaitGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers = wg
	for range p.queue {
		p.growLocked()
	}
}

func (p *pool) growLocked() {
	if p.workers == nil || p.running >= p.limit {
		return
	}
	p.running++
	p.workers.Go(p.work)
}

func (p *pool) work() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.running--
			p.mu.Unlock()
			return
		}
		run := p.popLocked()
		p.mu.Unlock()
		run()
	}
}

// runInline runs what was submitted so far, when stepped.
func (p *pool) runInline() bool {
	p.mu.Lock()
	var batch []func()
	if p.workers == nil {
		batch, p.queue = p.queue, nil
	}
	p.mu.Unlock()
	for _, run := range batch {
		run()
	}
	return len(batch) > 0
}

func (p *pool) popLocked() func() {
	run := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	return run
}
