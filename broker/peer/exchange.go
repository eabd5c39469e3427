package peer

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// An exchange on the wire: its head (frames, bytes that follow), then the frames, each with its group, the group's own
// number on this connection, its length and its bytes; then the end. The answer is a list of refusals, each a group
// and a reason; then the end.
const (
	exchangeHead = 4 + 4
	frameHead    = 8 + 8 + 4
	refusalLen   = 8 + 1

	// exchangeBytes is where an exchange ends when more waits; one frame may be larger.
	exchangeBytes = 256 << 10
	// exchangeMax bounds an exchange, in bytes behind its head.
	exchangeMax = exchangeBytes + frameHead + RaftFrameMax
	// refusalsMax bounds an answer.
	refusalsMax = 64 << 10
	// exchangePatience is how long an exchange may be on its way.
	exchangePatience = 5 * time.Second
	// groupsMax is how many groups have numbers on a connection; beyond it the numbers begin anew, with the connection.
	groupsMax = 1 << 19
	// batchKept is the largest memory that is used again.
	batchKept = 512 << 10
)

// batch is frames as they go onto the wire, behind room for a head. Their numbers are filled in when they leave: what
// is dropped before leaves no gap.
type batch struct {
	buf    []byte
	frames []int // where each begins
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch() *batch {
	b, ok := batches.Get().(*batch)
	if !ok {
		panic("bug: peer: a batch of another type")
	}
	b.buf, b.frames = append(b.buf[:0], make([]byte, exchangeHead)...), b.frames[:0]
	return b
}

func (b *batch) free() {
	if cap(b.buf) <= batchKept {
		batches.Put(b)
	}
}

func (b *batch) add(f raftstore.Frame) {
	b.frames = append(b.frames, len(b.buf))
	b.buf = be.AppendUint64(b.buf, uint64(f.Group))
	b.buf = be.AppendUint64(b.buf, 0)
	b.buf = be.AppendUint32(b.buf, uint32(len(f.Data)))
	b.buf = append(b.buf, f.Data...)
}

func (b *batch) size() int { return len(b.buf) - exchangeHead }

// exchanges sends frames to a node. A call begins an exchange of its own, unless one is about to begin anyway or as
// many as may be are on their way; then it is merged into the next.
type exchanges struct {
	p        *pair
	budget   int // exchanges on their way
	bytesMax int // of the window that may be taken before no exchange begins
	groups   int // that may have numbers

	mu      sync.Mutex
	dead    bool                         // guarded by mu
	queue   []*batch                     // guarded by mu
	queued  int                          // guarded by mu; bytes in queue
	flying  int                          // guarded by mu; exchanges on their way
	next    bool                         // guarded by mu; one of them has a stream or waits for it, and takes the queue
	bytes   int                          // guarded by mu; of the window, that exchanges on their way may take
	numbers map[raftstore.GroupID]uint64 // guarded by mu; the last of each group
}

func (e *exchanges) open(p *pair, h *hello) {
	e.p = p
	e.budget = min(p.link.links.o.RaftStreams, int(h.streams))
	e.bytesMax = int(h.window / 3)
	e.groups = groupsMax
	if n := p.link.links.o.hooks.groups; n > 0 {
		e.groups = n
	}
	e.numbers = make(map[raftstore.GroupID]uint64)
}

// send takes a call's frames.
func (e *exchanges) send(frames []raftstore.Frame) {
	count := &e.p.link.count
	b := newBatch()
	for _, f := range frames {
		if len(f.Data) > RaftFrameMax || f.Group == 0 {
			count.tooLarge.Add(1)
			continue
		}
		if len(b.frames) > 0 && b.size()+len(f.Data) > exchangeBytes {
			e.push(b)
			b = newBatch()
		}
		b.add(f)
	}
	if len(b.frames) == 0 {
		b.free()
		return
	}
	e.push(b)
}

func (e *exchanges) push(b *batch) {
	count := &e.p.link.count
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		count.down.Add(uint64(len(b.frames)))
		b.free()
		return
	}
	e.queue = append(e.queue, b)
	e.queued += b.size()
	for e.queued > e.p.link.links.o.PendingBytes && len(e.queue) > 1 {
		count.full.Add(uint64(len(e.queue[0].frames)))
		e.pop().free()
	}
	if !e.begin() {
		count.saturated.Add(1)
	}
}

func (e *exchanges) pop() *batch {
	b := e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	e.queued -= b.size()
	return b
}

// begin sees to it that somebody takes the queue; false means that all places are taken: whoever ends takes it. The
// caller holds mu.
func (e *exchanges) begin() bool {
	if e.next || len(e.queue) == 0 {
		return true
	}
	if e.flying >= e.budget || e.bytes >= e.bytesMax {
		return false
	}
	e.flying++
	e.next = true
	e.p.link.links.work.Go(e.run)
	return true
}

