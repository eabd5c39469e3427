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
		if n.cluster.takes(conn) {
			continue
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
	g := n.guestUnder(conn.Peer())
	switch {
	case n.work.Err() != nil:
		return nil, stopping()
	case len(n.conns) >= connectionsMax:
		return nil, &wire.Error{Code: wire.Overloaded, Detail: fmt.Sprintf(
			"The node has %d connections, and takes no more", connectionsMax)}
	case g.conns >= oneKeyMax && conn.Role() != endpoint.RoleNode: // which has one for each of its clients
		return nil, &wire.Error{Code: wire.Overloaded, Detail: fmt.Sprintf(
			"This key has %d connections, and may have no more", oneKeyMax)}
	}
	n.conns[conn] = true
	g.conns++
	return g, nil
}

// guestUnder is a key's guest, with mu held. Only keys that are trusted get here.
func (n *Node) guestUnder(key endpoint.Fingerprint) *guest {
	g := n.keys[key]
	if g == nil {
		g = new(guest)
		n.keys[key] = g
	}
	return g
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
	onward *onward
	caller
}

// caller is who asks: the client of the connection, or the one that a node forwards a stream for.
type caller struct {
	peer  endpoint.Fingerprint
	role  endpoint.Role
	brake *brake // of the key
	// single says that it is to get no redirects: what they name is done for it.
	single bool
}

// serve runs a connection's streams, each on a goroutine of its own, until it ends. When the node
// stops, the streams answer what they have read, and the client may read that before the connection ends.
func (n *Node) serve(ctx context.Context, conn *endpoint.Conn, g *guest) {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{
		node: n, conn: conn, bodies: new(endpoint.BodyStreams), onward: newOnward(n),
		caller: caller{peer: n.nameOf(conn.Peer()), role: conn.Role(), brake: &g.brake},
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
	s.onward.close()
}

// stopping is what a stream is told that ends because the node does.
func stopping() *wire.Error { return &wire.Error{Code: wire.Stopping} }

// stream reads the first frame, which says what the stream is for, and for whom.
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
	as, f, refused := s.first(r)
	if refused != nil {
		s.refuse(stream, refused)
		return
	}
	if f == nil {
		return
	}
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	if as.single {
		if to := as.elsewhere(ctx, f); to != nil {
			as.forward(ctx, stream, r, f, to)
			return
		}
	}
	as.dispatch(ctx, stream, r, f)
}

// first reads the frame that says what a stream is for, and what goes before it: whom it is for. No frame and no error
// is a stream that ended.
func (s *session) first(r *wire.Reader) (as *session, f wire.Frame, refused *wire.Error) {
	as = s
	f, err := r.Next()
	switch before := f.(type) {
	case *wire.Single:
		as = &session{s.node, s.conn, s.bodies, s.onward, s.caller}
		as.single = true
		f, err = r.Next()
	case *wire.Forwarded:
		if as, refused = s.forwarded(before); refused != nil {
			return nil, nil, refused
		}
		f, err = r.Next()
	default:
		if s.role == endpoint.RoleNode {
			return nil, nil, &wire.Error{Code: wire.NotAllowed, Detail: "A node asks only what it forwards for a client"}
		}
	}
	switch {
	case err != nil && s.node.work.Err() != nil:
		return nil, nil, stopping()
	case err != nil:
		return nil, nil, readError(err)
	}
	return as, f, nil
}

func (s *session) dispatch(ctx context.Context, stream *quic.Stream, r *wire.Reader, f wire.Frame) {
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

// ending is an error as the frame that ends a stream of this client's.
func (s *session) ending(err *wire.Error) wire.Frame {
	if s.single && err.To != nil {
		return &wire.ErrorFrame{Code: err.Code, Detail: clip(err.Detail)}
	}
	return err.Frame()
}

// refuse ends a stream with one error frame. A nil error ends it without.
func (s *session) refuse(w io.Writer, err *wire.Error) {
	if err == nil {
		return
	}
	s.node.counters.refused(err.Code)
	if _, werr := w.Write(wire.Append(nil, s.ending(err))); werr != nil {
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
