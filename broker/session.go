package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// accept serves connections until the listener closes.
func (n *Node) accept(ctx context.Context) {
	for {
		conn, err := n.listener.Accept(n.work)
		if err != nil {
			return // closed; what a peer does wrong never ends Accept
		}
		g, why := n.enter(conn)
		if why != nil {
			n.counters.refused(why.Code)
			if n.quiet.pass(time.Now()) {
				n.c.Log.Warn("a connection was refused", "key", conn.Peer().String(), "err", why)
			}
			conn.Refuse(uint64(why.Code), why.Detail)
			continue
		}
		n.counters.connections.Add(1)
		n.served.Go(func() {
			n.serve(ctx, conn, g)
			n.leave(conn)
		})
	}
}

// guest is a key with its connections.
type guest struct {
	conns int // guarded by Node.mu
	brake brake
}

// enter counts a connection in, or says why it is not taken. One key cannot have all places.
func (n *Node) enter(conn *endpoint.Conn) (*guest, *wire.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.keys[conn.Peer()]
	if g == nil {
		g = new(guest)
		n.keys[conn.Peer()] = g
	}
	switch {
	case n.work.Err() != nil:
		return nil, stopping()
	case len(n.conns) >= connectionsMax:
		return nil, &wire.Error{Code: wire.Overloaded, Detail: fmt.Sprintf(
			"The node has %d connections, and takes no more", connectionsMax)}
	case g.conns >= oneKeyMax:
		return nil, &wire.Error{Code: wire.Overloaded, Detail: fmt.Sprintf(
			"This key has %d connections, and may have no more", oneKeyMax)}
	}
	n.conns[conn] = true
	g.conns++
	return g, nil
}

func (n *Node) leave(conn *endpoint.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn)
	n.keys[conn.Peer()].conns--
}

// session is one client connection.
type session struct {
	node   *Node
	conn   *endpoint.Conn
	bodies *endpoint.BodyStreams
	caller
}

// caller is who asks: the client of the connection, or the one that a node forwards a stream for.
type caller struct {
	peer  endpoint.Fingerprint
	role  endpoint.Role
	brake *brake // of the key
}

// serve runs a connection's streams, each on a goroutine of its own, until it ends. When the node
// stops, the streams answer what they have read, and the client may read that before the connection ends.
func (n *Node) serve(ctx context.Context, conn *endpoint.Conn, g *guest) {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{
		node: n, conn: conn, bodies: new(endpoint.BodyStreams), caller: caller{conn.Peer(), conn.Role(), &g.brake},
	}
	var streams, bodies sync.WaitGroup
	bodies.Go(func() { s.bodies.Serve(ctx, conn) })
	for {
		stream, err := conn.AcceptStream(n.work)
		if err != nil {
			break
		}
		streams.Go(func() { s.stream(ctx, stream) })
	}
	if n.work.Err() != nil && conn.Context().Err() == nil { // the node stops
		streams.Wait()
		select {
		case <-conn.Context().Done():
		case <-ctx.Done():
		case <-time.After(stopLinger):
		}
	}
	cancel()
	conn.Close()
	streams.Wait()
	bodies.Wait()
}

// stopping is what a stream is told that ends because the node does.
func stopping() *wire.Error { return &wire.Error{Code: wire.Stopping} }

// stream reads the first frame, which says what the stream is for.
func (s *session) stream(ctx context.Context, stream *quic.Stream) {
	defer stream.ReleaseStreamCredit()
	defer stream.CancelRead(0)
	defer func() { _ = stream.Close() }() // the answer, if any, was written; nothing is owed to a closed stream
	// A node that stops reads on to the end of what has arrived, and no further.
	defer context.AfterFunc(s.node.work, func() { stream.CancelRead(quic.StreamErrorCode(wire.Stopping)) })()
	s.brake.pay(ctx, streamCost)
	r := wire.NewReader(stream)
	if err := stream.SetReadDeadline(time.Now().Add(openTimeout)); err != nil {
		return
	}
	f, err := r.Next()
	switch {
	case err != nil && s.node.work.Err() != nil:
		s.refuse(stream, stopping())
		return
	case err != nil:
		s.refuse(stream, readError(err))
		return
	}
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	switch f := f.(type) {
	case *wire.OpenProducer:
		s.produce(ctx, stream, r, *f)
	case *wire.OpenConsumer:
		s.consume(ctx, stream, r, *f)
	case *wire.OpenPeek:
		s.peek(ctx, stream, *f)
	case *wire.Purge:
		s.purge(ctx, stream, *f)
	case *wire.Unsubscribe:
		s.unsubscribe(ctx, stream, *f)
	case *wire.Retire:
		s.retire(ctx, stream, *f)
	default:
		s.refuse(stream, &wire.Error{Code: wire.Malformed, Detail: "no stream starts with " + f.Type().String()})
	}
}

// refuse ends a stream with one error frame. A nil error ends it without.
func (s *session) refuse(w io.Writer, err *wire.Error) {
	if err == nil {
		return
	}
	s.node.counters.refused(err.Code)
	if _, werr := w.Write(wire.Append(nil, err.Frame())); werr != nil {
		s.node.c.Log.Debug("error frame not delivered", "code", err.Code.String(), "err", werr)
	}
}

// readError is what a client is told about a stream that could not be read: nothing if it simply ended.
func readError(err error) *wire.Error {
	var format *wire.FormatError
	if errors.As(err, &format) {
		return &wire.Error{Code: wire.Malformed, Detail: format.Error()}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &wire.Error{Code: wire.Malformed, Detail: "the stream ended inside a frame"}
	}
	return nil
}

// refuseBody tells the sender of a body that nobody will read it.
func (s *session) refuseBody(ctx context.Context, id uint64, code wire.Code) {
	ctx, cancel := context.WithTimeout(ctx, bodyStall)
	defer cancel()
	if body, err := s.bodies.Take(ctx, id); err == nil {
		body.CancelRead(quic.StreamErrorCode(code))
		body.ReleaseStreamCredit()
	}
}
