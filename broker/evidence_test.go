package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

var (
	storedWritten = wire.Stored(wire.Written)
	storedFlushed = wire.Stored(wire.Flushed)
)

func replicated(n uint32) wire.Evidence { return wire.Replicated(n, wire.Flushed) }

// Stored is answered at the commit, and not before, with what a majority holds by then (D-10, D-17, X-15).
func TestStoredIsReplicatedAtCommit(t *testing.T) {
	d := newDesk(t, 3)
	d.leads(5)
	p := d.producer("", storedWritten)
	p.publish(wire.Publish{Seq: 1}, wire.Publish{Seq: 2, Want: wire.Accepted()}, wire.Publish{Seq: 3, Want: storedFlushed})
	if f := one[*wire.EvidenceFrame](p); f.First != 2 || f.Evidence != wire.Accepted() {
		t.Errorf("%+v", f)
	}
	d.append()
	d.held(1)
	d.moved() // flushed here, which is no commit
	p.nothing()
	d.held(1, 1)
	d.commit(1)
	list := p.answers()
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	for i, seq := range []uint64{1, 3} {
		f, ok := list[i].(*wire.EvidenceFrame)
		if !ok || f.First != seq || f.Count != 1 || f.Evidence != replicated(2) || f.Offset != seq-1 || f.Term != 5 {
			t.Errorf("%+v", list[i])
		}
	}
}

// The number is the one at the release: it may be more than was asked, and is what was counted then.
func TestReplicasAreCountedAtTheRelease(t *testing.T) {
	d := newDesk(t, 5)
	d.leads(5)
	p := d.producer("", replicated(4))
	p.publish(wire.Publish{Seq: 1}, wire.Publish{Seq: 2, Want: replicated(2)})
	d.append()
	d.held(1, 1, 1)
	d.commit(1)
	if f := one[*wire.EvidenceFrame](p); f.First != 2 || f.Evidence != replicated(3) {
		t.Errorf("%+v", f)
	}
	d.held(1, 1, 1, 1, 1)
	d.moved()
	if f := one[*wire.EvidenceFrame](p); f.First != 1 || f.Evidence != replicated(5) {
		t.Errorf("%+v", f)
	}
}

// what is not reached in time ends below request, each message at its own time, with what it has then.
func TestBelowRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 3)
		d.leads(5)
		p := d.producer("", replicated(3))
		p.publish(wire.Publish{Seq: 1}, wire.Publish{Seq: 2, Within: 1500}, wire.Publish{Seq: 3, Within: 60_000})
		d.append()
		time.Sleep(time.Minute) // before the commit no time runs
		p.nothing()
		d.held(1, 1)
		d.commit(1)
		time.Sleep(1499 * time.Millisecond)
		p.nothing()
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		f := one[*wire.Below](p)
		if f.Seq != 2 || f.Evidence != replicated(2) || f.Offset != 1 || f.Term != 5 || f.Code != wire.NotReached ||
			!strings.Contains(f.Detail, "replicated:3:flushed") || !strings.Contains(f.Detail, "1.5s") {
			t.Errorf("%+v", f)
		}
		time.Sleep(wantPatience - 1501*time.Millisecond)
		synctest.Wait()
		if f := one[*wire.Below](p); f.Seq != 1 {
			t.Errorf("%+v", f)
		}
		d.held(1, 1, 1)
		d.moved()
		if f := one[*wire.EvidenceFrame](p); f.First != 3 || f.Evidence != replicated(3) {
			t.Errorf("%+v", f)
		}
		if p.count != 0 || p.bytes != 0 || d.q.late.stop != nil || len(d.q.late.list) > 0 {
			t.Errorf("%d messages of %d bytes are under way", p.count, p.bytes)
		}
		if n := d.node.counters.below.Load(); n != 2 {
			t.Errorf("%d ended below request", n)
		}
	})
}

// A retry is answered with the evidence reached by then, and stored once.
func TestRetryOfAMessageBelowRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 3)
		d.leads(5)
		p := d.producer("p1", replicated(3))
		p.publish(wire.Publish{Seq: 1})
		d.append()
		d.held(2, 2)
		d.commit(2)
		time.Sleep(wantPatience)
		synctest.Wait()
		below := one[*wire.Below](p)
		p.publish(wire.Publish{Seq: 1})
		d.append()
		d.held(3, 3, 3)
		d.commit(3)
		f := one[*wire.EvidenceFrame](p)
		if f.First != 1 || f.Evidence != replicated(3) || f.Offset != below.Offset || f.Term != below.Term {
			t.Errorf("%+v after %+v", f, below)
		}
		if n := d.q.state.Counts().In; n != 1 {
			t.Errorf("%d messages are stored", n)
		}
	})
}

