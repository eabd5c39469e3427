package broker

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/fsync"
	"weida/raftstore"
	"weida/segment"
)

// pair is a node with a queue "far", and one that knows where it is; both trust the client.
type pair struct {
	*rig                 // the one that does not have the queue
	far         *Node    // the one that has
	here, there signpost // of the one and the other
}

func newPair(t *testing.T, trusted bool) *pair {
	t.Helper()
	dir := t.TempDir()
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "far")
	if err != nil {
		t.Fatal(err)
	}
	p := new(pair)
	p.rig = newRig(t, func(c *Config) { c.router = &p.here })
	roles := map[endpoint.Fingerprint]endpoint.Role{p.node.Fingerprint(): endpoint.RoleNode}
	if trusted {
		roles[p.client.Fingerprint()] = endpoint.RoleClient
	}
	p.far, err = Open(Config{
		Dir: filepath.Join(dir, "n2"), Listen: "127.0.0.1:0", Identity: id, Trust: endpoint.NewTrust(roles),
		router: &p.there,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.far != nil {
			p.closeFar()
		}
	})
	if err := p.far.MakeQueue(p.ctx, "far", control.QueueSpec{}); err != nil {
		t.Fatal(err)
	}
	p.here.set(town{2: addressOf(p.far)})
	return p
}

func addressOf(n *Node) NodeAddress {
	at := n.listener.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort()
	return NodeAddress{Fingerprint: n.Fingerprint(), Host: at.Addr().String(), Port: at.Port()}
}

func (p *pair) closeFar() {
	p.t.Helper()
	for _, c := range p.conns {
		c.Close()
	}
	if err := p.far.Close(); err != nil {
		p.t.Error(err)
	}
	p.far = nil
}

// single opens a stream of a client that knows this node only.
func (p *pair) single(f wire.Frame) *line {
	p.t.Helper()
	return p.line(p.dial(), &wire.Single{}, f)
}

// W-42: a stream for a queue elsewhere is answered with a redirect, whatever it is for.
func TestRedirect(t *testing.T) {
	p := newPair(t, true)
	want := addressOf(p.far)
	for _, f := range []wire.Frame{
		&wire.OpenProducer{Queue: "far", Want: storedWritten}, &wire.OpenConsumer{Queue: "far"},
		&wire.OpenPeek{Queue: "far", Count: 1}, &wire.Purge{Queue: "far"},
		&wire.Unsubscribe{Queue: "far", Subscription: "s"}, &wire.Retire{Queue: "far", Producer: "p1"},
	} {
		to := frame[*wire.Redirect](p.line(p.dial(), f))
		if to.Queue != "far" || to.Node != [32]byte(want.Fingerprint) || to.Host != want.Host ||
			to.Port != uint64(want.Port) {
			t.Errorf("%v: %+v, want %+v", f.Type(), to, want)
		}
	}
	p.line(p.dial(), &wire.OpenPeek{Queue: "nowhere"}).end(wire.UnknownQueue)
}

// W-42, W-76: a client that knows one node publishes to, consumes from and manages a queue elsewhere, small bodies and
// large ones, and both nodes agree on who it is.
func TestForwarded(t *testing.T) {
	p := newPair(t, true)
	l := p.single(&wire.OpenProducer{Queue: "far", Producer: "p1", Want: storedFlushed})
	if o := frame[*wire.Opened](l); o.Offer != storedFlushed || o.Next != 1 {
		t.Errorf("%+v", o)
	}
	l.put(1, "small")
	big := pattern(300_000)
	p.filled(fill(l.large(2, uint64(len(big))), uint64(len(big)), big, segment.DigestOf(big)))
	if f := frame[*wire.EvidenceFrame](l); f.First != 2 || f.Offset != 1 {
		t.Errorf("%+v", f)
	}
	spoiled(fill(l.large(3, uint64(len(big))), uint64(len(big)), big, segment.DigestOf([]byte("other"))))
	l.refused(3, wire.BodyMismatch)
	cut := l.large(4, uint64(len(big)))
	cut.CancelWrite(7)
	l.refused(4, wire.BodyBroken)
	p.far.lookup("far").read(func(s *queue.State) {
		if n := s.Counts().In; n != 2 {
			t.Errorf("%d messages", n)
		}
	})
	// The id belongs to the client, not to the node that forwards.
	again := p.single(&wire.OpenProducer{Queue: "far", Producer: "p1", Want: storedFlushed})
	if frame[*wire.Opened](again).Next != 3 {
		t.Error("its id was not recognized")
	}
	p.single(&wire.Purge{Queue: "far"}).end(wire.NotAllowed)

	c := p.single(&wire.OpenConsumer{Queue: "far", Subscription: "s", Credit: 10})
	frame[*wire.Opened](c)
	small := c.get(0, 1, "small")
	d := frame[*wire.Deliver](c)
	if !d.Large || d.Length != uint64(len(big)) {
		t.Fatalf("%+v", d)
	}
	if got := p.body(c.conn, d.Stream); !bytes.Equal(got[:len(got)-16], big) {
		t.Error("the large body came changed")
	}
	c.settle(small, wire.Accept, wire.OK)
	c.settle(d, wire.Accept, wire.OK)
	peek := p.single(&wire.OpenPeek{Queue: "far", Count: 5})
	if end := frame[*wire.PeekEnd](peek); end.More {
		t.Errorf("%+v", end)
	}
	frame[*wire.Done](p.single(&wire.Unsubscribe{Queue: "far", Subscription: "s"}))
	c.end(wire.Unsubscribed)
	frame[*wire.Done](p.single(&wire.Retire{Queue: "far", Producer: "p1"}))
}