// run does one exchange after the other while something waits. It holds one place.
func (e *exchanges) run() {
	for {
		s, err := e.p.conn[kindRaft].OpenStreamSync(e.p.ctx)
		e.mu.Lock()
		e.next = false
		if err != nil || e.dead {
			e.flying--
			e.mu.Unlock()
			if err == nil {
				giveUp(s)
			}
			return
		}
		list, size := e.take()
		e.begin()
		e.mu.Unlock()
		e.exchange(s, list, size)
		e.mu.Lock()
		e.bytes -= min(size, endpoint.PeerStreamWindow)
		if e.dead || e.next || len(e.queue) == 0 || e.bytes >= e.bytesMax {
			e.flying--
			e.mu.Unlock()
			return
		}
		e.next = true
		e.mu.Unlock()
	}
}

// take takes what fits into an exchange off the queue, and gives each frame its number. The caller holds mu.
func (e *exchanges) take() (list []*batch, size int) {
	frames := 0
	if len(e.queue) == 0 {
		panic("bug: peer: an exchange of nothing")
	}
	for len(e.queue) > 0 && (size == 0 || size+e.queue[0].size() <= exchangeBytes) {
		b := e.pop()
		for _, at := range b.frames {
			group := raftstore.GroupID(be.Uint64(b.buf[at:]))
			e.numbers[group]++
			be.PutUint64(b.buf[at+8:], e.numbers[group])
		}
		list = append(list, b)
		size += b.size()
		frames += len(b.frames)
	}
	be.PutUint32(list[0].buf, uint32(frames))
	be.PutUint32(list[0].buf[4:], uint32(size))
	e.bytes += min(size, endpoint.PeerStreamWindow)
	if len(e.numbers) > e.groups {
		e.p.link.links.work.Go(func() { e.p.fail(Renewed) })
	}
	return list, size
}

// exchange does one, and frees the batches.
func (e *exchanges) exchange(s *quic.Stream, list []*batch, size int) {
	count := &e.p.link.count
	frames := 0
	for _, b := range list {
		frames += len(b.frames)
	}
	refusals, err := e.converse(s, list)
	for _, b := range list {
		b.free()
	}
	if err != nil {
		giveUp(s)
		count.failed.Add(uint64(frames))
		e.p.protest(err)
		return
	}
	count.sent.exchanges.Add(1)
	count.sent.raftFrames.Add(uint64(frames))
	count.sent.raftBytes.Add(uint64(size))
	if len(refusals) > 0 && e.p.enter() {
		defer e.p.leave()
		e.p.receiver().ReceiveRefusals(e.p.link.id, refusals)
	}
}

func (e *exchanges) converse(s *quic.Stream, list []*batch) ([]raftstore.Refusal, error) {
	// One after the other, as they were opened: side by side all of them would end late, and leave gaps meanwhile.
	s.SetPriority(urgentNext, false)
	if err := s.SetDeadline(time.Now().Add(exchangePatience)); err != nil {
		return nil, err
	}
	for i, b := range list {
		from := exchangeHead
		if i == 0 {
			from = 0
		}
		if _, err := s.Write(b.buf[from:]); err != nil {
			return nil, err
		}
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return readRefusals(s)
}

func readRefusals(r io.Reader) (list []raftstore.Refusal, err error) {
	for {
		var b [refusalLen]byte
		switch _, err := io.ReadFull(r, b[:]); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, cutShort(err)
		}
		f := raftstore.Refusal{Group: raftstore.GroupID(be.Uint64(b[:])), Why: raftstore.RefusalKind(b[8])}
		if f.Group == 0 || f.Why != raftstore.UnknownGroup && f.Why != raftstore.RetiredGroup {
			return nil, malformed("refusal of group %d: %v", f.Group, f.Why)
		}
		if len(list) == refusalsMax {
			return nil, malformed("answer of more than %d refusals", refusalsMax)
		}
		list = append(list, f)
	}
}

// cutShort: a stream that ends inside something was not written by this build.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("stream that ends too early")
	}
	return err
}

func giveUp(s *quic.Stream) {
	s.CancelRead(0)
	s.CancelWrite(0)
}

// load says how many exchanges are on their way, and how many bytes wait.
func (e *exchanges) load() (flying, pending int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flying, e.queued
}

func (e *exchanges) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead = true
	for len(e.queue) > 0 {
		b := e.pop()
		e.p.link.count.down.Add(uint64(len(b.frames)))
		b.free()
	}
}