// D-13 to D-16, T-33: a want is held against the offer on each axis, when the producer opens and for each message; what
// is refused stores nothing.
func TestOfferByConfiguration(t *testing.T) {
	for _, c := range []struct {
		replicas   int
		durability control.Durability
		owner      bool
		offer      wire.Evidence
		refused    map[wire.Want]string
	}{
		{1, control.Written, true, storedWritten, map[wire.Want]string{
			storedFlushed: "falls short in persistence", replicated(2): "cannot report Replicated",
			wire.Replicated(2, wire.Written): "cannot report Replicated",
		}},
		{1, control.Flushed, true, storedFlushed, map[wire.Want]string{replicated(2): "cannot report Replicated"}},
		{3, control.Flushed, true, storedFlushed, map[wire.Want]string{replicated(2): "cannot report Replicated"}},
		{3, control.Flushed, false, replicated(3), map[wire.Want]string{
			replicated(4): "it has 3 replicas", wire.Replicated(4, wire.Written): "it has 3 replicas",
		}},
		{5, control.Flushed, false, replicated(5), map[wire.Want]string{replicated(6): "it has 5 replicas"}},
		{1, control.Flushed, false, storedFlushed, map[wire.Want]string{replicated(2): "cannot report Replicated"}},
	} {
		d := newDesk(t, c.replicas)
		d.q.spec.Store(&control.QueueSpec{Replicas: c.replicas, Durability: c.durability})
		if c.owner {
			d.role(raftstore.Owner, 1, 1)
		} else {
			d.leads(1)
		}
		if got := d.q.offer(); got != c.offer {
			t.Errorf("%d replicas, %s: the offer is %v, want %v", c.replicas, c.durability, got, c.offer)
		}
		wants := []wire.Want{wire.Accepted(), storedWritten, storedFlushed}
		for n := range uint32(5) {
			wants = append(wants, replicated(n+2), wire.Replicated(n+2, wire.Written))
		}
		p := d.producer("", wire.Accepted())
		for i, want := range wants {
			says, refused := c.refused[want], !c.offer.Covers(want)
			p.publish(wire.Publish{Seq: uint64(i) + 1, Want: want})
			s := &session{node: d.node, caller: caller{brake: new(brake)}}
			opened, _, why := s.openProducer(t.Context(), wire.OpenProducer{Queue: "demo", Want: want})
			if opened != nil {
				d.q.leave()
			}
			if (why != nil) != refused || refused && (why.Code != wire.NotOffered || !strings.Contains(why.Detail, says)) {
				t.Errorf("%d replicas, %s: open with %v: %v", c.replicas, c.durability, want, why)
			}
			for _, f := range p.answers() {
				r, ok := f.(*wire.Refused)
				if ok != refused || ok && (r.Code != wire.NotOffered || !strings.Contains(r.Detail, says)) {
					t.Errorf("%d replicas, %s: publish with %v: %+v", c.replicas, c.durability, want, f)
				}
			}
		}
	}
}

// Whatever is asked and whatever replicas do: one answer each, none but Accepted before the commit, the number is that
// of replicas that hold the entry at that moment, and only what covers its want is evidence.
func TestEvidenceIsWhatReplicasHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newEvidenceModel(t).run() })
}

// evidenceModel is a group of replicas that flush at their own pace.
type evidenceModel struct {
	t       *rapid.T
	d       *desk
	p       *deskProducer
	flushed []raftstore.Index          // by replica; the first leads
	wants   map[uint64]wire.Want       // by sequence, without an answer
	entry   map[uint64]raftstore.Index // by sequence
	due     map[uint64]time.Time       // by sequence, once it is committed
	within  map[uint64]time.Duration
	batches [][]uint64 // sequences that were proposed and have no entry
	seq     uint64
	now     time.Time
	timer   func() // nil: none runs
	at      time.Time
}

func newEvidenceModel(t *rapid.T) *evidenceModel {
	replicas := rapid.SampledFrom([]int{3, 5, 7}).Draw(t, "replicas")
	d := newDesk(t, replicas)
	d.leads(7)
	m := &evidenceModel{
		t: t, d: d, p: d.producer("", wire.Accepted()), flushed: make([]raftstore.Index, replicas),
		wants: make(map[uint64]wire.Want), entry: make(map[uint64]raftstore.Index), due: make(map[uint64]time.Time),
		within: make(map[uint64]time.Duration), now: time.Unix(1_000_000, 0),
	}
	d.q.late.clock = clock{
		now: func() time.Time { return m.now },
		after: func(wait time.Duration, f func()) func() bool {
			m.timer, m.at = f, m.now.Add(wait)
			return func() bool { m.timer = nil; return true }
		},
	}
	return m
}

// pass lets time go by.
func (m *evidenceModel) pass(d time.Duration) {
	until := m.now.Add(d)
	for m.timer != nil && !m.at.After(until) {
		f := m.timer
		m.now, m.timer = m.at, nil
		f()
		m.check()
	}
	m.now = until
}

