package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// pair is the two connections of a link while both stand. What waits to be sent belongs to it and ends with it, so that
// nothing reaches another incarnation than the one it was meant for.
type pair struct {
	link   *link
	life   life // of the other side
	conn   [kinds]*endpoint.Conn
	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{} // closed when the receiver was told that it ended

	exchanges exchanges
	arrivals  arrivals
	beats     beats
	places    chan struct{} // of transfers on their way out
	serving   chan struct{} // of transfers on their way in: twice as many, since the other side gives its own back first
	calling   chan struct{} // of calls on their way out
	answering chan struct{} // of calls on their way in: twice as many

	shardsMu sync.Mutex
	shards   []*shardQueue // guarded by shardsMu
	shut     bool          // guarded by shardsMu

	gate sync.RWMutex // held for reading while the receiver is called
	dead bool         // guarded by gate
}

func newPair(k *link, conn [kinds]*endpoint.Conn, h [kinds]hello) *pair {
	p := &pair{
		link: k, life: h[kindRaft].life, conn: conn, over: make(chan struct{}),
		places: make(chan struct{}, StreamsMax), serving: make(chan struct{}, 2*StreamsMax),
		calling: make(chan struct{}, CallsMax), answering: make(chan struct{}, 2*CallsMax),
	}
	p.ctx, p.cancel = context.WithCancel(k.ctx)
	p.exchanges.open(p, &h[kindRaft])
	p.arrivals.open(p)
	p.beats.p = p
	return p
}

// start serves what the other side opens.
func (p *pair) start() {
	o := &p.link.links.work
	o.Go(func() { p.acceptExchanges() })
	o.Go(func() { p.acceptUni(kindRaft, p.serveBeats) })
	o.Go(func() { p.acceptTransfers() })
	o.Go(func() { p.acceptUni(kindPayload, p.servePayload) })
}

// end: from here on the receiver is not called any more, but by transfers that fail.
func (p *pair) end() {
	p.gate.Lock()
	p.dead = true
	p.gate.Unlock()
	p.cancel()
	p.exchanges.end()
	p.arrivals.end()
	p.beats.end()
	p.shardsMu.Lock()
	p.shut = true
	for _, q := range p.shards {
		q.end()
	}
	p.shardsMu.Unlock()
	for kind, c := range p.conn {
		s := c.ConnectionStats()
		p.link.count.wire[kind].Add(s.BytesSent + s.BytesReceived)
	}
}

// ended says why, as far as the connections know. Both are closed.
func (p *pair) ended() error {
	for _, c := range p.conn {
		err := context.Cause(c.Context())
		var said *quic.ApplicationError
		var silent *quic.IdleTimeoutError
		switch {
		case errors.As(err, &said) && !said.Remote: // here, because the other one had ended
		case errors.As(err, &said):
			return &EndedError{Node: p.link.id, Why: Why(said.ErrorCode)}
		case errors.As(err, &silent):
			return fmt.Errorf("peer: node %d was silent for %v: %w", p.link.id, endpoint.PeerIdleMax, err)
		default:
			return fmt.Errorf("peer: the link with node %d ended: %w", p.link.id, err)
		}
	}
	return fmt.Errorf("peer: the link with node %d was ended here", p.link.id)
}

// fail ends the pair. The caller holds nothing.
func (p *pair) fail(why Why) {
	p.link.mu.Lock()
	if p.link.pair.Load() == p {
		p.link.drop(why)
	}
	p.link.mu.Unlock()
	p.link.tell()
}

// protest ends the pair if the other side sent what cannot be read; other errors are the network's.
func (p *pair) protest(err error) {
	var format *formatError
	if !errors.As(err, &format) {
		return
	}
	p.link.tellRefused(&RefusedError{
		Peer: p.link.key, Node: p.link.id, Addr: p.conn[kindRaft].RemoteAddr().String(), Why: Malformed, Err: err,
	})
	p.fail(Malformed)
}

// enter says whether the receiver may be called; then leave follows.
func (p *pair) enter() bool {
	p.gate.RLock()
	if p.dead {
		p.gate.RUnlock()
		return false
	}
	return true
}

func (p *pair) leave() { p.gate.RUnlock() }

func (p *pair) receiver() raftstore.Receiver { return p.link.links.receiver }

// acceptUni serves the unidirectional streams of a connection, each on a goroutine of its own.
func (p *pair) acceptUni(kind int, serve func(*quic.ReceiveStream) error) {
	for {
		s, err := p.conn[kind].AcceptUniStream(p.ctx)
		if err != nil {
			return
		}
		p.link.links.work.Go(func() {
			defer s.ReleaseStreamCredit()
			if err := serve(s); err != nil {
				s.CancelRead(0)
				p.protest(err)
			}
		})
	}
}

// grow reads n bytes into memory that is made as they arrive: no length is believed beyond chunkMax.
func grow(r interface{ Read([]byte) (int, error) }, buf []byte, n int) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		if len(buf) == cap(buf) {
			size := min(n, max(chunkMax, 2*cap(buf)))
			buf = append(make([]byte, 0, size), buf...)
		}
		m, err := r.Read(buf[len(buf):min(cap(buf), n)])
		buf = buf[:len(buf)+m]
		if err != nil && len(buf) < n {
			return buf, cutShort(err)
		}
	}
	return buf, nil
}

// chunkMax is how much memory is made for a length from the wire before anything has come, in bytes.
const chunkMax = 64 << 10
