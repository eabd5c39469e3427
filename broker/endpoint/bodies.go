package endpoint

import (
	"context"
	"sync"

	"github.com/quic-go/quic-go"
)

// BodyStreams matches a connection's incoming unidirectional streams with the frames that name them;
// either may come first. QUIC's stream credit bounds how many wait. The zero value is ready.
type BodyStreams struct {
	mu      sync.Mutex
	arrived map[uint64]*quic.ReceiveStream      // guarded by mu
	wanted  map[uint64]chan *quic.ReceiveStream // guarded by mu; nil: to be dropped when it comes
}

// Serve takes streams in until the connection or ctx ends.
func (b *BodyStreams) Serve(ctx context.Context, conn *Conn) {
	for {
		stream, err := conn.AcceptUniStream(ctx)
		if err != nil {
			return
		}
		b.arrive(stream)
	}
}

func (b *BodyStreams) arrive(stream *quic.ReceiveStream) {
	id := uint64(stream.StreamID())
	b.mu.Lock()
	defer b.mu.Unlock()
	ch, named := b.wanted[id]
	delete(b.wanted, id)
	switch {
	case ch != nil:
		ch <- stream // has room for one
	case named:
		drop(stream)
	default:
		if b.arrived == nil {
			b.arrived = make(map[uint64]*quic.ReceiveStream)
		}
		b.arrived[id] = stream
	}
}

// drop gives a stream's place back to the peer, who learns that nobody reads it.
func drop(s *quic.ReceiveStream) {
	s.CancelRead(0)
	s.ReleaseStreamCredit()
}

// Take waits for the stream of that number as long as ctx allows; then it is dropped when it comes.
// Whoever takes a stream reads it to its end, or cancels it, and calls its ReleaseStreamCredit. A
// stream is taken or dropped once.
func (b *BodyStreams) Take(ctx context.Context, id uint64) (*quic.ReceiveStream, error) {
	b.mu.Lock()
	if s, ok := b.arrived[id]; ok {
		delete(b.arrived, id)
		b.mu.Unlock()
		return s, nil
	}
	ch := make(chan *quic.ReceiveStream, 1)
	b.wantLocked(id, ch)
	b.mu.Unlock()
	select {
	case s := <-ch:
		return s, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case s := <-ch: // it came at the same moment
		drop(s)
	default:
		b.wantLocked(id, nil)
	}
	return nil, ctx.Err()
}

// Drop says that nobody will read the stream of that number. It never waits.
func (b *BodyStreams) Drop(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.arrived[id]; ok {
		delete(b.arrived, id)
		drop(s)
		return
	}
	b.wantLocked(id, nil)
}

// wantMax bounds the numbers of streams that were named and did not come. More than the peer may have
// open at once is a peer that names what it does not send.
const wantMax = 4 * BodyStreamsMax

func (b *BodyStreams) wantLocked(id uint64, ch chan *quic.ReceiveStream) {
	if b.wanted == nil {
		b.wanted = make(map[uint64]chan *quic.ReceiveStream)
	}
	if ch == nil && len(b.wanted) >= wantMax {
		delete(b.wanted, id) // whoever waited for it has gone
		return
	}
	b.wanted[id] = ch
}
