package peer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// The two connections of a pair.
const (
	kindRaft = iota
	kindPayload
	kinds
)

var protocols = [kinds]string{kindRaft: endpoint.ALPNRaft, kindPayload: endpoint.ALPNPayload}

func kindOf(c *endpoint.Conn) int {
	if c.Protocol() == endpoint.ALPNPayload {
		return kindPayload
	}
	return kindRaft
}

// link is what this node knows of another, and the pair of connections between them.
type link struct {
	links *Links
	id    raftstore.NodeID
	key   endpoint.Fingerprint
	dials bool // this side dials
	count counters

	ctx    context.Context // ends when the node is no member any more
	cancel context.CancelFunc
	wake   chan struct{} // has room for one: something changed that is worth a new attempt
	hellos chan struct{} // places for handshakes that the other side began

	pair atomic.Pointer[pair] // while both connections stand; written under mu

	mu       sync.Mutex
	node     Node                  // guarded by mu
	resolved []netip.AddrPort      // guarded by mu
	seenAt   string                // guarded by mu; where the other side knocked from, until it is dialled there
	seen     life                  // guarded by mu; the last that showed itself
	attempt  uint64                // guarded by mu; the last that was begun
	half     [kinds]*endpoint.Conn // guarded by mu; the connections of that attempt
	hello    [kinds]hello          // guarded by mu; what was said on them
	gone     bool                  // guarded by mu
	news     []func()              // guarded by mu; what is to be told, in order

	telling sync.Mutex // held while news are told, before mu
}

func newLink(l *Links, n Node) *link {
	k := &link{
		links: l, id: n.ID, key: n.Fingerprint, dials: dialsFirst(l.o.Fingerprint, n.Fingerprint),
		wake: make(chan struct{}, 1), hellos: make(chan struct{}, hellosMax), node: n,
	}
	k.ctx, k.cancel = context.WithCancel(l.ctx)
	k.resolved = literal(n.Addresses)
	return k
}

// update takes over what changed about a node that stays. The caller calls tell when it no longer holds Links.mu.
func (k *link) update(n Node) {
	k.mu.Lock()
	moved := !slices.Equal(k.node.Addresses, n.Addresses)
	k.node = n
	k.resolved = literal(n.Addresses)
	if n.Disk != [16]byte{} && k.seen.incarnation > 0 && n.Disk != k.seen.disk {
		k.seen = life{} // the member has another disk now: its count of incarnations is another
		k.drop(OtherDisk)
	}
	if k.seen.incarnation > 0 {
		switch {
		case k.seen.incarnation < n.Incarnation:
			k.drop(OldIncarnation)
		case k.seen.incarnation == n.Incarnation && n.Nonce != [16]byte{} && k.seen.nonce != n.Nonce:
			k.drop(TwinIncarnation)
			k.seen = life{k.seen.disk, n.Incarnation, n.Nonce} // it was not the registered one
		}
	}
	k.mu.Unlock()
	if moved {
		k.knocked()
	}
}

// knocked begins an attempt at once: the other side was just seen, or its address changed.
func (k *link) knocked() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// found are the addresses that the node is known by.
func (k *link) found() []netip.AddrPort {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resolved
}

func (k *link) examine(h *hello) (Why, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return examine(h, &k.links.o, &k.node, k.seen)
}

// saw takes note of a life that showed itself by a knock: it is dialled there at once, and what an earlier one had is
// void. It counts as seen when it has answered a hello, and so looked whether it is the one that is known here.
func (k *link) saw(h *hello, from string) {
	k.mu.Lock()
	k.seenAt = from
	if h.life != k.seen {
		k.drop(OldIncarnation)
	}
	k.mu.Unlock()
	k.tell()
	k.knocked()
}

func (k *link) refusal(c *endpoint.Conn, why Why) error {
	return &RefusedError{Peer: k.key, Node: k.id, Addr: c.RemoteAddr().String(), Why: why}
}

