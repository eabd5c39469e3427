package broker

import (
	"fmt"
	"time"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// proposal is a batch on its way: of one producer's messages, or of other commands.
type proposal struct {
	items    int
	messages []message // of a producer, one per item; nil for other commands
	to       *producer
	free     func() // called when the items' memory is read no more; may be nil

	// of one command that somebody waits for; each is called at most once, on the shard, and must not block
	reply   func(queue.Effect) // applied, and as durable as the queue is
	dropped func(error)        // it got no entry; nil if nobody minds
	unknown func(error)        // it has an entry, and nobody will know whether it is durable
	stuck   func(error)        // it has an entry that too few have room for, and that may be committed yet

	// set by the shard
	index raftstore.Index
	term  raftstore.Term
	first queue.Effect // of one command

	// of messages, once they are applied
	begun bool
	open  int           // without an answer
	seen  wire.Evidence // as of the last look
	since time.Time     // of late: when they were committed
	due   time.Time     // of late: when the first of their times is up
}

// message is what a producer waits for. A message with a code was refused by the queue.
type message struct {
	seq  uint64
	size int64
	want wire.Want
	// within is how long the want may be waited for once the message is committed; 0: wantPatience.
	within time.Duration

	offset, term uint64
	code         wire.Code
	done         bool // it has its answer
}

// patience is how long its want is waited for.
func (m *message) patience() time.Duration {
	if m.within > 0 {
		return m.within
	}
	return wantPatience
}

// settleAnswer waits until the settle's entry is as durable as the queue is.
type settleAnswer struct {
	index raftstore.Index
	to    *consumer
	frame wire.Settled
}

// applied notes what the queue made of item k.
func (p *proposal) applied(k int, effects []queue.Effect) {
	if len(effects) == 0 {
		return
	}
	e := effects[0]
	if k >= len(p.messages) {
		p.first = e
		return
	}
	m := &p.messages[k]
	switch e.Kind {
	case queue.Published:
		m.offset, m.term = e.Offset, uint64(p.term)
	case queue.Duplicate:
		m.offset, m.term = e.Offset, e.Term
	case queue.Refused:
		m.code = refusedByQueue[e.Reason]
	default:
		panic("bug: broker: a publish that was neither taken nor refused")
	}
}

// refusedByQueue are the codes of the state machine's refusals.
var refusedByQueue = map[queue.Reason]wire.Code{
	queue.SeqRetired:      wire.SequenceRetired,
	queue.SeqTooFar:       wire.SequenceTooFar,
	queue.UnknownProducer: wire.UnknownProducer,
	queue.Full:            wire.QueueFull,
	queue.Closed:          wire.QueueClosing,
}

// advance answers the messages whose want e covers, e being what their entry has reached by now, and says whether none
// is left.
func (p *proposal) advance(e wire.Evidence) (finished bool) {
	if !p.begun {
		p.begun = true
		p.refuse()
		p.to.wake()
	}
	if e != p.seen {
		p.seen = e
		p.confirm(e)
		p.to.wake()
	}
	return p.open == 0
}

// refuse tells what the queue did not take, and counts what it did. Who wanted no more than Accepted has its answer.
func (p *proposal) refuse() {
	for i := range p.messages {
		m := &p.messages[i]
		switch {
		case m.done: // it waited too long for its commit
		case m.want.Replicas == 0:
			m.done = true
		case m.code != wire.OK:
			m.done = true
			p.to.answered(1, m.size)
			p.to.refused(m.seq, &wire.Error{Code: m.code})
		default:
			p.open++
		}
	}
}

// confirm gives evidence to the messages whose want it covers, in runs of rising sequence and offset.
func (p *proposal) confirm(e wire.Evidence) {
	var run evidenceRun
	for i := range p.messages {
		m := &p.messages[i]
		if m.done || !e.Covers(m.want) {
			continue
		}
		m.done = true
		p.open--
		if !run.extend(m) {
			p.to.evidence(e, run)
			run = newRun(m)
		}
	}
	p.to.evidence(e, run)
}

// each calls f for every message without an answer, which it has then.
func (p *proposal) each(f func(*message)) {
	for i := range p.messages {
		if m := &p.messages[i]; !m.done {
			m.done = true
			p.open--
			f(m)
		}
	}
	p.to.wake()
}

// lose tells who waits for a flush that it will not come. It is the last answer to the proposal, which was
// applied.
func (p *proposal) lose(err error) {
	if p.unknown != nil {
		p.unknown(err)
	}
	if p.to == nil {
		return
	}
	p.each(func(m *message) { p.to.indeterminate(*m, &wire.Error{Code: wire.StoreFailed, Detail: err.Error()}) })
}

// begin starts the time of messages that are committed.
func (p *proposal) begin(now time.Time) {
	p.since = now
	p.dueNext()
}

func (p *proposal) dueNext() {
	first := true
	for i := range p.messages {
		m := &p.messages[i]
		if at := p.since.Add(m.patience()); !m.done && (first || at.Before(p.due)) {
			p.due, first = at, false
		}
	}
}

// expire answers the messages whose time is up, and says whether none is left.
func (p *proposal) expire(now time.Time) (finished bool) {
	if p.seen.IsZero() { // not even this node is known to hold it, so there is nothing to say yet
		p.due = now.Add(wantPatience)
		return false
	}
	for i := range p.messages {
		m := &p.messages[i]
		if m.done || p.since.Add(m.patience()).After(now) {
			continue
		}
		m.done = true
		p.open--
		p.to.below(m, p.seen, fmt.Sprintf("Wanted %v; %v had been reached %v after the commit", m.want, p.seen,
			m.patience()))
	}
	p.dueNext()
	p.to.wake()
	return p.open == 0
}

// abandon ends a proposal whose entry may be lost with the leadership. Messages of a producer with an id have no
// answer: its stream ends, and it sends them again to who leads.
func (p *proposal) abandon(why error) {
	if p.unknown != nil {
		p.unknown(why)
	}
	if p.to == nil || p.to.slot != 0 {
		return
	}
	for i := range p.messages {
		if m := &p.messages[i]; m.want.Replicas > 0 && !m.done {
			p.to.indeterminate(*m, lostLead(why))
		}
	}
	p.to.wake()
}

// overdue answers whoever waits for the commit of an entry for which too few have room. It stays placed: it may be
// committed yet.
func (p *proposal) overdue(why error) {
	if p.unknown != nil {
		p.unknown(why)
		p.unknown, p.reply = nil, nil
	}
	if p.stuck != nil {
		p.stuck(why)
		p.stuck = nil
	}
	if p.to == nil {
		return
	}
	for i := range p.messages {
		if m := &p.messages[i]; m.want.Replicas > 0 && !m.done {
			m.done = true
			p.to.indeterminate(*m, uncommitted(why))
		}
	}
	p.to.wake()
}

// uncommitted is what is told of an entry that too few have room for.
func uncommitted(why error) *wire.Error {
	return &wire.Error{Code: wire.Uncommitted, Detail: clip(fmt.Sprintf("%v passed: %v",
		raftstore.OverdueTicks*tickTime, why))}
}

// conclude ends a proposal that is committed where no more evidence will be seen: the leader is another one.
// A producer with an id asks that one.
func (p *proposal) conclude(e wire.Evidence, why error) {
	if p.advance(e) || p.to.slot != 0 {
		return
	}
	p.each(func(m *message) {
		if e.IsZero() {
			p.to.indeterminate(*m, lostLead(why))
			return
		}
		p.to.below(m, e, fmt.Sprintf("Wanted %v; %v had been reached when the leadership moved", m.want, e))
	})
}

// evidenceRun is a stretch of messages whose sequences and offsets rise together.
type evidenceRun struct {
	first, count uint64
	bytes        int64
	offset, term uint64
}

func newRun(m *message) evidenceRun { return evidenceRun{m.seq, 1, m.size, m.offset, m.term} }

// extend takes m into the run if it continues it.
func (r *evidenceRun) extend(m *message) bool {
	if r.count == 0 {
		*r = newRun(m)
		return true
	}
	if m.seq != r.first+r.count || m.offset != r.offset+r.count || m.term != r.term {
		return false
	}
	r.count++
	r.bytes += m.size
	return true
}
