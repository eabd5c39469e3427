package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// rig is a node on a real directory and real QUIC, and a client's key that it trusts.
type rig struct {
	t      *testing.T
	dir    string
	config broker.Config
	node   *broker.Node
	key    *endpoint.Identity
	trust  *endpoint.Trust
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	node := r.identity("node")
	r.key = r.identity("client")
	r.trust = endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{node.Fingerprint(): endpoint.RoleNode})
	r.config = broker.Config{
		Dir: filepath.Join(r.dir, "n1"), Listen: "127.0.0.1:0", Identity: node,
		Trust:      endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{r.key.Fingerprint(): endpoint.RoleClient}),
		MessageMax: 8 << 20,
	}
	r.start()
	for _, name := range []string{"demo", "other"} {
		if err := r.node.MakeQueue(t.Context(), name, control.QueueSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) identity(name string) *endpoint.Identity {
	r.t.Helper()
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), r.dir, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.node, err = broker.Open(r.config); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop() {
	if r.node == nil {
		return
	}
	if err := r.node.Close(); err != nil {
		r.t.Error(err)
	}
	r.node = nil
}

func (r *rig) options(id *endpoint.Identity, nodes *endpoint.Trust) client.Options {
	return client.Options{Addrs: []string{r.node.Addr().String()}, Identity: id, Trust: nodes}
}

func (r *rig) client() *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), r.options(r.key, r.trust))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

