package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
	"weida/fuzz/internal/label"
)

// heal ends every fault, starts every node, and waits until all serve or say why not.
func (r *run) recover() {
	if r.net != nil {
		if err := r.net.set(nil); err != nil {
			r.trouble("heal the network: %v", err)
		}
	}
	for _, s := range r.seats {
		err := errors.Join(s.freeze(false), s.disk.free())
		if err == nil && !s.Alive() && s.ready == nil {
			err = r.launch(s)
		}
		if err != nil {
			r.trouble("heal %s: %v", s.Name, err)
		}
		s.set(func() { s.full = false })
	}
	for end := time.Now().Add(r.o.heal); time.Now().Before(end); {
		r.watch()
		ready := true
		for _, s := range r.seats {
			s.mu.Lock()
			ready = ready && (s.out != "" || s.ready == nil && s.Alive())
			s.mu.Unlock()
		}
		if ready {
			return
		}
		time.Sleep(50 * time.Millisecond) // between looks at processes
	}
	for _, s := range r.seats {
		if s.ready != nil {
			r.late("%s is not ready %v after everything was healed", s.Name, r.o.heal)
		}
	}
}

// drainAll publishes a marker to every queue, takes everything out up to it, and waits until nothing is left.
func (r *run) drainAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.o.heal)
	defer cancel()
	began := time.Now()
	var work sync.WaitGroup
	for i, s := range r.slots {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(r.o.seed, 5000+uint64(i)))
			if s.queue() == nil { // it was being made again when the load ended
				(&governor{r: r, rng: rng}).replace(ctx, s)
			}
			q := s.queue()
			if q == nil {
				r.late("queue %s is not there %v after everything was healed", s.name, time.Since(began).Round(time.Second))
				return
			}
			e := &ending{r: r, q: q, rng: rng, own: rand.New(rand.NewPCG(r.o.seed, 6000+uint64(i)))}
			if err := e.drain(ctx); err != nil {
				r.late("%v was not drained %v after everything was healed: %v", q,
					time.Since(began).Round(time.Second), err)
			}
		})
	}
	work.Wait()
}

// ending takes everything out of one queue.
type ending struct {
	r   *run
	q   *queue
	rng *rand.Rand // of who asks and publishes
	own *rand.Rand // of who consumes

	mu   sync.Mutex
	last error // guarded by mu; why it did not go on
}

func (e *ending) drain(ctx context.Context) error {
	if err := e.mark(ctx); err != nil {
		return fmt.Errorf("it took no marker: %w", err)
	}
	taking, enough := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for taking.Err() == nil {
			e.take(taking)
			nap(taking, 100*time.Millisecond)
		}
	})
	err := e.empty(ctx)
	enough()
	work.Wait()
	if err != nil {
		return err
	}
	return e.audit(ctx)
}

// empty waits until nothing is left.
func (e *ending) empty(ctx context.Context) error {
	g := &governor{r: e.r, rng: e.rng}
	for {
		q, err := g.look(ctx, e.q.slot.name)
		switch {
		case err != nil:
		case q == nil:
			err = errors.New("nobody knows of it")
		case q.Live == nil:
			err = errors.New("nobody serves it")
		case q.Live.Ready+q.Live.Unsettled > 0:
			err = fmt.Errorf("%d messages are ready and %d unsettled", q.Live.Ready, q.Live.Unsettled)
		default:
			return nil
		}
		if ctx.Err() != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			return errors.Join(err, e.last)
		}
		nap(ctx, 200*time.Millisecond)
	}
}

// note keeps why something failed, but not that the time was up.
func (e *ending) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = err
}

