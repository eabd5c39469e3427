package history

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"weida/broker/client"
	"weida/broker/wire"
)

// world is a cluster that does nothing wrong, and writes its history.
type world struct {
	rt    *rapid.T
	lines []Line
	t     Time
	ref   uint64
	shape shape
	q     Queue
	state       // of the queue
	flush state // what a power cut leaves, of a queue with one replica
	nodes []string
	held  map[string]int // entries of the log that a replica has
	term  uint64
	open  []func() // calls that have no answer yet
	all   []Message
	doubt []Message // of producers with an id, to be sent again
	next  map[string]uint64
	known map[uint64][]try // deliveries that consumers have, by offset
	sess  int
}

type shape struct {
	owned, written bool
}

// state is a queue, with its log.
type state struct {
	log    []logged
	msgs   []kept
	books  Books
	cursor int // offsets below were delivered
}

// logged is an entry.
type logged struct {
	term uint64
	adds []Stored
}

// kept is a message by offset.
type kept struct {
	Stored
	attempt uint64
	out     bool
}

type try struct{ offset, term, attempt uint64 }

func (s *state) clone() state {
	c := *s
	c.log, c.msgs = slices.Clone(s.log), slices.Clone(s.msgs)
	return c
}

func newWorld(rt *rapid.T, s shape) *world {
	w := &world{
		rt: rt, shape: s, q: Queue{"q", 7}, term: 1, t: 1, nodes: []string{"n1", "n2", "n3"}, held: make(map[string]int),
		next: make(map[string]uint64), known: make(map[uint64][]try),
	}
	if s.owned {
		w.nodes = w.nodes[:1]
	}
	ch := &Change{Name: "q", Do: Create, Replicas: len(w.nodes), Durability: "flushed"}
	if s.written {
		ch.Durability = "written"
	}
	ch.Ref = w.refs()
	w.note("admin", ch)
	w.note("admin", &Changed{Ref: ch.Ref, Fate: Done, UID: 7})
	w.flush = w.clone()
	return w
}

func (w *world) refs() uint64 { w.ref++; return w.ref }

func (w *world) pick(n int) int { return rapid.IntRange(0, n-1).Draw(w.rt, "pick") }

func (w *world) note(client string, e Event) {
	w.t += Time(1 + len(w.lines)%3)
	w.lines = append(w.lines, Line{T: w.t, Client: client, Event: e})
}

// run does so many things, and then everything comes to its end.
func (w *world) run(steps int) {
	for range steps {
		switch w.pick(14) {
		case 0, 1, 2, 3:
			w.publish()
		case 4, 5, 6:
			w.deliver()
		case 7, 8:
			w.settle()
		case 9, 10:
			w.finishOne()
		case 11:
			w.fault()
		case 12:
			w.again()
		case 13:
			if w.pick(4) == 0 {
				w.audit(false)
			}
		}
	}
	w.finish()
}

// finish heals, drains and looks.
func (w *world) finish() {
	w.calm()
	w.note("faults", &Healed{})
	w.send(w.make("p1"), client.OK)
	w.calm()
	for i := range w.msgs {
		if !w.msgs[i].out {
			w.hand(uint64(i))
			w.settleOne(w.last(uint64(i)), Accept, Done)
		}
	}
	w.calm()
	w.audit(true)
	w.note("admin", &Health{})
	w.dumps()
}

// calm lets everything end.
func (w *world) calm() {
	for len(w.open) > 0 {
		w.finishOne()
	}
}

func (w *world) finishOne() {
	if len(w.open) == 0 {
		return
	}
	i := w.pick(len(w.open))
	f := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	f()
}

func (w *world) make(producer string) Message {
	m := Message{Length: 5}
	if producer != "" {
		w.next[producer]++
		m.Producer, m.Seq = producer, w.next[producer]
	}
	m.Digest = DigestOf(fmt.Appendf(nil, "%s/%d", producer, len(w.all)))
	w.all = append(w.all, m)
	return m
}

func (w *world) publish() {
	producer := []string{"p1", "p2", ""}[w.pick(3)]
	outcome := client.OK
	switch w.pick(6) {
	case 0:
		outcome = client.Refused
	case 1:
		outcome = client.Indeterminate
	}
	w.send(w.make(producer), outcome)
}

// again sends one once more that nobody knows the end of.
func (w *world) again() {
	if len(w.doubt) > 0 {
		i := w.pick(len(w.doubt))
		m := w.doubt[i]
		w.doubt = slices.Delete(w.doubt, i, i+1)
		w.send(m, client.OK)
	}
}

// send publishes; of what ends as indeterminate half is stored.
func (w *world) send(m Message, outcome client.Outcome) {
	want := wire.Replicated(2, wire.Flushed)
	switch {
	case w.shape.owned && w.shape.written:
		want = wire.Stored(wire.Written)
	case w.shape.owned:
		want = wire.Stored(wire.Flushed)
	}
	ref := w.refs()
	p := &Publish{Ref: ref, Queue: w.q, Message: m, Want: Of(want)}
	if m.Producer == "" {
		p.Stream = "s"
	}
	w.note("c", p)
	a := &Answer{Ref: ref, Outcome: outcome}
	switch {
	case outcome == client.OK:
		at := w.store(m)
		a.Committed, a.Offset, a.Term = true, at, w.msgs[at].Term
		a.Evidence = Of(want)
		w.confirm()
		if !w.shape.owned {
			a.Evidence = Of(wire.Replicated(uint32(w.replicate()), wire.Flushed))
		}
	case outcome == client.Refused:
		a.Code = wire.QueueFull
	case w.pick(2) == 0:
		w.store(m)
		if !w.shape.owned {
			w.replicate()
		}
		fallthrough
	default:
		a.Code = wire.ConnectionLost
		if m.Producer != "" {
			w.doubt = append(w.doubt, m)
		}
	}
	w.open = append(w.open, func() { w.note("c", a) })
}

