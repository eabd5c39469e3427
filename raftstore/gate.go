package raftstore

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

// gate is the input gate: nothing enters raft that this replica can't keep. An append is stepped only when every body
// that its entries name is here and there is room for it on the disk; until then it waits, bounded, and then it is
// dropped as if the network had lost it. Everything else passes: holding back heartbeats or votes would wedge the
// group, and so would holding back the answers to an append that was stepped.
type gate struct {
	room    *room
	waiting []letter // appends for which something is missing, in order of their coming
	bytes   int
	now     int // ticks
	since   []int
}

const (
	// gateLettersMax and gateBytesMax bound the appends that wait, gateTicksMax how long each may.
	gateLettersMax = 64
	gateBytesMax   = 1 << 20
	gateTicksMax   = 10
	// gateFeedMax bounds the entries whose bodies are asked for at a time.
	gateFeedMax = 64
)

// entryCost is what an entry takes in the log with the bodies that it names, at most.
func entryCost(e *raftpb.Entry) int64 {
	n := segment.SizeOf(24 + len(e.GetData()))
	if e.GetType() != raftpb.EntryNormal {
		return n
	}
	err := segment.EachCommit(e.GetData(), func(c segment.Commit) error {
		if !c.Large {
			n += segment.SizeOf(16 + int(c.Length))
		}
		return nil
	})
	if err != nil {
		panic("bug: raftstore: an entry that was checked can't be read: " + err.Error())
	}
	return n
}

// offer takes an append that came. It is stepped behind those that wait.
func (r *replica) offer(l letter) (cost int) {
	g := &r.gate
	if Term(l.m.GetTerm()) < r.term {
		r.step(l.m) // of a deposed leader: nothing of it is taken, but it is told
		return 0
	}
	if len(g.waiting) > 0 && g.waiting[0].m.GetTerm() < l.m.GetTerm() {
		g.drop()
	}
	if len(g.waiting) == 0 {
		cost, l = r.admit(l)
	}
	if l.m != nil {
		g.keep(l)
	}
	return cost
}

// again tries what waits.
func (r *replica) again() (cost int) {
	g := &r.gate
	for len(g.waiting) > 0 && r.halted == nil {
		n, rest := r.admit(g.waiting[0])
		if cost += n; r.halted != nil {
			return cost
		}
		g.bytes -= g.waiting[0].size
		if rest.m != nil {
			g.bytes += rest.size
			g.waiting[0] = rest
			break
		}
		g.shift()
	}
	for len(g.waiting) > 0 && g.now-g.since[0] > gateTicksMax {
		g.bytes -= g.waiting[0].size
		g.shift()
	}
	return cost
}

// admit steps as much of an append as can be kept, from its beginning, and returns the rest.
func (r *replica) admit(l letter) (cost int, rest letter) {
	m := l.m
	for {
		n, size, why := r.fitting(m)
		if n == 0 && len(m.GetEntries()) > 0 {
			if errors.Is(why, fsync.ErrDiskFull) {
				return cost, letter{}
			}
			l.m, l.size = m, messageSize(m)
			return cost, l
		}
		head, tail := split(m, n)
		r.step(head)
		r.ready()
		cost += int(size)
		if tail == nil || r.halted != nil {
			return cost, letter{}
		}
		m = tail
	}
}

// fitting is how many entries of an append can be kept now, what they cost, and why not more: one write at a time.
func (r *replica) fitting(m *raftpb.Message) (n int, cost int64, why error) {
	if len(m.GetEntries()) == 0 {
		return 0, 0, nil
	}
	if len(r.held) > 0 {
		return 0, 0, wal.ErrNotReady
	}
	cost = segment.BatchOverhead + segment.SizeOf(8)
	for k, e := range m.GetEntries() {
		one := int64(0)
		if !r.has(e) {
			if !r.fed(e) {
				r.feed(m.GetEntries()[k:])
				break
			}
			one = entryCost(e)
		}
		if n > 0 && cost+one > segment.BatchMax {
			break
		}
		n++
		cost += one
	}
	if n == 0 {
		return 0, 0, wal.ErrNotReady
	}
	if err := r.log.Reserve(min(cost, segment.BatchMax)); err != nil {
		r.notReserved(err)
		return 0, 0, err
	}
	return n, cost, nil
}

// fed reports whether every body that an entry names is here; what is missing is asked for.
func (r *replica) fed(e *raftpb.Entry) bool {
	s := fromRaftEntry(e)
	return off.gate || r.gate.room.ready(&s)
}

// feed asks for what the entries behind one that has to wait are missing, so that they wait together.
func (r *replica) feed(entries []*raftpb.Entry) {
	for _, e := range entries[:min(len(entries), gateFeedMax)] {
		if !r.has(e) {
			r.fed(e)
		}
	}
}

// notReserved takes note of why there is no room.
func (r *replica) notReserved(err error) {
	switch {
	case errors.Is(err, wal.ErrNotReady):
		r.stuck = true
	case errors.Is(err, fsync.ErrDiskFull):
		r.diskFull(err)
	default:
		r.halt(err)
	}
}

// has reports whether the log holds the entry already.
func (r *replica) has(e *raftpb.Entry) bool {
	i := Index(e.GetIndex())
	if i <= r.log.First()-1 {
		return true
	}
	if i > r.log.Last().Index {
		return false
	}
	t, err := r.log.Term(i)
	return err == nil && uint64(t) == e.GetTerm()
}

// split cuts an append behind its first n entries.
func split(m *raftpb.Message, n int) (head, tail *raftpb.Message) {
	list := m.GetEntries()
	if n == len(list) {
		return m, nil
	}
	cut := func(index, term uint64, entries []*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{
			Type: m.Type, To: m.To, From: m.From, Term: m.Term, Commit: m.Commit,
			Index: new(index), LogTerm: new(term), Entries: entries,
		}
	}
	last := list[n-1]
	return cut(m.GetIndex(), m.GetLogTerm(), list[:n:n]), cut(last.GetIndex(), last.GetTerm(), list[n:])
}

func messageSize(m *raftpb.Message) (n int) {
	for _, e := range m.GetEntries() {
		n += len(e.GetData()) + entryOverhead
	}
	return n
}

// keep lets an append wait, if there is a place.
func (g *gate) keep(l letter) {
	if len(g.waiting) >= gateLettersMax || g.bytes > 0 && g.bytes+l.size > gateBytesMax {
		return
	}
	g.waiting = append(g.waiting, l)
	g.since = append(g.since, g.now)
	g.bytes += l.size
}

func (g *gate) shift() {
	g.waiting[0] = letter{}
	g.waiting, g.since = g.waiting[1:], g.since[1:]
	if len(g.waiting) == 0 {
		g.waiting, g.since = nil, nil
	}
}

func (g *gate) drop() { g.waiting, g.since, g.bytes = nil, nil, 0 }

func (g *gate) clear() {
	g.drop()
	if g.room != nil {
		g.room.clear()
	}
}

// entries counts those that wait for a body.
func (g *gate) entries() (n int) {
	for _, l := range g.waiting {
		n += len(l.m.GetEntries())
	}
	return n
}
