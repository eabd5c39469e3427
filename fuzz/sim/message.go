package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/segment"
)

// want is the evidence that a producer asks for.
type want struct {
	kind    wantKind
	n       int
	flushed bool
}

type wantKind uint8

const (
	wantAccepted wantKind = iota
	wantStored
	wantReplicated
)

func (w want) String() string {
	level := map[bool]string{true: ":flushed", false: ":written"}[w.flushed]
	switch w.kind {
	case wantAccepted:
		return "accepted"
	case wantStored:
		return "stored" + level
	case wantReplicated:
	}
	return fmt.Sprintf("replicated:%d%s", w.n, level)
}

// met says whether the evidence of a committed entry is enough.
func (w want) met(e evidence) bool {
	switch w.kind {
	case wantAccepted:
		return true
	case wantStored:
		return e.n >= 1 && (e.flushed || !w.flushed)
	case wantReplicated:
	}
	return e.n >= w.n && e.flushed
}

// message is one that a producer made: who it is from is in its bytes.
type message struct {
	group    raftstore.GroupID
	producer string // "" without one
	seq      uint64 // of the producer; without one it counts all such messages of the cluster
	body     []byte
}

// newMessage makes a message whose every byte follows from who it is from.
func newMessage(g raftstore.GroupID, producer string, seq uint64, size int) *message {
	m := &message{group: g, producer: producer, seq: seq}
	m.body = fmt.Appendf(nil, "g%d/%s/%d/%d\n", g, producer, seq, size)
	rng := rand.New(rand.NewPCG(uint64(g)<<32|seq, uint64(len(producer))))
	for len(m.body) < size {
		m.body = append(m.body, byte(rng.Uint32()))
	}
	return m
}

func (m *message) String() string {
	line, _, _ := bytes.Cut(m.body, []byte("\n"))
	return string(line)
}

// key tells messages apart.
func (m *message) key() string { return fmt.Sprintf("%s/%d", m.producer, m.seq) }

// parseMessage is the message that a body says it is.
func parseMessage(b []byte) (*message, error) {
	line, _, ok := bytes.Cut(b, []byte("\n"))
	parts := bytes.Split(line, []byte("/"))
	if !ok || len(parts) != 4 {
		return nil, fmt.Errorf("%d bytes that no producer made: %.40q", len(b), b)
	}
	var g, seq, size int
	head := fmt.Sprintf("%s %s %s", parts[0], parts[2], parts[3])
	if _, err := fmt.Sscanf(head, "g%d %d %d", &g, &seq, &size); err != nil {
		return nil, fmt.Errorf("%d bytes that no producer made: %.40q", len(b), b)
	}
	m := newMessage(raftstore.GroupID(g), string(parts[1]), uint64(seq), size)
	if !bytes.Equal(m.body, b) {
		return nil, fmt.Errorf("the body of %v has other bytes than its producer made", m)
	}
	return m, nil
}

// publish proposes a message; cmd says how.
func (d *desk) publish(m *message, cmd queue.Command, w want, reply func(result)) {
	if !d.reigns {
		reply(result{kind: refused, lead: d.lead})
		return
	}
	if len(m.body) > segment.InlineMax {
		d.upload(m, cmd, w, reply)
		return
	}
	d.offer(m, raftstore.Item{Command: cmd.Append(nil), HasBody: true, Inline: bytes.Clone(m.body)}, w, reply)
}

// offer proposes a message.
func (d *desk) offer(m *message, it raftstore.Item, w want, reply func(result)) {
	if d.o.mutate.drop && w.kind == wantStored && d.chance(30) {
		next := d.state.Counts().In
		reply(result{
			kind: done, effect: queue.Effect{Kind: queue.Published, Offset: next, Term: uint64(d.term)},
			proof: evidence{n: 1, flushed: true, index: d.marks.Applied + 1, term: d.term},
		})
		return
	}
	a := &ask{what: m.String(), want: w, body: m, reply: reply}
	if w.kind == wantAccepted {
		a.reply = nil // it is answered now, and never again
	}
	if err := d.ask(a, it); err != nil {
		if it.Large != nil {
			it.Large.Abort()
		}
		reply(result{kind: refused, lead: d.lead, why: err})
		return
	}
	if w.kind == wantAccepted {
		reply(result{kind: accepted})
	}
}
