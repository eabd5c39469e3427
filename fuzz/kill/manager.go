package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// manager makes, changes, purges and deletes the queues of one name. Nobody else does.
type manager struct {
	r     *run
	slot  *slot
	rng   *rand.Rand
	steps int // until the next deletion
}

// work does one thing after another until the run is over.
func (g *manager) work() {
	for {
		s, ok := g.r.gate.enter()
		if !ok {
			return
		}
		g.step(s)
		g.r.gate.leave()
		pause(s.quiet, g.rng, 60*time.Millisecond)
	}
}

// step looks at the name and does what is next.
func (g *manager) step(s session) {
	now, ok := g.look(s.life)
	if !ok {
		return
	}
	t := g.slot.tenant()
	switch {
	case t != nil && (now == nil || now.UID != t.UID): // it is gone
		t.leave()
		t.gone()
		g.slot.let(nil)
	case now == nil:
		if g.slot.empty() { // or a session that knew the old one could reach the new one
			g.make(s.life)
		}
	case now.Deleting:
		if t != nil {
			t.leave()
		}
	case t == nil:
		if now.Observed == now.Generation && g.serves(s.life) {
			g.slot.let(newTenant(place{g.slot.name, now.UID}, now.Spec.Durability))
			g.steps = 3 + g.rng.IntN(20)
		}
	default:
		g.change(s.life, t, now)
	}
}

// serves says whether the queue lets clients in, which it does soon after its resource is ready.
func (g *manager) serves(ctx context.Context) bool {
	c, err := g.r.dial(ctx)
	if err != nil {
		return false
	}
	defer c.Close()
	return c.Unsubscribe(ctx, g.slot.name, "nobody") == nil
}

// look asks for the resource; false if there was no answer.
func (g *manager) look(ctx context.Context) (*resource, bool) {
	return g.r.look(ctx, g.slot.name)
}

func (r *run) look(ctx context.Context, name string) (*resource, bool) {
	a, err := r.registry().ask(ctx, http.MethodGet, queuePath(name), nil)
	if err != nil || a.Status >= 500 {
		return nil, false
	}
	now := resourceOf(a.queue)
	if a.Status == http.StatusNotFound {
		now = nil
	}
	r.note(looked{Queue: name, Now: now})
	return now, true
}

func (g *manager) make(ctx context.Context) {
	want := spec{Durability: g.slot.plan.durability}
	if g.slot.plan.reborn && g.rng.IntN(2) == 0 {
		want.Durability = "written"
	}
	if g.slot.plan.limits {
		g.limits(&want)
	}
	verb := "apply"
	var expected *uint64
	switch g.rng.IntN(3) {
	case 0:
		verb = "create"
	case 1:
		expected = new(uint64)
	}
	g.mutate(ctx, verb, want, expected)
}

func (g *manager) limits(s *spec) {
	some := func(low, high uint64) uint64 {
		if g.rng.IntN(2) == 0 {
			return 0
		}
		return low + g.rng.Uint64N(high-low)
	}
	s.Messages, s.Bytes, s.MessageBytes = some(20, 200), some(50_000, 500_000), some(300, 100_000)
	if s.Bytes > 0 {
		s.MessageBytes = min(s.MessageBytes, s.Bytes/2) // a message that could never fit is refused as a spec
	}
}

// change does something to a queue that is there.
func (g *manager) change(ctx context.Context, t *tenant, now *resource) {
	g.steps--
	stale, current := now.Version-1, now.Version
	switch v := g.rng.IntN(100); {
	case g.slot.plan.reborn && g.steps < 0:
		var expected *uint64
		if v < 30 {
			expected = &current
		}
		g.mutate(ctx, "delete", spec{}, expected)
	case v < 4:
		g.mutate(ctx, "apply", spec{Durability: now.Spec.Durability, Messages: 1}, &stale)
	case v < 8:
		g.mutate(ctx, "create", now.Spec, nil)
	case v < 12:
		g.mutate(ctx, "apply", now.Spec, nil)
	case v < 16:
		g.mutate(ctx, "delete", spec{}, &stale)
	case v < 40 && g.slot.plan.limits:
		want := spec{Durability: now.Spec.Durability}
		g.limits(&want)
		var expected *uint64
		if g.rng.IntN(2) == 0 {
			expected = &current
		}
		g.mutate(ctx, "apply", want, expected)
	case v < 30 && g.slot.plan.purges:
		g.purge(ctx, t)
	}
}

// mutate asks for one change and notes what came of it.
func (g *manager) mutate(ctx context.Context, verb string, want spec, expected *uint64) {
	name := g.slot.name
	op := g.r.number()
	method, path, body := http.MethodPut, queuePath(name), map[string]any{"spec": want.json()}
	query := ""
	if expected != nil {
		query = fmt.Sprintf("?expectedVersion=%d", *expected)
	}
	switch verb {
	case "create":
		method, path, body["metadata"] = http.MethodPost, "/v1/queues", map[string]any{"name": name}
	case "delete":
		method, body = http.MethodDelete, nil
		drain := fmt.Sprintf("drainDeadline=%dms", g.rng.IntN(400))
		if query == "" {
			query = "?" + drain
		} else {
			query += "&" + drain
		}
	}
	g.r.note(mutating{Op: op, Queue: name, Verb: verb, Spec: want, Expected: expected})
	var document any
	if body != nil {
		document = body
	}
	a, err := g.r.registry().ask(ctx, method, path+query, document)
	e := mutated{Op: op, Queue: name, Fate: done, Now: resourceOf(a.queue), Code: a.Code}
	switch {
	case err != nil || a.Code == wire.MutationIndeterminate:
		e.Fate, e.Now = unknown, nil
	case a.Status >= 400:
		e.Fate = refused
	}
	g.r.note(e)
}

func (g *manager) purge(ctx context.Context, t *tenant) {
	c, err := g.r.dial(ctx)
	if err != nil {
		g.r.odd(t.place, "connect to purge", err)
		return
	}
	defer c.Close()
	op := g.r.number()
	g.r.note(purging{t.place, op})
	p, err := c.Purge(ctx, t.Queue)
	e := purged{place: t.place, Op: op, Fate: done, Count: p.Count, Left: p.Left}
	if err != nil {
		e.Fate = unknown
	}
	g.r.note(e)
	g.r.odd(t.place, "purge", err)
}

// drain takes everything out of a queue that nobody else consumes.
func (r *run) drain(ctx context.Context, p place, count int) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if count == 0 {
		return nil
	}
	sub, err := c.Consumer(ctx, p.Queue, client.ConsumerOptions{Subscription: "drain", Limit: uint64(count), Patience: -1})
	if err != nil {
		return err
	}
	defer sub.Close()
	var list []settling
	for d, err := range sub.Deliveries(ctx) {
		if err != nil {
			return err
		}
		got, err := read(d)
		if err != nil {
			return err
		}
		r.note(delivered{p, got})
		s := settling{p, d.Offset, d.Attempt, wire.Accept}
		r.note(s)
		list = append(list, s)
		if err := d.Accept(ctx); err != nil {
			return err
		}
	}
	stale, err := sub.Flush(ctx)
	if err != nil || len(stale) > 0 {
		return fmt.Errorf("drain queue %s: settles were refused: %v: %w", p.Queue, stale, err)
	}
	for _, s := range list {
		r.note(settled{place: p, Offset: s.Offset, Attempt: s.Attempt, Fate: done, Owner: true})
	}
	return nil
}
