package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"weida/raftstore"
)

// A transfer on the wire: the length of its head (2 bytes), the head, the body, the end. The answer is one byte, and
// behind streamRefused the reason.
const (
	streamTaken   = 1
	streamRefused = 2

	reasonMax = 512 // bytes

	// answerPatience is how long the reason of a refusal may take behind the refusal itself, and the head of a transfer.
	answerPatience = 5 * time.Second
)

// outgoing is a raftstore.Stream.
type outgoing struct {
	p         *pair
	s         *quic.Stream
	cancelled atomic.Bool
	once      sync.Once // gives the place back
	refused   error     // what the receiver said, if that was heard
}

func (p *pair) openStream(ctx context.Context, head []byte) (raftstore.Stream, error) {
	if len(head) > raftstore.StreamHeadMax {
		panic(fmt.Sprintf("bug: peer: head of %d bytes", len(head)))
	}
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, &DownError{p.link.id}
	}
	o := &outgoing{p: p}
	var err error
	if o.s, err = p.conn[kindPayload].OpenStreamSync(ctx); err != nil {
		o.leave()
		return nil, o.failed(err)
	}
	o.s.SetPriority(urgentLast, true)
	b := append([]byte{byte(len(head) >> 8), byte(len(head))}, head...)
	if _, err := o.s.Write(b); err != nil {
		o.Cancel()
		return nil, o.failed(err)
	}
	p.link.count.sent.streams.Add(1)
	return o, nil
}

func (o *outgoing) leave() { o.once.Do(func() { <-o.p.places }) }

// failed says what an error of the network means.
func (o *outgoing) failed(err error) error {
	if o.cancelled.Load() {
		return ErrCancelled
	}
	if o.p.ctx.Err() != nil {
		return &DownError{o.p.link.id}
	}
	return fmt.Errorf("peer: transfer to node %d: %w", o.p.link.id, err)
}

// Write sends a piece. What the receiver has against the transfer is *StreamRefusedError.
func (o *outgoing) Write(b []byte) (int, error) {
	n, err := o.s.Write(b)
	o.p.link.count.sent.streamBytes.Add(uint64(n))
	if err == nil {
		return n, nil
	}
	var stream *quic.StreamError
	if errors.As(err, &stream) && stream.Remote {
		if err := o.answer(time.Now().Add(answerPatience)); err != nil {
			return n, err
		}
	}
	return n, o.failed(err)
}

// Close ends the transfer and waits for the receiver's answer.
func (o *outgoing) Close() error {
	defer o.leave()
	if err := o.s.Close(); err != nil {
		// It was cancelled: here, or there, where the reason comes from.
		return o.answer(time.Now().Add(answerPatience))
	}
	return o.answer(time.Time{})
}

// answer reads what the receiver says; a zero deadline waits for as long as it takes.
func (o *outgoing) answer(deadline time.Time) error {
	if o.refused != nil {
		return o.refused
	}
	if err := o.s.SetReadDeadline(deadline); err != nil {
		return err
	}
	b := make([]byte, 1+reasonMax+1)
	n, err := io.ReadFull(o.s, b)
	switch {
	case err == nil:
		o.s.CancelRead(0)
		return malformed("answer of more than %d bytes", reasonMax)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return o.failed(err)
	case n == 1 && b[0] == streamTaken:
		return nil
	case n > 0 && b[0] == streamRefused:
		o.refused = &StreamRefusedError{Node: o.p.link.id, Reason: string(b[1:n])}
		return o.refused
	}
	return o.failed(malformed("answer to a transfer"))
}

// Cancel gives the transfer up.
func (o *outgoing) Cancel() {
	o.cancelled.Store(true)
	giveUp(o.s)
	o.leave()
}

func (p *pair) acceptTransfers() {
	for {
		s, err := p.conn[kindPayload].AcceptStream(p.ctx)
		if err != nil {
			return
		}
		p.link.links.work.Go(func() {
			defer s.ReleaseStreamCredit()
			p.serveTransfer(s)
		})
	}
}

// serveTransfer hands one transfer to the receiver and answers.
func (p *pair) serveTransfer(s *quic.Stream) {
	head, err := readStreamHead(s)
	places := p.serving
	if errors.Is(err, errCall) {
		places, err = p.answering, nil
	}
	if err != nil {
		giveUp(s)
		p.protest(err)
		return
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		p.link.count.busy.Add(1)
		refuseTransfer(s, "too many at a time")
		return
	}
	if head == nil {
		p.serveCall(s)
		return
	}
	p.link.count.received.streams.Add(1)
	in := &incoming{p: p, s: s}
	if !p.enter() { // its incarnation is over
		giveUp(s)
		return
	}
	p.leave()
	if err = p.receiver().ReceiveStream(p.link.id, head, in); err == nil {
		err = in.atEnd()
	}
	if err != nil {
		refuseTransfer(s, err.Error())
		return
	}
	if _, err := s.Write([]byte{streamTaken}); err == nil {
		_ = s.Close() // it is cancelled if this fails: the sender is gone
	}
}

func readStreamHead(s *quic.Stream) ([]byte, error) {
	if err := s.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(s, size[:]); err != nil {
		return nil, cutShort(err)
	}
	n := int(be.Uint16(size[:]))
	if n == callMark {
		return nil, errCall // the request has to come in the same time
	}
	if n > raftstore.StreamHeadMax {
		return nil, malformed("head of %d bytes", n)
	}
	head := make([]byte, n)
	if _, err := io.ReadFull(s, head); err != nil {
		return nil, cutShort(err)
	}
	return head, s.SetReadDeadline(time.Time{})
}

// refuseTransfer says why, as far as it fits, and reads no more.
func refuseTransfer(s *quic.Stream, reason string) {
	b := append([]byte{streamRefused}, reason[:min(len(reason), reasonMax)]...)
	// The sender may be gone; there is nobody left to tell.
	if _, err := s.Write(b); err == nil {
		_ = s.Close()
	}
	s.CancelRead(0)
}

// incoming is what a receiver reads of a transfer.
type incoming struct {
	p   *pair
	s   *quic.Stream
	eof bool
}

func (i *incoming) Read(b []byte) (int, error) {
	n, err := i.s.Read(b)
	i.p.link.count.received.streamBytes.Add(uint64(n))
	switch {
	case errors.Is(err, io.EOF):
		i.eof = true
	case err != nil:
		err = fmt.Errorf("peer: transfer from node %d: %w", i.p.link.id, err)
	}
	return n, err
}

// atEnd says whether the receiver took all of it.
func (i *incoming) atEnd() error {
	if i.eof {
		return nil
	}
	var b [1]byte
	switch n, err := io.ReadFull(i, b[:]); {
	case n > 0:
		return errors.New("there was more than what was taken")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}
