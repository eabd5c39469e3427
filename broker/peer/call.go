package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/quic-go/quic-go"

	"weida/raftstore"
)

// A call on the wire is a transfer whose head has the length callMark: behind it the length of the request (4 bytes)
// and the request. The answer is streamTaken and what was answered, or streamRefused and the reason.
const callMark = math.MaxUint16

// CallMax bounds a request, and its answer, in bytes.
const CallMax = 8 << 20

// CallsMax is how many calls of a node are on their way; others wait for a place.
const CallsMax = 32

// Call asks a node, and returns what its Options.Serve answered. What that refused is *StreamRefusedError; *DownError
// is a node that cannot be reached, and then nothing was asked. Any other error leaves open whether it was done.
func (l *Links) Call(ctx context.Context, to raftstore.NodeID, request []byte) ([]byte, error) {
	if len(request) > CallMax {
		return nil, fmt.Errorf("peer: request of %d bytes, at most %d", len(request), CallMax)
	}
	k := l.link(to)
	if k == nil {
		return nil, &DownError{to}
	}
	p := k.pair.Load()
	if p == nil {
		return nil, &DownError{to}
	}
	return p.call(ctx, request)
}

func (p *pair) call(ctx context.Context, request []byte) ([]byte, error) {
	to := p.link.id
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	select {
	case p.calling <- struct{}{}:
		defer func() { <-p.calling }()
	case <-ctx.Done():
	}
	s, err := p.conn[kindPayload].OpenStreamSync(ctx)
	if err != nil {
		if p.ctx.Err() != nil {
			return nil, &DownError{to}
		}
		return nil, fmt.Errorf("peer: call of node %d: %w", to, err)
	}
	defer context.AfterFunc(ctx, func() { giveUp(s) })()
	b := be.AppendUint32(be.AppendUint16(nil, callMark), uint32(len(request)))
	_, written := s.Write(append(b, request...))
	if written == nil {
		written = s.Close()
	}
	answer, err := io.ReadAll(io.LimitReader(s, CallMax+2)) // a refusal may have come before all was written
	switch {
	case written != nil && (err != nil || len(answer) == 0 || answer[0] != streamRefused):
		return nil, callFailed(ctx, to, written)
	case err != nil:
		return nil, callFailed(ctx, to, err)
	case len(answer) == 0 || len(answer) > CallMax+1:
		giveUp(s)
		return nil, fmt.Errorf("peer: call of node %d: %w", to, malformed("answer of %d bytes", len(answer)))
	case answer[0] == streamRefused:
		return nil, &StreamRefusedError{Node: to, Reason: string(answer[1:])}
	}
	return answer[1:], nil
}

// callFailed prefers the caller's reason to that of the stream it gave up.
func callFailed(ctx context.Context, to raftstore.NodeID, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("peer: call of node %d: %w", to, err)
}

// serveCall answers one call.
func (p *pair) serveCall(s *quic.Stream) {
	request, err := readRequest(s)
	if err != nil {
		giveUp(s)
		p.protest(err)
		return
	}
	serve := p.link.links.o.Serve
	if serve == nil || !p.enter() { // its incarnation is over
		refuseTransfer(s, "this node takes no calls")
		return
	}
	p.leave()
	answer, err := serve(p.ctx, p.link.id, request)
	if err == nil && len(answer) > CallMax {
		err = fmt.Errorf("the answer has %d bytes, at most %d", len(answer), CallMax)
	}
	if err != nil {
		refuseTransfer(s, err.Error())
		return
	}
	if _, err := s.Write(append([]byte{streamTaken}, answer...)); err == nil {
		_ = s.Close() // it is cancelled if this fails: the caller is gone
	}
}

func readRequest(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, cutShort(err)
	}
	n := be.Uint32(size[:])
	if n > CallMax {
		return nil, malformed("request of %d bytes", n)
	}
	return grow(r, nil, int(n))
}

// errCall is the head of a transfer that is a call.
var errCall = errors.New("peer: a call")

// Reachable says whether a node's link stands now.
func (l *Links) Reachable(node raftstore.NodeID) bool {
	k := l.link(node)
	return k != nil && k.pair.Load() != nil
}
