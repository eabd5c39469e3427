package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// again starts the next incarnation of a node at the same address.
func (r *rig) again(i int, change func(*Options)) *node {
	r.t.Helper()
	addr := r.nodes[i].addr()
	r.nodes[i].close()
	return r.next(i, addr, change)
}

// next is the next incarnation of a node that has ended.
func (r *rig) next(i int, addr string, change func(*Options)) *node {
	r.t.Helper()
	old := r.nodes[i]
	o := old.o
	o.Incarnation++
	o.Nonce[15]++
	o.Event = nil
	if change != nil {
		change(&o)
	}
	r.nodes[i] = r.listen(old.id, o, addr)
	return r.nodes[i]
}

// A node that ends and begins again is linked again, as a later incarnation, whichever side dials.
func TestRestartsAreLinkedAgain(t *testing.T) {
	r := newRig(t, 2, nil)
	r.meet()
	for range 3 {
		for i := range r.nodes {
			n, other := r.again(i, nil), r.nodes[1-i]
			n.set(other.as())
			other.got.await(t, fmt.Sprintf("down %d", n.o.Node))
			other.got.await(t, fmt.Sprintf("up %d in %d", n.o.Node, n.o.Incarnation))
			n.got.await(t, fmt.Sprintf("up %d in %d", other.o.Node, other.o.Incarnation))
			n.links.Raft(other.o.Node, 0, []raftstore.Frame{frame(int(n.o.Incarnation), "hello")})
			other.got.until(t, "a frame", func() bool { return len(other.got.frames[raftstore.GroupID(n.o.Incarnation)]) > 0 })
		}
	}
}

