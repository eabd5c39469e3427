package endpoint_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
)

// pair is a connection with both its ends.
func (w *world) pair() (here, there *endpoint.Conn) {
	w.t.Helper()
	here, err := w.dial("client", w.theNode())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(here.Close)
	if there, err = w.node.Accept(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	return here, there
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, func(o *endpoint.ListenOptions) { o.Connections = 2 })
	w.pair()
	here, _ := w.pair()
	_, err := w.dial("client", w.theNode())
	var refused *endpoint.UnreachableError
	var transport *quic.TransportError
	if !errors.As(err, &refused) || !errors.As(err, &transport) || transport.ErrorCode != quic.ConnectionRefused {
		t.Fatalf("a third connection: %v", err)
	}
	here.Close()
	for { // the node learns of it a moment later
		c, err := w.dial("client", w.theNode())
		if err == nil {
			c.Close()
			return
		}
		if w.ctx.Err() != nil {
			t.Fatalf("after one was closed: %v", err)
		}
	}
}

// A stream that was served but not released keeps its place: opening and resetting gains nothing.
func TestStreamsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	here, there := w.pair()
	var served []*quic.Stream
	for range 64 {
		s, err := here.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		s.CancelWrite(0)
		s.CancelRead(0)
		got, err := there.AcceptStream(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		got.CancelRead(0)
		got.CancelWrite(0)
		served = append(served, got)
	}
	var full *quic.StreamLimitReachedError
	if _, err := here.OpenStream(); !errors.As(err, &full) {
		t.Fatalf("a stream too many: %v", err)
	}
	served[0].ReleaseStreamCredit()
	if _, err := here.OpenStreamSync(w.ctx); err != nil {
		t.Errorf("after a release: %v", err)
	}
	if _, err := there.OpenStream(); err == nil {
		t.Error("the node opens a stream at its client")
	}
}

// Streams and the frames that name them come in any order; what nobody reads gives its place back.
func TestBodyStreams(t *testing.T) {
	w := newWorld(t, nil)
	here, there := w.pair()
	send := func(text string) uint64 {
		s, err := here.OpenUniStreamSync(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return uint64(s.StreamID())
	}
	var b endpoint.BodyStreams
	go b.Serve(w.ctx, there)
	read := func(id uint64, want string) {
		t.Helper()
		s, err := b.Take(w.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(s); err != nil || string(got) != want {
			t.Errorf("stream %d: %q, %v; want %q", id, got, err, want)
		}
		s.ReleaseStreamCredit()
	}
	first, second := send("first"), send("second")
	read(second, "second")
	read(first, "first")

	third := second + 4
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := b.Take(ended, third); !errors.Is(err, context.Canceled) {
		t.Errorf("taken with an ended context: %v", err)
	}
	for i := range uint64(100) { // more than fit at once, so each must give its place back
		id := third + 4*i
		if i > 0 && i%2 == 0 {
			b.Drop(id)
		}
		if got := send("dropped"); got != id {
			t.Fatalf("stream %d, want %d", got, id)
		}
		if i%2 == 1 {
			b.Drop(id)
		}
	}
	read(send("last"), "last")
}

// A client of an earlier life of the node learns of its end by its first packet, not by a timeout of half a minute.
func TestRestartIsNoticed(t *testing.T) {
	w := newWorld(t, nil)
	// The node's next life, with the same key and nothing else of the first, answers on another socket;
	// the wire between them is moved over to it.
	next := w.listen("127.0.0.1:0", nil)
	moved := dialThrough(t, w, next)
	s, err := moved.OpenStreamSync(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(make([]byte, 200)); err != nil { // the smallest packets are not answered: loops
		t.Fatal(err)
	}
	<-moved.Context().Done()
	var reset *quic.StatelessResetError
	if err := context.Cause(moved.Context()); !errors.As(err, &reset) {
		t.Errorf("the connection ended with %v, want a stateless reset", err)
	}
}

// dialThrough connects to w's node through a relay that, once connected, leads to next instead.
func dialThrough(t *testing.T, w *world, next *endpoint.Listener) *endpoint.Conn {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(front.Close(), back.Close()) }) // the test is over
	target := make(chan net.Addr, 1)
	target <- w.node.Addr()
	clients := make(chan net.Addr, 1)
	go func() {
		var client net.Addr
		b := make([]byte, 2048)
		for {
			n, from, err := front.ReadFrom(b)
			if err != nil {
				return
			}
			if client == nil {
				client = from
				clients <- from
			}
			to := <-target
			target <- to
			_, _ = back.WriteTo(b[:n], to) // like any wire
		}
	}()
	go func() {
		client := <-clients
		b := make([]byte, 2048)
		for {
			n, from, err := back.ReadFrom(b)
			if err != nil {
				return
			}
			if to := <-target; to.String() == from.String() {
				_, _ = front.WriteTo(b[:n], client)
				target <- to
			} else {
				target <- to // of the first life, which is over
			}
		}
	}()
	c, err := endpoint.Dial(w.ctx, front.LocalAddr().String(),
		endpoint.DialOptions{Identity: w.ids["client"], Trust: endpoint.NewTrust(w.theNode())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := w.node.Accept(w.ctx); err != nil {
		t.Fatal(err)
	}
	<-target
	target <- next.Addr()
	return c
}
