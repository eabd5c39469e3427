package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"weida/raftstore"
)

// network stands between two nodes and does to their packets what networks do.
type network struct {
	front, back *net.UDPConn // a dials front; back talks to b
	a, b        *net.UDPAddr

	mu       sync.Mutex
	rng      *rand.Rand // guarded by mu
	bad      int        // guarded by mu; percent of packets that are hit
	cut      [2]bool    // guarded by mu; towards b, towards a
	hit      int        // guarded by mu
	late     []byte     // guarded by mu; a packet that was overtaken
	lateSend func([]byte)
}

// between puts a network between node a, which dials, and node b.
func between(t *testing.T, a, b *node, seed uint64) *network {
	t.Helper()
	open := func() *net.UDPConn {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	addr := func(n *node) *net.UDPAddr {
		u, ok := n.listener.Addr().(*net.UDPAddr)
		if !ok {
			t.Fatal("no UDP address")
		}
		return u
	}
	w := &network{front: open(), back: open(), a: addr(a), b: addr(b), rng: rand.New(rand.NewPCG(seed, 1))}
	var work sync.WaitGroup
	work.Go(func() { w.carry(w.front, w.back, w.b, 0) })
	work.Go(func() { w.carry(w.back, w.front, w.a, 1) })
	t.Cleanup(func() {
		if err := errors.Join(w.front.Close(), w.back.Close()); err != nil {
			t.Error(err)
		}
		work.Wait()
	})
	// To each the other is where the network is.
	there := b.as()
	there.Addresses = []string{w.front.LocalAddr().String()}
	here := a.as()
	here.Addresses = []string{w.back.LocalAddr().String()}
	b.set(here)
	a.set(there)
	return w
}

func (w *network) carry(from, through *net.UDPConn, to *net.UDPAddr, way int) {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := from.ReadFromUDP(buf)
		if err != nil {
			return
		}
		w.pass(buf[:n], way, func(b []byte) {
			_, _ = through.WriteToUDP(b, to) // a packet more that is lost
		})
	}
}

func (w *network) pass(b []byte, way int, send func([]byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut[way] {
		return
	}
	if late := w.late; late != nil && w.rng.IntN(3) == 0 {
		w.late = nil
		defer w.lateSend(late)
	}
	if w.rng.IntN(100) >= w.bad {
		send(b)
		return
	}
	w.hit++
	switch w.rng.IntN(4) {
	case 0: // lost
	case 1:
		send(b)
		send(b)
	case 2:
		b[w.rng.IntN(len(b))] ^= byte(1 << w.rng.IntN(8))
		send(b)
	case 3:
		if w.late == nil {
			w.late, w.lateSend = slices.Clone(b), send
		}
	}
}

func (w *network) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// Matrix 23: packets that are lost, come twice, late or changed cost time and nothing else.
func TestTalkOverABadNetwork(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := newRig(t, 2, func(o *Options) { o.GapWait = patience })
	a, b := r.nodes[0], r.nodes[1]
	w := between(t, a, b, seed)
	a.got.await(t, "up 2 in 1")
	b.got.await(t, "up 1 in 1")
	w.set(func() { w.bad = 10 })
	const many = 300
	var want []string
	for i := range many {
		want = append(want, fmt.Sprintf("%d %s", i, make([]byte, 500)))
		for g := range 3 {
			a.links.Raft(2, g, []raftstore.Frame{frame(g+1, want[i])})
			b.links.Raft(1, g, []raftstore.Frame{frame(g+1, want[i])})
			a.links.Payload(2, g, []raftstore.Frame{frame(g+1, want[i])})
		}
	}
	for g := range raftstore.GroupID(3) {
		b.got.until(t, "frames", func() bool { return slices.Equal(b.got.frames[g+1], want) })
		a.got.until(t, "frames", func() bool { return slices.Equal(a.got.frames[g+1], want) })
		b.got.until(t, "payload", func() bool { return slices.Equal(b.got.payload[g+1], want) })
	}
	w.set(func() {
		if w.hit == 0 {
			t.Error("it was a good network")
		}
	})
	if len(a.got.lines)+len(b.got.lines) > 0 {
		t.Errorf("the link was lost: %q, %q", a.got.lines, b.got.lines)
	}
}

// Matrix 20, 21: a cut, in one direction or both, is noticed by both sides, and ends with a link.
func TestCutsAreNoticedAndHeal(t *testing.T) {
	t.Parallel()
	for _, cut := range [][2]bool{{true, false}, {false, true}} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2, nil)
			a, b := r.nodes[0], r.nodes[1]
			w := between(t, a, b, 1)
			a.got.await(t, "up 2 in 1")
			b.got.await(t, "up 1 in 1")
			w.set(func() { w.cut = cut })
			a.got.await(t, "down 2")
			b.got.await(t, "down 1")
			why := ""
			for _, n := range []*node{a, b} {
				n.got.until(t, "the reason", func() bool {
					i := slices.IndexFunc(n.got.events, func(e Event) bool { return e.Kind == Down })
					if i >= 0 {
						why += n.got.events[i].Err.Error()
					}
					return i >= 0
				})
			}
			if !strings.Contains(why, "was silent for 3s") { // who notices first tells the other, if it can
				t.Errorf("down because %q", why)
			}
			w.set(func() { w.cut = [2]bool{} })
			a.got.await(t, "up 2 in 1")
			b.got.await(t, "up 1 in 1")
			a.links.Raft(2, 0, []raftstore.Frame{frame(1, "x")})
			b.got.until(t, "a frame", func() bool { return len(b.got.frames[1]) == 1 })
		})
	}
}
