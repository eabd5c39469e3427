package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/fleet"
	"weida/fuzz/internal/history"
	"weida/fuzz/internal/process"
)

// governor is the administrator of a run: queues are made, moved, deleted and made again, leaders moved, and with more
// than three nodes one is drained now and then.
type governor struct {
	r   *run
	rng *rand.Rand
}

// work does one thing after another until ctx ends.
func (g *governor) work(ctx context.Context) {
	for ctx.Err() == nil {
		nap(ctx, time.Duration(200+g.rng.IntN(2500))*time.Millisecond)
		s := g.r.slots[g.rng.IntN(len(g.r.slots))]
		switch v := g.rng.IntN(10); {
		case ctx.Err() != nil:
		case v < 4:
			g.transfer(ctx, s)
		case v < 5 && g.r.o.nodes > 3 && g.r.o.target == "":
			g.drain(ctx)
		case s.plan == moved:
			g.move(s)
		case s.plan == reborn || s.plan == brief:
			g.again(ctx, s)
		}
	}
}

// ask asks some node that may answer. An error is that there was no answer.
func (g *governor) ask(ctx context.Context, method, path string, body any) (a process.Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	x := g.r.anyone(g.rng)
	if x == nil {
		return a, fmt.Errorf("no node runs")
	}
	return x.Ask(ctx, method, path, body)
}

// insist asks until there is an answer that is no trouble of the moment, or ctx ends.
func (g *governor) insist(ctx context.Context, method, path string, body any) (a process.Reply, err error) {
	for {
		a, err = g.ask(ctx, method, path, body)
		if err == nil {
			switch a.Code {
			case wire.NotCommitted, wire.MutationIndeterminate, wire.BeingDeleted, wire.Stopping, wire.NotReady, wire.NoQuorum:
				err = fmt.Errorf("%v: %s", a.Code, a.Message)
			default:
				return a, nil
			}
		}
		if ctx.Err() != nil {
			return a, err
		}
		nap(ctx, 200*time.Millisecond)
	}
}

