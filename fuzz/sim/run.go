package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	healLimit  = 60 * second // after the faults everything has to be in order
	faultTime  = 12 * second
	linesShown = 60
)

// outcome is how a run ended.
type outcome struct {
	seed     uint64
	problems []string
	lines    []string
	hash     uint64
	stats    stats
}

// runSeed runs one cluster drawn from a seed.
func runSeed(seed uint64, change func(*options)) (out outcome) {
	seeded(seed, func() {
		o := drawn(seed)
		if change != nil {
			change(&o)
		}
		c := newCluster(o)
		c.populate()
		c.play()
		out = outcome{
			seed: seed, problems: c.problems, lines: c.lines, hash: c.hash.Sum64(), stats: c.stats,
		}
		out.stats.events, out.stats.packets, out.stats.looks = c.count, c.net.packets, c.oracle.looks
	})
	return out
}

// drawn are the options of a seed.
func drawn(seed uint64) options {
	return options{
		seed: seed, nodes: 3 + 2*int(seed%2), faultTime: faultTime, snapshotBytes: 40_000 << (seed % 3),
		transfer: []int64{8 << 20, 20 << 10}[seed/2%2],
		pace:     60 * millisecond, big: int(seed%4) * 8, heldEvery: 60, members: seed%3 != 0,
		fat: seed%5 == 4,
	}
}

// populate makes queues with producers and consumers.
func (c *cluster) populate() {
	groups := 1 + c.rng.IntN(3)
	for i := range groups {
		c.addGroup(i, 3)
	}
	if c.chance(2) {
		c.addGroup(c.rng.IntN(len(c.nodes)), 0)
	}
	if len(c.nodes) == 5 && c.chance(2) {
		c.addGroup(0, 5)
	}
	for _, g := range c.groups {
		for i := range 1 + c.rng.IntN(2) {
			c.addProducer(g, fmt.Sprint("p", i))
		}
		if c.chance(2) {
			c.addProducer(g, "")
		}
		for i := range 1 + c.rng.IntN(2) {
			c.consumers = append(c.consumers, newConsumer(c, g, fmt.Sprint("s", i)))
		}
	}
}

// addProducer adds a producer that wants what the queue offers.
func (c *cluster) addProducer(g *group, id string) {
	wants := []want{{kind: wantStored, n: 1}, {kind: wantStored, n: 1, flushed: true}, {kind: wantAccepted}}
	if !g.owned {
		wants = append(wants, want{wantReplicated, 2, true}, want{wantReplicated, 3, true}, want{wantReplicated, 2, true})
	}
	p := newProducer(c, g, id, wants)
	p.quota = 1 << 40
	c.producers = append(c.producers, p)
}

// play is the run: faults, then none, then the books.
func (c *cluster) play() {
	c.guard(c.start)
	for _, p := range c.producers {
		c.after(c.between(0, second), p.run)
	}
	for _, s := range c.consumers {
		c.after(c.between(0, second), s.run)
	}
	for _, g := range c.groups {
		if !g.owned {
			c.operate(g)
		}
	}
	var kinds []fault
	for _, f := range faults {
		if c.chance(2) {
			kinds = append(kinds, f)
		}
	}
	c.after(c.between(second, 3*second), func() { c.plague(kinds) })
	if c.chance(2) {
		c.net.streamCuts = c.rng.IntN(400)
	}
	c.net.stalls = c.rng.IntN(600)
	c.runUntil(c.o.faultTime, nil)
	if len(c.problems) == 0 {
		c.guard(c.heal)
	}
	began := c.now
	c.runUntil(began+healLimit, c.settledDown)
	c.stats.healed = c.now - began
	if len(c.problems) == 0 {
		c.conclude()
	}
}

// conclude is what has to be true in the end.
func (c *cluster) conclude() {
	if !c.settledDown() {
		c.fail("Q10 %v s after the faults ended not all is in order: %s", healLimit, c.trouble())
		return
	}
	c.note("in order")
	c.finish()
}

// trouble says what is not in order.
func (c *cluster) trouble() string {
	var list []string
	for _, p := range c.producers {
		if !p.finished() {
			list = append(list, fmt.Sprintf("%s waits for %d answers", p.name(), len(p.open)))
		}
	}
	for _, g := range c.groups {
		d := c.leader(g)
		if d == nil {
			list = append(list, fmt.Sprintf("g%d has no leader", g.id))
			continue
		}
		n := d.state.Counts()
		list = append(list, fmt.Sprintf("g%d led by n%d: %d ready, %d unsettled, goal %v, marks %+v", g.id, d.node.id,
			n.Ready, n.Unsettled, g.goal, d.marks))
		if rep := d.group.Status().Replication; rep != nil && g.goal != nil {
			list = append(list, fmt.Sprintf("g%d %+v", g.id, *rep))
		}
		for _, id := range sortedKeys(g.replicas) {
			if o := c.node(id).desks[g.id]; o == nil {
				list = append(list, fmt.Sprintf("n%d has no g%d", id, g.id))
			} else if o.marks.Applied != d.marks.Applied {
				list = append(list, fmt.Sprintf("n%d applied %d of g%d", id, o.marks.Applied, g.id))
			}
		}
	}
	return strings.Join(list, "; ")
}

// report is what is printed of a run that broke a rule.
func (o *outcome) report(all bool) string {
	var b strings.Builder
	lines := o.lines
	if !all && len(lines) > linesShown {
		fmt.Fprintf(&b, "… %d lines before\n", len(lines)-linesShown)
		lines = lines[len(lines)-linesShown:]
	}
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	for _, p := range slices.Clip(o.problems) {
		fmt.Fprintf(&b, "seed %d: %s\n", o.seed, p)
	}
	fmt.Fprintf(&b, "again: go run ./fuzz/sim --seed %d --verbose\n", o.seed)
	return b.String()
}
