package broker

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// town is a Router of a few nodes, by number.
type town map[raftstore.NodeID]NodeAddress

func (t town) Node(id raftstore.NodeID) (NodeAddress, bool) { a, ok := t[id]; return a, ok }

func (t town) Queue(name string) (NodeAddress, bool) {
	if name != "far" {
		return NodeAddress{}, false
	}
	return t.Node(2)
}

func (t town) Member(key endpoint.Fingerprint) bool {
	for _, a := range t {
		if a.Fingerprint == key {
			return true
		}
	}
	return false
}

// signpost is a town that changes.
type signpost struct {
	mu sync.Mutex
	town
	asked int // guarded by mu; for a node
}

func (s *signpost) set(t town) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.town = t
}

func (s *signpost) now() town {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.town
}

func (s *signpost) Node(id raftstore.NodeID) (NodeAddress, bool) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	return s.now().Node(id)
}

func (s *signpost) Queue(name string) (NodeAddress, bool) { return s.now().Queue(name) }

func (s *signpost) Member(key endpoint.Fingerprint) bool { return s.now().Member(key) }

var second = NodeAddress{Fingerprint: endpoint.Fingerprint{2}, Host: "n2.example", Port: 7443}

// What has an entry when a leadership ends may be lost or not, unless it was committed; what has none was refused. A
// producer with an id hears of neither: its stream ends, and it sends all of it to the new leader.
func TestLostLeadership(t *testing.T) {
	for _, id := range []string{"", "p1"} {
		d := newDesk(t, 3)
		d.node.router = town{2: second}
		d.leads(5)
		p := d.producer(id, storedFlushed)
		base := d.last()
		p.publish(wire.Publish{Seq: 1}, wire.Publish{Seq: 2, Want: replicated(3)})
		p.publish(wire.Publish{Seq: 3, Want: wire.Accepted()}, wire.Publish{Seq: 4})
		d.append()
		p.answers()
		d.held(base+1, base+1)
		d.commit(base + 1)
		if f := one[*wire.EvidenceFrame](p); f.First != 1 || f.Count != 1 {
			t.Fatalf("%+v", f)
		}
		d.follows(6, 2)
		d.full = &raftstore.NotLeaderError{Group: 9, Term: 6}
		p.publish(wire.Publish{Seq: 5})
		var got []uint64
		for _, f := range p.answers() {
			switch f := f.(type) {
			case *wire.Below:
				got = append(got, f.Seq)
				if f.Seq != 2 || f.Evidence != replicated(2) {
					t.Errorf("%+v", f)
				}
			case *wire.Indeterminate:
				got = append(got, f.Seq)
				if f.Seq != 4 || f.Code != wire.LeaderChanged || f.Detail != "Node 2 leads it in term 6" {
					t.Errorf("%+v", f)
				}
			case *wire.Refused:
				got = append(got, f.Seq)
				if f.Seq != 5 || f.Code != wire.LedElsewhere {
					t.Errorf("%+v", f)
				}
			}
		}
		slices.Sort(got)
		if want := []uint64{2, 4, 5}; id == "" && !slices.Equal(got, want) || id != "" && len(got) > 0 {
			t.Errorf("producer %q: answers of %v", id, got)
		}
		if !p.drain(t.Context()) {
			t.Error("the stream is held up by what has no answer")
		}
		why := p.whyEnded()
		if why == nil || why.To == nil || why.To.Term != 6 || why.To.Host != "n2.example" || why.To.Queue != "demo" ||
			why.To.Node != [32]byte(second.Fingerprint) {
			t.Errorf("the stream ends with %+v", why)
		}
		if len(d.q.placed) > 0 || len(d.q.late.list) > 0 {
			t.Errorf("kept: %d, %d", len(d.q.placed), len(d.q.late.list))
		}
	}
}

