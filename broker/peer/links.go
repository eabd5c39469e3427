package peer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// Links are a node's links to all others. It is a raftstore.Transport.
type Links struct {
	o        Options
	listener *endpoint.Listener // from Start on
	receiver raftstore.Receiver // from Start on

	ctx    context.Context // ends with the links
	cancel context.CancelFunc
	work   sync.WaitGroup

	near     atomic.Pointer[map[netip.AddrPort]bool]
	attempts atomic.Uint64 // that were begun, to whomever

	changing sync.Mutex // held by Set and Close, before mu
	mu       sync.RWMutex
	started  bool                           // guarded by mu
	closed   bool                           // guarded by mu
	byID     map[raftstore.NodeID]*link     // guarded by mu
	byKey    map[endpoint.Fingerprint]*link // guarded by mu
}

var _ raftstore.Transport = (*Links)(nil)

// hellosMax bounds the handshakes that one node began here and that have not ended.
const hellosMax = 4

// New returns links to nobody. Close ends it.
func New(o Options) *Links {
	l := &Links{
		o:     o.withDefaults(),
		byID:  make(map[raftstore.NodeID]*link),
		byKey: make(map[endpoint.Fingerprint]*link),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.near.Store(&map[netip.AddrPort]bool{})
	return l
}

// Peers is what the endpoint has to know to let the other nodes in.
func (l *Links) Peers() *endpoint.Peers {
	return &endpoint.Peers{Known: l.known, Near: l.isNear, RaftStreams: l.o.RaftStreams}
}

func (l *Links) known(f endpoint.Fingerprint) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.byKey[f] != nil
}

// isNear says whether an address is one of those that the nodes are known by.
func (l *Links) isNear(a net.Addr) bool {
	u, ok := a.(*net.UDPAddr)
	return ok && (*l.near.Load())[plainAddr(u.AddrPort())]
}

// Start begins to dial, from the listener's address, and hands what comes to the receiver. Once.
func (l *Links) Start(listener *endpoint.Listener, receiver raftstore.Receiver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		panic("bug: peer: Links started twice")
	}
	l.started, l.listener, l.receiver = true, listener, receiver
	if l.closed {
		return
	}
	for _, k := range l.byID {
		l.work.Go(k.run)
	}
}

// Set says who the other nodes are, now; this node itself is passed over. Links to nodes that are no longer among them
// end before it returns. An error means that nothing was changed.
func (l *Links) Set(nodes []Node) error {
	others, err := l.others(nodes)
	if err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	l.mu.Lock()
	var gone, stay []*link
	for id, k := range l.byID {
		if n, ok := others[id]; !ok || n.Fingerprint != k.key {
			gone = append(gone, k)
			delete(l.byID, id)
			delete(l.byKey, k.key)
		}
	}
	for id, n := range others {
		k := l.byID[id]
		if k != nil {
			k.update(n)
			stay = append(stay, k)
			continue
		}
		k = newLink(l, n)
		l.byID[id], l.byKey[n.Fingerprint] = k, k
		if l.started && !l.closed {
			l.work.Go(k.run)
		}
	}
	l.lookAround()
	l.mu.Unlock()
	for _, k := range gone {
		k.end(NotMember)
	}
	for _, k := range stay {
		k.tell()
	}
	return nil
}

// others is the table of nodes without this one.
func (l *Links) others(nodes []Node) (map[raftstore.NodeID]Node, error) {
	others := make(map[raftstore.NodeID]Node, len(nodes))
	keys := make(map[endpoint.Fingerprint]bool, len(nodes))
	for _, n := range nodes {
		_, twice := others[n.ID]
		if n.ID == 0 || twice || keys[n.Fingerprint] {
			return nil, fmt.Errorf("peer: node %d (%v) is twice in the table of nodes, or has no number; "+
				"the table in use was not changed", n.ID, n.Fingerprint)
		}
		if (n.ID == l.o.Node) != (n.Fingerprint == l.o.Fingerprint) {
			return nil, fmt.Errorf("peer: the table of nodes has this node, %d (%v), as %d (%v); "+
				"the table in use was not changed", l.o.Node, l.o.Fingerprint, n.ID, n.Fingerprint)
		}
		keys[n.Fingerprint] = true
		if n.ID != l.o.Node {
			n.Addresses = slices.Clone(n.Addresses)
			others[n.ID] = n
		}
	}
	return others, nil
}

