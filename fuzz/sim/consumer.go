package main

import (
	"fmt"

	"weida/broker/queue"
	"weida/raftstore"
)

// consumer takes messages of one group under one subscription, at most one session at a time.
type consumer struct {
	*cluster
	g       *group
	sub     string
	credit  uint64
	target  raftstore.NodeID
	desk    *desk  // where its session is; nil without one
	session uint64 // at its desk
	trying  bool
	life    uint64 // rises when it loses its session or its mind
	count   uint64 // deliveries granted
	heard   micros // when it got something, or renewed its credit
	worked  micros // when it got something
}

func newConsumer(c *cluster, g *group, sub string) *consumer {
	return &consumer{cluster: c, g: g, sub: sub, credit: uint64(1 + c.rng.IntN(10)), target: c.anyNode()}
}

// run keeps it attached.
func (c *consumer) run() {
	if c.desk != nil && (c.desk.gone || c.now-c.worked > 5*second) {
		c.worked = c.now
		c.leave() // its connection is gone, or what it was sent may be
	}
	switch {
	case c.desk == nil && !c.trying:
		c.attach()
	case c.desk != nil && c.now-c.heard > second: // its credit may have been lost on the way
		c.heard = c.now
		d, session := c.desk, c.session
		c.toNode(d.node, func() {
			if c.desk == d && c.session == session && !d.gone {
				c.grant(d, session, c.count)
			}
		})
	}
	c.after(c.between(50*millisecond, 300*millisecond), c.run)
}

func (c *consumer) String() string { return fmt.Sprintf("g%d consumer %s", c.g.id, c.sub) }

func (c *consumer) attach() {
	c.trying = true
	c.life++
	life := c.life
	reply := func(r result) {
		if c.life != life || !c.trying {
			return
		}
		c.trying = false
		if r.kind != done {
			c.target = c.anyNode()
			if r.lead.Node != 0 {
				c.target = r.lead.Node
			}
		}
	}
	c.ask(c.g, c.target, func(d *desk, answer func(result)) {
		if !d.reigns {
			answer(result{kind: refused, lead: d.lead})
			return
		}
		d.session++
		session := d.session
		d.sessions[session] = c
		cmd := queue.Command{Kind: queue.Attach, Subscription: c.sub, Session: session}
		a := &ask{what: "attach " + c.sub, want: want{kind: wantStored}}
		a.reply = func(r result) {
			if r.kind == done && c.life == life {
				c.desk, c.session, c.worked = d, session, c.now
			}
			answer(r)
		}
		if err := d.propose(cmd, a); err != nil {
			delete(d.sessions, session)
			answer(result{kind: refused, lead: d.lead})
		}
	}, reply)
	c.after(3*second, func() { reply(result{kind: unknown}) })
}

// event takes what the desk says to a session, on the desk's side.
func (c *consumer) event(d *desk, e queue.Effect) {
	switch e.Kind {
	case queue.Attached:
		c.grant(d, e.Session, e.Delivered+c.credit)
	case queue.Superseded, queue.Ended:
		delete(d.sessions, e.Session)
		if c.desk == d && c.session == e.Session {
			c.ended(d)
		}
	case queue.Assigned:
		c.deliver(d, e)
	default:
	}
}

func (c *consumer) grant(d *desk, session, limit uint64) {
	c.count = limit
	cmd := queue.Command{Kind: queue.Grant, Subscription: c.sub, Session: session, Limit: limit}
	_ = d.propose(cmd, &ask{what: "grant"}) // the session ends, or the next settle grants more
}

// deliver reads the body and sends it.
func (c *consumer) deliver(d *desk, e queue.Effect) {
	b, err := d.readBody(e.Ref, e.Large)
	if err != nil {
		if !d.fs.Dead() {
			d.fail("Q2 %v g%d: the body of offset %d can't be read: %v", d.node, d.g.id, e.Offset, err)
		}
		return
	}
	c.check.delivered(d, c, d.distort(e, b), b)
	c.stats.deliveries++
	if c.desk != d || c.session != e.Session {
		// It is attached, and does not know it yet: what comes first waits.
		if !c.trying {
			return
		}
	}
	session, life := e.Session, c.life
	c.fromNode(d.node, func() { c.work(d, session, life, e) })
}

// work settles a delivery, sooner or later.
func (c *consumer) work(d *desk, session, life uint64, e queue.Effect) {
	if c.life != life {
		return
	}
	c.heard, c.worked = c.now, c.now
	c.after(c.between(millisecond, 40*millisecond), func() {
		if c.life != life {
			return
		}
		verb := queue.Accept
		switch k := c.rng.IntN(100); {
		case c.draining:
		case k < 10:
			verb = queue.Release
		case k < 15:
			verb = queue.Reject
		case k < 17: // it dies with all that it has
			c.note("%v dies", c)
			c.leave()
			return
		}
		c.settle(d, session, life, e, verb)
	})
}

func (c *consumer) settle(d *desk, session, life uint64, e queue.Effect, verb queue.Verb) {
	answered := false
	reply := func(r result) {
		if answered {
			return
		}
		answered = true
		switch r.kind {
		case done, below:
			c.check.settledWith(c.g, c, e, verb, r)
		default: // unknown: it may be delivered again
			if c.life == life {
				c.leave()
			}
		}
	}
	c.toNode(d.node, func() {
		cmd := queue.Command{
			Kind: queue.Settle, Subscription: c.sub, Session: session,
			Offset: e.Offset, Attempt: e.Attempt, Term: e.Term, Verb: verb,
		}
		answer := func(r result) { c.fromNode(d.node, func() { reply(r) }) }
		if d.gone || !d.reigns || d.propose(cmd, &ask{what: "settle", want: want{kind: wantStored}, reply: answer}) != nil {
			answer(result{kind: unknown})
			return
		}
		if c.session == session && c.desk == d {
			c.grant(d, session, c.count+1)
		}
	})
	c.after(5*second, func() { reply(result{kind: unknown}) })
}

// ended says that the session is over at its desk.
func (c *consumer) ended(d *desk) {
	if c.desk == d {
		c.leave()
	}
}

// leave forgets the session.
func (c *consumer) leave() {
	c.desk, c.session, c.trying = nil, 0, false
	c.life++
}
