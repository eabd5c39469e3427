package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// The protocols between nodes: consensus and bodies never share a connection (T-44, W-52).
const (
	ALPNRaft    = "weida-raft/1"
	ALPNPayload = "weida-payload/1"
)

// The limits between nodes (docs/reference/limits.md).
const (
	// RaftStreamsDefault bounds the bidirectional streams that a node may have open at another.
	RaftStreamsDefault = 1024
	// PeerUniStreamsMax bounds the unidirectional ones: heartbeats, and bodies per shard.
	PeerUniStreamsMax = 256
	// PeerIdleMax is how long a node may be silent; then it counts as gone. It is the longest election timeout, so that
	// a group that sleeps learns of its leader's end no later than one that is awake. Three lost packets are no end.
	PeerIdleMax   = 3 * time.Second
	peerKeepAlive = time.Second
	// PeerStreamWindow bounds what comes on one stream before it is read, in bytes; PeerWindow what comes on a connection.
	// They do not grow, so that both sides know them: streams that nobody reads cannot take all of the connection.
	PeerStreamWindow = 1 << 20
	PeerWindow       = 40 << 20
	// peerConnections is how many connections from addresses of nodes are let in when clients have taken all places.
	peerConnections = 64
)

// Peers says who the other nodes are. It is asked at every handshake, since members come and go.
type Peers struct {
	// Known says whether a key is that of another node; required.
	Known func(Fingerprint) bool
	// Near says whether a packet from there may come from another node, whose first packet has a node's limits and does
	// not wait behind a crowd of clients. It proves nothing, and a node from elsewhere is served within a client's
	// limits. Required.
	Near func(net.Addr) bool
	// RaftStreams bounds the bidirectional streams of a connection; 1024 if zero.
	RaftStreams int
}

func (p *Peers) raftStreams() int {
	if p.RaftStreams <= 0 {
		return RaftStreamsDefault
	}
	return p.RaftStreams
}

// near is Near of what may be no Peers at all.
func (p *Peers) near(a net.Addr) bool { return p != nil && p.Near(a) }

// peerConfig is for both sides of a connection between nodes.
func (p *Peers) peerConfig() *quic.Config {
	c := quicConfig()
	c.MaxIdleTimeout, c.KeepAlivePeriod = PeerIdleMax, peerKeepAlive
	c.MaxIncomingStreams, c.MaxIncomingUniStreams = int64(p.raftStreams()), PeerUniStreamsMax
	c.RequireStreamCreditRelease = true
	c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = PeerStreamWindow, PeerStreamWindow
	c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = PeerWindow, PeerWindow
	return c
}

// protocols are those that the listener speaks.
func (p *Peers) protocols() []string {
	if p == nil {
		return []string{ALPNMessaging}
	}
	return []string{ALPNMessaging, ALPNRaft, ALPNPayload}
}

func betweenNodes(protocol string) bool { return protocol == ALPNRaft || protocol == ALPNPayload }

// verify authorizes a node.
func (p *Peers) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errNoCertificate
	}
	if peer := fingerprintOf(s.PeerCertificates[0]); !p.Known(peer) {
		return &UntrustedError{Peer: peer, Wanted: "node"}
	}
	return nil
}

// nearby carries one answer of Peers.Near through the two calls that quic-go makes for a newcomer, so that what the
// connection may do is what is said of it.
type nearby struct {
	peers *Peers

	mu   sync.Mutex
	info *quic.ClientInfo // guarded by mu; whom the answer is about
	near bool             // guarded by mu
}

// config is quic-go's GetConfigForClient, which comes first.
func (n *nearby) config(client *quic.Config) func(*quic.ClientInfo) (*quic.Config, error) {
	return func(info *quic.ClientInfo) (*quic.Config, error) {
		near := n.peers.near(info.RemoteAddr)
		n.mu.Lock()
		n.info, n.near = info, near
		n.mu.Unlock()
		if near {
			return n.peers.peerConfig(), nil
		}
		return client, nil
	}
}

func (n *nearby) of(info *quic.ClientInfo) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.info == info && n.near
}

// nearKey marks the context of a connection that has a node's limits.
type nearKey struct{}

// enter is quic-go's ConnContext.
func (n *nearby) enter(d *door) func(context.Context, *quic.ClientInfo) (context.Context, error) {
	return func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
		near := n.of(info)
		ctx, err := d.enter(ctx, info, near)
		if err == nil && near {
			ctx = context.WithValue(ctx, nearKey{}, true)
		}
		return ctx, err
	}
}

// Share is what one side of a connection lets the other have.
type Share struct {
	Streams int // bidirectional streams open at a time
	Window  int // bytes that may come before they are read
}

// Share is what this side lets the peer have.
func (c *Conn) Share() Share { return c.share }

// Protocol is what the connection speaks: one of the ALPN constants.
func (c *Conn) Protocol() string { return c.ConnectionState().TLS.NegotiatedProtocol }

// DialPeer connects to another node from the listener's own address, for one of the protocols between nodes; its
// key has to be want. Errors: *UntrustedError, *UnreachableError. The listener has Peers.
func (l *Listener) DialPeer(ctx context.Context, addr, protocol string, want Fingerprint) (*Conn, error) {
	if l.o.Peers == nil || !betweenNodes(protocol) {
		panic("bug: endpoint: DialPeer without Peers or with " + protocol)
	}
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, &UnreachableError{addr, protocol, err}
	}
	check := func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errNoCertificate
		}
		peer := fingerprintOf(s.PeerCertificates[0])
		if peer == want {
			return nil
		}
		e := &UntrustedError{Peer: peer, Wanted: "the node at " + addr}
		if l.o.Peers.Known(peer) {
			e.Role = RoleNode
		}
		return e
	}
	q, err := dial(ctx, l.transport, to, dialing{l.o.Identity, protocol, check, l.o.Peers.peerConfig()})
	if err != nil {
		var untrusted *UntrustedError
		if errors.As(err, &untrusted) {
			return nil, untrusted
		}
		return nil, &UnreachableError{addr, protocol, err}
	}
	return &Conn{Conn: q, peer: want, role: RoleNode, share: l.peerShare()}, nil
}

func (l *Listener) peerShare() Share { return Share{l.o.Peers.raftStreams(), PeerWindow} }

// newPeer is a connection that was accepted for a protocol between nodes.
func (l *Listener) newPeer(q *quic.Conn) (*Conn, error) {
	s := q.ConnectionState().TLS
	if err := l.o.Peers.verify(s); err != nil {
		return nil, err
	}
	c := &Conn{Conn: q, peer: fingerprintOf(s.PeerCertificates[0]), role: RoleNode}
	c.share = Share{StreamsMax, clientWindow}
	if q.Context().Value(nearKey{}) != nil {
		c.share = l.peerShare()
	}
	return c, nil
}
