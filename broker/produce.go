package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// batchItems bounds the messages of one proposal.
const batchItems = 256

// publishCommand is what every message's log command looks like: the body's commit record stands beside it.
var publishCommand = (&queue.Command{Kind: queue.Publish}).Append(nil)

// producer is one stream that publishes to one queue.
type producer struct {
	session *session
	queue   *nodeQueue
	reign   *reign
	want    wire.Want
	out     *outbox
	reading context.Context // ends when no more bodies are read: with the session, the node's work or the queue
	left    chan struct{}   // closed when a message was not answered because another node leads; the stream ends
	leaving sync.Once

	mu    sync.Mutex
	count int   // guarded by mu; messages without an answer
	bytes int64 // guarded by mu

	// owned by the reading goroutine
	slot  uint64 // of a producer with an id; 0 without
	known uint64 // of a producer with an id: above what the queue had seen when the stream was opened
	last  uint64 // highest sequence so far, of one without an id
	*parcel
	messages []message
	size     int64
	before   int // messages of the last proposal
	void     int // messages refused at once
}

// parcel is the memory of one proposal. The group gives it back when it has been written and applied.
type parcel struct {
	items  []raftstore.Item
	bodies []byte // the small ones, one behind the other
}

var parcels = sync.Pool{New: func() any { return new(parcel) }}

func (p *parcel) free() {
	clear(p.items)
	p.items, p.bodies = p.items[:0], p.bodies[:0]
	parcels.Put(p)
}

func (s *session) produce(ctx context.Context, stream *quic.Stream, r *wire.Reader, open wire.OpenProducer) {
	p, opened, refused := s.openProducer(ctx, open)
	if refused != nil {
		s.refuse(stream, refused)
		return
	}
	defer p.queue.leave()
	reading, stop := context.WithCancel(ctx)
	p.reading = reading
	defer stop()
	defer context.AfterFunc(s.node.work, stop)()
	p.out.add(opened)
	p.wake()
	var writer, watch sync.WaitGroup
	writer.Go(func() {
		if err := p.out.run(stream); err != nil {
			stream.CancelRead(0) // the client is gone; the reader ends, too
			stream.CancelWrite(0)
		}
	})
	ended := make(chan struct{})
	watch.Go(func() { // when the queue goes, what has arrived is answered and no more is read
		code := wire.QueueDeleted
		select {
		case <-p.queue.gone:
		case <-p.reign.over:
			code = wire.LeaderChanged
		case <-p.left:
			code = wire.LeaderChanged
		case <-ended:
			return
		}
		stop()
		stream.CancelRead(quic.StreamErrorCode(code))
		hurry(stream)
	})
	err := p.read(ctx, r)
	if answered := p.drain(ctx); err == nil && answered {
		err = p.whyEnded()
	}
	if err != nil {
		p.out.add(s.ending(err))
	}
	p.out.close()
	writer.Wait()
	close(ended)
	watch.Wait()
}

// hurry gives the client stopPatience to read what is written to it: it must not hold up what waits for
// the stream's end.
func hurry(stream *quic.Stream) {
	if err := stream.SetWriteDeadline(time.Now().Add(stopPatience)); err != nil {
		stream.CancelWrite(0)
	}
}

// whyEnded says why this side ended a stream on which everything that was read has its answer.
func (p *producer) whyEnded() *wire.Error {
	select {
	case <-p.queue.gone:
		return p.session.node.gone(p.queue)
	case <-p.reign.over:
		return p.session.node.moved(p.queue)
	case <-p.left:
		return p.session.node.moved(p.queue)
	default:
	}
	if p.session.node.work.Err() != nil {
		return stopping() // which says that what has no answer was not read
	}
	return nil
}

// openProducer admits the stream. A producer with an id is registered first, which is in the log (W-31).
func (s *session) openProducer(ctx context.Context, open wire.OpenProducer) (*producer, *wire.Opened, *wire.Error) {
	q, r, refused := s.find(ctx, open.Queue)
	if refused != nil {
		return nil, nil, refused
	}
	if !q.offer().Covers(open.Want) {
		return nil, nil, notOffered(q, open.Want)
	}
	if q.closed.Load() {
		return nil, nil, &wire.Error{Code: wire.QueueClosing}
	}
	p := &producer{
		session: s, queue: q, reign: r, want: open.Want, out: newOutbox(), parcel: parcels.Get().(*parcel),
		left: make(chan struct{}),
	}
	opened := &wire.Opened{
		Offer: q.offer(), MessageMax: uint64(q.messageMax(s.node.c.MessageMax)),
		InFlight: inFlightMessagesMax, InFlightSize: inFlightBytesMax,
	}
	if !q.enter() {
		return nil, nil, s.node.gone(q)
	}
	if open.Producer != "" {
		if refused := p.register(ctx, open.Producer, opened); refused != nil {
			q.leave()
			return nil, nil, refused
		}
	}
	return p, opened, nil
}

// register makes the producer's id known to the queue, or finds it there.
func (p *producer) register(ctx context.Context, id string, opened *wire.Opened) *wire.Error {
	e, err := p.session.ask(ctx, p.queue, queue.Command{
		Kind: queue.Register, Producer: id, Identity: [32]byte(p.session.peer), Session: p.reign.session(),
	})
	switch {
	case err != nil:
		return err
	case e.Kind == queue.Owned:
		return &wire.Error{Code: wire.ProducerOwned, Detail: "The id was " + quote(id)}
	case e.Kind == queue.ProducersFull:
		return &wire.Error{Code: wire.TooManyProducers, Detail: fmt.Sprintf("The limit is %d", queue.ProducersMax)}
	}
	p.slot, p.known, opened.Low, opened.Next = e.Slot, e.Next, e.Low, e.Next
	return nil
}

