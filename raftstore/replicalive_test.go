package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"weida/wal"
)

// liveNet carries frames between hosts with goroutines, in order, one goroutine per pair.
type liveNet struct {
	hosts []*Host
	lanes map[[2]NodeID]chan func()
	done  sync.WaitGroup
}

// livePort is the net as one node sees it.
type livePort struct {
	net *liveNet
	id  NodeID
}

func (p livePort) put(to NodeID, deliver func(*Host)) {
	select {
	case p.net.lanes[[2]NodeID{p.id, to}] <- func() { deliver(p.net.hosts[to-1]) }:
	default: // lost
	}
}

func (p livePort) Raft(to NodeID, _ int, frames []Frame) {
	list := copyFrames(frames)
	p.put(to, func(h *Host) {
		if refused := h.ReceiveRaft(p.id, list); len(refused) > 0 {
			p.net.hosts[p.id-1].ReceiveRefusals(to, refused)
		}
	})
}

func (p livePort) Beat(to NodeID, data []byte) {
	data = bytes.Clone(data)
	p.put(to, func(h *Host) { h.ReceiveBeat(p.id, data) })
}

func (p livePort) Payload(to NodeID, _ int, frames []Frame) {
	list := copyFrames(frames)
	p.put(to, func(h *Host) { h.ReceivePayload(p.id, list) })
}

func (p livePort) Stream(ctx context.Context, to NodeID, head []byte) (Stream, error) {
	return p.net.stream(ctx, p.id, to, head)
}

// liveCluster starts n hosts on real files.
func liveCluster(t testing.TB, n int, o HostOptions) *liveNet {
	t.Helper()
	net := &liveNet{lanes: map[[2]NodeID]chan func(){}}
	for i := range n {
		o.Node, o.Transport = NodeID(i+1), livePort{net, NodeID(i + 1)}
		h, store := realHost(t, t.TempDir(), o)
		net.hosts = append(net.hosts, h)
		t.Cleanup(func() { net.stop(t, h, store) })
	}
	for a := range n {
		for b := range n {
			if a != b {
				net.lane(NodeID(a+1), NodeID(b+1))
			}
		}
	}
	for a := range n {
		for b := range n {
			if a != b {
				net.hosts[a].PeerUp(NodeID(b+1), 1)
			}
		}
	}
	t.Cleanup(func() {
		for _, lane := range net.lanes {
			lane <- nil
		}
		net.done.Wait()
	})
	return net
}

func (net *liveNet) lane(a, b NodeID) {
	lane := make(chan func(), 4096)
	net.lanes[[2]NodeID{a, b}] = lane
	net.done.Go(func() {
		for deliver := range lane {
			if deliver == nil {
				return
			}
			deliver()
		}
	})
}

func (net *liveNet) stop(t testing.TB, h *Host, store *wal.Store) {
	if err := errors.Join(h.Stop(), store.Close()); err != nil {
		t.Error(err)
	}
}

// liveMachine counts what it applies, and lets goroutines wait. The machines of a group share their lock.
type liveMachine struct {
	cond  *sync.Cond
	group Group
	role  Role
	marks Marks
	last  Index
	lines []string
	index map[uint64]Index
	lost  map[uint64]Outcome
	bad   error
}

func newLiveMachine(cond *sync.Cond) *liveMachine {
	return &liveMachine{cond: cond, index: map[uint64]Index{}, lost: map[uint64]Outcome{}}
}

func (m *liveMachine) do(f func()) {
	m.cond.L.Lock()
	defer m.cond.L.Unlock()
	f()
	m.cond.Broadcast()
}

func (m *liveMachine) Attach(g Group)                       { m.group = g }
func (m *liveMachine) Appended(tag uint64, _ Term, i Index) { m.do(func() { m.index[tag] = i }) }
func (m *liveMachine) Dropped(tag uint64, o Outcome)        { m.do(func() { m.lost[tag] = o }) }
func (m *liveMachine) Moved(now Marks)                      { m.do(func() { m.marks = now }) }
func (m *liveMachine) Role(r Role, _ Term, _ Leader)        { m.do(func() { m.role = r }) }
func (m *liveMachine) Snapshot() Source                     { panic("no snapshots") }
func (m *liveMachine) Restore(Source) error                 { return errors.New("no snapshots") }

