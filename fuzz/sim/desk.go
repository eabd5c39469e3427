package main

import (
	"errors"
	"io"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/segment"
)

// desk is one replica's state machine and, while it serves, the counter at which producers and consumers are told what
// became of what they asked: what a broker is, without its streams.
type desk struct {
	*node
	g     *group
	rid   raftstore.ReplicaID
	group raftstore.Group
	state *queue.State
	last  raftstore.Index // applied
	marks raftstore.Marks
	role  raftstore.Role
	term  raftstore.Term
	lead  raftstore.Leader
	gone  bool

	tags     uint64
	asked    map[uint64]*ask
	placed   []*ask // have an entry, in order of it
	reigns   bool
	ready    bool // it is opened: what is applied from now on is news
	sessions map[uint64]*consumer
	session  uint64 // given out last
	effects  []queue.Effect
	first    bool // nobody applied this entry before
	going    bool
}

// ask is something proposed for somebody.
type ask struct {
	what  string
	want  want
	index raftstore.Index
	term  raftstore.Term
	got   []queue.Effect // of its command, once applied
	since micros
	timed bool     // somebody looks when its time is up
	body  *message // of a publish
	// reply is called once.
	reply func(result)
}

// result is what becomes of an ask.
type result struct {
	kind   resultKind
	effect queue.Effect // the first one; zero unless done or below
	proof  evidence
	lead   raftstore.Leader // where to go instead, if known
	why    error
}

type resultKind uint8

const (
	done    resultKind = iota + 1 // with what was wanted
	below                         // committed, and less than was wanted
	refused                       // definitely not stored
	unknown
	accepted // it has its place in the inbox, and no more
)

func newDesk(n *node, g *group, rid raftstore.ReplicaID) *desk {
	return &desk{
		node: n, g: g, rid: rid, state: new(queue.State),
		asked: map[uint64]*ask{}, sessions: map[uint64]*consumer{},
	}
}

// opened says that replay is over.
func (d *desk) opened() {
	d.ready = true
	if d.g.owned {
		d.check.reopened(d)
	}
}

// vanish ends the desk: nobody hears from it any more.
func (d *desk) vanish() { d.gone = true }

// ask proposes commands. The answer follows, except after a refusal that is returned.
func (d *desk) ask(a *ask, items ...raftstore.Item) error {
	d.tags++
	tag := d.tags
	a.since = d.now
	d.asked[tag] = a
	err := d.group.Propose(&raftstore.Batch{Tag: tag, Items: items, Free: func() { spoil(items) }})
	if err != nil {
		delete(d.asked, tag)
		return err
	}
	d.wake()
	return nil
}

// spoil writes over buffers that nobody may read any more.
func spoil(items []raftstore.Item) {
	for _, it := range items {
		for i := range it.Command {
			it.Command[i] = 0xee
		}
		for i := range it.Inline {
			it.Inline[i] = 0xee
		}
	}
}

// Attach implements raftstore.Attacher.
func (d *desk) Attach(g raftstore.Group) { d.group = g }

// Appended implements raftstore.Machine.
func (d *desk) Appended(tag uint64, t raftstore.Term, i raftstore.Index) {
	a := d.take(tag)
	a.index, a.term = i, t
	d.placed = append(d.placed, a)
}

// Dropped implements raftstore.Machine.
func (d *desk) Dropped(tag uint64, o raftstore.Outcome) {
	a := d.take(tag)
	kind := unknown
	if o.Kind == raftstore.Refused {
		kind = refused
	}
	d.answer(a, result{kind: kind, why: o.Err})
}

func (d *desk) take(tag uint64) *ask {
	a := d.asked[tag]
	if a == nil {
		d.fail("%v g%d: a proposal is answered that nobody made, or a second time", d.node, d.g.id)
		return &ask{}
	}
	delete(d.asked, tag)
	return a
}