// lookAround makes the set of addresses that nodes are known by. The caller holds mu.
func (l *Links) lookAround() {
	near := make(map[netip.AddrPort]bool)
	for _, k := range l.byID {
		for _, a := range k.found() {
			near[a] = true
		}
	}
	l.near.Store(&near)
}

// Accept takes a connection that speaks a protocol between nodes over from the endpoint. It does not wait.
func (l *Links) Accept(c *endpoint.Conn) {
	l.mu.RLock()
	k := l.byKey[c.Peer()]
	taken := l.started && !l.closed && k != nil
	if taken {
		select {
		case k.hellos <- struct{}{}:
			l.work.Go(func() { l.greet(c, k); <-k.hellos })
		default:
			taken = false
		}
	}
	stops := !l.started || l.closed
	l.mu.RUnlock()
	switch {
	case taken:
	case stops:
		refuse(c, Stopping)
	case k == nil:
		refuse(c, NotMember)
	default:
		refuse(c, Busy)
	}
}

// greet is the accepting side of a handshake.
func (l *Links) greet(c *endpoint.Conn, k *link) {
	h, err := l.answerHello(c, k)
	if err == nil {
		err = k.join(c, &h)
	}
	if err == nil {
		return
	}
	var refused *RefusedError
	if err = k.turnAway(c, err); errors.As(err, &refused) && k.ctx.Err() == nil {
		k.tellRefused(refused)
	}
}

// dialsFirst says which of two nodes dials: the one with the smaller fingerprint.
func dialsFirst(a, b endpoint.Fingerprint) bool { return bytes.Compare(a[:], b[:]) < 0 }

// link is the link to a node, nil if there is no such node.
func (l *Links) link(id raftstore.NodeID) *link {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.byID[id]
}

// all are the links, in the order of the nodes' numbers.
func (l *Links) all() []*link {
	l.mu.RLock()
	list := slices.Collect(maps.Values(l.byID))
	l.mu.RUnlock()
	slices.SortFunc(list, func(a, b *link) int { return cmp.Compare(a.id, b.id) })
	return list
}

// Raft is raftstore.Transport's.
func (l *Links) Raft(to raftstore.NodeID, _ int, frames []raftstore.Frame) {
	k := l.link(to)
	if k == nil {
		return
	}
	if p := k.pair.Load(); p != nil {
		p.exchanges.send(frames)
		return
	}
	k.count.down.Add(uint64(len(frames)))
}

// Beat is raftstore.Transport's.
func (l *Links) Beat(to raftstore.NodeID, data []byte) {
	k := l.link(to)
	if k == nil {
		return
	}
	if p := k.pair.Load(); p != nil {
		p.beats.send(data)
		return
	}
	k.count.down.Add(1)
}

// Payload is raftstore.Transport's.
func (l *Links) Payload(to raftstore.NodeID, shard int, frames []raftstore.Frame) {
	k := l.link(to)
	if k == nil {
		return
	}
	if p := k.pair.Load(); p != nil {
		p.shard(shard).send(frames)
		return
	}
	k.count.down.Add(uint64(len(frames)))
}

// Stream is raftstore.Transport's. ctx bounds the wait for a place and for the stream, not the transfer. Errors:
// *DownError, ctx's, the connection's.
func (l *Links) Stream(ctx context.Context, to raftstore.NodeID, head []byte) (raftstore.Stream, error) {
	k := l.link(to)
	if k == nil {
		return nil, &DownError{to}
	}
	p := k.pair.Load()
	if p == nil {
		return nil, &DownError{to}
	}
	return p.openStream(ctx, head)
}

// Close ends all links and returns when nothing of them runs and the receiver is not called any more.
func (l *Links) Close() {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	for _, k := range l.all() {
		k.end(Stopping)
	}
	l.work.Wait()
}
