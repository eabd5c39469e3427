package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// model is a broker with one queue that knows the truth: what it stored, and of whom. It loses its
// connections at the events that it is told, over real QUIC.
type model struct {
	t    *testing.T
	ctx  context.Context
	l    *endpoint.Listener
	dial client.Options

	mu       sync.Mutex
	stored   []string               // guarded by mu; bodies by offset
	known    map[string]*memory     // guarded by mu; by producer id
	cuts     map[int]bool           // guarded by mu; events at which a connection ends
	stops    bool                   // guarded by mu; it says STOPPING instead of just going
	events   int                    // guarded by mu
	connects int                    // guarded by mu
	refuse   func(string) wire.Code // guarded by mu; of a body that is about to be stored, or nil
	wrong    []string               // guarded by mu; what a client must not do
	inFlight uint64
	size     uint64
}

// memory is what the queue knows of a producer.
type memory struct {
	low, next uint64
	offsets   map[uint64]uint64
}

func newModel(t *testing.T) *model {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	dir := t.TempDir()
	id := func(name string) *endpoint.Identity {
		i, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	node, key := id("node"), id("client")
	l, err := endpoint.Listen(endpoint.ListenOptions{
		Addr: "127.0.0.1:0", Identity: node,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleClient}),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, ctx: ctx, l: l, dial: client.Options{
		Addrs: []string{l.Addr().String()}, Identity: key,
		Trust:  endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{node.Fingerprint(): endpoint.RoleNode}),
		Jitter: func() float64 { return 0 },
	}}
	m.reset()
	var serving sync.WaitGroup
	serving.Go(m.accept)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return m
}

// reset makes the queue empty and forgets every plan.
func (m *model) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored, m.known, m.cuts, m.wrong = nil, make(map[string]*memory), make(map[int]bool), nil
	m.stops, m.events, m.connects, m.refuse = false, 0, 0, nil
	m.inFlight, m.size = 8, 1<<20
}

func (m *model) client() *client.Client {
	m.t.Helper()
	c, err := client.Dial(m.ctx, m.dial)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *model) accept() {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := m.l.Accept(m.ctx)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.connects++
		m.mu.Unlock()
		conns.Go(func() { m.serve(conn) })
	}
}

// cut counts an event and says whether the connection ends at it.
func (m *model) cut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events++
	return m.cuts[m.events]
}

