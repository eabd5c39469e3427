package main

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/segment"
)

// The rules, as they are named when one is broken.
//
//	Q1 phantom       what is stored and delivered was made by a producer, byte for byte
//	Q2 loss          what was acknowledged with evidence is there, or was settled
//	Q3 offset        an offset stands for one message, on every replica, in every answer and delivery
//	Q4 agreement     replicas apply the same entries; in the end their states are equal, byte for byte
//	Q5 order         messages of a producer that were sent once stand in the order of their sequence
//	Q5b deliveries   first deliveries to a session rise
//	Q6 duplicates    a sequence of a producer is stored once
//	Q6c attempts     a message that is assigned again has the next attempt
//	Q7 after settle  what was settled, and said to be, is not delivered again
//	Q8 evidence      as many disks hold an entry and its bodies, flushed, as the acknowledgement says (oracle.go)
//	Q9 refusal       a message of which every attempt was refused is nowhere
//	Q10 liveness     when the faults have ended all goes on within a bound (cluster.go)
//	Q11 books        what is in a queue and what went out is what was published
//	L1 one leader    a term has one leader
type checker struct {
	*cluster
	ledgers map[raftstore.GroupID]*ledger
}

// ledger is what is known of one group, from whoever said it first.
type ledger struct {
	made     map[segment.Digest]*message
	tries    map[string]*try
	entries  map[raftstore.Index]entrySum
	highest  raftstore.Index
	leaders  map[raftstore.Term]raftstore.NodeID
	stored   map[uint64]*stored // by offset
	byKey    map[string]uint64  // offset by message, of producers with an id
	acks     []ack
	settled  map[uint64]settlement
	sessions map[string]uint64 // the last offset first delivered to a session
	lost     map[entryID]bool  // of a group with an owner: gone, as its evidence allowed
	cut      bool              // the owner's power was cut since it was open last
}

type entrySum struct {
	term raftstore.Term
	sum  uint64
}

type entryID struct {
	term  raftstore.Term
	index raftstore.Index
}

// try is what became of a message so far.
type try struct {
	sent, refused int
	overtaken     bool // its body came slowly, on a stream of its own
}

// stored is a message in the log.
type stored struct {
	m       *message
	term    raftstore.Term
	index   raftstore.Index
	attempt uint64          // of the last assignment
	out     raftstore.Index // of the entry that settled it for good; 0: none
	recount bool            // its attempts were rewound with the log of an owner
}

type ack struct {
	m       *message
	offset  uint64
	proof   evidence
	attempt int
}

type settlement struct {
	attempt uint64
	index   raftstore.Index
}

func newChecker(c *cluster) *checker {
	return &checker{cluster: c, ledgers: map[raftstore.GroupID]*ledger{}}
}

func (k *checker) ledger(g raftstore.GroupID) *ledger {
	l := k.ledgers[g]
	if l == nil {
		l = &ledger{
			made: map[segment.Digest]*message{}, tries: map[string]*try{}, entries: map[raftstore.Index]entrySum{},
			leaders: map[raftstore.Term]raftstore.NodeID{}, stored: map[uint64]*stored{}, byKey: map[string]uint64{},
			settled: map[uint64]settlement{}, sessions: map[string]uint64{}, lost: map[entryID]bool{},
		}
		k.ledgers[g] = l
	}
	return l
}

// made notes a message before it is sent for the first time.
func (k *checker) made(m *message) {
	l := k.ledger(m.group)
	l.made[segment.DigestOf(m.body)] = m
	l.tries[m.key()] = &try{}
}

// sent notes an attempt.
func (k *checker) sent(m *message) { k.ledger(m.group).tries[m.key()].sent++ }

// overtaken notes that what was sent after a message may come before it.
func (k *checker) overtaken(m *message) { k.ledger(m.group).tries[m.key()].overtaken = true }

// refused notes that an attempt was definitely not stored.
func (k *checker) refused(m *message) { k.ledger(m.group).tries[m.key()].refused++ }

// leads notes who leads (L1).
func (k *checker) leads(d *desk, t raftstore.Term) {
	l := k.ledger(d.g.id)
	if was, ok := l.leaders[t]; ok && was != d.node.id && !d.g.owned {
		k.fail("L1 g%d: n%d and n%d lead in term %d", d.g.id, was, d.node.id, t)
	}
	l.leaders[t] = d.node.id
}

// applied compares an entry with what others applied there (Q4).
func (k *checker) applied(d *desk, t raftstore.Term, i raftstore.Index, items []raftstore.Item) {
	if d.last != 0 && i != d.last+1 {
		k.fail("Q4 %v g%d: entry %d is applied after %d", d.node, d.g.id, i, d.last)
	}
	var h xxh3.Hasher
	for _, it := range items {
		_, _ = fmt.Fprintf(&h, "%q %v %d %x;", it.Command, it.Body.Ref, it.Body.Length, it.Body.Digest)
	}
	l, now := k.ledger(d.g.id), entrySum{t, h.Sum64()}
	if was, ok := l.entries[i]; ok && was != now {
		k.fail("Q4 %v g%d: entry %d is %+v, elsewhere it is %+v", d.node, d.g.id, i, now, was)
	}
	l.entries[i] = now
	d.first = i > l.highest
	if d.first {
		l.highest = i
		k.stats.commits++
	}
}

