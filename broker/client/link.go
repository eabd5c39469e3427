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
	single bool // its streams ask to be forwarded

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

const (
	// dialMax is how long one address may take to answer.
	dialMax = 5 * time.Second
	// dialFirst is how long the first attempt of several addresses may take (W-41); each round over them has twice as
	// long as the one before.
	dialFirst = 250 * time.Millisecond
)

// connect returns the connection at hand, a fresh one if there is none that is alive: addresses are tried in
// turn, from the one that answered last on, until one answers or each has had dialMax.
func (c *Client) connect(ctx context.Context) (l *link, fresh bool, err error) {
	release, err := c.gate(ctx, endpoint.Fingerprint{})
	if err != nil {
		return nil, false, err
	}
	defer release()
	if l := c.alive(); l != nil {
		return l, false, nil
	}
	addrs, err := c.addresses(ctx)
	if err != nil {
		return nil, false, c.ended(err)
	}
	for each := c.tryFirst(len(addrs)); ; each = min(2*each, dialMax) {
		l, err := c.sweep(ctx, addrs, each)
		if err == nil || each == dialMax || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return l, true, err
		}
	}
}

// tryFirst is how long the first attempt may take: a single address has all the time, as there is no other to try.
func (c *Client) tryFirst(addrs int) time.Duration {
	if addrs == 1 {
		return dialMax
	}
	return dialFirst
}

// sweep tries addresses once each, for so long.
func (c *Client) sweep(ctx context.Context, addrs []string, each time.Duration) (*link, error) {
	from := c.lastTurn()
	var errs []error
	for k := range addrs {
		turn := (from + k) % len(addrs)
		l, err := c.dial(ctx, addrs[turn], c.o.Trust, each)
		if err == nil && c.use(l, turn) {
			return l, nil
		}
		if c.life.Err() != nil {
			return nil, ErrClosed
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}

// connectAt returns the connection at hand if it is not among those that were tried, else one to an address, which is
// at hand from then on. Neither: the address is that of one that was tried.
func (c *Client) connectAt(ctx context.Context, addrs []string, turn int, each time.Duration, tried map[*link]bool) (
	*link, error,
) {
	release, err := c.gate(ctx, endpoint.Fingerprint{})
	if err != nil {
		return nil, err
	}
	defer release()
	if l := c.alive(); l != nil && (!tried[l] || l.addr == addrs[turn]) {
		if tried[l] {
			return nil, nil
		}
		return l, nil
	}
	l, err := c.dial(ctx, addrs[turn], c.o.Trust, each)
	if err != nil {
		return nil, c.ended(err)
	}
	if !c.use(l, turn) {
		return nil, ErrClosed
	}
	return l, nil
}

// connectNode returns a connection to a node, which has to prove its key.
func (c *Client) connectNode(ctx context.Context, at nodeAt, each time.Duration) (l *link, fresh bool, err error) {
	release, err := c.gate(ctx, at.node)
	if err != nil {
		return nil, false, err
	}
	defer release()
	if l := c.aliveNode(at.node); l != nil {
		return l, false, nil
	}
	trust := endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{at.node: endpoint.RoleNode})
	l, err = c.dial(ctx, at.addr, trust, each)
	if err != nil {
		return nil, false, c.ended(err)
	}
	if !c.keep(l) {
		return nil, false, ErrClosed
	}
	return l, true, nil
}

// ended is err, or ErrClosed if that is why.
func (c *Client) ended(err error) error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return err
}

// gate lets one dial a node at a time; the zero key stands for whoever answers first.
func (c *Client) gate(ctx context.Context, node endpoint.Fingerprint) (release func(), err error) {
	c.mu.Lock()
	g := c.gates[node]
	if g == nil {
		g = make(chan struct{}, 1)
		c.gates[node] = g
	}
	c.mu.Unlock()
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) dial(ctx context.Context, addr string, trust *endpoint.Trust, each time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	conn, err := endpoint.Dial(ctx, addr, endpoint.DialOptions{Identity: c.o.Identity, Trust: trust})
	if err != nil {
		return nil, err
	}
	return &link{conn: conn, addr: addr, single: c.o.Single}, nil
}

// alive is the connection at hand, unless it is known to have ended.
func (c *Client) alive() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.home != nil && c.home.conn.Context().Err() == nil {
		return c.home
	}
	return nil
}

// aliveNode is a connection to that node.
func (c *Client) aliveNode(node endpoint.Fingerprint) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[node]; l != nil && l.conn.Context().Err() == nil {
		return l
	}
	return nil
}

func (c *Client) lastTurn() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turn
}

// use makes l the connection at hand; false if the client was closed.
func (c *Client) use(l *link, turn int) bool {
	if !c.keep(l) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.home, c.turn = l, turn
	return true
}

// keep makes l the connection to its node; false if the client was closed.
func (c *Client) keep(l *link) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		l.conn.Close()
		return false
	}
	old := c.links[l.conn.Peer()]
	c.links[l.conn.Peer()] = l
	c.open.Go(func() {
		l.bodies.Serve(c.life, l.conn) // until the connection ends, or the client closes
		l.conn.Close()
	})
	c.mu.Unlock()
	if old != nil {
		c.leave(old)
	}
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
	if c.home == l {
		c.home = nil
	}
	if c.links[l.conn.Peer()] == l {
		delete(c.links, l.conn.Peer())
	}
	c.mu.Unlock()
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	l.begin()
	l.finish()
}