// What was committed before the leadership ended is answered with evidence, also when it is applied after that; and
// another leader's entry in the place of one that was lost is not taken for it.
func TestCommittedBeforeTheLeadershipEnded(t *testing.T) {
	d := newDesk(t, 3)
	d.leads(5)
	p := d.producer("", storedFlushed)
	p.publish(wire.Publish{Seq: 1})
	d.append()
	p.publish(wire.Publish{Seq: 2, Want: replicated(3)})
	d.append()
	p.publish(wire.Publish{Seq: 3})
	d.append()
	d.held(2, 2)
	d.marks.Committed = 2
	d.moved() // nothing is applied yet
	p.nothing()
	d.follows(6, 2)
	if f := one[*wire.Indeterminate](p); f.Seq != 3 {
		t.Errorf("%+v", f)
	}
	d.replace(3, 6, queue.Command{Kind: queue.Publish})
	d.marks.Held = [raftstore.MaxVoters]raftstore.Index{}
	d.commit(3)
	list := p.answers()
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	if f, ok := list[0].(*wire.EvidenceFrame); !ok || f.First != 1 || f.Evidence != replicated(2) || f.Offset != 0 {
		t.Errorf("%+v", list[0])
	}
	if f, ok := list[1].(*wire.Below); !ok || f.Seq != 2 || f.Evidence != replicated(2) || f.Offset != 1 {
		t.Errorf("%+v", list[1])
	}
	if n := d.q.state.Counts().In; n != 3 {
		t.Errorf("%d messages in the queue", n)
	}
}

// A leadership that is lost and won again between two looks is not the same one.
func TestLeadershipAgain(t *testing.T) {
	d := newDesk(t, 3)
	d.leads(5)
	p := d.producer("", storedFlushed)
	p.publish(wire.Publish{Seq: 1})
	d.append()
	first := d.q.leadership().reign
	d.leads(5)
	if d.q.leadership().reign != first {
		t.Error("the same term made another reign")
	}
	d.leads(7)
	select {
	case <-first.over:
	default:
		t.Error("streams of the first reign go on")
	}
	if f := one[*wire.Indeterminate](p); f.Seq != 1 || f.Code != wire.LeaderChanged {
		t.Errorf("%+v", f)
	}
	if now := d.q.leadership().reign; now == nil || now.session() <= first.session() {
		t.Error("the second reign gives out numbers of the first")
	}
}

// A group that stops here, because its replica is given up or opened in another way, ends a reign like another leader:
// nobody waits for what it will not answer.
func TestGroupStops(t *testing.T) {
	d := newDesk(t, 3)
	d.leads(5)
	p := d.producer("", replicated(3))
	p.publish(wire.Publish{Seq: 1})
	d.append()
	d.held(1, 1)
	d.commit(1)
	p.publish(wire.Publish{Seq: 2})
	d.append()
	p.nothing()
	d.marks.Committed = 2 // and it will not be applied
	d.moved()
	d.q.group.Stop()
	list := p.answers()
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	if f, ok := list[0].(*wire.Indeterminate); !ok || f.Seq != 2 || f.Code != wire.LeaderChanged {
		t.Errorf("%+v", list[0])
	}
	if f, ok := list[1].(*wire.Below); !ok || f.Seq != 1 || f.Evidence != replicated(2) {
		t.Errorf("%+v", list[1])
	}
	if !p.drain(t.Context()) || p.whyEnded() == nil || d.q.leadership().reign != nil {
		t.Errorf("the stream goes on: %v", p.whyEnded())
	}
}

// A queue whose replica here is closed is not deleted, unless the registry says so.
func TestQueueIsGone(t *testing.T) {
	r := newRig(t, nil)
	q := r.node.lookup("demo")
	if why := r.node.gone(q); why.Code != wire.LeaderChanged {
		t.Errorf("%v", why)
	}
	q = newNodeQueue("demo", q.id+1, control.QueueSpec{}, r.node.c.Log, func(uint64) {}) // an older one of that name
	if why := r.node.gone(q); why.Code != wire.QueueDeleted {
		t.Errorf("%v", why)
	}
}

// A command that somebody waits for ends, too: as unknown if it has an entry, refused if not.
func TestCommandsWhenLeadershipEnds(t *testing.T) {
	d := newDesk(t, 3)
	d.leads(5)
	d.node.router = town{2: second}
	ask := func() chan *wire.Error {
		ch := make(chan *wire.Error, 1)
		s := &session{node: d.node}
		go func() {
			_, err := s.ask(context.WithoutCancel(t.Context()), d.q, queue.Command{Kind: queue.Purge, Session: 1})
			ch <- err
		}()
		return ch
	}
	placed := ask()
	for d.append() == 0 {
		time.Sleep(time.Millisecond)
	}
	d.follows(6, 2)
	if err := <-placed; err == nil || err.Code != wire.LeaderChanged {
		t.Errorf("with an entry: %v", err)
	}
	d.full = &raftstore.NotLeaderError{Group: 9, Term: 6, Leader: raftstore.Leader{Node: 2}}
	if err := <-ask(); err == nil || err.Code != wire.LedElsewhere || err.To == nil || err.To.Term != 6 {
		t.Errorf("without: %v", err)
	}
}

