package main

import (
	"bytes"
	"encoding/binary"
	"slices"

	"weida/raftstore"
	"weida/segment"
)

// network is what lies between the nodes.
type network struct {
	c     *cluster
	links map[[2]raftstore.NodeID]*link // lower node first
	cut   map[[2]raftstore.NodeID]bool  // one way
	// of a thousand packets so many are lost, doubled, late
	loss, double, late int
	streamCuts         int // of a thousand transfers so many are cut
	spoiled            int // of a thousand bodies so many have other bytes
	stalls             int // of a thousand large bodies so many stop coming half-way
	loose              map[looseWant]bool
	stale              bool
	lose               func(from, to *node, kind string) bool // a scene loses what it says
	streams            []*stream                              // under way
	packets            uint64
}

// link is the pair of connections between two nodes. What was on its way in an earlier one does not arrive.
type link struct {
	up    bool
	epoch uint64
	lives [2]uint64
}

func newNetwork(c *cluster) *network {
	return &network{
		c: c, links: map[[2]raftstore.NodeID]*link{}, cut: map[[2]raftstore.NodeID]bool{}, loose: map[looseWant]bool{},
	}
}

func pair(a, b raftstore.NodeID) [2]raftstore.NodeID {
	return [2]raftstore.NodeID{min(a, b), max(a, b)}
}

func (w *network) link(a, b raftstore.NodeID) *link {
	l := w.links[pair(a, b)]
	if l == nil {
		l = &link{}
		w.links[pair(a, b)] = l
	}
	return l
}

// passes says whether what is sent now can arrive.
func (w *network) passes(from, to *node) bool {
	l := w.link(from.id, to.id)
	return from.up && to.up && l.up && l.lives == w.lives(from, to) && !w.cut[[2]raftstore.NodeID{from.id, to.id}]
}

func (w *network) lives(a, b *node) [2]uint64 {
	if a.id > b.id {
		a, b = b, a
	}
	return [2]uint64{a.life, b.life}
}

// nodeUp connects a node to all that it reaches.
func (w *network) nodeUp(n *node) {
	for _, o := range w.c.nodes {
		if o != n {
			w.look(n, o, w.c.between(millisecond, 100*millisecond))
		}
	}
}

// nodeDown is noticed by the others after a while, or when it is back.
func (w *network) nodeDown(n *node) {
	for _, o := range w.c.nodes {
		if o != n {
			w.look(n, o, w.c.between(millisecond, 2*second))
		}
	}
	for _, s := range slices.Clone(w.streams) {
		if s.from == n || s.to == n {
			s.lost()
		}
	}
}

// look brings the connection of two nodes, after a while, into the state that it has to be in.
func (w *network) look(a, b *node, d micros) {
	if a.id > b.id {
		a, b = b, a
	}
	l := w.link(a.id, b.id)
	w.c.after(d, func() {
		open := a.up && b.up && !w.cut[[2]raftstore.NodeID{a.id, b.id}] && !w.cut[[2]raftstore.NodeID{b.id, a.id}]
		lives := w.lives(a, b)
		if open == l.up && (!open || l.lives == lives) {
			return
		}
		l.epoch++
		l.up, l.lives = open, lives
		w.c.note("%v and %v connected: %v", a, b, open)
		w.tell(a, b, open)
		w.tell(b, a, open)
	})
}

// tell lets a node know of another one.
func (w *network) tell(n, other *node, up bool) {
	if !n.up {
		return
	}
	life := other.life
	n.alive(w.c.between(10, millisecond), func() {
		if up {
			n.host.PeerUp(other.id, life)
		} else {
			n.host.PeerDown(other.id)
		}
		n.wake()
	})
}

// setCut cuts or mends one way. A connection that is cut long enough, even one way, is given up by both.
func (w *network) setCut(from, to raftstore.NodeID, cut bool) {
	if cut {
		w.cut[[2]raftstore.NodeID{from, to}] = true
	} else {
		delete(w.cut, [2]raftstore.NodeID{from, to})
	}
	d := w.c.between(10*millisecond, 300*millisecond)
	if cut {
		d = w.c.between(500*millisecond, 3*second)
	}
	w.look(w.c.node(from), w.c.node(to), d)
}

// heal mends everything.
func (w *network) heal() {
	for _, a := range w.c.nodes {
		for _, b := range w.c.nodes {
			if w.cut[[2]raftstore.NodeID{a.id, b.id}] {
				w.setCut(a.id, b.id, false)
			}
		}
	}
}

