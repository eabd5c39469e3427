package client_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// patience bounds a hang and decides nothing else.
const patience = 5 * time.Minute

// script is a broker that does what the test says, frame by frame, over real QUIC.
type script struct {
	t    *testing.T
	ctx  context.Context
	l    *endpoint.Listener
	c    *client.Client
	conn *endpoint.Conn // the broker's end
	in   *endpoint.BodyStreams
}

func newScript(t *testing.T) *script {
	t.Helper()
	return newScriptAt(t)
}

// newScripts is a node that has, or has had, two addresses: the client is connected to the first.
func newScripts(t *testing.T) (*script, *endpoint.Listener) {
	t.Helper()
	var second *endpoint.Listener
	s := newScriptAt(t, func(listen func() *endpoint.Listener) string {
		second = listen()
		t.Cleanup(func() {
			if err := second.Close(); err != nil {
				t.Error(err)
			}
		})
		return second.Addr().String()
	})
	return s, second
}

func newScriptAt(t *testing.T, more ...func(func() *endpoint.Listener) string) *script {
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
	node, key := id("node"), id("client")
	listen := func() *endpoint.Listener {
		l, err := endpoint.Listen(endpoint.ListenOptions{
			Addr: "127.0.0.1:0", Identity: node,
			Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleClient}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen()
	s := &script{t: t, ctx: ctx, l: l}
	t.Cleanup(s.gone)
	addrs := []string{l.Addr().String()}
	for _, f := range more {
		addrs = append(addrs, f(listen))
	}
	var err error
	s.c, err = client.Dial(ctx, client.Options{
		Addrs: addrs, Identity: key,
		Trust:  endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{node.Fingerprint(): endpoint.RoleNode}),
		Jitter: func() float64 { return 0 }, // no pauses
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.c.Close)
	s.connected()
	return s
}

// gone ends the broker.
func (s *script) gone() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.l == nil {
		return
	}
	if err := s.l.Close(); err != nil {
		s.t.Error(err)
	}
	s.l = nil
}

// connected takes the client's next connection.
func (s *script) connected() { s.t.Helper(); s.connectedAt(s.l) }

func (s *script) connectedAt(l *endpoint.Listener) {
	s.t.Helper()
	conn, err := l.Accept(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	in := new(endpoint.BodyStreams)
	s.conn, s.in = conn, in
	go in.Serve(s.ctx, conn)
}

// side is the broker's end of one stream.
type side struct {
	*script
	stream *quic.Stream
	in     *wire.Reader
}

// accept takes the client's next stream and its first frame.
func (s *script) accept() (*side, wire.Frame) {
	s.t.Helper()
	stream, err := s.conn.AcceptStream(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := stream.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	b := &side{s, stream, wire.NewReader(stream)}
	return b, b.next()
}

func (b *side) send(frames ...wire.Frame) {
	b.t.Helper()
	var out []byte
	for _, f := range frames {
		out = wire.Append(out, f)
	}
	if _, err := b.stream.Write(out); err != nil {
		b.t.Fatal(err)
	}
}

func (b *side) next() wire.Frame {
	b.t.Helper()
	f, err := b.in.Next()
	if err != nil {
		b.t.Fatalf("instead of a frame: %v", err)
	}
	return f
}

// publish expects the next message.
func (b *side) publish(seq uint64) *wire.Publish {
	b.t.Helper()
	f, ok := b.next().(*wire.Publish)
	if !ok || f.Seq != seq {
		b.t.Fatalf("got %+v, want PUBLISH %d", f, seq)
	}
	return f
}

// ended expects the client to have ended its side.
func (b *side) ended() {
	b.t.Helper()
	if f, err := b.in.Next(); !errors.Is(err, io.EOF) {
		b.t.Fatalf("got %+v, %v; want the stream's end", f, err)
	}
}

func (b *side) close() {
	_ = b.stream.Close() // the client may have given it up before
	b.stream.CancelRead(0)
	b.stream.ReleaseStreamCredit()
}

var (
	written = wire.Stored(wire.Written)
	flushed = wire.Stored(wire.Flushed)
)

// producer opens a producer whose broker allows so much.
func (s *script) producer(o client.ProducerOptions, inFlight, size uint64) (*client.Producer, *side) {
	s.t.Helper()
	return s.opened(o, &wire.Opened{Offer: flushed, MessageMax: 1 << 30, InFlight: inFlight, InFlightSize: size})
}

func (s *script) opened(o client.ProducerOptions, answer *wire.Opened) (*client.Producer, *side) {
	s.t.Helper()
	type made struct {
		p   *client.Producer
		err error
	}
	ch := make(chan made, 1)
	go func() {
		p, err := s.c.Producer(s.ctx, "demo", o)
		ch <- made{p, err}
	}()
	b, f := s.accept()
	if open, ok := f.(*wire.OpenProducer); !ok || open.Queue != "demo" || open.Want != o.Want || open.Producer != o.ID {
		s.t.Fatalf("opened with %+v", f)
	}
	b.send(answer)
	m := <-ch
	if m.err != nil {
		s.t.Fatal(m.err)
	}
	return m.p, b
}

// consumer opens a consumer whose subscription has had so many deliveries.
func (s *script) consumer(o client.ConsumerOptions, delivered, limit uint64) (*client.Consumer, *side) {
	s.t.Helper()
	type made struct {
		k   *client.Consumer
		err error
	}
	ch := make(chan made, 1)
	go func() {
		k, err := s.c.Consumer(s.ctx, "demo", o)
		ch <- made{k, err}
	}()
	b, f := s.accept()
	if open, ok := f.(*wire.OpenConsumer); !ok || open.Queue != "demo" || open.Subscription != o.Subscription {
		s.t.Fatalf("opened with %+v", f)
	}
	b.send(&wire.Opened{Offer: flushed, MessageMax: 1 << 30, Delivered: delivered, Limit: limit})
	m := <-ch
	if m.err != nil {
		s.t.Fatal(m.err)
	}
	return m.k, b
}
