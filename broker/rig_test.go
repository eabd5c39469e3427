package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
	"weida/segment"
)

// patience bounds a hang and decides nothing else.
const patience = 8 * time.Minute

// rig is a node on a directory of its own and a client whose key it trusts, over real QUIC on loopback.
type rig struct {
	t      *testing.T
	ctx    context.Context
	config Config
	client *endpoint.Identity
	trust  *endpoint.Trust // of the client
	node   *Node
	conns  []*endpoint.Conn
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	dir := t.TempDir()
	r := &rig{t: t, ctx: ctx}
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	if r.client, err = endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "client"); err != nil {
		t.Fatal(err)
	}
	r.trust = endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{id.Fingerprint(): endpoint.RoleNode})
	r.config = Config{
		Dir: filepath.Join(dir, "n1"), Listen: "127.0.0.1:0", Identity: id,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{r.client.Fingerprint(): endpoint.RoleClient}),
	}
	if change != nil {
		change(&r.config)
	}
	r.open()
	for _, name := range []string{"demo", "other"} {
		r.make(name, control.QueueSpec{})
	}
	t.Cleanup(func() {
		if r.node != nil {
			r.close()
		}
	})
	return r
}

func (r *rig) open() {
	r.t.Helper()
	node, err := Open(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.node = node
}

// make applies a queue and waits until it takes messages.
func (r *rig) make(name string, spec control.QueueSpec) {
	r.t.Helper()
	if err := r.node.MakeQueue(r.ctx, name, spec); err != nil {
		r.t.Fatal(err)
	}
}

// groupDir is where a queue lies.
func (r *rig) groupDir(name string) string {
	return filepath.Join(r.config.Dir, "groups", fmt.Sprint(uint64(r.node.lookup(name).id)))
}

// close hangs up first, so that the node need not wait for its clients to leave.
func (r *rig) close() {
	r.t.Helper()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
	if err := r.node.Close(); err != nil {
		r.t.Error(err)
	}
	r.node = nil
}

// dial returns a connection that ends with the test.
func (r *rig) dial() *endpoint.Conn {
	r.t.Helper()
	o := endpoint.DialOptions{Identity: r.client, Trust: r.trust}
	c, err := endpoint.Dial(r.ctx, r.node.Addr().String(), o)
	for err != nil && r.ctx.Err() == nil { // a handshake takes its time on a slow machine
		c, err = endpoint.Dial(r.ctx, r.node.Addr().String(), o)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	r.conns = append(r.conns, c)
	return c
}

// line is one stream as a client sees it.
type line struct {
	*rig
	conn   *endpoint.Conn
	stream *quic.Stream
	in     *wire.Reader
	opened *wire.Opened
}

// line opens a stream and sends frames on it.
func (r *rig) line(conn *endpoint.Conn, frames ...wire.Frame) *line {
	r.t.Helper()
	stream, err := conn.OpenStreamSync(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := stream.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	l := &line{rig: r, conn: conn, stream: stream, in: wire.NewReader(stream)}
	l.send(frames...)
	return l
}

func (l *line) send(frames ...wire.Frame) {
	l.t.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.Append(b, f)
	}
	if _, err := l.stream.Write(b); err != nil {
		l.t.Fatal(err)
	}
}

// next returns the next frame; its bytes are valid until the one after it.
func (l *line) next() wire.Frame {
	l.t.Helper()
	f, err := l.in.Next()
	if err != nil {
		l.t.Fatalf("instead of a frame: %v", err)
	}
	return f
}

// frame returns the next frame, which must be a T.
func frame[T wire.Frame](l *line) T {
	l.t.Helper()
	f := l.next()
	want, ok := f.(T)
	if !ok {
		l.t.Fatalf("got %T %+v, want a %T", f, f, want)
	}
	return want
}

// end expects an ERROR frame with that code.
func (l *line) end(code wire.Code) {
	l.t.Helper()
	if got := frame[*wire.ErrorFrame](l); got.Code != code {
		l.t.Errorf("ended with %v (%s), want %v", got.Code, got.Detail, code)
	}
}

// refused expects REFUSED of that sequence.
func (l *line) refused(seq uint64, code wire.Code) {
	l.t.Helper()
	if got := frame[*wire.Refused](l); got.Seq != seq || got.Code != code {
		l.t.Errorf("refused %d with %v (%s), want %d with %v", got.Seq, got.Code, got.Detail, seq, code)
	}
}

// producer opens a stream that publishes to demo.
func (r *rig) producer(want wire.Want) *line {
	r.t.Helper()
	l := r.line(r.dial(), &wire.OpenProducer{Queue: "demo", Want: want})
	l.opened = frame[*wire.Opened](l)
	return l
}

// consumer opens a stream that consumes from demo.
func (r *rig) consumer(subscription string, credit uint64) *line {
	r.t.Helper()
	l := r.line(r.dial(), &wire.OpenConsumer{Queue: "demo", Subscription: subscription, Credit: credit})
	l.opened = frame[*wire.Opened](l)
	return l
}

// put publishes one small message that must be confirmed.
func (l *line) put(seq uint64, body string) *wire.EvidenceFrame {
	l.t.Helper()
	l.send(&wire.Publish{Seq: seq, Low: 1, Body: []byte(body)})
	e := frame[*wire.EvidenceFrame](l)
	if e.First != seq || e.Count != 1 {
		l.t.Fatalf("evidence of %d and %d more, want of %d", e.First, e.Count-1, seq)
	}
	return e
}

// get expects a delivery of a small message.
func (l *line) get(offset, attempt uint64, body string) *wire.Deliver {
	l.t.Helper()
	d := *frame[*wire.Deliver](l)
	if d.Offset != offset || d.Attempt != attempt || string(d.Body) != body || d.Digest != segment.DigestOf([]byte(body)) {
		l.t.Fatalf("delivered %d attempt %d: %.40q; want %d attempt %d: %.40q", d.Offset, d.Attempt, d.Body,
			offset, attempt, body)
	}
	return &d
}

// settle settles a delivery and expects the answer.
func (l *line) settle(d *wire.Deliver, verb wire.Verb, want wire.Code) {
	l.t.Helper()
	l.send(&wire.Settle{Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: verb})
	if got := frame[*wire.Settled](l); got.Offset != d.Offset || got.Attempt != d.Attempt || got.Code != want {
		l.t.Fatalf("settled %d attempt %d: %v, want %d attempt %d: %v", got.Offset, got.Attempt, got.Code,
			d.Offset, d.Attempt, want)
	}
}

// large sends a PUBLISH with a body on a stream of its own, which the caller fills.
func (l *line) large(seq, length uint64) *quic.SendStream {
	l.t.Helper()
	s, err := l.conn.OpenUniStreamSync(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := s.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	l.send(&wire.Publish{Seq: seq, Low: 1, Large: true, Stream: uint64(s.StreamID()), Length: length})
	return s
}

// fill writes head, body and digest to a body's stream and closes it.
func fill(s *quic.SendStream, length uint64, body []byte, digest segment.Digest) error {
	b := append(append(wire.Append(nil, &wire.BodyHead{Length: length}), body...), digest[:]...)
	_, err := s.Write(b)
	return errors.Join(err, s.Close())
}

// filled is for a body that must have been taken as a whole.
func (r *rig) filled(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// spoiled is for a body that the node may stop reading at any point, or never; its answer is what counts.
func spoiled(error) {}

// pattern is n bytes that repeat late.
func pattern(n int) []byte {
	b := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz\n"), n/37+1)[:n]
	for i := 0; i < n; i += 1021 {
		b[i] = byte(i >> 10)
	}
	return b
}