// body reads a large body's stream behind its head: bytes and digest.
func (p *pair) body(conn *endpoint.Conn, id uint64) []byte {
	p.t.Helper()
	var in *quic.ReceiveStream
	for in == nil || uint64(in.StreamID()) != id {
		var err error
		if in, err = conn.AcceptUniStream(p.ctx); err != nil {
			p.t.Fatal(err)
		}
	}
	r := wire.NewReader(in)
	if _, err := r.Next(); err != nil {
		p.t.Fatal(err)
	}
	b, err := io.ReadAll(r.Rest())
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// Ending a stream on one side ends it on the other: what is unsettled goes back, and what was said is answered.
func TestForwardedEnds(t *testing.T) {
	p := newPair(t, true)
	l := p.single(&wire.OpenProducer{Queue: "far", Want: storedWritten})
	frame[*wire.Opened](l)
	l.send(&wire.Publish{Seq: 1, Low: 1, Body: []byte("x")}, &wire.Publish{Seq: 2, Low: 1, Body: []byte("y")})
	if err := l.stream.Close(); err != nil {
		t.Fatal(err)
	}
	for n := uint64(0); n < 2; {
		n += frame[*wire.EvidenceFrame](l).Count
	}
	if f, err := l.in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v", f, err)
	}
	c := p.single(&wire.OpenConsumer{Queue: "far", Subscription: "s", Credit: 10})
	frame[*wire.Opened](c)
	c.get(0, 1, "x")
	c.stream.CancelRead(0)
	c.stream.CancelWrite(0)
	q := p.far.lookup("far")
	p.until("the deliveries go back", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.streams == 0
	})
	again := p.single(&wire.OpenConsumer{Queue: "far", Subscription: "s", Credit: 10})
	frame[*wire.Opened](again)
	again.get(0, 2, "x")
}

// A client without a redirect learns that it is to open the stream again: the leader moved, the leader died, the node
// that forwards stops.
func TestForwardedStreamIsLost(t *testing.T) {
	p := newPair(t, true)
	open := func() *line {
		l := p.single(&wire.OpenProducer{Queue: "far", Want: storedWritten})
		frame[*wire.Opened](l)
		l.put(1, "x")
		return l
	}
	l := open()
	q := p.far.lookup("far")
	r := q.leadership().reign
	q.turn(func() { q.reign, q.leader = nil, raftstore.Leader{Node: 3} })
	p.there.set(town{3: second})
	close(r.over)
	l.end(wire.LedElsewhere) // and not REDIRECT: it asked for none
	again := &reign{term: 9, over: make(chan struct{})}
	q.turn(func() { q.reign = again })
	l = open()
	for c := range p.far.openConns() {
		c.Close()
	}
	l.end(wire.ForwardBroken)
	l = open()
	closed := make(chan error)
	go func() { closed <- p.node.Close() }()
	l.end(wire.Stopping)
	for _, c := range p.conns {
		c.Close()
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	p.node = nil
}

// openConns are a node's connections.
func (n *Node) openConns() map[*endpoint.Conn]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.conns)
}

// Who forwards is a node, and whom for is known to the node that leads (T-7).
func TestForwardedIdentity(t *testing.T) {
	p := newPair(t, false)
	p.single(&wire.OpenPeek{Queue: "far"}).end(wire.NotAllowed) // this node trusts the client, the other does not
	open := &wire.OpenPeek{Queue: "demo"}
	client := [32]byte(p.client.Fingerprint())
	p.line(p.dial(), &wire.Forwarded{Client: client}, open).end(wire.NotAllowed) // not a node
	at := addressOf(p.far)
	asNode, err := endpoint.Dial(p.ctx, p.far.Addr().String(), endpoint.DialOptions{
		Identity: p.config.Identity,
		Trust:    endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{at.Fingerprint: endpoint.RoleNode}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer asNode.Close()
	p.line(asNode, &wire.OpenPeek{Queue: "far"}).end(wire.NotAllowed) // a node for itself
	node := [32]byte(p.node.Fingerprint())
	p.line(asNode, &wire.Forwarded{Client: node}, &wire.OpenPeek{Queue: "far"}).end(wire.NotAllowed) // a node for a node
}

// A redirect to a key that is no member's is not followed, and after two there is an end (W-43, W-44).
func TestForwardedRedirects(t *testing.T) {
	p := newPair(t, true)
	q := p.far.lookup("far")
	q.turn(func() { q.reign, q.leader, q.term = nil, raftstore.Leader{Node: 3}, 9 })
	p.there.set(town{3: second}) // whom this node does not know
	why := frame[*wire.ErrorFrame](p.single(&wire.OpenPeek{Queue: "far"}))
	if why.Code != wire.ForwardBroken || !strings.Contains(why.Detail, "not in the trust list") {
		t.Errorf("%+v", why)
	}
	p.redirects(1)
	p.there.set(town{3: addressOf(p.far)}) // itself, for ever
	p.single(&wire.OpenPeek{Queue: "far"}).end(wire.LedElsewhere)
	p.redirects(1 + hopsMax)
}

// redirects expects the node that has the queue to have told so often who leads it.
func (p *pair) redirects(want int) {
	p.t.Helper()
	p.there.mu.Lock()
	defer p.there.mu.Unlock()
	if p.there.asked != want {
		p.t.Errorf("it told %d times who leads, want %d", p.there.asked, want)
	}
}
