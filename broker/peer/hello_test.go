package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// stranger is a peer that is not weida's: it has a key, and says what a test wants.
type stranger struct {
	t        testing.TB
	id       *endpoint.Identity
	listener *endpoint.Listener
}

func (r *rig) stranger(id *endpoint.Identity) *stranger {
	r.t.Helper()
	all := &endpoint.Peers{
		Known: func(endpoint.Fingerprint) bool { return true },
		Near:  func(a net.Addr) bool { return true },
	}
	l, err := endpoint.Listen(endpoint.ListenOptions{
		Addr: "127.0.0.1:0", Identity: id, Trust: endpoint.NewTrust(nil), Peers: all,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = l.Close() })
	return &stranger{r.t, id, l}
}

func (s *stranger) dial(to *node, protocol string) (*endpoint.Conn, error) {
	return s.listener.DialPeer(ctxOf(s.t), to.addr(), protocol, to.id.Fingerprint())
}

// greet says a hello and returns the answer.
func (s *stranger) greet(to *node, protocol string, h hello) (*endpoint.Conn, hello, error) {
	c, err := s.dial(to, protocol)
	if err != nil {
		return nil, hello{}, err
	}
	st, err := c.OpenStreamSync(ctxOf(s.t))
	if err != nil {
		return nil, hello{}, err
	}
	if _, err = st.Write(h.encode()); err != nil {
		return nil, hello{}, err
	}
	got, err := readHello(st, true)
	if err != nil {
		return c, got, err
	}
	if _, err = st.Write([]byte{helloGo}); err == nil {
		err = st.Close()
	}
	return c, got, err
}

// pair makes both connections.
func (s *stranger) pair(to *node, h hello) (raft, payload *endpoint.Conn) {
	s.t.Helper()
	raft, _, err := s.greet(to, endpoint.ALPNRaft, h)
	if err != nil {
		s.t.Fatal(err)
	}
	if payload, _, err = s.greet(to, endpoint.ALPNPayload, h); err != nil {
		s.t.Fatal(err)
	}
	return raft, payload
}

// saying is the hello of node 1 to node 2 of a rig, and what a test changes about it.
func saying(change func(*hello)) hello {
	h := hello{
		cluster: testCluster, from: 1, to: 2, life: life{[16]byte{1}, 5, [16]byte{9}}, attempt: 1,
		streams: 10, window: 1 << 20,
	}
	if change != nil {
		change(&h)
	}
	return h
}

// reason is the code with which the other side ended a connection.
func reason(t testing.TB, c *endpoint.Conn, err error) Why {
	t.Helper()
	if c != nil {
		select {
		case <-c.Context().Done():
			err = context.Cause(c.Context())
		case <-ctxOf(t).Done():
			t.Fatalf("the connection goes on: %v", err)
		}
	}
	why, remote := remoteReason(err)
	if !remote {
		t.Fatalf("not ended by the other side: %v", err)
	}
	return why
}

// Matrix 44, W0: whoever is not the member that its key stands for is refused, with a code and a typed event, and
// nothing that follows on the connection is read.
func TestWrongIdentitiesAreRefused(t *testing.T) {
	r := newRig(t, 2, nil)
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	s := r.stranger(me.id)
	n := Node{ID: 1, Fingerprint: me.id.Fingerprint(), Disk: [16]byte{1}, Incarnation: 5}
	there.set(n)
	cases := []struct {
		name   string
		why    Why
		change func(*hello)
	}{
		{"another cluster", OtherCluster, func(h *hello) { h.cluster[0]++ }},
		{"another number", OtherNode, func(h *hello) { h.from = 3 }},
		{"for another node", NotHere, func(h *hello) { h.to = 3 }},
		{"another disk", OtherDisk, func(h *hello) { h.disk[0]++ }},
		{"an earlier incarnation than is registered", OldIncarnation, func(h *hello) { h.incarnation = 4 }},
		{"no incarnation", Malformed, func(h *hello) { h.incarnation = 0 }},
		{"no streams", Malformed, func(h *hello) { h.streams = 0 }},
	}
	for _, c := range cases {
		conn, _, err := s.greet(there, endpoint.ALPNRaft, saying(c.change))
		if err == nil {
			t.Errorf("%s: let in", c.name)
			continue
		}
		if got := reason(t, conn, err); got != c.why {
			t.Errorf("%s: refused because %v", c.name, got)
		}
		e := there.got.refusal(t, c.why)
		if e.Node != 1 || e.Peer != me.id.Fingerprint() || e.Remote ||
			!strings.Contains(e.Error(), "no message was taken") {
			t.Errorf("%s: the event is %v", c.name, e)
		}
		there.got.note(func() { there.got.events = nil })
	}
	s.pair(there, saying(nil))
	there.got.await(t, "up 1 in 5")
}