func (m *liveMachine) Apply(_ Term, i Index, items []Item) {
	m.do(func() {
		if m.last != 0 && i != m.last+1 {
			m.bad = fmt.Errorf("entry %d after %d", i, m.last)
		}
		m.last = i
		for _, it := range items {
			m.lines = append(m.lines, string(it.Command))
		}
	})
}

// held waits until n replicas hold a proposal; false if it was dropped, or its replica leads no more.
func (m *liveMachine) held(tag uint64, n int) bool {
	m.cond.L.Lock()
	defer m.cond.L.Unlock()
	for {
		if _, ok := m.lost[tag]; ok || m.role != LeaderRole {
			return false
		}
		if i, ok := m.index[tag]; ok && m.marks.Committed >= i && m.marks.HeldBy(i) >= n {
			return true
		}
		m.cond.Wait()
	}
}

// liveGroup opens a group on all hosts, its replicas led by host lead at first.
func (net *liveNet) liveGroup(t testing.TB, g GroupID, lead int) (list []*liveMachine) {
	t.Helper()
	gen := &Genesis{Term: 1, Index: 1}
	n := len(net.hosts)
	cond := sync.NewCond(&sync.Mutex{})
	for i := range n {
		id := NodeID((lead+i)%n + 1)
		gen.Members = append(gen.Members, Member{Replica: replicaOn(id), Node: id})
	}
	for i := range n { // the first one campaigns as soon as it is open
		k := (lead + n - 1 - i) % n
		m := newLiveMachine(cond)
		o := ReplicaOptions{Self: replicaOn(NodeID(k + 1)), Genesis: gen}
		if _, err := net.hosts[k].OpenReplica(g, m, o); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// leaderOf waits for the replica that leads.
func leaderOf(list []*liveMachine) *liveMachine {
	cond := list[0].cond
	cond.L.Lock()
	defer cond.L.Unlock()
	for {
		for _, m := range list {
			if m.role == LeaderRole {
				return m
			}
		}
		cond.Wait()
	}
}

// Hosts with goroutines on real files: many groups, many proposers, readers of Status, and a stop in the middle of it.
func TestReplicaLive(t *testing.T) {
	net := liveCluster(t, 3, HostOptions{Shards: 2, ElectionTicks: 5, HeartbeatTicks: 1})
	var proposers sync.WaitGroup
	for g := range GroupID(6) {
		list := net.liveGroup(t, g+1, int(g)%3)
		proposers.Go(func() {
			for i := range uint64(40) {
				lead := leaderOf(list)
				tag := uint64(i) + 1
				body := bytes.Repeat([]byte("b"), int(i)*100)
				item := Item{Command: fmt.Appendf(nil, "%d", i), HasBody: true, Inline: body}
				if err := lead.group.Propose(&Batch{Tag: tag, Items: []Item{item}}); err != nil {
					continue
				}
				lead.held(tag, 2)
				_ = lead.group.Status()
			}
			for _, m := range list {
				if m.bad != nil {
					t.Error(m.bad)
				}
			}
		})
	}
	proposers.Wait()
}

// BenchmarkReplicated replicates small messages to three hosts on one disk, with 256 in flight over all groups.
func BenchmarkReplicated(b *testing.B) {
	for _, groups := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			net := liveCluster(b, 3, HostOptions{Shards: 2})
			var leads []*liveMachine
			for g := range groups {
				leads = append(leads, leaderOf(net.liveGroup(b, GroupID(g+1), g%3)))
			}
			body := bytes.Repeat([]byte("b"), 256)
			var wait sync.WaitGroup
			b.ResetTimer()
			for w := range 256 {
				lead := leads[w%groups]
				wait.Go(func() {
					for i := w; i < b.N; i += 256 {
						item := Item{Command: []byte("c"), HasBody: true, Inline: body}
						if err := lead.group.Propose(&Batch{Tag: uint64(i) + 1, Items: []Item{item}}); err != nil {
							b.Error(err)
							return
						}
						if !lead.held(uint64(i)+1, 2) {
							b.Error("dropped")
							return
						}
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
