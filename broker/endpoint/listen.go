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

const (
	connectionIDLength = 8
	tokenAgeMax        = time.Hour
)

// The defaults of ListenOptions.
const (
	ConnectionsDefault  = 1024
	OneAddressDefault   = 256
	WindowBudgetDefault = 64 << 20 // bytes
)

// ListenOptions say where and for whom to listen. Addr, Identity and Trust are required.
type ListenOptions struct {
	Addr     string    // UDP; port 0 takes a free one
	Identity *Identity // required
	Trust    *Trust    // clients and admins connect
	// Nodes lets keys that are trusted as nodes connect like clients: they forward what their own clients ask. Those
	// that Peers knows do so in any case.
	Nodes bool
	// Connections bounds those that are open or about to be; 1024 if zero.
	Connections int
	// OneAddress bounds those from one address that is not this machine's loopback; 256 if zero.
	OneAddress int
	// WindowBudget bounds, in bytes and over all connections, what receive windows grow by; 64 MiB if zero.
	WindowBudget int64
	// Peers says who the other nodes are; nil speaks to clients alone.
	Peers *Peers
	// OnRefused is told of a peer that showed a key and was turned away: *RefusedError. It is called in
	// the handshake and must not block; nil drops it.
	OnRefused func(error)
}

func (o *ListenOptions) defaults() {
	if o.Connections <= 0 {
		o.Connections = ConnectionsDefault
	}
	if o.OneAddress <= 0 {
		o.OneAddress = OneAddressDefault
	}
	if o.WindowBudget <= 0 {
		o.WindowBudget = WindowBudgetDefault
	}
	if o.OnRefused == nil {
		o.OnRefused = func(error) {}
	}
}

// forwards says whether a key is that of a node that may ask for its clients.
func (o *ListenOptions) forwards(key Fingerprint) bool {
	role, ok := o.Trust.Role(key)
	if ok {
		return role == RoleNode && o.Nodes
	}
	return o.Peers != nil && o.Peers.Known(key)
}

// Listener accepts connections from trusted clients, and from other nodes if it has Peers.
type Listener struct {
	o         ListenOptions
	udp       *net.UDPConn
	transport *quic.Transport
	listener  *quic.Listener
	windows   *windows
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

// RefusedError is a peer that was turned away, and from where it came.
type RefusedError struct {
	From net.Addr
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("connection from %v refused: %v", e.From, e.Err)
}

// Unwrap returns why: *UntrustedError.
func (e *RefusedError) Unwrap() error { return e.Err }

// Listen opens the socket. Errors: *AddressError.
func Listen(o ListenOptions) (*Listener, error) {
	o.defaults()
	reset, err := o.Identity.derive("stateless reset")
	if err != nil {
		return nil, err
	}
	tokens, err := o.Identity.derive("address tokens")
	if err != nil {
		return nil, err
	}
	addr, err := net.ResolveUDPAddr("udp", o.Addr)
	if err != nil {
		return nil, &AddressError{o.Addr, err}
	}
	udp, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, &AddressError{o.Addr, err}
	}
	var fresh newcomers
	d := &door{max: o.Connections, oneMax: o.OneAddress, reserve: peerConnections}
	near := &nearby{peers: o.Peers}
	// A client of an earlier life of this node is told so at once: the reset key is the same.
	t := &quic.Transport{
		Conn: udp, ConnectionIDLength: connectionIDLength, MaxTokenAge: tokenAgeMax,
		StatelessResetKey: (*quic.StatelessResetKey)(&reset), TokenGeneratorKey: (*quic.TokenGeneratorKey)(&tokens),
		VerifySourceAddress: fresh.verify, ConnContext: near.enter(d),
	}
	w := newWindows(o.WindowBudget)
	conf := nodeConfig(w)
	conf.GetConfigForClient = near.config(nodeConfig(w))
	l, err := t.Listen(serverTLS(o), conf)
	if err != nil {
		return nil, errors.Join(err, t.Close(), udp.Close())
	}
	return &Listener{o: o, udp: udp, transport: t, listener: l, windows: w}, nil
}

// serverTLS makes a configuration for each handshake, so that a refusal can say where it came from.
func serverTLS(o ListenOptions) *tls.Config {
	client := verify(o.Trust, func(r Role) bool { return r == RoleClient || r == RoleAdmin }, "client")
	check := func(s tls.ConnectionState) error {
		switch {
		case betweenNodes(s.NegotiatedProtocol):
			return o.Peers.verify(s)
		case len(s.PeerCertificates) > 0 && o.forwards(fingerprintOf(s.PeerCertificates[0])):
			return nil
		}
		return client(s)
	}
	base := tlsConfig(o.Identity, o.Peers.protocols()...)
	base.VerifyConnection = check
	var begin turns
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		from := hello.Conn.RemoteAddr()
		if !o.Peers.near(from) {
			begin.take(hello.Context())
		}
		c := base.Clone()
		c.GetConfigForClient = nil
		c.VerifyConnection = func(s tls.ConnectionState) error {
			err := check(s)
			if err != nil {
				o.OnRefused(&RefusedError{from, err})
			}
			return err
		}
		return c, nil
	}
	return base
}

// Accept returns the next connection; an error means that the listener is closed or ctx ended. Who it
// is was settled in the handshake, so that it never waits for a peer.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	for {
		q, err := l.listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		c, err := l.open(q)
		if err == nil {
			return c, nil
		}
		_ = q.CloseWithError(1, "untrusted") // it may be gone; nothing is owed to it
	}
}

func (l *Listener) open(q *quic.Conn) (*Conn, error) {
	if betweenNodes(q.ConnectionState().TLS.NegotiatedProtocol) {
		return l.newPeer(q)
	}
	l.windows.open(q)
	if certs := q.ConnectionState().TLS.PeerCertificates; len(certs) > 0 {
		if key := fingerprintOf(certs[0]); l.o.forwards(key) {
			return &Conn{Conn: q, peer: key, role: RoleNode}, nil
		}
	}
	return newConn(q, l.o.Trust)
}

// Addr is the address in use.
func (l *Listener) Addr() net.Addr { return l.udp.LocalAddr() }

// Refuse takes no more connections: who dials gets no answer. Those that were accepted go on.
func (l *Listener) Refuse() error { return l.listener.Close() }

// Close stops listening and ends every connection that was accepted, or made by DialPeer.
func (l *Listener) Close() error {
	return errors.Join(l.listener.Close(), l.transport.Close(), l.udp.Close())
}