// Frames that come instead of a hello, or behind one that was refused, are not read.
func TestNothingIsReadBeforeTheHandshake(t *testing.T) {
	r := newRig(t, 2, nil)
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint()})
	s := r.stranger(me.id)
	c, err := s.dial(there, endpoint.ALPNRaft)
	if err != nil {
		t.Fatal(err)
	}
	list := []raftstore.Frame{frame(1, "too early, and long enough for a hello: "+strings.Repeat("x", helloLen))}
	st, err := c.OpenStreamSync(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch()
	b.add(list[0])
	be.PutUint32(b.buf, 1)
	be.PutUint32(b.buf[4:], uint32(b.size()))
	if _, err := st.Write(b.buf); err != nil {
		t.Fatal(err)
	}
	if got := reason(t, c, nil); got != Malformed {
		t.Errorf("ended because %v", got)
	}
	if there.got.count > 0 || there.stats(me).Received != (Traffic{}) {
		t.Error("frames were taken")
	}
}

// A key that is not in the table has no connection; one that left the table has none either.
func TestOnlyMembersConnect(t *testing.T) {
	r := newRig(t, 2, nil)
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	s := r.stranger(me.id)
	refused := func() {
		t.Helper()
		c, err := s.dial(there, endpoint.ALPNRaft)
		if err == nil { // the node says no behind the end of this side's handshake
			<-c.Context().Done()
			err = &endpoint.UnreachableError{Err: context.Cause(c.Context())}
		}
		var u *endpoint.UnreachableError
		if !errors.As(err, &u) || !u.TurnedAway() {
			t.Errorf("a key that is no member's: %v", err)
		}
	}
	refused()
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint()})
	raft, payload := s.pair(there, saying(nil))
	there.got.await(t, "up 1 in 5")
	there.set()
	there.got.await(t, "down 1")
	if a, b := reason(t, raft, nil), reason(t, payload, nil); a != NotMember || b != NotMember {
		t.Errorf("ended because %v, %v", a, b)
	}
	refused()
	for name, table := range map[string][]Node{
		"one twice":        {{ID: 1, Fingerprint: me.id.Fingerprint()}, {ID: 1}},
		"one key twice":    {{ID: 1, Fingerprint: me.id.Fingerprint()}, {ID: 3, Fingerprint: me.id.Fingerprint()}},
		"no number":        {{Fingerprint: me.id.Fingerprint()}},
		"own key, another": {{ID: 3, Fingerprint: there.id.Fingerprint()}},
		"own number":       {{ID: 2, Fingerprint: me.id.Fingerprint()}},
	} {
		if err := there.links.Set(table); err == nil || !strings.Contains(err.Error(), "not changed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who shows an earlier incarnation than was seen, or the same one as another process, is refused; a later one ends the
// connections of the earlier.
func TestIncarnations(t *testing.T) {
	r := newRig(t, 2, nil)
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint()})
	s := r.stranger(me.id)
	first, _ := s.pair(there, saying(nil))
	there.got.await(t, "up 1 in 5")
	old := func(why Why, change func(*hello)) {
		t.Helper()
		c, _, err := s.greet(there, endpoint.ALPNRaft, saying(change))
		if err == nil {
			t.Fatalf("let in, want %v", why)
		}
		if got := reason(t, c, err); got != why {
			t.Errorf("refused because %v, want %v", got, why)
		}
	}
	old(OldIncarnation, func(h *hello) { h.incarnation = 4 })
	old(TwinIncarnation, func(h *hello) { h.nonce[0]++ })
	old(OtherDisk, func(h *hello) { h.disk[0]++; h.incarnation = 9 })
	if first.Context().Err() != nil {
		t.Fatal("an impostor ended the connection of the node")
	}
	s.pair(there, saying(func(h *hello) { h.incarnation = 6 }))
	there.got.await(t, "down 1")
	there.got.await(t, "up 1 in 6")
	if got := reason(t, first, nil); got != OldIncarnation {
		t.Errorf("the earlier one ended because %v", got)
	}
	old(OldIncarnation, nil)
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint(), Disk: [16]byte{1}, Incarnation: 8, Nonce: [16]byte{8}})
	old(TwinIncarnation, func(h *hello) { h.incarnation = 8 }) // it was registered with another nonce
	if s := there.stats(me); s.Incarnation != 6 || s.Refused == 0 {
		t.Errorf("stats are %+v", s)
	}
	// The member comes with another disk: that is said by the table, and its count begins anew.
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint(), Disk: [16]byte{7}})
	there.got.await(t, "down 1")
	s.pair(there, saying(func(h *hello) { h.disk, h.incarnation = [16]byte{7}, 1 }))
	there.got.await(t, "up 1 in 1")
}

