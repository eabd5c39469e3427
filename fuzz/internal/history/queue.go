package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// queue is one queue, and what is known of it.
type queue struct {
	Queue
	named     map[key]*message
	anonymous map[Digest]*message
	offsets   map[uint64]*message // where whom is, or was
	live      map[*message]bool   // those that have to be there
	streams   map[string][]*message
	sessions  map[string]first
	owned     bool     // it has, or had, one replica
	written   bool     // and confirms what is not flushed
	born      bool     // this history saw it made
	replicas  int      // 0: not known
	reshaped  Time     // replicas were changed last, or may be on other disks since
	leaving   Time     // its deletion was asked for, and may happen; 0: not so
	deleted   *mark    // when that was confirmed
	closed    Time     // the same
	purges    []*purge // without an answer
	emptied   Time     // end of the last one that may have had an effect
	told      []*Lost
	audited   Time                  // last audit
	final     bool                  // it was asked until nothing came any more
	room      int                   // places that messages may have and that nobody saw
	located   int                   // places that were seen
	touched   bool                  // something was sent to it
	goesOn    Time                  // when the first message that was sent after the faults was confirmed; 0: none was
	tried     mark                  // of the last sending
	base      Books                 // at the last audit
	ops       []porcupine.Operation // while they are few
	tooMany   bool
	since     settles
}

// key is who sent a message, with a producer id.
type key struct {
	producer string
	seq      uint64
}

// first is the last first delivery of a session.
type first struct {
	offset, term uint64
	t            Time
	mark
}

// settles are what went out since the last audit: for certain, and perhaps.
type settles struct {
	began                        Time
	accepted, rejected, released span
	purged                       span
}

type span struct{ certain, perhaps uint64 }

// purge is one that has no answer yet.
type purge struct{ began Time }

// message is one message of one queue.
type message struct {
	Message
	queue     *queue
	stream    string
	sent      int // sendings
	open      int // of them without an answer
	refused   int // of them
	accepted  int // of them, confirmed as accepted only
	began     Time
	published mark
	places    []place // where it is: one, more of what has no producer id
	proofs
	confirmed bool // in the queue, at a level
	answered  Time // when that was told first
	proved    mark
	seen      bool // the queue showed it
	sighted   mark
	tries     []*delivery
	gone      *delivery // a confirmed settle took it out
	missed    *mark     // an audit did not find it, with reason
	lost      bool      // without one
	allowed   bool      // and the faults since allow it
}

// place is where a message is.
type place struct {
	offset, term uint64
	at           Time // when that was heard first
	mark
}

// proofs are the evidence that a message has, on both axes.
type proofs struct{ flushed, written proof }

// proof is evidence: on how many replicas, and when the call that got it began.
type proof struct {
	n     int
	since Time
}

// delivery is one attempt.
type delivery struct {
	attempt, term uint64
	took          bool // a confirmed settle of it took the message out
	perhaps       int  // settles of it that may have
	t             Time // of the delivery
	asked         Time // when the settle was asked for that is confirmed
	verb          Verb // of the settle that is confirmed
	mark
	settled mark
}

func (m *message) String() string {
	who := "bytes " + m.Digest.String()[:8]
	if m.Producer != "" {
		who = fmt.Sprintf("%s/%d", m.Producer, m.Seq)
	} else if m.stream != "" {
		who += " of stream " + m.stream
	}
	return fmt.Sprintf("message %s of queue %s (uid %d)", who, m.queue.Name, m.queue.UID)
}

// shown are the events that a violation about a message always shows.
func (m *message) shown(more ...mark) []mark {
	list := []mark{m.published}
	if m.confirmed {
		list = append(list, m.proved)
	}
	return append(list, more...)
}

// refusedOnly says that it was never anything but refused.
func (m *message) refusedOnly() bool { return m.sent > 0 && m.sent == m.refused }

// queue returns the state of a queue.
func (c *Checker) queue(id Queue) *queue {
	q := c.queues[id.UID]
	if q == nil {
		q = &queue{
			Queue: id, named: make(map[key]*message), anonymous: make(map[Digest]*message),
			offsets: make(map[uint64]*message), live: make(map[*message]bool), streams: make(map[string][]*message),
			sessions: make(map[string]first),
		}
		q.since.began = c.line.T
		c.queues[id.UID] = q
		c.names[id.Name] = append(c.names[id.Name], q)
	}
	c.judged(Form)
	if q.Name != id.Name {
		c.breach(Form, nil, "uid %d is queue %s, and was queue %s", id.UID, id.Name, q.Name)
	}
	return q
}

// sorted are the queues by uid.
func (c *Checker) sorted() []*queue {
	return slices.SortedFunc(maps.Values(c.queues), func(a, b *queue) int { return cmp.Compare(a.UID, b.UID) })
}

// find returns a message of the queue.
func (q *queue) find(m *Message) *message {
	if m.Producer != "" {
		return q.named[key{m.Producer, m.Seq}]
	}
	return q.anonymous[m.Digest]
}