// mark publishes the marker, again and again until it is confirmed.
func (e *ending) mark(ctx context.Context) error {
	m := e.r.message(e.q, "marker", 1, label.Room)
	m.want = wire.Stored(wire.Flushed)
	var last error
	for ctx.Err() == nil {
		res, err := e.publish(ctx, m)
		if err == nil && res.Committed {
			return nil
		}
		if ctx.Err() == nil {
			last = errors.Join(err, fmt.Errorf("%s: %w", res.Outcome, res.Err))
		}
		nap(ctx, 200*time.Millisecond)
	}
	return errors.Join(ctx.Err(), last)
}

func (e *ending) publish(ctx context.Context, m *message) (res client.Result, err error) {
	c, err := e.r.dial(ctx, e.rng)
	if err != nil {
		return res, err
	}
	defer c.Close()
	prod, err := c.Producer(ctx, e.q.slot.name, client.ProducerOptions{ID: "marker", Want: m.want})
	if err != nil {
		return res, err
	}
	ref := e.r.history.sent(m)
	body := m.label.Body()
	res, err = prod.Publish(ctx, client.Message{Body: bytes.NewReader(body), Length: int64(len(body)), Seq: 1})
	if err != nil {
		e.r.history.refused(ref, err)
		return res, err
	}
	e.r.history.answered(m, ref, res)
	return res, nil
}

// take consumes until ctx ends or the consumer does.
func (e *ending) take(ctx context.Context) {
	c, err := e.r.dial(ctx, e.own)
	if err != nil {
		e.note(ctx, err)
		return
	}
	defer c.Close()
	sub, err := c.Consumer(ctx, e.q.slot.name, client.ConsumerOptions{Subscription: "s1"})
	if err != nil {
		e.note(ctx, err)
		return
	}
	defer sub.Close()
	k := &consumer{r: e.r, slot: e.q.slot, rng: e.own, id: "s1"}
	x := &taking{consumer: k, q: e.q, name: e.r.history.session(), sub: sub, plain: true}
	x.take(ctx)
	out, cancel := context.WithTimeout(context.Background(), calm)
	defer cancel()
	e.note(ctx, x.flush(out))
}

// audit looks at everything that is in the queue, which should be nothing, and at its books.
func (e *ending) audit(ctx context.Context) error {
	c, err := e.r.dial(ctx, e.rng)
	if err != nil {
		return err
	}
	defer c.Close()
	var list []history.Stored
	for d, err := range c.Peek(ctx, e.q.slot.name, client.PeekOptions{}) {
		if err != nil {
			return err
		}
		body, err := io.ReadAll(d.Body())
		if err != nil {
			return err
		}
		list = append(list, stored(d, history.DigestOf(body)))
	}
	q, err := (&governor{r: e.r, rng: e.rng}).look(ctx, e.q.slot.name)
	switch {
	case err != nil:
		return fmt.Errorf("it was drained, and nobody tells of it: %w", err)
	case q == nil || q.Live == nil:
		return errors.New("it was drained, and nobody serves it")
	}
	e.r.history.audit(e.q, list, q.Live)
	return nil
}

// healthy waits until the cluster says that nothing is wrong with it, and notes what it says. What is wrong after a
// flipped bit is returned instead: what is spoiled may be an operator's to mend.
func (r *run) healthy(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, r.o.heal)
	defer cancel()
	rng := rand.New(rand.NewPCG(r.o.seed, 4))
	h := &history.Health{Wrong: []string{"nobody answered"}}
	for ctx.Err() == nil {
		if x := r.anyone(rng); x != nil {
			s, err := x.Status(ctx)
			if err == nil && s.Healthy {
				h.Wrong = nil
				break
			}
			if err == nil {
				h.Wrong = nil
				for _, g := range s.Groups {
					if g.Why != "" {
						h.Wrong = append(h.Wrong, fmt.Sprintf("%s is %s: %s", g.Group, g.Health, g.Why))
					}
				}
			}
		}
		nap(ctx, 200*time.Millisecond)
	}
	if len(h.Wrong) > 0 && r.spoiled() {
		return h.Wrong
	}
	r.history.Note(h)
	return nil
}
