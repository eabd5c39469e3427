package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/raftstore"
)

// helloPatience bounds a handshake.
const helloPatience = 3 * time.Second

// helloMagic begins a handshake, with the version of its layout.
const helloMagic = 0x77_65_69_02

// helloLen is the length of a hello in bytes.
const helloLen = 4 + 16 + 8 + 8 + lifeLen + 8 + 4 + 4 + lifeLen

const lifeLen = 16 + 8 + 16

// helloGo is what the side that dialled says once it knows who is there: from then on both may speak.
const helloGo = 1

// hello is who a node says it is, first of all on a connection, in both directions. Its key was proved before.
type hello struct {
	cluster  [16]byte
	from, to raftstore.NodeID
	life
	attempt uint64 // of the side that dials: two connections with the same one belong together
	streams uint32 // bidirectional streams that the other side may have open
	window  uint32 // bytes that may come before they are read
	known   life   // of the reader, as the sender knows it; zero if it knows none
}

var be = binary.BigEndian

func (h *hello) encode() []byte {
	b := be.AppendUint32(make([]byte, 0, helloLen), helloMagic)
	b = append(b, h.cluster[:]...)
	b = be.AppendUint64(b, uint64(h.from))
	b = be.AppendUint64(b, uint64(h.to))
	b = h.life.append(b)
	b = be.AppendUint64(b, h.attempt)
	b = be.AppendUint32(b, h.streams)
	b = be.AppendUint32(b, h.window)
	return h.known.append(b)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloLen {
		return h, malformed("hello of %d bytes", len(b))
	}
	if m := be.Uint32(b); m != helloMagic {
		return h, malformed("hello that begins with %#x", m)
	}
	b = b[4:]
	b = b[copy(h.cluster[:], b):]
	h.from, h.to = raftstore.NodeID(be.Uint64(b)), raftstore.NodeID(be.Uint64(b[8:]))
	h.life = parseLife(b[16:])
	b = b[16+lifeLen:]
	h.attempt = be.Uint64(b)
	h.streams, h.window = be.Uint32(b[8:]), be.Uint32(b[12:])
	h.known = parseLife(b[16:])
	if h.from == 0 || h.to == 0 || h.incarnation == 0 || h.streams == 0 || h.window == 0 {
		return h, malformed("hello with a zero in it")
	}
	return h, nil
}

// mine is this node's hello to another.
func (l *Links) mine(k *link, attempt uint64, s endpoint.Share) hello {
	return hello{
		cluster: l.o.Cluster, from: l.o.Node, to: k.id, life: life{l.o.Disk, l.o.Incarnation, l.o.Nonce},
		attempt: attempt, streams: uint32(s.Streams), window: uint32(s.Window), known: k.known(),
	}
}

// life is one incarnation of a node: whoever shows an earlier one has been left behind.
type life struct {
	disk        [16]byte
	incarnation uint64
	nonce       [16]byte
}

func (l *life) append(b []byte) []byte {
	b = append(b, l.disk[:]...)
	return append(be.AppendUint64(b, l.incarnation), l.nonce[:]...)
}

func parseLife(b []byte) life {
	return life{[16]byte(b), be.Uint64(b[16:]), [16]byte(b[24:])}
}

// examine says what speaks against a hello from the node that has the proved key, if anything does. seen is the last
// life of it that showed itself, or zero.
func examine(h *hello, o *Options, n *Node, seen life) (Why, bool) {
	switch {
	case h.cluster != o.Cluster:
		return OtherCluster, true
	case h.from != n.ID:
		return OtherNode, true
	case h.to != o.Node:
		return NotHere, true
	case n.Disk != [16]byte{} && h.disk != n.Disk, seen.incarnation > 0 && h.disk != seen.disk:
		return OtherDisk, true
	case h.incarnation < n.Incarnation || h.incarnation < seen.incarnation:
		return OldIncarnation, true
	case h.incarnation == seen.incarnation && h.nonce != seen.nonce,
		h.incarnation == n.Incarnation && n.Nonce != [16]byte{} && h.nonce != n.Nonce:
		return TwinIncarnation, true
	}
	return 0, false
}

// exchangeHellos is the dialling side: it says who it is, hears who is there, and lets both begin.
func (l *Links) exchangeHellos(c *endpoint.Conn, k *link, attempt uint64) (h hello, err error) {
	defer context.AfterFunc(k.ctx, func() { refuse(c, Stopping) })()
	s, err := c.OpenStreamSync(k.ctx)
	if err != nil {
		return h, err
	}
	if err := s.SetDeadline(time.Now().Add(helloPatience)); err != nil {
		return h, err
	}
	own := l.mine(k, attempt, c.Share())
	if _, err := s.Write(own.encode()); err != nil {
		return h, err
	}
	if h, err = readHello(s, true); err != nil {
		return h, err
	}
	if h.attempt != attempt {
		return h, malformed("hello for attempt %d, not %d", h.attempt, attempt)
	}
	if why, bad := k.examine(&h); bad {
		return h, k.refusal(c, why)
	}
	if k.displaced(&h) {
		return h, k.refusal(c, PutBack)
	}
	if _, err = s.Write([]byte{helloGo}); err != nil {
		return h, err
	}
	return h, s.Close()
}

// answerHello is the accepting side.
func (l *Links) answerHello(c *endpoint.Conn, k *link) (h hello, err error) {
	defer context.AfterFunc(k.ctx, func() { refuse(c, Stopping) })()
	ctx, cancel := context.WithTimeout(k.ctx, helloPatience)
	defer cancel()
	s, err := c.AcceptStream(ctx)
	if err != nil {
		return h, err
	}
	defer s.ReleaseStreamCredit()
	if err := s.SetDeadline(time.Now().Add(helloPatience)); err != nil {
		return h, err
	}
	if h, err = readHello(s, false); err != nil {
		return h, err
	}
	if why, bad := k.examine(&h); bad {
		return h, k.refusal(c, why)
	}
	if k.displaced(&h) {
		return h, k.refusal(c, PutBack)
	}
	if k.runsOtherwise(&h) {
		return h, k.refusal(c, TwinIncarnation)
	}
	if k.dials {
		k.saw(&h, c.RemoteAddr().String())
		return h, k.refusal(c, DialBack)
	}
	own := l.mine(k, h.attempt, c.Share())
	if _, err := s.Write(own.encode()); err != nil {
		return h, err
	}
	if err := s.Close(); err != nil {
		return h, err
	}
	var last [1]byte
	if _, err := io.ReadFull(s, last[:]); err != nil {
		return h, err
	}
	if last[0] != helloGo {
		return h, malformed("end of a handshake: %d", last[0])
	}
	return h, drained(s)
}

// readHello reads a hello, and the end of the stream behind it if it is the last that comes.
func readHello(s *quic.Stream, last bool) (h hello, err error) {
	var b [helloLen]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return h, err
	}
	if h, err = parseHello(b[:]); err != nil || !last {
		return h, err
	}
	return h, drained(s)
}

// drained reads the end of a stream that has nothing more to say.
func drained(r io.Reader) error {
	var b [1]byte
	switch n, err := io.ReadFull(r, b[:]); {
	case n > 0:
		return malformed("stream with bytes behind its end")
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	panic(fmt.Sprintf("bug: peer: a read of nothing: %v", b))
}
