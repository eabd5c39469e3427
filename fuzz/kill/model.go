package main

import (
	"fmt"
	"sort"
	"strings"
)

// model is what a history allows. It is told of every event in order and notes what contradicts those before.
//
// It never guesses. What was asked for without an answer may have been done or not, and is either until a look at the
// queue decides; everything else has to be as it was answered.
type model struct {
	now     uint64 // events so far
	life    int
	queues  map[uint64]*queue // by uid; those that may still be looked at
	names   map[string]*registered
	version uint64 // of the registry, highest seen
	most    int    // one above the highest number of a message
	wrong   []violation
	counts  counts
}

// counts are for the live line and the table.
type counts struct {
	messages, again                 int // sent, and sent again
	accepted, written, flushed      int // answered, by evidence
	refused, unknown                int // answered
	deliveries, redeliveries        int
	accepts, releases, rejects      int // settled for certain
	settlesUnknown                  int
	purges, purged, deletions, made int
	mutations, conflicts            int
	audits, present                 int
	verified                        int // data directories read through offline
	limited                         int // refused because a queue was full, or the message too large
	crossed                         int // confirmed in a later life than they were sent in
	found                           int // without an answer, and in the queue
}

// violation is a contradiction: what kind, what exactly, and the history of what it is about.
type violation struct {
	kind, what string
	history    []string
}

func (v *violation) Error() string {
	s := v.kind + ": " + v.what
	if len(v.history) > 0 {
		s += "\n    " + strings.Join(v.history, "\n    ")
	}
	return s
}

// violationsMax bounds those that are kept: one mistake makes many.
const violationsMax = 5

func newModel() *model {
	return &model{queues: make(map[uint64]*queue), names: make(map[string]*registered)}
}

// queue is one queue of one name.
type queue struct {
	place
	messages  map[int]*message               // by number; those that may still be seen
	offsets   map[uint64]*message            // those whose offset is known
	sequences map[string]map[uint64]*message // by producer and sequence
	producers map[string]*producing
	streams   map[int][]*message // of producers without an id, since the last audit
	purges    map[int]*purge     // since the last audit

	sends    uint64 // messages sent so far
	possible uint64 // how many may be in the queue: no fewer than are
	backlog  int    // how many are, as far as it is known
	base     books  // at the last audit
	since    window // since the last audit

	leaving bool     // its deletion was asked for
	shut    uint64   // event after which nothing is taken any more; 0: not so
	specs   []spec   // that may be in force, or were since the last audit
	lines   []string // history of what is not about one message
}

// producing is what is known of a producer with an id.
type producing struct{ sent, confirmed uint64 } // highest sequences

// window counts what was settled since the last audit: certainly, and perhaps.
type window struct {
	accepted, rejected, released, purged                     uint64
	maybeAccepted, maybeRejected, maybeReleased, maybePurged uint64
}

// message is one message of one queue.
type message struct {
	sent
	sends, refusals uint64
	confirmed       bool
	accepted        bool // answered with no more than Accepted
	open            int  // sendings without an answer
	seen            bool // a queue showed it
	located         bool // its offset and term are known
	offset, term    uint64
	first, last     uint64 // events of sending
	life            int    // of the last sending
	sendsBefore     uint64 // of its queue, when it was sent last
	possibleBefore  uint64 // of its queue, then
	floor           uint64 // the next attempt is at least this one
	attempts        []*attempt
	gone            bool // settled for good, for certain
	over            bool // an audit did not find it: it must not be seen again, and may be asked for
	finished        bool // it is never sent again
	lines           []string
}

// attempt is one delivery of a message.
type attempt struct {
	n       uint64
	verb    int
	removal fate // done: it took the message out; unknown: it may have; refused: not
}

func (m *message) String() string {
	who := fmt.Sprintf("stream %d", m.Stream)
	if m.Producer != "" {
		who = fmt.Sprintf("producer %s sequence %d", m.Producer, m.Seq)
	}
	return fmt.Sprintf("message %d (%s, %d bytes, queue %s uid %d)", m.Message, who, m.Length, m.Queue, m.UID)
}

// refusedOnly says that it was never anything but refused.
func (m *message) refusedOnly() bool { return m.sends > 0 && m.sends == m.refusals }