// publish takes a sending.
func (c *Checker) publish(e *Publish) {
	c.report.Counted.Published++
	q := c.queue(e.Queue)
	m := q.find(&e.Message)
	if m == nil {
		m = &message{Message: e.Message, queue: q, stream: e.Stream, began: c.line.T, published: c.here()}
		if e.Producer != "" {
			q.named[key{e.Producer, e.Seq}] = m
			m.stream = "producer " + e.Producer
		} else {
			q.anonymous[e.Digest] = m
		}
		if m.stream != "" {
			q.streams[m.stream] = append(q.streams[m.stream], m)
		}
	} else if m.Message != e.Message {
		c.breach(Form, []mark{m.published}, "%v is sent again with other bytes", m)
	}
	q.reckon(m, func() {
		m.sent++
		m.open++
	})
	q.touched, q.tried = true, c.here()
	c.begin(e.Ref, &pending{message: m, asked: e.Want.Evidence})
}

// change takes that a queue is about to be made, changed or deleted.
func (c *Checker) change(e *Change) {
	if e.Do == Delete {
		for _, q := range c.names[e.Name] {
			if q.deleted == nil && q.leaving == 0 {
				q.leaving = c.line.T
			}
		}
	}
	c.begin(e.Ref, &pending{change: e})
}

// changed takes how that ended.
func (c *Checker) changed(e *Changed) {
	p := c.end(e.Ref)
	if p == nil || p.change == nil {
		return
	}
	switch {
	case p.change.Do == Delete:
		c.deleted(p, e)
	case e.Fate == Done:
		known := c.queues[e.UID] != nil
		q := c.queue(Queue{p.change.Name, e.UID})
		q.born = q.born || !known
		c.shape(q, p.change)
		p.record(c, q, op{kind: opMake, fate: Done})
	case e.Fate == Unknown:
		for _, q := range c.names[p.change.Name] {
			c.shape(q, p.change)
		}
	case e.Fate == Refused: // nothing was changed
	}
}

// shape notes what a queue is, or may be.
func (c *Checker) shape(q *queue, e *Change) {
	q.owned = q.owned || e.Replicas == 1
	q.written = q.written || e.Durability == "written"
	if e.Replicas > 0 {
		if q.replicas > 0 { // as many may be elsewhere, and were more on the way there
			q.reshaped = c.line.T
		}
		q.replicas = e.Replicas
	}
}

func (c *Checker) deleted(p *pending, e *Changed) {
	for _, q := range c.names[p.change.Name] {
		switch {
		case e.Fate == Refused && q.leaving == p.t:
			q.leaving = 0
		case e.Fate == Done && q.UID == e.UID:
			here := c.here()
			q.deleted, q.closed = &here, c.line.T
			q.leaving = cmp.Or(q.leaving, p.t)
			p.record(c, q, op{kind: opDelete, fate: Done})
		case e.Fate == Unknown:
			p.record(c, q, op{kind: opDelete, fate: Unknown})
		}
	}
}

// purge takes that a queue is about to be emptied.
func (c *Checker) purge(e *Purge) {
	q := c.queue(e.Queue)
	p := &purge{began: c.line.T}
	q.purges = append(q.purges, p)
	q.since.purged.perhaps = manyMax
	c.begin(e.Ref, &pending{queue: q, purge: p})
}

// manyMax is more than anything is counted.
const manyMax = 1 << 62

// purged takes how that ended.
func (c *Checker) purged(e *Purged) {
	p := c.end(e.Ref)
	if p == nil || p.purge == nil {
		return
	}
	q := p.queue
	q.purges = slices.DeleteFunc(q.purges, func(x *purge) bool { return x == p.purge })
	if e.Fate != Refused {
		q.emptied = c.line.T
	}
	if e.Fate == Done {
		q.since.purged.certain += e.Count
	}
}

// removable says that something may have taken a message out, or did.
func (q *queue) removable(m *message) bool {
	if q.leaving > 0 || m.missed != nil {
		return true
	}
	for _, d := range m.tries {
		if d.took || d.perhaps > 0 {
			return true
		}
	}
	return len(q.purges) > 0 || m.began < q.emptied
}

// reckon does something that changes how many places the message may have that nobody saw.
func (q *queue) reckon(m *message, do func()) {
	before := m.room()
	do()
	q.room += m.room() - before
}

// room is how many places the message may have that nobody saw.
func (m *message) room() int {
	most := m.sent - m.refused
	if m.Producer != "" {
		most = min(most, 1)
	}
	return max(0, most-len(m.places))
}

// lost takes that users were told of a loss.
func (c *Checker) lost(e *Lost) {
	q := c.queue(e.Queue)
	q.told = append(q.told, e)
}

// toldOf says that users were told that the message is lost.
func (q *queue) toldOf(m *message) bool {
	for _, e := range q.told {
		for _, p := range m.places {
			if p.offset >= e.From && p.offset < e.To {
				return true
			}
		}
	}
	return false
}

func (p place) String() string { return "offset " + strconv.FormatUint(p.offset, 10) }
