package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quic-go/quic-go"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/zeebo/xxh3"

	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/fsync"
)

// scripted is a broker that ends each publish as the message's body says: ok, refused, below, indeterminate,
// or lost, which ends the connection. A purge of it is lost, too. To a consumer it delivers as many messages
// as may be open, all of them empty, and no more. Everything below the frames is real.
type scripted struct {
	l *endpoint.Listener
}

// startScripted starts one and names it in a context file.
func startScripted(ts *testscript.TestScript) {
	dir := ts.Getenv("WORK")
	id := func(name string) *endpoint.Identity {
		i, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
		ts.Check(err)
		return i
	}
	node, key := id("scripted"), id("client")
	l, err := endpoint.Listen(endpoint.ListenOptions{
		Addr: "127.0.0.1:0", Identity: node,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleAdmin}),
	})
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	s := &scripted{l}
	ended := make(chan struct{})
	go func() { defer close(ended); s.run(ctx) }()
	ts.Defer(func() { cancel(); _ = l.Close(); <-ended }) // the script is over
	ts.Check(os.WriteFile(filepath.Join(dir, "scripted.yaml"), fmt.Appendf(nil,
		"addresses: [%v]\nnodes: [%v]\nkeys: .\nname: client\n", l.Addr(), node.Fingerprint()), 0o600))
}

// run serves one connection after another, and one stream of each after another.
func (s *scripted) run(ctx context.Context) {
	for {
		conn, err := s.l.Accept(ctx)
		if err != nil {
			return
		}
		for {
			stream, err := conn.AcceptStream(ctx)
			if err != nil || s.serve(stream) != nil {
				conn.Close()
				break
			}
		}
	}
}

var errScripted = errors.New("as the script says")

// serve is one stream; an error ends its connection.
func (s *scripted) serve(stream *quic.Stream) error {
	r := wire.NewReader(stream)
	empty := xxh3.New128().Sum128().Bytes()
	open, delivered := uint64(0), uint64(0)
	for {
		f, err := r.Next()
		if err != nil {
			return stream.Close()
		}
		var answer wire.Frame
		switch f := f.(type) {
		case *wire.OpenProducer:
			answer = &wire.Opened{
				Offer: wire.Stored(wire.Flushed), MessageMax: 1 << 20, InFlight: 16, InFlightSize: 1 << 20,
				Low: 1, Next: 1,
			}
		case *wire.Publish:
			answer = publishAnswer(f)
		case *wire.OpenConsumer:
			answer = &wire.Opened{Offer: wire.Stored(wire.Flushed), MessageMax: 1 << 20, Low: 1, Next: 1}
		case *wire.Credit:
			var frames []byte
			for delivered < f.Limit && open < queue.UnsettledMax {
				frames = wire.Append(frames, &wire.Deliver{Offset: delivered, Attempt: 1, Term: 1, Digest: empty})
				delivered++
				open++
			}
			if _, err := stream.Write(frames); err != nil {
				return err
			}
			continue
		}
		if answer == nil {
			return errScripted
		}
		if _, err := stream.Write(wire.Append(nil, answer)); err != nil {
			return err
		}
	}
}

func publishAnswer(f *wire.Publish) wire.Frame {
	switch string(f.Body) {
	case "ok":
		return &wire.EvidenceFrame{First: f.Seq, Count: 1, Evidence: wire.Stored(wire.Flushed), Offset: f.Seq, Term: 1}
	case "refused":
		return &wire.Refused{Seq: f.Seq, Code: wire.QueueFull}
	case "below":
		return &wire.Below{Seq: f.Seq, Evidence: wire.Stored(wire.Written), Offset: f.Seq, Term: 1, Code: wire.NotOffered}
	case "indeterminate":
		return &wire.Indeterminate{Seq: f.Seq, Code: wire.StoreFailed}
	}
	return nil
}
