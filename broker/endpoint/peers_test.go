package endpoint_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
)

func anywhere(net.Addr) bool { return true }

func nowhere(net.Addr) bool { return false }

// newCluster is a world whose node has another one as its peer, and that other one.
func newCluster(
	t *testing.T, near func(net.Addr) bool, change func(*endpoint.ListenOptions),
) (*world, *endpoint.Listener) {
	t.Helper()
	w := newWorld(t, nil)
	w.node = w.listen("127.0.0.1:0", func(o *endpoint.ListenOptions) {
		o.Peers = &endpoint.Peers{
			Known: func(f endpoint.Fingerprint) bool { return f == w.print("othernode") }, Near: near,
		}
		if change != nil {
			change(o)
		}
	})
	other := w.listen("127.0.0.1:0", func(o *endpoint.ListenOptions) {
		o.Identity = w.ids["othernode"]
		o.Peers = &endpoint.Peers{
			Known: func(f endpoint.Fingerprint) bool { return f == w.print("node") }, Near: anywhere, RaftStreams: 3,
		}
	})
	return w, other
}

// Nodes meet on the port that clients use, from port to port, with their own limits on both sides.
func TestNodesMeet(t *testing.T) {
	w, other := newCluster(t, anywhere, nil)
	for _, protocol := range []string{endpoint.ALPNRaft, endpoint.ALPNPayload} {
		here, err := other.DialPeer(w.ctx, w.node.Addr().String(), protocol, w.print("node"))
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		there, err := w.node.Accept(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if there.Peer() != w.print("othernode") || there.Role() != endpoint.RoleNode || there.Protocol() != protocol ||
			here.Peer() != w.print("node") || here.Role() != endpoint.RoleNode || here.Protocol() != protocol {
			t.Errorf("%s: %v as %s, %v as %s", protocol, there.Peer(), there.Role(), here.Peer(), here.Role())
		}
		if got := there.RemoteAddr().String(); got != other.Addr().String() {
			t.Errorf("%s: it came from %s, not from %s", protocol, got, other.Addr())
		}
		if got, want := there.Share(), (endpoint.Share{Streams: 1024, Window: endpoint.PeerWindow}); got != want {
			t.Errorf("%s: the side that accepted lets it have %+v", protocol, got)
		}
		for _, c := range []*endpoint.Conn{here, there} {
			if s := c.ConnectionState(); s.Used0RTT || s.TLS.DidResume || !s.RequireStreamCreditRelease {
				t.Errorf("%s: the connection is %+v", protocol, s)
			}
		}
		if n := openable(t, there); n != 3 {
			t.Errorf("%s: the side that dialled lets %d streams be open", protocol, n)
		}
		if n := openable(t, here); n != 1024 {
			t.Errorf("%s: the side that accepted lets %d streams be open", protocol, n)
		}
	}
}

// openable is how many streams the other side lets be open.
func openable(t *testing.T, c *endpoint.Conn) (n int) {
	t.Helper()
	for {
		_, err := c.OpenStream()
		var full *quic.StreamLimitReachedError
		if errors.As(err, &full) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// A node from an unknown address has a client's limits.
func TestNodeFromElsewhere(t *testing.T) {
	w, other := newCluster(t, nowhere, nil)
	here, err := other.DialPeer(w.ctx, w.node.Addr().String(), endpoint.ALPNRaft, w.print("node"))
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := w.node.Accept(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s := there.Share(); s.Streams != endpoint.StreamsMax || s.Window != 512<<10 || openable(t, here) != s.Streams {
		t.Errorf("it may have %+v", s)
	}
}

// Clients that took every place do not keep nodes out.
func TestNodesHaveAPlace(t *testing.T) {
	var node atomic.Pointer[string]
	near := func(a net.Addr) bool { n := node.Load(); return n != nil && *n == a.String() }
	w, other := newCluster(t, near, func(o *endpoint.ListenOptions) { o.Connections = 2 })
	addr := other.Addr().String()
	node.Store(&addr)
	w.pair()
	w.pair()
	if _, err := w.dial("client", w.theNode()); err == nil {
		t.Fatal("a third client is let in")
	}
	c, err := other.DialPeer(w.ctx, w.node.Addr().String(), endpoint.ALPNRaft, w.print("node"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Matrix 44: no key but that of a node speaks to nodes, and a node is who it was dialled for.
func TestOnlyNodesMeet(t *testing.T) {
	w, other := newCluster(t, anywhere, nil)
	go w.accept(nil)
	refused := func(name string) {
		t.Helper()
		l := w.listen("127.0.0.1:0", func(o *endpoint.ListenOptions) {
			o.Identity = w.ids[name]
			o.Peers = &endpoint.Peers{Known: func(endpoint.Fingerprint) bool { return true }, Near: nowhere}
		})
		c, err := l.DialPeer(w.ctx, w.node.Addr().String(), endpoint.ALPNRaft, w.print("node"))
		if err == nil { // TLS 1.3 lets the dialling side finish first
			<-c.Context().Done()
			err = &endpoint.UnreachableError{Err: context.Cause(c.Context())}
		}
		var u *endpoint.UnreachableError
		if !errors.As(err, &u) || !u.TurnedAway() {
			t.Errorf("%s: %v", name, err)
		}
		var untrusted *endpoint.UntrustedError
		if err := w.told(); !errors.As(err, &untrusted) || untrusted.Peer != w.print(name) || untrusted.Wanted != "node" {
			t.Errorf("%s: the node was told %v", name, err)
		}
	}
	for _, name := range []string{"client", "admin", "stranger"} {
		refused(name)
	}
	var untrusted *endpoint.UntrustedError
	_, err := other.DialPeer(w.ctx, w.node.Addr().String(), endpoint.ALPNRaft, w.print("stranger"))
	if !errors.As(err, &untrusted) || untrusted.Peer != w.print("node") || untrusted.Role != endpoint.RoleNode {
		t.Errorf("another node than was wanted: %v", err)
	}
	// A node without peers does not know their protocols.
	alone := w.listen("127.0.0.1:0", nil)
	var u *endpoint.UnreachableError
	_, err = other.DialPeer(w.ctx, alone.Addr().String(), endpoint.ALPNPayload, w.print("node"))
	if !errors.As(err, &u) || u.Protocol != endpoint.ALPNPayload {
		t.Errorf("a node without peers: %v", err)
	}
	if _, err = other.DialPeer(w.ctx, "nonsense", endpoint.ALPNRaft, w.print("node")); !errors.As(err, &u) {
		t.Errorf("no address: %v", err)
	}
}
