package broker

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// This file is what a node does for clients that know it alone (W-42, W-76): it opens the stream that they want at the
// node that leads the queue, says for whom, and passes frames and bodies on in both directions, in pieces.

const (
	// hopsMax is how many redirects are followed for one request (W-43).
	hopsMax = 2
	// relayPiece is how many bytes of frames are gathered into one write.
	relayPiece = 64 << 10
)

// onward are the connections to other nodes for one connection of a client. Streams of it share them, so that each
// client has as many streams and bodies there as here.
type onward struct {
	node *Node

	mu     sync.Mutex
	roads  map[endpoint.Fingerprint]*road // guarded by mu
	closed bool                           // guarded by mu
	work   sync.WaitGroup
}

// road is a connection to one node.
type road struct {
	mu     sync.Mutex // held while it is made
	conn   *endpoint.Conn
	bodies *endpoint.BodyStreams
}

func newOnward(n *Node) *onward { return &onward{node: n, roads: make(map[endpoint.Fingerprint]*road)} }

func (o *onward) road(node endpoint.Fingerprint) *road {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.roads[node]
	if r == nil {
		r = new(road)
		o.roads[node] = r
	}
	return r
}

// to connects to a node of the cluster, unless there is a connection.
func (o *onward) to(ctx context.Context, at *wire.Redirect) (*endpoint.Conn, *endpoint.BodyStreams, error) {
	key := endpoint.Fingerprint(at.Node)
	if !o.node.router.Member(key) {
		return nil, nil, &endpoint.UntrustedError{Peer: key, Wanted: "node"}
	}
	r := o.road(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil && r.conn.Context().Err() == nil {
		return r.conn, r.bodies, nil
	}
	conn, err := endpoint.Dial(ctx, at.Addr(), endpoint.DialOptions{
		Identity: o.node.c.Identity,
		Trust:    endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key: endpoint.RoleNode}),
	})
	if err != nil {
		return nil, nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		conn.Close()
		return nil, nil, context.Canceled
	}
	bodies := new(endpoint.BodyStreams)
	o.work.Go(func() {
		bodies.Serve(conn.Context(), conn)
		conn.Close()
	})
	r.conn, r.bodies = conn, bodies
	return conn, bodies, nil
}

// close ends the connections; no stream of the client is left.
func (o *onward) close() {
	o.mu.Lock()
	o.closed = true
	for _, r := range o.roads {
		if r.conn != nil { // nobody makes one any more
			r.conn.Close()
		}
	}
	o.mu.Unlock()
	o.work.Wait()
}

// forwarded is the session of the client whom a stream is for that a node forwards. What the client may do here, this
// node's own trust list says.
func (s *session) forwarded(f *wire.Forwarded) (*session, *wire.Error) {
	if s.role != endpoint.RoleNode {
		return nil, &wire.Error{Code: wire.NotAllowed, Detail: "Only nodes forward; this key has the role " + string(s.role)}
	}
	key := endpoint.Fingerprint(f.Client)
	role, ok := s.node.roleOf(key)
	if !ok || role == endpoint.RoleNode {
		return nil, &wire.Error{Code: wire.NotAllowed, Detail: "The node that leads the queue does not trust this client"}
	}
	s.node.mu.Lock()
	g := s.node.guestUnder(key)
	s.node.mu.Unlock()
	return &session{s.node, s.conn, s.bodies, s.onward, caller{peer: key, role: role, brake: &g.brake}}, nil
}

// queueOf is the queue that a first frame names.
func queueOf(f wire.Frame) (string, bool) {
	switch f := f.(type) {
	case *wire.OpenProducer:
		return f.Queue, true
	case *wire.OpenConsumer:
		return f.Queue, true
	case *wire.OpenPeek:
		return f.Queue, true
	case *wire.Purge:
		return f.Queue, true
	case *wire.Unsubscribe:
		return f.Queue, true
	case *wire.Retire:
		return f.Queue, true
	}
	return "", false
}

// elsewhere says which other node serves what a first frame asks for; nil if that is to be answered here.
func (s *session) elsewhere(ctx context.Context, f wire.Frame) *wire.Redirect {
	name, ok := queueOf(f)
	if !ok {
		return nil
	}
	if _, _, refused := s.find(ctx, name); refused != nil {
		return refused.To
	}
	return nil
}

// relay is one stream that is forwarded.
type relay struct {
	*session
	down   *quic.Stream // of the client
	up     *quic.Stream // at the node that leads
	conn   *endpoint.Conn
	theirs *endpoint.BodyStreams // of conn
	bodies sync.WaitGroup
}

// forward serves a stream by one at another node.
func (s *session) forward(
	ctx context.Context, down *quic.Stream, in *wire.Reader, first wire.Frame, to *wire.Redirect,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &relay{session: s, down: down}
	out, answer, refused := r.open(ctx, first, to)
	if refused != nil {
		s.refuse(down, refused)
		return
	}
	defer context.AfterFunc(ctx, func() {
		r.up.CancelRead(0)
		r.up.CancelWrite(0)
		down.CancelRead(0)
	})()
	var asking sync.WaitGroup
	asking.Go(func() {
		if err := r.ask(ctx, in); err != nil {
			r.up.CancelWrite(0) // the client broke off, or the leader is gone: the answers end
			return
		}
		_ = r.up.Close() // after an error there is nothing to end
	})
	ended := r.answer(ctx, out, answer)
	down.CancelRead(0)
	asking.Wait()
	s.refuse(down, ended)
	cancel()
	r.bodies.Wait()
}

