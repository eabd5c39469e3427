package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing/iotest"

	"weida/raftstore"
)

// stream is a long transfer. Its receiver reads it when it is closed or cut.
type stream struct {
	from, to *node
	life     uint64 // of the receiver
	epoch    uint64
	ctx      context.Context
	stop     context.CancelFunc
	head     []byte
	b        bytes.Buffer
	limit    int // bytes after which it is cut; negative: never
}

var errLost = errors.New("the transfer is lost")

// Stream implements raftstore.Transport.
func (n *node) Stream(ctx context.Context, id raftstore.NodeID, head []byte) (raftstore.Stream, error) {
	to, w := n.node(id), n.net
	s := &stream{from: n, to: to, life: to.life, epoch: w.link(n.id, id).epoch, head: bytes.Clone(head), limit: -1}
	s.ctx, s.stop = context.WithCancel(ctx)
	if n.rng.IntN(1000) < w.streamCuts {
		n.stats.fault("transfer cut")
		s.limit = n.rng.IntN([]int{3_000, 80_000}[n.rng.IntN(2)])
	}
	if !s.open() || s.limit == 0 {
		s.stop()
		return nil, errLost
	}
	n.stats.streams++
	w.streams = append(w.streams, s)
	return s, nil
}

func (s *stream) open() bool {
	w := s.from.net
	return w.passes(s.from, s.to) && w.link(s.from.id, s.to.id).epoch == s.epoch && !s.to.stands()
}

func (s *stream) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil || !s.open() {
		s.lost()
		return 0, errLost
	}
	if s.limit >= 0 && s.b.Len()+len(p) > s.limit {
		s.b.Write(p[:max(s.limit-s.b.Len(), 0)])
		s.end()
		_ = s.receive(s.part()) // the sender hears of the cut
		return 0, errLost
	}
	return s.b.Write(p)
}

// part is what came, and an error behind it.
func (s *stream) part() io.Reader { return io.MultiReader(&s.b, iotest.ErrReader(errLost)) }

func (s *stream) receive(r io.Reader) error {
	err := s.to.host.ReceiveStream(s.from.id, s.head, r)
	s.to.wake()
	return err
}

// end takes it off the list; it is false the second time.
func (s *stream) end() bool {
	w := s.from.net
	i := slices.Index(w.streams, s)
	if i < 0 {
		return false
	}
	w.streams = slices.Delete(w.streams, i, i+1)
	s.stop()
	return true
}

// lost is the end of a transfer of which one side is gone, or has lost its way to the other, or does not want it any
// more: the receiver, if it lives, reads what came, and an error.
func (s *stream) lost() {
	if !s.end() {
		return
	}
	s.from.stats.fault("transfer lost")
	if s.to.up && s.to.life == s.life {
		s.to.alive(s.to.between(50, 5*millisecond), func() { _ = s.receive(s.part()) }) // nobody hears
	}
}

// Close implements raftstore.Stream.
func (s *stream) Close() error {
	if s.ctx.Err() != nil || !s.open() {
		s.lost()
		return errLost
	}
	s.end()
	return s.receive(&s.b)
}

// Cancel implements raftstore.Stream.
func (s *stream) Cancel() { s.lost() }