func (m *evidenceModel) run() {
	for range rapid.IntRange(1, 60).Draw(m.t, "steps") {
		switch rapid.IntRange(0, 3).Draw(m.t, "step") {
		case 0:
			m.publish()
		case 1:
			i := m.d.last()
			m.d.append()
			for _, batch := range m.batches {
				i++
				for _, seq := range batch {
					m.entry[seq] = i
				}
			}
			m.batches = nil
		case 2:
			m.flush()
		case 3:
			m.pass(time.Duration(rapid.IntRange(1, 4000).Draw(m.t, "wait")) * time.Millisecond)
		}
		m.check()
	}
}

func (m *evidenceModel) publish() {
	var list []wire.Publish
	var batch []uint64
	for range rapid.IntRange(1, 3).Draw(m.t, "messages") {
		m.seq++
		f := wire.Publish{Seq: m.seq, Want: rapid.SampledFrom([]wire.Want{
			wire.Accepted(), storedWritten, storedFlushed, replicated(2), wire.Replicated(2, wire.Written), replicated(3),
			replicated(uint32(len(m.flushed))),
		}).Draw(m.t, "want")}
		f.Within = rapid.SampledFrom([]uint64{0, 0, 1, 2500, 60_000}).Draw(m.t, "within")
		m.within[f.Seq] = time.Duration(f.Within) * time.Millisecond
		if f.Within == 0 {
			m.within[f.Seq] = wantPatience
		}
		m.wants[f.Seq] = f.Want
		list, batch = append(list, f), append(batch, f.Seq)
	}
	m.batches = append(m.batches, batch)
	m.p.publish(list...)
}

// flush lets one replica catch up to somewhere, and commits what a majority has.
func (m *evidenceModel) flush() {
	k := rapid.IntRange(0, len(m.flushed)-1).Draw(m.t, "replica")
	m.flushed[k] = raftstore.Index(rapid.Uint64Range(uint64(m.flushed[k]), uint64(m.d.last())).Draw(m.t, "index"))
	held := make([]raftstore.Index, 0, len(m.flushed))
	for n := 1; n <= len(m.flushed); n++ {
		at := raftstore.Index(0)
		for i := m.d.last(); i > 0 && at == 0; i-- {
			if m.count(i) >= n {
				at = i
			}
		}
		held = append(held, at)
	}
	m.d.held(held...)
	m.d.marks.Flushed = m.flushed[0]
	m.d.commit(max(m.d.marks.Committed, held[len(held)/2]))
	for seq := range m.wants {
		if i := m.entry[seq]; i > 0 && i <= m.d.marks.Committed && m.due[seq].IsZero() {
			m.due[seq] = m.now.Add(m.within[seq])
		}
	}
}

func (m *evidenceModel) count(i raftstore.Index) (n int) {
	for _, f := range m.flushed {
		if f >= i {
			n++
		}
	}
	return n
}

func (m *evidenceModel) check() {
	for _, f := range m.p.answers() {
		switch f := f.(type) {
		case *wire.EvidenceFrame:
			for k := range f.Count {
				m.answered(f.First+k, f.Evidence, true)
			}
		case *wire.Below:
			m.answered(f.Seq, f.Evidence, false)
			if m.now.Before(m.due[f.Seq]) {
				m.t.Fatalf("message %d ended %v too early", f.Seq, m.due[f.Seq].Sub(m.now))
			}
		default:
			m.t.Fatalf("%T %+v", f, f)
		}
	}
	for seq, want := range m.wants {
		i := m.entry[seq]
		if want == wire.Accepted() || i > 0 && i <= m.d.marks.Committed &&
			(m.count(i) >= int(want.Replicas) || m.now.After(m.due[seq])) {
			m.t.Fatalf("message %d of entry %d wants %v, %d hold it, and it has no answer", seq, i, want, m.count(i))
		}
	}
}

// answered holds an answer against the replicas as they are now.
func (m *evidenceModel) answered(seq uint64, e wire.Evidence, ok bool) {
	want, open := m.wants[seq]
	i := m.entry[seq]
	truth := wire.Stored(wire.Flushed)
	if n := m.count(i); n > 1 {
		truth = replicated(uint32(n))
	}
	switch {
	case !open:
		m.t.Fatalf("message %d was answered twice", seq)
	case want == wire.Accepted():
		if e != want || !ok {
			m.t.Fatalf("message %d wants no more than accepted and is %v", seq, e)
		}
	case i == 0 || i > m.d.marks.Committed:
		m.t.Fatalf("message %d has %v before its commit", seq, e)
	case e != truth || ok != e.Covers(want):
		m.t.Fatalf("message %d of entry %d wants %v and is answered with %v, %v; %d hold it", seq, i, want, e, ok, m.count(i))
	}
	delete(m.wants, seq)
}
