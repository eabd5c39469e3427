package main

import (
	"context"
	"sync"
)

// gate tells those who work on the node when there is one. They work in sessions: a session begins while the node is
// up and nobody wants quiet, and ends by itself soon after that changes.
type gate struct {
	mu      sync.Mutex
	cond    *sync.Cond
	life    context.Context // ends with the node's present life; nil between lives
	end     context.CancelFunc
	quiet   context.Context // ends when quiet is asked for
	hush    context.CancelFunc
	run     context.Context // ends with the run
	abort   context.CancelFunc
	parking bool
	active  int // sessions
}

func newGate() *gate {
	g := &gate{}
	g.cond = sync.NewCond(&g.mu)
	g.run, g.abort = context.WithCancel(context.Background())
	g.quiet, g.hush = context.WithCancel(g.run)
	return g
}

// session is one worker's time at work.
type session struct {
	life  context.Context // ends when the node is killed
	quiet context.Context // ends when the worker is to come to an end
	run   context.Context // ends when there will be no life any more
}

// enter waits until there is something to work on; false when the run is over.
func (g *gate) enter() (session, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.run.Err() == nil && (g.life == nil || g.parking) {
		g.cond.Wait()
	}
	if g.run.Err() != nil {
		return session{}, false
	}
	g.active++
	return session{g.life, g.quiet, g.run}, true
}

func (g *gate) leave() {
	g.mu.Lock()
	g.active--
	g.mu.Unlock()
	g.cond.Broadcast()
}

// begin says that a life is ready, ended that it is not any more.
func (g *gate) begin() {
	g.mu.Lock()
	g.life, g.end = context.WithCancel(g.run)
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *gate) ended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life != nil {
		g.end()
		g.life = nil
	}
}

// park asks for quiet and waits until all sessions have ended; false if ctx ends first.
func (g *gate) park(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, g.cond.Broadcast)
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parking = true
	g.hush()
	for g.active > 0 && ctx.Err() == nil {
		g.cond.Wait()
	}
	return g.active == 0
}

// resume lets sessions begin again.
func (g *gate) resume() {
	g.mu.Lock()
	g.parking = false
	g.quiet, g.hush = context.WithCancel(g.run)
	g.mu.Unlock()
	g.cond.Broadcast()
}

// close lets nobody in any more.
func (g *gate) close() {
	g.mu.Lock()
	g.abort()
	g.mu.Unlock()
	g.cond.Broadcast()
}

// slot is a name at which queues come and go.
type slot struct {
	name string
	plan plan

	mu    sync.Mutex
	now   *tenant // guarded by mu; nil while there is none that anybody may use
	users int     // guarded by mu; sessions of all tenants
}

// plan is what is done with the queues of a name.
type plan struct {
	durability string
	limits     bool // they come, change and go
	purges     bool
	reborn     bool // it is deleted and made again
}

// tenant is one queue.
type tenant struct {
	place
	durability string
	leaving    context.Context // ends when its deletion is about to be asked for
	leave      context.CancelFunc
	over       context.Context // ends when it is gone
	gone       context.CancelFunc
}

func newTenant(p place, durability string) *tenant {
	t := &tenant{place: p, durability: durability}
	t.leaving, t.leave = context.WithCancel(context.Background())
	t.over, t.gone = context.WithCancel(context.Background())
	return t
}

// join begins a session with the present queue; nil if there is none.
func (s *slot) join() *tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && s.now.over.Err() == nil {
		s.users++
		return s.now
	}
	return nil
}

func (s *slot) quit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

func (s *slot) tenant() *tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// let gives the name to a queue, or to none.
func (s *slot) let(t *tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = t
}

// empty says that no session knows the queues that had the name.
func (s *slot) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0
}

// either is a context that ends with the first of several.
func either(all ...context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(all[0])
	var stops []func() bool
	for _, other := range all[1:] {
		stops = append(stops, context.AfterFunc(other, cancel))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