// The pauses between attempts grow, are spread, and end: at the latest two seconds. Time stands still here, so that
// nothing but a knock of the other side can make this one dial.
func TestPausesGrowAndAKnockEndsThem(t *testing.T) {
	clock := newHandClock()
	r := newRig(t, 2, func(o *Options) {
		if o.Node == 1 {
			o.Clock, o.Rand = clock, func() float64 { return 0 }
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	nobody := b.as()
	nobody.Addresses = []string{"no address", "[::1"}
	a.set(nobody)
	want := []time.Duration{25, 50, 100, 200, 400, 800, 1000, 1000}
	for i := range want {
		got := clock.await(t, i+1)[i]
		if got != want[i]*time.Millisecond {
			t.Errorf("pause %d is %v, want %vms", i, got, want[i])
		}
		if i == len(want)-1 {
			break
		}
		clock.pass(got)
	}
	for fails := 1; fails < 100; fails++ {
		low, high := pauseAfter(fails, 0), pauseAfter(fails, 0.999)
		if low < pauseFirst/2 || low > pauseLast/2 || high <= low || high > 2*low {
			t.Errorf("after %d attempts the pause is from %v to %v", fails, low, high)
		}
	}
	if s := a.stats(b); s.Up || s.Dials < uint64(len(want)) {
		t.Errorf("stats are %+v", s)
	}
	b.set(a.as())
	a.got.await(t, "up 2 in 1")
	b.got.await(t, "up 1 in 1")
	a.got.note(func() {
		for _, e := range a.got.events {
			if e.Kind == Refused {
				t.Errorf("a knock is no refusal: %v", e.Err)
			}
		}
	})
}

// An attempt that gets no answer ends when the other side is seen, wherever that is.
func TestKnockEndsAHangingAttempt(t *testing.T) {
	void, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer void.Close()
	clock := newHandClock()
	r := newRig(t, 2, func(o *Options) {
		if o.Node == 1 {
			o.Clock = clock
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	n := b.as()
	n.Addresses = []string{void.LocalAddr().String()}
	a.set(n)
	if _, _, err := void.ReadFromUDP(make([]byte, 2000)); err != nil { // it is under way
		t.Fatal(err)
	}
	b.set(a.as())
	clock.await(t, 1)
	clock.pass(knockGrace)
	a.got.await(t, "up 2 in 1")
	b.got.await(t, "up 1 in 1")
	if s := a.stats(b); s.Dials != 2 {
		t.Errorf("%d attempts", s.Dials)
	}
	// Of several addresses one that answers is enough.
	again := r.again(1, nil)
	m := again.as()
	m.Addresses = append([]string{void.LocalAddr().String()}, m.Addresses...)
	a.set(m)
	again.set(a.as())
	a.got.await(t, "up 2 in 2")
}

// What cannot be reached is told once, not at every attempt.
func TestUnreachableIsToldOnce(t *testing.T) {
	clock := newHandClock()
	r := newRig(t, 2, func(o *Options) {
		if o.Node == 1 {
			o.Clock = clock
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	n := b.as()
	n.Addresses = nil
	a.set(n)
	for i := range 5 {
		clock.pass(clock.await(t, i+1)[i])
	}
	clock.await(t, 6)
	a.got.note(func() {
		if len(a.got.events) != 1 || a.got.events[0].Kind != Unreachable ||
			!strings.Contains(a.got.events[0].Err.Error(), "no address is known") {
			t.Errorf("events %v", a.got.events)
		}
	})
	// The next table has the address: it is dialled at once, with no pause in between.
	a.set(b.as())
	b.set(a.as())
	a.got.await(t, "up 2 in 1")
}

// A node behind another address than it is known by is served within a client's limits.
func TestNodeFromElsewhereIsServed(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	elsewhere := a.as()
	elsewhere.Addresses = []string{"192.0.2.1:7443"}
	b.set(elsewhere)
	a.set(b.as())
	a.got.await(t, "up 2 in 1")
	b.got.await(t, "up 1 in 1")
	p := a.links.link(2).pair.Load()
	if p.exchanges.budget != endpoint.StreamsMax || p.exchanges.bytesMax > 512<<10 {
		t.Errorf("%d exchanges, %d bytes", p.exchanges.budget, p.exchanges.bytesMax)
	}
	if p := b.links.link(1).pair.Load(); p.exchanges.budget != endpoint.RaftStreamsDefault {
		t.Errorf("%d exchanges the other way", p.exchanges.budget)
	}
	const many = 500
	body := strings.Repeat("x", 2000)
	for i := range many {
		a.links.Raft(2, 0, []raftstore.Frame{frame(1, body), frame(2+i, body)})
	}
	b.got.until(t, "all frames", func() bool { return b.got.count == 2*many })
}

// A member that is dialled under the address of another node is refused, and so is this node itself.
func TestWrongAddressesAreTold(t *testing.T) {
	r := newRig(t, 3, nil)
	a, b, c := r.nodes[0], r.nodes[1], r.nodes[2]
	wrong := b.as()
	wrong.Addresses = []string{c.addr()}
	a.set(wrong)
	var untrusted *endpoint.UntrustedError
	a.got.until(t, "another key", func() bool {
		return slices.ContainsFunc(a.got.events, func(e Event) bool { return errors.As(e.Err, &untrusted) })
	})
	if untrusted.Peer != c.id.Fingerprint() {
		t.Errorf("told %v", untrusted)
	}
	wrong.Addresses = []string{a.addr()}
	a.set(wrong)
	a.got.until(t, "its own key", func() bool {
		return slices.ContainsFunc(a.got.events, func(e Event) bool {
			return errors.As(e.Err, &untrusted) && untrusted.Peer == a.id.Fingerprint()
		})
	})
	if a.stats(b).Up {
		t.Error("a link to nobody is up")
	}
}

// Names are looked up, and what comes from the addresses behind them has a node's limits.
func TestNamesAreLookedUp(t *testing.T) {
	if _, err := net.DefaultResolver.LookupHost(t.Context(), "localhost"); err != nil {
		t.Skip("this machine does not know localhost")
	}
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	byName := func(n *node) Node {
		m := n.as()
		m.Addresses = []string{strings.Replace(n.addr(), "127.0.0.1", "localhost", 1)}
		return m
	}
	b.set(byName(a))
	a.set(byName(b))
	a.got.await(t, "up 2 in 1")
	b.got.await(t, "up 1 in 1")
	if !b.links.isNear(a.listener.Addr()) {
		t.Error("the name's address is not known")
	}
}

// Links that end leave nothing behind: no goroutine, no memory.
func TestNothingIsLeftBehind(t *testing.T) {
	settle := func(most int) (n int, heap uint64) {
		for range 2000 {
			if n = runtime.NumGoroutine(); n <= most {
				break
			}
			time.Sleep(time.Millisecond)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return n, m.HeapAlloc
	}
	before, heap := settle(runtime.NumGoroutine())
	r := newRig(t, 3, nil)
	r.meet()
	body := string(make([]byte, 1<<20))
	for i := range 100 {
		for _, n := range r.nodes {
			n.got.note(func() { n.got.quiet = true })
			for _, m := range r.nodes {
				n.links.Raft(m.o.Node, 0, []raftstore.Frame{frame(i+1, body)})
				n.links.Payload(m.o.Node, i%2, []raftstore.Frame{frame(i+1, body[:100_000])})
				n.links.Beat(m.o.Node, []byte("x"))
			}
		}
	}
	s, err := r.nodes[0].links.Stream(ctxOf(t), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range r.nodes {
		n.close()
	}
	if _, err := s.Write(nil); err == nil {
		err = s.Close()
		if err == nil {
			t.Error("a transfer went well behind the end")
		}
	}
	r.nodes[0].links.Raft(2, 0, []raftstore.Frame{frame(1, "x")})
	r.nodes[0].links.Beat(2, []byte("x"))
	r.nodes[0].links.Payload(2, 0, []raftstore.Frame{frame(1, "x")})
	after, heapAfter := settle(before)
	if after > before {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", after, before, buf[:runtime.Stack(buf, true)])
	}
	if heapAfter > heap+16<<20 {
		t.Errorf("%d bytes of heap, %d before", heapAfter, heap)
	}
}

// W0(v): however a node ends and comes back, what it sends under one incarnation arrives between the words that this
// incarnation is up and that it is down, or never.
func TestIncarnationsNeverMix(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, 2, nil)
	r.meet()
	for range 8 {
		restarts := rng.IntN(2)
		n, other := r.nodes[restarts], r.nodes[1-restarts]
		other.got.note(func() { other.got.stamps = true })
		stop := make(chan struct{})
		var talk sync.WaitGroup
		talk.Go(func() {
			stamp := fmt.Sprint(n.o.Incarnation)
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				n.links.Raft(other.o.Node, 0, []raftstore.Frame{frame(1+i%7, stamp)})
				n.links.Payload(other.o.Node, 0, []raftstore.Frame{frame(1, stamp)})
				n.links.Beat(other.o.Node, []byte(stamp))
				if i%50 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
		sent := n.stats(other).Sent.RaftFrames
		eventually(t, "some frames", func() bool { return n.stats(other).Sent.RaftFrames > sent+100 })
		addr := n.addr()
		if rng.IntN(2) == 0 { // it dies without a word
			if err := n.listener.Close(); err != nil {
				t.Fatal(err)
			}
			n.links.Close()
			<-n.ended
			n.listener = nil
		} else {
			n.close()
		}
		close(stop)
		talk.Wait()
		n = r.next(restarts, addr, nil)
		n.set(other.as())
		other.got.await(t, fmt.Sprintf("up %d in %d", n.o.Node, n.o.Incarnation))
		n.got.await(t, fmt.Sprintf("up %d in %d", other.o.Node, other.o.Incarnation))
	}
	for _, n := range r.nodes {
		n.got.note(func() {
			if len(n.got.mixed) > 0 {
				t.Errorf("node %d: %q", n.o.Node, n.got.mixed)
			}
		})
	}
}