// A settle that comes in the moment in which a leadership has ended here and nobody knows the next leader ends its
// stream as one whose leadership moved, which the client makes again, and not as one that nobody can serve.
func TestSettleInTheMoveOfALeadership(t *testing.T) {
	d := newDesk(t, 3)
	d.leads(5)
	c := &consumer{session: &session{node: d.node}, queue: d.q, abort: func() {}}
	c.room = sync.NewCond(&c.mu)
	d.full = &raftstore.NotLeaderError{Group: 9, Term: 6}
	settle := []queue.Command{{Kind: queue.Settle}}
	if err := c.propose(t.Context(), &settle); err == nil || err.Code != wire.LeaderChanged {
		t.Errorf("not taken: %v", err)
	}
	c.refused(d.full)
	if err := c.failed(); err == nil || err.Code != wire.LeaderChanged {
		t.Errorf("dropped: %v", err)
	}
	d.node.router = town{2: second}
	d.follows(6, 2)
	settle = []queue.Command{{Kind: queue.Settle}}
	if err := c.propose(t.Context(), &settle); err == nil || err.To == nil || err.To.Term != 6 {
		t.Errorf("with a leader known: %v", err)
	}
}

// commands are those that were proposed and have no entry.
func (d *desk) commands() (list []queue.Command) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.asked {
		for _, item := range b.Items {
			c, err := queue.Decode(item.Command)
			if err != nil {
				d.t.Fatal(err)
			}
			list = append(list, c)
		}
	}
	return list
}

// put appends and commits one command as another leader would have.
func (d *desk) put(term raftstore.Term, c queue.Command) {
	d.replace(d.last()+1, term, c)
	d.commit(d.last())
}

// what the leader before had attached, or an owner before it, may come back; what does not is detached when its
// time is up, and what ended with its stream is ended at once. A follower proposes nothing of this.
func TestReattachGrace(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, 3)
			d.follows(5, 2)
			d.put(5, queue.Command{Kind: queue.Attach, Subscription: "s", Session: 900<<32 + 70, Limit: 10})
			d.put(5, queue.Command{Kind: queue.Attach, Subscription: ephemeral + "46", Session: 5<<32 + 71, Limit: 1})
			d.put(5, queue.Command{Kind: queue.Publish})
			d.put(5, queue.Command{Kind: queue.Publish})
			time.Sleep(time.Hour)
			if list := d.commands(); len(list) > 0 {
				t.Fatalf("a follower proposed %+v", list)
			}
			d.leads(6)
			list := d.commands()
			if len(list) != 1 || list[0].Kind != queue.Unsubscribe || list[0].Subscription != ephemeral+"46" {
				t.Fatalf("proposed at first: %+v", list)
			}
			d.append()
			d.commit(d.last())
			r := d.q.leadership().reign
			if back {
				d.put(6, queue.Command{Kind: queue.Attach, Subscription: "s", Session: r.session()})
			}
			time.Sleep(reattachGrace - time.Millisecond)
			synctest.Wait()
			if list := d.commands(); len(list) > 0 {
				t.Fatalf("proposed within the grace: %+v", list)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if list := d.commands(); len(list) != 1 || list[0].Kind != queue.DetachBelow {
				t.Fatalf("proposed after the grace: %+v", list)
			}
			d.append()
			d.commit(d.last())
			attached := false
			d.q.state.Attachments(func(_ string, session uint64) { attached = attached || session != 0 })
			if attached != back {
				t.Errorf("it came back: %v, and is attached: %v", back, attached)
			}
			d.follows(8, 2)
		})
	}
}