// effects takes what a command did where it was applied first.
func (k *checker) effects(d *desk, i raftstore.Index, c *queue.Command, it *raftstore.Item, list []queue.Effect) {
	if !d.first {
		return
	}
	l := k.ledger(d.g.id)
	for _, e := range list {
		switch e.Kind {
		case queue.Published:
			k.published(d, l, i, it, e)
		case queue.Assigned:
			s := l.stored[e.Offset]
			if s != nil && s.recount {
				s.recount, s.attempt = false, e.Attempt-1
			}
			if s == nil || s.out != 0 || e.Attempt != s.attempt+1 {
				k.fail("Q6c g%d entry %d: offset %d is assigned with attempt %d: %+v", d.g.id, i, e.Offset, e.Attempt, s)
				continue
			}
			s.attempt = e.Attempt
		case queue.Settled:
			if s := l.stored[e.Offset]; s != nil && c.Verb != queue.Release {
				s.out = i
			}
		default:
		}
	}
}

func (k *checker) published(d *desk, l *ledger, i raftstore.Index, it *raftstore.Item, e queue.Effect) {
	m := l.made[it.Body.Digest]
	if m == nil {
		k.fail("Q1 g%d entry %d: a message that nobody made: %+v", d.g.id, i, it.Body)
		return
	}
	if s := l.stored[e.Offset]; s != nil {
		k.fail("Q3 g%d: offset %d is %v and %v", d.g.id, e.Offset, s.m, m)
	}
	if at, ok := l.byKey[m.key()]; ok && m.producer != "" {
		k.fail("Q6 g%d: %v stands at offsets %d and %d", d.g.id, m, at, e.Offset)
	}
	l.byKey[m.key()] = e.Offset
	l.stored[e.Offset] = &stored{m: m, term: raftstore.Term(e.Term), index: i}
	if m.producer == "" {
		k.note("g%d entry %d: %v at offset %d", d.g.id, i, m, e.Offset)
	}
}

// moved looks at what a leader says of its replicas, now and then.
func (k *checker) moved(d *desk, m *raftstore.Marks) {
	if d.role != raftstore.LeaderRole && m.Held[0] != 0 {
		k.fail("Q8 %v g%d does not lead, and says of entry %d that it is held", d.node, d.g.id, m.Held[0])
	}
	if d.role == raftstore.LeaderRole && k.o.heldEvery > 0 && k.chance(k.o.heldEvery) {
		k.oracle.proveHeld(d, m)
	}
}

// restored is a state that came as a snapshot: it is compared at the end, and by what is applied to it.
func (k *checker) restored(d *desk) { k.note("%v g%d restored a snapshot", d.node, d.g.id) }

// acked takes what a producer was told (Q2, Q3).
func (k *checker) acked(g *group, m *message, w want, r result, attempt int) {
	l, e := k.ledger(g.id), r.effect
	word := map[resultKind]string{done: "ok", below: "below"}[r.kind]
	k.note("g%d %v: %s %v offset %d n %d flushed %v", g.id, m, word, w, e.Offset, r.proof.n, r.proof.flushed)
	if l.lost[entryID{r.proof.term, r.proof.index}] {
		return
	}
	s := l.stored[e.Offset]
	switch {
	case s == nil:
		k.fail("Q2 g%d: %v is acknowledged at offset %d, where nothing is", g.id, m, e.Offset)
		return
	case s.m.key() != m.key() || s.term != raftstore.Term(e.Term):
		k.fail("Q3 g%d: %v of term %d is acknowledged at offset %d, where %v of term %d is", g.id, m, e.Term, e.Offset,
			s.m, s.term)
		return
	case r.kind == done && !w.met(r.proof):
		k.fail("Q8 g%d: %v wanted %v and is told %+v", g.id, m, w, r.proof)
	}
	l.acks = append(l.acks, ack{m, e.Offset, r.proof, attempt})
}

// delivered takes what leaves for a consumer (Q1, Q3, Q5b, Q7).
func (k *checker) delivered(d *desk, c *consumer, e queue.Effect, body []byte) {
	l := k.ledger(d.g.id)
	k.note("g%d deliver %d/%d to %s", d.g.id, e.Offset, e.Attempt, c.sub)
	m, err := parseMessage(body)
	if err != nil {
		k.fail("Q1 g%d offset %d: %v", d.g.id, e.Offset, err)
		return
	}
	s := l.stored[e.Offset]
	if s == nil || s.m.key() != m.key() {
		k.fail("Q3 g%d: offset %d is delivered as %v: %+v", d.g.id, e.Offset, m, s)
		return
	}
	if e.Producer != m.producer || m.producer != "" && e.Seq != m.seq {
		k.fail("Q3 g%d: %v is delivered as message %d of %q", d.g.id, m, e.Seq, e.Producer)
	}
	if was, ok := l.settled[e.Offset]; ok && e.Attempt > was.attempt {
		k.fail("Q7 g%d: offset %d was settled with attempt %d and is delivered with %d", d.g.id, e.Offset, was.attempt,
			e.Attempt)
	}
	session := fmt.Sprintf("%s/%d", c.sub, e.Session)
	if last, ok := l.sessions[session]; e.Attempt == 1 {
		if ok && last >= e.Offset {
			k.fail("Q5b %v: offset %d is delivered first behind %d", c, e.Offset, last)
		}
		l.sessions[session] = e.Offset
	}
}

// settledWith takes what a consumer was told of its settle.
func (k *checker) settledWith(g *group, c *consumer, e queue.Effect, verb queue.Verb, r result) {
	took := r.effect.Kind == queue.Settled
	k.note("%v settled %d/%d by %d: %v", c, e.Offset, e.Attempt, verb, took)
	k.stats.settles++
	l := k.ledger(g.id)
	if took && verb != queue.Release && !l.lost[entryID{r.proof.term, r.proof.index}] {
		l.settled[e.Offset] = settlement{e.Attempt, r.proof.index}
	}
}

// powerCut notes that what an owner has written and not flushed may be gone.
func (k *checker) powerCut(n *node) {
	for _, g := range k.groups {
		if g.owned && g.replicas[n.id] != 0 {
			k.ledger(g.id).cut = true
		}
	}
}
