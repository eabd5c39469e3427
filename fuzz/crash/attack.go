package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weida/broker/control"
	"weida/fuzz/internal/fleet"
	"weida/fuzz/internal/history"
	"weida/fuzz/internal/process"
)

// seat is a node with what it stands on. The process lane has it; the fields behind mu, everybody.
type seat struct {
	*fleet.Node
	index int
	disk  *volume
	ready chan start // tells how the start of the present life went; nil if that is known
	up    bool       // it should be running
	late  time.Time  // when it is started again after it ended by itself

	before control.NodeStatus // what the others had on record when its directory was taken away
	fds    unix.Rlimit        // what it had before it was limited; zero if it is not

	mu      sync.Mutex
	flipped bool   // guarded by mu; a bit of it was flipped
	full    bool   // guarded by mu; its disk is
	out     string // guarded by mu; why it takes no part, "" if it does
	frozen  bool   // guarded by mu
	foreign bool   // guarded by mu; its directory is not its own
}

// start is how one went.
type start struct{ err error }

// bar is a fault as it was, for the picture.
type bar struct {
	fault
	began, ended time.Duration
	detail       string
}

// againAfter is how long a node that ended by itself is left alone.
const againAfter = time.Second

// attack plays the schedule, every lane beside the others, and returns when all of it is over and healed.
func (r *run) attack(ctx context.Context, list []fault) error {
	var work sync.WaitGroup
	errs := make([]error, len(lanes))
	for i, l := range lanes {
		var mine []fault
		for _, f := range list {
			if slices.Contains(l.kinds, f.Kind) {
				mine = append(mine, f)
			}
		}
		work.Go(func() { errs[i] = r.play(ctx, mine, i == 0) })
	}
	if r.o.lieAt > 0 {
		work.Go(func() {
			r.until(ctx, r.o.lieAt, false)
			for _, s := range r.seats {
				s.disk.lie()
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// play plays one lane. The one that has the processes watches them to the end of the load.
func (r *run) play(ctx context.Context, list []fault, watch bool) error {
	for _, f := range list {
		if !r.until(ctx, f.At, watch) {
			break
		}
		b := &bar{fault: f, began: r.now()}
		r.struck(b, true)
		ref := r.history.fault(f, r.names)
		taken := history.Now()
		if err := r.begin(b); err != nil {
			return fmt.Errorf("begin %v: %w", f, err)
		}
		if f.Kind == kill || f.Kind == powerOff { // what comes from now on is not hit by it
			r.history.Note(&history.FaultDone{Ref: ref})
			ref = 0
		}
		r.lookNow(f, taken)
		until := max(b.began+shortest, f.At+f.For)
		if f.Kind == rollback { // its beginning takes a life
			until = r.now() + f.For
		}
		r.until(ctx, until, watch && f.Kind != kill && f.Kind != powerOff)
		err := r.end(b)
		b.ended = r.now()
		r.struck(b, false)
		if ref > 0 && f.Kind != bitflip { // which is not over until somebody mends it
			r.history.Note(&history.FaultDone{Ref: ref})
		}
		if err != nil {
			return fmt.Errorf("end %v: %w", f, err)
		}
	}
	if watch {
		r.until(ctx, r.o.duration, true)
	}
	return nil
}

// until waits for a moment of the run; false if the run ends before.
func (r *run) until(ctx context.Context, at time.Duration, watch bool) bool {
	for r.now() < at && ctx.Err() == nil {
		if watch {
			r.watch()
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(at-r.now(), 50*time.Millisecond)):
		}
	}
	return ctx.Err() == nil
}

func (r *run) begin(b *bar) (err error) {
	switch b.Kind {
	case kill:
		return r.each(b.Nodes, (*run).strike)
	case powerOff:
		return r.each(b.Nodes, func(r *run, s *seat) error {
			if s.Alive() {
				// What it would write from now on would be lost in any case.
				if err := s.Freeze(); err != nil && s.Alive() {
					return err
				}
			}
			return s.disk.lose(b.How, func() error { return r.strike(s) })
		})
	case pause:
		return r.each(b.Nodes, func(_ *run, s *seat) error { return s.freeze(true) })
	case restart:
		return r.each(b.Nodes, (*run).stop)
	case bitflip:
		return r.flip(b)
	case rollback:
		return r.rollBack(b)
	case emptied:
		return r.empty(b)
	case limits:
		return r.limit(b)
	case diskfull:
		return r.each(b.Nodes, func(_ *run, s *seat) error {
			s.set(func() { s.full = true })
			return s.disk.fill()
		})
	case partition:
		return r.net.set(&b.fault)
	}
	panic("bug: crash: a fault of kind " + string(b.Kind))
}

func (r *run) end(b *bar) error {
	switch b.Kind {
	case pause:
		return r.each(b.Nodes, func(_ *run, s *seat) error { return s.freeze(false) })
	case diskfull:
		return r.each(b.Nodes, func(_ *run, s *seat) error {
			defer s.set(func() { s.full = false })
			return s.disk.free()
		})
	case partition:
		return r.net.set(nil)
	case limits:
		return r.unlimit(b)
	case rollback, emptied:
		if err := r.putRight(r.seats[b.Nodes[0]], b); err != nil {
			return err
		}
		fallthrough
	case kill, powerOff, restart, bitflip:
		return r.each(b.Nodes, func(r *run, s *seat) error {
			if s.Alive() {
				return nil // a live flip does not end it
			}
			return r.launch(s)
		})
	}
	return nil
}

// each does something to several nodes at once.
func (r *run) each(nodes []int, do func(*run, *seat) error) error {
	errs := make([]error, len(nodes))
	var work sync.WaitGroup
	for i, n := range nodes {
		work.Go(func() { errs[i] = do(r, r.seats[n]) })
	}
	work.Wait()
	return errors.Join(errs...)
}

func (s *seat) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// usable says that the node may answer.
func (s *seat) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.frozen && !s.foreign && s.out == "" && s.Alive()
}

func (s *seat) isForeign() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.foreign
}

func (s *seat) freeze(on bool) (err error) {
	if !s.Alive() {
		return nil
	}
	s.set(func() { s.frozen = on })
	if on {
		err = s.Freeze()
	} else {
		err = s.Thaw()
	}
	if err != nil && !s.Alive() {
		return nil // it ended by itself, which is seen elsewhere
	}
	return err
}

// launch begins a life and does not wait.
func (r *run) launch(s *seat) error {
	if err := s.Launch(); err != nil {
		return err
	}
	s.up, s.late = true, time.Time{}
	ready := make(chan start, 1)
	s.ready = ready
	go func() {
		_, err := s.Ready()
		ready <- start{err}
	}()
	return nil
}

// strike is kill -9. A node that ended by itself meanwhile is seen as such.
func (r *run) strike(s *seat) error {
	alive := s.Alive()
	if alive {
		if err := s.Kill(); err != nil {
			r.ended(s, err)
		}
	} else if s.up && s.late.IsZero() {
		r.ended(s, errors.New("it ended by itself"))
	}
	s.settle()
	s.up = false
	return nil
}

// stop is an orderly stop.
func (r *run) stop(s *seat) error {
	if !s.Alive() {
		return r.strike(s)
	}
	if s.ready != nil { // it is still on its way up
		if up := <-s.ready; up.err != nil {
			s.ready = nil
			r.ended(s, up.err)
			return r.strike(s)
		}
		s.ready = nil
	}
	if err := s.Stop(); err != nil {
		r.ended(s, fmt.Errorf("stop: %w", err))
	}
	s.up = false
	return nil
}

// settle waits for the end of the wait for a start.
func (s *seat) settle() {
	if s.ready != nil {
		<-s.ready // it was killed, and says so
		s.ready = nil
	}
}

// flip spoils the node that may be spoiled.
func (r *run) flip(b *bar) error {
	s := r.seats[b.Nodes[0]]
	s.set(func() { s.flipped = true })
	if b.How != flipLive {
		if err := r.strike(s); err != nil {
			return err
		}
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	var err error
	b.detail, err = flip(s.Dir, b.How, filepath.Join(s.disk.root(), "away"), b.Roll)
	return err
}

// watch looks after the processes: one that ended by itself is told of, and started again.
func (r *run) watch() {
	for _, s := range r.seats {
		if s.isForeign() {
			r.foreigner(s)
			continue
		}
		if s.ready != nil {
			select {
			case up := <-s.ready:
				s.ready = nil
				s.set(func() { s.out = "" })
				if up.err != nil {
					r.ended(s, up.err)
					s.late = time.Now().Add(againAfter)
				}
			default:
			}
			continue
		}
		switch {
		case !s.up || s.Alive():
		case s.late.IsZero():
			r.ended(s, errors.New("it ended by itself"))
			s.late = time.Now().Add(againAfter)
		case time.Now().After(s.late):
			if err := r.launch(s); err != nil {
				r.trouble("start %s: %v", s.Name, err)
			}
		}
	}
}

// ended notes that a node ended, or did not start, though nobody ended it. One with a flipped bit may refuse to work
// with it, and one without room to begin.
func (r *run) ended(s *seat, err error) {
	s.mu.Lock()
	excused := s.flipped || s.full
	if excused {
		s.out = err.Error()
	}
	s.mu.Unlock()
	var ended *process.EndedError
	if !excused {
		what := "ended"
		if errors.As(err, &ended) {
			what = "did not start"
		}
		r.wrong("%s %s by itself at %.1fs: %v; it said last: %s", s.Name, what, r.now().Seconds(), err, s.Said(600))
	}
}