// answer tells who asked; of a node that is gone nothing arrives.
func (d *desk) answer(a *ask, r result) {
	if r.kind != done && r.kind != below && r.lead.Node == 0 {
		r.lead = d.lead
	}
	if a.reply != nil && !d.gone {
		a.reply(r)
		a.reply = nil
	}
}

// Apply implements raftstore.Machine.
func (d *desk) Apply(t raftstore.Term, i raftstore.Index, items []raftstore.Item) {
	d.check.applied(d, t, i, items)
	mine := d.placedAt(t, i)
	for k, it := range items {
		c, err := queue.Decode(it.Command)
		if err != nil {
			panic("bug: sim: a command that nobody wrote: " + err.Error())
		}
		if it.HasBody {
			c.Body = queue.Ref{Term: uint64(it.Body.Ref.Term), Seq: it.Body.Ref.Seq}
			c.Length = it.Body.Length
			if it.Body.Large {
				c.Large = &queue.Large{Length: it.Body.Length, Digest: it.Body.Digest}
			}
		}
		d.mutate(&c)
		d.effects = d.state.Apply(c, d.effects[:0])
		d.check.effects(d, i, &c, &it, d.effects)
		if k < len(mine) {
			mine[k].got = append(mine[k].got, d.effects...)
		}
		d.act()
		if c.Continues() {
			d.going = false
		}
	}
	d.last = i
}

// placedAt are the asks of this life that make up entry i of term t, one per item.
func (d *desk) placedAt(t raftstore.Term, i raftstore.Index) (list []*ask) {
	for _, a := range d.placed {
		if a.index == i && a.term == t {
			list = append(list, a)
		}
	}
	return list
}

// act passes effects on.
func (d *desk) act() {
	for _, e := range d.effects {
		switch e.Kind {
		case queue.Freed:
			for k := range e.Count {
				d.group.Release(raftstore.BodyRef{Term: raftstore.Term(e.Ref.Term), Seq: e.Ref.Seq + k})
			}
		case queue.Attached, queue.Superseded, queue.Ended, queue.Assigned:
			if c := d.sessions[e.Session]; c != nil && d.reigns {
				c.event(d, e)
			}
		default: // the answer to an ask, which has it by now
		}
	}
}

// Moved implements raftstore.Machine: evidence leaves here, and when the time of an ask is up.
func (d *desk) Moved(m raftstore.Marks) {
	if d.o.mutate.keepHeld && m.Held[0] == 0 {
		m.Held = d.marks.Held
	}
	d.check.moved(d, &m)
	d.marks = m
	d.settlePlaced()
	if d.reigns && !d.going && d.state.Behind() {
		d.going = true
		c := queue.Continue()
		if d.propose(c, &ask{what: "continue", reply: func(r result) { d.going = d.going && r.kind == done }}) != nil {
			d.going = false
		}
	}
}

// settlePlaced answers what has reached its want.
func (d *desk) settlePlaced() {
	kept := d.placed[:0]
	for _, a := range d.placed {
		if a.index > d.marks.Applied || !d.reached(a) {
			kept = append(kept, a)
		}
	}
	clear(d.placed[len(kept):])
	d.placed = kept
}

// evidence is what an acknowledgement says.
type evidence struct {
	n       int // replicas; 0: nothing is claimed
	flushed bool
	index   raftstore.Index
	term    raftstore.Term
}

// lateAfter is how long an ask waits for more replicas once it is committed.
const lateAfter = 2 * second

// reached answers an applied ask, if it can be answered.
func (d *desk) reached(a *ask) bool {
	proof := d.proofOf(a)
	r := result{kind: done, proof: proof}
	if len(a.got) > 0 {
		r.effect = a.got[0]
	}
	switch {
	case a.want.met(proof):
	case d.reigns && d.now-a.since < lateAfter:
		if !a.timed {
			a.timed = true
			d.alive(lateAfter-(d.now-a.since), func() { d.late() })
		}
		return false
	case d.g.owned:
		return false
	default:
		r.kind = below
	}
	if a.body != nil {
		d.oracle.prove(d, proof)
	}
	d.answer(a, r)
	return true
}

