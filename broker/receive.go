package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/wire"
	"weida/raftstore"
	"weida/segment"
)

// receive reads a large body from its stream into a file, in pieces.
func (p *producer) receive(m *wire.Publish) (raftstore.BodyWriter, *wire.Error) {
	waiting, cancel := context.WithTimeout(p.reading, bodyStall)
	defer cancel()
	stream, err := p.session.bodies.Take(waiting, m.Stream)
	if err != nil {
		if why := p.whyEnded(); why != nil {
			return nil, why
		}
		return nil, &wire.Error{Code: wire.BodyBroken, Detail: "its stream did not come"}
	}
	defer stream.ReleaseStreamCredit()
	p.session.node.counters.bodyBytes.Add(int64(m.Length))
	defer p.session.node.counters.bodyBytes.Add(-int64(m.Length))
	defer context.AfterFunc(p.reading, func() {
		code := wire.ConnectionLost
		if why := p.whyEnded(); why != nil {
			code = why.Code
		}
		stream.CancelRead(quic.StreamErrorCode(code))
	})()
	body, err := p.queue.group.NewBody(int64(m.Length))
	if err != nil {
		stream.CancelRead(quic.StreamErrorCode(refusal(err)))
		p.heed(err)
		return nil, p.session.told(p.queue, err)
	}
	digest, werr := copyBody(body, stream, m.Length)
	if why := p.whyEnded(); werr != nil && why != nil {
		werr = why
	}
	if werr == nil {
		if err := body.Finish(digest); err != nil {
			werr = p.session.told(p.queue, err)
		}
	}
	if werr != nil {
		stream.CancelRead(quic.StreamErrorCode(werr.Code))
		body.Abort()
		return nil, werr
	}
	return body, nil
}

// pacedReader wants bodyPace bytes, or the end, within every bodyStall: a body may take long, but whoever
// trickles one cannot keep its place.
type pacedReader struct {
	*quic.ReceiveStream
	until time.Time // when the bytes of this stretch must have come
	came  int       // of them
}

func (r *pacedReader) Read(b []byte) (int, error) {
	if r.until.IsZero() || r.came >= bodyPace {
		r.until, r.came = time.Now().Add(bodyStall), 0
		if err := r.SetReadDeadline(r.until); err != nil {
			return 0, err
		}
	}
	n, err := r.ReceiveStream.Read(b)
	r.came += n
	return n, err
}

func copyBody(w raftstore.BodyWriter, stream *quic.ReceiveStream, length uint64) (
	digest segment.Digest, _ *wire.Error,
) {
	r := wire.NewReader(&pacedReader{ReceiveStream: stream})
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
