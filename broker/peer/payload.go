package peer

import (
	"bufio"
	"fmt"
	"io"
	"sync"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// A payload frame on the wire: its group, its length and its bytes.
const payloadHead = 8 + 4

// The frames that are handed over together: as many as are there, up to these bounds.
const (
	payloadFrames = 64
	payloadBytes  = 256 << 10
)

// shardQueue sends the payload of one shard on a stream of its own, in order. What does not fit is dropped: whoever
// needs it asks for it.
type shardQueue struct {
	p *pair

	mu      sync.Mutex
	dead    bool   // guarded by mu
	running bool   // guarded by mu; somebody writes
	next    []byte // guarded by mu; frames that wait
	frames  uint64 // guarded by mu; in next
	writing int    // guarded by mu; bytes that are being written

	stream *quic.SendStream // of whoever writes
	spare  []byte           // of whoever writes
}

// shard is the queue of a shard, made when it is first used.
func (p *pair) shard(n int) *shardQueue {
	if n < 0 || n >= endpoint.PeerUniStreamsMax {
		panic(fmt.Sprintf("bug: peer: shard %d", n))
	}
	p.shardsMu.Lock()
	defer p.shardsMu.Unlock()
	for len(p.shards) <= n {
		p.shards = append(p.shards, &shardQueue{p: p, dead: p.shut})
	}
	return p.shards[n]
}

func (q *shardQueue) send(frames []raftstore.Frame) {
	count := &q.p.link.count
	limit := q.p.link.links.o.PayloadBytes
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead {
		count.down.Add(uint64(len(frames)))
		return
	}
	for _, f := range frames {
		switch {
		case len(f.Data) > raftstore.PayloadFrameMax || f.Group == 0:
			count.tooLarge.Add(1)
		case len(q.next)+q.writing+payloadHead+len(f.Data) > limit:
			count.payload.Add(1)
		default:
			q.next = be.AppendUint64(q.next, uint64(f.Group))
			q.next = be.AppendUint32(q.next, uint32(len(f.Data)))
			q.next = append(q.next, f.Data...)
			q.frames++
		}
	}
	if !q.running && len(q.next) > 0 {
		q.running = true
		q.p.link.links.work.Go(q.run)
	}
}

func (q *shardQueue) run() {
	for {
		q.mu.Lock()
		q.writing = 0
		if len(q.next) == 0 || q.dead {
			q.running = false
			q.mu.Unlock()
			return
		}
		buf, frames := q.next, q.frames
		q.next, q.frames, q.writing = q.spare[:0], 0, len(buf)
		q.mu.Unlock()
		if err := q.write(buf, frames); err != nil {
			q.p.link.count.failed.Add(frames)
			q.p.fail(Stopping) // nothing but the connection's end, or a peer that will not hear, makes this fail
			q.end()
		}
		if q.spare = buf; cap(buf) > batchKept {
			q.spare = nil
		}
	}
}

func (q *shardQueue) write(buf []byte, frames uint64) (err error) {
	if q.stream == nil {
		if q.stream, err = openUni(q.p, kindPayload, uniPayload); err != nil {
			return err
		}
	}
	if _, err := q.stream.Write(buf); err != nil {
		return err
	}
	q.p.link.count.sent.payloadFrames.Add(frames)
	q.p.link.count.sent.payloadBytes.Add(uint64(len(buf)))
	return nil
}

func (q *shardQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = true
	q.next = nil
}

// servePayload reads the payload stream of a shard until the connection ends.
func (p *pair) servePayload(s *quic.ReceiveStream) error {
	if err := beginUni(s, uniPayload); err != nil {
		return err
	}
	r := bufio.NewReaderSize(s, chunkMax)
	for {
		list, err := readPayload(r)
		if err != nil {
			return betweenFrames(err)
		}
		size := 0
		for _, f := range list {
			size += payloadHead + len(f.Data)
		}
		p.link.count.received.payloadFrames.Add(uint64(len(list)))
		p.link.count.received.payloadBytes.Add(uint64(size))
		if !p.enter() {
			return nil
		}
		p.receiver().ReceivePayload(p.link.id, list)
		p.leave()
	}
}

// readPayload waits for a frame, and takes those that came with it. io.EOF means that the stream ended between two.
func readPayload(r *bufio.Reader) (list []raftstore.Frame, err error) {
	size := 0
	for len(list) < payloadFrames && size < payloadBytes {
		if len(list) > 0 && !frameThere(r) {
			return list, nil
		}
		var head [payloadHead]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		f := raftstore.Frame{Group: raftstore.GroupID(be.Uint64(head[:]))}
		n := be.Uint32(head[8:])
		if f.Group == 0 || n > raftstore.PayloadFrameMax {
			return nil, malformed("payload frame of group %d with %d bytes", f.Group, n)
		}
		if f.Data, err = grow(r, nil, int(n)); err != nil {
			return nil, err
		}
		list = append(list, f)
		size += payloadHead + len(f.Data)
	}
	return list, nil
}

// frameThere says whether a whole frame can be had without waiting.
func frameThere(r *bufio.Reader) bool {
	if r.Buffered() < payloadHead {
		return false
	}
	head, err := r.Peek(payloadHead)
	return err == nil && int64(r.Buffered()) >= payloadHead+int64(be.Uint32(head[8:]))
}
