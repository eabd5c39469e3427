package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"weida/broker/admin"
	"weida/broker/client"
)

// besideRun is one run: nodes, the queue that is watched, and others that get into trouble one after the other.
type besideRun struct {
	o       besideOptions
	live    io.Writer
	dir     string
	disks   *ownDisks // nil if the nodes have none
	nodes   *nodeProcess
	client  *client.Client // of the queue that is watched
	other   *client.Client
	watched *watched
	trouble trouble
	terms   uint64 // of all groups at the beginning
	changed int64  // by how much they had risen at the end
	phases  []phase
}

// phase is a stretch of the run.
type phase struct {
	from, to time.Time
	trouble  bool
}

// start brings up nodes and traffic.
func (b *besideRun) start(ctx context.Context, dir string) (err error) {
	b.dir = filepath.Join(dir, "beside")
	queues := 2
	if b.o.what == "failing" {
		queues = 1 + b.o.pairs // a queue whose flush failed stays so
	}
	child := "broker"
	if b.o.what == "damaged" {
		child = "scrubbed"
	}
	b.nodes, err = startNodesAs(child, b.dir, queues, b.o.replicas, func() (err error) {
		if b.o.ownDisk {
			b.disks, err = newOwnDisks(b.dir, b.o.replicas)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range []**client.Client{&b.client, &b.other} {
		if *c, err = client.Dial(ctx, b.nodes.o); err != nil {
			return err
		}
	}
	if b.trouble, err = b.newTrouble(ctx); err != nil {
		return err
	}
	if b.watched, err = watch(ctx, b.client, queueName(0), b.o); err != nil {
		return err
	}
	return nil
}

// play plays all phases.
func (b *besideRun) play(ctx context.Context) (err error) {
	if err := pause(ctx, b.o.warm); err != nil {
		return err
	}
	if b.terms, err = b.sumTerms(); err != nil {
		return err
	}
	for pair := range b.o.pairs {
		fmt.Fprintf(b.live, "bench: pair %d of %d: well\n", pair+1, b.o.pairs)
		if err := b.well(ctx); err != nil {
			return err
		}
		fmt.Fprintf(b.live, "bench: pair %d of %d: %s\n", pair+1, b.o.pairs, b.o.what)
		p := phase{from: time.Now(), trouble: true}
		if err := b.trouble.play(ctx, pair, b.o.phase); err != nil {
			return fmt.Errorf("%s: %w", b.o.what, err)
		}
		p.to = time.Now()
		b.phases = append(b.phases, p)
		if err := b.trouble.over(ctx); err != nil {
			return fmt.Errorf("after %s: %w", b.o.what, err)
		}
	}
	if err := b.well(ctx); err != nil {
		return err
	}
	terms, err := b.sumTerms()
	b.changed = int64(terms) - int64(b.terms)
	return errors.Join(err, b.watched.end(ctx))
}

func (b *besideRun) well(ctx context.Context) error {
	p := phase{from: time.Now()}
	err := pause(ctx, b.o.phase)
	p.to = time.Now()
	b.phases = append(b.phases, p)
	return err
}

// groups are each node's, as it sees them.
func (b *besideRun) groups() (all [][]admin.Group, err error) {
	for _, p := range b.nodes.processes() {
		var list []admin.Group
		if err := p.ask(&list, "groups"); err != nil {
			return nil, err
		}
		all = append(all, list)
	}
	return all, nil
}

// sumTerms is that of the terms of the watched queue and the control group: it rises with each election.
func (b *besideRun) sumTerms() (sum uint64, err error) {
	all, err := b.groups()
	if err != nil {
		return 0, err
	}
	most := make(map[uint64]uint64)
	for _, list := range all {
		for _, g := range list {
			if g.Queue == "" || g.Queue == queueName(0) {
				most[g.ID] = max(most[g.ID], g.Term)
			}
		}
	}
	for _, term := range most {
		sum += term
	}
	return sum, nil
}

// leads is which node leads a queue, and the queue's group.
func (b *besideRun) leads(queue string) (node int, group uint64, err error) {
	all, err := b.groups()
	if err != nil {
		return 0, 0, err
	}
	for i, list := range all {
		for _, g := range list {
			if g.Queue == queue && (g.Role == admin.RoleLeader || g.Role == admin.RoleOwner) {
				return i, g.ID, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("nobody leads %s", queue)
}

// end ends everything that was started.
func (b *besideRun) end() error {
	var errs []error
	if b.trouble != nil {
		errs = append(errs, b.trouble.end())
	}
	for _, c := range []*client.Client{b.client, b.other} {
		if c != nil {
			c.Close()
		}
	}
	if b.nodes != nil {
		errs = append(errs, b.nodes.kills())
	}
	if b.disks != nil {
		errs = append(errs, b.disks.close())
	}
	if b.nodes != nil {
		errs = append(errs, b.nodes.end())
	}
	return errors.Join(errs...)
}