func (m *model) complain(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

func (m *model) serve(conn *endpoint.Conn) {
	defer conn.Close()
	in := new(endpoint.BodyStreams)
	var others sync.WaitGroup
	defer others.Wait()
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	others.Go(func() { in.Serve(ctx, conn) })
	for {
		stream, err := conn.AcceptStream(ctx)
		if err != nil {
			return
		}
		others.Go(func() {
			defer stream.ReleaseStreamCredit()
			if !m.stream(ctx, conn, in, stream) {
				conn.Close()
			}
		})
	}
}

// stream serves a producer; false if the connection ends now.
func (m *model) stream(ctx context.Context, conn *endpoint.Conn, in *endpoint.BodyStreams, s *quic.Stream) bool {
	r := wire.NewReader(s)
	f, err := r.Next()
	if err != nil {
		return true
	}
	open, ok := f.(*wire.OpenProducer)
	if !ok {
		m.complain("opened with %+v", f)
		return false
	}
	id := open.Producer
	send := func(f wire.Frame) { _, _ = s.Write(wire.Append(nil, f)) } // a client that is gone reads nothing
	if m.cut() {
		return m.end(send)
	}
	send(m.register(id))
	if m.cut() {
		return m.end(send)
	}
	flight := &flight{m: m, id: id, send: send}
	for {
		f, err := r.Next()
		if err != nil {
			flight.answer()
			if errors.Is(err, io.EOF) {
				_ = s.Close()
			}
			return true
		}
		p, ok := f.(*wire.Publish)
		if !ok {
			m.complain("a producer sent %+v", f)
			return false
		}
		body := string(p.Body)
		if p.Large {
			if body, err = receive(ctx, in, p); err != nil {
				send(&wire.Refused{Seq: p.Seq, Code: wire.BodyBroken, Detail: err.Error()})
				continue
			}
		}
		if m.cut() { // before it is stored
			return flight.end()
		}
		flight.publish(p, body)
		if m.cut() { // before its answer
			return flight.end()
		}
		if !r.Buffered() || len(flight.open) == int(m.inFlight) {
			flight.answer()
			if m.cut() {
				return flight.end()
			}
		}
	}
}

// end is how a connection ends: false.
func (m *model) end(send func(wire.Frame)) bool {
	m.mu.Lock()
	stops := m.stops
	m.mu.Unlock()
	if stops {
		send(&wire.ErrorFrame{Code: wire.Stopping})
		return true // the client leaves
	}
	return false
}

func (m *model) register(id string) *wire.Opened {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &wire.Opened{Offer: flushed, MessageMax: 1 << 30, InFlight: m.inFlight, InFlightSize: m.size}
	if id == "" {
		return o
	}
	k := m.known[id]
	if k == nil {
		k = &memory{low: 1, next: 1, offsets: make(map[uint64]uint64)}
		m.known[id] = k
	}
	o.Low, o.Next = k.low, k.next
	return o
}

func receive(ctx context.Context, in *endpoint.BodyStreams, p *wire.Publish) (string, error) {
	s, err := in.Take(ctx, p.Stream)
	if err != nil {
		return "", err
	}
	defer s.ReleaseStreamCredit()
	r := wire.NewReader(s)
	if _, err := r.Next(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(r.Rest())
	if err != nil {
		return "", err
	}
	if len(b) != int(p.Length)+16 || digestOf(b[:p.Length]) != [16]byte(b[p.Length:]) {
		return "", errors.New("not whole")
	}
	return string(b[:p.Length]), nil
}

// flight is what one stream has without an answer.
type flight struct {
	m    *model
	id   string
	send func(wire.Frame)
	open []wire.Frame
	size int
	last uint64
}

// publish stores a message, or finds it stored, and keeps its answer.
func (f *flight) publish(p *wire.Publish, body string) {
	m := f.m
	if f.size += len(p.Body); len(f.open) >= int(m.inFlight) || len(f.open) > 0 && uint64(f.size) > m.size {
		m.complain("%d messages of %d bytes are under way", len(f.open)+1, f.size)
	}
	if p.Low == 0 || p.Low > p.Seq || f.id == "" && p.Seq <= f.last {
		m.complain("sequence %d after %d with low %d", p.Seq, f.last, p.Low)
	}
	f.last = p.Seq
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.known[f.id]
	if k == nil {
		k = &memory{offsets: make(map[uint64]uint64)} // of a stream without an id: nothing is remembered
	}
	if p.Seq < k.low {
		f.open = append(f.open, &wire.Refused{Seq: p.Seq, Code: wire.SequenceRetired})
		m.wrong = append(m.wrong, fmt.Sprintf("sequence %d is below low %d", p.Seq, k.low))
		return
	}
	k.low = max(k.low, p.Low)
	for seq := range k.offsets {
		if seq < k.low {
			delete(k.offsets, seq)
		}
	}
	k.next = max(k.next, p.Seq+1)
	if m.refuse != nil {
		if code := m.refuse(body); code != wire.OK { // before it looks whether it has the message
			f.open = append(f.open, &wire.Refused{Seq: p.Seq, Code: code})
			return
		}
	}
	offset, had := k.offsets[p.Seq]
	if !had {
		offset = uint64(len(m.stored))
		m.stored = append(m.stored, body)
		k.offsets[p.Seq] = offset
	} else if m.stored[offset] != body {
		m.wrong = append(m.wrong, fmt.Sprintf("sequence %d is %.20q and was %.20q", p.Seq, body, m.stored[offset]))
	}
	f.open = append(f.open, &wire.EvidenceFrame{First: p.Seq, Count: 1, Evidence: written, Offset: offset, Term: 1})
}

// answer sends what is owed, runs as one frame.
func (f *flight) answer() {
	var run *wire.EvidenceFrame
	for _, a := range f.open {
		e, ok := a.(*wire.EvidenceFrame)
		if ok && run != nil && run.First+run.Count == e.First && run.Offset+run.Count == e.Offset {
			run.Count++
			continue
		}
		if run != nil {
			f.send(run)
			run = nil
		}
		if ok {
			run = e
		} else {
			f.send(a)
		}
	}
	if run != nil {
		f.send(run)
	}
	f.open, f.size = nil, 0
}

// end is how a connection ends: a broker that stops answers first what it has read.
func (f *flight) end() bool {
	f.m.mu.Lock()
	stops := f.m.stops
	f.m.mu.Unlock()
	if stops {
		f.answer()
	}
	return f.m.end(f.send)
}
