package endpoint_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
)

// patience bounds a hang and decides nothing else.
const patience = 5 * time.Minute

// world is a node that listens, and the keys of everybody.
type world struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	ids     map[string]*endpoint.Identity
	node    *endpoint.Listener
	refused chan error
}

func newWorld(t *testing.T, change func(*endpoint.ListenOptions)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{
		t: t, ctx: ctx, dir: t.TempDir(), ids: make(map[string]*endpoint.Identity),
		refused: make(chan error, 100),
	}
	for _, name := range []string{"node", "othernode", "client", "admin", "stranger"} {
		w.ids[name] = identity(t, w.dir, name)
	}
	w.node = w.listen("127.0.0.1:0", change)
	return w
}

func (w *world) print(name string) endpoint.Fingerprint { return w.ids[name].Fingerprint() }

func (w *world) listen(addr string, change func(*endpoint.ListenOptions)) *endpoint.Listener {
	w.t.Helper()
	o := endpoint.ListenOptions{
		Addr: addr, Identity: w.ids["node"],
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{
			w.print("client"): endpoint.RoleClient, w.print("admin"): endpoint.RoleAdmin,
			w.print("othernode"): endpoint.RoleNode,
		}),
		OnRefused: func(err error) { w.refused <- err },
	}
	if change != nil {
		change(&o)
	}
	l, err := endpoint.Listen(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return l
}

// accept serves connections: each stream gives back what it is sent.
func (w *world) accept(conns chan<- *endpoint.Conn) {
	for {
		c, err := w.node.Accept(w.ctx)
		if err != nil {
			return
		}
		if conns != nil {
			conns <- c
		}
		go func() {
			for {
				s, err := c.AcceptStream(w.ctx)
				if err != nil {
					return
				}
				_, _ = io.Copy(struct{ io.Writer }{s}, s) // what fails, the client sees
				_ = s.Close()
				s.ReleaseStreamCredit()
			}
		}()
	}
}

func (w *world) dial(name string, nodes map[endpoint.Fingerprint]endpoint.Role) (*endpoint.Conn, error) {
	return endpoint.Dial(w.ctx, w.node.Addr().String(),
		endpoint.DialOptions{Identity: w.ids[name], Trust: endpoint.NewTrust(nodes)})
}

func (w *world) theNode() map[endpoint.Fingerprint]endpoint.Role {
	return map[endpoint.Fingerprint]endpoint.Role{w.print("node"): endpoint.RoleNode}
}