// make makes a queue of a name and waits until it is served.
func (g *governor) make(ctx context.Context, s *slot, replicas int) error {
	spec := map[string]any{"spec": g.r.spec(replicas, g.rng)}
	ref := g.r.history.changing(s.name, history.Apply, replicas)
	a, err := g.insist(ctx, http.MethodPut, fleet.QueuePath(s.name), spec)
	var made admin.Queue // a node that is behind may still show another of that name
	if err == nil && a.Status >= http.StatusBadRequest {
		err = fmt.Errorf("%v: %s", a.Code, a.Message)
	}
	if err == nil {
		err = json.Unmarshal(a.Body, &made)
	}
	if err != nil {
		g.r.history.changed(ref, history.Unknown, 0)
		return fmt.Errorf("make queue %s: %w", s.name, err)
	}
	g.r.history.changed(ref, history.Done, made.Metadata.UID)
	last := errors.New("nobody was asked")
	for ctx.Err() == nil {
		q, err := g.look(ctx, s.name)
		switch {
		case err != nil:
			err = fmt.Errorf("no answer: %w", err)
		case q == nil || q.Metadata.UID != made.Metadata.UID:
			err = errors.New("who was asked does not know it")
		case q.Status.ObservedGeneration != q.Metadata.Generation || q.Status.Phase != control.Ready:
			err = fmt.Errorf("generation %d of %d, %+v", q.Status.ObservedGeneration, q.Metadata.Generation, q.Status)
		default:
			s.let(q.Metadata.UID, replicas)
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		nap(ctx, 100*time.Millisecond)
	}
	return fmt.Errorf("queue %s was made and is not ready: %w", s.name, last)
}

// look is a queue as some node knows it; nil if there is none.
func (g *governor) look(ctx context.Context, name string) (*admin.Queue, error) {
	a, err := g.ask(ctx, http.MethodGet, fleet.QueuePath(name), nil)
	switch {
	case err != nil:
		return nil, err
	case a.Status == http.StatusNotFound:
		return nil, nil
	case a.Status >= http.StatusBadRequest:
		return nil, fmt.Errorf("%v: %s", a.Code, a.Message)
	}
	q := new(admin.Queue)
	return q, json.Unmarshal(a.Body, q)
}

// again deletes the queue of a name, with all that is in it, and makes another. Its users have gone before: whose
// session it is must not be in doubt.
func (g *governor) again(ctx context.Context, s *slot) {
	q := s.clear()
	if q == nil {
		return
	}
	g.replace(ctx, s)
}

// replace deletes what is there under a name, and makes another.
func (g *governor) replace(ctx context.Context, s *slot) {
	ref := g.r.history.changing(s.name, history.Delete, 0)
	for { // asked again, it does no harm, and says when the queue is gone
		a, err := g.insist(ctx, http.MethodDelete, fleet.QueuePath(s.name)+"?drainDeadline=0s", nil)
		if err == nil && a.Status == http.StatusNotFound {
			break
		}
		if err == nil && a.Status >= http.StatusBadRequest {
			g.r.wrong("delete queue %s: %v: %s", s.name, a.Code, a.Message)
		}
		if ctx.Err() != nil {
			g.r.history.changed(ref, history.Unknown, 0)
			return
		}
		nap(ctx, 100*time.Millisecond)
	}
	if s.deleted == s.last { // before; what is gone now was not known to be there
		g.r.history.changed(ref, history.Refused, 0)
	} else {
		g.r.history.changed(ref, history.Done, s.last)
	}
	s.deleted = s.last
	if err := g.make(ctx, s, s.most); err != nil && ctx.Err() == nil {
		g.r.wrong("%v", err)
	}
}

// move gives a queue more or fewer replicas. What is wanted stands at once and is done over time: the history has the
// change end when it is done.
func (g *governor) move(s *slot) {
	q := s.queue()
	if q == nil || g.r.o.nodes == 1 || !s.moving.CompareAndSwap(false, true) {
		return
	}
	counts := []int{1, 3}
	if g.r.o.nodes >= 5 {
		counts = append(counts, 5)
	}
	to := counts[g.rng.IntN(len(counts))]
	ref := g.r.history.changing(s.name, history.Apply, to)
	body := map[string]any{"spec": g.r.spec(to, g.rng)}
	watcher := &governor{r: g.r, rng: rand.New(rand.NewPCG(g.rng.Uint64(), 0))}
	g.r.moves.Go(func() {
		defer s.moving.Store(false)
		fate := history.Done
		if err := watcher.reshape(g.r.all, q, body); err != nil {
			fate = history.Unknown
		}
		g.r.history.changed(ref, fate, q.uid)
	})
}

// reshape applies a spec and waits until the queue is as it says.
func (g *governor) reshape(ctx context.Context, q *queue, body any) error {
	a, err := g.insist(ctx, http.MethodPut, fleet.QueuePath(q.slot.name), body)
	var wanted admin.Queue // a node that is behind may still show what was before
	if err == nil && a.Status >= http.StatusBadRequest {
		err = fmt.Errorf("%v: %s", a.Code, a.Message)
	}
	if err == nil {
		err = json.Unmarshal(a.Body, &wanted)
	}
	if err != nil {
		return err
	}
	g.r.changes.Add(1)
	for {
		now, err := g.look(ctx, q.slot.name)
		if err == nil && now != nil && now.Metadata.Generation >= wanted.Metadata.Generation &&
			now.Status.ObservedGeneration == now.Metadata.Generation {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		nap(ctx, 100*time.Millisecond)
	}
}

func (g *governor) transfer(ctx context.Context, s *slot) {
	group := admin.QueueGroup(s.name)
	if g.rng.IntN(10) == 0 && g.r.o.target == "" {
		group = admin.ControlName
	}
	to := g.r.names[g.rng.IntN(len(g.r.names))]
	g.try(ctx, http.MethodPost, "/v1/quorum/transfer-leader", map[string]any{"group": group, "to": to})
}

// drain moves everything off a node, and lets it have replicas again.
func (g *governor) drain(ctx context.Context) {
	name := g.r.names[g.rng.IntN(len(g.r.names))]
	g.try(ctx, http.MethodPost, "/v1/nodes/"+name+"/drain", nil)
	nap(ctx, time.Duration(g.rng.IntN(4000))*time.Millisecond)
	g.undrain(ctx, name)
}

func (g *governor) undrain(ctx context.Context, name string) {
	if a, err := g.insist(ctx, http.MethodPost, "/v1/nodes/"+name+"/undrain", nil); err == nil && a.Status < 300 {
		g.r.changes.Add(1)
	}
}

// try asks once; that there is no answer, or a refusal, is nobody's fault here.
func (g *governor) try(ctx context.Context, method, path string, body any) {
	if a, err := g.ask(ctx, method, path, body); err == nil && a.Status < http.StatusBadRequest {
		g.r.changes.Add(1)
	}
}
