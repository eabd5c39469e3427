package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

// trio is three nodes with one replicated queue, "far", whose replicas are real and speak by way of memory. Clients
// come by QUIC. What the registry would say of nodes and replicas, the test says.
type trio struct {
	t     *testing.T
	ctx   context.Context
	net   *cables
	seats []*seat
	dial  client.Options
}

// seat is one node of a trio.
type seat struct {
	node   *Node
	post   *signpost
	q      *nodeQueue
	host   *raftstore.Host
	store  *wal.Store
	flush  *fsync.Flusher
	files  *faultfs.FS // of the replicas
	spoilt bool        // its files were made to fail, and it says so when it ends
	at     NodeAddress
	gone   bool
}

const trioGroup = 77

func newTrio(t *testing.T) *trio {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	tr := &trio{t: t, ctx: ctx, net: newCables()}
	dir := t.TempDir()
	key, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "client")
	if err != nil {
		t.Fatal(err)
	}
	trust := map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleAdmin}
	ids := make([]*endpoint.Identity, 3)
	for i := range ids {
		if ids[i], err = endpoint.LoadOrCreateIdentity(fsync.OS(), dir, fmt.Sprint("n", i+1)); err != nil {
			t.Fatal(err)
		}
		trust[ids[i].Fingerprint()] = endpoint.RoleNode
	}
	for i, id := range ids {
		tr.sit(filepath.Join(dir, fmt.Sprint("data", i+1)), id, endpoint.NewTrust(trust))
	}
	tr.dial = client.Options{Identity: key, Trust: endpoint.NewTrust(trust), Jitter: func() float64 { return 0.5 }}
	for i, s := range tr.seats {
		others := make(town)
		for k, o := range tr.seats {
			if k != i {
				others[raftstore.NodeID(k+1)] = o.at
			}
		}
		s.post.set(others)
		tr.dial.Addrs = append(tr.dial.Addrs, s.node.Addr().String())
	}
	for i := range tr.seats {
		tr.open(i)
	}
	tr.net.plug(tr.seats)
	t.Cleanup(tr.close)
	return tr
}

// sit opens a node, and a host of replicas on a memory disk beside it.
func (tr *trio) sit(dir string, id *endpoint.Identity, trust *endpoint.Trust) {
	tr.t.Helper()
	s := &seat{post: new(signpost)}
	node, err := Open(Config{Dir: dir, Listen: "127.0.0.1:0", Identity: id, Trust: trust, router: s.post})
	if err != nil {
		tr.t.Fatal(err)
	}
	s.node, s.at = node, addressOf(node)
	tr.seats = append(tr.seats, s)
	disk := memfs.New()
	root, err := disk.OpenDir("/")
	if err != nil {
		tr.t.Fatal(err)
	}
	s.flush = fsync.NewFlusher(fsync.Options{Root: root})
	s.flush.Start()
	s.files = faultfs.New(disk)
	s.store, err = wal.OpenStore(s.files, "/data", wal.Options{Flusher: s.flush, Boot: segment.Boot(disk.BootID())})
	if err != nil {
		tr.t.Fatal(err)
	}
	n := raftstore.NodeID(len(tr.seats))
	s.host = raftstore.NewHost(raftstore.HostOptions{
		Store: s.store, Node: n, Transport: &cable{tr.net, n}, ElectionTicks: 8,
	})
	s.host.Start()
}

// open opens a node's replica, and lets streams in.
func (tr *trio) open(i int) {
	tr.t.Helper()
	s := tr.seats[i]
	s.q = newNodeQueue("far", trioGroup, control.QueueSpec{Replicas: 3}, s.node.c.Log, func(uint64) {})
	var members []raftstore.Member
	for k := range tr.seats {
		members = append(members, raftstore.Member{Replica: raftstore.ReplicaID(k + 1), Node: raftstore.NodeID(k + 1)})
	}
	if _, err := s.host.OpenReplica(trioGroup, s.q, raftstore.ReplicaOptions{
		Self: raftstore.ReplicaID(i + 1), Genesis: &raftstore.Genesis{Term: 1, Index: 1, Members: members},
	}); err != nil {
		tr.t.Fatal(err)
	}
	s.q.admit()
	s.node.queuesMu.Lock()
	s.node.queues["far"] = s.q
	s.node.queuesMu.Unlock()
}

func (tr *trio) close() {
	for i := range tr.seats {
		tr.lose(i)
	}
	tr.net.close()
	for _, s := range tr.seats {
		if err := errors.Join(s.host.Stop(), s.store.Close(), s.flush.Close()); err != nil && !s.spoilt {
			tr.t.Error(err)
		}
	}
}

// lose takes a node from the others and from its clients. It goes on by itself, as one behind a cut cable would.
func (tr *trio) lose(i int) {
	s := tr.seats[i]
	if s.gone {
		return
	}
	s.gone = true
	tr.net.cut(raftstore.NodeID(i + 1))
	for c := range s.node.openConns() {
		c.Close()
	}
	if err := s.node.Close(); err != nil {
		tr.t.Error(err)
	}
}

