package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// Options say whom to connect to and as whom. Addrs, Identity and Trust are required.
type Options struct {
	Addrs    []string           // tried in order
	Identity *endpoint.Identity // required
	Trust    *endpoint.Trust    // the nodes
	// Jitter gives numbers in [0, 1) that spread attempts to connect again; a random one if nil.
	Jitter func() float64
	// Lost, if not nil, is told that a producer or consumer lost its stream, and for how long it tries to have
	// another. It is called by that one's goroutine, by several at a time, and must not block.
	Lost func(was error, patience time.Duration)
}

// Client speaks to a broker over one connection at a time, and makes another when that has ended and
// something is asked for.
type Client struct {
	o    Options
	life context.Context // ends with Close
	end  context.CancelFunc

	dialing chan struct{} // holds one token: who has it may dial
	turn    int           // owned by who has the token; the address that answered last

	mu     sync.Mutex
	link   *link          // guarded by mu; what new streams use, or nil
	closed bool           // guarded by mu
	links  sync.WaitGroup // those that have not ended
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

// Dial connects to the first address that answers. Errors: *endpoint.UnreachableError,
// *endpoint.UntrustedError; for several addresses one of each, joined.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if len(o.Addrs) == 0 {
		return nil, &endpoint.UnreachableError{Addr: "(none)", Err: errors.New("no address was given")}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	life, end := context.WithCancel(context.Background())
	c := &Client{o: o, life: life, end: end, dialing: make(chan struct{}, 1)}
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
	c.links.Wait()
}

// checkNames refuses what no frame can carry.
func checkNames(queue, id string) error {
	if len(queue) > wire.QueueMax || len(id) > wire.IDMax {
		return &wire.Error{Code: wire.UnknownQueue, Detail: fmt.Sprintf(
			"A queue name has at most %d bytes, an id %d", wire.QueueMax, wire.IDMax)}
	}
	return nil
}