func (r *rig) producer(c *client.Client, want wire.Want) *client.Producer {
	r.t.Helper()
	p, err := c.Producer(r.t.Context(), "demo", client.ProducerOptions{Want: want})
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func publish(t *testing.T, p *client.Producer, body string) client.Result {
	t.Helper()
	res, err := p.Publish(t.Context(), client.Message{Body: strings.NewReader(body), Length: int64(len(body))})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// take consumes n messages and accepts the first accept of them.
func take(t *testing.T, c *client.Client, sub string, n, accept int) []string {
	t.Helper()
	k, err := c.Consumer(t.Context(), "demo", client.ConsumerOptions{Subscription: sub, Limit: uint64(n)})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var got []string
	for d, err := range k.Deliveries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d/%d %s", d.Offset, d.Attempt, b))
		if len(got) <= accept {
			if err := d.Accept(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if stale, err := k.Flush(t.Context()); err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
	return got
}

// TestFirstMessage: evidence as asked, what was accepted stays away, the rest comes again after a restart.
func TestFirstMessage(t *testing.T) {
	r := newRig(t)
	c := r.client()
	for i, want := range []wire.Want{wire.Stored(wire.Written), wire.Stored(wire.Flushed), wire.Accepted()} {
		p := r.producer(c, want)
		res := publish(t, p, fmt.Sprint("m", i))
		if res.Outcome != client.OK || !res.Evidence.Covers(want) || res.Committed != (want.Replicas > 0) {
			t.Fatalf("%v: %+v", want, res)
		}
		if res.Committed && res.Offset != uint64(i) {
			t.Errorf("offset %d, want %d", res.Offset, i)
		}
		if err := p.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(take(t, c, "s", 3, 1)); got != "[0/1 m0 1/1 m1 2/1 m2]" {
		t.Fatal(got)
	}
	c.Close()
	r.stop()
	r.start()
	if got := fmt.Sprint(take(t, r.client(), "s", 2, 2)); got != "[1/2 m1 2/2 m2]" {
		t.Fatal(got)
	}
}

// TestBodies: every size comes back byte for byte, around the border between inline and large.
func TestBodies(t *testing.T) {
	r := newRig(t)
	c := r.client()
	p := r.producer(c, wire.Stored(wire.Flushed))
	var bodies [][]byte
	for _, n := range []int{0, 1, 255, wire.InlineMax - 1, wire.InlineMax, wire.InlineMax + 1, 200_000, 3 << 20} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*7 + n)
		}
		bodies = append(bodies, b)
		res, err := p.Publish(t.Context(), client.Message{Body: bytes.NewReader(b), Length: int64(n)})
		if err != nil || res.Outcome != client.OK || res.Evidence != wire.Stored(wire.Flushed) {
			t.Fatalf("%d bytes: %+v %v", n, res, err)
		}
	}
	c.Close()
	r.stop()
	r.start()
	c = r.client()
	k, err := c.Consumer(t.Context(), "demo", client.ConsumerOptions{Limit: uint64(len(bodies))})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	i := 0
	for d, err := range k.Deliveries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil || !bytes.Equal(b, bodies[i]) || d.Offset != uint64(i) {
			t.Fatalf("message %d (offset %d): %d bytes, want %d, %v", i, d.Offset, len(b), len(bodies[i]), err)
		}
		i++
	}
	if i != len(bodies) {
		t.Errorf("%d of %d came", i, len(bodies))
	}
}

// TestManyInOrder: asynchronous publishing keeps the order, and every message has one result.
func TestManyInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client()
	p := r.producer(c, wire.Stored(wire.Written))
	const n = 20_000
	results := make(chan client.Result, n)
	for i := range n {
		m := client.Message{Body: strings.NewReader(fmt.Sprint(i)), Length: -1}
		if err := p.Send(t.Context(), m, func(r client.Result) { results <- r }); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	offsets := make(map[uint64]uint64)
	for range n {
		res := <-results
		if res.Outcome != client.OK || !res.Committed {
			t.Fatalf("%+v", res)
		}
		offsets[res.Seq] = res.Offset
	}
	for seq := range uint64(n) {
		if offsets[seq+1] != seq {
			t.Fatalf("sequence %d has offset %d", seq+1, offsets[seq+1])
		}
	}
	got := take(t, c, "s", n, n)
	for i, s := range got {
		if s != fmt.Sprintf("%d/1 %d", i, i) {
			t.Fatalf("delivery %d is %s", i, s)
		}
	}
}

// TestStopAnswersEverything: a node that stops in order leaves nobody in doubt. What it read is answered, the rest is
// refused, and the queue holds exactly what was confirmed.
func TestStopAnswersEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.producer(r.client(), wire.Stored(wire.Flushed))
	large := r.producer(r.client(), wire.Stored(wire.Flushed))
	var mu sync.Mutex
	var confirmed []string
	flowing := make(chan struct{})
	var once sync.Once
	var sent atomic.Int64
	result := func(body string) func(client.Result) {
		sent.Add(1)
		return func(res client.Result) {
			switch {
			case res.Outcome == client.OK:
				mu.Lock()
				confirmed = append(confirmed, fmt.Sprintf("%d/1 %s", res.Offset, body))
				if len(confirmed) == 100 {
					once.Do(func() { close(flowing) })
				}
				mu.Unlock()
			case res.Outcome != client.Refused || res.Err.Code != wire.Stopping:
				t.Errorf("%s: %v %v", body, res.Outcome, res.Err)
			}
			sent.Add(-1)
		}
	}
	var senders sync.WaitGroup
	senders.Go(func() {
		for i := 0; ; i++ {
			body := fmt.Sprint("m", i)
			m := client.Message{Body: strings.NewReader(body), Length: int64(len(body))}
			if p.Send(t.Context(), m, result(body)) != nil {
				sent.Add(-1) // it was not taken
				return
			}
		}
	})
	stopped := make(chan struct{})
	senders.Go(func() { // a body that stands still
		m := client.Message{Body: blocking(stopped), Length: 1 << 20}
		if large.Send(t.Context(), m, result("large")) != nil {
			sent.Add(-1)
		}
	})
	<-flowing
	r.stop()
	close(stopped)
	senders.Wait()
	for _, p := range []*client.Producer{p, large} {
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("somebody was left in doubt: %v", err)
		}
	}
	if n := sent.Load(); n != 0 {
		t.Errorf("%d messages have no end", n)
	}
	r.start()
	slices.SortFunc(confirmed, func(a, b string) int { return offsetOf(a) - offsetOf(b) })
	if got := take(t, r.client(), "s", len(confirmed), 0); !slices.Equal(got, confirmed) {
		t.Errorf("%d confirmed, and the queue holds others", len(confirmed))
	}
	c := r.client()
	if res := publish(t, r.producer(c, wire.Stored(wire.Written)), "next"); res.Offset != uint64(len(confirmed)) {
		t.Errorf("%d confirmed, the next offset is %d: something refused was stored", len(confirmed), res.Offset)
	}
}

