package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// Options say whom to connect to and as whom. Addrs, Identity and Trust are required.
type Options struct {
	// Addrs are tried in order: NAME:PORT, or NAME, whose _weida._udp record, or else port 7443, is used. At most 8
	// addresses are what they resolve to.
	Addrs    []string
	Identity *endpoint.Identity // required
	Trust    *endpoint.Trust    // the nodes; a redirect to any other is not followed
	// Single asks the node that answers to forward what is for others, instead of going to them.
	Single bool
	// Resolver looks names up; the system's if nil.
	Resolver Resolver
	// Jitter gives numbers in [0, 1) that spread attempts to connect again; a random one if nil.
	Jitter func() float64
	// Lost, if not nil, is told that a producer or consumer lost its stream, and for how long it tries to have
	// another. It is called by that one's goroutine, by several at a time, and must not block.
	Lost func(was error, patience time.Duration)
}

// Client speaks to a broker over one connection at a time, and to a cluster over one more for each node that
// leads a queue it uses. When one has ended and something is asked for, it makes another.
type Client struct {
	o    Options
	life context.Context // ends with Close
	end  context.CancelFunc
	open sync.WaitGroup // connections that have not ended

	mu     sync.Mutex
	home   *link                                  // guarded by mu; at hand where nothing better is known, or nil
	links  map[endpoint.Fingerprint]*link         // guarded by mu; by node, home among them
	gates  map[endpoint.Fingerprint]chan struct{} // guarded by mu; each holds the token of who may dial
	leads  map[string]lead                        // guarded by mu; by queue
	turn   int                                    // guarded by mu; the address that answered last
	closed bool                                   // guarded by mu
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

// ErrClosed is what a closed Client, Producer or Consumer says; nothing was taken.
var ErrClosed = errors.New("client: it is closed")

// Dial connects to the first address that answers, giving each of several 250 ms at first. Errors:
// *endpoint.UnreachableError, *endpoint.UntrustedError; for several addresses one of each, joined.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Addrs) == 0 {
		return nil, &endpoint.UnreachableError{Addr: "(none)", Err: errors.New("no address was given")}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	life, end := context.WithCancel(context.Background())
	c := &Client{
		o: o, life: life, end: end, links: make(map[endpoint.Fingerprint]*link), leads: make(map[string]lead),
		gates: make(map[endpoint.Fingerprint]chan struct{}),
	}
	if _, _, err := c.connect(ctx); err != nil {
		end()
		return nil, err
	}
	return c, nil
}

// Close ends the connection. What was not answered is indeterminate.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.open.Wait()
}

// checkNames refuses what no frame can carry.
func checkNames(queue, id string) error {
	if len(queue) > wire.QueueMax || len(id) > wire.IDMax {
		return &wire.Error{Code: wire.UnknownQueue, Detail: fmt.Sprintf(
			"A queue name has at most %d bytes, an id %d", wire.QueueMax, wire.IDMax)}
	}
	return nil
}
