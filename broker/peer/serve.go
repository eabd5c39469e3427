package peer

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"weida/raftstore"
)

// readingMax bounds the bytes of exchanges that are being read on one connection; beyond it exchanges are refused.
const readingMax = 32 << 20

// owedMax bounds the refusals of frames that waited for a gap; they go back with the next answer.
const owedMax = 1 << 10

// arrivals is what comes on the raft connection, on its way to the receiver.
type arrivals struct {
	p       *pair
	reading atomic.Int64 // bytes of exchanges that are being read

	mu    sync.Mutex // held while the receiver gets frames, so that they come in order
	order order
	owed  []raftstore.Refusal
	stop  func() bool // of the timer of the oldest gap; nil if there is none
	dead  bool
}

func (a *arrivals) open(p *pair) {
	a.p = p
	a.order = newOrder(p.link.links.o.GapWait)
}

func (a *arrivals) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = true
	a.order = newOrder(0) // what waits is void
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

func (p *pair) acceptExchanges() {
	for n := 0; ; n++ {
		s, err := p.conn[kindRaft].AcceptStream(p.ctx)
		if err != nil {
			return
		}
		p.link.links.work.Go(func() {
			defer s.ReleaseStreamCredit()
			if hook := p.link.links.o.hooks.exchange; hook != nil {
				hook(n)
			}
			if err := p.arrivals.serve(s); err != nil {
				giveUp(s)
				p.protest(err)
			}
		})
	}
}

// serve reads one exchange to its end, hands over what may be, and answers.
func (a *arrivals) serve(s *quic.Stream) error {
	if err := s.SetDeadline(time.Now().Add(exchangePatience)); err != nil {
		return err
	}
	frames, size, err := readHead(s)
	if err != nil {
		return err
	}
	count := &a.p.link.count
	defer a.reading.Add(int64(-size))
	if a.reading.Add(int64(size)) > readingMax {
		count.busy.Add(1)
		giveUp(s)
		return nil
	}
	buf, err := grow(s, nil, size)
	if err != nil {
		return err
	}
	if err := drained(s); err != nil {
		return err
	}
	list, err := parseFrames(buf, frames)
	if err != nil {
		return err
	}
	if hook := a.p.link.links.o.hooks.parsed; hook != nil {
		hook()
	}
	count.received.exchanges.Add(1)
	count.received.raftFrames.Add(uint64(frames))
	count.received.raftBytes.Add(uint64(size))
	refusals := a.take(list)
	if len(refusals) > 0 {
		if _, err := s.Write(encodeRefusals(refusals)); err != nil {
			return err
		}
	}
	return s.Close()
}

func readHead(r io.Reader) (frames, size int, err error) {
	var head [exchangeHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, cutShort(err)
	}
	f, n := be.Uint32(head[:]), be.Uint32(head[4:])
	if f == 0 || n > exchangeMax || uint64(f)*frameHead > uint64(n) {
		return 0, 0, malformed("exchange of %d frames and %d bytes", f, n)
	}
	return int(f), int(n), nil
}

// parseFrames takes an exchange apart. The frames lie in b.
func parseFrames(b []byte, frames int) ([]numbered, error) {
	list := make([]numbered, 0, frames)
	for range frames {
		if len(b) < frameHead {
			return nil, malformed("exchange with a frame that is cut short")
		}
		group, number, n := raftstore.GroupID(be.Uint64(b)), be.Uint64(b[8:]), int(be.Uint32(b[16:]))
		b = b[frameHead:]
		if group == 0 || number == 0 || n > len(b) || n > RaftFrameMax {
			return nil, malformed("frame %d of group %d with %d bytes", number, group, n)
		}
		list = append(list, numbered{number, raftstore.Frame{Group: group, Data: b[:n:n]}})
		b = b[n:]
	}
	if len(b) > 0 {
		return nil, malformed("exchange with %d bytes left over", len(b))
	}
	return list, nil
}

func encodeRefusals(list []raftstore.Refusal) []byte {
	b := make([]byte, 0, len(list)*refusalLen)
	for _, f := range list {
		b = append(be.AppendUint64(b, uint64(f.Group)), byte(f.Why))
	}
	return b
}

// take hands over the frames whose turn it is, and returns what was refused, of these and of earlier ones.
func (a *arrivals) take(list []numbered) []raftstore.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.p.link.links.o.Clock.Now()
	ready := make([]raftstore.Frame, 0, len(list))
	for _, f := range list {
		ready = a.order.take(ready, f, now)
	}
	refusals := append(a.owed, a.hand(ready)...)
	a.owed = nil
	if len(a.order.next) > 2*groupsMax {
		a.p.link.links.work.Go(func() { a.p.fail(Renewed) })
	}
	a.arm(now)
	return refusals[:min(len(refusals), refusalsMax)]
}

// expire is called when the oldest gap may have become too old.
func (a *arrivals) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop = nil
	if a.dead {
		return
	}
	now := a.p.link.links.o.Clock.Now()
	if more := a.hand(a.order.expire(nil, now)); len(a.owed)+len(more) <= owedMax {
		a.owed = append(a.owed, more...)
	}
	a.arm(now)
}

// arm sees to it that expire is called when the oldest gap is too old. The caller holds mu.
func (a *arrivals) arm(now time.Time) {
	count := &a.p.link.count
	count.gaps.Add(a.order.lost)
	count.late.Add(a.order.late)
	a.order.lost, a.order.late = 0, 0
	d, gaps := a.order.due(now)
	if gaps && a.stop == nil && !a.dead {
		a.stop = a.p.link.links.o.Clock.AfterFunc(d, a.expire)
	}
}

// hand gives the receiver frames. The caller holds mu.
func (a *arrivals) hand(frames []raftstore.Frame) []raftstore.Refusal {
	if len(frames) == 0 || !a.p.enter() {
		return nil
	}
	defer a.p.leave()
	return a.p.receiver().ReceiveRaft(a.p.link.id, frames)
}
