package client_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// hall is a cluster of model nodes, each with a key and an address of its own, over real QUIC. What a node says to the
// first frame of a stream, the test decides.
type hall struct {
	t     *testing.T
	ctx   context.Context
	nodes []*member
	dial  client.Options // knows the first node's address, and trusts all but the last
}

// member is one node of a hall.
type member struct {
	h    *hall
	id   *endpoint.Identity
	l    *endpoint.Listener
	addr string

	mu      sync.Mutex
	answers []func(wire.Frame) wire.Frame // guarded by mu; of the next streams, the last for all that follow
	asked   []wire.Frame                  // guarded by mu; first frames, with what went before them
	conns   []*endpoint.Conn              // guarded by mu; that came
	opened  chan *side                    // streams that were answered with Opened
}

func newHall(t *testing.T, nodes int) *hall {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	dir := t.TempDir()
	id := func(name string) *endpoint.Identity {
		i, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	h := &hall{t: t, ctx: ctx}
	key := id("client")
	trusted := make(map[endpoint.Fingerprint]endpoint.Role)
	for i := range nodes {
		m := &member{h: h, id: id(fmt.Sprint("node", i)), opened: make(chan *side, 16)}
		l, err := endpoint.Listen(endpoint.ListenOptions{
			Addr: "127.0.0.1:0", Identity: m.id,
			Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleClient}),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.l, m.addr = l, l.Addr().String()
		h.nodes = append(h.nodes, m)
		if i < nodes-1 {
			trusted[m.id.Fingerprint()] = endpoint.RoleNode
		}
		var serving sync.WaitGroup
		serving.Go(func() { m.accept(l) })
		t.Cleanup(func() {
			m.gone()
			serving.Wait()
		})
	}
	h.dial = client.Options{
		Addrs: []string{h.nodes[0].addr}, Identity: key, Trust: endpoint.NewTrust(trusted),
		Jitter: func() float64 { return 0 },
	}
	return h
}

func (h *hall) client() *client.Client {
	h.t.Helper()
	c, err := client.Dial(h.ctx, h.dial)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

// gone ends the node for good, with its connections.
func (m *member) gone() {
	m.hangUp()
	m.mu.Lock()
	l := m.l
	m.l = nil
	m.mu.Unlock()
	if l == nil {
		return
	}
	if err := l.Close(); err != nil {
		m.h.t.Error(err)
	}
}

// end takes all nodes away.
func (h *hall) end() {
	for _, m := range h.nodes {
		m.gone()
	}
}

// hangUp ends the node's connections.
func (m *member) hangUp() {
	m.mu.Lock()
	conns := slices.Clone(m.conns)
	m.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (m *member) accept(l *endpoint.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept(m.h.ctx)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conns = append(m.conns, conn)
		m.mu.Unlock()
		conns.Go(func() { m.serve(conn) })
	}
}

func (m *member) serve(conn *endpoint.Conn) {
	for {
		stream, err := conn.AcceptStream(m.h.ctx)
		if err != nil {
			return
		}
		b := &side{&script{t: m.h.t, ctx: m.h.ctx, conn: conn}, stream, wire.NewReader(stream)}
		f, err := b.in.Next()
		if err != nil {
			continue
		}
		m.mu.Lock()
		m.asked = append(m.asked, f)
		if _, ok := f.(*wire.Single); ok {
			if f, err = b.in.Next(); err == nil {
				m.asked = append(m.asked, f)
			}
		}
		say := m.answers[0]
		if len(m.answers) > 1 {
			m.answers = m.answers[1:]
		}
		m.mu.Unlock()
		answer := say(f)
		_, _ = stream.Write(wire.Append(nil, answer)) // a client that is gone reads nothing
		if _, ok := answer.(*wire.Opened); ok {
			m.opened <- b
			continue
		}
		b.close()
	}
}

// says is what the node answers to its next streams, the last to all that follow.
func (m *member) says(list ...wire.Frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = nil
	for _, f := range list {
		m.answers = append(m.answers, func(wire.Frame) wire.Frame { return f })
	}
}

// count is how often the node was asked.
func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

// to is a redirect to the node, as of a term.
func (m *member) to(term uint64) *wire.Redirect {
	at, err := netip.ParseAddrPort(m.addr)
	if err != nil {
		m.h.t.Fatal(err)
	}
	return &wire.Redirect{
		Queue: "demo", Term: term, Node: [32]byte(m.id.Fingerprint()), Host: at.Addr().String(), Port: uint64(at.Port()),
	}
}

// stream is the node's next stream that was answered with Opened.
func (m *member) stream() *side {
	m.h.t.Helper()
	select {
	case b := <-m.opened:
		if err := b.stream.SetDeadline(time.Now().Add(patience)); err != nil {
			m.h.t.Fatal(err)
		}
		return b
	case <-m.h.ctx.Done():
		m.h.t.Fatal("no stream came")
	}
	return nil
}

// asked expects the nodes to have been asked so often.
func (h *hall) asked(want ...int) {
	h.t.Helper()
	for i, m := range h.nodes {
		if n := m.count(); i < len(want) && n != want[i] {
			h.t.Errorf("node %d was asked %d times, want %d", i, n, want[i])
		}
	}
}

// contacted says whether anybody connected to the node.
func (m *member) contacted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.conns) > 0
}