// join takes a connection in whose other end has proved who it is. With the second one of an attempt the pair is there.
func (k *link) join(c *endpoint.Conn, h *hello) error {
	kind := kindOf(c)
	k.mu.Lock()
	why, bad := examine(h, &k.links.o, &k.node, k.seen)
	switch {
	case k.gone:
		why, bad = NotMember, true
		if k.links.ctx.Err() != nil {
			why = Stopping
		}
	case bad:
	case h.life != k.seen: // a later one: whatever the earlier had is void
		k.drop(OldIncarnation)
		k.seen, k.attempt = h.life, h.attempt
	case h.attempt < k.attempt, h.attempt == k.attempt && k.half[kind] != nil:
		why, bad = Replaced, true
	case h.attempt > k.attempt:
		k.drop(Replaced)
		k.attempt = h.attempt
	}
	if bad {
		k.mu.Unlock()
		return k.refusal(c, why)
	}
	k.half[kind], k.hello[kind] = c, *h
	k.links.work.Go(func() { k.watch(c) })
	if k.half[kindRaft] != nil && k.half[kindPayload] != nil {
		k.up()
	}
	k.mu.Unlock()
	k.tell()
	return nil
}

// watch waits for the end of a connection.
func (k *link) watch(c *endpoint.Conn) {
	<-c.Context().Done()
	k.mu.Lock()
	if k.half[kindRaft] == c || k.half[kindPayload] == c {
		k.drop(Stopping)
	}
	k.mu.Unlock()
	k.tell()
}

// up makes the pair of both connections. The caller holds mu.
func (k *link) up() {
	p := newPair(k, k.half, k.hello)
	k.pair.Store(p)
	k.news = append(k.news, func() {
		k.links.o.Event(Event{Kind: Up, Node: k.id})
		k.links.receiver.PeerUp(k.id, p.life.incarnation)
		p.start()
	})
}

// drop ends the connections of the last attempt, and the pair if they were one. The caller holds mu, and calls tell
// when it no longer does.
func (k *link) drop(why Why) {
	var ended []*endpoint.Conn
	closeAll := func() {
		for _, c := range ended {
			refuse(c, why)
		}
	}
	for kind, c := range k.half {
		if c != nil {
			k.half[kind] = nil
			ended = append(ended, c)
		}
	}
	p := k.pair.Swap(nil)
	if p == nil {
		k.news = append(k.news, closeAll)
		return
	}
	k.news = append(k.news, func() {
		p.end()
		closeAll()
		k.links.receiver.PeerDown(k.id)
		k.links.o.Event(Event{Kind: Down, Node: k.id, Err: p.ended()})
		close(p.over)
	})
}

// tell hands on what happened, in the order in which it did.
func (k *link) tell() {
	k.telling.Lock()
	defer k.telling.Unlock()
	for {
		k.mu.Lock()
		if len(k.news) == 0 {
			k.mu.Unlock()
			return
		}
		next := k.news[0]
		k.news[0] = nil
		k.news = k.news[1:]
		k.mu.Unlock()
		next()
	}
}

// end is the end of the link.
func (k *link) end(why Why) {
	k.mu.Lock()
	k.gone = true
	k.drop(why)
	k.mu.Unlock()
	k.cancel()
	k.tell()
}

// turnAway ends a connection whose handshake did not succeed, and returns why.
func (k *link) turnAway(c *endpoint.Conn, err error) *RefusedError {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		refused = &RefusedError{Peer: k.key, Node: k.id, Addr: c.RemoteAddr().String(), Why: Silent, Err: err}
		var format *formatError
		if why, remote := remoteReason(err); remote {
			refused.Why, refused.Remote = why, true
		} else if (&endpoint.UnreachableError{Err: err}).TurnedAway() { // by its handshake, before any of ours
			refused.Why, refused.Remote = NotMember, true
		} else if errors.As(err, &format) {
			refused.Why = Malformed
		}
	}
	refuse(c, refused.Why)
	return refused
}

// tellRefused reports a reason that does not pass by itself.
func (k *link) tellRefused(e *RefusedError) {
	switch e.Why {
	case DialBack, Replaced, Stopping, Renewed, Busy: // they are how links come about
	default:
		k.count.refused.Add(1)
		k.links.o.Event(Event{Kind: Refused, Node: k.id, Err: e})
		if e.displaces() {
			k.tellDisplaced(&DisplacedError{
				By: k.id, Incarnation: k.links.o.Incarnation, Twin: e.Why == TwinIncarnation,
			})
		}
	}
}

// refuse ends a connection with the reason as its code. Its text tells nothing that the code does not.
func refuse(c *endpoint.Conn, why Why) { c.Refuse(uint64(why), "") }
