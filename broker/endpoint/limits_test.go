package endpoint

import (
	"context"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
)

func TestManyNewcomersProveTheirAddress(t *testing.T) {
	var n newcomers
	now := time.Unix(1000, 0)
	for i := range newcomersMax {
		if n.tooMany(now) {
			t.Fatalf("connection %d of a second has to prove its address", i)
		}
	}
	if !n.tooMany(now.Add(999 * time.Millisecond)) {
		t.Error("one more does not")
	}
	if n.tooMany(now.Add(time.Second)) {
		t.Error("the next second begins with a crowd")
	}
}

// A connection counts from its first packet until it, or its handshake, ends.
func TestDoor(t *testing.T) {
	d := &door{max: 5, oneMax: 2}
	from := func(ip string) *quic.ClientInfo {
		return &quic.ClientInfo{RemoteAddr: &net.UDPAddr{IP: net.ParseIP(ip), Port: 1}}
	}
	enter := func(ip string) (context.CancelFunc, bool) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		_, err := d.enter(ctx, from(ip), false)
		return cancel, err == nil
	}
	first, ok := enter("192.0.2.1")
	if _, second := enter("192.0.2.1"); !ok || !second {
		t.Fatal("two from one address are refused")
	}
	if _, third := enter("192.0.2.1"); third {
		t.Error("a third from one address is let in")
	}
	for range 3 {
		if _, ok := enter("127.0.0.1"); !ok {
			t.Fatal("loopback is counted as one address")
		}
	}
	if _, ok := enter("192.0.2.2"); ok {
		t.Error("a sixth connection is let in")
	}
	first()
	for d.open() == 5 { // the count falls on a goroutine of the context's
		runtime.Gosched()
	}
	if _, ok := enter("192.0.2.1"); !ok {
		t.Error("a place that was left is not given again")
	}
}

func (d *door) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// What windows grow by is shared, and comes back when a connection ends.
func TestWindowBudget(t *testing.T) {
	w := newWindows(100)
	a, b, stranger := new(quic.Conn), new(quic.Conn), new(quic.Conn)
	w.of[a], w.of[b] = 0, 0
	for _, step := range []struct {
		conn  *quic.Conn
		delta uint64
		want  bool
	}{{a, 60, true}, {b, 41, false}, {b, 40, true}, {a, 1, false}, {stranger, 0, false}} {
		if got := w.allow(step.conn, step.delta); got != step.want {
			t.Errorf("growing by %d: %v", step.delta, got)
		}
	}
	w.close(a)
	if !w.allow(b, 60) || w.allow(b, 1) {
		t.Error("what a connection had is not given again, or twice")
	}
	w.close(b)
	if w.left != 100 || len(w.of) > 0 {
		t.Errorf("%d left, %d connections", w.left, len(w.of))
	}
}

// A client that names body after body and sends none leaves only so many numbers behind, however often it does.
func TestNumbersOfBodiesThatNeverCameAreBounded(t *testing.T) {
	var b BodyStreams
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for id := range uint64(10 * wantMax) {
		if _, err := b.Take(gone, 4*id+2); err == nil {
			t.Fatal("a stream that never came was taken")
		}
		b.Drop(4*id + 1)
	}
	if n := len(b.wanted); n > wantMax {
		t.Errorf("%d numbers are kept, at most %d", n, wantMax)
	}
}

// Handshakes that come together begin one by one, and none waits longer than it may.
func TestHandshakesBeginOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turns
		const many = 3 * int(handshakeWait/handshakePace)
		began := make(chan time.Duration, many)
		start := time.Now()
		for range many {
			go func() { turn.take(t.Context()); began <- time.Since(start) }()
		}
		at := make(map[time.Duration]int)
		for range many {
			at[<-began]++
		}
		for k := range handshakeWait / handshakePace {
			if n := at[k*handshakePace]; n != 1 {
				t.Errorf("%d handshakes begin after %v", n, k*handshakePace)
			}
		}
		if n := at[handshakeWait]; n != 2*many/3 {
			t.Errorf("%d handshakes begin after %v, want all others", n, handshakeWait)
		}
		time.Sleep(time.Second)
		start = time.Now()
		if turn.take(t.Context()); time.Since(start) > 0 {
			t.Error("a handshake alone waits")
		}
	})
}
