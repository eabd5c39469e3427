package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
	"weida/segment"
)

// batchItems bounds the messages of one proposal.
const batchItems = 256

// publishCommand is what every message's log command looks like: the body's commit record stands beside it.
var publishCommand = (&queue.Command{Kind: queue.Publish}).Append(nil)

// producer is one stream that publishes to one queue.
type producer struct {
	session *session
	queue   *nodeQueue
	want    wire.Want
	out     *outbox

	mu    sync.Mutex
	count int   // guarded by mu; messages without an answer
	bytes int64 // guarded by mu

	// owned by the reading goroutine
	last     uint64 // highest sequence so far
	items    []raftstore.Item
	messages []message
	size     int64
}

func (s *session) produce(ctx context.Context, stream *quic.Stream, r *wire.Reader, open wire.OpenProducer) {
	q, refused := s.openProducer(open)
	if refused != nil {
		s.refuse(stream, refused)
		return
	}
	p := &producer{session: s, queue: q, want: open.Want, out: newOutbox()}
	p.out.add(&wire.Opened{
		Offer: q.offer(), MessageMax: uint64(s.node.c.MessageMax),
		InFlight: inFlightMessagesMax, InFlightSize: inFlightBytesMax,
	})
	p.wake()
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := p.out.run(stream); err != nil {
			stream.CancelRead(0) // the client is gone; the reader ends, too
		}
	})
	err := p.read(ctx, r)
	if answered := p.drain(ctx); err == nil && answered && s.node.work.Err() != nil {
		err = stopping() // which says that what has no answer was not read
	}
	if err != nil {
		p.out.add(&wire.ErrorFrame{Code: err.Code, Detail: err.Detail})
	}
	p.out.close()
	writer.Wait()
}

func (s *session) openProducer(open wire.OpenProducer) (*nodeQueue, *wire.Error) {
	q, ok := s.node.queues[open.Queue]
	switch {
	case !ok:
		return nil, &wire.Error{Code: wire.UnknownQueue, Detail: fmt.Sprintf("The name was %q", open.Queue)}
	case open.Producer != "":
		return nil, &wire.Error{
			Code:   wire.NotOffered,
			Detail: "Producer ids, which make retries safe, are not built yet; publish without one",
		}
	case !q.offer().Covers(open.Want):
		return nil, notOffered(q, open.Want)
	}
	return q, nil
}

func notOffered(q *nodeQueue, want wire.Want) *wire.Error {
	axis := "persistence"
	if want.Replicas > q.offer().Replicas {
		axis = "replicas"
	}
	return &wire.Error{Code: wire.NotOffered, Detail: fmt.Sprintf("Wanted %v, the queue offers up to %v; "+
		"it has one replica and falls short in %s", want, q.offer(), axis)}
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
		if m.Seq <= p.last {
			p.propose(ctx)
			return &wire.Error{Code: wire.BadSequence, Detail: fmt.Sprintf("%d came after %d", m.Seq, p.last)}
		}
		p.last = m.Seq
		p.publish(ctx, m)
	}
}

// publish admits one message or refuses it at once.
func (p *producer) publish(ctx context.Context, m *wire.Publish) {
	msg := message{seq: m.Seq, size: int64(len(m.Body)), want: m.Want}
	if msg.want.IsZero() {
		msg.want = p.want
	}
	if err := p.admit(m, msg); err != nil {
		p.refused(msg, err)
		if m.Large {
			p.session.refuseBody(ctx, m.Stream, err.Code)
		}
		return
	}
	item := raftstore.Item{Command: publishCommand, HasBody: true}
	if m.Large {
		p.propose(ctx) // what came before it does not wait for the body
		body, err := p.receive(ctx, m)
		if err != nil {
			p.answered(msg)
			p.refused(msg, err)
			return
		}
		item.Large = body
	} else {
		item.Inline = append([]byte(nil), m.Body...)
	}
	cost := int64((&raftstore.Batch{Items: []raftstore.Item{item}}).Size())
	if len(p.items) == batchItems || p.size+cost > raftstore.MaxBatchBytes {
		p.propose(ctx)
	}
	p.items = append(p.items, item)
	p.messages = append(p.messages, msg)
	p.size += cost
}