// open opens the stream at the node that leads, which may be another one meanwhile, and returns its first answer.
func (r *relay) open(ctx context.Context, first wire.Frame, to *wire.Redirect) (*wire.Reader, wire.Frame, *wire.Error) {
	waiting, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for hops := 1; ; hops++ {
		out, answer, err := r.openAt(waiting, first, to)
		if err != nil {
			return nil, nil, &wire.Error{Code: wire.ForwardBroken, Detail: clip("To " + to.Addr() + ": " + err.Error())}
		}
		again, ok := answer.(*wire.Redirect)
		if !ok {
			return out, answer, nil
		}
		if to = again; hops == hopsMax {
			return nil, nil, to.AsError()
		}
	}
}

func (r *relay) openAt(ctx context.Context, first wire.Frame, to *wire.Redirect) (*wire.Reader, wire.Frame, error) {
	conn, theirs, err := r.onward.to(ctx, to)
	if err != nil {
		return nil, nil, err
	}
	up, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { up.CancelRead(0); up.CancelWrite(0) })
	defer stop()
	r.up, r.conn, r.theirs = up, conn, theirs
	b := wire.Append(nil, &wire.Forwarded{Client: [32]byte(r.peer)})
	if _, err := up.Write(wire.Append(b, first)); err != nil {
		return nil, nil, err
	}
	out := wire.NewReader(up)
	answer, err := out.Next()
	if err != nil {
		up.CancelRead(0)
		up.CancelWrite(0)
		return nil, nil, err
	}
	return out, answer, nil
}

// ask passes on what the client says, until it ends.
func (r *relay) ask(ctx context.Context, in *wire.Reader) error {
	var buf []byte
	for {
		f, err := in.Next()
		if errors.Is(err, io.EOF) || err != nil && r.node.work.Err() != nil {
			return write(r.up, buf)
		}
		if err != nil {
			return errors.Join(err, write(r.up, buf))
		}
		if p, ok := f.(*wire.Publish); ok && p.Large {
			to, err := r.conn.OpenUniStreamSync(ctx)
			if err != nil {
				return err
			}
			from := p.Stream
			p.Stream = uint64(to.StreamID())
			r.bodies.Go(func() { pass(ctx, r.session.bodies, from, to) })
		}
		buf = wire.Append(buf, f)
		if len(buf) < relayPiece && in.Buffered() {
			continue
		}
		if _, err := r.up.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
}

// answer passes on what the leader says, until it ends, and says what the client is to be told at the end.
func (r *relay) answer(ctx context.Context, out *wire.Reader, f wire.Frame) *wire.Error {
	var buf []byte
	for {
		last := false
		switch f := f.(type) {
		case *wire.Deliver:
			if !f.Large {
				break
			}
			to, err := r.session.conn.OpenUniStreamSync(ctx)
			if err != nil {
				return nil
			}
			from := f.Stream
			f.Stream = uint64(to.StreamID())
			r.bodies.Go(func() { pass(ctx, r.theirs, from, to) })
		case *wire.Redirect:
			return r.flush(buf, f.AsError())
		case *wire.ErrorFrame:
			last = true
		}
		buf = wire.Append(buf, f)
		if len(buf) >= relayPiece || last || !out.Buffered() {
			if err := write(r.down, buf); err != nil || last {
				r.up.CancelRead(0)
				return nil
			}
			buf = buf[:0]
		}
		var err error
		switch f, err = out.Next(); {
		case errors.Is(err, io.EOF) && r.node.work.Err() != nil:
			return r.flush(buf, stopping()) // it has answered all that was read here
		case errors.Is(err, io.EOF):
			return r.flush(buf, nil)
		case err != nil:
			return r.flush(buf, &wire.Error{Code: wire.ForwardBroken, Detail: clip(err.Error())})
		}
	}
}

func (r *relay) flush(buf []byte, end *wire.Error) *wire.Error {
	if err := write(r.down, buf); err != nil {
		return nil // nobody is there to be told
	}
	return end
}

// pass copies a body from the stream of a number to one, and what either side says of it.
func pass(ctx context.Context, bodies *endpoint.BodyStreams, from uint64, to *quic.SendStream) {
	in, err := bodies.Take(ctx, from)
	if err != nil {
		to.CancelWrite(quic.StreamErrorCode(wire.BodyBroken))
		return
	}
	defer in.ReleaseStreamCredit()
	defer context.AfterFunc(ctx, func() {
		in.CancelRead(0)
		to.CancelWrite(0)
	})()
	piece := make([]byte, relayPiece)
	for {
		n, err := in.Read(piece)
		if n > 0 {
			if _, werr := to.Write(piece[:n]); werr != nil {
				in.CancelRead(reason(werr))
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.Close() // who does not want the end has said so, or is gone
			return
		}
		if err != nil {
			to.CancelWrite(reason(err))
			return
		}
	}
}

// reason is the code with which the other side ended a stream.
func reason(err error) quic.StreamErrorCode {
	var stopped *quic.StreamError
	if errors.As(err, &stopped) && stopped.Remote {
		return stopped.ErrorCode
	}
	return 0
}