// apply takes the next event.
func (m *model) apply(e event) {
	m.now++
	switch e := e.(type) {
	case sent:
		m.sent(e)
	case answered:
		m.answered(e)
	case givenUp:
		m.givenUp(e)
	case opened:
		m.opened(e)
	case delivered:
		m.delivered(e)
	case settling:
		m.settling(e)
	case settled:
		m.settled(e)
	case purging:
		m.purging(e)
	case purged:
		m.purged(e)
	case trouble:
		m.trouble(e)
	case mutating:
		m.mutating(e)
	case mutated:
		m.mutated(e)
	case looked:
		m.looked(e)
	case started:
		m.life = e.Life
	case killed:
		m.killed()
	case audited:
		m.audited(e)
	default:
		panic(fmt.Sprintf("bug: kill: an event of type %T", e))
	}
}

func (m *model) violate(kind string, history []string, format string, args ...any) {
	if len(m.wrong) < violationsMax {
		m.wrong = append(m.wrong, violation{kind, fmt.Sprintf(format, args...), append([]string(nil), history...)})
	}
}

// against notes a contradiction about one message.
func (m *model) against(msg *message, kind, format string, args ...any) {
	m.violate(kind, msg.lines, "%v: %s", msg, fmt.Sprintf(format, args...))
}

// linesMax bounds a history; its end is what is looked at.
const linesMax = 60

func (m *model) tell(msg *message, format string, args ...any) {
	if len(msg.lines) == linesMax {
		msg.lines = append(msg.lines[:linesMax/2], msg.lines[linesMax/2+1:]...)
	}
	msg.lines = append(msg.lines, fmt.Sprintf("%7d life %d: ", m.now, m.life)+fmt.Sprintf(format, args...))
}

func (m *model) tellQueue(q *queue, format string, args ...any) {
	if len(q.lines) == linesMax {
		q.lines = append(q.lines[:linesMax/2], q.lines[linesMax/2+1:]...)
	}
	q.lines = append(q.lines, fmt.Sprintf("%7d life %d: ", m.now, m.life)+fmt.Sprintf(format, args...))
}

func newQueue(p place, s spec) *queue {
	return &queue{
		place: p, messages: make(map[int]*message), offsets: make(map[uint64]*message),
		sequences: make(map[string]map[uint64]*message), producers: make(map[string]*producing),
		streams: make(map[int][]*message), purges: make(map[int]*purge), specs: []spec{s},
	}
}

// known returns the queue that an event is about.
func (m *model) known(p place) *queue {
	q := m.queues[p.UID]
	if q == nil || q.Queue != p.Queue {
		panic(fmt.Sprintf("bug: kill: an event of queue %s uid %d, which nobody made", p.Queue, p.UID))
	}
	return q
}

// forget drops a message that must never be seen again: who sees it finds no record of it.
func (q *queue) forget(msg *message) {
	delete(q.messages, msg.Message)
	if msg.located && q.offsets[msg.offset] == msg {
		delete(q.offsets, msg.offset)
	}
	if msg.Producer != "" {
		delete(q.sequences[msg.Producer], msg.Seq)
	}
}

// numbers are the queue's messages in order of sending.
func (q *queue) numbers() []*message {
	list := make([]*message, 0, len(q.messages))
	for _, msg := range q.messages {
		list = append(list, msg)
	}
	sort.Slice(list, func(i, k int) bool { return list[i].Message < list[k].Message })
	return list
}

// killed: nothing that was asked of a queue whose deletion is committed is taken from now on.
func (m *model) killed() {
	for _, q := range m.queues {
		if n := m.names[q.Queue]; q.shut == 0 && n != nil && n.last != nil && n.last.UID == q.UID && n.last.Deleting {
			q.shut = m.now
		}
	}
}

// trouble judges whether an error has a reason.
func (m *model) trouble(e trouble) {
	q := m.known(e.place)
	m.tellQueue(q, "%s: %v %s", e.Doing, e.Code, e.Text)
	if why := m.unexpected(q, e.Code); why != "" {
		m.violate("UNEXPECTED", q.lines, "queue %s uid %d: %s: %v %s: %s", q.Queue, q.UID, e.Doing, e.Code, e.Text, why)
	}
}
