package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weida/raftstore"
)

// T-44, T-46: heartbeats and exchanges come while a long transfer is held half-way, and none of its bytes travels on
// the raft connection.
func TestHeartbeatsComeBesideALongTransfer(t *testing.T) {
	const size, beats = 64 << 20, 50
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	begun, goOn := make(chan struct{}), make(chan struct{})
	var took atomic.Int64
	b.got.stream = func(_ raftstore.NodeID, _ []byte, in io.Reader) error {
		n, err := io.CopyN(io.Discard, in, size/2)
		close(begun)
		<-goOn
		m, err2 := io.Copy(io.Discard, in)
		took.Store(n + m)
		return errors.Join(err, err2)
	}
	r.meet()
	s, err := a.links.Stream(ctxOf(t), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		piece := make([]byte, 1<<20)
		for range size / len(piece) {
			if _, err := s.Write(piece); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.Close()
	}()
	<-begun
	for i := range beats {
		a.links.Beat(2, []byte(fmt.Sprint(i)))
		a.links.Raft(2, 0, []raftstore.Frame{frame(1, fmt.Sprint(i))})
		a.links.Payload(2, 0, []raftstore.Frame{frame(2, fmt.Sprint(i))})
		b.got.until(t, "what is small", func() bool {
			return len(b.got.beats) > i && len(b.got.frames[1]) > i && len(b.got.payload[2]) > i
		})
	}
	close(goOn)
	if err := <-sent; err != nil || took.Load() != size {
		t.Fatalf("%d bytes taken: %v", took.Load(), err)
	}
	if st := a.stats(b); st.RaftWire > 1<<20 || st.PayloadWire < size {
		t.Errorf("%d bytes on the raft connection, %d on the payload connection", st.RaftWire, st.PayloadWire)
	}
}

func TestTransferThatIsGivenUp(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.got.stream = func(_ raftstore.NodeID, _ []byte, in io.Reader) error {
		close(begun)
		_, err := io.Copy(io.Discard, in)
		ended <- err
		return err
	}
	r.meet()
	s, err := a.links.Stream(ctxOf(t), 2, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("some of it")); err != nil {
		t.Fatal(err)
	}
	<-begun
	s.Cancel()
	s.Cancel()
	if err := <-ended; err == nil {
		t.Error("the receiver read to the end of what was given up")
	}
	if err := s.Close(); !errors.Is(err, ErrCancelled) {
		t.Errorf("closed after it was given up: %v", err)
	}
	if _, err := s.Write([]byte("more")); !errors.Is(err, ErrCancelled) {
		t.Errorf("written after it was given up: %v", err)
	}
}

// A transfer counts as taken only if the receiver took all of it; what it has against it reaches the sender.
func TestTransferThatIsRefused(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	b.got.stream = func(_ raftstore.NodeID, head []byte, in io.Reader) error {
		switch string(head) {
		case "at once":
			return errors.New("no room: " + strings.Repeat("x", 2*reasonMax))
		case "behind its end":
			_, _ = io.Copy(io.Discard, in)
			return errors.New("another digest")
		}
		_, err := io.CopyN(io.Discard, in, 5)
		return err
	}
	r.meet()
	for head, reason := range map[string]string{
		"at once": "no room", "behind its end": "another digest", "not all": "there was more",
	} {
		s, err := a.links.Stream(ctxOf(t), 2, []byte(head))
		if err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, 100_000)
		for err == nil && head == "at once" { // it is heard while there is more to write
			_, err = s.Write(piece)
		}
		if head != "at once" {
			if _, err := s.Write(piece); err != nil && head != "not all" {
				t.Fatal(err)
			}
		}
		err = s.Close() // it says the same again
		var refused *StreamRefusedError
		if !errors.As(err, &refused) || refused.Node != 2 || !strings.HasPrefix(refused.Reason, reason) {
			t.Errorf("%s: %v", head, err)
		}
	}
	s, err := a.links.Stream(ctxOf(t), 2, []byte("exactly"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("five!")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("taken as a whole: %v", err)
	}
}

// So many transfers are under way at a time; others wait as long as they like, and one that ends, however it does,
// leaves its place.
func TestTransfersAreBounded(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	b.got.stream = func(_ raftstore.NodeID, _ []byte, in io.Reader) error {
		_, err := io.Copy(io.Discard, in)
		return err
	}
	r.meet()
	var open []raftstore.Stream
	for range StreamsMax {
		s, err := a.links.Stream(ctxOf(t), 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.links.Stream(ended, 2, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("one more: %v", err)
	}
	for i, s := range open {
		if i%2 == 0 {
			s.Cancel()
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range StreamsMax {
		s, err := a.links.Stream(ctxOf(t), 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Cancel()
	}
	var down *DownError
	if _, err := a.links.Stream(ctxOf(t), 77, nil); !errors.As(err, &down) || down.Node != 77 {
		t.Errorf("a transfer to nobody: %v", err)
	}
}

// A transfer whose connection ends fails on both sides.
func TestTransferFailsWithItsLink(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.got.stream = func(_ raftstore.NodeID, _ []byte, in io.Reader) error {
		close(begun)
		_, err := io.Copy(io.Discard, in)
		ended <- err
		return err
	}
	r.meet()
	s, err := a.links.Stream(ctxOf(t), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	a.set()
	if err := <-ended; err == nil {
		t.Error("the receiver read to an end")
	}
	var down *DownError
	for err == nil {
		_, err = s.Write(make([]byte, 1<<20))
	}
	if !errors.As(err, &down) {
		t.Errorf("written: %v", err)
	}
	if err := s.Close(); !errors.As(err, &down) {
		t.Errorf("closed: %v", err)
	}
}

// The payload stream of a shard keeps its order, and drops what does not fit instead of waiting.
func TestPayloadKeepsOrderAndDropsWhatDoesNotFit(t *testing.T) {
	r := newRig(t, 2, func(o *Options) { o.PayloadBytes = 512 << 10 })
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	b.got.mu.Lock() // the receiver stands still, as it never should
	body := make([]byte, 64<<10)
	const many = 200
	for i := range many {
		body[0] = byte(i)
		a.links.Payload(2, 0, []raftstore.Frame{{Group: 1, Data: body}})
		a.links.Payload(2, 1, []raftstore.Frame{frame(2, fmt.Sprint(i))})
	}
	b.got.mu.Unlock()
	dropped := a.stats(b).Drops.Payload
	if dropped == 0 {
		t.Error("nothing was dropped")
	}
	b.got.until(t, "the rest", func() bool {
		return len(b.got.payload[1]) == many-int(dropped) && len(b.got.payload[2]) == many
	})
	last := -1
	for _, got := range b.got.payload[1] {
		if len(got) != len(body) || int(got[0]) <= last {
			t.Fatalf("body %d of %d bytes behind %d", got[0], len(got), last)
		}
		last = int(got[0])
	}
	a.links.Payload(2, 0, []raftstore.Frame{{Group: 1, Data: make([]byte, raftstore.PayloadFrameMax+1)}})
	if got := a.stats(b).Drops.TooLarge; got != 1 {
		t.Errorf("%d frames were too large", got)
	}
	a.links.Payload(2, 0, []raftstore.Frame{{Group: 3, Data: make([]byte, raftstore.PayloadFrameMax)}})
	b.got.until(t, "the largest", func() bool { return len(b.got.payload[3]) == 1 })
}

// A heartbeat frame that waits is replaced by a newer one.
func TestNewerHeartbeatReplacesTheOneThatWaits(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	r.meet()
	b.got.mu.Lock() // the receiver stands still, as it never should
	frames := 0
	for a.stats(b).Replaced == 0 && t.Context().Err() == nil {
		a.links.Beat(2, append(make([]byte, 256<<10), fmt.Sprint(frames)...))
		frames++
	}
	b.got.mu.Unlock()
	a.links.Beat(2, []byte("last"))
	b.got.until(t, "the newest", func() bool { return slices.Contains(b.got.beats, "last") })
	if n := len(b.got.beats); n > frames {
		t.Errorf("%d of %d frames came", n, frames)
	}
	a.links.Beat(2, make([]byte, BeatMax+1))
	if got := a.stats(b).Drops.TooLarge; got != 1 {
		t.Errorf("%d frames were too large", got)
	}
}

// Everything at once, from both sides, while the link is cut again and again: what comes is unchanged, of its own
// group, and in order; and in the end all is well.
func TestTalkThroughCuts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	b.got.stream = func(_ raftstore.NodeID, head []byte, in io.Reader) error {
		body, err := io.ReadAll(in)
		if err == nil && !bytes.Equal(body, bytes.Repeat(head, 1<<16)) {
			t.Error("a transfer is not what was sent")
		}
		return err
	}
	r.meet()
	for i := range 2000 {
		n := rng.IntN(20)
		f := frame(n+1, fmt.Sprintf("%d:%06d:%s", n+1, i, strings.Repeat("x", rng.IntN(3000))))
		a.links.Raft(2, n%2, []raftstore.Frame{f})
		b.links.Raft(1, n%2, []raftstore.Frame{f})
		a.links.Payload(2, n%2, []raftstore.Frame{f})
		switch {
		case i%250 == 249:
			k := a.links.link(2)
			if p := k.pair.Load(); p != nil {
				p.conn[rng.IntN(kinds)].Refuse(0, "")
			}
		case i%100 == 0:
			if s, err := a.links.Stream(ctxOf(t), 2, []byte{byte(i)}); err == nil {
				_, _ = s.Write(bytes.Repeat([]byte{byte(i)}, 1<<16)) // the link may be cut
				if err := s.Close(); err != nil {
					s.Cancel()
				}
			}
		case i%10 == 0:
			time.Sleep(time.Millisecond) // let some of it through
		}
	}
	for done := false; !done; {
		a.links.Raft(2, 0, []raftstore.Frame{frame(99, "last")})
		b.links.Raft(1, 0, []raftstore.Frame{frame(99, "last")})
		time.Sleep(time.Millisecond)
		a.got.note(func() { b.got.note(func() { done = len(a.got.frames[99]) > 0 && len(b.got.frames[99]) > 0 }) })
	}
	for _, n := range r.nodes {
		n.got.note(func() {
			for _, kind := range []map[raftstore.GroupID][]string{n.got.frames, n.got.payload} {
				delete(kind, 99)
				for g, list := range kind {
					if !slices.IsSorted(list) {
						t.Errorf("node %d: group %d is out of order", n.o.Node, g)
					}
					for _, f := range list {
						if !strings.HasPrefix(f, fmt.Sprintf("%d:", g)) {
							t.Fatalf("node %d: group %d got %.20q", n.o.Node, g, f)
						}
					}
				}
			}
		})
	}
}
