package endpoint

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// newcomersMax is how many connections may begin within a second before their addresses have to be proved.
const newcomersMax = 64

// newcomers asks for proof of address when more come within a second than an honest crowd would bring.
type newcomers struct {
	mu     sync.Mutex
	second int64 // guarded by mu
	count  int   // guarded by mu
}

func (n *newcomers) verify(net.Addr) bool { return n.tooMany(time.Now()) }

func (n *newcomers) tooMany(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := now.Unix(); s != n.second {
		n.second, n.count = s, 0
	}
	n.count++
	return n.count > newcomersMax
}

// handshakePace is how far apart handshakes begin, and handshakeWait how long one waits at most for its turn: many at
// once must not take the processors from the connections that are there.
const (
	handshakePace = 2 * time.Millisecond
	handshakeWait = time.Second
)

// turns lets handshakes begin one by one. Beyond handshakeWait they come as they come: whoever sends the first
// packets of many must not keep others out.
type turns struct {
	mu   sync.Mutex
	next time.Time // guarded by mu
}

func (t *turns) take(ctx context.Context) {
	t.mu.Lock()
	now := time.Now()
	if t.next.Before(now) {
		t.next = now
	}
	wait := t.next.Sub(now)
	if wait < handshakeWait {
		t.next = t.next.Add(handshakePace)
	}
	t.mu.Unlock()
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// errFull is a connection too many; quic-go answers it with CONNECTION_REFUSED before any work for TLS.
var errFull = errors.New("endpoint: no more connections are taken")

// door counts connections from their first packet to their end.
type door struct {
	max, oneMax int
	reserve     int // places beyond max, for those that may be nodes

	mu    sync.Mutex
	count int            // guarded by mu
	from  map[string]int // guarded by mu; by address, without loopback
}

// enter is quic-go's ConnContext: ctx ends with the connection, or with its handshake if that fails.
// near says that the packet may come from a node.
func (d *door) enter(ctx context.Context, info *quic.ClientInfo, near bool) (context.Context, error) {
	from := ""
	if a, ok := info.RemoteAddr.(*net.UDPAddr); ok && !a.IP.IsLoopback() && !near {
		from = a.IP.String()
	}
	limit := d.max
	if near {
		limit += d.reserve
	}
	if !d.take(from, limit) {
		return nil, errFull
	}
	context.AfterFunc(ctx, func() { d.leave(from) })
	return ctx, nil
}

func (d *door) take(from string, limit int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count >= limit || from != "" && d.from[from] == d.oneMax {
		return false
	}
	d.count++
	if from != "" {
		if d.from == nil {
			d.from = make(map[string]int)
		}
		d.from[from]++
	}
	return true
}

func (d *door) leave(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count--
	if from == "" {
		return
	}
	if d.from[from]--; d.from[from] == 0 {
		delete(d.from, from)
	}
}

// windows shares a budget among the receive windows of all connections: beyond it they stay as they
// are, and their clients are slower.
type windows struct {
	mu   sync.Mutex
	left uint64                // guarded by mu
	of   map[*quic.Conn]uint64 // guarded by mu; grown by, of connections that were accepted
}

func newWindows(budget int64) *windows {
	return &windows{left: uint64(budget), of: make(map[*quic.Conn]uint64)}
}

// open lets a connection's window grow until it ends.
func (w *windows) open(c *quic.Conn) {
	w.mu.Lock()
	w.of[c] = 0
	w.mu.Unlock()
	context.AfterFunc(c.Context(), func() { w.close(c) })
}

func (w *windows) close(c *quic.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left += w.of[c]
	delete(w.of, c)
}

// allow is quic-go's AllowConnectionWindowIncrease; it must not call into the connection.
func (w *windows) allow(c *quic.Conn, delta uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	grown, accepted := w.of[c]
	if !accepted || delta > w.left {
		return false
	}
	w.left -= delta
	w.of[c] = grown + delta
	return true
}
