package peer

import (
	"errors"
	"io"
	"sync"

	"github.com/quic-go/quic-go"
)

// The kinds of unidirectional streams: the first byte of each.
const (
	uniBeats   = 1
	uniPayload = 2
)

// Urgencies: heartbeats before everything on the raft connection, bodies of queues before long transfers on the other.
const (
	urgentFirst = 0
	urgentNext  = 3 // the default
	urgentLast  = 6
)

// beats sends heartbeat frames on a stream of their own: each a length and its bytes. A newer one takes the place of
// the one that waits.
type beats struct {
	p *pair

	mu      sync.Mutex
	dead    bool   // guarded by mu
	running bool   // guarded by mu; somebody writes
	waits   bool   // guarded by mu; next holds a frame
	next    []byte // guarded by mu

	stream *quic.SendStream // of whoever writes
	buf    []byte           // of whoever writes
}

func (b *beats) send(data []byte) {
	count := &b.p.link.count
	if len(data) > BeatMax {
		count.tooLarge.Add(1)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		count.down.Add(1)
		return
	}
	if b.waits {
		count.replaced.Add(1)
	}
	b.next = be.AppendUint32(b.next[:0], uint32(len(data)))
	b.next = append(b.next, data...)
	b.waits = true
	if !b.running {
		b.running = true
		b.p.link.links.work.Go(b.run)
	}
}

func (b *beats) run() {
	for {
		b.mu.Lock()
		if !b.waits || b.dead {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.buf, b.next = b.next, b.buf
		b.waits = false
		b.mu.Unlock()
		if err := b.write(); err != nil {
			b.p.link.count.failed.Add(1)
			b.p.fail(Stopping) // nothing but the connection's end, or a peer that will not hear, makes this fail
			b.end()
		}
	}
}

func (b *beats) write() (err error) {
	if b.stream == nil {
		if b.stream, err = openUni(b.p, kindRaft, uniBeats); err != nil {
			return err
		}
		b.stream.SetPriority(urgentFirst, true)
	}
	if _, err := b.stream.Write(b.buf); err != nil {
		return err
	}
	b.p.link.count.sent.beats.Add(1)
	b.p.link.count.sent.beatBytes.Add(uint64(len(b.buf)))
	return nil
}

func (b *beats) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = true
}

// openUni opens a unidirectional stream that lives as long as the pair.
func openUni(p *pair, kind int, first byte) (*quic.SendStream, error) {
	s, err := p.conn[kind].OpenUniStreamSync(p.ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.Write([]byte{first})
	return s, err
}

// beginUni reads a stream's kind.
func beginUni(r io.Reader, want byte) error {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return cutShort(err)
	}
	if b[0] != want {
		return malformed("stream of kind %d", b[0])
	}
	return nil
}

// serveBeats reads heartbeat frames until the connection ends.
func (p *pair) serveBeats(s *quic.ReceiveStream) error {
	if err := beginUni(s, uniBeats); err != nil {
		return err
	}
	count := &p.link.count.received
	var buf []byte
	for {
		var head [4]byte
		if _, err := io.ReadFull(s, head[:]); err != nil {
			return betweenFrames(err)
		}
		n := be.Uint32(head[:])
		if n > BeatMax {
			return malformed("heartbeat frame of %d bytes", n)
		}
		var err error
		if buf, err = grow(s, buf, int(n)); err != nil {
			return err
		}
		count.beats.Add(1)
		count.beatBytes.Add(uint64(n) + 4)
		if !p.enter() {
			return nil
		}
		p.receiver().ReceiveBeat(p.link.id, buf)
		p.leave()
	}
}

// betweenFrames: a stream may end between two frames.
func betweenFrames(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return cutShort(err)
}
