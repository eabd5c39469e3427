package peer

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// holding is what a hook waits for until a test releases it.
func holding() (held chan struct{}, release func()) {
	held = make(chan struct{})
	return held, sync.OnceFunc(func() { close(held) })
}

// T-40, T-41: the reading side stops reading one stream. Frames of other groups and heartbeats come all the same, the
// group's own later frames once the gap is older than one heartbeat, and the late one never.
func TestStalledStreamStallsNothingElse(t *testing.T) {
	held, release := holding()
	defer release()
	stalled := make(chan struct{})
	clock := newHandClock()
	var armed atomic.Bool
	armed.Store(true)
	r := newRig(t, 2, func(o *Options) {
		if o.Node == 2 {
			o.Clock = clock
			o.hooks.exchange = func(nth int) {
				if nth == 0 && armed.Swap(false) {
					close(stalled)
					<-held
				}
			}
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	a.links.Raft(2, 0, []raftstore.Frame{frame(1, "first")})
	<-stalled
	for i := range 100 {
		a.links.Raft(2, 0, []raftstore.Frame{frame(2, fmt.Sprint(i))})
	}
	a.links.Raft(2, 1, []raftstore.Frame{frame(1, "second"), frame(3, "x")})
	a.links.Beat(2, []byte("tick"))
	b.got.until(t, "the other groups", func() bool { return len(b.got.frames[2]) == 100 && len(b.got.frames[3]) == 1 })
	b.got.until(t, "the heartbeat", func() bool { return len(b.got.beats) == 1 })
	if len(b.got.frames[1]) > 0 {
		t.Fatalf("group 1 got %q before its first frame", b.got.frames[1])
	}
	clock.await(t, 1)
	clock.pass(GapWaitDefault - 1)
	b.got.until(t, "nothing of group 1", func() bool { return len(b.got.frames[1]) == 0 })
	clock.pass(1)
	b.got.until(t, "the second frame", func() bool { return slices.Equal(b.got.frames[1], []string{"second"}) })
	if s := b.stats(a); s.Gaps != 1 {
		t.Errorf("%d gaps", s.Gaps)
	}
	release()
	eventually(t, "the late frame", func() bool { return b.stats(a).Drops.Late > 0 })
	a.links.Raft(2, 0, []raftstore.Frame{frame(1, "third")})
	b.got.until(t, "the third frame", func() bool { return slices.Equal(b.got.frames[1], []string{"second", "third"}) })
}

// T-41: streams that nobody reads hold as much of the connection's window as they may. Heartbeats come all the same.
func TestHeartbeatsComeBesideAFullWindow(t *testing.T) {
	held, release := holding()
	defer release()
	r := newRig(t, 2, func(o *Options) {
		o.PendingBytes = 256 << 20
		if o.Node == 2 {
			o.hooks.exchange = func(int) { <-held }
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	const many = 25
	big := string(make([]byte, endpoint.PeerStreamWindow))
	for i := range many {
		a.links.Raft(2, 0, []raftstore.Frame{frame(1+i, big)})
	}
	eventually(t, "saturation", func() bool { return a.stats(b).Saturated > 0 && a.stats(b).Pending > 0 })
	for i := range 20 {
		a.links.Beat(2, []byte(fmt.Sprint(i)))
		b.got.until(t, "a heartbeat", func() bool { return len(b.got.beats) == i+1 })
	}
	if n := len(b.got.frames); n > 0 {
		t.Errorf("%d groups got frames of streams that nobody reads", n)
	}
	release()
	// On a slow machine some were given up meanwhile.
	eventually(t, "the end of all frames", func() (all bool) {
		b.got.note(func() { all = b.got.count+int(a.stats(b).Drops.Failed) >= many })
		return all
	})
}

// Heartbeats come while more frames are sent than the connection carries.
func TestHeartbeatsComeBesideAFlood(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	b.got.quiet = true
	r.meet()
	stop := make(chan struct{})
	var flood sync.WaitGroup
	flood.Go(func() {
		big := []raftstore.Frame{frame(1, string(make([]byte, exchangeBytes)))}
		for {
			select {
			case <-stop:
				return
			default:
				a.links.Raft(2, 0, big)
			}
		}
	})
	eventually(t, "a flood", func() bool { return a.stats(b).Drops.Full > 0 })
	for i := range 20 {
		a.links.Beat(2, []byte(fmt.Sprint(i)))
		b.got.until(t, "a heartbeat", func() bool { return len(b.got.beats) == i+1 })
	}
	close(stop)
	flood.Wait()
}

// T-43: with a budget of 8, calls of 100 groups beyond it are merged, counted, and all arrive in order.
func TestBudgetOfExchanges(t *testing.T) {
	const budget, groups, rounds = 8, 100, 20
	held, release := holding()
	defer release()
	var reading, most atomic.Int32
	r := newRig(t, 2, func(o *Options) {
		o.RaftStreams = budget
		if o.Node == 2 {
			o.hooks.exchange = func(int) {
				n := reading.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-held
				reading.Add(-1)
			}
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	for g := range budget {
		a.links.Raft(2, 0, []raftstore.Frame{frame(g+1, "0")})
		eventually(t, "another exchange", func() bool { return int(most.Load()) > g })
	}
	for g := budget; g < groups; g++ {
		a.links.Raft(2, 0, []raftstore.Frame{frame(g+1, "0")})
	}
	var shards sync.WaitGroup
	for shard := range 2 {
		shards.Go(func() {
			for i := 1; i < rounds; i++ {
				for g := shard; g < groups; g += 2 {
					a.links.Raft(2, shard, []raftstore.Frame{frame(g+1, fmt.Sprint(i))})
				}
			}
		})
	}
	shards.Wait()
	if s := a.stats(b); s.Saturated == 0 || s.Flying > budget || s.Pending == 0 {
		t.Errorf("with %d exchanges held: %+v", budget, s)
	}
	release()
	b.got.until(t, "all frames", func() bool { return b.got.count == groups*rounds })
	var want []string
	for i := range rounds {
		want = append(want, fmt.Sprint(i))
	}
	for g := range groups {
		if got := b.got.frames[raftstore.GroupID(g+1)]; !slices.Equal(got, want) {
			t.Errorf("group %d got %q", g+1, got)
		}
	}
	s := a.stats(b)
	if most.Load() != budget || s.Drops != (Drops{}) || s.Sent.Exchanges >= groups*rounds {
		t.Errorf("%d exchanges at a time, stats %+v", most.Load(), s)
	}
}

// Beyond the bound of what waits the oldest is dropped, and leaves no gap.
func TestOldestIsDroppedBeyondTheBound(t *testing.T) {
	held, release := holding()
	defer release()
	r := newRig(t, 2, func(o *Options) {
		o.RaftStreams, o.PendingBytes = 1, 1000
		if o.Node == 2 {
			o.hooks.exchange = func(int) { <-held }
		}
	})
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	a.links.Raft(2, 0, []raftstore.Frame{frame(1, "first")})
	eventually(t, "an exchange", func() bool { return a.stats(b).Pending == 0 })
	for i := range 100 {
		a.links.Raft(2, 0, []raftstore.Frame{frame(1, fmt.Sprint("number ", i))})
	}
	s := a.stats(b)
	if s.Drops.Full == 0 || s.Pending > 1000 {
		t.Errorf("100 frames wait in %d bytes, %d were dropped", s.Pending, s.Drops.Full)
	}
	a.links.Raft(2, 0, []raftstore.Frame{frame(1, string(make([]byte, RaftFrameMax+1))), frame(1, "last")})
	if got := a.stats(b).Drops; got.TooLarge != 1 {
		t.Errorf("a frame that is too large: %+v", got)
	}
	release()
	b.got.until(t, "the last frame", func() bool { return slices.Contains(b.got.frames[1], "last") })
	left := 100 - int(a.stats(b).Drops.Full)
	if got := b.got.frames[1]; len(got) != left+2 || got[0] != "first" || got[1] != fmt.Sprint("number ", 100-left) {
		t.Errorf("%d were left, but %q came", left, got)
	}
	if s := b.stats(a); s.Gaps > 0 {
		t.Errorf("what was dropped before it had a number left %d gaps", s.Gaps)
	}
}

// T-39: two connections between two nodes, from one port to one port, however many groups.
func TestConnectionsDoNotGrowWithGroups(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	sent := 0
	for _, groups := range []int{1, 100, 1000} {
		for g := range groups {
			f := []raftstore.Frame{frame(g+1, "x")}
			a.links.Raft(2, g%2, f)
			a.links.Payload(2, g%2, f)
		}
		sent += 2 * groups
		b.got.until(t, "all frames", func() bool { return b.got.count == sent })
		b.got.note(func() {
			if len(b.from) != 2 || b.from[0] != a.addr() || b.from[1] != a.addr() {
				t.Errorf("with %d groups connections came from %q", groups, b.from)
			}
		})
	}
	if s := a.stats(b); s.Dials != 1 {
		t.Errorf("%d attempts", s.Dials)
	}
	if s := b.stats(a); s.Dials != 0 {
		t.Errorf("the larger fingerprint dialled %d times", s.Dials)
	}
}

// The numbers of groups do not gather for ever: a connection that has seen too many groups is made anew.
func TestNumbersBeginAnew(t *testing.T) {
	r := newRig(t, 2, func(o *Options) { o.hooks.groups = 10 })
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	for g := range 10 {
		a.links.Raft(2, 0, []raftstore.Frame{frame(g+1, "x")})
	}
	b.got.until(t, "10 groups", func() bool { return b.got.count == 10 })
	if s := a.stats(b); s.Dials != 1 {
		t.Errorf("%d attempts for 10 groups", s.Dials)
	}
	a.links.Raft(2, 0, []raftstore.Frame{frame(11, "one too many")})
	for _, n := range []*node{a, b} {
		other := fmt.Sprint(3 - n.o.Node)
		n.got.await(t, "down "+other)
		n.got.await(t, "up "+other+" in 1")
	}
	a.links.Raft(2, 0, []raftstore.Frame{frame(1, "y")})
	b.got.until(t, "a frame", func() bool { return slices.Contains(b.got.frames[1], "y") })
}
