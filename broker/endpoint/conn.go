package endpoint

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// ALPNMessaging is the protocol between clients and nodes. Peers have protocols of their own.
const ALPNMessaging = "weida/1"

// The limits of a connection (docs/reference/limits.md).
const (
	streamsMax          = 64
	bodyStreamsMax      = 16
	halfOpenMax         = 64
	handshakeIdle       = 3 * time.Second
	idleMax             = 30 * time.Second
	keepAlive           = 10 * time.Second
	dialTimeout         = 5 * time.Second
	initialStreamWindow = 512 << 10
	maxStreamWindow     = 4 << 20
	initialConnWindow   = 1 << 20
	maxConnWindow       = 8 << 20
)

func quicConfig() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeIdle,
		MaxIdleTimeout:                 idleMax,
		KeepAlivePeriod:                keepAlive,
		MaxIncomingStreams:             streamsMax,
		MaxIncomingUniStreams:          bodyStreamsMax,
		InitialStreamReceiveWindow:     initialStreamWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: initialConnWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		Allow0RTT:                      false,
		EnableDatagrams:                false,
	}
}

// Conn is a connection to a peer whose key was proved and trusted.
type Conn struct {
	*quic.Conn
	peer  Fingerprint
	role  Role
	owned *quic.Transport // of a dialled connection
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

// ListenOptions say where and for whom to listen. All but OnRefused are required.
type ListenOptions struct {
	Addr     string // UDP; port 0 takes a free one
	Identity *Identity
	Trust    *Trust // clients and admins connect
	// OnRefused is told of a peer that was turned away after its handshake; nil drops it.
	OnRefused func(error)
}

// Listener accepts connections from trusted clients.
type Listener struct {
	o         ListenOptions
	udp       *net.UDPConn
	transport *quic.Transport
	listener  *quic.Listener
}

// AddressError is a local address that could not be listened on.
type AddressError struct {
	Addr string
	Err  error
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("cannot listen on UDP %s: %v; nothing was started; choose another address or stop what uses it",
		e.Addr, e.Err)
}

// Unwrap returns the system's error.
func (e *AddressError) Unwrap() error { return e.Err }

// Listen opens the socket. Errors: *AddressError.
func Listen(o ListenOptions) (*Listener, error) {
	addr, err := net.ResolveUDPAddr("udp", o.Addr)
	if err != nil {
		return nil, &AddressError{o.Addr, err}
	}
	udp, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, &AddressError{o.Addr, err}
	}
	var reset quic.StatelessResetKey
	if _, err := rand.Read(reset[:]); err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	var limiter newcomers
	t := &quic.Transport{Conn: udp, ConnectionIDLength: 8, StatelessResetKey: &reset,
		MaxTokenAge: time.Hour, VerifySourceAddress: limiter.verify}
	clients := func(r Role) bool { return r == RoleClient || r == RoleAdmin }
	l, err := t.Listen(tlsConfig(o.Identity, verify(o.Trust, clients, "client")), quicConfig())
	if err != nil {
		return nil, errors.Join(err, t.Close(), udp.Close())
	}
	return &Listener{o: o, udp: udp, transport: t, listener: l}, nil
}

// newcomers asks for proof of address when more come within a second than an honest crowd would bring.
type newcomers struct {
	mu     sync.Mutex
	second int64
	count  int
}

func (n *newcomers) verify(net.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now().Unix(); now != n.second {
		n.second, n.count = now, 0
	}
	n.count++
	return n.count > halfOpenMax
}

// Accept returns the next connection; an error means that the listener is closed or ctx ended.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	for {
		q, err := l.listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		c, err := newConn(q, l.o.Trust)
		if err == nil {
			return c, nil
		}
		_ = q.CloseWithError(1, "untrusted") // it may be gone; nothing is owed to it
		if l.o.OnRefused != nil {
			l.o.OnRefused(err)
		}
	}
}

// Addr is the address in use.
func (l *Listener) Addr() net.Addr { return l.udp.LocalAddr() }

// Close stops listening and ends every connection that was accepted.
func (l *Listener) Close() error {
	return errors.Join(l.listener.Close(), l.transport.Close(), l.udp.Close())
}

// DialOptions say who dials and whom it trusts as a node. Both are required.
type DialOptions struct {
	Identity *Identity
	Trust    *Trust
}

// UnreachableError is a node that could not be reached, or that turned this key away.
type UnreachableError struct {
	Addr string
	Err  error
}

func (e *UnreachableError) Error() string {
	var turned *quic.TransportError
	if errors.As(e.Err, &turned) && turned.Remote && turned.ErrorCode.IsCryptoError() {
		return fmt.Sprintf("%s turned this key away; nothing was sent; "+
			"add this client's fingerprint to the node's trust list", e.Addr)
	}
	return fmt.Sprintf("cannot reach a node at %s: %v; nothing was sent; is it running, and is the address right?",
		e.Addr, e.Err)
}

// Unwrap returns the network's error.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Dial connects to a node. Errors: *UntrustedError, *UnreachableError.
func Dial(ctx context.Context, addr string, o DialOptions) (*Conn, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, &UnreachableError{addr, err}
	}
	udp, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, &UnreachableError{addr, err}
	}
	t := &quic.Transport{Conn: udp, ConnectionIDLength: 8}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var refused error
	check := verify(o.Trust, func(r Role) bool { return r == RoleNode }, "node")
	conf := tlsConfig(o.Identity, nil)
	conf.ServerName = "weida"
	conf.VerifyConnection = func(s tls.ConnectionState) error { refused = check(s); return refused }
	q, err := t.Dial(ctx, to, conf, quicConfig())
	if err != nil {
		_ = errors.Join(t.Close(), udp.Close()) // the dial's own error says more
		var untrusted *UntrustedError
		if errors.As(refused, &untrusted) {
			return nil, untrusted
		}
		return nil, &UnreachableError{addr, err}
	}
	c, err := newConn(q, o.Trust)
	if err != nil {
		return nil, err
	}
	c.owned = t
	return c, nil
}
