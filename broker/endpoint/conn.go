package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// ALPNMessaging is the protocol between clients and nodes. Peers have protocols of their own.
const ALPNMessaging = "weida/1"

// The limits of a connection (docs/reference/limits.md). Windows are bytes that may come before they
// are read; they grow from initial to max while the reader keeps up.
const (
	// StreamsMax and BodyStreamsMax bound the streams that a client may have open.
	StreamsMax     = 64
	BodyStreamsMax = 16
	// HandshakeIdle is how long a peer may be silent in its handshake.
	HandshakeIdle = 3 * time.Second
	// IdleMax is how long a peer may be silent; then it counts as gone. Both sides send something more often.
	IdleMax   = 10 * time.Second
	keepAlive = 3 * time.Second
	// ClientIdleMax is the same for who dials: another node may serve it meanwhile.
	ClientIdleMax   = 5 * time.Second
	clientKeepAlive = 1500 * time.Millisecond
	dialTimeout     = 5 * time.Second
)

func quicConfig() *quic.Config {
	return &quic.Config{
		Versions:                         []quic.Version{quic.Version1},
		HandshakeIdleTimeout:             HandshakeIdle,
		MaxIdleTimeout:                   IdleMax,
		KeepAlivePeriod:                  keepAlive,
		MaxIncomingStreams:               StreamsMax,
		MaxIncomingUniStreams:            BodyStreamsMax,
		Allow0RTT:                        false,
		EnableDatagrams:                  false,
		EnableStreamResetPartialDelivery: false,
		DisablePathMTUDiscovery:          false,
	}
}

// clientConfig trusts the node with more memory, and lets it open no stream but those of bodies.
func clientConfig() *quic.Config {
	c := quicConfig()
	c.MaxIdleTimeout, c.KeepAlivePeriod = ClientIdleMax, clientKeepAlive
	c.MaxIncomingStreams = -1
	c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = 1<<20, 6<<20
	c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = 2<<20, 12<<20
	return c
}

// clientWindow is what a client may send on a connection before it is read, in bytes, until its window grows.
const clientWindow = 512 << 10

// nodeConfig bounds what one client may cost. A stream's place is given back by who served it, so that
// opening and resetting streams gains nothing.
func nodeConfig(b *windows) *quic.Config {
	c := quicConfig()
	c.RequireStreamCreditRelease = true
	c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = 256<<10, 4<<20
	c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = clientWindow, 8<<20
	c.AllowConnectionWindowIncrease = b.allow
	return c
}

// Conn is a connection to a peer whose key was proved and trusted.
type Conn struct {
	*quic.Conn
	peer  Fingerprint
	role  Role
	share Share           // of a connection between nodes
	owned *quic.Transport // of a connection that Dial made
}

// Peer is the key that the other side proved.
func (c *Conn) Peer() Fingerprint { return c.peer }

// Role is what the trust set lets it do.
func (c *Conn) Role() Role { return c.role }

// Close ends the connection and all its streams.
func (c *Conn) Close() {
	// The peer may be gone already; there is nobody left to tell.
	_ = c.CloseWithError(0, "")
	if c.owned != nil {
		_ = c.owned.Close()
		_ = c.owned.Conn.Close()
	}
}

// Refuse ends a connection that was accepted, with a code and a reason that the peer is told.
func (c *Conn) Refuse(code uint64, reason string) {
	// The peer may be gone already; there is nobody left to tell.
	_ = c.CloseWithError(quic.ApplicationErrorCode(code), reason)
}

func newConn(q *quic.Conn, t *Trust) (*Conn, error) {
	certs := q.ConnectionState().TLS.PeerCertificates
	if len(certs) == 0 {
		return nil, errNoCertificate
	}
	peer := fingerprintOf(certs[0])
	role, ok := t.Role(peer)
	if !ok {
		return nil, &UntrustedError{Peer: peer}
	}
	return &Conn{Conn: q, peer: peer, role: role}, nil
}

// DialOptions say who dials and whom it trusts as a node. Both are required.
type DialOptions struct {
	Identity *Identity // required
	Trust    *Trust    // the nodes; required
}

// UnreachableError is a node that could not be reached, or that turned this key away.
type UnreachableError struct {
	Addr     string
	Protocol string // that was wanted
	Err      error
}

func (e *UnreachableError) Error() string {
	var t *quic.TransportError
	switch {
	case e.TurnedAway():
		return fmt.Sprintf("%s turned this key away; nothing was sent; "+
			"add this client's fingerprint to the node's trust list", e.Addr)
	case errors.As(e.Err, &t) && t.ErrorCode == alertNoProtocol:
		return fmt.Sprintf("%s does not speak %s; nothing was sent; use a client of the node's version",
			e.Addr, e.Protocol)
	case errors.As(e.Err, &t) && t.Remote && t.ErrorCode == quic.ConnectionRefused:
		return fmt.Sprintf("%s takes no more connections; nothing was sent; try again later, or close some", e.Addr)
	}
	return fmt.Sprintf("cannot reach a node at %s: %v; nothing was sent; is it running, and is the address right?",
		e.Addr, e.Err)
}

// TLS alerts, as QUIC carries them.
const (
	alertBadCertificate      = 0x100 + 42
	alertNoProtocol          = 0x100 + 120
	alertCertificateRequired = 0x100 + 116
)

// TurnedAway says that a node is there and does not trust this key.
func (e *UnreachableError) TurnedAway() bool {
	var t *quic.TransportError
	return errors.As(e.Err, &t) && t.Remote &&
		(t.ErrorCode == alertBadCertificate || t.ErrorCode == alertCertificateRequired)
}

// Unwrap returns the network's error.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Dial connects to a node. Errors: *UntrustedError, *UnreachableError.
func Dial(ctx context.Context, addr string, o DialOptions) (*Conn, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, &UnreachableError{addr, ALPNMessaging, err}
	}
	udp, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, &UnreachableError{addr, ALPNMessaging, err}
	}
	t := &quic.Transport{Conn: udp, ConnectionIDLength: connectionIDLength}
	check := verify(o.Trust, func(r Role) bool { return r == RoleNode }, "node")
	q, err := dial(ctx, t, to, dialing{o.Identity, ALPNMessaging, check, clientConfig()})
	var c *Conn
	if err == nil {
		c, err = newConn(q, o.Trust)
	}
	if err != nil {
		_ = errors.Join(t.Close(), udp.Close()) // the dial's own error says more
		var untrusted *UntrustedError
		if errors.As(err, &untrusted) {
			return nil, untrusted
		}
		return nil, &UnreachableError{addr, ALPNMessaging, err}
	}
	c.owned = t
	return c, nil
}

// dialing is who dials, for what, whom it takes for the right one, and within which limits.
type dialing struct {
	identity *Identity
	protocol string
	check    func(tls.ConnectionState) error
	limits   *quic.Config
}

func dial(ctx context.Context, t *quic.Transport, to net.Addr, d dialing) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var refused error
	conf := tlsConfig(d.identity, d.protocol)
	conf.ServerName = "weida"
	conf.VerifyConnection = func(s tls.ConnectionState) error { refused = d.check(s); return refused }
	q, err := t.Dial(ctx, to, conf, d.limits)
	if refused != nil {
		return nil, refused
	}
	return q, err
}
