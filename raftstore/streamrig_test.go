package raftstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing/iotest"
)

// nodeStream is a stream between two nodes of a cluster. Its receiver reads it when it is closed or cut, on the
// sender's goroutine: nothing has to run beside.
type nodeStream struct {
	n    *node
	nth  int // of all streams
	to   NodeID
	life [2]uint64
	ctx  context.Context
	stop context.CancelFunc
	head []byte
	b    bytes.Buffer
}

var errLostStream = errors.New("the stream is lost")

// stream opens a stream.
func (n *node) stream(ctx context.Context, to NodeID, head []byte) (Stream, error) {
	n.c.streams++
	s := &nodeStream{n: n, nth: n.c.streams, to: to, life: [2]uint64{n.life, n.c.node(to).life}, head: bytes.Clone(head)}
	s.ctx, s.stop = context.WithCancel(ctx)
	if !s.open() || n.c.cutStream != nil && n.c.cutStream(s) == 0 {
		return nil, errLostStream
	}
	return s, nil
}

func (s *nodeStream) open() bool {
	from, to := s.n, s.n.c.node(s.to)
	return from.up && to.up && s.life == [2]uint64{from.life, to.life} && !s.n.c.cut[[2]NodeID{from.id, to.id}]
}

func (s *nodeStream) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil || !s.open() {
		return 0, errLostStream
	}
	if cut := s.n.c.cutStream; cut != nil {
		if at := cut(s); at >= 0 && s.b.Len()+len(p) > at {
			s.b.Write(p[:max(at-s.b.Len(), 0)])
			err := s.receive(io.MultiReader(&s.b, iotest.ErrReader(errLostStream)))
			s.stop()
			return 0, errors.Join(errLostStream, err)
		}
	}
	s.n.c.streamed += int64(len(p))
	return s.b.Write(p)
}

func (s *nodeStream) receive(r io.Reader) error {
	return s.n.c.node(s.to).host.ReceiveStream(s.n.id, s.head, r)
}

func (s *nodeStream) Close() error {
	if s.ctx.Err() != nil || !s.open() {
		return errLostStream
	}
	return s.receive(&s.b)
}

func (s *nodeStream) Cancel() { s.stop() }