// A leader that is deposed within the grace leaves detaching to the next.
func TestDeposedWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 3)
		d.follows(5, 2)
		d.put(5, queue.Command{Kind: queue.Attach, Subscription: "s", Session: 5<<32 + 70, Limit: 10})
		d.leads(6)
		time.Sleep(reattachGrace / 2)
		d.follows(7, 2)
		time.Sleep(reattachGrace)
		synctest.Wait()
		if list := d.commands(); len(list) > 0 {
			t.Errorf("proposed: %+v", list)
		}
	})
}

// A request waits for a leader no longer than it has to, and never for ever: it is served here, sent there, or told
// that there is no quorum.
func TestFindLeader(t *testing.T) {
	find := func(d *desk, name string) chan *wire.Error {
		ch := make(chan *wire.Error, 1)
		s := &session{node: d.node}
		go func() {
			_, _, err := s.find(d.t.Context(), name)
			ch <- err
		}()
		synctest.Wait()
		return ch
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 3)
		d.node.router = town{2: second}
		d.follows(5, 2)
		ch := find(d, "demo")
		if err := <-ch; err == nil || err.To == nil || err.To.Term != 5 {
			t.Errorf("led elsewhere: %v", err)
		}
		ch = find(d, "far")
		if err := <-ch; err == nil || err.To == nil || err.To.Term != 0 || err.To.Queue != "far" {
			t.Errorf("not here: %v", err)
		}
		d.follows(6, 0)
		ch = find(d, "demo")
		time.Sleep(leaderPatience - time.Millisecond)
		d.follows(6, 1) // this node, whose term has no entry applied yet
		synctest.Wait()
		d.leads(6)
		if err := <-ch; err != nil {
			t.Errorf("led here at last: %v", err)
		}
		d.follows(7, 0)
		ch = find(d, "demo")
		start := time.Now()
		if err := <-ch; err == nil || err.Code != wire.NoQuorum || time.Since(start) != leaderPatience {
			t.Errorf("led by nobody: %v after %v", err, time.Since(start))
		}
		d.follows(8, 3)
		ch = find(d, "demo")
		if err := <-ch; err == nil || err.Code != wire.NoQuorum || err.Error() == "" {
			t.Errorf("led by a node without an address: %v", err)
		}
	})
}

// What meets the beginning of an election is not done, and told who leads as soon as that is known: that nobody does at
// that moment is no want of a quorum (T-51).
func TestAskedInAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 3)
		d.node.router = town{2: second}
		d.leads(5)
		d.full = &raftstore.NotLeaderError{Group: 9, Term: 6}
		ch := make(chan *wire.Error, 1)
		s := &session{node: d.node}
		ask := func() {
			_, err := s.ask(t.Context(), d.q, queue.Command{Kind: queue.Register, Producer: "p", Session: 1})
			ch <- err
		}
		d.follows(6, 0)
		go ask()
		synctest.Wait()
		if len(ch) > 0 {
			t.Fatalf("answered before anybody leads: %v", <-ch)
		}
		d.follows(7, 2)
		if err := <-ch; err == nil || err.To == nil || err.To.Term != 7 {
			t.Errorf("led elsewhere now: %v", err)
		}
		d.follows(8, 0)
		go ask()
		synctest.Wait()
		d.leads(9)
		if err := <-ch; err == nil || err.Code != wire.LeaderChanged {
			t.Errorf("led here again: %v", err)
		}
	})
}

// Whoever names a queue while a node learns that it was deleted, and made again, gets the new one (T-19).
func TestFindWhatWasMadeAgain(t *testing.T) {
	r := newRig(t, nil)
	fresh := r.node.lookup("demo")
	old := newNodeQueue("demo", fresh.id-1, control.QueueSpec{}, r.node.c.Log, func(uint64) {})
	old.admit()
	put := func(q *nodeQueue) {
		r.node.queuesMu.Lock()
		r.node.queues["demo"] = q
		r.node.queuesMu.Unlock()
	}
	put(old)
	found := make(chan *wire.Error, 1)
	go func() {
		q, _, err := (&session{node: r.node}).find(r.ctx, "demo")
		if err == nil && q != fresh {
			t.Errorf("queue %d", q.id)
		}
		found <- err
	}()
	for waits := false; !waits; { // for the old one's leader
		old.mu.Lock()
		waits = old.turned != nil
		old.mu.Unlock()
		runtime.Gosched()
	}
	put(fresh)
	close(old.gone)
	if err := <-found; err != nil {
		t.Error(err)
	}
}
