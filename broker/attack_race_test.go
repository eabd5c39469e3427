package broker

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

// attacker is a client that expects nothing: every stream may end at any moment, but must end.
type attacker struct {
	*rig
	rnd  *rand.Rand
	conn *endpoint.Conn
}

// stream opens a stream, sends the frames and hands each answer to see until the stream ends or see says so.
func (a *attacker) stream(first []wire.Frame, see func(wire.Frame, io.Writer) bool) {
	stream, err := a.conn.OpenStreamSync(a.ctx)
	if err != nil {
		return
	}
	defer stream.CancelRead(0)
	defer func() { _ = stream.Close() }()
	_ = stream.SetDeadline(time.Now().Add(patience))
	var b []byte
	for _, f := range first {
		b = wire.Append(b, f)
	}
	if _, err := stream.Write(b); err != nil {
		return
	}
	r := wire.NewReader(stream)
	for {
		f, err := r.Next()
		if err != nil || !see(f, stream) {
			return
		}
	}
}

// Queues that come and go under producers, consumers, peeks, purges and retirements: each life is a queue of
// its own, no message has two answers, and every stream comes to its end.
func TestLivesOfOneName(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	roles := map[endpoint.Fingerprint]endpoint.Role{r.client.Fingerprint(): endpoint.RoleAdmin}
	r.close()
	r.config.Trust = r.config.Trust.With(roles)
	r.open()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for k := range 6 {
		a := &attacker{rig: r, rnd: rand.New(rand.NewPCG(seed, uint64(k))), conn: r.dial()}
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				switch a.rnd.IntN(6) {
				case 0, 1:
					var frames []wire.Frame
					id := ""
					if a.rnd.IntN(2) == 0 {
						id = fmt.Sprintf("p%d", a.rnd.IntN(3))
					}
					frames = append(frames, &wire.OpenProducer{Queue: "demo", Producer: id, Want: wire.Stored(wire.Flushed)})
					m := 1 + a.rnd.IntN(40)
					for seq := 1; seq <= m; seq++ {
						frames = append(frames, &wire.Publish{Seq: uint64(seq), Low: 1, Body: []byte(fmt.Sprint(k, n, seq))})
					}
					left := m
					a.stream(frames, func(f wire.Frame, _ io.Writer) bool {
						switch f := f.(type) {
						case *wire.EvidenceFrame:
							left -= int(f.Count)
						case *wire.Refused, *wire.Indeterminate:
							left--
						}
						if left < 0 {
							t.Errorf("more answers than messages")
						}
						return left > 0
					})
				case 2, 3:
					count := 0
					a.stream([]wire.Frame{&wire.OpenConsumer{
						Queue: "demo", Subscription: []string{"", "s"}[a.rnd.IntN(2)], Credit: 1 << 40,
					}}, func(f wire.Frame, w io.Writer) bool {
						d, ok := f.(*wire.Deliver)
						if !ok {
							return true
						}
						count++
						_, _ = w.Write(wire.Append(nil, &wire.Settle{
							Offset: d.Offset, Attempt: d.Attempt, Term: d.Term, Verb: wire.Verb(1 + count%3),
						}))
						return count < 20
					})
				case 4:
					a.stream([]wire.Frame{&wire.OpenPeek{Queue: "demo", Count: 10}}, func(wire.Frame, io.Writer) bool { return true })
				case 5:
					f := []wire.Frame{
						&wire.Purge{Queue: "demo"}, &wire.Retire{Queue: "demo", Producer: "p1"},
						&wire.Unsubscribe{Queue: "demo", Subscription: "s"},
					}[a.rnd.IntN(3)]
					a.stream([]wire.Frame{f}, func(wire.Frame, io.Writer) bool { return true })
				}
			}
		})
	}
	for range 5 {
		r.change(remove("demo", time.Duration(rand.IntN(3))*10*time.Millisecond))
		r.gone("demo")
		r.make("demo", control.QueueSpec{})
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	close(stop)
	r.change(remove("demo", 0))
	r.gone("demo")
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-r.ctx.Done():
		t.Fatal("a stream does not end")
	}
}
