package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// Options say whom to connect to and as whom. All are required.
type Options struct {
	Addrs    []string           // tried in order
	Identity *endpoint.Identity // required
	Trust    *endpoint.Trust    // the nodes
}

// Client is a connection to a broker.
type Client struct {
	conn   *endpoint.Conn
	addr   string
	bodies endpoint.BodyStreams
	served sync.WaitGroup
	stop   context.CancelFunc
}

// LostError is a connection that ended while it was in use.
type LostError struct {
	Addr string
	Err  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to %s ended: %v; what had no answer may or may not have been done; "+
		"connect again", e.Addr, e.Err)
}

// Unwrap returns the network's error.
func (e *LostError) Unwrap() error { return e.Err }

// ProtocolError is a broker that broke the protocol. Its stream is of no more use.
type ProtocolError struct{ Cause string }

func (e *ProtocolError) Error() string {
	return "client: the broker broke the protocol: " + e.Cause +
		"; what had no answer may or may not have been done; use a client of the broker's version"
}

func broke(format string, args ...any) error { return &ProtocolError{fmt.Sprintf(format, args...)} }

// Dial connects to the first address that answers. Errors: *endpoint.UnreachableError,
// *endpoint.UntrustedError; for several addresses one of each, joined.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Addrs) == 0 {
		return nil, &endpoint.UnreachableError{Addr: "(none)", Err: errors.New("no address was given")}
	}
	var errs []error
	for _, addr := range o.Addrs {
		conn, err := endpoint.Dial(ctx, addr, endpoint.DialOptions{Identity: o.Identity, Trust: o.Trust})
		if err == nil {
			return newClient(conn, addr), nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func newClient(conn *endpoint.Conn, addr string) *Client {
	life, stop := context.WithCancel(context.Background())
	c := &Client{conn: conn, addr: addr, stop: stop}
	c.served.Go(func() { c.bodies.Serve(life, conn) })
	return c
}

// Close ends the connection. What was not answered is indeterminate.
func (c *Client) Close() {
	c.stop()
	c.conn.Close()
	c.served.Wait()
}

// checkNames refuses what no frame can carry.
func checkNames(queue, id string) error {
	if len(queue) > wire.QueueMax || len(id) > wire.IDMax {
		return &wire.Error{Code: wire.UnknownQueue, Detail: fmt.Sprintf(
			"A queue name has at most %d bytes, an id %d", wire.QueueMax, wire.IDMax)}
	}
	return nil
}

// open starts a stream with its first frame and reads the answer. Nothing was published or taken when
// it fails.
func (c *Client) open(ctx context.Context, first wire.Frame) (*quic.Stream, *wire.Reader, *wire.Opened, error) {
	stream, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, nil, c.unopened(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { abandon(stream) })
	r := wire.NewReader(stream)
	opened, err := c.greet(stream, r, first)
	if !stop() { // ctx ended, and the stream with it
		return nil, nil, nil, ctx.Err()
	}
	if err != nil {
		abandon(stream)
		return nil, nil, nil, c.unopened(ctx, err)
	}
	return stream, r, opened, nil
}

func (c *Client) greet(stream *quic.Stream, r *wire.Reader, first wire.Frame) (*wire.Opened, error) {
	if _, err := stream.Write(wire.Append(nil, first)); err != nil {
		return nil, err
	}
	f, err := r.Next()
	if err != nil {
		return nil, err
	}
	switch f := f.(type) {
	case *wire.Opened:
		return f, nil
	case *wire.ErrorFrame:
		return nil, &wire.Error{Code: f.Code, Detail: f.Detail}
	}
	return nil, broke("it opened a stream with %v", f.Type())
}

// abandon gives a stream back in both directions.
func abandon(s *quic.Stream) {
	s.CancelRead(0)
	s.CancelWrite(0)
}

// unopened says why a stream could not be opened.
func (c *Client) unopened(ctx context.Context, err error) error {
	var refused *wire.Error
	var protocol *ProtocolError
	switch {
	case errors.As(err, &refused), errors.As(err, &protocol):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &endpoint.UnreachableError{Addr: c.addr, Err: err}
}

// lost says why a stream in use came to its end.
func (c *Client) lost(err error) error {
	var format *wire.FormatError
	if errors.As(err, &format) {
		return broke("%v", format)
	}
	return &LostError{Addr: c.addr, Err: err}
}
