package main

import (
	"fmt"

	"weida/broker/queue"
	"weida/raftstore"
)

// producer sends messages of one group, some at a time, and repeats what it does not know the end of.
type producer struct {
	*cluster
	id      string
	g       *group
	window  int
	quota   uint64 // messages it is to send
	slot    uint64 // 0: not registered
	asking  bool
	seq     uint64 // of the last one made
	open    map[uint64]*sending
	target  raftstore.NodeID
	wants   []want
	arrives micros // when the last one that it sent does
	big     int    // of a thousand messages so many are large
}

// sending is a message without an answer.
type sending struct {
	m        *message
	want     want
	attempts int
}

func newProducer(c *cluster, g *group, id string, wants []want) *producer {
	return &producer{
		cluster: c, g: g, id: id, window: 1 + c.rng.IntN(8), wants: wants, open: map[uint64]*sending{},
		target: c.anyNode(), big: c.o.big,
	}
}

// run makes messages as long as there is room, and comes again.
func (p *producer) run() {
	if p.id != "" && p.slot == 0 {
		p.register()
	} else if len(p.open) < p.window && p.seq < p.quota {
		p.make()
	}
	if !p.finished() {
		p.after(p.between(p.o.pace/2, p.o.pace*2), p.run)
	}
}

// finished says that all it is to send has an answer.
func (p *producer) finished() bool { return p.seq >= p.quota && len(p.open) == 0 }

func (p *producer) register() {
	if p.asking {
		return
	}
	p.asking = true
	answered := false
	reply := func(r result) {
		if answered {
			return
		}
		answered, p.asking = true, false
		if r.kind == done || r.kind == below {
			if r.effect.Kind != queue.Registered {
				p.fail("Q1 %s is not registered: effect %d", p.id, r.effect.Kind)
			}
			p.slot = r.effect.Slot
			return
		}
		p.redirect(r)
	}
	p.ask(p.g, p.target, func(d *desk, answer func(result)) {
		c := queue.Command{Kind: queue.Register, Producer: p.id}
		if err := d.propose(c, &ask{what: "register " + p.id, want: want{kind: wantStored}, reply: answer}); err != nil {
			answer(result{kind: refused, lead: d.lead})
		}
	}, reply)
	p.after(3*second, func() { reply(result{kind: unknown}) })
}

func (p *producer) make() {
	p.seq++
	seq := p.seq
	if p.id == "" {
		p.nameless++
		seq = p.nameless
	}
	size := p.rng.IntN(600)
	switch k := p.rng.IntN(1000); {
	case k < p.big:
		size = 70_000 + p.rng.IntN(120_000)
	case k < 100 || p.o.fat && k < 800:
		size = p.rng.IntN(40_000)
	}
	s := &sending{m: newMessage(p.g.id, p.id, seq, size), want: pick(p.loop, p.wants)}
	p.open[seq] = s
	p.check.made(s.m)
	p.send(s)
}

// low is the lowest sequence without an answer.
func (p *producer) low() uint64 {
	low := p.seq + 1
	for seq := range p.open {
		low = min(low, seq)
	}
	return low
}

// send tries once.
func (p *producer) send(s *sending) {
	if p.id != "" && p.slot == 0 { // its registration went with the log of an owner
		p.register()
		p.after(p.between(10*millisecond, 200*millisecond), func() { p.send(s) })
		return
	}
	s.attempts++
	attempt := s.attempts
	low := p.low()
	answered := false
	to := p.target
	reply := func(r result) {
		if answered {
			return
		}
		answered = true
		p.answered(s, attempt, r)
	}
	p.check.sent(s.m)
	p.inOrder(to, func(d *desk, answer func(result)) {
		cmd := queue.Command{Kind: queue.Publish}
		if p.id != "" && p.slot == 0 { // it went with the log of an owner, while this was on its way
			answer(result{kind: refused, lead: d.lead})
			return
		}
		if p.id != "" {
			cmd = queue.Command{Kind: queue.PublishFrom, Slot: p.slot, Seq: s.m.seq, Low: low}
		}
		d.publish(s.m, cmd, s.want, answer)
	}, reply)
	p.after(lateAfter+3*second, func() { reply(result{kind: unknown}) })
}

// answered takes the end of one attempt.
func (p *producer) answered(s *sending, attempt int, r result) {
	switch r.kind {
	case accepted:
		p.note("%s %v: accepted", p.name(), s.m)
		p.stats.acks++
		delete(p.open, s.m.seq)
		return
	case done, below:
		e := r.effect
		switch {
		case e.Kind == queue.Published || e.Kind == queue.Duplicate:
			p.check.acked(p.g, s.m, s.want, r, attempt)
			p.stats.acks++
			delete(p.open, s.m.seq)
			return
		case e.Kind == queue.Refused && e.Reason == queue.Full:
			r.kind = refused
		default:
			p.fail("Q9 %s %v: effect %d, reason %d", p.name(), s.m, e.Kind, e.Reason)
			return
		}
	default:
	}
	if r.kind == unknown {
		p.note("%s %v: unknown", p.name(), s.m)
		p.stats.unknown++
		if p.id == "" { // it is not told apart from a new one: once is enough
			delete(p.open, s.m.seq)
			return
		}
	} else {
		p.stats.refused++
		p.check.refused(s.m)
	}
	p.redirect(r)
	p.after(p.between(10*millisecond, 200*millisecond), func() { p.send(s) })
}

func (p *producer) name() string { return fmt.Sprintf("g%d producer %q", p.g.id, p.id) }

// redirect chooses whom to ask next.
func (p *producer) redirect(r result) {
	p.target = p.anyNode()
	if r.lead.Node != 0 && !p.chance(8) {
		p.target = r.lead.Node
	}
}

// inOrder is ask, behind everything that this producer sent before: it has one stream.
func (p *producer) inOrder(to raftstore.NodeID, fn func(d *desk, answer func(result)), reply func(result)) {
	p.arrives = max(p.arrives, p.now+p.between(10, 400))
	p.after(p.arrives-p.now, func() { p.askNow(p.g, to, fn, reply) })
}
