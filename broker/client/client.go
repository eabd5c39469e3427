package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// Options say whom to connect to and as whom. All are required.
type Options struct {
	Addrs    []string // tried in order
	Identity *endpoint.Identity
	Trust    *endpoint.Trust // the nodes
}

// Client is a connection to a broker.
type Client struct {
	conn *endpoint.Conn
	addr string
	in   endpoint.BodyStreams
	stop context.CancelFunc
}

// Dial connects to the first address that answers. Errors: *endpoint.UnreachableError,
// *endpoint.UntrustedError, for several addresses joined.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Addrs) == 0 {
		return nil, &endpoint.UnreachableError{Addr: "(none)", Err: errors.New("no address was given")}
	}
	var errs []error
	for _, addr := range o.Addrs {
		conn, err := endpoint.Dial(ctx, addr, endpoint.DialOptions{Identity: o.Identity, Trust: o.Trust})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		life, stop := context.WithCancel(context.Background())
		c := &Client{conn: conn, addr: addr, stop: stop}
		go c.in.Serve(life, conn) // ends with the connection
		return c, nil
	}
	return nil, errors.Join(errs...)
}

// Close ends the connection. What was not answered is indeterminate.
func (c *Client) Close() {
	c.stop()
	c.conn.Close()
}

// open starts a stream with its first frame and reads the answer.
func (c *Client) open(ctx context.Context, first wire.Frame) (*quic.Stream, *wire.Reader, *wire.Opened, error) {
	stream, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, nil, c.lost(err)
	}
	stop := context.AfterFunc(ctx, func() { stream.CancelRead(0) })
	defer stop()
	if _, err := stream.Write(wire.Append(nil, first)); err != nil {
		return nil, nil, nil, c.lost(err)
	}
	r := wire.NewReader(stream)
	f, err := r.Next()
	if err != nil {
		return nil, nil, nil, c.lost(err)
	}
	switch f := f.(type) {
	case *wire.Opened:
		return stream, r, f, nil
	case *wire.ErrorFrame:
		return nil, nil, nil, &wire.Error{Code: f.Code, Detail: f.Detail}
	}
	return nil, nil, nil, fmt.Errorf("client: the broker answered with %v", f.Type())
}

// lost says why the connection is of no more use.
func (c *Client) lost(err error) error {
	var turned *quic.TransportError
	var idle *quic.IdleTimeoutError
	if errors.As(err, &turned) || errors.As(err, &idle) {
		return &endpoint.UnreachableError{Addr: c.addr, Err: err}
	}
	return fmt.Errorf("client: the connection to %s ended: %w", c.addr, err)
}