func (p *producer) admit(m *wire.Publish, msg message) *wire.Error {
	limit := p.session.node.c.MessageMax
	switch {
	case !p.queue.offer().Covers(msg.want):
		return notOffered(p.queue, msg.want)
	case m.Large && m.Length > uint64(limit) || msg.size > limit:
		size := max(m.Length, uint64(msg.size))
		return &wire.Error{Code: wire.TooLarge, Detail: fmt.Sprintf("%d bytes, at most %d", size, limit)}
	case len(m.Headers) > 0:
		return &wire.Error{Code: wire.NotOffered, Detail: "Headers are not built yet; publish without them"}
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

// receive reads a large body from its stream into a file, in pieces.
func (p *producer) receive(ctx context.Context, m *wire.Publish) (raftstore.BodyWriter, *wire.Error) {
	waiting, cancel := context.WithTimeout(ctx, bodyStall)
	defer cancel()
	stream, err := p.session.bodies.Take(waiting, m.Stream)
	if err != nil {
		return nil, &wire.Error{Code: wire.BodyBroken, Detail: "its stream did not come"}
	}
	defer stream.ReleaseStreamCredit()
	work := p.session.node.work
	defer context.AfterFunc(work, func() { stream.CancelRead(quic.StreamErrorCode(wire.Stopping)) })()
	body, err := p.queue.group.NewBody(int64(m.Length))
	if err != nil {
		stream.CancelRead(quic.StreamErrorCode(refusal(err)))
		return nil, &wire.Error{Code: refusal(err), Detail: err.Error()}
	}
	digest, werr := copyBody(body, stream, m.Length)
	if werr != nil && work.Err() != nil {
		werr = stopping()
	}
	if werr == nil {
		if err := body.Finish(digest); err != nil {
			werr = &wire.Error{Code: refusal(err), Detail: err.Error()}
		}
	}
	if werr != nil {
		stream.CancelRead(quic.StreamErrorCode(werr.Code))
		body.Abort()
		return nil, werr
	}
	return body, nil
}

// deadlineReader gives every read its own deadline, so that a body may take long but not stand still.
type deadlineReader struct{ *quic.ReceiveStream }

func (r deadlineReader) Read(b []byte) (int, error) {
	if err := r.SetReadDeadline(time.Now().Add(bodyStall)); err != nil {
		return 0, err
	}
	return r.ReceiveStream.Read(b)
}

func copyBody(w raftstore.BodyWriter, stream *quic.ReceiveStream, length uint64) (
	digest segment.Digest, _ *wire.Error,
) {
	r := wire.NewReader(deadlineReader{stream})
	f, err := r.Next()
	var format *wire.FormatError
	if err != nil && !errors.As(err, &format) {
		return digest, &wire.Error{Code: wire.BodyBroken, Detail: "its stream ended before its first byte"}
	}
	if head, ok := f.(*wire.BodyHead); err != nil || !ok || head.Length != length {
		return digest, &wire.Error{Code: wire.BodyMismatch, Detail: "its stream does not start with the announced length"}
	}
	var h segment.Hasher
	in := r.Rest()
	piece := make([]byte, streamPiece)
	for left := length; left > 0; {
		n, err := in.Read(piece[:min(left, streamPiece)])
		if n > 0 {
			h.Write(piece[:n])
			if _, err := w.Write(piece[:n]); err != nil {
				return digest, &wire.Error{Code: refusal(err), Detail: err.Error()}
			}
			left -= uint64(n)
		}
		if err != nil && left > 0 {
			detail := fmt.Sprintf("%d of %d bytes came", length-left, length)
			return digest, &wire.Error{Code: wire.BodyBroken, Detail: detail}
		}
	}
	var want segment.Digest
	if _, err := io.ReadFull(in, want[:]); err != nil {
		return digest, &wire.Error{Code: wire.BodyBroken, Detail: "its digest did not come"}
	}
	if n, err := in.Read(piece[:1]); n > 0 || !errors.Is(err, io.EOF) {
		return digest, &wire.Error{Code: wire.BodyMismatch, Detail: "its stream goes on behind it"}
	}
	if digest = h.Sum(); digest != want {
		return digest, &wire.Error{Code: wire.BodyMismatch, Detail: "the digest is not that of the bytes"}
	}
	return digest, nil
}

// propose hands what has gathered to the group. A full inbox is waited for: the client feels it as a
// stream that is not read.
func (p *producer) propose(ctx context.Context) {
	if len(p.items) == 0 {
		return
	}
	items, messages := p.items, p.messages
	p.items, p.messages, p.size = nil, nil, 0
	err := p.queue.proposeWaiting(ctx, &proposal{items: len(items), messages: messages, to: p}, items)
	if err != nil {
		for i, msg := range messages {
			if items[i].Large != nil {
				items[i].Large.Abort()
			}
			p.answered(msg)
			p.refused(msg, &wire.Error{Code: refusal(err), Detail: err.Error()})
		}
		return
	}
	for _, msg := range messages {
		if msg.want.Replicas == 0 { // Accepted: the message has its place in the group's inbox
			p.evidence(msg, wire.Accepted(), 0, 0)
		}
	}
	p.wake()
}

// proposeWaiting is propose, waiting for room in the group's inbox.
func (q *nodeQueue) proposeWaiting(ctx context.Context, pr *proposal, items []raftstore.Item) error {
	for {
		room := q.roomAhead()
		err := q.propose(pr, items)
		if !errors.Is(err, raftstore.ErrFull) {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return raftstore.ErrStopped
		}
	}
}

// drain waits until every message has its answer; false if ctx ends first.
func (p *producer) drain(ctx context.Context) bool {
	for {
		room := p.queue.roomAhead()
		p.mu.Lock()
		n := p.count
		p.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *producer) answered(m message) {
	p.mu.Lock()
	p.count--
	p.bytes -= m.size
	p.mu.Unlock()
}

func (p *producer) wake() { p.out.wake() }

func (p *producer) evidence(m message, e wire.Evidence, offset, term uint64) {
	p.answered(m)
	p.out.add(&wire.EvidenceFrame{First: m.seq, Count: 1, Evidence: e, Offset: offset, Term: term})
}

func (p *producer) refused(m message, err *wire.Error) {
	p.out.add(&wire.Refused{Seq: m.seq, Code: err.Code, Detail: clip(err.Detail)})
	p.wake()
}

func (p *producer) indeterminate(m message, code wire.Code, detail string) {
	p.answered(m)
	p.out.add(&wire.Indeterminate{Seq: m.seq, Code: code, Detail: clip(detail)})
}

// dropped answers a proposal that got no entry. Who wanted no more than Accepted has its answer.
func (p *producer) dropped(messages []message, o raftstore.Outcome) {
	for _, m := range messages {
		switch {
		case m.want.Replicas == 0:
		case o.Kind == raftstore.Refused:
			p.answered(m)
			p.refused(m, &wire.Error{Code: refusal(o.Err), Detail: o.Err.Error()})
		default:
			p.indeterminate(m, wire.StoreFailed, o.Err.Error())
		}
	}
	p.wake()
}

func clip(s string) string { return s[:min(len(s), wire.DetailMax)] }