// read takes messages off the stream until it ends; the error is what the client did wrong.
func (p *producer) read(ctx context.Context, r *wire.Reader) *wire.Error {
	for {
		if !r.Buffered() {
			p.propose(ctx)
		}
		p.out.await()
		f, err := r.Next()
		if err != nil {
			p.propose(ctx)
			return readError(err)
		}
		m, ok := f.(*wire.Publish)
		if !ok {
			p.propose(ctx)
			return &wire.Error{Code: wire.Malformed, Detail: "a producer's stream carries PUBLISH frames only"}
		}
		if p.slot == 0 && m.Seq <= p.last {
			p.propose(ctx)
			return &wire.Error{Code: wire.BadSequence, Detail: fmt.Sprintf("%d came after %d", m.Seq, p.last)}
		}
		p.last = m.Seq
		p.publish(ctx, m)
	}
}

// publish admits one message or refuses it at once.
func (p *producer) publish(ctx context.Context, m *wire.Publish) {
	msg := message{
		seq: m.Seq, size: int64(len(m.Body)), want: m.Want, within: time.Duration(m.Within) * time.Millisecond,
	}
	if msg.want.IsZero() {
		msg.want = p.want
	}
	if err := p.admit(m, msg); err != nil {
		p.refused(msg.seq, err)
		if p.void++; p.void%voidFrames == 0 {
			p.session.brake.pay(ctx, voidFrames*voidCost)
		}
		if m.Large {
			p.session.refuseBody(p.reading, m.Stream, err.Code)
		}
		return
	}
	item := raftstore.Item{Command: publishCommand, HasBody: true}
	if p.slot != 0 {
		c := queue.Command{Kind: queue.PublishFrom, Slot: p.slot, Seq: m.Seq, Low: m.Low}
		item.Command = c.Append(nil)
	}
	if m.Large {
		p.propose(ctx) // what came before it does not wait for the body
		body, err := p.receive(m)
		if err != nil {
			p.unreceived(msg, err)
			return
		}
		item.Large = body
	} else {
		item.Inline = m.Body // copied below, once it is clear into which parcel
	}
	cost := int64(item.Size())
	if len(p.items) == batchItems || p.size+cost > raftstore.MaxBatchBytes {
		p.propose(ctx)
	}
	if !m.Large {
		start := len(p.bodies)
		p.bodies = append(p.bodies, m.Body...) // where it moves, earlier items keep what they have
		item.Inline = p.bodies[start:len(p.bodies):len(p.bodies)]
	}
	if p.messages == nil {
		p.messages = make([]message, 0, p.before)
	}
	p.items = append(p.items, item)
	p.messages = append(p.messages, msg)
	p.size += cost
}

func (p *producer) admit(m *wire.Publish, msg message) *wire.Error {
	limit := p.queue.messageMax(p.session.node.c.MessageMax)
	switch {
	case !p.queue.offer().Covers(msg.want):
		return notOffered(p.queue, msg.want)
	case m.Large && m.Length > uint64(limit) || msg.size > limit:
		size := max(m.Length, uint64(msg.size))
		return &wire.Error{Code: wire.TooLarge, Detail: fmt.Sprintf("%d bytes, at most %d", size, limit)}
	case len(m.Headers) > 0:
		return &wire.Error{Code: wire.NotOffered, Detail: "Headers are not built yet; publish without them"}
	case p.slot != 0 && (m.Seq == 0 || m.Low > m.Seq):
		return &wire.Error{
			Code: wire.BadSequence, Detail: fmt.Sprintf("%d with a lowest unresolved sequence of %d", m.Seq, m.Low),
		}
	}
	if p.slot == 0 || m.Seq >= p.known { // what may be there already has its answer from the queue
		if err := p.queue.full(max(int64(m.Length), msg.size)); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count >= inFlightMessagesMax || p.bytes+msg.size > inFlightBytesMax {
		return &wire.Error{Code: wire.InFlightExceeded}
	}
	p.count++
	p.bytes += msg.size
	return nil
}

// propose hands what has gathered to the group. A full inbox is waited for: the client feels it as a
// stream that is not read.
func (p *producer) propose(ctx context.Context) {
	if len(p.items) == 0 {
		return
	}
	taken, items, messages := p.parcel, p.items, p.messages
	p.parcel, p.messages, p.size, p.before = parcels.Get().(*parcel), nil, 0, len(items)
	pr := &proposal{items: len(items), messages: messages, to: p, free: taken.free}
	if err := p.queue.proposeWaiting(ctx, pr, items); err != nil {
		for i, msg := range messages {
			if items[i].Large != nil {
				items[i].Large.Abort()
			}
			p.turnedAway(msg, err)
		}
		taken.free()
		return
	}
	if p.accept(messages) {
		p.wake()
	}
}

// accept answers those that want no more than a place in the group's inbox, which they have.
func (p *producer) accept(messages []message) (any bool) {
	var run evidenceRun
	for i := range messages {
		if messages[i].want.Replicas > 0 {
			continue
		}
		m := message{seq: messages[i].seq, size: messages[i].size, offset: messages[i].seq}
		if !run.extend(&m) {
			p.evidence(wire.Accepted(), run)
			run = newRun(&m)
		}
	}
	p.evidence(wire.Accepted(), run)
	return run.count > 0
}
