package broker

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"weida/broker/control"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
	"weida/segment"
)

// desk is a queue on this node whose group is led by hand: entries are appended, committed, applied and held when the
// test says so. It shows what becomes of marks and roles; the group itself has tests of its own.
type desk struct {
	t    deskT
	node *Node
	q    *nodeQueue

	mu    sync.Mutex
	asked []*raftstore.Batch // guarded by mu
	term  raftstore.Term
	log   []deskEntry
	marks raftstore.Marks
	body  uint64
	full  error // what Propose says
}

// deskT is a test, or one run of a random one.
type deskT interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

type deskEntry struct {
	term  raftstore.Term
	items []raftstore.Item
}

// newDesk is a queue with so many replicas, which this node does not lead yet.
func newDesk(t deskT, replicas int) *desk {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d := &desk{t: t, node: &Node{c: Config{Log: log, MessageMax: 1 << 20}, router: alone{}, registry: newRegistry(log)}}
	d.q = newNodeQueue("demo", 9, control.QueueSpec{Replicas: replicas}, log, func(uint64) {})
	d.q.Attach(d)
	d.q.admit()
	d.node.queues = map[string]*nodeQueue{"demo": d.q}
	return d
}

func (d *desk) Propose(b *raftstore.Batch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full != nil {
		return d.full
	}
	d.asked = append(d.asked, b)
	return nil
}

func (d *desk) NewBody(int64) (raftstore.BodyWriter, error) { return nil, raftstore.ErrFull }

func (d *desk) OpenBody(segment.Commit) (raftstore.BodyReader, error) { return nil, raftstore.ErrBody }

func (d *desk) Release(raftstore.BodyRef) {}

func (d *desk) Reconfigure(raftstore.Change) error { return nil }

func (d *desk) Status() raftstore.Status { return raftstore.Status{Marks: d.marks} }

func (d *desk) Stop() {}

func (d *desk) leads(term raftstore.Term) { d.role(raftstore.LeaderRole, term, 1) }

func (d *desk) follows(term raftstore.Term, leader raftstore.NodeID) {
	d.role(raftstore.Follower, term, leader)
}

func (d *desk) role(r raftstore.Role, t raftstore.Term, l raftstore.NodeID) {
	d.term = t
	d.q.Role(r, t, raftstore.Leader{Node: l})
}

// last is the index of the last entry.
func (d *desk) last() raftstore.Index { return raftstore.Index(len(d.log)) }

// append makes an entry of each batch that was proposed, and says how many.
func (d *desk) append() (n int) {
	d.mu.Lock()
	asked := d.asked
	d.asked = nil
	d.mu.Unlock()
	for _, b := range asked {
		e := deskEntry{term: d.term}
		for _, item := range b.Items {
			if item.HasBody {
				d.body++
				item.Body = segment.Commit{
					Ref: segment.BodyRef{Term: d.term, Seq: d.body}, Length: int64(len(item.Inline)),
				}
			}
			item.Command = slices.Clone(item.Command)
			item.Inline = nil
			e.items = append(e.items, item)
		}
		d.log = append(d.log, e)
		d.q.Appended(b.Tag, d.term, d.last())
		if b.Free != nil {
			b.Free()
		}
	}
	return len(asked)
}

// replace is another leader's log: everything from i on is gone, and an entry of its own stands there.
func (d *desk) replace(i raftstore.Index, term raftstore.Term, c queue.Command) {
	d.body++
	d.log = append(d.log[:i-1:i-1], deskEntry{term, []raftstore.Item{{
		Command: c.Append(nil), HasBody: c.Kind == queue.Publish,
		Body: segment.Commit{Ref: segment.BodyRef{Term: term, Seq: d.body}, Length: 1},
	}}})
}

// commit commits and applies up to i.
func (d *desk) commit(i raftstore.Index) {
	d.marks.Committed, d.marks.Written = max(d.marks.Committed, i), d.last()
	for d.marks.Applied < i {
		d.marks.Applied++
		e := d.log[d.marks.Applied-1]
		d.q.Apply(e.term, d.marks.Applied, e.items)
	}
	d.moved()
}

// held says how far n replicas hold everything, for n from 1 on, and commits nothing.
func (d *desk) held(list ...raftstore.Index) {
	d.marks.Held = [raftstore.MaxVoters]raftstore.Index{}
	copy(d.marks.Held[:], list)
	if len(list) > 0 {
		d.marks.Flushed = max(d.marks.Flushed, list[0])
	}
}

func (d *desk) moved() {
	d.marks.Term = d.term
	d.q.Moved(d.marks)
}

// producer is one of the queue's, whose stream is its outbox.
func (d *desk) producer(id string, want wire.Want) *deskProducer {
	s := &session{node: d.node, caller: caller{brake: new(brake)}}
	p := &producer{
		session: s, queue: d.q, reign: d.q.leadership().reign, want: want, out: newOutbox(), left: make(chan struct{}),
		parcel: new(parcel), reading: d.t.Context(),
	}
	if id != "" {
		p.slot = d.register(id)
	}
	return &deskProducer{p, d}
}

// register puts a producer's id into the log.
func (d *desk) register(id string) (slot uint64) {
	c := queue.Command{Kind: queue.Register, Producer: id, Session: 1}
	p := &proposal{items: 1, reply: func(e queue.Effect) { slot = e.Slot }}
	if err := d.q.propose(p, []raftstore.Item{{Command: c.Append(nil)}}); err != nil {
		d.t.Fatal(err)
	}
	d.append()
	d.commit(d.last())
	if slot == 0 {
		d.t.Fatal("the producer was not registered")
	}
	return slot
}

type deskProducer struct {
	*producer
	d *desk
}

// publish sends messages as one batch.
func (p *deskProducer) publish(list ...wire.Publish) {
	p.d.t.Helper()
	for i := range list {
		list[i].Body, list[i].Low = []byte("x"), 1
		p.producer.publish(p.d.t.Context(), &list[i])
	}
	p.propose(p.d.t.Context())
}

// answers are the frames since the last call.
func (p *deskProducer) answers() (list []wire.Frame) {
	p.d.t.Helper()
	p.out.mu.Lock()
	p.out.closeEvidence()
	b := p.out.buf
	p.out.buf = nil
	p.out.mu.Unlock()
	for len(b) > 0 {
		f, n, err := wire.Parse(b)
		if err != nil {
			p.d.t.Fatal(err)
		}
		list, b = append(list, f), b[n:]
	}
	return list
}

// one is the only frame since the last call.
func one[T wire.Frame](p *deskProducer) T {
	p.d.t.Helper()
	list := p.answers()
	var none T
	if len(list) != 1 {
		p.d.t.Fatalf("%d answers: %+v", len(list), list)
	}
	f, ok := list[0].(T)
	if !ok {
		p.d.t.Fatalf("answered with %T %+v, want a %T", list[0], list[0], none)
	}
	return f
}

// nothing expects no answer.
func (p *deskProducer) nothing() {
	p.d.t.Helper()
	if list := p.answers(); len(list) > 0 {
		p.d.t.Fatalf("answered with %T %+v", list[0], list[0])
	}
}
