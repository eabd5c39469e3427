package queue

import (
	"os"
	"runtime"
	"strconv"
	"testing"
)

// manners are ways in which messages follow each other. In the worst honest one, producers come in turns, lengths and
// sequences have nothing in common, and some sequences are never used.
var manners = []struct {
	name  string
	slots uint64 // producers
	next  func(i uint64, seqs []uint64) Command
	bound float64 // bytes of heap for a ready message
}{
	{"no producer, one length", 0, func(uint64, []uint64) Command {
		return Command{Kind: Publish, Length: 256}
	}, 0.1},
	{"one producer, one length", 1, func(_ uint64, seqs []uint64) Command {
		return from(1, 1, 256, seqs)
	}, 0.1},
	{"one producer, any length", 1, func(i uint64, seqs []uint64) Command {
		return from(1, 1, i*7919%65_537, seqs)
	}, 5},
	{"thousand producers, any length", 1000, func(i uint64, seqs []uint64) Command {
		return from(1+i*i*7919%1000, 1+i%3, i*7919%65_537, seqs)
	}, 12},
}

func from(slot, step, length uint64, seqs []uint64) Command {
	seqs[slot] += step
	return Command{Kind: PublishFrom, Slot: slot, Seq: seqs[slot], Low: seqs[slot], Length: int64(length)}
}

// fill publishes n messages.
func fill(s *State, manner int, n uint64) {
	m := manners[manner]
	seqs := make([]uint64, m.slots+1)
	for i := range m.slots {
		s.Apply(Command{Kind: Register, Producer: strconv.FormatUint(i, 10)}, nil)
		seqs[i+1] = i * 1_000_003 // producers of any age
	}
	var out []Effect
	for i := range n {
		c := m.next(i, seqs)
		c.Body = Ref{1, i + 1}
		if out = s.Apply(c, out[:0]); out[0].Kind != Published {
			panic("not published")
		}
	}
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// messagesEnv is how many messages the tests of memory publish.
func messagesEnv(t *testing.T) uint64 {
	s := os.Getenv("WEIDA_MESSAGES")
	if s == "" {
		return 200_000
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("WEIDA_MESSAGES=%q: %v", s, err)
	}
	return n
}

// TestMemoryOfReadyMessages: at most 16 bytes of heap in the worst honest case, near nothing in the usual one, as
// published, as restored, and when every second message is out. WEIDA_MESSAGES says how many.
func TestMemoryOfReadyMessages(t *testing.T) {
	n := messagesEnv(t)
	for i, m := range manners {
		t.Run(m.name, func(t *testing.T) {
			before := heap()
			s := &State{}
			fill(s, i, n)
			report := func(what string, bound float64) {
				t.Helper()
				c := s.Counts()
				per := (heap() - before) / float64(c.Ready) // the producers are in it, too
				t.Logf("%-9s %10d ready, %6.2f bytes each, %d runs", what, c.Ready, per, s.present.runs.len)
				if per > bound {
					t.Errorf("%s: %.2f bytes for a ready message, at most %.2f", what, per, bound)
				}
			}
			report("published", m.bound)
			s = pass(t, s)
			report("restored", m.bound)
			half(s)
			report("halved", 16) // half as many, and as many runs
			runtime.KeepAlive(s)
		})
	}
}

// pass moves a state through a snapshot, piece by piece.
func pass(t *testing.T, s *State) *State {
	var r Restorer
	s.View().Pieces(func(b []byte) bool {
		if err := r.Write(b); err != nil {
			t.Fatal(err)
		}
		return true
	})
	back, err := r.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// half takes every second message out, as a consumer would do that accepts them out of order, in the end.
func half(s *State) {
	for o := uint64(0); o < s.next; o += 2 {
		m := s.present.remove(o)
		s.leave(m.slot, 1)
		s.counts.Accepted++
	}
}

// BenchmarkQueue is a message's whole way: publish, assign, settle; with other messages waiting behind it.
func BenchmarkQueue(b *testing.B) {
	for i, m := range manners {
		b.Run(m.name, func(b *testing.B) {
			s := &State{}
			fill(s, i, 100_000)
			seqs := make([]uint64, m.slots+1)
			for slot := range seqs {
				if p, ok := s.producers.get(uint64(slot)); ok {
					seqs[slot] = p.next() - 1
				}
			}
			s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 1 << 62}, nil)
			ref := s.next
			var out []Effect
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				c := m.next(uint64(n), seqs)
				ref++
				c.Body = Ref{1, ref}
				out = s.Apply(c, out[:0])
				settle := Command{Kind: Settle, Subscription: "a", Offset: uint64(n), Attempt: 1, Term: 1, Verb: Accept}
				if out = s.Apply(settle, out[:0]); out[0].Kind != Settled {
					b.Fatal(out[0])
				}
			}
		})
	}
}

// BenchmarkSettleOutOfOrder settles 65,536 open deliveries in no order, each of which makes room for another.
func BenchmarkSettleOutOfOrder(b *testing.B) {
	s := &State{}
	fill(s, 3, 200_000)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 1 << 62}, nil)
	for s.Behind() {
		s.Apply(Continue(), nil)
	}
	open := s.openOffsets(0, s.next)
	var out []Effect
	body := Ref{2, 0}
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		body.Seq++
		out = s.Apply(Command{Kind: Publish, Body: body, Length: int64(n % 999)}, out[:0])
		at := &open[n*7919%len(open)]
		out = s.Apply(Command{
			Kind: Settle, Subscription: "a", Offset: at.offset, Attempt: 1, Term: termOf(s, at.offset), Verb: Reject,
		}, out[:0])
		at.offset = out[len(out)-1].Offset
	}
}

func termOf(s *State, offset uint64) uint64 {
	m, _ := s.present.get(offset)
	return m.ref.Term
}

// BenchmarkAttach takes 65,536 open deliveries over.
func BenchmarkAttach(b *testing.B) {
	s := &State{}
	fill(s, 3, 200_000)
	var out []Effect
	for n := range b.N {
		out = s.Apply(Command{Kind: Attach, Subscription: "a", Session: uint64(n) + 1, Limit: 1 << 62}, out[:0])
		for s.Behind() {
			out = s.Apply(Continue(), out[:0])
		}
	}
}

// BenchmarkPurge takes a million messages out. Each purge works on a copy whose nodes are another view's, too.
func BenchmarkPurge(b *testing.B) {
	for i, m := range manners {
		b.Run(m.name, func(b *testing.B) {
			s := &State{}
			fill(s, i, 1_000_000)
			b.ResetTimer()
			for range b.N {
				c := *s
				s.View()
				c.present.runs.gen, c.producers.gen = s.present.runs.gen, s.producers.gen
				c.Apply(Command{Kind: Purge}, nil)
			}
		})
	}
}

// BenchmarkSnapshot writes and restores a million messages; View is what the shard has to do of it.
func BenchmarkSnapshot(b *testing.B) {
	for i, m := range manners {
		s := &State{}
		fill(s, i, 1_000_000)
		snapshot := s.Snapshot()
		b.Run(m.name+"/View", func(b *testing.B) {
			for range b.N {
				s.View()
			}
		})
		b.Run(m.name+"/Pieces", func(b *testing.B) {
			b.SetBytes(int64(len(snapshot)))
			for range b.N {
				s.View().Pieces(func([]byte) bool { return true })
			}
		})
		b.Run(m.name+"/Restore", func(b *testing.B) {
			b.SetBytes(int64(len(snapshot)))
			for range b.N {
				if _, err := Restore(snapshot); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