// blocking gives some bytes, and no more until the channel is closed; then zeros for ever.
func blocking(until <-chan struct{}) io.Reader {
	return io.MultiReader(io.LimitReader(zeros{}, 100_000), waiting{until}, zeros{})
}

type waiting struct{ until <-chan struct{} }

func (w waiting) Read([]byte) (int, error) {
	<-w.until
	return 0, io.EOF
}

func offsetOf(s string) (n int) {
	if _, err := fmt.Sscanf(s, "%d/", &n); err != nil {
		panic(err)
	}
	return n
}

// TestRefusals: each typed, each without a trace in the queue (T-33, D-11).
func TestRefusals(t *testing.T) {
	r := newRig(t)
	c := r.client()
	open := func(queue string, want wire.Want) error {
		_, err := c.Producer(t.Context(), queue, client.ProducerOptions{Want: want})
		return err
	}
	code := func(err error, want wire.Code) {
		t.Helper()
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	code(open("nowhere", wire.Accepted()), wire.UnknownQueue)
	code(open("demo", wire.Replicated(2, wire.Written)), wire.NotOffered)
	code(open("demo", wire.Want{Persistence: wire.Written}), wire.NoLevel)
	_, err := c.Consumer(t.Context(), "nowhere", client.ConsumerOptions{})
	code(err, wire.UnknownQueue)
	_, err = c.Consumer(t.Context(), "demo", client.ConsumerOptions{Subscription: "~x"})
	code(err, wire.NotAllowed)

	p := r.producer(c, wire.Stored(wire.Written))
	big := int64(8<<20 + 1)
	res, err := p.Publish(t.Context(), client.Message{Body: io.LimitReader(zeros{}, big), Length: big})
	if err != nil || res.Outcome != client.Refused || res.Err.Code != wire.TooLarge {
		t.Errorf("%+v %v", res, err)
	}
	res, err = p.Publish(t.Context(),
		client.Message{Body: strings.NewReader("x"), Length: 1, Want: wire.Replicated(3, wire.Flushed)})
	if err != nil || res.Outcome != client.Refused || res.Err.Code != wire.NotOffered {
		t.Errorf("%+v %v (D-15)", res, err)
	}
	if res := publish(t, p, "fine"); res.Outcome != client.OK || res.Offset != 0 {
		t.Errorf("a refused message took an offset: %+v", res)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestStrangers: a key that is not trusted, on either side, gets nowhere.
func TestStrangers(t *testing.T) {
	r := newRig(t)
	stranger := r.identity("stranger")
	c, err := client.Dial(t.Context(), r.options(stranger, r.trust))
	if err == nil {
		defer c.Close()
		_, err = c.Producer(t.Context(), "demo", client.ProducerOptions{Want: wire.Accepted()})
	}
	var unreachable *endpoint.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "trust list") {
		t.Errorf("a stranger: %v", err)
	}
	nobody := endpoint.NewTrust(nil)
	_, err = client.Dial(t.Context(), r.options(r.key, nobody))
	var untrusted *endpoint.UntrustedError
	if !errors.As(err, &untrusted) {
		t.Errorf("a node that is not trusted: %v", err)
	}
}
