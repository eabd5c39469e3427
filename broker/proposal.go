package broker

import (
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

	// set by the shard
	index   raftstore.Index
	term    raftstore.Term
	first   queue.Effect // of one command
	written bool         // messages that want no more than written are answered
}

// message is what a producer waits for. A message with a code was refused by the queue.
type message struct {
	seq  uint64
	size int64
	want wire.Want

	offset, term uint64
	code         wire.Code
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

var atWritten = wire.Stored(wire.Written)

// advance answers what the marks allow and says whether the proposal is finished. durable is the mark
// that settles and other commands wait for.
func (p *proposal) advance(m raftstore.Marks, durable raftstore.Index) bool {
	flushed := p.index <= m.Flushed
	if p.to == nil {
		if p.reply == nil {
			return true
		}
		if p.index <= durable {
			p.reply(p.first)
			return true
		}
		return false
	}
	if !p.written {
		p.refuse()
		p.confirm(atWritten, func(w wire.Want) bool { return atWritten.Covers(w) }, flushed)
		p.written = true
	}
	if flushed {
		p.confirm(wire.Stored(wire.Flushed), func(w wire.Want) bool { return !atWritten.Covers(w) }, true)
	}
	p.to.wake()
	return flushed
}

// confirm gives evidence to the messages whose want is picked, in runs of rising sequence and offset.
func (p *proposal) confirm(e wire.Evidence, picked func(wire.Want) bool, flushed bool) {
	if flushed {
		e = wire.Stored(wire.Flushed) // achieved, whatever was asked (D-17)
	}
	var run evidenceRun
	for i := range p.messages {
		m := &p.messages[i]
		if m.code != wire.OK || m.want.Replicas == 0 || !picked(m.want) {
			continue
		}
		if !run.extend(m) {
			p.to.evidence(e, run)
			run = newRun(m)
		}
	}
	p.to.evidence(e, run)
}

// refuse tells what the queue did not take. Who wanted no more than Accepted has its answer.
func (p *proposal) refuse() {
	for i := range p.messages {
		m := &p.messages[i]
		if m.code != wire.OK && m.want.Replicas > 0 {
			p.to.answered(1, m.size)
			p.to.refused(m.seq, &wire.Error{Code: m.code})
		}
	}
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
	for i := range p.messages {
		if m := &p.messages[i]; m.code == wire.OK && !atWritten.Covers(m.want) {
			p.to.indeterminate(*m, wire.StoreFailed, err.Error())
		}
	}
	p.to.wake()
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
