package peer

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"weida/raftstore"
)

// Two nodes and everything that they say to each other, over real QUIC.
func TestNodesTalk(t *testing.T) {
	r := newRig(t, 2, nil)
	a, b := r.nodes[0], r.nodes[1]
	b.got.refuse = func(f raftstore.Frame) raftstore.RefusalKind {
		return map[raftstore.GroupID]raftstore.RefusalKind{8: raftstore.UnknownGroup, 9: raftstore.RetiredGroup}[f.Group]
	}
	var head, body []byte
	b.got.stream = func(_ raftstore.NodeID, h []byte, r io.Reader) error {
		all, err := io.ReadAll(r)
		b.got.note(func() { head, body = h, all })
		return err
	}
	r.meet()
	const many = 200
	var want []string
	for i := range many {
		want = append(want, fmt.Sprint(i))
		a.links.Raft(2, 0, []raftstore.Frame{frame(1, want[i]), frame(2, want[i]), frame(8, "x"), frame(9, "y")})
		a.links.Payload(2, i%2, []raftstore.Frame{frame(1+i%2, want[i])})
		b.links.Raft(1, 1, []raftstore.Frame{frame(3, want[i])})
	}
	a.links.Beat(2, []byte("tick"))
	b.links.Beat(1, []byte("tock"))
	b.got.until(t, "frames", func() bool {
		return slices.Equal(b.got.frames[1], want) && slices.Equal(b.got.frames[2], want)
	})
	a.got.until(t, "frames", func() bool { return slices.Equal(a.got.frames[3], want) })
	b.got.until(t, "payload", func() bool { return len(b.got.payload[1])+len(b.got.payload[2]) == many })
	for i := range many {
		if got := b.got.payload[raftstore.GroupID(1+i%2)][i/2]; got != want[i] {
			t.Fatalf("payload %d is %s", i, got)
		}
	}
	b.got.until(t, "beat", func() bool { return slices.Equal(b.got.beats, []string{"tick"}) })
	a.got.until(t, "beat", func() bool { return slices.Equal(a.got.beats, []string{"tock"}) })
	a.got.until(t, "refusals", func() bool { return len(a.got.refused) == 2*many })

	s, err := a.links.Stream(ctxOf(t), 2, []byte("the head"))
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("body"), 1<<18)
	if _, err := s.Write(long); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.got.note(func() {
		if string(head) != "the head" || !bytes.Equal(body, long) {
			t.Errorf("a transfer with head %q and %d bytes arrived", head, len(body))
		}
	})
	st := a.stats(b)
	if !st.Up || st.Incarnation != 1 || st.RTT == 0 || st.Sent.RaftFrames != 4*many || st.Received.RaftFrames != many ||
		st.Sent.StreamBytes != uint64(len(long)) || st.Drops != (Drops{}) || st.Gaps > 0 {
		t.Errorf("stats are %+v", st)
	}
}