// confirm makes durable what is about to be confirmed.
func (w *world) confirm() {
	if w.shape.owned && (!w.shape.written || w.pick(4) == 0) {
		w.flush = w.clone()
	}
}

// store returns the offset.
func (w *world) store(m Message) uint64 {
	for _, k := range w.msgs {
		if m.Producer != "" && k.Message == m {
			return k.Offset
		}
	}
	s := Stored{uint64(len(w.msgs)), w.term, m}
	w.msgs = append(w.msgs, kept{Stored: s})
	w.log = append(w.log, logged{w.term, []Stored{s}})
	w.books.In++
	return s.Offset
}

// replicate brings a majority of replicas, or all, to the end, and says how many.
func (w *world) replicate() int {
	n := 2 + w.pick(2)
	for _, node := range w.nodes[:n] {
		w.held[node] = len(w.log)
	}
	return n
}

func (w *world) deliver() {
	var list []uint64
	for i := range w.msgs {
		if m := &w.msgs[i]; !m.out && (m.attempt > 0 || i == w.cursor) {
			list = append(list, uint64(i))
		}
	}
	if len(list) > 0 {
		w.hand(list[w.pick(len(list))])
	}
}

// hand delivers a message, as a new attempt. A message that is first delivered is that at the cursor.
func (w *world) hand(offset uint64) {
	m := &w.msgs[offset]
	if m.attempt == 0 && w.cursor <= int(offset) {
		w.cursor = int(offset) + 1
	}
	m.attempt++
	w.log = append(w.log, logged{term: w.term})
	if !w.shape.owned {
		w.replicate()
	}
	w.note("k", &Deliver{
		Queue: w.q, Subscription: "s", Session: fmt.Sprint("k/", w.sess), Stored: m.Stored, Attempt: m.attempt,
	})
	w.known[offset] = append(w.known[offset], try{offset, m.Term, m.attempt})
}

func (w *world) last(offset uint64) try {
	list := w.known[offset]
	return list[len(list)-1]
}

func (w *world) settle() {
	var list []try
	for i := range w.msgs {
		for _, x := range w.known[uint64(i)] {
			if x.term == w.msgs[i].Term {
				list = append(list, x)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	x := list[w.pick(len(list))]
	fate := []Fate{Done, Done, Unknown}[w.pick(3)]
	if m := &w.msgs[x.offset]; m.out || m.attempt != x.attempt {
		fate = Refused
	}
	w.settleOne(x, []Verb{Accept, Accept, Release, Reject}[w.pick(4)], fate)
}

func (w *world) settleOne(x try, verb Verb, fate Fate) {
	list := w.known[x.offset]
	w.known[x.offset] = slices.DeleteFunc(slices.Clone(list), func(y try) bool { return x == y })
	ref := w.refs()
	w.note("k", &Settle{Ref: ref, Queue: w.q, Offset: x.offset, Term: x.term, Attempt: x.attempt, Verb: verb})
	if fate == Done || fate == Unknown && w.pick(2) == 0 {
		m := &w.msgs[x.offset]
		m.out = verb != Release
		*map[Verb]*uint64{
			Accept: &w.books.Accepted, Reject: &w.books.Rejected, Release: &w.books.Released,
		}[verb]++
		w.log = append(w.log, logged{term: w.term})
		if !w.shape.owned {
			w.replicate()
		}
		if fate == Done {
			w.confirm()
		}
	}
	w.open = append(w.open, func() { w.note("k", &Settled{Ref: ref, Fate: fate}) })
}

// fault does something to one node. What it costs, it costs a queue with one replica.
func (w *world) fault() {
	kind := []FaultKind{Kill, PowerCut, Pause}[w.pick(3)]
	ref := w.refs()
	w.note("faults", &Fault{Ref: ref, Fault: kind, Nodes: w.nodes[w.pick(len(w.nodes)):][:1]})
	if kind == PowerCut && w.shape.owned {
		w.state = w.flush.clone()
	}
	w.term++
	w.sess++
	w.note("faults", &FaultDone{ref})
}

func (w *world) audit(final bool) {
	w.calm()
	w.sess++
	b := w.books
	e := &Audit{Queue: w.q, Final: final, Books: &b}
	for _, m := range w.msgs {
		if !m.out {
			b.Ready++
			e.Messages = append(e.Messages, m.Stored)
		}
	}
	w.note("admin", e)
}

// dumps are what all disks hold when the nodes have stopped, after all is replicated.
func (w *world) dumps() {
	for _, node := range w.nodes {
		w.note("dumps", &Dump{Node: node, Group: 7, At: AtStop, Quiet: true})
		for i, e := range w.log {
			w.note("dumps", &Entry{
				Node: node, Group: 7, Index: uint64(i + 1), Term: e.term, Sum: DigestOf(fmt.Append(nil, e)), Adds: e.adds,
			})
		}
		w.note("dumps", &DumpEnd{
			Node: node, Group: 7, Last: uint64(len(w.log)), Commit: uint64(len(w.log)), Next: uint64(len(w.msgs)),
			LastTerm: w.term, State: DigestOf(nil),
		})
	}
}
