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
	wanted  map[uint64]chan *quic.ReceiveStream // guarded by mu
}

// Serve takes streams in until the connection or ctx ends.
func (b *BodyStreams) Serve(ctx context.Context, conn *Conn) {
	for {
		stream, err := conn.AcceptUniStream(ctx)
		if err != nil {
			return
		}
		id := uint64(stream.StreamID())
		b.mu.Lock()
		if ch, ok := b.wanted[id]; ok {
			delete(b.wanted, id)
			ch <- stream // has room for one
		} else {
			if b.arrived == nil {
				b.arrived = make(map[uint64]*quic.ReceiveStream)
			}
			b.arrived[id] = stream
		}
		b.mu.Unlock()
	}
}

// Take waits for the stream of that number as long as ctx allows.
func (b *BodyStreams) Take(ctx context.Context, id uint64) (*quic.ReceiveStream, error) {
	b.mu.Lock()
	if s, ok := b.arrived[id]; ok {
		delete(b.arrived, id)
		b.mu.Unlock()
		return s, nil
	}
	ch := make(chan *quic.ReceiveStream, 1)
	if b.wanted == nil {
		b.wanted = make(map[uint64]chan *quic.ReceiveStream)
	}
	b.wanted[id] = ch
	b.mu.Unlock()
	select {
	case s := <-ch:
		return s, nil
	case <-ctx.Done():
		b.mu.Lock()
		delete(b.wanted, id)
		b.mu.Unlock()
		return nil, ctx.Err()
	}
}
