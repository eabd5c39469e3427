package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// The QUIC probes are what the transport does alone, between two processes, with the broker's own keys and settings:
// no queue and no disk behind. A stream begins with a byte that says which probe it is.
const (
	bulkProbe   = 'b' // bytes in one direction, read and thrown away
	framedProbe = 'f' // every frame is answered by one
)

// probePiece is what bulk writes and reads at a time, in bytes.
const probePiece = 64 << 10

// frameSizes are the sizes on the wire of what one publish costs: its frame and its answer.
func frameSizes(body int) (publish, evidence int) {
	const seq = 1 << 20
	p := wire.Publish{Seq: seq, Low: seq, Body: make([]byte, body)}
	e := wire.EvidenceFrame{First: seq, Count: 1, Evidence: wire.Stored(wire.Flushed), Offset: seq, Term: 1}
	return len(wire.Append(nil, &p)), len(wire.Append(nil, &e))
}

// childQUIC answers the probes for bodies of n[0] bytes.
func childQUIC(dir string, n []int) (any, error) {
	id, err := makeKey(dir, "node")
	if err != nil {
		return nil, err
	}
	trust, err := trusting(dir, "client", endpoint.RoleClient)
	if err != nil {
		return nil, err
	}
	l, err := endpoint.Listen(endpoint.ListenOptions{Addr: "127.0.0.1:0", Identity: id, Trust: trust})
	if err != nil {
		return nil, err
	}
	go acceptProbes(l, n[0])
	return map[string]string{"addr": l.Addr().String()}, nil
}

func acceptProbes(l *endpoint.Listener, body int) {
	ctx := context.Background()
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return // it is never closed: the process is killed
		}
		go func() {
			for {
				stream, err := conn.AcceptStream(ctx)
				if err != nil {
					return
				}
				go func() {
					defer stream.ReleaseStreamCredit()
					if err := answerProbe(stream, body); err != nil {
						fmt.Fprintln(os.Stderr, "bench: QUIC probe:", err)
					}
					_ = stream.Close() // the client has gone, too
				}()
			}
		}()
	}
}

func answerProbe(s io.ReadWriter, body int) error {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(s, kind); err != nil {
		return err
	}
	switch kind[0] {
	case bulkProbe:
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}, make([]byte, probePiece))
		return err
	case framedProbe:
		return answerFrames(s, body)
	}
	return fmt.Errorf("no probe is called %q", kind)
}

// answerFrames writes the answers to all frames that one read has completed at once.
func answerFrames(s io.ReadWriter, body int) error {
	publish, evidence := frameSizes(body)
	in := make([]byte, probePiece)
	out := make([]byte, (len(in)/publish+1)*evidence)
	for part := 0; ; { // bytes of a frame that is not complete
		n, err := s.Read(in)
		part += n
		if frames := part / publish; frames > 0 {
			part -= frames * publish
			if _, err := s.Write(out[:frames*evidence]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// quicProbe is the probing side.
type quicProbe struct {
	*process
	dir      string
	conns    []*endpoint.Conn
	streams  int // of the framed probe, taking turns on the connections
	window   int // unanswered frames per stream
	publish  int // frame size in bytes
	evidence int
}

// startQUIC starts a server for the probes and connects to it as often as a broker's clients do.
func startQUIC(dir string, body, connections, streams, window int) (q *quicProbe, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	q = &quicProbe{dir: dir, streams: streams, window: window}
	q.publish, q.evidence = frameSizes(body)
	defer func() {
		if err != nil {
			err = errors.Join(err, q.end())
		}
	}()
	id, err := makeKey(dir, "client")
	if err != nil {
		return nil, err
	}
	trust, err := trusting(dir, "node", endpoint.RoleNode)
	if err != nil {
		return nil, err
	}
	var ready struct{ Addr string }
	if q.process, err = startChild(&ready, dir, "quic", body); err != nil {
		return q, err
	}
	for range connections {
		c, err := endpoint.Dial(context.Background(), ready.Addr, endpoint.DialOptions{Identity: id, Trust: trust})
		if err != nil {
			return q, err
		}
		q.conns = append(q.conns, c)
	}
	return q, nil
}

func (q *quicProbe) end() error {
	for _, c := range q.conns {
		c.Close()
	}
	var err error
	if q.process != nil {
		err = q.kill()
	}
	return errors.Join(err, os.RemoveAll(q.dir))
}

// bulk returns bytes per second through one stream.
func (q *quicProbe) bulk(ctx context.Context, d time.Duration) (float64, error) {
	s, err := q.conns[0].OpenStreamSync(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := s.Write([]byte{bulkProbe}); err != nil {
		return 0, err
	}
	piece := make([]byte, probePiece)
	write := func(d time.Duration) (rate float64, err error) {
		var bytes int
		began := time.Now()
		for time.Since(began) < d {
			n, err := s.Write(piece)
			if err != nil {
				return 0, err
			}
			bytes += n
		}
		return float64(bytes) / time.Since(began).Seconds(), nil
	}
	if _, err := write(d / 5); err != nil { // windows open, congestion control finds its rate
		return 0, err
	}
	rate, err := write(d)
	if err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, s) // ends when everything was read on the other side
	return rate, err
}

// framed returns the exchanges over all streams in a time of about d; edge is called at its beginning and its end.
func (q *quicProbe) framed(ctx context.Context, d time.Duration, edge func() error) (f passFigures, err error) {
	var answered atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for i := range q.streams {
		s, err := q.conns[i%len(q.conns)].OpenStreamSync(ctx)
		if err != nil {
			return f, err
		}
		x := &exchange{q: q, stream: s, answered: &answered, room: make(chan int, q.window)}
		x.room <- q.window
		wg.Go(func() {
			if err := x.write(sending); err != nil {
				cancel(err)
			}
			if err := s.Close(); err != nil {
				cancel(err)
			}
		})
		wg.Go(func() {
			if err := x.read(); err != nil {
				cancel(err)
			}
		})
	}
	err = errors.Join(pause(ctx, d/5), edge())
	began, before := time.Now(), answered.Load()
	if err == nil {
		err = pause(ctx, d)
	}
	f.took, f.messages = time.Since(began), answered.Load()-before
	err = errors.Join(err, edge())
	stop()
	wg.Wait()
	return f, errors.Join(err, context.Cause(ctx))
}

// exchange is one stream of the framed probe.
type exchange struct {
	q        *quicProbe
	stream   io.ReadWriter
	answered *atomic.Int64
	room     chan int // frames that may be sent; holds as many numbers as there are frames
}

// write sends all frames that there is room for at once.
func (x *exchange) write(ctx context.Context) error {
	if _, err := x.stream.Write([]byte{framedProbe}); err != nil {
		return err
	}
	frames := make([]byte, x.q.window*x.q.publish)
	for {
		n := 0
		select {
		case n = <-x.room:
		case <-ctx.Done():
			return nil
		}
		for more := true; more; {
			select {
			case k := <-x.room:
				n += k
			default:
				more = false
			}
		}
		if _, err := x.stream.Write(frames[:n*x.q.publish]); err != nil {
			return err
		}
	}
}

func (x *exchange) read() error {
	in := make([]byte, probePiece)
	for part := 0; ; {
		n, err := x.stream.Read(in)
		part += n
		if k := part / x.q.evidence; k > 0 {
			part -= k * x.q.evidence
			x.answered.Add(int64(k))
			x.room <- k
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
