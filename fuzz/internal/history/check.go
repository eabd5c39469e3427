package history

import (
	"fmt"
	"time"

	"weida/broker/wire"
)

// Options say how a history is judged. The zero value is good.
type Options struct {
	// HealMax is within how long after Healed everything has to go on; 2 minutes if zero.
	HealMax time.Duration
	// LinearMax is up to how many calls and deliveries of one queue's name rule Linear is asked; 300 if zero, never if
	// below zero. The work is exponential.
	LinearMax int
	// LinearTime is how long it may take for one queue's name; 60 s if zero. What takes longer is not judged.
	LinearTime time.Duration
	// Pictures is a directory for a picture of each history that breaks rule Linear; "" for none.
	Pictures string
}

// Checker judges a history, event by event. It holds memory for each message, and for each entry that was dumped.
type Checker struct {
	o       Options
	line    *Line // the event that is being judged; nil at the end
	queues  map[uint64]*queue
	names   map[string][]*queue
	calls   map[call]*pending
	faults  []*fault
	healed  Time // 0: not yet
	health  *Health
	healthy mark
	groups  map[uint64]*group
	dumps   map[dumpID]*dump // that have not ended
	tallies map[Rule]*Tally
	report  Report
}

// call is one call of one client.
type call struct {
	client string
	ref    uint64
}

// pending is a call that has no answer yet.
type pending struct {
	mark
	t       Time
	message *message  // of Publish
	asked   wire.Want // of Publish
	settle  *delivery // of Settle
	of      *message  // of Settle
	offset  uint64    // of Settle
	verb    Verb      // of Settle
	queue   *queue    // of Purge
	change  *Change
	fault   *fault
	purge   *purge
}

// mark is where an event stands.
type mark struct {
	source Source
	line   *Line // of a live checker
}

// New returns a checker that has seen nothing.
func New(o Options) *Checker {
	if o.HealMax == 0 {
		o.HealMax = 2 * time.Minute
	}
	if o.LinearMax == 0 {
		o.LinearMax = 300
	}
	if o.LinearTime == 0 {
		o.LinearTime = time.Minute
	}
	c := &Checker{
		o: o, queues: make(map[uint64]*queue), names: make(map[string][]*queue), calls: make(map[call]*pending),
		groups: make(map[uint64]*group), dumps: make(map[dumpID]*dump),
		tallies: make(map[Rule]*Tally),
	}
	c.report.Counted.Faults = make(map[FaultKind]int)
	for _, r := range rules {
		c.tallies[r.Rule] = new(Tally)
	}
	return c
}

// Check judges a history that was kept: all files in dir and below it.
func Check(dir string, o Options) (*Report, []string, error) {
	files, err := Files(dir)
	if err != nil {
		return nil, nil, err
	}
	c := New(o)
	for l, err := range Read(files) {
		if err != nil {
			return nil, nil, err
		}
		c.Add(&l)
	}
	return c.Finish(), files, nil
}

// Broken is how many contradictions there are so far.
func (c *Checker) Broken() int { return len(c.report.Safety) + len(c.report.Liveness) }

// Counted is how much was seen so far. Its map is the checker's own.
func (c *Checker) Counted() Counted { return c.report.Counted }

// here is where the event stands that is being judged.
func (c *Checker) here() mark {
	if c.line.Source.File > 0 {
		return mark{source: c.line.Source}
	}
	return mark{line: c.line}
}

// Add takes the next event, in the order of time. The checker keeps it if it was not read from a file.
func (c *Checker) Add(l *Line) {
	if l.Source.File == 0 {
		kept := *l
		l = &kept
	}
	c.line = l
	defer func() { c.line = nil }()
	n := &c.report.Counted
	if n.Events++; n.First == 0 {
		n.First = l.T
	}
	n.Last = max(n.Last, l.T)
	switch e := l.Event.(type) {
	case *Publish:
		c.publish(e)
	case *Answer:
		c.answer(e)
	case *Deliver:
		c.deliver(e)
	case *Settle:
		c.settle(e)
	case *Settled:
		c.settled(e)
	case *Purge:
		c.purge(e)
	case *Purged:
		c.purged(e)
	case *Change:
		c.change(e)
	case *Changed:
		c.changed(e)
	case *Audit:
		c.audit(e)
	case *Lost:
		c.lost(e)
	default:
		c.apart(e)
	}
}

// apart takes what is not about one queue's traffic.
func (c *Checker) apart(e Event) {
	switch e := e.(type) {
	case *Fault:
		c.fault(e)
	case *FaultDone:
		c.faultDone(e)
	case *Boot: // for people
	case *Dump:
		c.dump(e)
	case *Entry:
		c.entry(e)
	case *DumpEnd:
		c.dumpEnd(e)
	case *Healed:
		c.healed = c.line.T
	case *Health:
		c.health, c.healthy = e, c.here()
	default:
		panic(fmt.Sprintf("bug: history: an event of type %T", e))
	}
}

// begin files a call.
func (c *Checker) begin(ref uint64, p *pending) {
	k := call{c.line.Client, ref}
	c.judged(Form)
	if was := c.calls[k]; was != nil {
		c.breach(Form, []mark{was.mark}, "call %d of %s is made again before it ended", ref, k.client)
	}
	p.mark, p.t = c.here(), c.line.T
	c.calls[k] = p
}

// end returns the call that ends, nil if there is none.
func (c *Checker) end(ref uint64) *pending {
	k := call{c.line.Client, ref}
	p := c.calls[k]
	if p == nil {
		c.breach(Form, nil, "call %d of %s ends, and nobody made it", ref, k.client)
		return nil
	}
	delete(c.calls, k)
	return p
}

// unanswered takes the calls that never ended for ones that may have an effect.
func (c *Checker) unanswered() {
	for _, p := range c.calls {
		if m := p.message; m != nil {
			p.record(c, m.queue, op{kind: opPublish, m: m, fate: Unknown})
		}
		if d := p.settle; d != nil {
			p.record(c, p.of.queue, op{
				kind: opSettle, m: p.of, fate: Unknown, offset: p.offset, attempt: d.attempt, verb: p.verb,
			})
		}
		if p.change != nil && p.change.Do == Delete {
			for _, q := range c.names[p.change.Name] {
				p.record(c, q, op{kind: opDelete, fate: Unknown})
			}
		}
	}
}

// Finish judges what only the end decides and returns what was found. Nothing may be added after it.
func (c *Checker) Finish() *Report {
	for _, q := range c.sorted() {
		c.atEnd(q)
		c.order(q)
		c.parts(q)
	}
	c.unanswered()
	c.replicas()
	c.live()
	c.linearize()
	return c.finishReport()
}
