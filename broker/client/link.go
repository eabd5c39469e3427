package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
)

// link is one connection.
type link struct {
	conn   *endpoint.Conn
	addr   string
	bodies endpoint.BodyStreams

	mu    sync.Mutex
	users int  // guarded by mu; streams that have not ended
	left  bool // guarded by mu; no more are opened
}

func (l *link) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
}

// finish is the end of a stream. With the last one a connection that was left ends, too: a broker that
// stops waits for that.
func (l *link) finish() {
	l.mu.Lock()
	l.users--
	over := l.left && l.users == 0
	l.mu.Unlock()
	if over {
		l.conn.Close()
	}
}

// dialMax is how long one address may take to answer.
const dialMax = 5 * time.Second

// connect returns a connection, a fresh one if there is none that is alive; then all addresses are
// tried, from the one that answered last on.
func (c *Client) connect(ctx context.Context) (l *link, fresh bool, err error) {
	return c.connectTo(ctx, len(c.o.Addrs), 0, dialMax)
}

// connectTo tries so many addresses, skipping some, for so long each.
func (c *Client) connectTo(ctx context.Context, tries, skip int, each time.Duration) (*link, bool, error) {
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if l := c.alive(); l != nil {
		return l, false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var errs []error
	for k := range tries {
		turn := (c.turn + skip + k) % len(c.o.Addrs)
		l, err := c.dial(ctx, c.o.Addrs[turn], each)
		if err == nil && c.use(l) {
			c.turn = turn
			return l, true, nil
		}
		if c.life.Err() != nil {
			return nil, false, ErrClosed
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return nil, false, errs[0]
	}
	return nil, false, errors.Join(errs...)
}

func (c *Client) dial(ctx context.Context, addr string, each time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	conn, err := endpoint.Dial(ctx, addr, endpoint.DialOptions{Identity: c.o.Identity, Trust: c.o.Trust})
	if err != nil {
		return nil, err
	}
	return &link{conn: conn, addr: addr}, nil
}

// alive is the connection that new streams use, unless it is known to have ended.
func (c *Client) alive() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil && c.link.conn.Context().Err() == nil {
		return c.link
	}
	return nil
}

// use makes l the connection of new streams; false if the client was closed.
func (c *Client) use(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		l.conn.Close()
		return false
	}
	c.link = l
	c.links.Go(func() {
		l.bodies.Serve(c.life, l.conn) // until the connection ends, or the client closes
		l.conn.Close()
	})
	return true
}

// endedBy says whether the connection has ended, given why one of its streams did: the connection says so
// itself only a moment later.
func (l *link) endedBy(err error) bool {
	var closed *quic.ApplicationError
	var broken *quic.TransportError
	var silent *quic.IdleTimeoutError
	var reset *quic.StatelessResetError
	if errors.As(err, &closed) || errors.As(err, &broken) || errors.As(err, &silent) || errors.As(err, &reset) {
		<-l.conn.Context().Done()
	}
	return l.conn.Context().Err() != nil
}

// leave opens no more streams on a connection. Those that it has go on to their end.
func (c *Client) leave(l *link) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
	}
	c.mu.Unlock()
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	l.begin()
	l.finish()
}