// W0(v): what an earlier incarnation sent is not handed over once a later one is there, even if it was read before.
func TestFramesOfEarlierIncarnationsAreDropped(t *testing.T) {
	read := make(chan struct{}, 1)
	held, release := holding()
	defer release()
	r := newRig(t, 2, func(o *Options) {
		if o.Node == 2 {
			o.hooks.parsed = func() { read <- struct{}{}; <-held }
		}
	})
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint()})
	s := r.stranger(me.id)
	raft, _ := s.pair(there, saying(nil))
	there.got.await(t, "up 1 in 5")
	s.exchange(raft, frame(1, "of incarnation 5"))
	<-read
	raft, _ = s.pair(there, saying(func(h *hello) { h.incarnation = 6 }))
	there.got.await(t, "up 1 in 6")
	release()
	s.exchange(raft, frame(1, "of incarnation 6"))
	<-read
	there.got.until(t, "a frame", func() bool { return there.got.count > 0 })
	if got := there.got.frames[1]; len(got) != 1 || got[0] != "of incarnation 6" {
		t.Errorf("group 1 got %q", got)
	}
}

// exchange sends one, with each frame as the first of its group.
func (s *stranger) exchange(c *endpoint.Conn, frames ...raftstore.Frame) *quic.Stream {
	s.t.Helper()
	st, err := c.OpenStreamSync(ctxOf(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	b := newBatch()
	for _, f := range frames {
		b.add(f)
		be.PutUint64(b.buf[b.frames[len(b.frames)-1]+8:], 1)
	}
	be.PutUint32(b.buf, uint32(len(frames)))
	be.PutUint32(b.buf[4:], uint32(b.size()))
	if _, err := st.Write(b.buf); err != nil {
		s.t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// Matrix 41, 43: a member that sends what this build cannot read is cut off, on both connections, and nothing of it is
// handed over.
func TestMalformedStreamsEndTheLink(t *testing.T) {
	r := newRig(t, 2, nil)
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint()})
	s := r.stranger(me.id)
	exchange := func(b ...byte) func(raft, payload *endpoint.Conn) (io.WriteCloser, []byte) {
		return func(raft, _ *endpoint.Conn) (io.WriteCloser, []byte) {
			st, err := raft.OpenStreamSync(ctxOf(t))
			if err != nil {
				t.Fatal(err)
			}
			return st, b
		}
	}
	uni := func(onPayload bool, b ...byte) func(raft, payload *endpoint.Conn) (io.WriteCloser, []byte) {
		return func(c, payload *endpoint.Conn) (io.WriteCloser, []byte) {
			if onPayload {
				c = payload
			}
			st, err := c.OpenUniStreamSync(ctxOf(t))
			if err != nil {
				t.Fatal(err)
			}
			return st, b
		}
	}
	frameOf := func(n int) []byte {
		return append([]byte{0, 0, 0, 1, 0, 0, 0, byte(n)}, make([]byte, n)...)
	}
	cases := map[string]func(raft, payload *endpoint.Conn) (io.WriteCloser, []byte){
		"a huge exchange":        exchange(0, 0, 0, 1, 255, 255, 255, 255),
		"no frames":              exchange(0, 0, 0, 0, 0, 0, 0, 0),
		"more frames than bytes": exchange(255, 0, 0, 0, 0, 0, 0, 20),
		"a frame of no group":    exchange(frameOf(frameHead)...),
		"an exchange cut short":  exchange(frameOf(frameHead)[:12]...),
		"bytes behind the end":   exchange(append(frameOf(frameHead), 1)...),
		"a huge heartbeat":       uni(false, uniBeats, 255, 255, 255, 255),
		"a stream of no kind":    uni(false, 77),
		"payload of no group":    uni(true, append([]byte{uniPayload}, make([]byte, payloadHead)...)...),
		"huge payload":           uni(true, uniPayload, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255),
		"payload cut short":      uni(true, uniPayload, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 1),
	}
	attempt := uint64(0)
	for name, open := range cases {
		attempt++
		raft, payload := s.pair(there, saying(func(h *hello) { h.attempt = attempt }))
		there.got.await(t, "up 1 in 5")
		w, b := open(raft, payload)
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = w.Close() // it may be cancelled already
		if a, b := reason(t, raft, nil), reason(t, payload, nil); a != Malformed || b != Malformed {
			t.Errorf("%s: ended because %v, %v", name, a, b)
		}
		there.got.await(t, "down 1")
	}
	if there.got.count > 0 || len(there.got.beats) > 0 {
		t.Error("something was handed over")
	}
}

// A peer that connects and says nothing loses its connection in time, and holds up nobody.
func TestSilentHandshakesEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, nil)
	me, there := r.nodes[0], r.nodes[1]
	me.close()
	there.set(Node{ID: 1, Fingerprint: me.id.Fingerprint()}, r.nodes[2].as())
	r.nodes[2].set(there.as())
	s := r.stranger(me.id)
	var silent []*endpoint.Conn
	for range hellosMax + 2 {
		c, err := s.dial(there, endpoint.ALPNRaft)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	there.got.await(t, "up 3 in 1")
	count := make(map[Why]int)
	for _, c := range silent {
		count[reason(t, c, nil)]++
	}
	if count[Busy] != 2 || count[Silent] != hellosMax {
		t.Errorf("silent connections ended because %v", count)
	}
}

// answer is the accepting side of a stranger: it says a hello and waits for the end of the connection.
func (s *stranger) answer(change func(*hello)) (Why, error) {
	c, err := s.listener.Accept(ctxOf(s.t))
	if err != nil {
		return 0, err
	}
	st, err := c.AcceptStream(ctxOf(s.t))
	if err != nil {
		return 0, err
	}
	h, err := readHello(st, false)
	if err != nil {
		return 0, err
	}
	h.from, h.to, h.disk, h.nonce = h.to, h.from, [16]byte{2}, [16]byte{8}
	if change != nil {
		change(&h)
	}
	if _, err := st.Write(h.encode()); err != nil {
		return 0, err
	}
	if err := st.Close(); err != nil {
		return 0, err
	}
	return reason(s.t, c, nil), nil
}

// W0: the side that dials examines the other as strictly, and goes on trying.
func TestDiallerRefusesWrongIdentities(t *testing.T) {
	r := newRig(t, 2, nil)
	me, there := r.nodes[0], r.nodes[1]
	there.close()
	s := r.stranger(there.id)
	me.set(Node{
		ID: 2, Fingerprint: there.id.Fingerprint(), Disk: [16]byte{2}, Incarnation: 1,
		Addresses: []string{s.listener.Addr().String()},
	})
	for _, c := range []struct {
		name   string
		why    Why
		change func(*hello)
	}{
		{"another attempt", Malformed, func(h *hello) { h.attempt++ }},
		{"another cluster", OtherCluster, func(h *hello) { h.cluster[0]++ }},
		{"another number", OtherNode, func(h *hello) { h.from = 3 }},
		{"for another node", NotHere, func(h *hello) { h.to = 3 }},
		{"another disk", OtherDisk, func(h *hello) { h.disk[0]++ }},
		{"no incarnation", Malformed, func(h *hello) { h.incarnation = 0 }},
	} {
		got, err := s.answer(c.change)
		if err != nil || got != c.why {
			t.Errorf("%s: refused because %v, %v", c.name, got, err)
		}
		if e := me.got.refusal(t, c.why); e.Remote || e.Node != 2 {
			t.Errorf("%s: the event is %v", c.name, e)
		}
		me.got.note(func() { me.got.events = nil })
	}
	if me.stats(there).Up {
		t.Error("the link is up")
	}
}

// Nodes of two clusters turn each other away, and both say why.
func TestClustersKeepApart(t *testing.T) {
	r := newRig(t, 2, func(o *Options) { o.Cluster = [16]byte{byte(o.Node)} })
	a, b := r.nodes[0], r.nodes[1]
	a.set(b.as())
	b.set(a.as())
	told := func(n *node, remote bool) {
		t.Helper()
		n.got.until(t, "a refusal", func() bool {
			return slices.ContainsFunc(n.got.events, func(e Event) bool {
				var refused *RefusedError
				return errors.As(e.Err, &refused) && refused.Why == OtherCluster && refused.Remote == remote &&
					strings.Contains(e.Err.Error(), "different clusters")
			})
		})
	}
	told(a, true) // it dialled
	told(b, false)
	told(a, false) // the other one knocked
}