// send carries one packet: deliver is called when it arrives, if it does.
func (w *network) send(from, to *node, kind string, deliver func()) {
	if !w.passes(from, to) && !w.stale || w.lose != nil && w.lose(from, to, kind) {
		return
	}
	w.packets++
	if w.c.rng.IntN(1000) < w.loss {
		return
	}
	d := w.c.between(50, 700)
	if w.c.rng.IntN(1000) < w.late {
		d = w.c.between(millisecond, 400*millisecond)
	}
	l, epoch, life := w.link(from.id, to.id), w.link(from.id, to.id).epoch, to.life
	w.c.after(d, func() { // the sender may be dead by now
		arrives := to.life == life && l.epoch == epoch && !w.cut[[2]raftstore.NodeID{from.id, to.id}]
		if w.stale && to.up || arrives {
			to.alive(0, deliver)
		}
	})
}

// twice says whether a packet arrives a second time.
func (w *network) twice() int {
	if w.c.rng.IntN(1000) < w.double {
		return 2
	}
	return 1
}

func copyFrames(list []raftstore.Frame) []raftstore.Frame {
	out := make([]raftstore.Frame, len(list))
	for i, f := range list {
		out[i] = raftstore.Frame{Group: f.Group, Data: bytes.Clone(f.Data)}
	}
	return out
}

// Raft implements raftstore.Transport.
func (n *node) Raft(id raftstore.NodeID, _ int, frames []raftstore.Frame) {
	to := n.node(id)
	for range n.net.twice() {
		list := copyFrames(frames)
		n.net.send(n, to, "raft", func() {
			if refused := to.host.ReceiveRaft(n.id, list); len(refused) > 0 {
				n.net.send(to, n, "refusal", func() {
					n.host.ReceiveRefusals(to.id, refused)
					n.wake()
				})
			}
			to.wake()
		})
	}
}

// Beat implements raftstore.Transport.
func (n *node) Beat(id raftstore.NodeID, data []byte) {
	to, data := n.node(id), bytes.Clone(data)
	n.net.send(n, to, "beat", func() {
		to.host.ReceiveBeat(n.id, data)
		to.wake()
	})
}

// Payload implements raftstore.Transport.
func (n *node) Payload(id raftstore.NodeID, _ int, frames []raftstore.Frame) {
	to := n.node(id)
	for range n.net.twice() {
		list := copyFrames(frames)
		n.net.trust(n, list)
		n.net.send(n, to, "payload", func() {
			n.net.spoil(to, list)
			to.host.ReceivePayload(n.id, list)
			to.wake()
		})
	}
}

// The layout of frames with a body and with wants, as far as it is needed to put another body into one.
const (
	bodyFrame       = 1
	bodyFrameDigest = 1 + 16
	bodyFrameLength = bodyFrameDigest + 16
	bodyFrameBytes  = bodyFrameLength + 4

	wantFrame      = 2
	wantFrameWants = 1 + 2
	wantRef        = 8 // in a want
	wantFlags      = wantRef + 16 + 8 + 16
	wantSize       = wantFlags + 1
	wantLoose      = 1 << 1
)

// looseWant is a body that a node asked for to install a snapshot.
type looseWant struct {
	node  raftstore.NodeID
	group raftstore.GroupID
	ref   [16]byte
}

// trust notes the bodies that a node asks for without a digest: no commit record proves them, and who answers is
// trusted as the snapshot is.
func (w *network) trust(from *node, list []raftstore.Frame) {
	for _, f := range list {
		if len(f.Data) < wantFrameWants || f.Data[0] != wantFrame {
			continue
		}
		for b := f.Data[wantFrameWants:]; len(b) >= wantSize; b = b[wantSize:] {
			if b[wantFlags]&wantLoose != 0 {
				w.loose[looseWant{from.id, f.Group, [16]byte(b[wantRef:])}] = true
			}
		}
	}
}

// spoil gives some bodies other bytes, with the digest of these: only who asks the commit record can know.
func (w *network) spoil(to *node, list []raftstore.Frame) {
	for i := range list {
		b := list[i].Data
		if len(b) <= bodyFrameBytes || b[0] != bodyFrame || w.c.rng.IntN(1000) >= w.spoiled ||
			int(binary.LittleEndian.Uint32(b[bodyFrameLength:])) != len(b)-bodyFrameBytes ||
			w.loose[looseWant{to.id, list[i].Group, [16]byte(b[1:])}] {
			continue
		}
		w.c.stats.fault("wrong body")
		body := b[bodyFrameBytes:]
		body[w.c.rng.IntN(len(body))] ^= 1
		d := segment.DigestOf(body)
		copy(b[bodyFrameDigest:], d[:])
	}
}