// echo uses a connection. A node that turns a key away says so at the first use: TLS 1.3 lets the
// dialling side finish first.
func (w *world) echo(c *quic.Conn) error {
	s, err := c.OpenStreamSync(w.ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	b, err := io.ReadAll(s)
	if err == nil && string(b) != "hello" {
		err = errors.New("another answer: " + string(b))
	}
	return err
}

func TestTrustedPeersMeet(t *testing.T) {
	w := newWorld(t, nil)
	conns := make(chan *endpoint.Conn, 2)
	go w.accept(conns)
	for name, role := range map[string]endpoint.Role{"client": endpoint.RoleClient, "admin": endpoint.RoleAdmin} {
		c, err := w.dial(name, w.theNode())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := w.echo(c.Conn); err != nil {
			t.Fatal(err)
		}
		if c.Peer() != w.print("node") || c.Role() != endpoint.RoleNode {
			t.Errorf("%s sees %v as %s", name, c.Peer(), c.Role())
		}
		if served := <-conns; served.Peer() != w.print(name) || served.Role() != role {
			t.Errorf("the node sees %v as %s, want %s as %s", served.Peer(), served.Role(), name, role)
		}
		s := c.ConnectionState()
		if s.TLS.Version != tls.VersionTLS13 || s.TLS.NegotiatedProtocol != endpoint.ALPNMessaging ||
			s.Used0RTT || s.TLS.DidResume {
			t.Errorf("the connection is %+v", s.TLS)
		}
	}
}

// The dialling side refuses a node that it does not know, or knows as something else.
func TestClientRefusesNode(t *testing.T) {
	w := newWorld(t, nil)
	go w.accept(nil)
	cases := []struct {
		name  string
		trust map[endpoint.Fingerprint]endpoint.Role
		role  endpoint.Role
		says  string
	}{
		{"nobody is trusted", nil, "", "not in the trust list"},
		{
			"another node is trusted",
			map[endpoint.Fingerprint]endpoint.Role{w.print("othernode"): endpoint.RoleNode},
			"",
			"add it to the list",
		},
		{
			"trusted as a client",
			map[endpoint.Fingerprint]endpoint.Role{w.print("node"): endpoint.RoleClient},
			endpoint.RoleClient, "trusted as client and not as node",
		},
	}
	for _, c := range cases {
		_, err := w.dial("client", c.trust)
		var untrusted *endpoint.UntrustedError
		if !errors.As(err, &untrusted) || untrusted.Peer != w.print("node") || untrusted.Role != c.role ||
			!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The node refuses keys that it does not know, or knows as something else, and says from where they came.
func TestNodeRefusesKeys(t *testing.T) {
	w := newWorld(t, nil)
	go w.accept(nil)
	for name, role := range map[string]endpoint.Role{"stranger": "", "node": "", "othernode": endpoint.RoleNode} {
		c, err := w.dial(name, w.theNode())
		if err == nil {
			err = w.echo(c.Conn)
			c.Close()
		}
		unreachable := &endpoint.UnreachableError{Addr: "there", Err: err}
		if err == nil || !unreachable.TurnedAway() || !strings.Contains(unreachable.Error(), "trust list") {
			t.Fatalf("%s: %v", name, unreachable)
		}
		var from *endpoint.RefusedError
		var untrusted *endpoint.UntrustedError
		if err := w.told(); !errors.As(err, &from) || !errors.As(err, &untrusted) ||
			untrusted.Peer != w.print(name) || untrusted.Role != role || from.From.(*net.UDPAddr).Port == 0 {
			t.Errorf("%s: the node was told %v", name, err)
		}
	}
}

// A node that forwards connects as what it is, where that is allowed.
func TestNodesConnect(t *testing.T) {
	w := newWorld(t, func(o *endpoint.ListenOptions) { o.Nodes = true })
	go w.accept(nil)
	c, err := w.dial("othernode", w.theNode())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := w.echo(c.Conn); err != nil {
		t.Error(err)
	}
}

// told is what the node heard of the next refusal.
func (w *world) told() error {
	select {
	case err := <-w.refused:
		return err
	case <-w.ctx.Done():
		return errors.New("nothing")
	}
}

// raw dials as a client that is not weida's.
func (w *world) raw(conf *tls.Config) error {
	conf.InsecureSkipVerify = true
	c, err := quic.DialAddr(w.ctx, w.node.Addr().String(), conf, nil)
	if err != nil {
		return err
	}
	defer c.CloseWithError(0, "") // it has ended, or ends here
	return w.echo(c)
}

// T-7: what is proved is a key. A certificate alone, no certificate, another protocol, an older TLS: no connection.
func TestNodeRefusesHandshakes(t *testing.T) {
	w := newWorld(t, nil)
	go w.accept(nil)
	cert := func(crt, key string) tls.Certificate {
		c, err := tls.LoadX509KeyPair(filepath.Join(w.dir, crt+".crt"), filepath.Join(w.dir, crt+".key"))
		if err != nil {
			t.Fatal(err)
		}
		k, err := tls.LoadX509KeyPair(filepath.Join(w.dir, key+".crt"), filepath.Join(w.dir, key+".key"))
		if err != nil {
			t.Fatal(err)
		}
		c.PrivateKey = k.PrivateKey
		return c
	}
	messaging := []string{endpoint.ALPNMessaging}
	mine := []tls.Certificate{cert("client", "client")}
	if err := w.raw(&tls.Config{NextProtos: messaging, Certificates: mine}); err != nil {
		t.Fatalf("the client's own key: %v", err)
	}
	cases := []struct {
		name, says string
		conf       *tls.Config
	}{
		{"no certificate", "turned this key away", &tls.Config{NextProtos: messaging}},
		{"another's certificate", "cannot reach", &tls.Config{
			NextProtos:   messaging,
			Certificates: []tls.Certificate{cert("client", "stranger")},
		}},
		{"another protocol", "does not speak", &tls.Config{
			NextProtos:   []string{"h3"},
			Certificates: []tls.Certificate{cert("client", "client")},
		}},
		{"no protocol", "does not speak", &tls.Config{Certificates: []tls.Certificate{cert("client", "client")}}},
	}
	for _, c := range cases {
		err := w.raw(c.conf)
		if err == nil {
			t.Errorf("%s: let in", c.name)
			continue
		}
		if u := (&endpoint.UnreachableError{Addr: "there", Err: err}); !strings.Contains(u.Error(), c.says) {
			t.Errorf("%s: %v; want %q", c.name, u, c.says)
		}
	}
}

func TestAddressesThatFail(t *testing.T) {
	w := newWorld(t, nil)
	_, err := endpoint.Listen(endpoint.ListenOptions{Addr: w.node.Addr().String(), Identity: w.ids["node"]})
	var taken *endpoint.AddressError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("an address in use: %v", err)
	}
	_, err = endpoint.Listen(endpoint.ListenOptions{Addr: "nonsense", Identity: w.ids["node"]})
	if !errors.As(err, &taken) {
		t.Errorf("no address: %v", err)
	}
	var unreachable *endpoint.UnreachableError
	_, err = endpoint.Dial(w.ctx, "nonsense", endpoint.DialOptions{Identity: w.ids["client"]})
	if !errors.As(err, &unreachable) {
		t.Errorf("dialling no address: %v", err)
	}
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	_, err = endpoint.Dial(ended, w.node.Addr().String(), endpoint.DialOptions{
		Identity: w.ids["client"],
		Trust:    endpoint.NewTrust(w.theNode()),
	})
	if !errors.As(err, &unreachable) || unreachable.TurnedAway() || !errors.Is(err, context.Canceled) {
		t.Errorf("dialling with an ended context: %v", err)
	}
}
