package client_test

import (
	"testing"

	"github.com/quic-go/quic-go/quicvarint"

	"weida/broker/client"
	"weida/broker/wire"
)

// answerAll answers every PUBLISH, a range for what came with one read, and makes no memory for it: what
// is counted is the client's, and QUIC's.
func (b *side) answerAll() {
	buf := make([]byte, 1<<20)
	out := make([]byte, 0, 100)
	next, answered, at, end := uint64(1), uint64(1), 0, 0
	for {
		n, err := b.stream.Read(buf[end:])
		if err != nil {
			_ = b.stream.Close() // the client has ended
			return
		}
		for end += n; ; next++ {
			head, length := frameAt(buf[at:end])
			if head == 0 || end-at < head+length {
				break
			}
			at += head + length
		}
		end = copy(buf, buf[at:end])
		at = 0
		if next == answered {
			continue
		}
		out = append(out[:0], byte(wire.TypeEvidence), 0)
		out = quicvarint.Append(out, answered)
		out = quicvarint.Append(out, next-answered)
		out = append(out, 2, 1) // stored:written
		out = quicvarint.Append(out, answered-1)
		out = append(out, 1)
		out[1] = byte(len(out) - 2)
		answered = next
		if _, err := b.stream.Write(out); err != nil {
			return
		}
	}
}

// frameAt returns the sizes of the frame that b begins with; no head if it is not there.
func frameAt(b []byte) (head, length int) {
	_, n, err := quicvarint.Parse(b)
	if err != nil {
		return 0, 0
	}
	size, m, err := quicvarint.Parse(b[n:])
	if err != nil {
		return 0, 0
	}
	return n + m, int(size)
}

func leanly(t *testing.T, o client.ProducerOptions) (*client.Producer, func()) {
	t.Helper()
	s := newScript(t)
	o.Want = written
	p, b := s.opened(o, &wire.Opened{Offer: flushed, InFlight: 1024, InFlightSize: 16 << 20, Low: 1, Next: 1})
	ended := make(chan bool)
	go func() { b.answerAll(); close(ended) }()
	return p, func() {
		t.Helper()
		if err := p.Close(s.ctx); err != nil {
			t.Error(err)
		}
		<-ended
	}
}

// TestSendIsLean: a small message costs no allocation of its own, with an id or without: its body is
// copied into memory that stays.
func TestSendIsLean(t *testing.T) {
	for _, id := range []string{"", "p1"} {
		p, end := leanly(t, client.ProducerOptions{ID: id, Patience: -1})
		body := pattern(16) // many in a packet: what a packet costs is not what this is about
		bad := 0
		done := func(r client.Result) {
			if r.Outcome != client.OK {
				bad++
			}
		}
		send := func(n int) {
			for range n {
				if err := p.Send(t.Context(), client.Message{Bytes: body}, done); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(4096) // so that every slot has its memory
		const n = 40_000
		per := testing.AllocsPerRun(1, func() { send(n) }) / n
		end()
		if bad > 0 {
			t.Errorf("%d messages are not ok", bad)
		}
		if per >= 1 { // QUIC's packets and the ranges of answers come to less
			t.Errorf("with id %q: %.2f allocations for each message", id, per)
		}
	}
}