// leader waits for a node that is there to lead.
func (tr *trio) leader() int {
	tr.t.Helper()
	for tr.ctx.Err() == nil {
		best, term := -1, raftstore.Term(0)
		for i, s := range tr.seats {
			if l := s.q.leadership(); !s.gone && l.reign != nil && l.reign.term > term {
				best, term = i, l.reign.term
			}
		}
		if best >= 0 {
			return best
		}
		time.Sleep(time.Millisecond)
	}
	tr.t.Fatal("nobody leads")
	return 0
}

func (tr *trio) client(addrs ...string) *client.Client {
	tr.t.Helper()
	o := tr.dial
	if len(addrs) > 0 {
		o.Addrs = addrs
	}
	c, err := client.Dial(tr.ctx, o)
	for err != nil && tr.ctx.Err() == nil { // a handshake takes its time on a slow machine
		c, err = client.Dial(tr.ctx, o)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(c.Close)
	return c
}

// cables carry what hosts say to each other, in order for each pair, as long as neither end is cut off.
type cables struct {
	mu    sync.Mutex
	hosts map[raftstore.NodeID]*raftstore.Host // guarded by mu; that can be reached
	lines map[[2]raftstore.NodeID]chan func(*raftstore.Host)
	work  sync.WaitGroup
	end   chan struct{}
}

func newCables() *cables {
	c := &cables{
		hosts: make(map[raftstore.NodeID]*raftstore.Host), end: make(chan struct{}),
		lines: make(map[[2]raftstore.NodeID]chan func(*raftstore.Host)),
	}
	for from := raftstore.NodeID(1); from <= 3; from++ {
		for to := raftstore.NodeID(1); to <= 3; to++ {
			line := make(chan func(*raftstore.Host), 1024)
			c.lines[[2]raftstore.NodeID{from, to}] = line
			c.work.Go(func() {
				for {
					select {
					case f := <-line:
						if h := c.host(to); h != nil && c.host(from) != nil {
							f(h)
						}
					case <-c.end:
						return
					}
				}
			})
		}
	}
	return c
}

func (c *cables) host(n raftstore.NodeID) *raftstore.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[n]
}

// plug connects everybody.
func (c *cables) plug(seats []*seat) {
	c.mu.Lock()
	for i, s := range seats {
		c.hosts[raftstore.NodeID(i+1)] = s.host
	}
	c.mu.Unlock()
	for i, s := range seats {
		for k := range seats {
			if k != i {
				s.host.PeerUp(raftstore.NodeID(k+1), 1)
			}
		}
	}
}

// cut takes a node away from the others.
func (c *cables) cut(n raftstore.NodeID) {
	c.mu.Lock()
	gone := c.hosts[n]
	delete(c.hosts, n)
	left := make(map[raftstore.NodeID]*raftstore.Host)
	for id, h := range c.hosts {
		left[id] = h
	}
	c.mu.Unlock()
	if gone == nil {
		return // cut before
	}
	for id, h := range left {
		h.PeerDown(n)
		gone.PeerDown(id)
	}
}

func (c *cables) close() {
	close(c.end)
	c.work.Wait()
}

// cable is one host's end.
type cable struct {
	all *cables
	own raftstore.NodeID
}

func (c *cable) send(to raftstore.NodeID, f func(*raftstore.Host)) {
	select {
	case c.all.lines[[2]raftstore.NodeID{c.own, to}] <- f:
	default: // full: lost
	}
}

func copied(frames []raftstore.Frame) []raftstore.Frame {
	frames = slices.Clone(frames)
	for i := range frames {
		frames[i].Data = slices.Clone(frames[i].Data)
	}
	return frames
}

func (c *cable) Raft(to raftstore.NodeID, _ int, frames []raftstore.Frame) {
	frames = copied(frames)
	c.send(to, func(h *raftstore.Host) {
		if refused := h.ReceiveRaft(c.own, frames); len(refused) > 0 {
			(&cable{c.all, to}).send(c.own, func(h *raftstore.Host) { h.ReceiveRefusals(to, refused) })
		}
	})
}

func (c *cable) Beat(to raftstore.NodeID, data []byte) {
	data = slices.Clone(data)
	c.send(to, func(h *raftstore.Host) { h.ReceiveBeat(c.own, data) })
}

func (c *cable) Payload(to raftstore.NodeID, _ int, frames []raftstore.Frame) {
	frames = copied(frames)
	c.send(to, func(h *raftstore.Host) { h.ReceivePayload(c.own, frames) })
}

func (c *cable) Stream(_ context.Context, to raftstore.NodeID, head []byte) (raftstore.Stream, error) {
	h := c.all.host(to)
	if h == nil || c.all.host(c.own) == nil {
		return nil, errors.New("cut off")
	}
	head = slices.Clone(head)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := h.ReceiveStream(c.own, head, r)
		_ = r.CloseWithError(errors.New("the receiver is done"))
		done <- err
	}()
	return &pipeStream{w, done}, nil
}

type pipeStream struct {
	*io.PipeWriter
	done chan error
}

func (s *pipeStream) Close() error { return errors.Join(s.PipeWriter.Close(), <-s.done) }
func (s *pipeStream) Cancel()      { _ = s.CloseWithError(errors.New("cancelled")) }