// late looks again at what waits.
func (d *desk) late() {
	if !d.gone {
		d.settlePlaced()
	}
}

func (d *desk) proofOf(a *ask) evidence {
	e := evidence{index: a.index, term: a.term}
	switch {
	case d.g.owned:
		e.n, e.flushed = 1, a.index <= d.marks.Flushed
	case d.reigns:
		e.n, e.flushed = d.marks.HeldBy(a.index), true
	}
	e.n += d.o.mutate.overstate
	return e
}

// Halted implements raftstore.Halter: the process is restarted soon.
func (d *desk) Halted(err error) {
	d.note("%v g%d halted: %v", d.node, d.g.id, err)
	d.depose()
	d.check.powerCut(d.node) // what a flush lost is as gone as after a power cut
	d.alive(d.between(10*millisecond, second), func() {
		d.node.down("a group of it is read-only", func() { d.disk.Kill() })
		d.after(d.between(50*millisecond, second), d.bootAgain())
	})
}

// Role implements raftstore.Machine.
func (d *desk) Role(r raftstore.Role, t raftstore.Term, l raftstore.Leader) {
	if r != d.role || t != d.term || l != d.lead {
		d.note("%v g%d %v in term %d, leader n%d", d.node, d.g.id, roleName(r), t, l.Node)
	}
	serves := r == raftstore.LeaderRole || r == raftstore.Owner
	if d.reigns && (!serves || t != d.term) {
		d.depose()
	}
	d.role, d.term, d.lead = r, t, l
	if serves {
		d.check.leads(d, t)
		if !d.reigns {
			d.enthrone()
		}
	}
}

func roleName(r raftstore.Role) string {
	return [...]string{"follower", "candidate", "leader", "owner", "learner"}[r]
}

// enthrone begins to serve. Who was attached before is detached after a while.
func (d *desk) enthrone() {
	d.reigns, d.going = true, false
	d.session = uint64(d.term) << 32
	d.state.Attachments(func(_ string, session uint64) { d.session = max(d.session, session+1) })
	first := d.session + 1
	term := d.term
	d.alive(second, func() {
		if d.reigns && d.term == term && !d.gone {
			c := queue.Command{Kind: queue.DetachBelow, Session: first}
			_ = d.propose(c, &ask{what: "detach"}) // the next leader sees to it
		}
	})
}

// depose ends that. What has an entry that is not known to be committed may be lost or not.
func (d *desk) depose() {
	d.reigns = false
	kept := d.placed[:0]
	for _, a := range d.placed {
		if a.index <= d.marks.Committed {
			kept = append(kept, a)
			continue
		}
		d.answer(a, result{kind: unknown})
	}
	clear(d.placed[len(kept):])
	d.placed = kept
	for _, id := range sortedKeys(d.sessions) {
		d.sessions[id].ended(d)
	}
	clear(d.sessions)
}

// propose asks for a command without a body.
func (d *desk) propose(c queue.Command, a *ask) error {
	return d.ask(a, raftstore.Item{Command: c.Append(nil)})
}

// Bodies implements raftstore.Holder.
func (d *desk) Bodies(yield func(raftstore.BodyRef) bool) {
	d.state.Bodies(func(r queue.Ref) bool { return yield(bodyRef(r)) })
}

func bodyRef(r queue.Ref) raftstore.BodyRef {
	return raftstore.BodyRef{Term: raftstore.Term(r.Term), Seq: r.Seq}
}

func commitOf(r queue.Ref, large *queue.Large) segment.Commit {
	c := segment.Commit{Ref: bodyRef(r), Length: -1}
	if large != nil {
		c.Large, c.Length, c.Digest = true, large.Length, large.Digest
	}
	return c
}

// readBody reads a body that the state holds.
func (d *desk) readBody(r queue.Ref, large *queue.Large) ([]byte, error) {
	in, err := d.group.OpenBody(commitOf(r, large))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(in)
	return b, errors.Join(err, in.Close())
}
